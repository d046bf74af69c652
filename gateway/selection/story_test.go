package selection

import (
	"fmt"
	"math"
	"testing"
)

// world simulates figure 8: models with changing error rates, sequential queries, immediate feedback.
type world struct {
	random
	classes uint64
	state   State
	p       Policy
	wrong   [MaxCandidates]int // wrong answers of each candidate, whether it was asked or not
	errors  int                // wrong answers of the policy
	asked   [MaxCandidates]int
	queries int
	// shared is the fraction of the queries in which the models' errors are nested: a query that a good model gets
	// wrong, every worse model gets wrong.
	shared float64
	silent bool // there is no feedback

	// Scratch.
	out      Selection
	answers  []Answer
	losses   []float64
	delta    []float64
	combined Combination
}

func newWorld(t testing.TB, seed uint64, name string, params map[string]any, candidates int) *world {
	w := &world{random: random(seed), classes: 10, losses: make([]float64, candidates)}
	w.p, w.state = newPolicy(t, name, params, candidates)
	w.delta = make([]float64, len(w.state.V))
	return w
}

func newPolicy(t testing.TB, name string, params map[string]any, candidates int) (Policy, State) {
	t.Helper()
	p, err := New(name, params, refs(candidates))
	if err != nil {
		t.Fatal(err)
	}
	s := State{Slots: p.Slots(), V: make([]float64, p.Slots()*candidates)}
	p.Init(s)
	return p, s
}

func refs(n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("m%d", i)
	}
	return names
}

// query runs one query and its feedback. Models err independently, each at its rate; the right class is 0.
func (w *world) query(rates []float64) {
	n := len(rates)
	classes := [MaxCandidates]uint64{}
	hard, common, wrongClass := w.unit(), w.unit() < w.shared, 1+w.next()%(w.classes-1)
	for i, rate := range rates {
		u, class := w.unit(), 1+w.next()%(w.classes-1)
		if common {
			u, class = hard, wrongClass
		}
		if u < rate {
			classes[i] = class
			w.wrong[i]++
		}
	}
	q := Query{State: w.state, Allowed: All(n), Seed: w.next()}
	w.combined = Combination{State: w.state}
	w.answers = w.answers[:0]
	var p Vector
	for w.p.Select(&q, &w.out); w.out.Ask != 0; w.p.Select(&q, &w.out) {
		for t := w.out.Ask; t != 0; t &= t - 1 {
			i := t.First()
			w.answers = append(w.answers, Answer{i, classes[i], math.NaN()})
			w.asked[i]++
			p[i] = w.out.P[i]
		}
		q.Asked |= w.out.Ask
		q.Answered = q.Asked
		w.combined.Selected, w.combined.Answers = q.Asked, w.answers
		w.p.Combine(&w.combined)
		q.Confidence = w.combined.Confidence
		q.Seed = w.next()
	}
	w.queries++
	if classes[w.combined.Winner] != 0 {
		w.errors++
	}
	for i := range n {
		w.losses[i] = math.NaN()
		if q.Asked.Has(i) {
			w.losses[i] = 0
			if classes[i] != 0 {
				w.losses[i] = 1
			}
		}
	}
	w.feedback(q.Asked, p[:n], &classes)
}

func (w *world) feedback(selected Set, p []float64, classes *[MaxCandidates]uint64) {
	if w.silent {
		return
	}
	clear(w.delta)
	f := Feedback{State: w.state, Selected: selected, P: p, Losses: w.losses, Delta: w.delta}
	var losses [MaxCandidates]float64
	copy(losses[:], w.losses)
	f.Vote, f.VoteKnown = PlainVote(selected, classes, &losses)
	w.p.Observe(&f)
	for i, d := range w.delta {
		w.state.V[i] += d
	}
}

// figure8 returns the error rates at a query of the paper's figure 8: the best model fails after 5,000 and recovers
// after 10,000.
func figure8(at int) []float64 {
	if at >= 5000 && at < 10000 {
		return []float64{0.9, 0.15, 0.2, 0.25, 0.3}
	}
	return []float64{0.1, 0.15, 0.2, 0.25, 0.3}
}

