package process

import (
	"errors"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/xebec-serving/xebec/containers"
)

// killFirst starts launches, and kills each child of the reaper that it sees, until a launch fails.
func killFirst(t *testing.T, r *Runtime, l containers.Launch) error {
	t.Helper()
	start(t, r, launch(1, "sleep", newOutput())) // a reaper runs
	known := map[stat]bool{}
	for _, st := range processes() {
		st.nice = 0
		known[st] = true
	}
	parent := reaperOf(t, r)
	over, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		again := time.NewTicker(time.Millisecond)
		defer again.Stop()
		for {
			select {
			case <-over:
				return
			case <-again.C:
			}
			for _, pid := range childrenOf(parent) {
				if st, ok := readStat(pid); ok && !st.zombie {
					if st.nice = 0; !known[st] {
						signalExactly(st, unix.SIGKILL)
					}
				}
			}
		}
	}()
	defer func() {
		close(over)
		<-done
	}()
	const tries = 50
	for range tries {
		in, err := r.Start(t.Context(), l)
		if err != nil {
			return err
		}
		waitExit(t, in) // it was killed a moment later
	}
	t.Fatal("no launch was interrupted")
	return nil
}

// A launch whose launcher is killed before the replica has begun says so, and is no failure of the model.
func TestLauncherIsKilled(t *testing.T) {
	l := launch(2, "sleep", newOutput())
	l.Isolation = containers.Isolation{}
	err := killFirst(t, newRuntime(t), l)
	var cut containers.Interrupted
	if !errors.As(err, &cut) || !cut.Interrupted() || !strings.Contains(err.Error(), "its launcher ended before the replica had begun: ended by SIGKILL") {
		t.Errorf("error %v: expected one that says that the launcher was killed", err)
	}
}

// A launch whose reaper is killed is no failure of the model either, and its replica comes without one.
func TestLaunchesWhileReapersAreKilled(t *testing.T) {
	r := newRuntime(t)
	set, events := supervise(t, r, t.TempDir(), "/bin/sh", "-c", "echo up; exec sleep 1000")
	if err := set.SetCount(1); err != nil {
		t.Fatal(err)
	}
	const deaths = 5 // more than would make it count as failed
	for range deaths {
		next(t, events, containers.Started)
		if err := unix.Kill(reaperOf(t, r), unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
		if ev := next(t, events, containers.Exited); ev.Exit.Cause != containers.Lost || ev.Asked {
			t.Errorf("event %+v", ev)
		}
		if st := set.Status()[0]; st.State == containers.Failed {
			t.Errorf("status %+v", st)
		}
	}
	next(t, events, containers.Started)
}
