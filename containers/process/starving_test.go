package process

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/xebec-serving/xebec/containers"
)

// stopLauncher starts a launch, and stops its launcher before the replica has begun. A launcher that is faster is tried again.
func stopLauncher(t *testing.T, r *Runtime, l containers.Launch) (launcher int, begun <-chan containers.Instance, failed <-chan error) {
	t.Helper()
	const tries = 50
	for range tries {
		ins, errs := make(chan containers.Instance, 1), make(chan error, 1)
		go func() {
			if in, err := r.Start(t.Context(), l); err != nil {
				errs <- err
			} else {
				ins <- in
			}
		}()
		parent := reaperOf(t, r)
		launcher = 0
		for launcher == 0 && len(ins)+len(errs) == 0 { // without a pause: it takes a few milliseconds to begin
			for _, pid := range childrenOf(parent) {
				if comm, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "comm")); err == nil && string(comm) == launcherName+"\n" {
					launcher = pid
				}
			}
		}
		if launcher != 0 && unix.Kill(launcher, unix.SIGSTOP) == nil {
			until(t, "the launcher is not stopped", func() bool { return len(ins)+len(errs) > 0 || isStopped(launcher) })
			if len(ins)+len(errs) == 0 && len(childrenOf(launcher)) == 0 {
				return launcher, ins, errs
			}
			_ = unix.Kill(launcher, unix.SIGCONT)
		}
		select {
		case in := <-ins:
			if err := in.Signal(false); err != nil {
				t.Fatal(err)
			}
			waitExit(t, in)
		case err := <-errs:
			t.Fatal(err)
		}
	}
	t.Fatal("no launcher was stopped in time")
	return 0, nil, nil
}

// isStopped reports whether all threads of a process are stopped.
func isStopped(pid int) bool {
	all, err := filepath.Glob(filepath.Join("/proc", strconv.Itoa(pid), "task", "*", "stat"))
	for _, path := range all {
		b, err := os.ReadFile(path)
		if _, rest, ok := strings.Cut(string(b), ") "); err == nil && (!ok || rest[0] != 'T') {
			return false
		}
	}
	return err == nil && len(all) > 0
}

// A quiet launch whose launcher does not get on is raised, and so is what it starts.
func TestHurriedLauncher(t *testing.T) {
	for _, ungrouped := range []string{"", "1"} {
		t.Setenv(assumeUngroupedEnv, ungrouped)
		r := newRuntime(t)
		r.delays.hurry = 200 * time.Millisecond
		low := expected(t, r)
		out := newOutput()
		l := quietly(1, "sleep", out)
		l.Isolation = containers.Isolation{}
		launcher, begun, failed := stopLauncher(t, r, l)
		until(t, "the launcher is not raised", func() bool {
			for _, th := range threads(launcher) {
				if isIdle(th.pid) || low != own(t) && th.nice == low {
					return false
				}
			}
			return true
		})
		if err := unix.Kill(launcher, unix.SIGCONT); err != nil {
			t.Fatal(err)
		}
		var in containers.Instance
		select {
		case in = <-begun:
		case err := <-failed:
			t.Fatal(err)
		}
		out.until(t, "ready")
		checkNice(t, "the replica", in.PID(), own(t))
		checkGroup(t, "the replica", in.PID(), 0)
		if err := raise(t, in); err != nil {
			t.Error(err)
		}
		if err := in.Signal(false); err != nil {
			t.Fatal(err)
		}
		waitExit(t, in)
	}
}

// A reaper is asked to raise a quiet launch that it does not answer.
func TestHurriedLaunch(t *testing.T) {
	r := newRuntime(t)
	r.delays.hurry = 10 * time.Millisecond
	r.environ = append(r.environ, damagedReaperEnv+"=hello\nraise\n"+`{"op":"started","id":1,"pid":`+strconv.Itoa(os.Getpid())+"}\nend")
	in, err := r.Start(t.Context(), quietly(1, "sleep", newOutput()))
	if err != nil {
		t.Fatal(err)
	}
	waitExit(t, in)
}

// A launch that does not begin is killed. The reaper and its other replicas live on.
func TestLaunchTakesTooLong(t *testing.T) {
	r := newRuntime(t)
	r.delays.reply = 2 * time.Second
	out := newOutput()
	other := start(t, r, launch(1, "sleep", out))
	out.until(t, "ready")
	before := reaperOf(t, r)
	l := launch(2, "sleep", newOutput())
	l.Isolation = containers.Isolation{}
	_, begun, failed := stopLauncher(t, r, l)
	select {
	case in := <-begun:
		t.Errorf("process %d has begun: expected that the launch is killed", in.PID())
	case err := <-failed:
		var cut containers.Interrupted
		if !errors.As(err, &cut) || !cut.Interrupted() || !strings.Contains(err.Error(), "it had not begun within 2s") {
			t.Errorf("error %v: expected one that says how long the launch took", err)
		}
	}
	start(t, r, launch(3, "sleep", newOutput()))
	if now := reaperOf(t, r); now != before {
		t.Errorf("the reaper is process %d, and was %d", now, before)
	}
	select {
	case <-other.Exited():
		t.Errorf("the other replica has ended: %+v", other.Exit())
	default:
	}
}

// A lowered replica that takes long to end is raised again.
func TestLowerEnds(t *testing.T) {
	r := newRuntime(t)
	r.delays.lowEnd = 3 * time.Second
	low := expected(t, r)
	out := newOutput()
	in := start(t, r, launch(1, "stubborn", out))
	out.until(t, "ready")
	in.(containers.Lowerer).Lower()
	until(t, "it is not lowered", func() bool { st, ok := readStat(in.PID()); return ok && st.nice == low })
	until(t, "it is not raised", func() bool { st, ok := readStat(in.PID()); return ok && st.nice == own(t) })
	until(t, "its session is not raised", func() bool { nice, ok := groupNice(in.PID()); return !ok || nice == 0 })
}
