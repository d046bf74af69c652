package planner

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

// TestOrderDoesNotMatter checks that functions and models in another order get the same.
func TestOrderDoesNotMatter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := randomInput(t)
		functions := rapid.Permutation(indices(len(in.Functions))).Draw(t, "functions")
		models := rapid.Permutation(indices(len(in.Models))).Draw(t, "models")
		moved := &Input{Now: in.Now, EpochNanos: in.EpochNanos, Devices: in.Devices}
		modelAt, functionAt := make([]int32, len(models)), make([]int32, len(functions))
		for at, i := range models {
			moved.Models = append(moved.Models, in.Models[i])
			modelAt[i] = int32(at)
		}
		for at, i := range functions {
			f := in.Functions[i]
			f.Candidates = append([]Candidate(nil), f.Candidates...)
			for c := range f.Candidates {
				f.Candidates[c].Model = modelAt[f.Candidates[c].Model]
			}
			moved.Functions = append(moved.Functions, f)
			functionAt[i] = int32(at)
		}
		for m := range moved.Models {
			queues := append([]Queue(nil), moved.Models[m].Queues...)
			for q := range queues {
				if f := queues[q].Function; f >= 0 {
					queues[q].Function = functionAt[f]
				}
			}
			moved.Models[m].Queues = queues
		}
		out, movedOut := &Output{}, &Output{}
		New().Plan(in, out)
		New().Plan(moved, movedOut)
		for i := range in.Functions {
			a, b := out.Functions[i], movedOut.Functions[functionAt[i]]
			for c := range a.Allotted {
				if math.Abs(a.Allotted[c]-b.Allotted[c]) > 1e-4*in.Functions[i].Rate {
					t.Fatalf("function %d, candidate %d: %v, in another order %v\n%+v", i, c, a.Allotted[c], b.Allotted[c], in)
				}
			}
		}
		for i := range in.Models {
			a, b := out.Models[i], movedOut.Models[modelAt[i]]
			if a.Plan.Execution != b.Plan.Execution || a.Tight != b.Tight || len(a.Plan.Replicas) != len(b.Plan.Replicas) {
				t.Fatalf("model %d: %+v, in another order %+v", i, a, b)
			}
		}
	})
}

// TestMoreCapacityServesMore checks that a faster model does not lower what is served if every function has one
// candidate. With several candidates the greedy algorithm does not promise that.
func TestMoreCapacityServesMore(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := randomInput(t)
		for i := range in.Functions {
			in.Functions[i].Candidates = in.Functions[i].Candidates[:1]
		}
		total := func() float64 {
			out := &Output{}
			New().Plan(in, out)
			sum := 0.0
			for i := range in.Functions {
				sum += served(in, out, i)
			}
			return sum
		}
		before := total()
		m := &in.Models[rapid.IntRange(0, len(in.Models)-1).Draw(t, "faster")]
		// On a device a faster model also leaves more time to others, and functions there differ in what they make of
		// it.
		if m.Device >= 0 {
			return
		}
		for i := range m.Replicas {
			m.Replicas[i].InterceptNanos *= 0.7
			m.Replicas[i].SlopeNanos *= 0.7
		}
		if after := total(); after < before*(1-tolerance) {
			t.Fatalf("%v queries/s were served, with a faster model only %v", before, after)
		}
	})
}

