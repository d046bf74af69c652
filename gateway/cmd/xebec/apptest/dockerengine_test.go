package apptest

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// Environment variables, as in containers/docker and containers/images: the engine's address or "none", and the tag of
// the images that containers/images/build.sh has built on it.
const (
	envEngine = "XEBEC_TEST_DOCKER"
	envImages = "XEBEC_TEST_IMAGES"
)

// Labels by which operators find a gateway's containers: the gateway's process, and the model.
const (
	labelGatewayPID = "io.xebec.gateway.pid"
	labelModel      = "io.xebec.model"
)

// engine is a Docker engine with an image that has the programs /worker and /unruly. By default the image runs /worker.
type engine struct {
	address string
	dir     string // the directory of an engine that .ci/docker.sh started; empty for another engine
	image   string
}

// theEngine returns the engine that the environment names, or starts one for the test. If that is impossible the test is
// skipped with the reason.
func theEngine(t *testing.T) *engine {
	t.Helper()
	switch address := os.Getenv(envEngine); address {
	case "":
		return ownEngine(t)
	case "none":
		noEngine(t, envEngine+"=none")
		return nil
	default:
		e := &engine{address: address}
		e.load(t)
		return e
	}
}

func noEngine(t *testing.T, why string) {
	t.Helper()
	fmt.Fprintf(os.Stderr, "\n  NO DOCKER ENGINE: models in containers are NOT TESTED by %s (%s)\n\n", t.Name(), why)
	t.Skipf("no Docker engine: %s", why)
}

// ownEngine starts an engine that the test may kill.
func ownEngine(t *testing.T) *engine {
	t.Helper()
	switch {
	case os.Getenv(envEngine) == "none":
		noEngine(t, envEngine+"=none")
	case os.Getuid() != 0:
		noEngine(t, "an engine of the test's own needs root")
	}
	dir, err := os.MkdirTemp("/tmp", "xdk") // short, because it holds sockets
	if err != nil {
		t.Fatal(err)
	}
	e := &engine{dir: dir}
	t.Cleanup(func() {
		if out, err := e.script("stop").CombinedOutput(); err != nil {
			t.Errorf("stop the engine: %v\n%s", err, out)
		}
	})
	if err := e.start(); err != nil {
		if os.Getenv(envEngine) == "" { // no engine was promised
			noEngine(t, err.Error())
		}
		t.Fatal(err)
	}
	e.load(t)
	return e
}

func (e *engine) script(command string) *exec.Cmd {
	return exec.Command(filepath.Join(programs.repo, ".ci/docker.sh"), command, e.dir)
}

func (e *engine) start() error {
	out, err := e.script("start").Output()
	if err != nil {
		return fmt.Errorf("start a Docker engine: %w%s", err, stderrOf(err))
	}
	e.address = strings.TrimSpace(string(out))
	return nil
}

// kill ends an engine of the test's own with SIGKILL.
func (e *engine) kill(t *testing.T) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(e.dir, "pid"))
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	kill(t, pid)
	err = poll(t.Context(), func(ctx context.Context) (bool, string) {
		out, err := e.command(ctx, nil, "version").CombinedOutput()
		return err != nil, string(out)
	})
	if err != nil {
		t.Fatalf("waited for the engine's end: %v", err)
	}
}

func (e *engine) command(ctx context.Context, stdin io.Reader, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "docker", append([]string{"--host", e.address}, args...)...)
	cmd.Stdin = stdin
	return cmd
}

// docker runs the Docker command line, as an operator does, and returns its output.
func (e *engine) docker(t *testing.T, args ...string) string {
	t.Helper()
	return e.dockerWith(t, nil, args...)
}

func (e *engine) dockerWith(t *testing.T, stdin io.Reader, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience) // cleanups use it too
	defer cancel()
	out, err := e.command(ctx, stdin, args...).Output()
	if err != nil {
		t.Fatalf("docker %s: %v%s", strings.Join(args, " "), err, stderrOf(err))
	}
	return strings.TrimSpace(string(out))
}

