package scheduler

import (
	"testing"

	"github.com/xebec-serving/xebec/api"
)

// TestNoStarvation: a light function beside a heavy one that always has queries waiting is served within the ratio of
// their weights, whatever the batch size, and gets exactly its share in the long run.
func TestNoStarvation(t *testing.T) {
	for _, size := range []int{1, 7, 64} {
		m := New(Config{Batching: Batching{Policy: Fixed, MaxBatch: size}})
		heavy, light := m.AddFunction(1e9), m.AddFunction(1) // 100 and 1: weights are clamped
		m.ReplicaReady(0, 1, 1)
		var acts Actions
		waiting := map[int32]int{}
		top := func() {
			for _, f := range []int32{heavy, light} {
				for ; waiting[f] < 2*size; waiting[f]++ {
					m.Arrive(0, &Item{Query: api.Query{Function: f, Deadline: farDeadline, Expires: farDeadline}})
				}
			}
		}
		served, since := map[int32]int{}, 0
		top()
		m.Ready(0, &acts)
		for turn := 0; turn < 50_000/size; turn++ {
			b := acts.Dispatches[0].Batch
			for _, q := range b.Queries {
				served[q.Function]++
				waiting[q.Function]--
				if since++; q.Function == light {
					since = 0
				}
				if since > maxFunctionWeight {
					t.Fatalf("batches of %d: %d queries in a row, and the light function waits", size, since)
				}
			}
			top()
			m.BatchDone(0, 1, &api.BatchResult{ID: b.ID, EvalNanos: 1})
			m.Ready(0, &acts)
		}
		if ratio := float64(served[heavy]) / float64(served[light]); ratio < 99 || ratio > 101 {
			t.Errorf("batches of %d: %d and %d queries were served, want 100 to 1", size, served[heavy], served[light])
		}
	}
}

const farDeadline = api.Nanos(2 * longDeadlineNanos)

// TestNoStarvationByShares: where a plan reserves replicas for functions, each function gets its share of its replica,
// whatever happens at the others. A and C share replica 1, 50 to 1; B has replica 2.
func TestNoStarvationByShares(t *testing.T) {
	m := New(Config{Batching: Batching{Policy: Fixed, MaxBatch: 8}})
	a, b, c := m.AddFunction(1), m.AddFunction(1), m.AddFunction(1)
	m.ReplicaReady(0, 1, 1)
	m.ReplicaReady(0, 2, 1)
	m.SetPlan(Plan{Replicas: []ReplicaPlan{{ID: 1, Shares: []float64{50, 0, 1}}, {ID: 2, Shares: []float64{0, 1, 0}}}})
	var acts Actions
	waiting, at1, at2 := map[int32]int{}, map[int32]int{}, map[int32]int{}
	for turn := 0; turn < 10_000; turn++ {
		for _, f := range []int32{a, b, c} {
			for ; waiting[f] < 16; waiting[f]++ {
				m.Arrive(0, &Item{Query: api.Query{Function: f, Deadline: farDeadline, Expires: farDeadline}})
			}
		}
		m.Ready(0, &acts)
		done := append([]Dispatch(nil), acts.Dispatches...)
		for _, d := range done {
			served := at1
			if d.Replica == 2 {
				served = at2
			}
			for _, q := range d.Batch.Queries {
				waiting[q.Function]--
				served[q.Function]++
			}
			m.BatchDone(0, d.Replica, &api.BatchResult{ID: d.Batch.ID, EvalNanos: 1})
		}
	}
	if ratio := float64(at1[a]) / float64(max(at1[c], 1)); ratio < 49 || ratio > 51 || at1[b] > 0 {
		t.Errorf("replica 1 served %d, %d and %d queries of A, B and C, want 50 to none to 1", at1[a], at1[b], at1[c])
	}
	if at2[a]+at2[c] > 0 {
		t.Errorf("replica 2 served %d and %d queries of A and C while B's waited", at2[a], at2[c])
	}
}
