package process

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/containers"
)

// patience bounds every wait of these tests. It only elapses if something is broken.
const patience = 60 * time.Second

// modeEnv makes the test binary behave like one of the workers below, or like a gateway to be killed.
const modeEnv = "XEBEC_TEST_MODE"

// noRaceSleep keeps the race detector from delaying the end of every child process by a second.
const noRaceSleep = "atexit_sleep_ms=0"

// assumeRaiseEnv makes a reaper assume that it may raise replicas. A reaper inherits variables with this name.
const assumeRaiseEnv = "LC_XEBEC_TEST_SURE"

// assumeUngroupedEnv makes a reaper assume that the scheduler does not group threads by session.
const assumeUngroupedEnv = "LC_XEBEC_TEST_UNGROUPED"

func TestMain(m *testing.M) {
	if os.Getenv(assumeUngroupedEnv) != "" {
		sessionsGrouped = func() bool { return false }
	}
	if os.Getenv(assumeRaiseEnv) != "" {
		tryRaise = func(int) error { return nil }
	}
	if script := os.Getenv(damagedReaperEnv); script != "" && os.Args[0] == reaperName {
		actDamagedReaper(script)
		os.Exit(0)
	}
	MaybeReaper()
	if mode := os.Getenv(modeEnv); mode != "" {
		act(mode)
		os.Exit(0)
	}
	os.Setenv("GORACE", noRaceSleep)
	goleak.VerifyTestMain(m)
}

// act is the main of the test's child processes.
func act(mode string) {
	switch mode {
	case "sleep": // until it is killed
		fmt.Println("ready")
		select {}
	case "polite": // ends with 7 on SIGTERM
		asked := make(chan os.Signal, 1)
		signal.Notify(asked, syscall.SIGTERM)
		fmt.Println("ready")
		<-asked
		fmt.Println("asked to end")
		os.Exit(7)
	case "stubborn": // ignores SIGTERM
		signal.Ignore(syscall.SIGTERM)
		fmt.Println("ready")
		select {}
	case "fds": // lists its descriptors
		entries, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			fatal(err)
		}
		for _, e := range entries {
			if target, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil { // the descriptor of the listing itself is closed
				fmt.Println(e.Name(), target)
			}
		}
	case "status":
		b, err := os.ReadFile("/proc/self/status")
		if err != nil {
			fatal(err)
		}
		os.Stdout.Write(b)
	case "family": // has a child in its group, one in a session of its own, and a daemon that lost its parent
		fmt.Println("child", spawn("stubborn", false))
		fmt.Println("session", spawn("stubborn", true))
		daemon := exec.Command("/proc/self/exe")
		daemon.Env = append(os.Environ(), modeEnv+"=forker")
		out, err := daemon.Output()
		if err != nil {
			fatal(err)
		}
		fmt.Print(string(out))
		fmt.Println("ready")
		select {}
	case "forker": // leaves an orphan in a session of its own
		fmt.Println("daemon", spawn("stubborn", true))
	case "gateway":
		actGateway()
	case "python gateway":
		actPythonGateway()
	case "threads": // creates threads all the time
		actThreads()
	case "unprivileged": // gives up the permission to raise, and continues as the next
		actUnprivileged()
	case "limited gateway": // has a replica with limits
		actLimitedGateway()
	case "concealed reaper": // looks into its own reaper
		actPeer()
	case "spy":
		actSpy()
	case "spied gateway": // has a spy among its replicas
		actSpiedGateway()
	case "quiet gateway": // has a quiet replica
		actQuietGateway()
	default:
		fatal(fmt.Errorf("unknown mode %q", mode))
	}
}

func fatal(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(99)
}

// spawn starts another one of these processes and returns its pid once it is ready.
func spawn(mode string, session bool) int {
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), modeEnv+"="+mode)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: session}
	out, err := cmd.StdoutPipe()
	if err != nil {
		fatal(err)
	}
	if err := cmd.Start(); err != nil {
		fatal(err)
	}
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		fatal(err)
	}
	return cmd.Process.Pid
}

// actGateway is a gateway with two families of workers. It prints their pids and waits to be killed.
func actGateway() {
	r, err := New(Config{})
	if err != nil {
		fatal(err)
	}
	for i := range 2 {
		out := &output{lines: make(chan string, 100)}
		in, err := r.Start(context.Background(), launch(uint64(i+1), "family", out))
		if err != nil {
			fatal(err)
		}
		fmt.Println("worker", in.PID())
		for line := range out.lines {
			if line == "ready" {
				break
			}
			fmt.Println(line)
		}
	}
	fmt.Println("reaper", r.link.cmd.Process.Pid)
	fmt.Println("ready")
	select {}
}

