package selection

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

// anyFloat draws ordinary numbers, and numbers that a damaged store may return.
func anyFloat() *rapid.Generator[float64] {
	return rapid.OneOf(
		rapid.Float64Range(-30, 30),
		rapid.Float64Range(0, 5000),
		rapid.Float64(),
		rapid.SampledFrom([]float64{0, math.NaN(), math.Inf(1), math.Inf(-1), 1e300, -1e300, -1e15, math.MaxFloat64, -math.MaxFloat64, 5e-324}),
	)
}

// anyPolicy draws a policy, the number of its candidates and a state, plausible or not.
func anyPolicy(t *rapid.T, number *rapid.Generator[float64]) (string, Policy, State) {
	n := rapid.IntRange(1, MaxCandidates).Draw(t, "candidates")
	name := rapid.SampledFrom(Names()).Draw(t, "policy")
	params := map[string]any{}
	if name == "exp4" {
		params["first"] = float64(rapid.IntRange(0, 4).Draw(t, "first"))
		params["vote"] = rapid.SampledFrom([]float64{0, 1, 10, 1e6}).Draw(t, "vote")
	}
	if name == "exp3" || name == "exp4" {
		params["floor"] = rapid.SampledFrom([]float64{0, 0.01, 1}).Draw(t, "floor")
	}
	p, err := New(name, params, refs(n))
	if err != nil {
		t.Fatal(err)
	}
	s := State{Slots: p.Slots(), V: make([]float64, n*p.Slots())}
	p.Init(s)
	if rapid.Bool().Draw(t, "not new") {
		for i := range s.V {
			s.V[i] = number.Draw(t, "v")
		}
	}
	return name, p, s
}

// TestSelectSurvivesAnyState: for any state, Select asks only allowed candidates whose limit is above 0, with valid
// probabilities, and asks at least one if it can.
func TestSelectSurvivesAnyState(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name, p, s := anyPolicy(t, anyFloat())
		n := s.Candidates()
		q := Query{State: s, Value: NewValue(p, n), Seed: rapid.Uint64().Draw(t, "seed"), Sticky: rapid.Uint64().Draw(t, "sticky"), HasContext: rapid.Bool().Draw(t, "context")}
		q.Allowed = Set(rapid.Uint64Min(1).Draw(t, "allowed"))&All(n) | 1 // single asks the first candidate or none
		usable := q.Allowed
		if p.Mode() == One && rapid.Bool().Draw(t, "limited") {
			q.Limits = rapid.SliceOfN(rapid.SampledFrom([]float64{0, 0, 1e-9, 0.3, 1, 2, -1, math.NaN()}), n, n).Draw(t, "limits")
			for i, f := range q.Limits {
				if !(f > 0) {
					usable = usable.Without(i)
				}
			}
		}
		var out Selection
		p.Select(&q, &out)
		if out.Ask&^usable != 0 {
			t.Fatalf("asked %b; usable %b", out.Ask, usable)
		}
		if out.Ask == 0 && usable.Has(0) {
			t.Fatalf("%s asks no candidate of %b", name, usable)
		}
		if p.Mode() == One && out.Ask.Len() > 1 {
			t.Fatalf("asked %b", out.Ask)
		}
		for a := out.Ask; a != 0; a &= a - 1 {
			if x := out.P[a.First()]; !(x > 0 && x <= 1) {
				t.Fatalf("p = %v", x)
			}
		}
		first := out.Ask
		q.Asked, q.Answered, q.Confidence = out.Ask, out.Ask, 0.1
		if p.Select(&q, &out); out.Ask&first != 0 || out.Ask&^q.Allowed != 0 {
			t.Fatalf("asked %b again, after %b, of %b", out.Ask, first, q.Allowed)
		}
	})
}

// TestDrawCertainty: if the limits leave one candidate, its probability is 1, and not above it by a rounding error.
func TestDrawCertainty(t *testing.T) {
	for n := 2; n <= MaxCandidates; n++ {
		limits := make([]float64, n)
		limits[n/2] = 1
		for seed := range uint64(200) {
			var weight Vector
			r := random(seed)
			for i := range n {
				weight[i] = r.unit()
			}
			var out Selection
			Draw(&Query{Allowed: All(n), Limits: limits, Seed: seed}, &weight, &out)
			if p := out.P[n/2]; out.Ask != Set(0).With(n/2) || !(p > 0.999 && p <= 1) {
				t.Fatalf("of %d: asked %b, p %v", n, out.Ask, p)
			}
		}
	}
}

