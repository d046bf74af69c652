package foreground

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/xebec-serving/xebec/containers"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is far more than a busy machine needs.
const patience = time.Minute

// said collects what a runtime says.
type said struct {
	mu  sync.Mutex
	all []string
}

func (s *said) say(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, fmt.Sprintf(format, args...))
}

func start(t *testing.T, r *Runtime, command ...string) containers.Instance {
	t.Helper()
	i, err := r.Start(t.Context(), containers.Launch{Dir: t.TempDir(), Command: command})
	if err != nil {
		t.Fatal(err)
	}
	return i
}

func gone(t *testing.T, i containers.Instance) containers.Exit {
	t.Helper()
	select {
	case <-i.Exited():
		return i.Exit()
	case <-time.After(patience):
		t.Fatal("the replica is not gone")
		return containers.Exit{}
	}
}

// A replica that ends by itself is gone when its author has changed something, and its end is no failure then.
func TestAnEndWaitsForARestart(t *testing.T) {
	var s said
	r := New(Config{Say: s.say})
	i := start(t, r, "sh", "-c", "exit 3")
	select {
	case e := <-r.Ended():
		if e.Code != 3 {
			t.Errorf("it ended with %v", e)
		}
	case <-time.After(patience):
		t.Fatal("its end is not reported")
	}
	if err := i.Signal(false); err != nil { // the supervisor misses its worker
		t.Error(err)
	}
	select {
	case <-i.Exited():
		t.Error("it is gone before anything has changed")
	default:
	}
	r.Restart()
	if e := gone(t, i); e.Cause != containers.Lost {
		t.Errorf("it ended with %+v", e)
	}
	next := start(t, r, "sleep", "600")
	r.Restart()
	if e := gone(t, next); e.Cause != containers.Lost || e.Signal != int(syscall.SIGTERM) {
		t.Errorf("a replica that ran ended with %+v", e)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
}

// A replica that does not end when it is asked is killed, and one that has ended does not hold up the end of the program.
func TestClose(t *testing.T) {
	var s said
	r := New(Config{Say: s.say})
	i := start(t, r, "sh", "-c", "trap '' TERM; echo >ready; while :; do sleep 0.01; done")
	r.Restart()
	gone(t, i)
	ended := start(t, r, "true")
	<-r.Ended()
	r.Closing()
	gone(t, ended)
	running := start(t, r, "sleep", "600")
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	gone(t, running)
}

// With Once a replica ends as in any other runtime.
func TestOnce(t *testing.T) {
	r := New(Config{Once: true, Say: func(string, ...any) {}})
	if e := gone(t, start(t, r, "sh", "-c", "exit 4")); e.Code != 4 || e.Cause == containers.Lost {
		t.Errorf("it ended with %+v", e)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
}

// There is one replica at a time: the next one waits for the end of that before.
func TestOneAtATime(t *testing.T) {
	r := New(Config{Say: func(string, ...any) {}})
	first := start(t, r, "sleep", "600")
	second := start(t, r, "sleep", "600")
	gone(t, first)
	if err := syscall.Kill(second.PID(), 0); err != nil {
		t.Errorf("the second replica does not run: %v", err)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
}

// A program that cannot be run is said at once, and so is an interpreter without the binding; its model is started all the same.
func TestStartsThatFail(t *testing.T) {
	var s said
	r := New(Config{Once: true, Say: s.say})
	for _, command := range [][]string{{"no-such-program"}, {"./missing"}, nil} {
		l := containers.Launch{Dir: t.TempDir(), Command: command}
		if command == nil {
			l.Image = "some:image"
		}
		if _, err := r.Start(t.Context(), l); err == nil {
			t.Errorf("%v is started", command)
		}
	}
	dir := t.TempDir()
	interpreter := filepath.Join(dir, "python3")
	if err := os.WriteFile(interpreter, []byte("#!/bin/sh\n[ \"$2\" = -m ] && exit 1\nexit 7\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	if e := gone(t, start(t, r, interpreter, "model.py")); e.Code != 7 {
		t.Errorf("it ended with %+v", e)
	}
	if all := strings.Join(s.all, "\n"); !strings.Contains(all, "is the Python binding of this version installed") {
		t.Errorf("it says %q", all)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
}
