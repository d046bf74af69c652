package placement

import (
	"math"
	"slices"
	"testing"

	"github.com/xebec-serving/xebec/api"
	"pgregory.net/rapid"
)

const now = api.Nanos(1e12)

// randomInput draws an input with few nodes, few models and small numbers, so that claims conflict.
func randomInput(t *rapid.T) *Input {
	in := &Input{Now: now}
	for i := range rapid.IntRange(0, 4).Draw(t, "nodes") {
		in.Nodes = append(in.Nodes, Node{Key: uint64(100 + i), Budget: Resources{
			CPUMillis: rapid.Int64Range(0, 200).Draw(t, "cpu"), MemoryBytes: rapid.Int64Range(0, 200).Draw(t, "memory"), GPUs: rapid.Int64Range(0, 4).Draw(t, "gpus"),
		}})
	}
	for i := range rapid.IntRange(0, 8).Draw(t, "models") {
		m := Model{
			Key: uint64(i + 1), Weight: rapid.SampledFrom([]float64{0, 1, 3}).Draw(t, "weight"),
			Takes: Resources{
				CPUMillis: rapid.Int64Range(0, 60).Draw(t, "takes cpu"), MemoryBytes: rapid.Int64Range(0, 60).Draw(t, "takes memory"), GPUs: rapid.SampledFrom([]int64{0, 0, 0, 1, 2}).Draw(t, "takes gpus"),
			},
			Wanted: rapid.IntRange(0, 9).Draw(t, "wanted"), Min: rapid.SampledFrom([]int{0, 0, 1, 3}).Draw(t, "min"),
			Rate: rapid.SampledFrom([]float64{0, 1, 10}).Draw(t, "rate"), Waiting: rapid.SampledFrom([]int{0, 0, 5}).Draw(t, "waiting"),
			LastUsed: now - rapid.SampledFrom([]api.Nanos{0, 1e9, 6e9, 7e9, 1e12}).Draw(t, "unused"),
			Fixed:    rapid.IntRange(0, 9).Draw(t, "fixed") == 0,
		}
		if rapid.Bool().Draw(t, "runs") {
			for range in.Nodes {
				m.Placed = append(m.Placed, rapid.SampledFrom([]int32{0, 0, 1, 2, 5}).Draw(t, "placed"))
			}
		}
		in.Models = append(in.Models, m)
	}
	return in
}

// TestPromises checks what every plan promises, that planning twice gives the same, and that a plan for a finished plan
// changes nothing.
func TestPromises(t *testing.T) {
	p, out, twice := New(), &Output{}, &Output{}
	rapid.Check(t, func(t *rapid.T) {
		in := randomInput(t)
		p.Plan(in, out)
		if wrong := problem(in, out); wrong != "" {
			t.Fatalf("%s\n%+v\n%+v", wrong, in, out)
		}
		p.Plan(in, twice)
		if !slices.Equal(out.Placed, twice.Placed) || !slices.Equal(out.Short, twice.Short) {
			t.Fatalf("%+v, with memory used by another plan %+v\n%+v", out, twice, in)
		}
		if after := again(in, out); !slices.Equal(out.Placed, after.Placed) {
			t.Fatalf("%+v, planned again %+v\n%+v", out, after, in)
		}
	})
}

// TestEnoughForAll checks that budgets large enough for everything grant everything, whatever ran where before. Every
// node has room for everything.
func TestEnoughForAll(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in, out := randomInput(t), &Output{}
		var sum amounts
		for i := range in.Models {
			m := &in.Models[i]
			takes := amountsOf(m.Takes)
			sum.add(&takes, float64(m.Wanted))
			for _, n := range m.Placed {
				sum.add(&takes, float64(n))
			}
		}
		for j := range in.Nodes {
			in.Nodes[j].Budget = sum.resources()
		}
		New().Plan(in, out)
		for i := range in.Models {
			m, kept := &in.Models[i], int32(0)
			for j, n := range m.Placed {
				kept += min(n, out.Placed[i*len(in.Nodes)+j])
			}
			if len(in.Nodes) > 0 && !m.Fixed && (int(out.Granted[i]) != m.Wanted || int(kept) != min(m.Wanted, total(m.Placed))) {
				t.Fatalf("model %d wants %d replicas, gets %d, and keeps %d of %d\n%+v\n%+v", i, m.Wanted, out.Granted[i], kept, total(m.Placed), in, out)
			}
		}
	})
}

func total(placed []int32) (sum int) {
	for _, n := range placed {
		sum += int(n)
	}
	return sum
}

