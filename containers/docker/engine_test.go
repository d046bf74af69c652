package docker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/moby/moby/client"

	"github.com/xebec-serving/xebec/containers"
	"github.com/xebec-serving/xebec/worker/workertest"
)

// envPart makes the test binary act as a gateway that is killed.
const envPart = "XEBEC_DOCKER_TEST_PART"

// play starts a container and prints its name. Then it is killed.
func play(string) int {
	r, err := New(Config{Host: os.Getenv("PART_HOST"), Owner: "victim"})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	in, err := r.Start(context.Background(), containers.Launch{Replica: 1, Command: []string{"/stray", "deaf"}, Image: os.Getenv("PART_IMAGE"), Env: []string{"XEBEC_SOCKET=" + os.Getenv("PART_SOCKET")}})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Println(in.(*instance).name)
	<-in.Exited()
	return 0
}

// listen makes a socket that never answers.
func listen(t *testing.T, dir string) string {
	t.Helper()
	path := filepath.Join(dir, "s")
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	return path
}

// ownEngine starts an engine that a test may kill, and returns its directory.
func ownEngine(t *testing.T, flags ...string) (host, dir string) {
	t.Helper()
	needEngine(t)
	host, stop, err := startEngine(flags...)
	if err != nil {
		if os.Getenv(envEngine) != "" && os.Getuid() != 0 { // the configured engine is not ours to kill
			t.Skipf("no engine that may be killed: %v", err)
		}
		t.Fatal(err)
	}
	t.Cleanup(stop)
	return host, filepath.Dir(strings.TrimPrefix(host, "unix://"))
}

// An engine that is killed does not break the replicas' connections. While it is away a replica keeps serving, and a
// launch fails with the engine's name. When it is back it has ended the replicas, which is reported, and new ones
// start.
func TestEngineKilled(t *testing.T) {
	host, dir := ownEngine(t, "--init-path=/no/such/docker-init")
	g := newRig(t, host)
	in := g.start([]string{"/worker"}, nil)
	s := workertest.NewSession(t, in.worker)
	s.WantTexts(s.Send(workertest.Texts("before")...), "before")
	dies := g.start([]string{"/stray", "deaf"}, nil)
	dies.wantOutput(t, "deaf")
	info, err := g.engine.ContainerInspect(t.Context(), in.id, client.ContainerInspectOptions{})
	if err != nil || info.Container.HostConfig.Init == nil || *info.Container.HostConfig.Init {
		t.Errorf("the container has an init although the engine has none (%v)", err)
	}

	kill(t, host)
	s.WantTexts(s.Send(workertest.Texts("without", "the engine")...), "without", "the engine")
	l, _ := g.launch([]string{"/worker"}, nil)
	if _, err := g.r.Start(t.Context(), l); err == nil || !strings.Contains(err.Error(), host) {
		t.Errorf("start without an engine: error %v, expected one that names it", err)
	}
	select {
	case <-in.Exited():
		t.Errorf("reported as ended while it serves: %+v", in.Exit())
	default:
	}
	if err := dies.Signal(false); err != nil { // goes to the process
		t.Errorf("kill while the engine is away: %v", err)
	}
	if exit := dies.wantExit(t); !strings.Contains(exit.String(), host+" went away while it ran, and it has ended since") {
		t.Errorf("%+v", exit)
	}

	if _, err := engineIn(dir, "--init-path=/no/such/docker-init"); err != nil {
		t.Fatal(err)
	}
	exit := in.wantExit(t)
	if !strings.Contains(exit.String(), "the Docker engine at "+host+" went away while it ran") {
		t.Errorf("%+v", exit)
	}
	s.End()
	again := g.start([]string{"/worker"}, nil)
	r := workertest.NewSession(t, again.worker)
	r.WantTexts(r.Send(workertest.Texts("after")...), "after")
	if left := g.containers(labelGateway); len(left) != 1 {
		t.Errorf("containers: %v, expected the new one", left)
	}
	again.Signal(false)
	again.wantExit(t)
	r.End()
}

// With live-restore, containers outlive their engine: the replica and its output continue, and the pending kill is
// sent.
func TestEngineReplaced(t *testing.T) {
	host, dir := ownEngine(t, "--live-restore")
	g := newRig(t, host)
	in := g.start([]string{"/worker"}, nil)
	s := workertest.NewSession(t, in.worker)
	counts := g.start([]string{"/stray", "count"}, nil)
	counts.wantOutput(t, "count 3\n")
	kill(t, host)
	s.WantTexts(s.Send(workertest.Texts("without")...), "without")
	if _, err := engineIn(dir, "--live-restore"); err != nil {
		t.Fatal(err)
	}
	until(t, "the log line about the outage", func() bool { return strings.Contains(counts.err.String(), "was away") })
	seen := len(counts.out.String())
	until(t, "output after the engine's return", func() bool { return len(counts.out.String()) > seen })
	s.WantTexts(s.Send(workertest.Texts("after")...), "after")
	for _, i := range []*started{in, counts} {
		if err := i.Signal(false); err != nil {
			t.Error(err)
		}
		if exit := i.wantExit(t); exit.Signal != int(syscall.SIGKILL) {
			t.Errorf("%+v", exit)
		}
	}
	s.End()
}

