//go:build !race

package learned

import (
	"encoding/binary"
	"math"
	"testing"

	"github.com/xebec-serving/xebec/gateway/selection"
)

// Queries and feedback do not allocate, whether their context is known, replaces another one, or has pending deltas.
func TestAllocQueryAndFeedback(t *testing.T) {
	for _, c := range []struct {
		name     string
		cfg      Config
		contexts int
	}{
		{"without a context", Config{}, 0},
		{"contexts in memory", Config{Contexts: 256}, 100},
		{"contexts that evict each other", Config{Contexts: 256}, 5000},
		{"with a store", Config{Store: newFakeServer().connect(), Contexts: 256}, 100},
		{"with a store, evicted with unsent deltas", Config{Store: newFakeServer().connect(), Contexts: 256, MaxPending: 1000}, 5000},
	} {
		t.Run(c.name, func(t *testing.T) {
			table := newTable(c.cfg)
			f := table.Declare("f", tally{}, []string{"a", "b", "c", "d", "e"})
			var q selection.Query
			var out selection.Selection
			var context []byte
			combining := selection.Combination{Selected: selection.All(5), Answers: []selection.Answer{{Candidate: 1}, {Candidate: 2}}}
			fb := selection.Feedback{P: make([]float64, 5), Losses: make([]float64, 5)}
			n := uint64(0)
			query := func() {
				n++
				if c.contexts > 0 {
					context = binary.LittleEndian.AppendUint64(context[:0], n%uint64(c.contexts))
				}
				q = selection.Query{Allowed: selection.All(5)}
				f.Select(context, &q, &out)
				f.Combine(context, &combining)
				i := out.Ask.First()
				fb.Selected = out.Ask
				for k := range fb.Losses {
					fb.Losses[k] = math.NaN()
				}
				fb.P[i], fb.Losses[i] = 1, 1.0/(1<<20)
				f.Observe(context, &fb)
			}
			for range 20000 {
				query()
			}
			if allocs := testing.AllocsPerRun(5000, query); allocs != 0 {
				t.Errorf("a query with feedback allocates %v times", allocs)
			}
		})
	}
}

// Ten thousand functions without queries cost little, and have no memory for contexts.
func TestAllocFunctionsWithoutContexts(t *testing.T) {
	table := newTable(Config{Store: newFakeServer().connect()})
	f := table.Declare("f", tally{}, []string{"a", "b"})
	ask(f, "")
	if f.states.shards.Load() != nil || f.states.global.memory != nil {
		t.Error("a function without contexts and feedback has memory for both")
	}
}