// TestEqualsGetTheSame checks that models of one size and weight, all in use, have at most one replica more than one
// that wants more. If some run already, it is at most one or a tenth. A replica does not fit into the overdraft of a
// node.
func TestEqualsGetTheSame(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in, out := &Input{Now: now}, &Output{}
		takes := Resources{CPUMillis: rapid.Int64Range(46, 90).Draw(t, "cpu"), MemoryBytes: rapid.Int64Range(46, 90).Draw(t, "memory")}
		for i := range rapid.IntRange(1, 3).Draw(t, "nodes") {
			in.Nodes = append(in.Nodes, Node{Key: uint64(i), Budget: Resources{CPUMillis: rapid.Int64Range(0, 900).Draw(t, "has cpu"), MemoryBytes: rapid.Int64Range(0, 900).Draw(t, "has memory")}})
		}
		run := rapid.Bool().Draw(t, "run")
		for i := range rapid.IntRange(1, 6).Draw(t, "models") {
			m := inUse(i+1, now, takes, rapid.IntRange(0, 40).Draw(t, "wanted"))
			m.Rate = float64(rapid.IntRange(0, 100).Draw(t, "rate"))
			m.Waiting = rapid.IntRange(0, 3).Draw(t, "waiting")
			for range in.Nodes {
				if run {
					m.Placed = append(m.Placed, rapid.Int32Range(0, 20).Draw(t, "placed"))
				}
			}
			in.Models = append(in.Models, m)
		}
		New().Plan(in, out)
		for i := range in.Models {
			for k := range in.Models {
				most := float64(out.Granted[i] + 1)
				if run {
					most = max(most, math.Ceil(float64(out.Granted[i]+1)*advantage))
				}
				if out.Short[i] != NotShort && out.Short[i] != NeverFits && float64(out.Granted[k]) > most {
					t.Fatalf("model %d gets %d and wants more, model %d gets %d\n%+v\n%+v", i, out.Granted[i], k, out.Granted[k], in, out)
				}
			}
		}
	})
}

// TestFirstBeforeSecond checks that, among models of one size, no model in use is without a replica while another has
// two, unless those are its minimum.
func TestFirstBeforeSecond(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in, out := randomInput(t), &Output{}
		for i := range in.Models {
			in.Models[i].Fixed, in.Models[i].Takes = false, Resources{CPUMillis: 7}
		}
		for j := range in.Nodes { // the overdraft has no room for one more
			in.Nodes[j].Budget = Resources{CPUMillis: 7 * rapid.Int64Range(0, 19).Draw(t, "rooms")}
		}
		New().Plan(in, out)
		for i := range in.Models {
			waits := &in.Models[i]
			for k := range in.Models {
				if has := &in.Models[k]; waits.Waiting > 0 && out.Granted[i] == 0 && out.Short[i] != NotShort && out.Short[i] != NeverFits && int(out.Granted[k]) > max(1, has.Min) {
					t.Fatalf("queries wait for model %d, which has no replica, but model %d has %d\n%+v\n%+v", i, k, out.Granted[k], in, out)
				}
			}
		}
	})
}

// TestOrderDoesNotMatter checks that models and nodes in another order get the same.
func TestOrderDoesNotMatter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in, out, moved, movedOut := randomInput(t), &Output{}, &Input{Now: now}, &Output{}
		models, nodes := rapid.Permutation(indices(len(in.Models))).Draw(t, "order"), rapid.Permutation(indices(len(in.Nodes))).Draw(t, "node order")
		for _, j := range nodes {
			moved.Nodes = append(moved.Nodes, in.Nodes[j])
		}
		for _, i := range models {
			m := in.Models[i]
			m.Placed = nil
			for _, j := range nodes {
				if j < len(in.Models[i].Placed) {
					m.Placed = append(m.Placed, in.Models[i].Placed[j])
				}
			}
			moved.Models = append(moved.Models, m)
		}
		New().Plan(in, out)
		New().Plan(moved, movedOut)
		for a, i := range models {
			for b, j := range nodes {
				if was, is := out.Placed[i*len(nodes)+j], movedOut.Placed[a*len(nodes)+b]; was != is {
					t.Fatalf("model %d gets %d replicas on node %d, in another order %d\n%+v\n%+v\n%+v", i, was, j, is, in, out, movedOut)
				}
			}
		}
	})
}

func indices(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return all
}