// TestSharesAndGains: shares are fractions that sum to 1 in mode One, and gains are from 0 to 1.
func TestSharesAndGains(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name, p, s := anyPolicy(t, anyFloat())
		allowed := Set(rapid.Uint64().Draw(t, "allowed"))&All(s.Candidates()) | 1
		shares, gains, weights := make([]float64, s.Candidates()), make([]float64, s.Candidates()), make([]float64, s.Candidates())
		p.Shares(s, allowed, shares)
		p.Gains(s, gains)
		CandidateWeights(p, s, weights)
		sum, weight := 0.0, 0.0
		for i, x := range shares {
			if !(x >= 0 && x <= 1+1e-12) || x > 0 && !allowed.Has(i) {
				t.Fatalf("%s: shares %v of %b", name, shares, allowed)
			}
			if g := gains[i]; !(g >= 0 && g <= 1) {
				t.Fatalf("%s: gains %v", name, gains)
			}
			sum += x
			weight += weights[i]
		}
		if p.Mode() == One && math.Abs(sum-1) > 1e-9 {
			t.Fatalf("%s: shares sum to %v", name, sum)
		}
		if math.Abs(weight-1) > 1e-9 {
			t.Fatalf("%s: weights sum to %v", name, weight)
		}
	})
}

// TestFloors: in any state, exp3 and epsilon-greedy give every candidate its part of even exploration.
func TestFloors(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name, p, s := anyPolicy(t, anyFloat())
		least := map[string]float64{"exp3": 0.01, "epsilon-greedy": 0.1}[name]
		shares := make([]float64, s.Candidates())
		p.Shares(s, All(s.Candidates()), shares)
		for i, x := range shares {
			if x < least/float64(len(shares))-1e-12 {
				t.Fatalf("%s: candidate %d gets %v of the queries", name, i, x)
			}
		}
	})
}

func anyFeedback(t *rapid.T, p Policy, s State, number *rapid.Generator[float64]) *Feedback {
	n := s.Candidates()
	f := &Feedback{State: s, Delta: make([]float64, len(s.V))}
	f.Selected = Set(rapid.Uint64().Draw(t, "selected")) & All(n)
	if p.Mode() == One {
		f.Selected = Set(0).With(rapid.IntRange(0, n-1).Draw(t, "chosen"))
	}
	f.P = rapid.SliceOfN(number, n, n).Draw(t, "p")
	f.Vote, f.VoteKnown = number.Draw(t, "vote"), rapid.Bool().Draw(t, "the vote's loss is known")
	f.Losses = rapid.SliceOfN(rapid.OneOf(number, rapid.Just(math.NaN())), n, n).Draw(t, "losses")
	return f
}

// TestObserveSurvivesAnything: a delta is finite, because an infinite one could never be undone, and of plausible size.
// The state does not change.
func TestObserveSurvivesAnything(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name, p, s := anyPolicy(t, anyFloat())
		f := anyFeedback(t, p, s, anyFloat())
		before := append([]float64(nil), s.V...)
		p.Observe(f)
		for i, d := range f.Delta {
			if !(math.Abs(d) <= maxPlausible) {
				t.Fatalf("%s: delta %v for %v", name, d, s.V[i])
			}
			if math.Float64bits(before[i]) != math.Float64bits(s.V[i]) {
				t.Fatalf("%s changed the state", name)
			}
		}
		if !p.Learns() {
			for _, d := range f.Delta {
				if d != 0 {
					t.Fatalf("%s does not learn, but adds %v", name, f.Delta)
				}
			}
		}
	})
}

// TestJoinAndDescend: from any state Join and InitContext write plausible rows, and a new context is not too certain.
func TestJoinAndDescend(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name, p, s := anyPolicy(t, anyFloat())
		i := rapid.IntRange(0, s.Candidates()-1).Draw(t, "joins")
		others := append([]float64(nil), s.V...)
		p.Join(s, i)
		for slot, v := range s.Row(i) {
			if !plausible(v) {
				t.Fatalf("%s: slot %d of the new row is %v", name, slot, v)
			}
		}
		for at, v := range s.V {
			if at/s.Slots != i && math.Float64bits(v) != math.Float64bits(others[at]) {
				t.Fatalf("%s: Join changed number %d of another row", name, at)
			}
		}
		child := State{Slots: s.Slots, V: make([]float64, len(s.V))}
		p.InitContext(s, child)
		for at, v := range child.V {
			if !plausible(v) {
				t.Fatalf("%s: number %d of the context's state is %v", name, at, v)
			}
		}
		for i := range child.Candidates() {
			if count, _ := rowCounts(child.Row(i)); count > priorCount+1e-9 {
				t.Fatalf("%s: a new context starts with a count of %v", name, count)
			}
		}
	})
}

