package learned

import (
	"encoding/binary"
	"math"
	"testing"

	"github.com/xebec-serving/xebec/gateway/selection"
)

// benchmarkQuery runs Select and Combine, and Observe in every feedback-th query.
func benchmarkQuery(b *testing.B, contexts, feedback uint64) {
	table := newTable(Config{})
	f := table.Declare("f", tally{}, []string{"a", "b", "c", "d", "e"})
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		var context []byte
		var out selection.Selection
		combining := selection.Combination{Selected: selection.All(5), Answers: []selection.Answer{{Candidate: 1}}}
		fb := selection.Feedback{P: []float64{1, 1, 1, 1, 1}, Losses: make([]float64, 5)}
		n := uint64(0)
		var q selection.Query
		for pb.Next() {
			n++
			if contexts > 0 {
				context = binary.LittleEndian.AppendUint64(context[:0], n*0x9e3779b97f4a7c15>>20%contexts)
			}
			q = selection.Query{Allowed: selection.All(5)}
			f.Select(context, &q, &out)
			f.Combine(context, &combining)
			if n%feedback == 0 {
				for k := range fb.Losses {
					fb.Losses[k] = math.NaN()
				}
				fb.Selected = out.Ask
				fb.Losses[out.Ask.First()] = 1.0 / (1 << 20)
				f.Observe(context, &fb)
			}
		}
	})
}

func BenchmarkGlobal(b *testing.B)              { benchmarkQuery(b, 0, 10) }
func BenchmarkGlobalFeedbackEach(b *testing.B)  { benchmarkQuery(b, 0, 1) }
func BenchmarkContexts10k(b *testing.B)         { benchmarkQuery(b, 10_000, 10) }
func BenchmarkContexts10kFeedback(b *testing.B) { benchmarkQuery(b, 10_000, 1) }

// Five times as many contexts as fit into memory.
func BenchmarkContextsEvicted(b *testing.B) { benchmarkQuery(b, 5*DefaultContexts, 10) }

// BenchmarkDeclare changes the candidates of a function with 10,000 contexts in memory. This is not on the path of
// queries.
func BenchmarkDeclare(b *testing.B) {
	table := newTable(Config{})
	layouts := [][]string{{"a", "b", "c", "d", "m@1"}, {"m@2", "a", "b", "c", "d", "new"}}
	f := table.Declare("f", tally{}, layouts[0])
	for i := range 10_000 {
		loss(f, string(binary.LittleEndian.AppendUint32(nil, uint32(i))), 0, 0.5)
	}
	b.ResetTimer()
	for i := range b.N {
		table.Declare("f", tally{}, layouts[(i+1)%2])
	}
}