// TestInvalidInput checks that a plan for any numbers has the right size, no negative replicas, and no more than is
// wanted.
func TestInvalidInput(t *testing.T) {
	numbers := []int64{0, 1, -1, 50, math.MaxInt64, math.MinInt64, 1 << 53, 1 << 62}
	rapid.Check(t, func(t *rapid.T) {
		in, out := randomInput(t), &Output{}
		invalid := func(v *int64) {
			if rapid.IntRange(0, 3).Draw(t, "odd") == 0 {
				*v = rapid.SampledFrom(numbers).Draw(t, "number")
			}
		}
		resources := func(r *Resources) {
			invalid(&r.CPUMillis)
			invalid(&r.MemoryBytes)
			invalid(&r.GPUs)
		}
		for j := range in.Nodes {
			resources(&in.Nodes[j].Budget)
			in.Nodes[j].Key = uint64(rapid.IntRange(0, 1).Draw(t, "node key"))
		}
		invalid((*int64)(&in.Now))
		for i := range in.Models {
			m := &in.Models[i]
			m.Key = uint64(rapid.IntRange(0, 2).Draw(t, "key"))
			m.Weight = rapid.SampledFrom([]float64{0, 1, -1, math.NaN(), math.Inf(1), 1e300, 1e-300}).Draw(t, "odd weight")
			m.Rate = rapid.SampledFrom([]float64{0, 1, -1, math.NaN(), math.Inf(1), math.Inf(-1)}).Draw(t, "odd rate")
			m.Wanted = rapid.SampledFrom([]int{0, 1, 3, -1, 70000, math.MaxInt, math.MinInt}).Draw(t, "odd wanted")
			m.Min = rapid.SampledFrom([]int{0, 1, -1, math.MaxInt}).Draw(t, "odd min")
			m.Waiting = rapid.SampledFrom([]int{0, 1, -1, math.MaxInt}).Draw(t, "odd waiting")
			resources(&m.Takes)
			invalid((*int64)(&m.LastUsed))
			m.Placed = rapid.SliceOfN(rapid.SampledFrom([]int32{0, 1, -1, math.MaxInt32, math.MinInt32, 9}), 0, 6).Draw(t, "odd placed")
		}
		p := New()
		p.Plan(in, out)
		nodes := len(in.Nodes)
		if len(out.Placed) != nodes*len(in.Models) || len(out.Granted) != len(in.Models) || len(out.Free) != nodes {
			t.Fatalf("the output has the wrong size: %+v", out)
		}
		for i := range in.Models {
			m := &in.Models[i]
			sum := int64(0)
			for j := range nodes {
				placed := out.Placed[i*nodes+j]
				had := int32(0)
				if j < len(m.Placed) {
					had = max(0, m.Placed[j])
				}
				if placed < 0 || m.Fixed && placed != had {
					t.Fatalf("model %d has %d replicas on node %d\n%+v\n%+v", i, placed, j, in, out)
				}
				if takes, budget := amountsOf(m.Takes), amountsOf(in.Nodes[j].Budget); !m.Fixed && placed > had && !takes.within(&budget) {
					t.Fatalf("model %d is started on node %d, which is too small\n%+v\n%+v", i, j, in, out)
				}
				sum += int64(placed)
			}
			if !m.Fixed && (sum != int64(out.Granted[i]) || sum > int64(max(0, m.Wanted))) {
				t.Fatalf("model %d is granted %d, has %d, wants %d\n%+v\n%+v", i, out.Granted[i], sum, m.Wanted, in, out)
			}
		}
	})
}

// TestFits checks that Fits agrees with the planner about an empty node.
func TestFits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in, out := randomInput(t), &Output{}
		if len(in.Models) == 0 || len(in.Nodes) == 0 {
			return
		}
		m := in.Models[0]
		m.Wanted, m.Fixed, m.Placed = 1, false, nil
		in.Models = []Model{m}
		New().Plan(in, out)
		ok, lacks := Fits(m.Takes, in.Nodes)
		if ok != (out.Granted[0] == 1) || ok != (out.Short[0] == NotShort) || !ok && out.Short[0] != NeverFits {
			t.Fatalf("fits: %v, granted %d (%v)\n%+v", ok, out.Granted[0], out.Short[0], in)
		}
		if (lacks == NoDimension) != ok {
			t.Fatalf("fits: %v, lacks %q\n%+v", ok, lacks, in)
		}
		for j := range in.Nodes {
			if ok {
				return
			}
			if need, budget := amountsOf(m.Takes), amountsOf(in.Nodes[j].Budget); need[lacks-1] > budget[lacks-1] {
				return
			}
		}
		t.Fatalf("Fits says that %v lacks, but every node has enough\n%+v", lacks, in)
	})
}
