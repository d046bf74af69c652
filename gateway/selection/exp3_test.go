package selection

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

// TestExp3OfFew: for few candidates exp3 asks the same one, with the same probability to the last bit, as the code for any number.
func TestExp3OfFew(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, fewCandidates).Draw(t, "candidates")
		p := &exp3{
			gamma: rapid.SampledFrom([]float64{0, 0.01, 0.5, 1}).Draw(t, "gamma"),
			depth: rapid.SampledFrom([]float64{0, 3, 7.6, math.Inf(1)}).Draw(t, "depth"),
		}
		s := State{Slots: weightSlots, V: make([]float64, n*weightSlots)}
		number := anyFloat()
		for i := range s.V {
			s.V[i] = number.Draw(t, "v")
		}
		q := Query{State: s, Seed: rapid.Uint64().Draw(t, "seed"), Allowed: Set(rapid.Uint64Range(1, uint64(All(n))).Draw(t, "allowed"))}
		var few, any Selection
		p.Select(&q, &few)
		var prob Vector
		p.probabilities(s, q.Allowed, &prob)
		Draw(&q, &prob, &any)
		if i := any.Ask.First(); few.Ask != any.Ask || math.Float64bits(few.P[i]) != math.Float64bits(any.P[i]) {
			t.Fatalf("few: %b with %v, any: %b with %v", few.Ask, few.P[:n], any.Ask, any.P[:n])
		}
	})
}