// bestStatic returns the fewest errors that one model alone would have made.
func (w *world) bestStatic(candidates int) int {
	least := w.queries
	for i := range candidates {
		least = min(least, w.wrong[i])
	}
	return least
}

// TestFigure8: over 20,000 queries in which the best of five models fails and recovers, each learning policy makes
// fewer errors than the best static choice, with its defaults and for each seed, and finds the recovered model again.
// The paper claims this for Exp3 and Exp4.
func TestFigure8(t *testing.T) {
	for _, c := range []struct {
		policy string
		params map[string]any
		atMost float64 // errors, relative to the best static choice's
		back   float64 // least fraction of the last 5,000 queries that goes to the recovered model
	}{
		{"exp3", nil, 0.95, 0.7},
		{"exp4", nil, 0.2, 1},
		{"exp4", map[string]any{"first": 2.0}, 0.2, 0.9},
		{"exp4", map[string]any{"vote": 0.0}, 0.82, 1},
		{"epsilon-greedy", nil, 0.99, 0.5},
		{"ucb1", nil, 0.97, 0.5},
		{"thompson", nil, 0.97, 0.5},
	} {
		name := c.policy
		for param := range c.params {
			name += ", " + param
		}
		t.Run(name, func(t *testing.T) {
			worst := 0.0
			for seed := range uint64(10) {
				w := newWorld(t, seed, c.policy, c.params, 5)
				before := 0
				for at := range 20000 {
					if at == 15000 {
						before = w.asked[0]
					}
					w.query(figure8(at))
				}
				ratio := float64(w.errors) / float64(w.bestStatic(5))
				worst = max(worst, ratio)
				if ratio > c.atMost {
					t.Errorf("seed %d: %d errors; each model alone %v", seed, w.errors, w.wrong[:5])
				}
				if back := float64(w.asked[0]-before) / 5000; back < c.back {
					t.Errorf("seed %d: %.2f of the last 5,000 queries go to the recovered model", seed, back)
				}
			}
			t.Logf("worst seed: %.3f of the best static choice's errors", worst)
		})
	}
}

// TestEnsembleKeepsUpWithItsBest: with nested errors, where voting gains nothing, exp4 is as good as its best member
// except for the cost of learning which one that is. With independent errors it is better.
func TestEnsembleKeepsUpWithItsBest(t *testing.T) {
	rates := []float64{0.3, 0.25, 0.2, 0.15, 0.1}
	for _, c := range []struct{ shared, atMost float64 }{{1, 1.04}, {0.5, 1.02}, {0, 0.98}} {
		for seed := range uint64(5) {
			w := newWorld(t, seed, "exp4", nil, 5)
			w.shared = c.shared
			for range 20000 {
				w.query(rates)
			}
			if ratio := float64(w.errors) / float64(w.wrong[4]); ratio > c.atMost {
				t.Errorf("errors nested in %.1f of the queries, seed %d: %.3f of the best member's errors", c.shared, seed, ratio)
			}
		}
	}
}

// TestSinglePoliciesFindTheBest: if nothing changes, a policy that asks one model comes close to the best one.
func TestSinglePoliciesFindTheBest(t *testing.T) {
	rates := []float64{0.4, 0.3, 0.05, 0.35, 0.25}
	for _, name := range []string{"exp3", "epsilon-greedy", "ucb1", "thompson"} {
		for seed := range uint64(5) {
			w := newWorld(t, seed, name, nil, 5)
			for range 10000 {
				w.query(rates)
			}
			if share := float64(w.asked[2]) / 10000; share < 0.8 {
				t.Errorf("%s, seed %d: %.2f of the queries went to the best model", name, seed, share)
			}
			shares := make([]float64, 5)
			if w.p.Shares(w.state, All(5), shares); shares[2] < 0.8 {
				t.Errorf("%s, seed %d: shares %.3f", name, seed, shares)
			}
		}
	}
}

