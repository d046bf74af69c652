package selection

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/xebec-serving/xebec/api"
)

// TestNewRefuses: New reports every problem at once, with the field and what was expected.
func TestNewRefuses(t *testing.T) {
	for _, c := range []struct {
		name   string
		params map[string]any
		want   string
	}{
		{"exp5", nil, `policy: there is no policy "exp5": did you mean "exp3"?`},
		{"best", nil, `policy: there is no policy "best": expected one of `},
		{"", nil, `policy: there is no policy "": expected one of `},
		{strings.Repeat("x", 1000), nil, strings.Repeat("x", 40) + "…"},
		{"single", map[string]any{"eta": 1.0}, "policy.eta: single has no parameters"},
		{"exp3", map[string]any{"eta": "0.1"}, `policy.eta: "0.1" is a string: expected a number from`},
		{"exp3", map[string]any{"eta": nil}, "policy.eta: null: expected"},
		{"exp3", map[string]any{"eta": math.NaN()}, "policy.eta: NaN: expected"},
		{"exp3", map[string]any{"eta": 11.0}, "policy.eta: 11: expected a number from 1e-06 to 10"},
		{"exp3", map[string]any{"eta": true}, "policy.eta: true: expected"},
		{"exp3", map[string]any{"eta": []float64{1}}, "policy.eta: an object or a list: expected"},
		{"exp3", map[string]any{"gamma": 2.0, "eta": -1.0, "flor": 1.0}, `policy.eta: -1: expected a number from 1e-06 to 10 (learning rate: how far a loss moves a weight)
policy.flor: exp3 has no such parameter: did you mean "floor"?
policy.gamma: 2: expected a number from`},
		{"exp4", map[string]any{"first": 2.5}, "policy.first: 2.5: expected a whole number from 0 to 64"},
		{"split", map[string]any{"weights": 3.0}, "policy.weights: 3 is a number: expected a number for each candidate"},
		{"split", map[string]any{"weights": map[string]float64{"m9": 1}}, "policy.weights.m9: is not among the function's models: expected one of m0, m1"},
		{"split", map[string]any{"weights": map[string]float64{"m0": -1}}, "policy.weights.m0: -1: expected"},
		{"split", map[string]any{"weights": map[string]float64{}}, "policy.weights: all are 0"},
	} {
		_, err := New(c.name, c.params, refs(2))
		var fields api.FieldErrors
		if !errors.As(err, &fields) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%.20s %v: got %q, want %q", c.name, c.params, err, c.want)
		}
	}
	for _, n := range []int{0, 65} {
		if _, err := New("single", nil, refs(n)); err == nil || !strings.Contains(err.Error(), "models") {
			t.Errorf("%d candidates: %v", n, err)
		}
	}
}

// TestDefinitions: each policy accepts its own defaults, reports its own name, and documents its parameters.
func TestDefinitions(t *testing.T) {
	for _, want := range []string{"single", "prefer", "split", "exp3", "exp4", "epsilon-greedy", "ucb1", "thompson"} {
		if !slices.Contains(Names(), want) {
			t.Errorf("policy %s is not registered", want)
		}
	}
	for _, name := range Names() {
		d, _ := Find(name)
		params := map[string]any{}
		for _, p := range Parameters(name) {
			if p.Default != nil {
				params[p.Name] = p.Default
			}
			if p.Doc == "" || p.Low > p.High {
				t.Errorf("%s.%s: %+v", name, p.Name, p)
			}
		}
		p, err := New(name, params, refs(3))
		if err != nil {
			t.Errorf("%s rejects its own defaults: %v", name, err)
			continue
		}
		if p.Name() != name || d.Doc == "" || p.Slots() < FirstOwnSlot {
			t.Errorf("%s: Name is %s, Doc %q, %d slots", name, p.Name(), d.Doc, p.Slots())
		}
	}
	if Parameters("none") != nil {
		t.Error("an unknown policy has parameters")
	}
	defer func() {
		if recover() == nil {
			t.Error("Register accepted a name that is taken")
		}
	}()
	Register(Definition{Name: "exp3", Make: func(Values) (Policy, error) { return nil, nil }})
}

