package selection

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

func TestPlainVote(t *testing.T) {
	nan := math.NaN()
	for _, x := range []struct {
		name    string
		arrived Set
		class   []uint64
		losses  []float64
		want    float64 // NaN: unknown
	}{
		{"two against one", 0b111, []uint64{5, 7, 5}, []float64{1, 0, 1}, 1},
		{"one has not arrived", 0b110, []uint64{5, 7, 7}, []float64{nan, 0, 0}, 0},
		{"a tie", 0b11, []uint64{5, 7}, []float64{1, 0}, 0.5},
		{"a tie of three", 0b111111, []uint64{1, 2, 3, 3, 2, 1}, []float64{1, 0, 1, 1, 0, 1}, 2.0 / 3},
		{"a tie below the most", 0b111111, []uint64{1, 2, 3, 3, 3, 2}, []float64{1, 1, 0, 0, 0, 1}, 0},
		{"the loss of the most is unknown", 0b111, []uint64{5, 7, 5}, []float64{nan, 0, nan}, nan},
		{"only another loss is unknown", 0b111, []uint64{5, 7, 5}, []float64{0.25, nan, 0.25}, 0.25},
		{"one in a tie is unknown", 0b11, []uint64{5, 7}, []float64{0, nan}, nan},
		{"none", 0, nil, nil, nan},
	} {
		var class [MaxCandidates]uint64
		var losses [MaxCandidates]float64
		copy(class[:], x.class)
		copy(losses[:], x.losses)
		got, known := PlainVote(x.arrived, &class, &losses)
		if known != !math.IsNaN(x.want) || known && math.Abs(got-x.want) > 1e-12 {
			t.Errorf("%s: %v, %v, expected %v", x.name, got, known, x.want)
		}
	}
}

// TestVoteWithinItsBound: whatever the losses, the vote stays within its bound of the best candidate, all rows agree where
// it is, and no log-weight rises.
func TestVoteWithinItsBound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(2, 6).Draw(t, "candidates")
		p, err := New("exp4", map[string]any{"eta": 0.3, "vote": 10.0}, refs(n))
		if err != nil {
			t.Fatal(err)
		}
		s := State{Slots: p.Slots(), V: make([]float64, n*p.Slots())}
		p.Init(s)
		for range rapid.IntRange(1, 60).Draw(t, "observations") {
			f := Feedback{State: s, Selected: All(n), Delta: make([]float64, len(s.V)), VoteKnown: rapid.Bool().Draw(t, "known"), Vote: rapid.Float64Range(0, 1).Draw(t, "vote")}
			f.Losses = rapid.SliceOfN(rapid.Float64Range(0, 1), n, n).Draw(t, "losses")
			p.Observe(&f)
			for i := range n {
				if d := f.row(i); d[slotWeight] > 0 || d[slotWeight]+d[slotVote] > 1e-12 {
					t.Fatalf("row %d changes by %v", i, d)
				}
			}
			for i, d := range f.Delta {
				s.V[i] += d
			}
		}
		best, lead, _ := p.(*exp4).ballot.lead(s)
		for i := range n {
			vote := s.Row(i)[slotWeight] + s.Row(i)[slotVote]
			if math.Abs(vote-best) > math.Log(10)+1e-9 || math.Abs(vote-best-lead) > 1e-9 {
				t.Fatalf("row %d has the vote at %v; the best candidate is at %v", i, vote, best)
			}
		}
	})
}

// TestVoteOfAnOlderState: in a state that was learned without the vote, the candidate that was best decides alone, as it did, until feedback shows that
// the vote is better. The first observation writes where the vote is.
func TestVoteOfAnOlderState(t *testing.T) {
	p, s := newPolicy(t, "exp4", map[string]any{"eta": 0.3, "boost": 0.0}, 3)
	for i, lw := range []float64{-3, -2, -3.2} {
		row := s.Row(i)
		row[slotWeight], row[slotVote] = lw, 0
	}
	answer := func() int {
		c := Combination{State: s, Selected: All(3), Answers: []Answer{{0, 7, math.NaN()}, {1, 8, math.NaN()}, {2, 7, math.NaN()}}}
		p.Combine(&c)
		return c.Winner
	}
	if got := answer(); got != 1 {
		t.Errorf("the answer is that of %d: expected 1's", got)
	}
	for n := range 20 {
		f := Feedback{State: s, Selected: All(3), Losses: []float64{0, 1, 0}, Vote: 0, VoteKnown: true, Delta: make([]float64, len(s.V))}
		p.Observe(&f)
		for i, d := range f.Delta {
			s.V[i] += d
		}
		best, lead, _ := p.(*exp4).ballot.lead(s)
		for i := range 3 {
			if at := s.Row(i)[slotWeight] + s.Row(i)[slotVote]; math.Abs(at-best-lead) > 1e-9 {
				t.Fatalf("after %d observations row %d has the vote at %v: expected %v", n+1, i, at, best+lead)
			}
		}
	}
	if got := answer(); got != 0 {
		t.Errorf("after feedback the answer is that of %d: expected 0's", got)
	}
}