// TestMillionUpdates: a million updates cause no overflow, underflow or NaN, and a change is still noticed afterwards.
func TestMillionUpdates(t *testing.T) {
	for _, c := range []struct {
		name string
		loss func(at, i int) float64
	}{
		{"always wrong", func(int, int) float64 { return 1 }},
		{"one is right", func(_, i int) float64 { return float64(min(i, 1)) }},
		{"in turns", func(at, i int) float64 { return float64(at / 1000 % 4 / (i + 1) % 2) }},
	} {
		for _, name := range []string{"exp3", "exp4", "thompson"} {
			p, s := newPolicy(t, name, nil, 4)
			f := Feedback{State: s, P: make([]float64, 4), Losses: make([]float64, 4), Delta: make([]float64, len(s.V))}
			r := random(7)
			var out Selection
			observe := func(at int, loss func(at, i int) float64) {
				p.Select(&Query{State: s, Allowed: All(4), Seed: r.next()}, &out)
				f.Selected = out.Ask
				for i := range 4 {
					f.Losses[i] = math.NaN()
					if out.Ask.Has(i) {
						f.P[i], f.Losses[i] = out.P[i], loss(at, i)
					}
				}
				clear(f.Delta)
				p.Observe(&f)
				for i, d := range f.Delta {
					s.V[i] += d
				}
			}
			updates := 1_000_000
			if name == "thompson" || c.name != "in turns" {
				updates = 50_000 // the first million updates show what there is to see
			}
			shares := make([]float64, 4)
			for at := range updates {
				observe(at, c.loss)
				if at%10000 == 0 {
					sum := 0.0
					CandidateWeights(p, s, shares)
					for _, x := range shares {
						sum += x
						if !(x >= 0) {
							t.Fatalf("%s, %s: after %d updates %v of %v", name, c.name, at, shares, s.V)
						}
					}
					if math.Abs(sum-1) > 1e-9 {
						t.Fatalf("%s, %s: after %d updates shares sum to %v", name, c.name, at, sum)
					}
				}
			}
			for at := range 10000 {
				observe(at, func(_, i int) float64 { return float64(min(3-i, 1)) }) // now the last candidate is right
			}
			if CandidateWeights(p, s, shares); !(shares[3] > 0.5) {
				t.Errorf("%s, %s: at the end shares %.3f", name, c.name, shares)
			}
		}
	}
}

// TestExp3IsUnbiased: the expected fall of a log-weight is η times its model's loss, however seldom the model is asked,
// also if the plan limits how often.
func TestExp3IsUnbiased(t *testing.T) {
	const eta, rounds = 1e-3, 60000
	loss := []float64{0.1, 0.5, 0.9, 1}
	for _, limits := range [][]float64{nil, {0.5, 1, 0.2, 1}} {
		p, s := newPolicy(t, "exp3", map[string]any{"eta": eta, "gamma": 0.1, "floor": 1e-6}, 4)
		for i, lw := range []float64{0, -1, -2, -3} {
			s.Row(i)[slotWeight] = lw
		}
		f := Feedback{State: s, P: make([]float64, 4), Delta: make([]float64, len(s.V))}
		var fell, squares [4]float64
		r := random(3)
		var out Selection
		for range rounds {
			p.Select(&Query{State: s, Allowed: All(4), Limits: limits, Seed: r.next()}, &out)
			i := out.Ask.First()
			f.Selected, f.Losses = out.Ask, []float64{math.NaN(), math.NaN(), math.NaN(), math.NaN()}
			f.P[i], f.Losses[i] = out.P[i], loss[i]
			clear(f.Delta)
			p.Observe(&f)
			x := f.row(i)[slotWeight]
			fell[i] += x
			squares[i] += x * x
		}
		for i := range 4 {
			mean, want := fell[i]/rounds, -eta*loss[i]
			deviation := math.Sqrt(squares[i]/rounds-mean*mean) / math.Sqrt(rounds)
			if math.Abs(mean-want) > 4*deviation {
				t.Errorf("limits %v: model %d falls by %v a query, want %v ± %v", limits, i, mean, want, deviation)
			}
		}
	}
}

