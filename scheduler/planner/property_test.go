package planner

import (
	"math"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/xebec-serving/xebec/scheduler"
	"pgregory.net/rapid"
)

// randomInput draws an Input: a few models with a few replicas, some of them on devices, and functions with some of
// them as candidates.
func randomInput(t *rapid.T) *Input {
	in := &Input{Now: 1e9, EpochNanos: 10e6, Devices: make([]Device, rapid.IntRange(0, 2).Draw(t, "devices"))}
	for range rapid.IntRange(1, 6).Draw(t, "models") {
		m := Model{
			Key: uint64(len(in.Models) + 1), Device: int32(rapid.IntRange(-2, len(in.Devices)-1).Draw(t, "device")),
			Cost: rapid.SampledFrom([]float64{0, 0, 1, 0.1, 7}).Draw(t, "cost"), MaxBatch: rapid.SampledFrom([]int{64, 1, 4096}).Draw(t, "max"),
			HoldNanos: rapid.SampledFrom([]int64{0, 1e6, 50e6}).Draw(t, "hold"), Pinned: rapid.IntRange(0, 5).Draw(t, "pinned") == 0,
			InputBytes: rapid.SampledFrom([]int64{0, 3000, 600 << 10}).Draw(t, "bytes"),
		}
		known := rapid.IntRange(0, 7).Draw(t, "known") > 0
		a, s := rapid.Float64Range(0, 5e6).Draw(t, "a"), rapid.Float64Range(1e3, 5e6).Draw(t, "s")
		for r := range rapid.IntRange(0, 3).Draw(t, "replicas") {
			m.Replicas = append(m.Replicas, Replica{
				ID: scheduler.ReplicaID(r + 1), Cap: rapid.IntRange(1, 64).Draw(t, "cap"), Settled: known, Samples: 100, InterceptNanos: a, SlopeNanos: s,
			})
		}
		for range rapid.IntRange(0, 1).Draw(t, "direct") {
			m.Queues = append(m.Queues, Queue{Function: -1, Weight: weights(t), Rate: rates(t)})
		}
		in.Models = append(in.Models, m)
	}
	for i := range rapid.IntRange(1, 7).Draw(t, "functions") {
		f := Function{
			Key: uint64(i + 1), Weight: weights(t), Rate: rates(t), SLONanos: rapid.SampledFrom([]int64{0, 10e6, 50e6, 1e9}).Draw(t, "slo"),
			Mode: rapid.SampledFrom([]Mode{One, All, Shares}).Draw(t, "mode"), Background: rapid.IntRange(0, 5).Draw(t, "background") == 0,
			Budget: rapid.SampledFrom([]float64{0, 0, 0, 1, 100, 1e4}).Draw(t, "budget"),
		}
		if f.SLONanos == 0 {
			f.SLONanos = 20e6
		}
		order := rapid.Permutation(indices(len(in.Models))).Draw(t, "order")
		for _, m := range order[:rapid.IntRange(1, min(4, len(order))).Draw(t, "candidates")] {
			f.attach(in, i, m, rapid.SampledFrom([]float64{0, 0.1, 0.5, 0.5, 0.8, 0.9, 1}).Draw(t, "gain"))
			f.Candidates[len(f.Candidates)-1].Share = rapid.SampledFrom([]float64{0, 1e-4, 0.1, 0.25, 0.25, 0.5}).Draw(t, "share")
		}
		in.Functions = append(in.Functions, f)
	}
	return in
}

func weights(t *rapid.T) float64 {
	return rapid.SampledFrom([]float64{0, 1, 1, 2, 0.5, 10}).Draw(t, "weight")
}

func rates(t *rapid.T) float64 {
	return rapid.SampledFrom([]float64{0, 1, 20, 300, 1000, 5000, 1e5}).Draw(t, "rate") * rapid.Float64Range(0.5, 1.5).Draw(t, "times")
}

func indices(n int) []int {
	list := make([]int, n)
	for i := range list {
		list[i] = i
	}
	return list
}

