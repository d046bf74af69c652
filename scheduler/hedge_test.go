package scheduler

import (
	"testing"

	"github.com/xebec-serving/xebec/api"
	"pgregory.net/rapid"
)

// TestRandomHedges is TestRandomEvents with replicas whose profiles are known and that are late now and then, so that
// queries are sent twice, combined with all other events.
func TestRandomHedges(t *testing.T) {
	hedged := uint64(0)
	rapid.Check(t, func(t *rapid.T) {
		cfg := drawConfig(t)
		cfg.Shared, cfg.Retry, cfg.Hedge, cfg.Batching.HoldNanos = false, true, true, 0
		w := newWorldOf(t, cfg)
		for range rapid.IntRange(2, 3).Draw(t, "replicas") {
			w.replicaReady(t)
			w.warmUp(t)
		}
		t.Repeat(map[string]func(*rapid.T){
			"":             func(t *rapid.T) { w.check(t) },
			"arrive":       w.arrive,
			"arriveMany":   w.arriveMany,
			"late":         w.lateBatch,
			"lateOften":    w.lateBatch,
			"done":         w.done,
			"doneOften":    w.done,
			"replicaGone":  w.replicaGone,
			"replicaDrain": w.replicaDrain,
			"sendFailed":   w.sendFailed,
			"advance":      w.advance,
			"jump":         w.jump,
			"cancel":       w.cancel,
			"plan":         w.plan,
			"replicaNew": func(t *rapid.T) {
				w.replicaReady(t)
				w.warmUp(t)
			},
		})
		w.finish(t)
		hedged += w.m[0].counters.Hedged
	})
	if !t.Failed() && hedged == 0 {
		t.Error("no query was sent twice: these random worlds cover too little")
	}
}

// lateBatch sends a few queries whose batch does not come back in time.
func (w *world) lateBatch(t *rapid.T) {
	ttl := api.Nanos(rapid.SampledFrom([]int64{0, 1e9}).Draw(t, "ttl"))
	for range rapid.IntRange(1, 4).Draw(t, "count") {
		w.arriveWith(t, w.functions[0], api.Nanos(rapid.SampledFrom([]int64{5e6, 20e6, 20e6, 5e9}).Draw(t, "slo")), ttl, 8, rapid.SampledFrom([]uint64{0, 0, 0, 1}).Draw(t, "kind"))
	}
	w.settle(t)
	w.jump(t)
}

// TestHedgesDoNotAlloc: an item that is sent twice allocates nothing, from its second hedge on.
func TestHedgesDoNotAlloc(t *testing.T) {
	m := New(Config{Retry: true, Hedge: true, Batching: Batching{Policy: Fixed, MaxBatch: 8}})
	m.AddFunction(1)
	var acts Actions
	var res api.BatchResult
	now := api.Nanos(1)
	items := make([]Item, 8)
	// One circle: eight queries arrive. Their batch comes back after two milliseconds, or is hedged if late is longer.
	circle := func(late api.Nanos) {
		for i := range items {
			items[i].Deadline, items[i].Expires = now+1e9, now+1e9
			m.Arrive(now, &items[i])
		}
		ended := 0
		for m.Ready(now, &acts); ended < len(items); m.Ready(now, &acts) {
			for _, e := range acts.Ends {
				if e.Kind != AnswerOnly {
					ended++
				}
			}
			if len(acts.Dispatches) == 0 {
				break
			}
			d := acts.Dispatches[0]
			now += late
			m.Advance(now)
			m.Ready(now, &acts)
			for _, second := range acts.Dispatches {
				now += 1e6
				res = api.BatchResult{ID: second.Batch.ID}
				m.BatchDone(now, second.Replica, &res)
			}
			now += 2e6
			res = api.BatchResult{ID: d.Batch.ID}
			m.BatchDone(now, d.Replica, &res)
		}
		if m.Held() > 0 {
			t.Fatalf("%d queries are still held", m.Held())
		}
	}
	for id := range ReplicaID(2) {
		m.ReplicaReady(now, id+1, 2)
	}
	for range 4 * knownSamples {
		circle(0)
	}
	turn := func() {
		for range 400 { // earns tokens for eight queries and keeps the P99 where it is
			circle(0)
		}
		circle(20e6)
	}
	for range 4 {
		turn()
	}
	before := m.counters
	if n := testing.AllocsPerRun(20, turn); n != 0 {
		t.Errorf("%v allocations in a hedge", n)
	}
	if hedged := m.counters.Hedged - before.Hedged; hedged < 20*8 || m.counters.HedgeWins-before.HedgeWins != hedged {
		t.Errorf("%d queries were sent twice and %d of them won, expected %d", hedged, m.counters.HedgeWins-before.HedgeWins, 21*8)
	}
}

// TestTwinBelongsToItem: the twin and its memory for outputs stay with the item. A copied item makes a twin of its
// own.
func TestTwinBelongsToItem(t *testing.T) {
	a := Item{Query: api.Query{ID: 1, Inputs: []api.Value{{Data: []byte("in")}}}}
	tw := a.makeTwin()
	tw.Outputs = []api.Value{{Data: []byte("out")}}
	if a.makeTwin() != tw || len(tw.Outputs) != 1 || &tw.Inputs[0] != &a.Inputs[0] {
		t.Error("makeTwin did not reuse the item's twin with its outputs")
	}
	b := a
	if other := b.makeTwin(); other == tw || other.twinOf != &b || a.makeTwin() != tw || other.Outputs != nil {
		t.Error("two items share a twin")
	}
	a.winner = &tw.Query
	if a.Result() != &tw.Query {
		t.Error("Result is not the winner")
	}
	a.SetResult([]api.Value{{Data: []byte("cached")}}, 0.5)
	if r := a.Result(); r != &a.Query || string(r.Outputs[0].Data) != "cached" || r.Confidence != 0.5 {
		t.Errorf("after SetResult, Result is %+v", r)
	}
}