// TestGatewaysConverge: several gateways share what they learn, each with a copy that is updated every so many queries.
// Together they learn figure 8, and their copies agree.
func TestGatewaysConverge(t *testing.T) {
	const gateways, every = 8, 25
	for _, name := range []string{"exp3", "exp4", "epsilon-greedy", "ucb1", "thompson"} {
		for seed := range uint64(3) {
			var w [gateways]*world
			for g := range w {
				w[g] = newWorld(t, seed*gateways+uint64(g), name, nil, 5)
			}
			total := append([]float64(nil), w[0].state.V...)
			for at := 0; at < 20000; at += gateways * every {
				sent := make([]float64, len(total))
				for g := range w {
					for range every {
						w[g].query(figure8(at))
					}
					for i, v := range w[g].state.V {
						sent[i] += v - total[i]
					}
				}
				for i, d := range sent {
					total[i] += d
				}
				for g := range w {
					copy(w[g].state.V, total)
				}
			}
			errors, best := 0, 0
			for i := range 5 {
				wrong := 0
				for g := range w {
					wrong += w[g].wrong[i]
				}
				if i == 0 || wrong < best {
					best = wrong
				}
			}
			for g := range w {
				errors += w[g].errors
			}
			if ratio := float64(errors) / float64(best); ratio > 1.02 {
				t.Errorf("%s, seed %d: %d gateways make %.3f of the best static choice's errors", name, seed, gateways, ratio)
			} else {
				t.Logf("%s, seed %d: %.3f", name, seed, ratio)
			}
		}
	}
}

// candidatesOnly has parameters with which weights are those of candidates alone, by policy.
var candidatesOnly = map[string]map[string]any{"exp4": {"vote": 0.0}}

// TestVoteIsNotSpoiled: where nothing changes, exp4 is as good as the plain vote if that is better than each candidate, and
// about as good as the best candidate if that is better than the vote.
func TestVoteIsNotSpoiled(t *testing.T) {
	for _, c := range []struct {
		name   string
		rates  []float64
		shared float64
	}{
		{"equal, independent errors", []float64{0.2, 0.2, 0.2, 0.2, 0.2}, 0},
		{"equal, half of the errors shared", []float64{0.2, 0.2, 0.2, 0.2, 0.2}, 0.5},
		{"one good one, independent errors", []float64{0.4, 0.4, 0.1, 0.4, 0.4}, 0},
		{"one good one, half of the errors shared", []float64{0.4, 0.4, 0.1, 0.4, 0.4}, 0.5},
		{"nested errors", []float64{0.3, 0.25, 0.2, 0.15, 0.1}, 1},
		{"three", []float64{0.2, 0.22, 0.18}, 0.5},
	} {
		errors, votes, best := 0, 0, 0
		for seed := range uint64(5) {
			w := newWorld(t, seed, "exp4", nil, len(c.rates))
			w.shared = c.shared
			plain := newWorld(t, seed, "exp4", nil, len(c.rates)) // the same answers; it gets no feedback
			plain.shared, plain.silent = c.shared, true
			for range 10000 {
				w.query(c.rates)
				plain.query(c.rates)
			}
			errors, votes, best = errors+w.errors, votes+plain.errors, best+w.bestStatic(len(c.rates))
		}
		bound := 1.01*float64(votes) + math.Sqrt(float64(votes)) // ties go to another candidate by chance
		if best < votes {
			bound = 1.08 * float64(best) // the price of finding out which is the best, and of floors
		}
		if float64(errors) > bound {
			t.Errorf("%s: %d errors, the plain vote %d, the best candidate %d", c.name, errors, votes, best)
		} else {
			t.Logf("%s: %d errors, the plain vote %d, the best candidate %d", c.name, errors, votes, best)
		}
	}
}