// load builds the image, with a name of its own for this run.
func (e *engine) load(t *testing.T) {
	t.Helper()
	var files bytes.Buffer
	w := tar.NewWriter(&files)
	dir := newDir(t)
	for name, pkg := range map[string]string{"unruly": "./gateway/cmd/xebec/apptest/testdata/unruly", "worker": "./worker/bindings/go/cmd/xebec-testworker"} {
		data, err := static(dir, name, pkg)
		if err == nil {
			err = w.WriteHeader(&tar.Header{Name: name, Mode: 0o755, Size: int64(len(data))})
		}
		if err == nil {
			_, err = w.Write(data)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	e.image = fmt.Sprintf("xebec-apptest:%d", os.Getpid())
	e.dockerWith(t, &files, "import", "--change", `ENTRYPOINT ["/worker"]`, "--change", "ENV XEBEC_TESTWORKER_MODE=markers", "-", e.image)
	if e.dir == "" { // otherwise it is removed with its engine
		t.Cleanup(func() { e.docker(t, "rmi", "--force", e.image) })
	}
}

// static compiles a static program.
func static(dir, name, pkg string) ([]byte, error) {
	tool := os.Getenv("GO")
	if tool == "" {
		tool = "go"
	}
	file := filepath.Join(dir, name)
	cmd := exec.Command(tool, "build", "-o", file, pkg)
	cmd.Dir, cmd.Env = programs.repo, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%s: %w\n%s", cmd, err, out)
	}
	return os.ReadFile(file)
}

// serve starts a gateway that uses the engine. After the gateway's end it checks that no container is left.
func (e *engine) serve(t *testing.T, args ...string) *gateway {
	t.Helper()
	var g *gateway
	t.Cleanup(func() {
		if g != nil {
			e.wantNone(t, g)
		}
	})
	g = serve(t, append([]string{"--docker", e.address}, args...)...)
	return g
}

// wantNone fails if a gateway that has ended left containers, and removes them.
func (e *engine) wantNone(t *testing.T, g *gateway) {
	t.Helper()
	if left := e.containers(t, g, ""); len(left) > 0 {
		t.Errorf("containers outlived the gateway: %v", left)
		e.docker(t, append([]string{"rm", "--force"}, left...)...)
	}
}

// containers returns the names of a gateway's containers, running or not, of one model or, without a name, of all.
func (e *engine) containers(t *testing.T, g *gateway, model string) []string {
	t.Helper()
	args := []string{"ps", "--all", "--format", "{{.Names}}", "--filter", fmt.Sprintf("label=%s=%d", labelGatewayPID, g.cmd.Process.Pid)}
	if model != "" {
		args = append(args, "--filter", "label="+labelModel+"="+model)
	}
	return strings.Fields(e.docker(t, args...))
}

// awaitContainers waits until a model has n containers.
func (e *engine) awaitContainers(g *gateway, model string, n int) {
	g.t.Helper()
	g.await(fmt.Sprintf("%d containers of %q", n, model), func(context.Context) (bool, string) {
		found := e.containers(g.t, g, model)
		return len(found) == n, fmt.Sprint(found)
	})
}

// awaitLog waits until a model's log has a text. A container's output passes through its engine, which delays it.
func (g *gateway) awaitLog(model, says string) {
	g.t.Helper()
	g.await(fmt.Sprintf("%q in the log of %s", says, model), func(context.Context) (bool, string) {
		out := g.must("logs", model)
		return strings.Contains(out, says), out
	})
}

// imageModel is a manifest of a model in a container, bytes in and bytes out, with a directory of one file. command is
// the content of the list run.command; empty means the image's own command.
func imageModel(t *testing.T, name, image, command string, extra ...string) string {
	t.Helper()
	dir := openDir(t)
	writeFile(t, dir, "weights", "heavy")
	if command != "" {
		command = ", command: [" + command + "]"
	}
	return fmt.Sprintf(`
---
kind: Model
name: %s
version: "1"
dir: %s
inputs:  [{name: input, dtype: bytes, shape: []}]
outputs: [{name: output, dtype: bytes, shape: []}]
run: {image: %q%s}
%s
`, name, dir, image, command, strings.Join(extra, "\n"))
}

// openDir makes a directory that a container's user may read.
func openDir(t *testing.T) string {
	t.Helper()
	dir := newDir(t)
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}
