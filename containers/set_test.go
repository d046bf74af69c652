package containers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, nil)
		h.count(1)
		st := h.wantState(Running)
		in := h.runtime.last()
		if st.Replica != 1 || st.PID != in.pid || st.Restarts != 0 || st.LastExit != "" {
			t.Errorf("status %+v", st)
		}
		if l := in.launch; l.Replica != 1 || l.Dir != "/models/digits" || !slices.Equal(l.Env, []string{"A=1", "TOKEN=1"}) || l.Model.Name != "digits" {
			t.Errorf("launch %+v", l)
		}
		h.set.MarkReady(1)
		h.wantState(Ready)

		in.behave(true, false)
		h.count(0)
		if left := h.set.Status(); len(left) != 0 {
			t.Errorf("left: %+v", left)
		}
		if ev := h.lastEvent(); ev.Kind != Exited || !ev.Asked || !ev.Next.IsZero() || !slices.Equal(in.asked(), []bool{true}) {
			t.Errorf("event %+v after signals %v", ev, in.asked())
		}
		h.close()
	})
}

// Of replicas that hold streams, those with the fewest end first. Each gets no more and stays as long as it holds some, until the set is closed.
func TestReplicasThatHoldStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		holds := map[uint64]int{1: 3, 2: 1, 3: 2}
		ending := map[uint64]bool{}
		var mu sync.Mutex
		h := newHarness(t, func(cfg *Config) {
			cfg.Grace = time.Second
			cfg.Holding = func(replica uint64, ends bool) int {
				mu.Lock()
				defer mu.Unlock()
				ending[replica] = ending[replica] || ends
				return holds[replica]
			}
		})
		h.count(3)
		for replica := range uint64(3) {
			h.set.MarkReady(replica + 1)
		}
		h.count(1)
		pass(time.Minute)
		var stays []uint64
		for _, st := range h.set.Status() {
			if st.State == Ready {
				stays = append(stays, st.Replica)
			}
		}
		mu.Lock()
		if len(h.set.Status()) != 3 || !slices.Equal(stays, []uint64{1}) || !ending[2] || !ending[3] || ending[1] {
			t.Errorf("after a minute of streams: %+v, ending %v", h.set.Status(), ending)
		}
		holds[2] = 0
		mu.Unlock()
		pass(2 * time.Second)
		if n := len(h.set.Status()); n != 2 {
			t.Errorf("a replica without streams: %d are left", n)
		}
		h.close() // ends the others, streams or not
	})
}

// Secrets are asked for at each launch. The launch names them, and fails if they cannot be had.
func TestSecrets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var missing atomic.Bool
		var asked atomic.Int32
		h := newHarness(t, func(cfg *Config) {
			cfg.Secrets = func(replica uint64) ([]string, error) {
				asked.Add(1)
				if missing.Load() {
					return nil, errors.New("no such file")
				}
				return []string{fmt.Sprintf("KEY=k=%d", replica), "B="}, nil
			}
		})
		h.count(1)
		h.wantState(Running)
		in := h.runtime.last()
		if l := in.launch; !slices.Equal(l.Env, []string{"A=1", "KEY=k=1", "B=", "TOKEN=1"}) || !slices.Equal(l.Secret, []string{"KEY", "B"}) {
			t.Errorf("launch %+v", l)
		}
		missing.Store(true)
		in.end(Exit{Code: 1})
		pass(75 * time.Millisecond)
		h.wantState(BackingOff)
		if ev := h.lastEvent(); ev.Kind != Exited || ev.Replica != 2 || !strings.Contains(ev.Reason, "it could not be started: no such file") {
			t.Errorf("event %+v", ev)
		}
		missing.Store(false)
		pass(150 * time.Millisecond)
		h.wantState(Running)
		if in := h.runtime.last(); asked.Load() != 3 || in.launch.Env[1] != "KEY=k=3" {
			t.Errorf("asked %d times, launched with %v", asked.Load(), in.launch.Env)
		}
		h.runtime.last().behave(true, false)
		h.close()
	})
}

func TestCrashLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, nil)
		h.count(1)
		const ms = time.Millisecond
		for i, want := range []time.Duration{75 * ms, 150 * ms, 300 * ms, 600 * ms, 1200 * ms, 2400 * ms, 4800 * ms, 9600 * ms, 19200 * ms, 22500 * ms, 22500 * ms} {
			replica := uint64(i + 1)
			h.wantState(Running)
			in := h.runtime.last()
			io.WriteString(in.launch.Stdout, "hello\n")
			io.WriteString(in.launch.Stderr, fmt.Sprintf("Traceback\nValueError: %d", replica))
			in.end(Exit{Code: 1})
			synctest.Wait()
			state := BackingOff
			if i+1 >= failedAfter {
				state = Failed
			}
			st := h.wantState(state)
			if got := time.Until(st.NextAttempt); got != want {
				t.Fatalf("failure %d: next attempt in %v, expected %v", i+1, got, want)
			}
			lines := []string{"Traceback", fmt.Sprintf("ValueError: %d", replica)}
			if st.LastExit != "exited with code 1" || !slices.Equal(st.LastExitLines, lines) || st.PID != 0 || st.Replica != replica || st.Restarts != i {
				t.Errorf("status %+v", st)
			}
			if ev := h.lastEvent(); ev.Kind != Exited || ev.Asked || ev.Replica != replica || ev.Next != st.NextAttempt || ev.Exit.Code != 1 {
				t.Errorf("event %+v", ev)
			}
			pass(want - 1)
			if h.runtime.count() != i+1 {
				t.Fatal("the next attempt came too early")
			}
			pass(1)
		}

		// A repaired model comes back. After a healthy time its delay starts again.
		st := h.wantState(Running)
		h.set.MarkReady(st.Replica)
		pass(30 * time.Second)
		h.runtime.last().end(Exit{Code: -1, Signal: 11})
		synctest.Wait()
		st = h.wantState(BackingOff)
		if got := time.Until(st.NextAttempt); got != 75*ms || !strings.Contains(st.LastExit, "SIGSEGV") {
			t.Errorf("after a healthy time: next attempt in %v, last exit %q", got, st.LastExit)
		}
		h.close()
	})
}

// A replica that answered before it died has not failed in vain: queries that end the process now and then do not keep
// the model away from the others. One that only became ready has.
func TestOneThatServedStartsSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		served := false
		h := newHarness(t, func(c *Config) { c.Served = func(uint64) bool { return served } })
		h.count(1)
		const ms = time.Millisecond
		for i, step := range []struct {
			served bool
			delay  time.Duration
			state  State
		}{
			{false, 75 * ms, BackingOff}, {false, 150 * ms, BackingOff}, {false, 300 * ms, Failed},
			{true, 75 * ms, BackingOff}, {true, 75 * ms, BackingOff}, {true, 75 * ms, BackingOff}, {true, 75 * ms, BackingOff},
			{false, 150 * ms, BackingOff},
		} {
			served = step.served
			h.set.MarkReady(h.wantState(Running).Replica)
			h.runtime.last().end(Exit{Code: 3})
			synctest.Wait()
			st := h.wantState(step.state)
			if got := time.Until(st.NextAttempt); got != step.delay {
				t.Errorf("end %d: the next attempt is in %v, expected %v", i+1, got, step.delay)
			}
			pass(time.Until(st.NextAttempt))
		}
		h.close()
	})
}

func TestExitZeroIsRestarted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, nil)
		h.count(1)
		h.runtime.last().end(Exit{})
		synctest.Wait()
		if st := h.wantState(BackingOff); !strings.Contains(st.LastExit, "not asked to end") || !strings.Contains(st.LastExit, "xebec.serve(predict)") {
			t.Errorf("last exit %q", st.LastExit)
		}
		pass(75 * time.Millisecond)
		h.set.MarkReady(h.wantState(Running).Replica)
		h.runtime.last().end(Exit{})
		synctest.Wait()
		if st := h.wantState(BackingOff); !strings.Contains(st.LastExit, "not asked to end") || strings.Contains(st.LastExit, "xebec.serve") {
			t.Errorf("one that was ready: last exit %q", st.LastExit)
		}
		h.close()
	})
}

func TestKill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, nil)
		h.count(1)
		h.set.MarkReady(1)
		h.set.Kill(1, Violation, "it broke the protocol")
		h.set.Kill(1, Hung, "again")
		synctest.Wait()
		st := h.wantState(BackingOff)
		if in := h.runtime.last(); st.LastExit != "killed: it broke the protocol" || !slices.Equal(in.asked(), []bool{false}) {
			t.Errorf("last exit %q after signals %v", st.LastExit, in.asked())
		}
		pass(time.Second)
		h.wantState(Running)
		h.set.Kill(1, Hung, "late news of the dead one")
		h.set.MarkReady(1)
		synctest.Wait()
		if st := h.wantState(Running); st.Replica != 2 {
			t.Errorf("status %+v", st)
		}
		h.close()
	})
}

