package query

import (
	"context"
	"sync"
	"testing"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/cache"
	"github.com/xebec-serving/xebec/gateway/internal/obs"
	"github.com/xebec-serving/xebec/gateway/query/querytest"
	"github.com/xebec-serving/xebec/scheduler"
	"github.com/xebec-serving/xebec/scheduler/driver"
)

// keeper is a lane whose queries wait.
type keeper struct {
	mu        sync.Mutex
	items     []*scheduler.Item
	cancelled int
}

func (k *keeper) SubmitAll(items []*scheduler.Item, _ *driver.Cork) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.items = append(k.items, items...)
}

func (k *keeper) Cancel(*scheduler.Item) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.cancelled++
}

func (k *keeper) GiveBack(give func(*scheduler.Item) bool) {
	k.mu.Lock()
	var given, rest []*scheduler.Item
	for _, it := range k.items {
		if give(it) {
			given = append(given, it)
		} else {
			rest = append(rest, it)
		}
	}
	k.items = rest
	k.mu.Unlock()
	for _, it := range given {
		it.Owner.(driver.Taker).TakeBack(it)
	}
}

// take removes and returns the queries that wait.
func (k *keeper) take() []*scheduler.Item {
	k.mu.Lock()
	defer k.mu.Unlock()
	items := k.items
	k.items = nil
	return items
}

func (k *keeper) await(t *testing.T, n int) {
	t.Helper()
	poll(t, func() bool {
		k.mu.Lock()
		defer k.mu.Unlock()
		return len(k.items) == n
	})
}

// twoVersions is a path whose model m has versions 1 and 2, of which one serves, and whose function f asks m.
type twoVersions struct {
	*fixture
	models [2]*Model
	lanes  [2]*keeper
}

func newTwoVersions(t *testing.T, change ...func(*fixture)) *twoVersions {
	w := &twoVersions{}
	w.fixture = serve(t, floats4, nil, change...)
	for i, version := range []string{"1", "2"} {
		w.lanes[i] = &keeper{}
		w.models[i] = NewModel(api.ModelID{Name: "m", Version: version}, floats4, w.lanes[i], 7, new(obs.Endpoint))
	}
	w.publish(1)
	return w
}

// publish makes a version the one that the names m and f mean. Version 2 is also the label "new".
func (w *twoVersions) publish(i int) {
	fn := *w.fn
	fn.Candidates = []Candidate{{Model: w.models[i], Queue: int32(i)}}
	w.fn = &fn
	w.p.Publish(&Table{
		Functions: map[string]*Function{"f": &fn}, Models: map[string]*Model{"m": w.models[i]},
		Versions: map[api.ModelID]*Model{w.models[0].ID: w.models[0], w.models[1].ID: w.models[1], {Name: "m", Version: "new"}: w.models[1]},
	})
}

// start asks one query, and returns where its answer will be.
func (w *twoVersions) start(ctx context.Context, qs Queries) <-chan Answer {
	qs.Inputs = [][]api.Value{{{Data: make([]byte, 16)}}}
	answer := make(chan Answer, 1)
	go func() {
		if answers, err := w.p.Do(ctx, &qs, nil); err == nil {
			answer <- answers[0]
		}
		close(answer)
	}()
	return answer
}

// TestHandOver: queries that wait for a version that cannot start are answered by the one that takes over, within their
// deadlines and naming it.
func TestHandOver(t *testing.T) {
	w := newTwoVersions(t)
	byFunction, byModel := w.start(t.Context(), Queries{Function: "f"}), w.start(t.Context(), Queries{Model: api.ModelID{Name: "m"}})
	w.lanes[1].await(t, 2)
	deadlines := map[*scheduler.Item]api.Nanos{}
	for _, it := range w.lanes[1].items {
		deadlines[it] = it.Deadline
	}
	w.p.HandOver(w.models[1])
	w.lanes[1].await(t, 2) // no other version has their names
	w.publish(0)
	w.handOver(t, 1)
	w.lanes[0].await(t, 2)
	for _, it := range w.lanes[0].take() {
		if it.Deadline != deadlines[it] || it.Function != 0 && it.Function != 7 {
			t.Errorf("it has deadline %d and sub-queue %d, had deadline %d", it.Deadline, it.Function, deadlines[it])
		}
		querytest.Sum(it)
	}
	for name, answer := range map[string]<-chan Answer{"by function": byFunction, "by model": byModel} {
		if a := <-answer; a.Code != api.OK || len(a.Answered) != 1 || a.Answered[0] != w.models[0].ID {
			t.Errorf("%s: %+v, want an answer of m@1", name, a)
		}
	}
}

