package scheduler

import (
	"testing"

	"github.com/xebec-serving/xebec/api"
	"pgregory.net/rapid"
)

// Each kind has one home; a replica that comes takes only the kinds that are its own, and one that goes leaves only its own
// to others.
func TestHomes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := New(DefaultConfig())
		n := rapid.IntRange(1, 8).Draw(t, "replicas")
		first := rapid.Uint64().Draw(t, "first")
		for i := range n {
			m.ReplicaReady(0, ReplicaID(first+uint64(i)), 1)
		}
		const kinds = 2000
		homes := func() (list [kinds + 1]ReplicaID) {
			for kind := uint64(1); kind <= kinds; kind++ {
				list[kind] = m.home(kind).id
			}
			return list
		}
		before := homes()
		counts := map[ReplicaID]int{}
		for kind := 1; kind <= kinds; kind++ {
			counts[before[kind]]++
		}
		for id, count := range counts {
			if want := kinds / n; count < want*7/10 || count > want*13/10 {
				t.Fatalf("replica %d of %d is the home of %d kinds of %d", id, n, count, kinds)
			}
		}
		added := ReplicaID(first + uint64(n))
		m.ReplicaReady(0, added, 1)
		after := homes()
		moved := 0
		for kind := 1; kind <= kinds; kind++ {
			if after[kind] != before[kind] {
				if moved++; after[kind] != added {
					t.Fatalf("kind %d moved from %d to %d when %d came", kind, before[kind], after[kind], added)
				}
			}
		}
		if moved == 0 {
			t.Fatal("the new replica is no home")
		}
		m.ReplicaDrain(0, added)
		if homes() != before {
			t.Fatal("homes differ after the new replica has gone")
		}
	})
}

// While sticky queries wait for a busy replica, the other one idles, and their order is that of their deadlines. When the
// replica dies, those that wait move.
func TestStickyWaits(t *testing.T) {
	cfg := DefaultConfig()
	cfg.Depth = 1
	cfg.Batching = Batching{Policy: Fixed, MaxBatch: 1}
	m := New(cfg)
	function := m.AddFunction(1)
	var a Actions
	m.ReplicaReady(0, 1, 1)
	m.ReplicaReady(0, 2, 1)
	kind := uint64(1)
	for m.home(kind).id != 1 {
		kind++
	}
	items := make([]*Item, 3)
	for i := range items {
		items[i] = &Item{Sticky: kind, Query: api.Query{Function: function, Deadline: api.Nanos(10e9 - i)}}
		m.Arrive(0, items[i])
		m.Ready(0, &a)
		if i == 0 && (len(a.Dispatches) != 1 || a.Dispatches[0].Replica != 1) || i > 0 && len(a.Dispatches) != 0 {
			t.Fatalf("query %d: %+v", i, a.Dispatches)
		}
	}
	other := &Item{Query: api.Query{Function: function, Deadline: 10e9}}
	m.Arrive(0, other)
	m.Ready(0, &a)
	if len(a.Dispatches) != 1 || a.Dispatches[0].Replica != 2 {
		t.Fatalf("a query that is not sticky: %+v", a.Dispatches)
	}
	m.BatchDone(1e6, 1, &api.BatchResult{ID: 1, EvalNanos: 1e6})
	m.Ready(1e6, &a)
	if len(a.Dispatches) != 1 || a.Dispatches[0].Replica != 1 || a.Dispatches[0].Batch.Queries[0] != &items[2].Query {
		t.Fatalf("after the first batch: %+v", a.Dispatches)
	}
	m.ReplicaGone(2e6, 1, nil)
	m.BatchDone(2e6, 2, &api.BatchResult{ID: 1, EvalNanos: 1e6})
	m.Ready(2e6, &a)
	if len(a.Dispatches) != 1 || a.Dispatches[0].Replica != 2 {
		t.Fatalf("after the home's end: %+v", a.Dispatches)
	}
}

// A function whose queries are sticky and one whose queries are not have every second batch of a replica each.
func TestStickyShares(t *testing.T) {
	cfg := DefaultConfig()
	cfg.Depth = 1
	cfg.Batching = Batching{Policy: Fixed, MaxBatch: 2}
	m := New(cfg)
	function := m.AddFunction(1)
	m.ReplicaReady(0, 1, 1)
	for i := range 20 {
		m.Arrive(0, &Item{Sticky: uint64(i % 2 * 7), Query: api.Query{Function: function, Deadline: 10e9}})
	}
	var a Actions
	for batch := uint64(1); batch <= 8; batch++ {
		m.Ready(api.Nanos(batch), &a)
		if len(a.Dispatches) != 1 || len(a.Dispatches[0].Batch.Queries) != 2 {
			t.Fatalf("batch %d: %+v", batch, a.Dispatches)
		}
		m.BatchDone(api.Nanos(batch), 1, &api.BatchResult{ID: batch, EvalNanos: 1})
	}
	if m.homes.waiting != 2 || m.live != 2 {
		t.Errorf("after 8 batches %d sticky queries wait and %d others, of 10 each", m.homes.waiting, m.live)
	}
}