// TestAbsurdNumbers checks that plans are sound whatever the input numbers are.
func TestAbsurdNumbers(t *testing.T) {
	floats := []float64{0, 1, -1, 1e-300, 1e300, 1e59, math.NaN(), math.Inf(1), math.Inf(-1), 5e-324, 1000}
	rapid.Check(t, func(t *rapid.T) {
		in := randomInput(t)
		float := func(v *float64) {
			if rapid.IntRange(0, 3).Draw(t, "odd") == 0 {
				*v = rapid.SampledFrom(floats).Draw(t, "value")
			}
		}
		whole := func(v *int64) {
			if rapid.IntRange(0, 3).Draw(t, "odd") == 0 {
				*v = rapid.SampledFrom([]int64{0, 1, -1, math.MinInt64, math.MaxInt64}).Draw(t, "value")
			}
		}
		index := func(v *int32) {
			if rapid.IntRange(0, 7).Draw(t, "odd") == 0 {
				*v = rapid.SampledFrom([]int32{-1, math.MinInt32, math.MaxInt32, 0}).Draw(t, "value")
			}
		}
		whole(&in.EpochNanos)
		for i := range in.Functions {
			f := &in.Functions[i]
			float(&f.Weight)
			float(&f.Rate)
			float(&f.Budget)
			whole(&f.SLONanos)
			for c := range f.Candidates {
				float(&f.Candidates[c].Gain)
				index(&f.Candidates[c].Model)
				index(&f.Candidates[c].Queue)
			}
		}
		for i := range in.Models {
			m := &in.Models[i]
			float(&m.Cost)
			whole(&m.HoldNanos)
			whole(&m.InputBytes)
			index(&m.Device)
			for q := range m.Queues {
				float(&m.Queues[q].Rate)
				float(&m.Queues[q].Weight)
				whole(&m.Queues[q].SLONanos)
				m.Queues[q].Queued = rapid.SampledFrom([]int{0, -1, math.MaxInt}).Draw(t, "queued")
			}
			for r := range m.Replicas {
				float(&m.Replicas[r].InterceptNanos)
				float(&m.Replicas[r].SlopeNanos)
				m.Replicas[r].Cap = rapid.SampledFrom([]int{1, 8, 0, -1, math.MaxInt}).Draw(t, "cap")
			}
		}
		p, out := New(), &Output{}
		for range 3 {
			in.Now += 10e6
			p.Plan(in, out)
			checkNumbers(t, in, out)
			checkBounds(t, in, out)
		}
	})
}

// TestUnrelatedGroupsDoNotMatter checks that functions get the same with and without others that share no model and no
// device with them. This is why a plan may be made group by group.
func TestUnrelatedGroupsDoNotMatter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in, unrelated := randomInput(t), randomInput(t)
		out, bothOut := &Output{}, &Output{}
		// Background functions share what is left over in passes common to all.
		for i := range in.Functions {
			in.Functions[i].Background = false
		}
		New().Plan(in, out)
		both := &Input{Now: in.Now, EpochNanos: in.EpochNanos, Devices: append(append([]Device(nil), unrelated.Devices...), in.Devices...)}
		both.Models, both.Functions = append(both.Models, unrelated.Models...), append(both.Functions, unrelated.Functions...)
		models, functions := len(unrelated.Models), len(unrelated.Functions)
		for i := range both.Functions {
			both.Functions[i].Background = false
		}
		for _, m := range in.Models {
			m.Key += uint64(models)
			if m.Device >= 0 {
				m.Device += int32(len(unrelated.Devices))
			}
			m.Queues = append([]Queue(nil), m.Queues...)
			for q := range m.Queues {
				if m.Queues[q].Function >= 0 {
					m.Queues[q].Function += int32(functions)
				}
			}
			both.Models = append(both.Models, m)
		}
		for _, f := range in.Functions {
			f.Key += uint64(functions)
			f.Candidates = append([]Candidate(nil), f.Candidates...)
			for c := range f.Candidates {
				f.Candidates[c].Model += int32(models)
			}
			both.Functions = append(both.Functions, f)
		}
		New().Plan(both, bothOut)
		for i := range in.Functions {
			alone, beside := out.Functions[i].Allotted, bothOut.Functions[functions+i].Allotted
			for c := range alone {
				if math.Abs(alone[c]-beside[c]) > 1e-6*in.Functions[i].Rate {
					t.Fatalf("function %d, candidate %d: %v, beside unrelated functions %v\n%+v", i, c, alone[c], beside[c], in)
				}
			}
		}
	})
}
