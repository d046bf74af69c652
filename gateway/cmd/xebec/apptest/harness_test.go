package apptest

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

const (
	// patience is how long a condition may take to come true. It is far more than a busy machine needs. It exists so that
	// a test that would hang says what it waited for.
	patience = 90 * time.Second
	// pollEvery is the interval at which a condition is checked.
	pollEvery = 10 * time.Millisecond
	// sideBySide is the number of tests that run at a time on a small machine, unless -parallel is given.
	sideBySide = 4
)

// programs are the real programs, built once for all tests.
var programs struct {
	xebec  string
	worker string // xebec-testworker
	root   string // holds the programs and every test's directory
	repo   string // the module's folder
}

func TestMain(m *testing.M) {
	flag.Parse()
	// The tests mostly wait for processes, so more of them than cores can run at a time.
	if f := flag.Lookup("test.parallel"); f.Value.String() == fmt.Sprint(runtime.GOMAXPROCS(0)) && runtime.GOMAXPROCS(0) < sideBySide {
		_ = f.Value.Set(fmt.Sprint(sideBySide))
	}
	os.Exit(runAll(m))
}

func runAll(m *testing.M) int {
	defer func() { os.RemoveAll(programs.root) }()
	if err := build(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	code := m.Run()
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, "goroutines of the tests themselves are left:", err)
		return 1
	}
	return code
}

func build() error {
	here, err := os.Getwd()
	if err != nil {
		return err
	}
	programs.repo = filepath.Join(here, "../../../..")
	// The path is short: a socket's path has at most 107 bytes.
	if programs.root, err = os.MkdirTemp("", "xebec-apptest-"); err != nil {
		return err
	}
	if *storeWriter != "" {
		dir, err := writerPrograms()
		programs.xebec, programs.worker = filepath.Join(dir, "xebec"), filepath.Join(dir, "xebec-testworker")
		return err
	}
	programs.xebec = filepath.Join(programs.root, "xebec")
	programs.worker = filepath.Join(programs.root, "xebec-testworker")
	flags := []string{}
	if raceDetector {
		flags = []string{"-race"}
	}
	if binary := os.Getenv("XEBEC_TEST_GATEWAY"); binary != "" { // another build, to compare with
		programs.xebec = binary
		return compile(programs.worker, "./worker/bindings/go/cmd/xebec-testworker", nil)
	}
	return errors.Join(compile(programs.xebec, "./gateway/cmd/xebec", flags), compile(programs.worker, "./worker/bindings/go/cmd/xebec-testworker", nil))
}

func compile(output, pkg string, flags []string) error {
	tool := os.Getenv("GO")
	if tool == "" {
		tool = "go"
	}
	cmd := exec.Command(tool, slices.Concat([]string{"build"}, flags, []string{"-o", output, pkg})...)
	cmd.Dir = programs.repo
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", cmd, err, out)
	}
	return nil
}

// lookAtSources stats every file that the programs are made of, once. `go test` caches a result as long as the files that
// the test itself opened or examined are unchanged. It does not see what a compiler started by the test reads, nor what
// TestMain does before the tests.
var lookAtSources = sync.OnceValue(func() error {
	for _, dir := range []string{"api", "shm", "scheduler", "worker", "containers", "gateway", "deploy/demo"} {
		err := filepath.WalkDir(filepath.Join(programs.repo, dir), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !slices.Contains([]string{".go", ".py", ".c", ".lua", ".yaml", ".txt"}, filepath.Ext(path)) {
				return err
			}
			_, err = os.Stat(path)
			return err
		})
		if err != nil {
			return err
		}
	}
	_, err := os.Stat(filepath.Join(programs.repo, "go.mod"))
	return err
})

// gateway is one `xebec serve` and its processes.
type gateway struct {
	t         *testing.T
	dir       string // its TMPDIR and working directory
	functions string // host:port
	admin     string
	client    *http.Client

	cmd    *exec.Cmd
	log    string
	exited chan struct{}
	ended  bool // the test has waited for its end
}

// serve starts a gateway with the arguments and waits until it is ready. When the test ends it stops the gateway and
// checks how it ended.
func serve(t *testing.T, args ...string) *gateway {
	t.Helper()
	return serveIn(t, newDir(t), args...)
}

// serveIn starts a gateway in an existing directory.
func serveIn(t *testing.T, dir string, args ...string) *gateway {
	t.Helper()
	g := launch(t, dir, append([]string{"--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"}, args...)...)
	g.ready()
	return g
}

// ready waits until a launched gateway serves.
func (g *gateway) ready() {
	g.t.Helper()
	g.await("the gateway's addresses", g.readAddresses)
	g.await("readyz to turn 200", func(ctx context.Context) (bool, string) {
		status, body := g.fetch(ctx, "http://"+g.functions+"/readyz")
		return status == 200, body
	})
}

// launch runs `xebec serve` and returns at once. The gateway stores nothing unless the arguments name a data directory.
func launch(t *testing.T, dir string, args ...string) *gateway {
	t.Helper()
	return launchWith(t, dir, nil, args...)
}

// launchWith is launch with additional environment variables.
func launchWith(t *testing.T, dir string, env []string, args ...string) *gateway {
	t.Helper()
	if !slices.Contains(args, "--grpc-listen") { // its default port belongs to one gateway at a time
		args = append(args, "--grpc-listen", "off")
	}
	cmd := exec.Command(programs.xebec, append([]string{"serve"}, args...)...)
	cmd.Env = env
	return launchCommand(t, dir, cmd)
}