// A worker that crashes hangs up first. The owner's Kill for the hang-up must not hide the crash.
func TestKillOfOneThatCrashed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, nil)
		h.count(1)
		in := h.runtime.last()
		in.behave(false, true)
		h.set.Kill(1, Stayed, "its connection broke")
		synctest.Wait()
		in.end(Exit{Code: -1, Signal: 11})
		synctest.Wait()
		st := h.wantState(BackingOff)
		if !strings.HasPrefix(st.LastExit, "ended by SIGSEGV") || !strings.HasSuffix(st.LastExit, "(before it was killed: its connection broke)") {
			t.Errorf("last exit %q", st.LastExit)
		}
		h.close()
	})
}

func TestGrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, func(c *Config) { c.Grace = 5 * time.Second })
		h.count(1)
		in := h.runtime.last()
		h.count(0)
		h.wantState(Stopping)
		pass(5*time.Second - 1)
		h.wantState(Stopping)
		if !slices.Equal(in.asked(), []bool{true}) {
			t.Errorf("signals %v within the grace", in.asked())
		}
		pass(1)
		if left := h.set.Status(); len(left) != 0 || !slices.Equal(in.asked(), []bool{true, false}) {
			t.Errorf("after the grace: %+v, signals %v", left, in.asked())
		}
		h.close()
	})
}

func TestKillCutsTheGraceShort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, nil)
		h.count(1)
		h.count(0)
		h.wantState(Stopping)
		h.set.Kill(1, Hung, "it hangs")
		synctest.Wait()
		if left := h.set.Status(); len(left) != 0 {
			t.Errorf("left: %+v", left)
		}
		h.close()
	})
}

func TestNotReadyInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, func(c *Config) { c.ReadyWithin = time.Minute })
		h.count(2)
		h.set.MarkReady(2)
		pass(time.Minute)
		all := h.set.Status()
		for _, st := range all {
			if st.Replica == 2 && st.State != Ready || st.Replica == 1 && (st.State != BackingOff || !strings.Contains(st.LastExit, "not ready within 1m0s")) {
				t.Errorf("status %+v", st)
			}
		}
		h.close()
	})
}

type permanentError struct{ error }

func (permanentError) Permanent() bool { return true }

func TestStartFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, nil)
		h.runtime.fail = errors.New("no memory")
		h.count(1)
		st := h.wantState(BackingOff)
		if got := time.Until(st.NextAttempt); got != 75*time.Millisecond || !strings.Contains(st.LastExit, "no memory") {
			t.Errorf("a passing failure: next attempt in %v, %q", got, st.LastExit)
		}
		if ev := h.lastEvent(); ev.Kind != Exited || ev.PID != 0 {
			t.Errorf("event %+v", ev)
		}
		h.runtime.mu.Lock()
		h.runtime.fail = fmt.Errorf("wrapped: %w", permanentError{errors.New("command not found")})
		h.runtime.mu.Unlock()
		pass(75 * time.Millisecond)
		st = h.wantState(Failed)
		if got := time.Until(st.NextAttempt); got != 22500*time.Millisecond {
			t.Errorf("a failure for people: next attempt in %v", got)
		}
		h.runtime.mu.Lock()
		h.runtime.fail = nil
		h.runtime.mu.Unlock()
		pass(22500 * time.Millisecond)
		h.wantState(Running)
		h.close()
	})
}

type interruptedError struct{ error }

func (interruptedError) Interrupted() bool { return true }

// What ends with a part of the runtime is started again with growing delays, and is never a failure of the model.
func TestLostIsNoFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, nil)
		h.runtime.fail = fmt.Errorf("wrapped: %w", interruptedError{errors.New("the reaper has ended")})
		h.count(1)
		for _, delay := range []time.Duration{75 * time.Millisecond, 150 * time.Millisecond, 300 * time.Millisecond, 600 * time.Millisecond} {
			st := h.wantState(BackingOff)
			if got := time.Until(st.NextAttempt); got != delay || !strings.Contains(st.LastExit, "no failure of the model: wrapped: the reaper has ended") {
				t.Errorf("next attempt in %v, expected %v: %q", got, delay, st.LastExit)
			}
			if ev := h.lastEvent(); ev.Kind != Exited || ev.Asked || ev.Exit.Cause != Lost {
				t.Errorf("event %+v", ev)
			}
			pass(delay)
		}
		h.runtime.mu.Lock()
		h.runtime.fail = nil
		h.runtime.mu.Unlock()
		pass(1200 * time.Millisecond)
		h.wantState(Running)
		h.runtime.last().end(Exit{Code: -1, Reason: "its reaper died", Cause: Lost})
		synctest.Wait()
		h.wantState(BackingOff)
		pass(2400 * time.Millisecond)
		h.wantState(Running)
		h.runtime.last().end(Exit{Code: 1})
		synctest.Wait()
		if st := h.wantState(BackingOff); time.Until(st.NextAttempt) != 75*time.Millisecond {
			t.Errorf("the first failure: next attempt in %v", time.Until(st.NextAttempt))
		}
		h.close()
	})
}

func TestPrepareFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, func(c *Config) {
			c.Prepare = func(uint64) ([]string, error) { return nil, errors.New("no tokens left") }
		})
		h.count(1)
		if st := h.wantState(BackingOff); !strings.Contains(st.LastExit, "no tokens left") || len(h.events) != 0 || h.runtime.count() != 0 {
			t.Errorf("status %+v, %d events", st, len(h.events))
		}
		h.close()
	})
}

// A worker may connect before its start is reported. By then it may have been killed, or be no longer wanted.
func TestNewsBeforeStartReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, nil)
		h.runtime.onStart = func(l Launch) { h.set.MarkReady(l.Replica) }
		h.count(1)
		h.wantState(Ready)
		h.close()

		h = newHarness(t, nil)
		h.runtime.onStart = func(l Launch) { h.set.Kill(l.Replica, Violation, "it spoke garbage") }
		h.count(1)
		if st := h.wantState(BackingOff); st.LastExit != "killed: it spoke garbage" {
			t.Errorf("status %+v", st)
		}
		h.close()

		h = newHarness(t, nil)
		h.runtime.blocked = make(chan struct{})
		h.count(1)
		h.wantState(Starting)
		h.count(0)
		if left := h.set.Status(); len(left) != 0 {
			t.Errorf("left: %+v", left)
		}
		h.close()
	})
}

func TestScaleDownTakesTheLeastUseful(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, nil)
		for range 4 { // one by one, so that their ages differ
			h.count(len(h.set.Status()) + 1)
			h.runtime.last().behave(true, false)
			pass(time.Second)
		}
		h.set.MarkReady(1)
		pass(time.Second)
		h.set.MarkReady(2)
		h.set.MarkReady(4)
		h.runtime.mu.Lock()
		fourth := h.runtime.launches[3]
		h.runtime.mu.Unlock()
		fourth.end(Exit{Code: 1})
		synctest.Wait()
		var left [][]uint64
		for n := 3; n >= 1; n-- {
			h.count(n)
			var numbers []uint64
			for _, st := range h.set.Status() {
				numbers = append(numbers, st.Replica)
			}
			left = append(left, numbers)
		}
		if want := "[[1 2 3] [1 2] [1]]"; fmt.Sprint(left) != want {
			t.Errorf("left %v, expected %s: first the one that is down, then the one not ready, then the youngest", left, want)
		}
		h.close()
	})
}

func TestCloseTakesNoLongerThanItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, func(c *Config) { c.Grace = time.Hour })
		h.count(3)
		begin := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		if err := h.set.Close(ctx); err != nil {
			t.Error(err)
		}
		if took := time.Since(begin); took != 2*time.Second {
			t.Errorf("Close took %v, expected 2s", took)
		}
		if err := h.set.SetCount(1); err == nil {
			t.Error("SetCount after Close succeeded")
		}
		h.close()
		if _, _, err := h.set.Logs().Follow(0).Next(t.Context()); err != io.EOF {
			t.Errorf("logs after Close: %v, expected EOF", err)
		}
	})
}

func TestCloseNamesWhatWillNotDie(t *testing.T) {
	for _, c := range []struct {
		name string
		why  error
		says string
		not  string
	}{
		{"hangs in the kernel", nil, "after SIGKILL: it hangs in the kernel", "could not be killed"},
		{"its runtime could not", errors.New("the engine does not answer"), "could not be killed within 10s: the engine does not answer", "kernel"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHarness(t, nil)
				h.count(1)
				in := h.runtime.last()
				in.behave(false, true)
				in.why = c.why
				ctx, cancel := context.WithCancel(t.Context())
				cancel()
				err := h.set.Close(ctx)
				if err == nil || !strings.Contains(err.Error(), "replica 1 of digits@1 (pid 1000)") || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), c.not) {
					t.Errorf("error %v: expected it to name the replica, and %q", err, c.says)
				}
				in.end(Exit{Code: -1, Signal: 9}) // let it end
				h.close()
			})
		})
	}
}

