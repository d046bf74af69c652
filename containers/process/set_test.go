package process

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/containers"
)

// supervise returns a Set over real processes and the events of its replicas.
func supervise(t *testing.T, r *Runtime, dir string, command ...string) (*containers.Set, <-chan containers.Event) {
	t.Helper()
	events := make(chan containers.Event, 1000)
	set, err := containers.NewSet(containers.Config{
		Model: api.ModelID{Name: "m", Version: "1"}, Runtime: r, Dir: dir, Command: command,
		Backoff: containers.Backoff{First: 2 * time.Millisecond, Max: 20 * time.Millisecond, Healthy: time.Hour},
		Event:   func(ev containers.Event) { events <- ev },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		if err := set.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return set, events
}

func next(t *testing.T, events <-chan containers.Event, kind containers.EventKind) containers.Event {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for {
		select {
		case ev := <-events:
			if ev.Kind == kind {
				return ev
			}
		case <-ctx.Done():
			t.Fatalf("no event of kind %d", kind)
		}
	}
}

// waitLine waits for a line that a replica has written.
func waitLine(t *testing.T, set *containers.Set, text string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for f := set.Logs().Follow(-1); ; {
		lines, _, err := f.Next(ctx)
		if err != nil {
			t.Fatalf("no line %q: %v", text, err)
		}
		if slices.ContainsFunc(lines, func(l containers.Line) bool { return l.Text == text && l.Stream != containers.System }) {
			return
		}
	}
}

func TestSupervisedCrashLoop(t *testing.T) {
	set, events := supervise(t, newRuntime(t), t.TempDir(), "/bin/sh", "-c", "echo trying; echo 'no such parameters' >&2; exit 3")
	if err := set.SetCount(1); err != nil {
		t.Fatal(err)
	}
	for replica := uint64(1); replica <= 5; replica++ {
		ev := next(t, events, containers.Exited)
		if ev.Replica != replica || ev.PID == 0 || ev.Exit.Code != 3 || ev.Reason != "exited with code 3" || ev.Asked {
			t.Errorf("event %+v", ev)
		}
	}
	st := set.Status()[0]
	if st.Restarts < 4 || st.LastExit != "exited with code 3" || !slices.Equal(st.LastExitLines, []string{"no such parameters"}) {
		t.Errorf("status %+v", st)
	}
}

func TestSupervisedModelIsRepaired(t *testing.T) {
	dir := t.TempDir()
	set, events := supervise(t, newRuntime(t), dir, "./serve", "now")
	if err := set.SetCount(1); err != nil {
		t.Fatal(err)
	}
	if ev := next(t, events, containers.Exited); ev.PID != 0 || !strings.Contains(ev.Reason, "serve does not exist") {
		t.Errorf("event %+v", ev)
	}
	if st := set.Status()[0]; st.State == containers.BackingOff {
		t.Errorf("status %+v: expected another state than BackingOff", st)
	}
	// Written to another name and renamed: an incomplete script would be started.
	if err := os.WriteFile(filepath.Join(dir, "aside"), []byte("#!/bin/sh\necho repaired $1\nexec sleep 1000\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(dir, "aside"), filepath.Join(dir, "serve")); err != nil {
		t.Fatal(err)
	}
	next(t, events, containers.Started)
	waitLine(t, set, "repaired now")
}

func TestSupervisedReaperKilled(t *testing.T) {
	r := newRuntime(t)
	set, events := supervise(t, r, t.TempDir(), "/bin/sh", "-c", "echo up; exec sleep 1000")
	if err := set.SetCount(3); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		next(t, events, containers.Started)
	}
	reaper, err := os.FindProcess(reaperOf(t, r))
	if err != nil {
		t.Fatal(err)
	}
	defer reaper.Release()
	if err := reaper.Kill(); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if ev := next(t, events, containers.Started); ev.Replica <= 3 {
			t.Errorf("event %+v: expected a new replica", ev)
		}
	}
}

func TestSupervisedStop(t *testing.T) {
	set, events := supervise(t, newRuntime(t), t.TempDir(), "/bin/sh", "-c", "trap 'echo drained; exit 0' TERM; echo up; while :; do sleep 0.01; done")
	if err := set.SetCount(1); err != nil {
		t.Fatal(err)
	}
	waitLine(t, set, "up")
	ev := next(t, events, containers.Started)
	set.MarkReady(ev.Replica)
	if st := set.Status()[0]; st.State != containers.Ready || st.PID != ev.PID {
		t.Errorf("status %+v", st)
	}
	if err := set.SetCount(0); err != nil {
		t.Fatal(err)
	}
	if ev := next(t, events, containers.Exited); !ev.Asked || ev.Exit.Code != 0 || ev.Exit.Signal != 0 {
		t.Errorf("event %+v", ev)
	}
	waitLine(t, set, "drained")
}