// TestContextLearnsForItself: model 0 is best overall, model 1 for one context. The context starts with the global
// state and soon finds its own best model. A context that resembles the others is good from its first query on.
func TestContextLearnsForItself(t *testing.T) {
	typical, other := []float64{0.05, 0.4, 0.4, 0.4}, []float64{0.5, 0.05, 0.5, 0.5}
	for _, name := range []string{"exp3", "exp4", "epsilon-greedy", "ucb1", "thompson"} {
		for seed := range uint64(5) {
			global := newWorld(t, seed, name, candidatesOnly[name], 4)
			for range 5000 {
				global.query(typical)
			}
			shares := make([]float64, 4)
			for _, rates := range [][]float64{typical, other} {
				context := newWorld(t, seed+100, name, candidatesOnly[name], 4)
				context.p.InitContext(global.state, context.state)
				if CandidateWeights(context.p, context.state, shares); shares[0] < 0.4 {
					t.Errorf("%s, seed %d: a new context starts with %.3f", name, seed, shares)
				}
				for range 1000 {
					context.query(rates)
				}
				best := 0
				if rates[0] > rates[1] {
					best = 1
				}
				if CandidateWeights(context.p, context.state, shares); shares[best] < 0.5 {
					t.Errorf("%s, seed %d: after 1,000 queries the weights of a context whose best model is %d are %.3f", name, seed, best, shares)
				}
			}
		}
	}
}

// TestLateMembersGainNothing: of two equally good models one answers every tenth query in time. It does not gain on the
// other, whose losses are all known. Without a charge for the missing losses its log-weight would end up 27 higher.
func TestLateMembersGainNothing(t *testing.T) {
	p, s := newPolicy(t, "exp4", map[string]any{"floor": 1e-6, "eta": 0.02}, 2)
	r := random(5)
	f := Feedback{State: s, Selected: All(2), P: []float64{1, 1}, Losses: make([]float64, 2), Delta: make([]float64, len(s.V))}
	for range 5000 {
		for i := range f.Losses {
			f.Losses[i] = 0
			if r.unit() < 0.3 {
				f.Losses[i] = 1
			}
		}
		if r.unit() < 0.9 {
			f.Losses[1] = math.NaN()
		}
		clear(f.Delta)
		p.Observe(&f)
		for i, d := range f.Delta {
			s.V[i] += d
		}
	}
	if lead := s.Row(1)[slotWeight] - s.Row(0)[slotWeight]; math.Abs(lead) > 6 {
		t.Errorf("the late model's log-weight is ahead by %.3f", lead)
	}
}

// TestJoiningModelIsFound: a better model that joins late is found.
func TestJoiningModelIsFound(t *testing.T) {
	for _, name := range []string{"exp3", "exp4", "epsilon-greedy", "ucb1", "thompson"} {
		for seed := range uint64(5) {
			old := newWorld(t, seed, name, candidatesOnly[name], 3)
			for range 5000 {
				old.query([]float64{0.3, 0.2, 0.4})
			}
			w := newWorld(t, seed+50, name, candidatesOnly[name], 4)
			copy(w.state.V, old.state.V)
			w.p.Join(w.state, 3)
			for range 5000 {
				w.query([]float64{0.3, 0.2, 0.4, 0.05})
			}
			shares := make([]float64, 4)
			if CandidateWeights(w.p, w.state, shares); shares[3] < 0.55 {
				t.Errorf("%s, seed %d: shares %.3f", name, seed, shares)
			}
		}
	}
}

// TestJoinStartsAtTheMean: log-weights fall as losses come, so those of an old function are far below 0. A model that joins
// starts at the mean of the others' weights, not above all of them.
func TestJoinStartsAtTheMean(t *testing.T) {
	for _, name := range []string{"exp3", "exp4"} {
		w := newWorld(t, 1, name, nil, 3)
		w.state.Row(0)[slotWeight], w.state.Row(1)[slotWeight] = -100, -101
		w.p.Join(w.state, 2)
		want := -100 + math.Log((1+math.Exp(-1))/2)
		if got := w.state.Row(2)[slotWeight]; math.Abs(got-want) > 1e-9 {
			t.Errorf("%s: beside -100 and -101 a model joins at %.3f, expected %.3f", name, got, want)
		}
	}
}