// TestSplitMovesFewContexts: contexts are divided by the weights and stay where they are. When a weight grows or a
// candidate is added, contexts move only to that candidate.
func TestSplitMovesFewContexts(t *testing.T) {
	const contexts = 20000
	place := func(weights map[string]float64, candidates []string) []string {
		p, err := New("split", map[string]any{"weights": weights}, candidates)
		if err != nil {
			t.Fatal(err)
		}
		s := State{Slots: p.Slots(), V: make([]float64, len(candidates)*p.Slots())}
		at := make([]string, contexts)
		r := random(11)
		for i := range at {
			q := Query{State: s, Allowed: All(len(candidates)), HasContext: true, Sticky: r.next()}
			var out Selection
			for range 2 { // two queries of one context
				q.Seed += 12345
				p.Select(&q, &out)
				ref := candidates[out.Ask.First()]
				if at[i] != "" && at[i] != ref {
					t.Fatalf("one context went to %s and then to %s", at[i], ref)
				}
				at[i] = ref
			}
		}
		return at
	}
	part := func(at []string, ref string) float64 {
		n := 0
		for _, a := range at {
			if a == ref {
				n++
			}
		}
		return float64(n) / contexts
	}
	old := place(map[string]float64{"a": 90, "b": 10}, []string{"a", "b"})
	grown := place(map[string]float64{"b": 30, "a": 90}, []string{"b", "a"}) // also in another order
	third := place(map[string]float64{"a": 90, "b": 10, "c": 25}, []string{"a", "c", "b"})
	for _, c := range []struct {
		at   []string
		ref  string
		want float64
	}{{old, "a", 0.9}, {old, "b", 0.1}, {grown, "b", 0.25}, {third, "a", 0.72}, {third, "b", 0.08}, {third, "c", 0.2}} {
		if got := part(c.at, c.ref); math.Abs(got-c.want) > 0.012 {
			t.Errorf("%s has %.3f of the contexts, want %.3f", c.ref, got, c.want)
		}
	}
	for i := range old {
		if old[i] != grown[i] && grown[i] != "b" {
			t.Fatalf("a context moved from %s to %s when b's weight grew", old[i], grown[i])
		}
		if old[i] != third[i] && third[i] != "c" {
			t.Fatalf("a context moved from %s to %s when c was added", old[i], third[i])
		}
	}
}

// TestBeta: samples have the mean, variance and range of the distribution.
func TestBeta(t *testing.T) {
	r := random(1)
	for _, c := range [][2]float64{{1, 1}, {1, 20}, {3, 2}, {200, 800}} {
		const n = 200000
		sum, squares := 0.0, 0.0
		for range n {
			x := r.beta(c[0], c[1])
			if !(x >= 0 && x <= 1) {
				t.Fatalf("beta(%v) = %v", c, x)
			}
			sum, squares = sum+x, squares+x*x
		}
		a, b := c[0], c[1]
		mean, variance := a/(a+b), a*b/((a+b)*(a+b)*(a+b+1))
		gotMean := sum / n
		gotVariance := squares/n - gotMean*gotMean
		if math.Abs(gotMean-mean) > 4*math.Sqrt(variance/n) || math.Abs(gotVariance/variance-1) > 0.03 {
			t.Errorf("beta(%v): mean %v, want %v; variance %v, want %v", c, gotMean, mean, gotVariance, variance)
		}
	}
}

// TestUniform: unit never returns 0 or 1, because callers take its logarithm.
func TestUniform(t *testing.T) {
	if low, high := unit(0), unit(math.MaxUint64); !(low > 0) || !(high < 1) {
		t.Errorf("unit ranges from %v to %v", low, high)
	}
	r, buckets := random(9), [16]int{}
	for range 160000 {
		buckets[int(r.unit()*16)]++
	}
	for i, n := range buckets {
		if n < 9600 || n > 10400 {
			t.Errorf("%d of 160,000 samples in sixteenth %d", n, i)
		}
	}
}

// TestThompsonSharesMatchChoices: the shares that the plan sees approximate the sampled choices.
func TestThompsonSharesMatchChoices(t *testing.T) {
	for _, rows := range [][]float64{{50, 10, 50, 12}, {5, 1, 300, 40}, {20, 2, 20, 4, 20, 6}, {0, 0, 100, 50, 100, 55, 100, 60}, {1000, 100, 1000, 150}} {
		p, s := newPolicy(t, "thompson", nil, len(rows)/2)
		copy(s.V, rows)
		n := s.Candidates()
		shares, asked := make([]float64, n), make([]float64, n)
		p.Shares(s, All(n), shares)
		const queries = 20000
		r := random(4)
		var out Selection
		for range queries {
			p.Select(&Query{State: s, Allowed: All(n), Seed: r.next()}, &out)
			asked[out.Ask.First()] += 1.0 / queries
		}
		for i := range n {
			if math.Abs(shares[i]-asked[i]) > 0.1 {
				t.Errorf("%v: shares %.3f, asked %.3f", rows, shares, asked)
				break
			}
		}
	}
}

