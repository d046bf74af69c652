package containers

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// raisable is an instance that can be started quietly.
type raisable struct {
	*fakeInstance
	runtime *raisingRuntime
}

func (in *raisable) Raise() error {
	in.runtime.mu.Lock()
	in.runtime.raised = append(in.runtime.raised, in.launch.Replica)
	in.runtime.mu.Unlock()
	if in.runtime.slow != nil {
		select {
		case <-in.runtime.slow:
		case <-in.exited:
			return nil
		}
	}
	return in.runtime.cannot
}

// hungry is one that says how much processor time it gets.
type hungry struct{ *raisable }

func (in hungry) Progress() (ran time.Duration, runnable, ok bool) {
	in.runtime.mu.Lock()
	defer in.runtime.mu.Unlock()
	in.runtime.ran += in.runtime.gets
	return in.runtime.ran, in.runtime.runnable, true
}

// raisingRuntime grants quiet launches.
type raisingRuntime struct {
	fakeRuntime
	raised []uint64
	cannot error
	slow   chan struct{} // if set, Raise waits for it
	// progress: its instances say that they get so much processor time between two samples, and whether they could run.
	progress  bool
	ran, gets time.Duration
	runnable  bool
}

func (r *raisingRuntime) Start(ctx context.Context, l Launch) (Instance, error) {
	in, err := r.fakeRuntime.Start(ctx, l)
	if err != nil {
		return nil, err
	}
	if r.progress {
		return hungry{&raisable{in.(*fakeInstance), r}}, nil
	}
	return &raisable{in.(*fakeInstance), r}, nil
}

// replicas returns those that were raised, in order.
func (r *raisingRuntime) replicas() []uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.raised)
}

// newQuietHarness returns a harness whose launches are quiet while quiet is set.
func newQuietHarness(t *testing.T, quiet *atomic.Bool) (*harness, *raisingRuntime) {
	r := &raisingRuntime{}
	h := newHarness(t, func(c *Config) {
		c.Runtime = r
		c.Quiet = quiet.Load
		c.ReadyWithin = time.Minute
	})
	h.runtime = &r.fakeRuntime
	return h, r
}

// want says that the replicas are to answer.
func (h *harness) want(quiet *atomic.Bool) {
	quiet.Store(false)
	h.set.Raise()
}

func TestQuietUntilReadyAndWanted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var quiet atomic.Bool
		quiet.Store(true)
		h, r := newQuietHarness(t, &quiet)
		h.count(1)
		if st := h.wantState(Running); !st.Quiet || !h.runtime.last().launch.Quiet || len(r.replicas()) != 0 {
			t.Errorf("status %+v, raised %v: expected a quiet replica", st, r.replicas())
		}
		h.set.MarkReady(1)
		synctest.Wait()
		if st := h.wantState(Ready); !st.Quiet || len(r.replicas()) != 0 {
			t.Errorf("status %+v, raised %v: expected a quiet replica until it is wanted", st, r.replicas())
		}
		quiet.Store(false)
		r.slow = make(chan struct{})
		wait, waited := h.set.Raise(), make(chan struct{})
		go func() { wait(t.Context()); close(waited) }()
		synctest.Wait()
		select {
		case <-waited:
			t.Error("expected Raise to wait for the replica")
		default:
		}
		close(r.slow)
		<-waited
		synctest.Wait()
		if st := h.wantState(Ready); st.Quiet || !slices.Equal(r.replicas(), []uint64{1}) {
			t.Errorf("status %+v, raised %v: expected a replica that was raised once", st, r.replicas())
		}
		h.set.Raise()
		pass(time.Hour)

		// The owner is asked again for the replacement.
		h.runtime.last().end(Exit{Code: 1})
		pass(time.Second)
		if st := h.wantState(Running); st.Quiet || h.runtime.last().launch.Quiet {
			t.Errorf("status %+v: expected a launch that is not quiet", st)
		}
		h.set.MarkReady(2)
		pass(time.Minute)
		if got := r.replicas(); !slices.Equal(got, []uint64{1}) {
			t.Errorf("raised %v: expected only the quiet one", got)
		}
		h.close()
	})
}

