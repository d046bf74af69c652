package docker

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
	"sync"
	"testing"
	"time"

	"github.com/moby/moby/client"
	"go.uber.org/goleak"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/containers"
	"github.com/xebec-serving/xebec/worker"
	"github.com/xebec-serving/xebec/worker/local"
	"github.com/xebec-serving/xebec/worker/workertest"
)

// envEngine names the engine for the tests: its address, or "none". Without it they start their own.
const envEngine = "XEBEC_TEST_DOCKER"

// patience bounds every wait of a test. What is waited for takes milliseconds, or on a busy machine seconds.
const patience = 2 * time.Minute

var (
	address  string // of the engine; empty: there is none
	whyNone  string
	programs string // a directory with the static programs of the images
)

func TestMain(m *testing.M) {
	if part := os.Getenv(envPart); part != "" {
		os.Exit(play(part))
	}
	code, stop := 1, func() {}
	defer func() { stop(); os.Exit(code) }()
	switch address = os.Getenv(envEngine); address {
	case "":
		var err error
		if address, stop, err = startEngine(); err != nil {
			address, whyNone = "", err.Error()
		}
	case "none":
		address, whyNone = "", envEngine+"=none"
	}
	if address == "" {
		fmt.Fprintf(os.Stderr, "\n  NO DOCKER ENGINE: containers are NOT TESTED (%s)\n\n", whyNone)
	}
	dir, err := os.MkdirTemp("", "xebec-programs")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	defer os.RemoveAll(dir)
	programs = dir
	code = m.Run()
	if code == 0 {
		// netpoll's pollers serve the whole process and never end.
		if err := goleak.Find(goleak.IgnoreAnyFunction("github.com/cloudwego/netpoll.(*defaultPoll).Wait")); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
}

// startEngine runs an engine with these flags in a directory of its own.
func startEngine(flags ...string) (address string, stop func(), err error) {
	dir, err := os.MkdirTemp("/tmp", "xdk") // short, because of its sockets
	if err != nil {
		return "", nil, err
	}
	if address, err = engineIn(dir, flags...); err != nil {
		os.RemoveAll(dir)
		return "", nil, err
	}
	return address, func() {
		if out, err := script("stop", dir).CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "stop the engine: %v\n%s", err, out)
		}
	}, nil
}

func engineIn(dir string, flags ...string) (string, error) {
	c := script("start", dir)
	c.Env = append(os.Environ(), "DOCKERD_FLAGS="+strings.Join(flags, " "))
	var stderr bytes.Buffer
	c.Stderr = &stderr
	out, err := c.Output()
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, strings.TrimSpace(stderr.String()))
	}
	return strings.TrimSpace(string(out)), nil
}

func script(args ...string) *exec.Cmd { return exec.Command("../../.ci/docker.sh", args...) }

// needEngine skips a test without an engine; .ci/test.sh reports it in its summary.
func needEngine(t *testing.T) {
	t.Helper()
	if address == "" {
		t.Skipf("no Docker engine: %s", whyNone)
	}
}

// program compiles a program of the images, once.
func program(t *testing.T, name, pkg string) string {
	t.Helper()
	path := filepath.Join(programs, name)
	if _, err := os.Stat(path); err == nil {
		return path
	}
	build := exec.Command("go", "build", "-o", path, pkg)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v\n%s", pkg, err, out)
	}
	return path
}

// archive returns a file system with these files, all of them executable.
func archive(t *testing.T, files map[string]string) []byte {
	t.Helper()
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for name, from := range files {
		data, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o755, Size: int64(len(data))}); err != nil {
			t.Fatal(err)
		}
		w.Write(data)
	}
	for _, dir := range []string{"usr", "baked"} {
		w.WriteHeader(&tar.Header{Name: dir + "/", Mode: 0o777, Typeflag: tar.TypeDir})
	}
	w.WriteHeader(&tar.Header{Name: "baked/weights", Mode: 0o644, Size: 5})
	io.WriteString(w, "heavy")
	w.Close()
	return buf.Bytes()
}

// rig is a Runtime on an engine with a test image, and access to the engine.
type rig struct {
	t      *testing.T
	r      *Runtime
	engine *client.Client
	host   string
	image  string
	hub    *local.Hub
	last   uint64
}

var imported sync.Map // by engine and image