// output collects a stream as lines.
type output struct {
	mu    sync.Mutex
	part  string
	lines chan string // bounded: a test reads what its worker writes, or the worker writes little
}

func newOutput() *output { return &output{lines: make(chan string, 1000)} }

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.part += string(p)
	for {
		line, rest, ok := strings.Cut(o.part, "\n")
		if !ok {
			return len(p), nil
		}
		o.lines <- line
		o.part = rest
	}
}

// until returns the lines before the line want.
func (o *output) until(t *testing.T, want string) []string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var lines []string
	for {
		select {
		case line := <-o.lines:
			if line == want {
				return lines
			}
			lines = append(lines, line)
		case <-ctx.Done():
			t.Fatalf("timeout waiting for line %q, got %q", want, lines)
		}
	}
}

// all returns the remaining lines of a replica that has exited.
func (o *output) all() []string {
	var lines []string
	for {
		select {
		case line := <-o.lines:
			lines = append(lines, line)
		default:
			return lines
		}
	}
}

func self() string {
	path, err := os.Executable()
	if err != nil {
		panic(err)
	}
	return path
}

// plain is no isolation: most tests are about what holds for processes without it. isolation_test.go has the others.
var plain = containers.Isolation{Level: containers.IsolateNone}

// launch returns a launch of one of the modes; both streams go to out.
func launch(replica uint64, mode string, out *output) containers.Launch {
	return containers.Launch{
		Isolation: plain, Replica: replica, Model: api.ModelID{Name: "m", Version: "1"}, Dir: filepath.Dir(self()),
		Command: []string{self()}, Env: []string{modeEnv + "=" + mode, "GORACE=" + noRaceSleep}, Stdout: out, Stderr: out,
	}
}

// shell returns a launch of a script by /bin/sh.
func shell(t *testing.T, script string, out *output, args ...string) containers.Launch {
	return containers.Launch{
		Isolation: plain, Replica: 1, Model: api.ModelID{Name: "m", Version: "1"}, Dir: t.TempDir(),
		Command: append([]string{"/bin/sh", "-c", script, "sh"}, args...), Stdout: out, Stderr: out,
	}
}

// newRuntime returns a Runtime that leaves what is quiet as it is, however long it takes on a busy machine.
func newRuntime(t *testing.T) *Runtime {
	t.Helper()
	r, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	r.delays.hurry, r.delays.lowEnd = time.Hour, time.Hour
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

func start(t *testing.T, r *Runtime, l containers.Launch) containers.Instance {
	t.Helper()
	in, err := r.Start(t.Context(), l)
	if err != nil {
		t.Fatal(err)
	}
	return in
}

func waitExit(t *testing.T, in containers.Instance) containers.Exit {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	select {
	case <-in.Exited():
		return in.Exit()
	case <-ctx.Done():
		t.Fatalf("process %d has not ended", in.PID())
		panic("unreachable")
	}
}

// watched is a process that a test waits for without being its parent.
type watched struct {
	name    string
	pid, fd int
}

func watch(t *testing.T, name string, pid int) watched {
	t.Helper()
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		t.Fatalf("%s (process %d): %v", name, pid, err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	return watched{name, pid, fd}
}

// waitGone waits for the end of each process.
func waitGone(t *testing.T, all ...watched) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for _, w := range all {
		for {
			n, err := unix.Poll([]unix.PollFd{{Fd: int32(w.fd), Events: unix.POLLIN}}, int(time.Until(deadline).Milliseconds()))
			if err == unix.EINTR {
				continue
			}
			if err != nil || n == 0 {
				t.Fatalf("%s (process %d) has not ended: %v", w.name, w.pid, err)
			}
			break
		}
	}
}

// family parses "name pid" lines.
func family(t *testing.T, lines []string) []watched {
	t.Helper()
	var all []watched
	for _, line := range lines {
		name, pid, _ := strings.Cut(line, " ")
		n, err := strconv.Atoi(pid)
		if err != nil {
			t.Fatalf("line %q: expected a name and a pid", line)
		}
		all = append(all, watch(t, name, n))
	}
	return all
}

func reaperOf(t *testing.T, r *Runtime) int {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.link == nil {
		t.Fatal("no reaper runs")
	}
	return r.link.cmd.Process.Pid
}
