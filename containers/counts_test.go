package containers

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestCausesOfExits: each end of a replica is counted once, by the cause that says most.
func TestCausesOfExits(t *testing.T) {
	killed := Exit{Code: -1, Signal: 9}
	for _, c := range []struct {
		name string
		want Cause
		do   func(h *harness)
	}{
		{"a code", ExitedByItself, func(h *harness) { h.runtime.last().end(Exit{Code: 1}) }},
		{"code 0", ExitedByItself, func(h *harness) { h.runtime.last().end(Exit{}) }},
		{"a signal", Signalled, func(h *harness) { h.runtime.last().end(Exit{Code: -1, Signal: 11}) }},
		{"a stranger's SIGKILL", Signalled, func(h *harness) { h.runtime.last().end(killed) }},
		{"no memory", OutOfMemory, func(h *harness) { h.runtime.last().end(Exit{Code: -1, Signal: 9, Cause: OutOfMemory}) }},
		{"no memory while it was being killed", OutOfMemory, func(h *harness) {
			h.runtime.last().behave(false, true)
			h.set.Kill(1, Hung, "it hangs")
			synctest.Wait()
			h.runtime.last().end(Exit{Code: -1, Signal: 9, Cause: OutOfMemory})
		}},
		{"late", Unready, func(h *harness) { pass(DefaultReadyWithin) }},
		{"hung", Hung, func(h *harness) { h.set.Kill(1, Hung, "it hangs") }},
		{"a violation", Violation, func(h *harness) { h.set.Kill(1, Violation, "it broke the protocol") }},
		{"a crash before the kill", Signalled, func(h *harness) {
			h.runtime.last().behave(false, true)
			h.set.Kill(1, Stayed, "its connection broke")
			synctest.Wait()
			h.runtime.last().end(Exit{Code: -1, Signal: 11})
		}},
		{"lost", Lost, func(h *harness) { h.runtime.last().end(Exit{Code: -1, Reason: "its reaper died", Cause: Lost}) }},
		{"not wanted", Stopped, func(h *harness) { h.runtime.last().behave(true, false); h.count(0) }},
		{"not wanted and slow", Stopped, func(h *harness) { h.count(0); pass(DefaultGrace) }},
		{"not wanted and gone quiet", Stopped, func(h *harness) {
			h.count(0)
			h.set.Kill(1, Stayed, "its connection ended, but its process went on")
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				counts := new(Counts)
				h := newHarness(t, func(cfg *Config) { cfg.Counts = counts })
				h.count(1)
				c.do(h)
				synctest.Wait()
				h.wantExits(counts, map[Cause]uint64{c.want: 1})
				h.close()
			})
		})
	}
}

// TestStartsThatFailAreCounted: a launch that could not be prepared, and one that the runtime could not make.
func TestStartsThatFailAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		counts := new(Counts)
		var full atomic.Bool
		h := newHarness(t, func(cfg *Config) {
			cfg.Counts = counts
			cfg.Prepare = func(uint64) ([]string, error) {
				if !full.Load() {
					return nil, nil
				}
				return nil, errors.New("there is no GPU left")
			}
		})
		h.runtime.fail = errors.New("no such file")
		h.count(1)
		h.wantExits(counts, map[Cause]uint64{NotStarted: 1})
		full.Store(true)
		pass(75 * time.Millisecond)
		h.wantExits(counts, map[Cause]uint64{NotStarted: 2})
		if err := h.set.Close(context.Background()); err != nil {
			t.Error(err)
		}
		h.wantExits(counts, map[Cause]uint64{NotStarted: 2})
	})
}

// TestCountsNeverFall: not when a replica goes that was restarted, and not when its whole Set does.
func TestCountsNeverFall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		counts := new(Counts)
		share := func(cfg *Config) { cfg.Counts = counts }
		h := newHarness(t, share)
		if h.count(0); counts.Launched() {
			t.Error("a version without a replica counts as launched")
		}
		h.count(1)
		h.runtime.last().end(Exit{Code: 1})
		pass(75 * time.Millisecond)
		h.wantState(Running)
		h.runtime.last().behave(true, false)
		h.count(0)
		if counts.Restarts() != 1 || !counts.Launched() {
			t.Errorf("%d restarts after the replica that was restarted has gone, want 1", counts.Restarts())
		}
		h.wantExits(counts, map[Cause]uint64{ExitedByItself: 1, Stopped: 1})
		h.close()

		h = newHarness(t, share)
		h.count(2)
		h.close()
		if counts.Restarts() != 1 {
			t.Errorf("%d restarts after the next Set, want 1", counts.Restarts())
		}
		h.wantExits(counts, map[Cause]uint64{ExitedByItself: 1, Stopped: 3})
	})
}

func (h *harness) wantExits(counts *Counts, want map[Cause]uint64) {
	h.Helper()
	got := map[Cause]uint64{}
	for cause, n := range counts.Exits() {
		if n > 0 {
			got[cause] = n
		}
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		h.Errorf("exits %v, want %v", got, want)
	}
}