// attach adds model m to the candidates of f, the i-th function.
func (f *Function) attach(in *Input, i, m int, gain float64) {
	f.Candidates = append(f.Candidates, Candidate{Model: int32(m), Queue: int32(len(in.Models[m].Queues)), Gain: gain})
	in.Models[m].Queues = append(in.Models[m].Queues, Queue{Function: int32(i), Weight: f.Weight, Rate: f.Rate, SLONanos: f.SLONanos})
}

const tolerance = 1e-6

// uses returns what a plan uses of each resource: first of the models that are on no device, then of the devices.
// Unknown models use nothing.
func uses(in *Input, out *Output) []float64 {
	used := make([]float64, len(in.Models)+len(in.Devices))
	for i := range in.Models {
		if m := &out.Models[i]; m.Known {
			used[resourceOf(in, i)] += m.Planned / m.Usable
		}
	}
	return used
}

// usesOf returns what the plan uses of each resource for the functions that match.
func usesOf(in *Input, out *Output, match func(f *Function) bool) []float64 {
	used := make([]float64, len(in.Models)+len(in.Devices))
	for i := range in.Functions {
		f := &in.Functions[i]
		for c := range f.Candidates {
			if m := int(f.Candidates[c].Model); match(f) && m >= 0 && m < len(in.Models) && out.Models[m].Known {
				used[resourceOf(in, m)] += out.Functions[i].Allotted[c] / out.Models[m].Usable
			}
		}
	}
	return used
}

func resourceOf(in *Input, m int) int {
	if d := in.Models[m].Device; d >= 0 && int(d) < len(in.Devices) {
		return len(in.Models) + int(d)
	}
	return m
}

// TestPlansAreSound checks that every number is valid, that parts are parts, and that no plan exceeds the capacity.
func TestPlansAreSound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in, p, out := randomInput(t), New(), &Output{}
		for range 2 {
			p.Plan(in, out)
			checkNumbers(t, in, out)
			checkBounds(t, in, out)
			checkConservation(t, in, out)
			checkFairness(t, in, out)
		}
	})
}

type fataler interface {
	Fatalf(format string, args ...any)
}

func checkNumbers(t fataler, in *Input, out *Output) {
	ok := func(what string, v, most float64) {
		if !(v >= 0 && v <= most) {
			t.Fatalf("%s is %v, want 0 to %v", what, v, most)
		}
	}
	for i := range out.Functions {
		f := &out.Functions[i]
		sum := 0.0
		for c, part := range f.Evaluate {
			ok("a part", part, 1)
			ok("an allotment", f.Allotted[c], max(number(in.Functions[i].Rate)*(1+tolerance), tolerance))
			if f.Why[c] == NoReason || f.Why[c] >= reasons {
				t.Fatalf("function %d, candidate %d: %v without a reason", i, c, part)
			}
			sum += part
		}
		if in.Functions[i].Mode.picksOne() {
			ok("the sum of the parts", sum, 1+1e-12)
		}
		checkLimits(t, &in.Functions[i], f)
		ok("a refused part", f.Refused, 1)
		if got := max(0, 1-sum); math.Abs(got-f.Refused) > tolerance {
			t.Fatalf("function %d: refused %v, want 1 - sum of parts %v = %v", i, f.Refused, f.Evaluate, got)
		}
		if (f.Refused > 0) != (f.RefusedWhy != NoReason) {
			t.Fatalf("function %d: refused %v with the reason %q", i, f.Refused, f.RefusedWhy)
		}
		ok("a cost", f.CostPerSecond, math.MaxFloat64)
	}
	for i := range out.Models {
		m := &out.Models[i]
		ok("a capacity", m.Capacity, absurd)
		ok("a demand", m.Demand, 100*absurd)
		ok("a planned rate", m.Planned, 100*absurd)
		for _, f := range m.Plan.Functions {
			ok("a weight", f.Weight, maxWeight*1.1)
			ok("a shed part", f.Shed, 1)
		}
		for _, r := range m.Plan.Replicas {
			ok("a cap", float64(r.Cap), math.MaxInt32)
			ok("a hold", float64(r.HoldNanos+1), float64(scheduler.MaxHoldNanos)+1)
			own := 0.0
			for _, share := range r.Shares {
				ok("a share", share, maxWeight*1.1)
				own += share
			}
			if len(r.Shares) > 0 && own == 0 {
				t.Fatalf("model %d: replica %d serves no sub-queue", i, r.ID)
			}
		}
	}
	for i := range out.Devices {
		for _, turn := range out.Devices[i].Turns {
			ok("a turn", float64(turn.Nanos), math.MaxInt64/2)
		}
	}
}

