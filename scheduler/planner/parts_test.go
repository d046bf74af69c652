package planner

import (
	"math"
	"testing"

	"github.com/xebec-serving/xebec/api"
	"pgregory.net/rapid"
)

func TestWaterLevel(t *testing.T) {
	for _, c := range []struct {
		name  string
		room  float64
		flows []flow
		want  []float64
	}{
		{"a small want is satisfied", 100, []flow{{1, 0, 10}, {1, 0, 60}, {1, 0, 80}}, []float64{10, 45, 45}},
		{"in proportion to weights", 100, []flow{{1, 0, 10}, {1, 0, 60}, {2, 0, 80}}, []float64{10, 30, 60}},
		{"a flow that has some waits", 100, []flow{{1, 60, 100}, {1, 0, 100}}, []float64{20, 80}},
		{"a flow above the level gets nothing", 10, []flow{{1, 60, 100}, {1, 0, 100}}, []float64{0, 10}},
		{"no room", 0, []flow{{1, 0, 10}}, []float64{0}},
		{"weights far apart", 1, []flow{{0.01, 0, 10}, {100, 0, 10}}, []float64{1.0 / 10001, 10000.0 / 10001}},
		{"wants far apart", 1, []flow{{1, 0, 1e-12}, {1, 0, 1e12}}, []float64{1e-12, 1}},
	} {
		level := waterLevel(c.flows, c.room)
		for i, f := range c.flows {
			if got := given(level, f.weight, f.has, f.wants); math.Abs(got-c.want[i]) > 1e-9 {
				t.Errorf("%s: flow %d gets %v, want %v", c.name, i, got, c.want[i])
			}
		}
	}
}

// TestPick checks that every candidate is picked for its part of the queries, and that no query has two candidates
// while another has none.
func TestPick(t *testing.T) {
	for _, c := range []struct {
		parts   []float64
		most    int     // candidates for one query
		nothing float64 // the part of the queries without a candidate
	}{
		{[]float64{0.5, 0.25}, 1, 0.25},
		{[]float64{0.25, 0.75}, 1, 0},
		{[]float64{1, 0}, 1, 0},
		{[]float64{1, 0.5, 0.25}, 2, 0},
		{[]float64{0.6, 0.6}, 2, 0},
		{[]float64{1, 1, 1}, 3, 0},
		{[]float64{0, 0}, 0, 1},
	} {
		p := &FunctionPlan{Evaluate: c.parts}
		const n = 10000
		counts, nothing := make([]int, len(c.parts)), 0
		var picked []int32
		for i := range n {
			if picked = p.Pick((float64(i)+0.5)/n, picked[:0]); len(picked) > c.most {
				t.Fatalf("%v: candidates %v picked for one query", c.parts, picked)
			}
			if len(picked) == 0 {
				nothing++
			}
			for _, candidate := range picked {
				counts[candidate]++
			}
		}
		for i, part := range c.parts {
			if math.Abs(float64(counts[i])/n-part) > 2.0/n {
				t.Errorf("%v: candidate %d picked for %d of %d queries", c.parts, i, counts[i], n)
			}
		}
		if math.Abs(float64(nothing)/n-c.nothing) > 2.0/n {
			t.Errorf("%v: no candidate for %d of %d queries", c.parts, nothing, n)
		}
	}
}

func TestMeter(t *testing.T) {
	const ms = api.Nanos(1e6)
	near := func(what string, got, want float64) {
		t.Helper()
		if math.Abs(got-want) > 1e-6*max(want, 1) {
			t.Errorf("%s: %v/s, want %v", what, got, want)
		}
	}
	var m Meter
	near("first observation", m.Observe(1000*ms, 500), 0)
	near("second observation", m.Observe(1010*ms, 510), 1000)
	// A steady rate is measured correctly at any observation interval.
	at, total := 1010*ms, uint64(510)
	for _, step := range []api.Nanos{1, 3, 20, 7, 3000, 2} {
		at, total = at+step*ms, total+uint64(step)
		near("irregular observations", m.Observe(at, total), 1000)
	}
	// The traffic stops: a significant fall shows with a quarter of the time constant.
	near("nothing for 25 ms", m.Observe(at+25*ms, total), 1000/math.E)
	at += 25 * ms
	// A fall that may be chance does not: at 368/s only 9 queries are expected in 25 ms.
	near("nothing for 25 ms more", m.Observe(at+25*ms, total), 1000/math.E*math.Exp(-0.25))
	at += 25 * ms
	// A jump of the clock by an hour is an hour without queries.
	if got := m.Observe(at+3600*1000*ms, total+10); got > 0.01 {
		t.Errorf("an hour later: %v/s, want at most 0.01", got)
	}
	at, total = at+3600*1000*ms, total+10
	// A clock that stands still or goes back a little records nothing; the counted queries show later.
	before := m.perSecond
	near("no time has passed", m.Observe(at, total+100), before)
	near("time went back", m.Observe(at-5*ms, total+100), before)
	if got := m.Observe(at+10*ms, total+100); !(got > 500 && got < 10000) {
		t.Errorf("100 queries within 10 ms: %v/s, want 500 to 10000", got)
	}
	// After the clock is set back by an hour, the meter continues from there.
	m.Observe(at-3600*1000*ms, total+100)
	for i := range api.Nanos(200) {
		at = (at - 3600*1000*ms + 10*ms*(i+1)) // one step for each observation, on the new clock
		total += 10
		before = m.Observe(at, total+100)
		at += 3600*1000*ms - 10*ms*(i+1)
	}
	near("after the clock went back", before, 1000)
	// A counter that restarts begins at 0.
	var r Meter
	r.Observe(0, 1_000_000)
	r.Observe(100*ms, 1_000_100)
	if got := r.Observe(200*ms, 100); got < 900 || got > 1100 {
		t.Errorf("after the counter restarted: %v/s, want about 1000", got)
	}
}