// TestMerging: two gateways learn from the same state at once. The order of merging changes neither the sum nor what is
// read from it.
func TestMerging(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name, p, s := anyPolicy(t, rapid.Float64Range(0, 50))
		var sums [2][]float64
		var deltas [2][]float64
		for g := range deltas {
			mine := State{Slots: s.Slots, V: append([]float64(nil), s.V...)}
			deltas[g] = make([]float64, len(s.V))
			for range rapid.IntRange(1, 5).Draw(t, "observations") {
				f := anyFeedback(t, p, mine, rapid.Float64Range(0, 1))
				p.Observe(f)
				for i, d := range f.Delta {
					mine.V[i] += d
					deltas[g][i] += d
				}
			}
		}
		var shares [2][]float64
		for order := range sums {
			sums[order] = append([]float64(nil), s.V...)
			for k := range 2 {
				for i, d := range deltas[(order+k)%2] {
					sums[order][i] += d
				}
			}
			shares[order] = make([]float64, s.Candidates())
			CandidateWeights(p, State{Slots: s.Slots, V: sums[order]}, shares[order])
		}
		for i := range sums[0] {
			if math.Abs(sums[0][i]-sums[1][i]) > 1e-9 {
				t.Fatalf("%s: number %d is %v or %v, depending on the order of merging", name, i, sums[0][i], sums[1][i])
			}
		}
		if name == "exp3" || name == "exp4" { // other policies' shares may jump where two candidates are equal up to rounding
			for i := range shares[0] {
				if math.Abs(shares[0][i]-shares[1][i]) > 1e-9 {
					t.Fatalf("%s: shares %v or %v, depending on the order of merging", name, shares[0], shares[1])
				}
			}
		}
	})
}

// TestVoteSurvivesAnything: the confidence is from 0 to 1, and the winner and all that agree have answered.
func TestVoteSurvivesAnything(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		_, p, s := anyPolicy(t, anyFloat())
		n := s.Candidates()
		c := Combination{State: s, Selected: Set(rapid.Uint64().Draw(t, "selected")) & All(n)}
		arrived := Set(0)
		for w := c.Selected; w != 0; w &= w - 1 {
			if rapid.Bool().Draw(t, "in time") {
				arrived = arrived.With(w.First())
				c.Answers = append(c.Answers, Answer{w.First(), rapid.Uint64Range(0, 3).Draw(t, "class"), anyFloat().Draw(t, "confidence")})
			}
		}
		if rapid.Bool().Draw(t, "numeric") {
			c.Width, c.Known = rapid.IntRange(1, 3).Draw(t, "width"), arrived|c.Selected&Set(rapid.Uint64().Draw(t, "averages"))
			c.Values = rapid.SliceOfN(anyFloat(), n*c.Width, n*c.Width).Draw(t, "values")
			c.Out = make([]float64, c.Width)
			c.Tolerance = 1
		}
		p.Combine(&c)
		if !(c.Confidence >= 0 && c.Confidence <= 1) {
			t.Fatalf("confidence %v", c.Confidence)
		}
		if c.Agreed&^arrived != 0 || c.Winner >= 0 && !arrived.Has(c.Winner) {
			t.Fatalf("winner %d, agreed %b, answered %b", c.Winner, c.Agreed, arrived)
		}
		if arrived != 0 && c.Width == 0 && (c.Winner < 0 || !c.Agreed.Has(c.Winner)) {
			t.Fatalf("winner %d, agreed %b, answered %b", c.Winner, c.Agreed, arrived)
		}
	})
}

// TestVoteIgnoresOrder: the order of the answers does not change the result.
func TestVoteIgnoresOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 8).Draw(t, "answers")
		c := Combination{Selected: All(n)}
		var w Vector
		for i := range n {
			w[i] = rapid.SampledFrom([]float64{0.125, 0.25, 0.5}).Draw(t, "weight")
			c.Answers = append(c.Answers, Answer{i, rapid.Uint64Range(0, 2).Draw(t, "class"), math.NaN()})
		}
		other := c
		other.Answers = rapid.Permutation(c.Answers).Draw(t, "order")
		Vote(&c, &w)
		Vote(&other, &w)
		if c.Winner != other.Winner || c.Agreed != other.Agreed || c.Confidence != other.Confidence {
			t.Fatalf("winner %d or %d, agreed %b or %b, confidence %v or %v", c.Winner, other.Winner, c.Agreed, other.Agreed, c.Confidence, other.Confidence)
		}
	})
}

// A row that joins others at the bound of what is plausible, with a lag, would lie beyond it.
func TestJoinAtTheBound(t *testing.T) {
	p, err := New("exp3", nil, refs(3))
	if err != nil {
		t.Fatal(err)
	}
	s := State{Slots: p.Slots(), V: make([]float64, 3*p.Slots())}
	p.Init(s)
	s.Row(0)[p.Slots()-1], s.Row(2)[p.Slots()-1] = math.NaN(), -maxPlausible
	p.Join(s, 1)
	for slot, v := range s.Row(1) {
		if !plausible(v) {
			t.Errorf("slot %d of the new row is %v", slot, v)
		}
	}
}