// TestLosses checks Loss.Of against a table.
func TestLosses(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	for _, c := range []struct {
		loss              Loss
		prediction, label []float64
		want              float64
	}{
		{Loss{}, []float64{3}, []float64{3}, 0},
		{Loss{}, []float64{3}, []float64{4}, 1},
		{Loss{}, []float64{3, 4}, []float64{3, 5}, 1},
		{Loss{Tolerance: 0.5}, []float64{3.4}, []float64{3}, 0},
		{Loss{Tolerance: 0.5}, []float64{3.6}, []float64{3}, 1},
		{Loss{}, []float64{nan}, []float64{3}, 1},
		{Loss{}, []float64{nan}, []float64{nan}, 1},
		{Loss{}, []float64{inf}, []float64{inf}, 0},
		{Loss{}, nil, []float64{1}, 1},
		{Loss{}, nil, nil, 0},
		{Loss{Kind: Absolute, Scale: 10}, []float64{3}, []float64{8}, 0.5},
		{Loss{Kind: Absolute, Scale: 10}, []float64{3, 8}, []float64{8, 8}, 0.25},
		{Loss{Kind: Absolute, Scale: 10}, []float64{3}, []float64{80}, 1},
		{Loss{Kind: Absolute, Scale: 10}, []float64{nan, 8}, []float64{8, 8}, 0.5},
		{Loss{Kind: Absolute, Scale: 10}, []float64{-inf}, []float64{inf}, 1},
		{Loss{Kind: Absolute}, []float64{3}, []float64{3.25}, 0.25},
		{Loss{Kind: Absolute, Scale: nan}, []float64{3}, []float64{3.25}, 0.25},
		{Loss{Kind: Squared, Scale: 10}, []float64{3}, []float64{8}, 0.25},
		{Loss{Kind: Squared, Scale: 10}, []float64{inf}, []float64{inf}, 0},
		{Loss{Kind: Squared, Scale: 1}, []float64{1e200}, []float64{-1e200}, 1},
		{Loss{Kind: Squared, Scale: 10}, nil, nil, 0},
	} {
		if got := c.loss.Of(c.prediction, c.label); got != c.want {
			t.Errorf("%+v of %v, label %v: %v, want %v", c.loss, c.prediction, c.label, got, c.want)
		}
	}
	for i, name := range lossNames {
		if k, ok := LossKindOf(name); !ok || int(k) != i || k.String() != name {
			t.Errorf("%s is %v", name, k)
		}
	}
	if _, ok := LossKindOf("hinge"); ok {
		t.Error("LossKindOf accepts an unknown name")
	}
}

// TestTiesGoToTheFirst: of classes with equal weight the one with the lowest candidate wins, in any order of answers.
func TestTiesGoToTheFirst(t *testing.T) {
	c := Combination{Selected: All(4), Answers: []Answer{{3, 7, math.NaN()}, {1, 8, math.NaN()}, {2, 7, math.NaN()}, {0, 8, math.NaN()}}}
	weights := even
	Vote(&c, &weights)
	if c.Winner != 0 || c.Agreed != All(2) || c.Confidence != 0.5 {
		t.Errorf("winner %d, agreed %b, confidence %v", c.Winner, c.Agreed, c.Confidence)
	}
}

// TestParameterKinds: Make receives values of each kind as given, or the default.
func TestParameterKinds(t *testing.T) {
	v := Values{values: map[string]any{}}
	for _, p := range []Parameter{
		{"n", Whole, 1.0, 0, 5, "n"}, {"f", Flag, false, 0, 0, "f"}, {"t", Text, "", 0, 0, "t"}, {"w", Weights, nil, 0, 1, "w"},
	} {
		for _, given := range []any{3.0, true, "x", map[string]float64{"m1": 0.5}} {
			checked, errs := p.check(given, refs(2))
			if len(errs) == 0 {
				v.values[p.Name] = checked
			} else if !strings.Contains(errs[0].Message, p.Kind.String()) {
				t.Errorf("%s given %v: %v", p.Kind, given, errs)
			}
		}
	}
	if v.Number("n") != 3 || !v.Flag("f") || v.Text("t") != "x" || !slices.Equal(v.Weights("w"), []float64{0, 0.5}) || len(v.values) != 4 {
		t.Errorf("%v", v.values)
	}
}