// A replica that is wanted before it is ready stays quiet until it is ready.
func TestQuietAndWantedEarly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var quiet atomic.Bool
		quiet.Store(true)
		h, r := newQuietHarness(t, &quiet)
		h.count(1)
		h.want(&quiet)
		synctest.Wait()
		if st := h.wantState(Running); !st.Quiet || len(r.replicas()) != 0 {
			t.Errorf("status %+v, raised %v: expected a quiet replica", st, r.replicas())
		}
		h.set.MarkReady(1)
		synctest.Wait()
		if st := h.wantState(Ready); st.Quiet || !slices.Equal(r.replicas(), []uint64{1}) {
			t.Errorf("status %+v, raised %v: expected it to be raised", st, r.replicas())
		}
		h.close()
	})
}

// A replica whose owner never calls Raise keeps the low priority until its quiet time is over.
func TestQuietAndNeverWanted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var quiet atomic.Bool
		quiet.Store(true)
		h, r := newQuietHarness(t, &quiet)
		h.count(1)
		h.set.MarkReady(1)
		pass(maxQuiet - 1)
		if got := r.replicas(); len(got) != 0 {
			t.Errorf("raised %v before its quiet time was over", got)
		}
		pass(1)
		if st := h.wantState(Ready); st.Quiet || !slices.Equal(r.replicas(), []uint64{1}) {
			t.Errorf("status %+v, raised %v: expected it to be raised", st, r.replicas())
		}
		h.close()
	})
}

// A replica is quiet for half of its time, and for maxQuiet if it has more.
func TestQuietForHalfOfItsTime(t *testing.T) { testQuietFor(t, 20*time.Second, 10*time.Second) }
func TestQuietForABoundedTime(t *testing.T)  { testQuietFor(t, time.Hour, maxQuiet) }

func testQuietFor(t *testing.T, within, quietly time.Duration) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var quiet atomic.Bool
		quiet.Store(true)
		h, r := newQuietHarness(t, &quiet)
		h.set.SetReadyWithin(within)
		h.count(1)
		pass(quietly - 1)
		h.wantState(Running)
		if got := r.replicas(); len(got) != 0 {
			t.Errorf("raised %v before its quiet time was over", got)
		}
		pass(1)
		if st := h.wantState(Running); st.Quiet || !slices.Equal(r.replicas(), []uint64{1}) {
			t.Errorf("status %+v, raised %v: expected it to be raised before it is ready", st, r.replicas())
		}
		h.set.MarkReady(1)
		pass(time.Minute)
		h.wantState(Ready)
		if got := r.replicas(); len(got) != 1 {
			t.Errorf("raised %v: expected once", got)
		}
		h.close()
	})
}

// A replica that gets no processor time while it is quiet is raised before its quiet time is over; one that gets some, or waits for a
// disk, is not.
func TestQuietAndStarved(t *testing.T) {
	for _, tc := range []struct {
		name     string
		gets     time.Duration
		runnable bool
		raised   time.Duration
	}{
		{"starved", StarvedEvery/starvedPart - 1, true, StarvedEvery},
		{"slow", StarvedEvery / starvedPart, true, maxQuiet},
		{"it waits for a disk", 0, false, maxQuiet},
	} {
		synctest.Test(t, func(t *testing.T) {
			var quiet atomic.Bool
			quiet.Store(true)
			h, r := newQuietHarness(t, &quiet)
			r.progress, r.gets, r.runnable = true, tc.gets, tc.runnable
			h.count(1)
			pass(tc.raised - 1)
			if got := r.replicas(); len(got) != 0 {
				t.Errorf("%s: raised %v too early", tc.name, got)
			}
			pass(1)
			if st := h.wantState(Running); st.Quiet || !slices.Equal(r.replicas(), []uint64{1}) {
				t.Errorf("%s: status %+v, raised %v: expected it to be raised after %v", tc.name, st, r.replicas(), tc.raised)
			}
			h.close()
		})
	}
}