// A Runtime that is closed while the engine is away still ends its replicas.
func TestCloseWithoutEngine(t *testing.T) {
	host, dir := ownEngine(t)
	g := newRig(t, host)
	r := g.r
	in := g.start([]string{"/stray", "deaf"}, nil)
	in.wantOutput(t, "deaf")
	kill(t, host)
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	if exit := in.wantExit(t); !strings.Contains(exit.String(), "went away") {
		t.Errorf("%+v", exit)
	}
	if _, lives := startOf(in.PID()); lives {
		t.Error("its process still runs")
	}
	if _, err := engineIn(dir); err != nil {
		t.Fatal(err)
	}
	next := g.runtime("the next gateway", 0)
	if err := next.Sweep(t.Context()); err != nil { // this process lives and the containers have another name: nothing is touched
		t.Fatal(err)
	}
	mine := g.runtime(t.Name(), 0)
	if err := mine.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	if left := g.containers(labelGateway); len(left) != 0 {
		t.Errorf("containers are left: %v", left)
	}
}

// An engine that hangs answers nothing and breaks no connection. Replicas keep serving. A replica whose process ends is
// reported gone, with an unknown exit code. Signals reach the others. A launch logs that it waits for the engine. When
// the engine continues, so does everything, and nothing is left.
func TestEngineHangs(t *testing.T) {
	host, _ := ownEngine(t)
	g := newRig(t, host)
	in := g.start([]string{"/worker"}, nil)
	s := workertest.NewSession(t, in.worker)
	dies, asked, deaf := g.start([]string{"/stray", "sleep"}, nil), g.start([]string{"/stray", "sleep"}, nil), g.start([]string{"/stray", "deaf"}, nil)
	dies.wantOutput(t, "asleep")
	asked.wantOutput(t, "asleep")
	deaf.wantOutput(t, "deaf")

	thaw := freeze(t, host)
	s.WantTexts(s.Send(workertest.Texts("beside", "a hung engine")...), "beside", "a hung engine")
	if err := syscall.Kill(dies.PID(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if exit := dies.wantExit(t); exit.Code != -1 || !strings.Contains(exit.String(), "unknown exit code, because the Docker engine at "+host+" does not answer") {
		t.Errorf("%+v", exit)
	}
	if err := dies.Signal(false); err != nil {
		t.Errorf("a signal after the exit: %v", err)
	}
	for _, c := range []struct {
		in   *started
		term bool
	}{{asked, true}, {deaf, true}, {deaf, false}} {
		if err := c.in.Signal(c.term); err != nil {
			t.Errorf("a signal while the engine hangs: %v", err)
		}
	}
	for _, i := range []*started{asked, deaf} {
		i.wantExit(t)
		if !strings.Contains(i.err.String(), "the Docker engine at "+host+" does not answer: the signal was sent to the process directly") {
			t.Errorf("unexpected log\n%s", i.err)
		}
	}
	ctx, giveUp := context.WithCancel(t.Context())
	l, waits := g.launch([]string{"/worker"}, nil)
	failed := make(chan error, 1)
	go func() { _, err := g.r.Start(ctx, l); failed <- err }()
	until(t, "the log line about the wait", func() bool {
		return strings.Contains(waits.err.String(), "the Docker engine at "+host+" does not answer: this replica has been waiting")
	})
	giveUp()
	if err := <-failed; !errors.Is(err, context.Canceled) {
		t.Errorf("the cancelled launch: error %v, expected context.Canceled", err)
	}
	select {
	case <-in.Exited():
		t.Errorf("reported as ended while it serves: %+v", in.Exit())
	default:
	}

	thaw()
	again := g.start([]string{"/stray", "sleep"}, nil)
	again.wantOutput(t, "asleep")
	if left := g.containers(labelGateway); len(left) != 2 {
		t.Errorf("containers: %v, expected the serving one and the new one", left)
	}
	again.Signal(true)
	if exit := again.wantExit(t); exit.Code != 7 {
		t.Errorf("%+v", exit)
	}
	s.WantTexts(s.Send(workertest.Texts("after")...), "after")
	in.Signal(false)
	if exit := in.wantExit(t); exit.Signal != int(syscall.SIGKILL) {
		t.Errorf("%+v", exit)
	}
	s.End()
}

// A Runtime that is closed while the engine hangs ends its replicas, and the next one removes their containers.
func TestCloseWhileEngineHangs(t *testing.T) {
	host, _ := ownEngine(t)
	g := newRig(t, host)
	in := g.start([]string{"/stray", "deaf"}, nil)
	in.wantOutput(t, "deaf")
	thaw := freeze(t, host)
	if err := g.r.Close(); err != nil {
		t.Error(err)
	}
	if exit := in.wantExit(t); !strings.Contains(exit.String(), "does not answer") {
		t.Errorf("%+v", exit)
	}
	if _, lives := startOf(in.PID()); lives {
		t.Error("its process still runs")
	}
	thaw()
	mine := g.runtime(t.Name(), 0)
	if err := mine.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	if left := g.containers(labelGateway); len(left) != 0 {
		t.Errorf("containers are left: %v", left)
	}
}

// freeze stops an engine, which keeps its connections and answers nothing, until thaw is called.
func freeze(t *testing.T, host string) (thaw func()) {
	t.Helper()
	pid := enginePID(t, host)
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	until(t, "the engine to stop", func() bool {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		_, after, _ := strings.Cut(string(stat), ") ")
		return err == nil && strings.HasPrefix(after, "T")
	})
	thaw = sync.OnceFunc(func() { _ = syscall.Kill(pid, syscall.SIGCONT) })
	t.Cleanup(thaw) // a stopped engine cannot be shut down
	return thaw
}

// kill kills an engine and its containerd.
func kill(t *testing.T, host string) {
	t.Helper()
	pid := enginePID(t, host)
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	until(t, "the end of the engine", func() bool {
		_, lives := startOf(pid)
		return !lives
	})
}