// A pending Start that ignores the end of its context is not reported as a process that survived SIGKILL.
func TestCloseNamesWhatIsStillStarting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, nil)
		release := make(chan struct{})
		h.runtime.onStart = func(Launch) { <-release }
		h.count(1)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := h.set.Close(ctx); err == nil || !strings.Contains(err.Error(), "replica 1 of digits@1 was being started") || strings.Contains(err.Error(), "kernel") {
			t.Errorf("error %v: expected it to say that the replica was being started", err)
		}
		close(release)
		synctest.Wait()
		h.runtime.last().end(Exit{})
		h.close()
	})
}

func TestBadConfig(t *testing.T) {
	for _, cfg := range []Config{{Command: []string{"x"}}, {Runtime: &fakeRuntime{}}, {Runtime: &fakeRuntime{}, Command: []string{""}}} {
		if _, err := NewSet(cfg); err == nil {
			t.Errorf("config %+v was accepted", cfg)
		}
	}
	set, err := NewSet(Config{Runtime: &fakeRuntime{}, Command: []string{"x"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{-1, MaxReplicas + 1} {
		if err := set.SetCount(n); err == nil {
			t.Errorf("%d replicas were accepted", n)
		}
	}
}

// A model that crashes, and was briefly not wanted, is not restarted at once.
func TestFailuresOutliveSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, nil)
		h.count(1)
		for range 4 { // 75, 150, 300 ms, and the start of 600
			h.runtime.last().end(Exit{Code: 1})
			synctest.Wait()
			if h.only().State != Failed || h.runtime.count() < 4 {
				pass(time.Until(h.only().NextAttempt))
				synctest.Wait()
			}
		}
		started := h.runtime.count()
		h.count(0)
		h.count(1)
		st := h.wantState(Failed)
		if left := time.Until(st.NextAttempt); left <= 0 || left > 600*time.Millisecond {
			t.Errorf("the next attempt is in %v: expected what was left of 600 ms", left)
		}
		if h.runtime.count() != started {
			t.Error("it was started at once")
		}
		pass(time.Until(st.NextAttempt))
		synctest.Wait()
		h.wantState(Running)
		if h.runtime.count() != started+1 {
			t.Errorf("%d launches, expected %d", h.runtime.count(), started+1)
		}

		// It is healthy for long enough, sleeps, and is woken at once.
		h.set.MarkReady(h.runtime.last().launch.Replica)
		pass(time.Minute)
		h.runtime.last().behave(true, false)
		h.count(0)
		h.count(1)
		h.wantState(Running)
		h.close()
	})
}

// When Exited has come, the replica's room is free.
func TestLenWhenOneHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var h *harness
		var left []int
		h = newHarness(t, func(c *Config) {
			told := c.Event
			c.Event = func(ev Event) {
				told(ev)
				if ev.Kind == Exited {
					left = append(left, h.set.Len())
				}
			}
		})
		h.count(1)
		h.count(2)
		h.runtime.last().behave(true, false) // the newer one is ending
		h.count(1)
		h.runtime.launches[0].end(Exit{Code: 1})
		synctest.Wait()
		h.count(0) // it waits for its next attempt
		if n := h.set.Len(); n != 0 {
			t.Errorf("%d left", n)
		}
		if len(left) != 2 || left[0] != 1 || left[1] != 1 {
			t.Errorf("%v were left when one had ended: expected 1, and 1 that is started again", left)
		}
		h.close()
	})
}

// A crashing model that is put to sleep and woken repeatedly is started no more often than one that is left alone.
func TestSleepIsNoWayRoundTheBackoff(t *testing.T) {
	launches := func(t *testing.T, toggle bool) (n int) {
		synctest.Test(t, func(t *testing.T) {
			h := newHarness(t, nil)
			h.runtime.onStart = func(Launch) { n++ }
			h.count(1)
			for range 6000 { // ten minutes
				if in := h.runtime.last(); in.launch.Replica > 0 {
					in.end(Exit{Code: 1})
					synctest.Wait()
				}
				if toggle {
					h.count(0)
					h.count(1)
				}
				pass(100 * time.Millisecond)
			}
			h.close()
		})
		return n
	}
	alone, woken := launches(t, false), launches(t, true)
	if woken > alone+1 {
		t.Errorf("%d launches, and %d of a model that is left alone", woken, alone)
	}
}