func TestReasonsHaveTexts(t *testing.T) {
	seen := map[string]Reason{}
	for r := NoReason + 1; r < reasons; r++ {
		text := r.String()
		if other, twice := seen[text]; text == "" || twice {
			t.Errorf("reason %d has the text %q, empty or the same as reason %d", r, text, other)
		}
		seen[text] = r
	}
	if reasons.String() != "unknown" {
		t.Errorf("an undefined reason has the text %q, want unknown", reasons.String())
	}
}

// TestMemoryIsForgotten checks that an owner unseen for long starts over, and that its memory is freed meanwhile.
func TestMemoryIsForgotten(t *testing.T) {
	var m memories[int]
	m.begin(2)
	*m.at(0, 7), *m.at(1, 8) = 70, 80
	if m.at(0, 0) != nil {
		t.Error("an owner without a key has a memory")
	}
	m.begin(2)
	if got := *m.at(1, 7); got != 70 {
		t.Errorf("at another index: memory %d, want 70", got)
	}
	for range 3 * forgetPlans {
		m.begin(1)
		m.at(0, 9)
	}
	if len(m.byKey) != 1 {
		t.Errorf("%d memories, want 1", len(m.byKey))
	}
	m.begin(2)
	if got := *m.at(0, 7); got != 0 {
		t.Errorf("after expiry: memory %d, want 0", got)
	}
}

// TestWeightsProduceShares checks that the plan sets the machine's weights where they differ from the functions': a
// short function gets the weight that produces its allotment, the others keep at least their own weight.
func TestWeightsProduceShares(t *testing.T) {
	in := &Input{Now: 1e9, EpochNanos: 10e6, Models: []Model{{
		Device: -1, MaxBatch: 10, Replicas: []Replica{{ID: 1, Cap: 10, Settled: true, Samples: 16, InterceptNanos: 5e6, SlopeNanos: 5e5}},
	}}}
	for i, f := range []Function{{Rate: 100}, {Rate: 2000, Weight: 2}, {Rate: 2000}} {
		f.attach(in, i, 0, 1)
		in.Functions = append(in.Functions, f)
		in.Models[0].Queues[i].Weight = 1
	}
	out := &Output{}
	New().Plan(in, out)
	weights := out.Models[0].Plan.Functions
	if len(weights) != 2 || weights[0].Weight != 0 || weights[1].Weight != 2 {
		t.Errorf("weights %v, want only the second changed, to 2", weights)
	}
	// 1,000/s less 100, divided two to one.
	if a, b := out.Functions[1].Allotted[0], out.Functions[2].Allotted[0]; math.Abs(a-600) > 1e-6 || math.Abs(b-300) > 1e-6 {
		t.Errorf("%v and %v queries/s are allotted, want 600 and 300", a, b)
	}
}

// TestTakingLevel checks takingLevel against waterLevel over all that the entries have and claim, from different
// starting levels.
func TestTakingLevel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var entries []entry
		var flows []flow
		sum := 0.0
		for range rapid.IntRange(1, 12).Draw(t, "entries") {
			e := entry{
				weight: rapid.SampledFrom([]float64{0.01, 0.5, 1, 1, 3, 100}).Draw(t, "weight"), used: rapid.Float64Range(0, 1).Draw(t, "used"),
				claim: rapid.SampledFrom([]float64{0, 1e-9, 1, 1, 1e53}).Draw(t, "scale") * rapid.Float64Range(0, 1).Draw(t, "claim"),
			}
			entries, flows = append(entries, e), append(flows, flow{weight: e.weight, wants: e.used + e.claim})
			sum += e.used + e.claim
		}
		room := min(sum, 10) * rapid.Float64Range(0.01, 0.999).Draw(t, "room")
		want := waterLevel(flows, room)
		for _, above := range []float64{inf, want, want * (1 + 1e-15), want * 1.01, want * 1e9} {
			level, given := takingLevel(entries, room, above), 0.0
			for _, f := range flows {
				given += min(f.wants, level*f.weight)
			}
			if math.Abs(given-room) > 2*roundingError+1e-12*room {
				t.Fatalf("from %v: level %v, want %v; room %v, given %v", above, level, want, room, given)
			}
		}
	})
}

// TestCoarse checks that a weight is rounded to the nearest of eight steps to an octave.
func TestCoarse(t *testing.T) {
	for w := minWeight; w <= maxWeight; w *= 1.0137 {
		got := math.Log2(coarse(w)) * 8
		if step := math.Round(got); math.Abs(got-step) > 1e-9 || math.Abs(got-math.Log2(w)*8) > 0.5+1e-9 {
			t.Errorf("%v is rounded to %v, %v eighths of an octave", w, coarse(w), got)
		}
	}
	for _, w := range []float64{0.25, 1, 64} {
		if coarse(w) != w {
			t.Errorf("%v is rounded to %v, want no change", w, coarse(w))
		}
	}
}
