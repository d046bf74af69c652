package containers

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/xebec-serving/xebec/api"
)

// fakeRuntime starts instances that the test controls.
type fakeRuntime struct {
	mu       sync.Mutex
	launches []*fakeInstance
	fail     error
	// onStart runs before Start returns.
	onStart func(Launch)
	blocked chan struct{} // if set, Start waits for it or for ctx
}

func (r *fakeRuntime) Start(ctx context.Context, l Launch) (Instance, error) {
	if r.onStart != nil {
		r.onStart(l)
	}
	if r.blocked != nil {
		select {
		case <-r.blocked:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.fail != nil {
		return nil, r.fail
	}
	in := &fakeInstance{launch: l, pid: 1000 + len(r.launches), exited: make(chan struct{})}
	r.launches = append(r.launches, in)
	return in, nil
}

func (r *fakeRuntime) Close() error { return nil }

// last is the newest instance.
func (r *fakeRuntime) last() *fakeInstance {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.launches[len(r.launches)-1]
}

func (r *fakeRuntime) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.launches)
}

type fakeInstance struct {
	launch Launch
	pid    int
	exited chan struct{}
	once   sync.Once
	exit   Exit

	mu      sync.Mutex
	polite  bool  // ends on SIGTERM
	undying bool  // survives SIGKILL
	why     error // what an undying instance returns for SIGKILL
	signals []bool
}

func (in *fakeInstance) PID() int                { return in.pid }
func (in *fakeInstance) Exited() <-chan struct{} { return in.exited }
func (in *fakeInstance) Exit() Exit              { return in.exit }

func (in *fakeInstance) Signal(term bool) error {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.signals = append(in.signals, term)
	switch {
	case term && in.polite:
		in.end(Exit{})
	case !term && !in.undying:
		in.end(Exit{Code: -1, Signal: 9})
	case !term:
		return in.why
	}
	return nil
}

// asked returns the signals so far: true for SIGTERM.
func (in *fakeInstance) asked() []bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	return slices.Clone(in.signals)
}

// behave sets how the process reacts to signals.
func (in *fakeInstance) behave(polite, undying bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.polite, in.undying = polite, undying
}

func (in *fakeInstance) end(e Exit) {
	in.once.Do(func() {
		e.At = time.Now()
		in.exit = e
		close(in.exited)
	})
}

// harness is a Set over a fakeRuntime, in a bubble of fake time. u = 0.5 makes delays 3/4 of their base.
type harness struct {
	*testing.T
	set     *Set
	runtime *fakeRuntime

	mu       sync.Mutex
	prepared []uint64
	events   []Event
}

func newHarness(t *testing.T, change func(*Config)) *harness {
	h := &harness{T: t, runtime: &fakeRuntime{}}
	cfg := Config{
		Model: api.ModelID{Name: "digits", Version: "1"}, Runtime: h.runtime, Dir: "/models/digits", Command: []string{"serve"}, Env: []string{"A=1"},
		Prepare: func(replica uint64) ([]string, error) {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.prepared = append(h.prepared, replica)
			return []string{fmt.Sprintf("TOKEN=%d", replica)}, nil
		},
		Event: func(ev Event) {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.events = append(h.events, ev)
		},
		Rand: func() float64 { return 0.5 },
	}
	if change != nil {
		change(&cfg)
	}
	set, err := NewSet(cfg)
	if err != nil {
		t.Fatal(err)
	}
	h.set = set
	return h
}

func (h *harness) count(n int) {
	h.Helper()
	if err := h.set.SetCount(n); err != nil {
		h.Fatal(err)
	}
	synctest.Wait()
}

// only returns the status of the only replica.
func (h *harness) only() Status {
	h.Helper()
	all := h.set.Status()
	if len(all) != 1 {
		h.Fatalf("%d replicas, expected one: %+v", len(all), all)
	}
	return all[0]
}

func (h *harness) wantState(want State) Status {
	h.Helper()
	st := h.only()
	if st.State != want {
		h.Fatalf("state %v, expected %v: %+v", st.State, want, st)
	}
	return st
}

func (h *harness) close() {
	h.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := h.set.Close(ctx); err != nil {
		h.Error(err)
	}
	if left := h.set.Status(); len(left) != 0 {
		h.Errorf("left after Close: %+v", left)
	}
	h.checkContract()
}

// checkContract checks the promised events: exactly one Exited for each prepared launch, at most one Started before it.
func (h *harness) checkContract() {
	h.Helper()
	started, exited := map[uint64]int{}, map[uint64]int{}
	for _, ev := range h.events {
		switch ev.Kind {
		case Started:
			started[ev.Replica]++
			if exited[ev.Replica] > 0 {
				h.Errorf("replica %d started after it had exited", ev.Replica)
			}
		case Exited:
			exited[ev.Replica]++
		}
	}
	seen := map[uint64]bool{}
	for _, replica := range h.prepared {
		if seen[replica] {
			h.Errorf("replica number %d came twice", replica)
		}
		seen[replica] = true
		if started[replica] > 1 || exited[replica] != 1 {
			h.Errorf("replica %d: %d Started, %d Exited", replica, started[replica], exited[replica])
		}
	}
	if len(exited) != len(seen) {
		h.Errorf("%d replicas prepared, %d exited", len(seen), len(exited))
	}
}

func (h *harness) lastEvent() Event {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.events[len(h.events)-1]
}

// pass advances the fake time.
func pass(d time.Duration) {
	<-time.After(d) // the bubble's clock advances when every goroutine waits
	synctest.Wait()
}