// newRig makes a runtime on an engine. The image has both programs, and these changes.
func newRig(t *testing.T, host string, changes ...string) *rig {
	t.Helper()
	needEngine(t)
	g := &rig{t: t, host: host, image: "xebec-test-plain:1"}
	if len(changes) > 0 {
		g.image = fmt.Sprintf("xebec-test-%s:1", strings.ToLower(strings.Map(func(c rune) rune {
			if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' {
				return c
			}
			return -1
		}, strings.Join(changes, ""))))
	}
	var err error
	if g.engine, err = client.New(client.WithHost(host)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { g.engine.Close() })
	if _, done := imported.LoadOrStore(host+g.image, true); !done {
		tarred := archive(t, map[string]string{
			"stray": program(t, "stray", "./testdata/stray"), "worker": program(t, "worker", "github.com/xebec-serving/xebec/worker/bindings/go/cmd/xebec-testworker"),
		})
		res, err := g.engine.ImageImport(t.Context(), client.ImageImportSource{Source: bytes.NewReader(tarred), SourceName: "-"}, g.image,
			client.ImageImportOptions{Changes: append([]string{"ENV XEBEC_TESTWORKER_MODE=markers"}, changes...)})
		if err != nil {
			t.Fatal(err)
		}
		io.Copy(io.Discard, res)
		res.Close()
	}
	dir, err := os.MkdirTemp("/tmp", "xebec")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if g.hub, err = local.Listen(local.Config{Socket: filepath.Join(dir, "w"), Doors: filepath.Join(dir, "d"), Now: workertest.Now}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { g.hub.Close() })
	g.r = g.runtime(t.Name(), 0)
	return g
}

// runtime makes another Runtime on the engine, which must leave nothing behind. Memory is the bound of containers
// without a limit of their own; 0: none.
func (g *rig) runtime(owner string, memory int64) *Runtime {
	g.t.Helper()
	r, err := New(Config{Host: g.host, Owner: owner, MemoryBytes: memory})
	if err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(func() {
		if err := r.Close(); err != nil {
			g.t.Errorf("close: %v", err)
		}
		if left := g.containers(labelGateway + "=" + owner); len(left) != 0 {
			g.t.Errorf("containers left behind: %v", left)
		}
	})
	return r
}

// containers returns the names of the containers with a label, running or not.
func (g *rig) containers(label string) (names []string) {
	g.t.Helper()
	list, err := g.engine.ContainerList(context.Background(), client.ContainerListOptions{All: true, Filters: make(client.Filters).Add("label", label)})
	if err != nil {
		g.t.Errorf("list containers: %v", err)
	}
	for _, c := range list.Items {
		names = append(names, strings.TrimPrefix(c.Names[0], "/"))
	}
	return names
}

// collected is one stream of a container's output.
type collected struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (c *collected) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.buf.Write(b)
}

func (c *collected) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.buf.String()
}

// started is an instance with its output and its worker's launch.
type started struct {
	*instance
	out, err *collected
	worker   *workertest.Launch
}

// launch returns the launch of a replica; change may modify it.
func (g *rig) launch(command []string, change func(*containers.Launch)) (containers.Launch, *started) {
	g.t.Helper()
	g.last++
	s := &started{out: &collected{}, err: &collected{}, worker: workertest.Expect(g.t, g.hub, worker.Expectation{Signature: workertest.Text(), Depth: 2, Isolated: true})}
	l := containers.Launch{
		Replica: g.last, Model: api.ModelID{Name: "conformance", Version: "1"}, Command: command, Image: g.image,
		Env: s.worker.Env, Stdout: s.out, Stderr: s.err,
	}
	if change != nil {
		change(&l)
	}
	return l, s
}

func (g *rig) start(command []string, change func(*containers.Launch)) *started {
	g.t.Helper()
	l, s := g.launch(command, change)
	in, err := g.r.Start(g.t.Context(), l)
	if err != nil {
		g.t.Fatalf("start: %v", err)
	}
	s.instance = in.(*instance)
	return s
}

// wantExit waits for the end.
func (s *started) wantExit(t *testing.T) containers.Exit {
	t.Helper()
	select {
	case <-s.Exited():
	case <-time.After(patience):
		t.Fatalf("the replica has not ended; output: %s %s", s.out, s.err)
	}
	return s.Exit()
}

// wantOutput waits until stdout contains a text.
func (s *started) wantOutput(t *testing.T, text string) {
	t.Helper()
	until(t, fmt.Sprintf("output %q", text), func() bool { return strings.Contains(s.out.String(), text) })
}

// until polls for a condition.
func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	deadline := time.Now().Add(patience)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		if time.Now().After(deadline) {
			t.Fatalf("timeout waiting for %s", what)
		}
		<-tick.C
	}
}

// modelDir makes a model's directory that every user may read.
func modelDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "xebec-model")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	os.Chmod(dir, 0o755)
	if err := os.WriteFile(filepath.Join(dir, "greeting"), []byte("hello"), 0o644); err != nil {
		t.Fatal(err)
	}
	return dir
}

// enginePID returns the process of an engine that startEngine started.
func enginePID(t *testing.T, address string) int {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(filepath.Dir(strings.TrimPrefix(address, "unix://")), "pid"))
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		t.Fatal(err)
	}
	return pid
}
