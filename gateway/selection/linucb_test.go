package selection

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/xebec-serving/xebec/api"
)

// router is a function under linucb whose inputs are a few floats, or a text.
type router struct {
	*table
	specs []api.TensorSpec
	r     random
	p     []float64
}

func newRouter(t testing.TB, params map[string]any, candidates int, spec api.TensorSpec) *router {
	return &router{newTable(t, "linucb", params, candidates), []api.TensorSpec{spec}, 1, make([]float64, candidates)}
}

var (
	pair = api.TensorSpec{Name: "x", DType: api.Float32, Shape: []int64{2}}
	text = api.TensorSpec{Name: "text", DType: api.String}
)

// ask returns the candidate that is asked for an input.
func (b *router) ask(v api.Value) int {
	var out Selection
	b.table.p.Select(&Query{State: b.s, Value: b.v, Allowed: All(b.s.Candidates()), Seed: b.r.next(), Inputs: Tensors{b.specs, []api.Value{v}}}, &out)
	return out.Ask.First()
}

// learn gives the loss of the candidate that was asked.
func (b *router) learn(v api.Value, asked int, loss float64) {
	for i := range b.losses {
		b.losses[i], b.p[i] = math.NaN(), 1
	}
	b.losses[asked] = loss
	clear(b.delta)
	b.table.p.Observe(&Feedback{State: b.s, Value: b.v, Selected: Set(0).With(asked), P: b.p, Losses: b.losses, Delta: b.delta, Inputs: Tensors{b.specs, []api.Value{v}}})
	for i, d := range b.delta {
		b.s.V[i] += d
	}
}

// TestLinUCBRoutes: each candidate is right for half of the inputs. A policy that does not see them is wrong in half of the queries;
// routing is wrong in few, over 20 seeds.
func TestLinUCBRoutes(t *testing.T) {
	var linear, blind []float64
	for seed := range uint64(20) {
		const queries = 2000
		r := rand.New(rand.NewPCG(seed, 1))
		b := newRouter(t, nil, 2, pair)
		p, s := newPolicy(t, "exp3", nil, 2)
		other := cycle{p: p, q: Query{State: s, Allowed: All(2)}, f: Feedback{State: s, P: make([]float64, 2), Losses: make([]float64, 2), Delta: make([]float64, len(s.V))}, r: random(seed)}
		var wrong, wrongBlind float64
		for range queries {
			x := []float32{float32(r.NormFloat64()), float32(r.NormFloat64())}
			loss := [2]float64{}
			for i := range loss {
				if (x[0] > 0) != (i == 1) || r.Float64() < 0.05 {
					loss[i] = 1
				}
			}
			v := api.Numbers(x...)
			i := b.ask(v)
			b.learn(v, i, loss[i])
			wrong += loss[i]
			other.selectOnce()
			i = other.out.Ask.First()
			other.f.Selected = other.out.Ask
			other.f.Losses[0], other.f.Losses[1] = math.NaN(), math.NaN()
			other.f.P[i], other.f.Losses[i] = other.out.P[i], loss[i]
			other.observeOnce()
			for k, d := range other.f.Delta {
				s.V[k] += d
			}
			wrongBlind += loss[i]
		}
		linear, blind = append(linear, wrong/queries), append(blind, wrongBlind/queries)
	}
	mean, half := meanAndInterval(linear)
	without, halfWithout := meanAndInterval(blind)
	t.Logf("wrong: linucb %.4f ± %.4f, exp3 %.4f ± %.4f, and 0.05 at best", mean, half, without, halfWithout)
	if mean > 0.10 || without < 0.45 {
		t.Errorf("%.3f of the answers are wrong, without the input %.3f: want at most .10, and about .5", mean, without)
	}
}

// TestLinUCBByWords: a text is routed by its words, whatever else it says.
func TestLinUCBByWords(t *testing.T) {
	b := newRouter(t, map[string]any{"features": 32.0}, 2, text)
	r := rand.New(rand.NewPCG(3, 4))
	names := []string{"invoice", "football"}
	wrong := 0
	for i := range 1500 {
		topic := r.IntN(2)
		v := api.Value{Data: []byte("the " + []string{"latest", "old", "other"}[r.IntN(3)] + " " + names[topic] + ", please")}
		asked := b.ask(v)
		loss := 0.0
		if asked != topic {
			loss = 1
		}
		if b.learn(v, asked, loss); i >= 500 {
			wrong += int(loss)
		}
	}
	if wrong > 50 {
		t.Errorf("%d of the last 1,000 texts go to the wrong candidate", wrong)
	}
}