// launchCommand is launch of a command that becomes a gateway, with the environment variables that it has besides the usual ones.
func launchCommand(t *testing.T, dir string, cmd *exec.Cmd) *gateway {
	t.Helper()
	if err := lookAtSources(); err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{MaxIdleConnsPerHost: 256}
	g := &gateway{t: t, dir: dir, client: &http.Client{Transport: transport}, exited: make(chan struct{})}
	log, err := os.CreateTemp(dir, "gateway-*.log")
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	g.log = log.Name()
	g.cmd = cmd
	g.cmd.Dir = dir
	g.cmd.Env = slices.Concat(os.Environ(), []string{"XEBEC_DATA_DIR=none", "TMPDIR=" + dir, "GORACE=halt_on_error=1 atexit_sleep_ms=0"}, g.cmd.Env)
	g.cmd.Stdout, g.cmd.Stderr = log, log
	// If the tests are killed, for example by their time limit, the kernel kills the gateway too. It sends this signal
	// when the thread that started the process ends, so a goroutine stays locked to that thread.
	if g.cmd.SysProcAttr == nil { // else the test has chosen a user
		g.cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	g.cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	started := make(chan error)
	go func() {
		defer close(g.exited)
		runtime.LockOSThread()
		err := g.cmd.Start()
		started <- err
		if err == nil {
			_ = g.cmd.Wait() // ProcessState says how it ended
		}
	}()
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if !g.ended {
			g.stop()
		}
		transport.CloseIdleConnections()
		if t.Failed() {
			t.Logf("end of the gateway's log:\n%s", tail(g.logText(), 60))
		}
	})
	return g
}

// newDir makes a directory with a short path, which is removed after the test.
func newDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp(programs.root, "t")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

var servingLine = regexp.MustCompile(`serving\s+\{"functions": "([^"]+)", "admin": "([^"]+)"`)

func (g *gateway) readAddresses(context.Context) (bool, string) {
	found := servingLine.FindStringSubmatch(g.logText())
	if found == nil {
		return false, g.logText()
	}
	g.functions, g.admin = found[1], found[2]
	return true, ""
}

func (g *gateway) logText() string {
	text, err := os.ReadFile(g.log)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

func tail(text string, lines int) string {
	all := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// stop asks the gateway to end and checks that it ends with status 0, without a data race, and leaves no process.
func (g *gateway) stop() {
	g.t.Helper()
	g.client.CloseIdleConnections() // the gateway would wait for them
	if err := g.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		g.t.Errorf("SIGTERM: %v", err)
	}
	g.gone(0)
}

// gone waits until the gateway and its processes have ended. Status -1 means SIGKILL.
func (g *gateway) gone(status int) {
	g.t.Helper()
	g.ended = true
	select {
	case <-g.exited:
	case <-time.After(patience):
		g.t.Errorf("the gateway did not end within %v", patience)
		_ = g.cmd.Process.Kill()
		<-g.exited
	}
	if got := g.cmd.ProcessState.ExitCode(); got != status {
		g.t.Errorf("the gateway ended with %v: expected status %d\n%s", g.cmd.ProcessState, status, tail(g.logText(), 30))
	}
	if text := g.logText(); defect.MatchString(text) {
		g.t.Errorf("the gateway's log has a panic or a data race:\n%s", text)
	}
	if g.dir == "" {
		return
	}
	err := poll(context.Background(), func(context.Context) (bool, string) {
		left := processesOf(g.dir)
		return len(left) == 0, fmt.Sprintf("%v", left)
	})
	if err != nil {
		g.t.Errorf("processes outlived the gateway: %v", err)
		for _, p := range processesOf(g.dir) { // the gateway's, by their TMPDIR
			_ = syscall.Kill(p.pid, syscall.SIGKILL)
		}
	}
}

// defect matches what the Go runtime writes when the program is wrong, always at the beginning of a line.
var defect = regexp.MustCompile(`(?m)^(WARNING: DATA RACE|panic: |fatal error: )`)

// await waits for the condition, which also returns its state for the failure message. It fails the test when patience is
// over or the gateway has ended.
func (g *gateway) await(what string, condition func(context.Context) (bool, string)) {
	g.t.Helper()
	err := poll(g.t.Context(), func(ctx context.Context) (bool, string) {
		ok, state := condition(ctx)
		select {
		case <-g.exited:
			if !ok && !g.ended {
				return true, "exited"
			}
		default:
		}
		return ok, state
	})
	if err != nil {
		g.t.Fatalf("waited for %s: %v", what, err)
	}
	select {
	case <-g.exited:
		if !g.ended {
			g.t.Fatalf("the gateway ended while the test waited for %s: %v\n%s", what, g.cmd.ProcessState, tail(g.logText(), 30))
		}
	default:
	}
}

// poll checks a condition until it is true.
func poll(ctx context.Context, condition func(context.Context) (bool, string)) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	state := "it was never checked"
	for {
		ok, now := condition(ctx)
		if ok {
			return nil
		}
		if ctx.Err() == nil {
			state = now
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("not true within %v; last state: %s", patience, state)
		}
	}
}

// bounded is the test's context limited to patience.
func bounded(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// python returns the interpreter with the binding and the demo's libraries.
func python(t *testing.T) string {
	t.Helper()
	path, err := checkedPython()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// checkedPython imports the libraries once: imports take seconds on a busy machine.
var checkedPython = sync.OnceValues(func() (string, error) {
	path := os.Getenv("XEBEC_TEST_PYTHON")
	if path == "" {
		path = filepath.Join(programs.repo, "build/venv/bin/python")
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if out, err := exec.CommandContext(ctx, path, "-c", "import numpy, sklearn, joblib, xebec").CombinedOutput(); err != nil {
		return "", fmt.Errorf("%s is not a Python with the worker binding and scikit-learn (%w: %s): `make demo` at the repository's root makes build/venv, and XEBEC_TEST_PYTHON names another one",
			path, err, bytes.TrimSpace(out))
	}
	return path, nil
})