func TestStarvation(t *testing.T) {
	var s Starvation
	for i, step := range []struct {
		ran          time.Duration
		runnable, ok bool
		want         bool
	}{
		{0, true, true, false},                     // nothing to compare with
		{149 * time.Millisecond, true, true, true}, // of 3 s
		{299 * time.Millisecond, true, true, false},
		{299 * time.Millisecond, false, true, false}, // it waits for something else
		{299 * time.Millisecond, true, false, false}, // not known
		{299 * time.Millisecond, true, true, false},  // nothing to compare with
		{299 * time.Millisecond, true, true, true},
	} {
		if got := s.Starved(step.ran, step.runnable, step.ok); got != step.want {
			t.Errorf("step %d: %v, expected %v", i, got, step.want)
		}
	}
}

func TestNotRaised(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var quiet atomic.Bool
		quiet.Store(true)
		h, r := newQuietHarness(t, &quiet)
		r.cannot = errors.New("operation not permitted")
		h.count(1)
		h.set.MarkReady(1)
		h.want(&quiet)
		synctest.Wait()
		if st := h.wantState(Ready); !st.Quiet {
			t.Errorf("status %+v: expected it to be reported as quiet", st)
		}
		ev := h.lastEvent()
		if ev.Kind != NotRaised || ev.Replica != 1 || ev.PID != 1000 || !strings.HasSuffix(ev.Reason, "operation not permitted") {
			t.Errorf("event %+v", ev)
		}
		lines := h.set.Logs().tail(1, func(*Line) bool { return true })
		if len(lines) != 1 || !strings.Contains(lines[0].Text, "stays at the lowest CPU priority") {
			t.Errorf("log %+v", lines)
		}
		quiet.Store(true)
		h.runtime.last().end(Exit{Code: 1})
		pass(time.Second)
		if st := h.wantState(Running); st.Quiet || h.runtime.last().launch.Quiet {
			t.Errorf("status %+v: expected no quiet launch after one that could not be raised", st)
		}
		h.close()
	})
}

// A replica that crashes while it is quiet or being raised is handled like any other crash.
func TestQuietAndGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var quiet atomic.Bool
		quiet.Store(true)
		h, r := newQuietHarness(t, &quiet)
		h.count(1)
		h.runtime.last().end(Exit{Code: 1})
		synctest.Wait()
		if st := h.wantState(BackingOff); st.Quiet {
			t.Errorf("status %+v", st)
		}
		pass(75 * time.Millisecond)

		r.slow = make(chan struct{})
		h.wantState(Running)
		h.set.MarkReady(2)
		h.want(&quiet)
		synctest.Wait()
		if st := h.wantState(Ready); !st.Quiet {
			t.Errorf("status %+v: it is still being raised", st)
		}
		quiet.Store(true)
		h.runtime.last().end(Exit{Code: 1})
		synctest.Wait()
		if st := h.wantState(BackingOff); st.Quiet {
			t.Errorf("status %+v", st)
		}
		pass(time.Second)

		// Kill does not wait for Raise.
		h.set.MarkReady(3)
		h.want(&quiet)
		synctest.Wait()
		h.set.Kill(3, Hung, "it hangs")
		synctest.Wait()
		if st := h.wantState(Failed); st.LastExit != "killed: it hangs" || !slices.Equal(r.replicas(), []uint64{2, 3}) {
			t.Errorf("status %+v, raised %v", st, r.replicas())
		}
		h.close()
	})
}

// If the runtime cannot do it, quiet launches are like others.
func TestQuietWithoutRaiser(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, func(c *Config) { c.Quiet = func() bool { return true } })
		h.count(1)
		if st := h.wantState(Running); st.Quiet {
			t.Errorf("status %+v", st)
		}
		h.set.MarkReady(1)
		synctest.Wait()
		h.wantState(Ready)
		h.close()
	})
}