// TestLinUCBNotices: a candidate that has become better is found again, because old observations fade.
func TestLinUCBNotices(t *testing.T) {
	b := newRouter(t, map[string]any{"memory": 500.0}, 2, pair)
	v := api.Numbers[float32](0.5, 0.5)
	for i := range 6000 {
		asked := b.ask(v)
		loss := 0.3
		if good := 0; asked == good && i < 2000 || asked != good && i >= 2000 {
			loss = 0
		}
		if asked == 0 && i >= 2000 {
			loss = 1
		}
		b.learn(v, asked, loss)
	}
	if got := b.ask(v); got != 1 {
		t.Errorf("candidate %d is asked, which fails since 4,000 queries", got)
	}
}

// TestLinUCBWithoutAnInput: no input, another input's name and elements that are no numbers are survived, and teach the value nothing.
func TestLinUCBWithoutAnInput(t *testing.T) {
	b := newRouter(t, map[string]any{"input": "y"}, 2, pair)
	before, _ := b.v.AppendBinary(nil)
	for range 10 {
		b.learn(api.Numbers[float32](1, 1), b.ask(api.Value{}), 1)
	}
	if after, _ := b.v.AppendBinary(nil); string(after) != string(before) {
		t.Error("an input that is not there has taught something")
	}
	if MeanLoss(b.s, 0) != 1 {
		t.Error("the losses count all the same")
	}
	b = newRouter(t, nil, 2, pair)
	v := api.Numbers(float32(math.NaN()), float32(math.Inf(1)))
	for range 10 {
		b.learn(v, b.ask(v), 1)
	}
	for _, x := range b.v.(*arms).arm[0].theta {
		if math.IsNaN(x) {
			t.Fatal("NaN is learned")
		}
	}
	var x vectorX
	long := make([]float32, 784)
	for i := range long {
		long[i] = 255
	}
	b.table.p.(*linUCB).reduce(Tensors{[]api.TensorSpec{{DType: api.Float32, Shape: []int64{784}}}, []api.Value{api.Numbers(long...)}}, 16, &x)
	if norm := dot(x[:16], x[:16]); math.Abs(norm-1) > 1e-9 || x[16] != 1 {
		t.Errorf("a large input has the length %v after hashing, want 1", math.Sqrt(norm))
	}
}

// TestLinUCBMerges: what two gateways have learned from the same start is, merged, what one would have learned, and its inverse is the
// inverse of its matrix.
func TestLinUCBMerges(t *testing.T) {
	params := map[string]any{"memory": 0.0, "features": 4.0}
	one, a, c := newRouter(t, params, 2, pair), newRouter(t, params, 2, pair), newRouter(t, params, 2, pair)
	r := rand.New(rand.NewPCG(5, 6))
	teach := func(bs ...*router) {
		for range 100 {
			v, asked, loss := api.Numbers(float32(r.NormFloat64()), float32(r.NormFloat64())), r.IntN(2), r.Float64()
			for _, b := range bs {
				b.learn(v, asked, loss)
			}
		}
	}
	teach(one, a, c)
	base := one.table.p.(Valuer).NewValue(2)
	data, _ := a.v.AppendBinary(nil)
	if err := base.UnmarshalBinary(data); err != nil {
		t.Fatal(err)
	}
	teach(one, a)
	teach(one, c)
	a.v.(Merger).Merge(base, c.v)
	merged, whole := a.v.(*arms), one.v.(*arms)
	for i := range merged.arm {
		for k := range merged.arm[i].theta {
			if x, y := merged.arm[i].theta[k], whole.arm[i].theta[k]; math.Abs(x-y) > 1e-9 {
				t.Errorf("θ%d of candidate %d is %v, want %v", k, i, x, y)
			}
		}
		m, n := &whole.arm[i], whole.n
		for row := range n {
			for col := range n {
				sum := m.inverse[row*n+col] // I of A = I + sum
				for k := range n {
					hi, lo := max(row, k), min(row, k)
					sum += m.sum[hi*(hi+1)/2+lo] * m.inverse[k*n+col]
				}
				if want := map[bool]float64{true: 1}[row == col]; math.Abs(sum-want) > 1e-9 {
					t.Fatalf("A·A⁻¹ has %v at %d, %d", sum, row, col)
				}
			}
		}
	}
	testValue(t, one.table.p.(Valuer), one.v, 2)
}