// TestAgreementIsCertain: whatever the weights, and however their sums are rounded, candidates that all agree are certain.
func TestAgreementIsCertain(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 9).Draw(t, "candidates")
		p, err := New("exp4", nil, refs(n))
		if err != nil {
			t.Fatal(err)
		}
		s := State{Slots: p.Slots(), V: make([]float64, n*p.Slots())}
		c := Combination{State: s, Selected: All(n)}
		for i := range n {
			s.Row(i)[slotWeight] = -rapid.Float64Range(0, 5).Draw(t, "weight")
			c.Answers = append(c.Answers, Answer{n - 1 - i, 7, math.NaN()})
		}
		if p.Combine(&c); c.Confidence != 1 {
			t.Fatalf("the confidence is %v", c.Confidence)
		}
	})
}

// TestPaper: without bounds, even exploration and the vote, exp3 and exp4 are the algorithms of the paper, sections 5.1 and
// 5.2. The formulas are repeated here on plain weights.
func TestPaper(t *testing.T) {
	const eta, n = 0.01, 4
	for _, name := range []string{"exp3", "exp4"} {
		params := map[string]any{"eta": eta, "floor": 0.0}
		for _, param := range map[string][]string{"exp3": {"gamma"}, "exp4": {"vote", "boost"}}[name] {
			params[param] = 0.0
		}
		p, state := newPolicy(t, name, params, n)
		s := []float64{1, 1, 1, 1} // the paper's s
		r, shares := random(9), make([]float64, n)
		var out Selection
		for at := range 3000 {
			sum := s[0] + s[1] + s[2] + s[3]
			if CandidateWeights(p, state, shares); math.Abs(shares[at%n]-s[at%n]/sum) > 1e-9 {
				t.Fatalf("%s after %d observations: %v of %v", name, at, shares, s)
			}
			p.Select(&Query{State: state, Allowed: All(n), Seed: r.next()}, &out)
			f := Feedback{State: state, Selected: out.Ask, P: out.P[:n], Losses: make([]float64, n), Delta: make([]float64, len(state.V))}
			for i := range n {
				loss := 0.0
				if r.unit() < []float64{0.1, 0.2, 0.3, 0.4}[(i+at/1000)%n] {
					loss = 1
				}
				switch {
				case !out.Ask.Has(i):
					f.Losses[i] = math.NaN()
					continue
				case name == "exp3":
					if math.Abs(out.P[i]-s[i]/sum) > 1e-9 {
						t.Fatalf("exp3 asks with probability %v, expected %v", out.P[i], s[i]/sum)
					}
					s[i] *= math.Exp(-eta * loss / (s[i] / sum))
				default:
					s[i] *= math.Exp(-eta * loss)
				}
				f.Losses[i] = loss
			}
			p.Observe(&f)
			for i, d := range f.Delta {
				state.V[i] += d
			}
		}
	}
}

// TestUnboundedWeightsStayUsable: without a bound, all allowed candidates may weigh nothing beside one that is not allowed.
func TestUnboundedWeightsStayUsable(t *testing.T) {
	for _, params := range []map[string]any{{"floor": 0.0, "gamma": 0.0}, {"floor": 0.0, "gamma": 0.03}} {
		p, s := newPolicy(t, "exp3", params, 3)
		for _, lw := range []float64{-5000, math.NaN()} {
			s.Row(0)[slotWeight], s.Row(1)[slotWeight] = lw, lw
			shares := make([]float64, 3)
			p.Shares(s, 0b011, shares)
			if math.Abs(shares[0]-0.5) > 1e-12 || math.Abs(shares[1]-0.5) > 1e-12 || shares[2] != 0 {
				t.Errorf("beside 0 two of %v get %v", lw, shares)
			}
		}
	}
}
