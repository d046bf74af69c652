package scheduler

import (
	"testing"

	"github.com/xebec-serving/xebec/api"
)

// TestNoStarvation: the lightest function beside the heaviest, which always has something waiting, gets its place within
// the proportion of their weights, whatever the batches' size; and in the long run exactly its share.
func TestNoStarvation(t *testing.T) {
	for _, size := range []int{1, 7, 64} {
		m := New(Config{Batching: Batching{Policy: Fixed, MaxBatch: size}})
		heavy, light := m.AddFunction(1e9), m.AddFunction(1) // 100 and 1: weights are bounded
		m.ReplicaReady(0, 1, 1)
		var acts Actions
		waiting := map[int32]int{}
		top := func() {
			for _, f := range []int32{heavy, light} {
				for ; waiting[f] < 2*size; waiting[f]++ {
					m.Arrive(0, &Item{Query: api.Query{Function: f, Deadline: hopeful, Expires: hopeful}})
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

const hopeful = api.Nanos(2 * hopefulNanos)