// handOver does what the gateway does when another version serves.
func (w *twoVersions) handOver(t *testing.T, from int) {
	t.Helper()
	w.p.HandOver(w.models[from])
	if err := w.p.Quiesce(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.p.HandOver(w.models[from])
}

// TestHandOverOnce: a query moves once, so that versions that fail in turn do not pass it back and forth.
func TestHandOverOnce(t *testing.T) {
	w := newTwoVersions(t)
	answer := w.start(t.Context(), Queries{Function: "f"})
	w.lanes[1].await(t, 1)
	w.publish(0)
	w.handOver(t, 1)
	w.lanes[0].await(t, 1)
	w.publish(1)
	w.handOver(t, 0)
	w.lanes[0].await(t, 1)
	querytest.Sum(w.lanes[0].take()[0])
	if a := <-answer; a.Code != api.OK {
		t.Errorf("%+v", a)
	}
}

// TestExplicitVersionsStay: who names a version or a label gets no other.
func TestExplicitVersionsStay(t *testing.T) {
	for _, qs := range []Queries{
		{Model: api.ModelID{Name: "m", Version: "2"}}, {Model: api.ModelID{Name: "m", Version: "new"}}, {Function: "f", Version: "2"},
	} {
		w := newTwoVersions(t)
		answer := w.start(t.Context(), qs)
		w.lanes[1].await(t, 1)
		w.publish(0)
		w.handOver(t, 1)
		w.lanes[1].await(t, 1)
		querytest.Sum(w.lanes[1].take()[0])
		if a := <-answer; a.Code != api.OK || a.Answered[0] != w.models[1].ID {
			t.Errorf("%+v: %+v", qs, a)
		}
	}
}

// TestOtherSignaturesStay: inputs for one version are not given to one that takes others.
func TestOtherSignaturesStay(t *testing.T) {
	w := newTwoVersions(t)
	answer := w.start(t.Context(), Queries{Function: "f"})
	w.lanes[1].await(t, 1)
	w.models[0].Signature = querytest.Bytes
	w.publish(0)
	w.handOver(t, 1)
	w.lanes[1].await(t, 1)
	querytest.Sum(w.lanes[1].take()[0])
	<-answer
}

// TestCallerLeavesAfterHandOver: the lane that the query has left is not asked to drop it.
func TestCallerLeavesAfterHandOver(t *testing.T) {
	w := newTwoVersions(t)
	ctx, cancel := context.WithCancel(t.Context())
	left := w.start(ctx, Queries{Function: "f"})
	w.lanes[1].await(t, 1)
	w.publish(0)
	w.handOver(t, 1)
	w.lanes[0].await(t, 1)
	cancel()
	<-left
	if w.lanes[0].cancelled+w.lanes[1].cancelled != 0 {
		t.Error("a lane was told to drop a query that was handed over")
	}
	querytest.Sum(w.lanes[0].take()[0])
}

// TestFollowersMove: queries that wait for another one's evaluation move with it, and are evaluated once.
func TestFollowersMove(t *testing.T) {
	w := newTwoVersions(t, func(f *fixture) { f.p.cfg.Cache = cache.New(1 << 20) })
	for _, m := range w.models {
		m.Cache = w.p.cfg.Cache.Model()
		m.CapabilitiesKnown.Store(true)
		m.CacheOn.Store(true)
	}
	clock := driver.NewClock()
	t.Cleanup(clock.Close)
	w.p.cfg.Timers, w.p.cfg.Now = driver.NewTimers(clock), clock.Now
	var answers []<-chan Answer
	for range 3 {
		answers = append(answers, w.start(t.Context(), Queries{Function: "f"}))
	}
	poll(t, func() bool { return w.models[1].Cache.Stats().Coalesced == 2 })
	w.publish(0)
	w.handOver(t, 1)
	// The leader does not look into the other version's cache, and of those that follow one leads.
	w.lanes[0].await(t, 2)
	for _, it := range w.lanes[0].take() {
		querytest.Sum(it)
	}
	for _, answer := range answers {
		if a := <-answer; a.Code != api.OK || a.Answered[0] != w.models[0].ID {
			t.Errorf("%+v", a)
		}
	}
}