// checkLimits checks that obeying the limits, and moving what they withhold to candidates with the limit 1, produces
// the parts.
func checkLimits(t fataler, f *Function, p *FunctionPlan) {
	if p.Limits == nil {
		return
	}
	shares, parts, moves := 0.0, 0.0, 0.0
	for c := range f.Candidates {
		if p.Why[c] != NoSuchModel {
			shares += byShare.of(&f.Candidates[c])
		}
		parts += p.Evaluate[c]
	}
	if f.Mode != Shares || len(p.Limits) != len(f.Candidates) || parts <= 0 {
		t.Fatalf("unexpected limits %v for %d candidates of mode %d", p.Limits, len(f.Candidates), f.Mode)
	}
	if shares == 0 {
		return // shares by gain
	}
	for c, limit := range p.Limits {
		if !(limit >= 0 && limit <= 1) {
			t.Fatalf("limits %v, want each within 0 to 1", p.Limits)
		}
		share, part := byShare.of(&f.Candidates[c])/shares, p.Evaluate[c]/parts
		if p.Why[c] == NoSuchModel {
			share = 0
		}
		if limit < 1 && math.Abs(limit*share-part) > 0.002 || limit == 1 && part < share-0.002 {
			t.Fatalf("wishes %+v, limits %v and parts %v: candidate %d would get %v, want %v", f.Candidates, p.Limits, p.Evaluate, c, limit*share, part)
		}
		if limit == 1 {
			moves += part - share
		}
	}
	for c, limit := range p.Limits {
		if share := byShare.of(&f.Candidates[c]) / shares; limit < 1 && p.Why[c] != NoSuchModel {
			moves -= share - p.Evaluate[c]/parts
		}
	}
	if math.Abs(moves) > 0.01 {
		t.Fatalf("wishes %+v, limits %v and parts %v: the moved parts do not add up to 0 but %v", f.Candidates, p.Limits, p.Evaluate, moves)
	}
}

func checkBounds(t fataler, in *Input, out *Output) {
	for r, used := range uses(in, out) {
		if used > 1+tolerance {
			t.Fatalf("%v of resource %d is planned, want at most 1 (%d models)", used, r, len(in.Models))
		}
	}
	if background := usesOf(in, out, func(f *Function) bool { return f.Background }); true {
		for r, used := range uses(in, out) {
			if background[r] > tolerance && used > backgroundPart+tolerance {
				t.Fatalf("%v of resource %d is planned, %v of it for the background (%d models)", used, r, background[r], len(in.Models))
			}
		}
	}
	for i := range out.Functions {
		f := &in.Functions[i]
		cost := 0.0
		for c, part := range out.Functions[i].Evaluate {
			if m := f.Candidates[c].Model; m >= 0 && int(m) < len(in.Models) {
				cost += part * number(f.Rate) * number(in.Models[m].Cost)
			}
		}
		if b := number(f.Budget); b > 0 && cost > b*(1+tolerance) {
			t.Fatalf("function %d costs %v, more than its budget %v", i, cost, b)
		}
	}
}

// served returns how many of a function's queries/s the plan has room for.
func served(in *Input, out *Output, i int) float64 {
	sum := 0.0
	for _, x := range out.Functions[i].Allotted {
		sum += x
	}
	return min(sum, number(in.Functions[i].Rate))
}

// checkConservation checks that no query is refused while a resource that its function could use and afford is free.
func checkConservation(t fataler, in *Input, out *Output) {
	used := uses(in, out)
	for i := range out.Functions {
		f := &in.Functions[i]
		rate := number(f.Rate)
		if rate-served(in, out, i) <= tolerance*rate {
			continue
		}
		cost := 0.0
		for c, x := range out.Functions[i].Allotted {
			if m := f.Candidates[c].Model; m >= 0 && int(m) < len(in.Models) {
				cost += x * number(in.Models[m].Cost)
			}
		}
		for c := range f.Candidates {
			m := int(f.Candidates[c].Model)
			if m < 0 || m >= len(in.Models) {
				continue
			}
			full := 1.0
			if f.Background {
				full = backgroundPart
			}
			free := !out.Models[m].Known || used[resourceOf(in, m)] < full-tolerance
			if f.Background && unknownAt(in, out, resourceOf(in, m)) {
				free = false // unknown tenants use time that uses does not show
			}
			affordable := number(f.Budget) == 0 || number(in.Models[m].Cost) == 0 || cost < f.Budget*(1-tolerance)
			if free && affordable {
				t.Fatalf("function %d: %v of %v queries/s are served although model %d has room (%v used)\n%+v\n%+v", i, served(in, out, i), rate, m, used[resourceOf(in, m)], in, out)
			}
		}
	}
}

// unknownAt reports whether any model that uses a resource has too little data.
func unknownAt(in *Input, out *Output, resource int) bool {
	for m := range in.Models {
		if !out.Models[m].Known && resourceOf(in, m) == resource {
			return true
		}
	}
	return false
}

// checkFairness checks that a refused function has, at every resource that it could use and afford, no less for its
// weight than any other function.
func checkFairness(t fataler, in *Input, out *Output) {
	shares := make([][]float64, len(in.Models)+len(in.Devices)) // of each resource and function: time for weight 1
	for r := range shares {
		shares[r] = make([]float64, len(in.Functions))
	}
	for i := range in.Functions {
		for c, x := range out.Functions[i].Allotted {
			if m := int(in.Functions[i].Candidates[c].Model); m >= 0 && out.Models[m].Known {
				shares[resourceOf(in, m)][i] += x / out.Models[m].Usable / weightOf(in.Functions[i].Weight)
			}
		}
	}
	for i := range in.Functions {
		f := &in.Functions[i]
		if f.Rate-served(in, out, i) <= tolerance*f.Rate || f.Budget > 0 || f.Background {
			continue
		}
		for _, c := range f.Candidates {
			r := resourceOf(in, int(c.Model))
			for j, share := range shares[r] {
				if share > shares[r][i]*(1+1e-4)+tolerance {
					t.Fatalf("function %d is refused with the share %v of resource %d, function %d has %v\n%+v\n%+v", i, shares[r][i], r, j, share, in, out)
				}
			}
		}
	}
}

// TestPlansAreDetermined checks that the same Inputs produce the same plans, whatever the memory was used for before.
func TestPlansAreDetermined(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		first, second := randomInput(t), randomInput(t)
		a, b, outA, outB := New(), New(), &Output{}, &Output{}
		for i := range first.Functions { // so that nothing is remembered of them
			first.Functions[i].Key = 0
		}
		for i := range first.Models {
			first.Models[i].Key = 0
		}
		a.Plan(first, outA)
		for range 2 {
			a.Plan(second, outA)
			b.Plan(second, outB)
			if diff := cmp.Diff(flat(outA), flat(outB), cmpopts.IgnoreUnexported(Output{})); diff != "" {
				t.Fatalf("the second planner differs:\n%s", diff)
			}
		}
	})
}

// flat returns a copy of a plan in which empty lists are nil.
func flat(out *Output) *Output {
	c := &Output{}
	for _, f := range out.Functions {
		f.Evaluate, f.Allotted, f.Why = slices.Clone(f.Evaluate), slices.Clone(f.Allotted), slices.Clone(f.Why)
		c.Functions = append(c.Functions, f)
	}
	for _, m := range out.Models {
		m.Plan.Functions = append([]scheduler.FunctionPlan(nil), m.Plan.Functions...)
		m.Plan.Replicas = append([]scheduler.ReplicaPlan(nil), m.Plan.Replicas...)
		for r := range m.Plan.Replicas {
			m.Plan.Replicas[r].Shares = append([]float64(nil), m.Plan.Replicas[r].Shares...)
		}
		c.Models = append(c.Models, m)
	}
	for _, d := range out.Devices {
		d.Turns = append([]Turn(nil), d.Turns...)
		c.Devices = append(c.Devices, d)
	}
	return c
}
