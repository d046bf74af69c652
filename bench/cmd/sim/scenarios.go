package main

import (
	"fmt"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/scheduler"
	"github.com/xebec-serving/xebec/scheduler/planner"
	"github.com/xebec-serving/xebec/scheduler/sim"
)

const (
	ms = int64(1e6)
	// warmNanos is left out of every count, because caps and profiles are still learned.
	warmNanos = 2e9
	// runNanos is how long queries arrive.
	runNanos = 8e9
	// ttlNanos is how long an answer that is too late for its caller is still worth computing for the cache.
	ttlNanos               = int64(1e9)
	tightNanos, looseNanos = 20 * ms, 500 * ms
)

// scenario is a world in which all policies run.
type scenario struct {
	name, what string
	spec       sim.Spec
	// capacity is how many queries per second the replicas can answer in time, by their specification, in batches of two fifths of the
	// latency objective. 0 means more than are offered.
	capacity float64
	// bursts are the bursts after which the recovery time is measured.
	bursts []burst
	// quiet is the function whose latency beside the others is compared with its latency alone, or -1.
	quiet int
}

// burst is the end of a burst, and the time until which its recovery is measured.
type burst struct{ end, until api.Nanos }

// modelSpec returns a model of n equal replicas whose batches should take at most two fifths of the objective.
func modelSpec(name string, n int, fixedNanos, eachNanos, sloNanos int64) sim.ModelSpec {
	m := sim.ModelSpec{
		Name: name, Device: -1, SLONanos: sloNanos,
		Config: scheduler.Config{Retry: true, Batching: scheduler.Batching{Policy: scheduler.AIMD, ObjectiveNanos: sloNanos * 2 / 5}},
	}
	for range n {
		m.Replicas = append(m.Replicas, sim.ReplicaSpec{FixedNanos: fixedNanos, EachNanos: eachNanos, Sigma: 0.05, StartNanos: 300 * ms})
	}
	return m
}

func functionSpec(name string, sloNanos int64, traffic ...sim.Traffic) sim.FunctionSpec {
	return sim.FunctionSpec{
		Name: name, Weight: 1, SLONanos: sloNanos, TTLNanos: ttlNanos, Bytes: 64,
		Candidates: []sim.CandidateSpec{{Model: 0, Gain: 0.9}}, Traffic: traffic,
	}
}

func steady(rate float64) sim.Traffic { return sim.Traffic{Shape: sim.Steady, Rate: rate} }

// plain returns one function on one model with two replicas. A batch of n takes 2 ms + 200 µs × n: a replica serves 4,000 queries a second in
// batches of 40.
func plain(name, what string, traffic func(capacity float64) sim.Traffic) scenario {
	m := modelSpec("model", 2, 2*ms, ms/5, tightNanos)
	capacity := m.Capacity(tightNanos * 2 / 5)
	return scenario{
		name: name, what: what, capacity: capacity, quiet: -1,
		spec: sim.Spec{Models: []sim.ModelSpec{m}, Functions: []sim.FunctionSpec{functionSpec("f", tightNanos, traffic(capacity))}},
	}
}

// scenarios returns the scenarios of -compare, all with the same seed.
func scenarios(seed uint64) []scenario {
	list := []scenario{
		plain("steady", "Poisson at 70 % of capacity", func(c float64) sim.Traffic { return steady(0.7 * c) }),
		plain("bursty", "switches at random between 20 % and 200 % of capacity, 65 % on average", func(c float64) sim.Traffic {
			return sim.Traffic{Shape: sim.Switching, Rate: 0.2 * c, Peak: 2 * c, Period: 400e6, Duty: 0.25}
		}),
		plain("daily", "a day in 3 s: from 10 % to 130 % of capacity and back", func(c float64) sim.Traffic {
			return sim.Traffic{Shape: sim.Daily, Rate: 0.1 * c, Peak: 1.3 * c, Period: 3e9}
		}),
		plain("overload", "five times the capacity", func(c float64) sim.Traffic { return steady(5 * c) }),
		recovery(), flood(), slowdown(), twoObjectives(), ladder(), sharedDevice(),
		noisy(plain("noisy", "five times the capacity, replicas that are noisy: 20 % jitter, pauses of 20 ms twice a second", func(c float64) sim.Traffic {
			return steady(5 * c)
		})),
		noisy(renamed(sharedDevice(), "noisy-device")),
		ensemble(0.5), ensemble(1), ensemble(2), ensemble(3), bandit(), shadowed(),
	}
	for i := range list {
		list[i].spec.Seed, list[i].spec.Warm, list[i].spec.Duration = seed, warmNanos, runNanos
	}
	return list
}

// noisy gives the replicas of a scenario the noise of garbage collectors and neighbours.
func noisy(s scenario) scenario {
	for i := range s.spec.Models {
		for j := range s.spec.Models[i].Replicas {
			r := &s.spec.Models[i].Replicas[j]
			r.Sigma, r.StallEvery, r.StallNanos = 0.2, 500*ms, 20*ms
		}
	}
	return s
}

func renamed(s scenario, name string) scenario {
	s.name, s.what = name, "the same with noisy replicas: 20 % jitter, pauses of 20 ms twice a second"
	return s
}

func recovery() scenario {
	s := plain("recovery", "60 % of capacity, with a second of 500 % in every three", func(c float64) sim.Traffic {
		return sim.Traffic{Shape: sim.Square, Rate: 0.6 * c, Peak: 5 * c, Period: 3e9, Duty: 1.0 / 3}
	})
	s.bursts = []burst{{4e9, 6e9}, {7e9, runNanos}}
	return s
}

func flood() scenario {
	s := plain("flood", "one function at 500 % of capacity beside a quiet one at 5 %", func(c float64) sim.Traffic { return steady(0.05 * c) })
	s.spec.Functions[0].Name = "quiet"
	s.spec.Functions = append(s.spec.Functions, functionSpec("flood", tightNanos, steady(5*s.capacity)))
	s.quiet = 0
	return s
}

func slowdown() scenario {
	m := modelSpec("model", 3, 2*ms, ms/5, tightNanos)
	m.Replicas[0].Faults = []sim.Fault{{Kind: sim.Slow, AtNanos: 4e9, ForNanos: 2e9, Factor: 3}}
	c := m.Capacity(tightNanos * 2 / 5)
	return scenario{
		name: "slowdown", what: "60 % of three replicas' capacity; one is three times as slow for 2 of 6 s", quiet: -1,
		spec: sim.Spec{Models: []sim.ModelSpec{m}, Functions: []sim.FunctionSpec{functionSpec("f", tightNanos, steady(0.6*c))}},
	}
}

// twoObjectives has batches that cost 4 ms + 100 µs × n, so that large ones pay. In batches of 8 ms the four replicas serve 20,000 queries a
// second, in batches of 250 ms 39,000.
func twoObjectives() scenario {
	m := modelSpec("model", 4, 4*ms, ms/10, tightNanos)
	c := m.Capacity(tightNanos * 2 / 5)
	return scenario{
		name: "two-slos", what: "objectives of 20 ms (20 % of capacity) and 500 ms (90 %) on one model of four replicas", quiet: 0,
		spec: sim.Spec{Models: []sim.ModelSpec{m}, Functions: []sim.FunctionSpec{
			functionSpec("20ms", tightNanos, steady(0.2*c)), functionSpec("500ms", looseNanos, steady(0.9*c)),
		}},
	}
}

func ladder() scenario {
	big := modelSpec("big", 2, 2*ms, ms/2, 50*ms)
	small := modelSpec("small", 1, ms, ms/20, 50*ms)
	all := big.Capacity(25*ms) + small.Capacity(25*ms)
	f := functionSpec("f", 50*ms, steady(0.8*all))
	f.Candidates = []sim.CandidateSpec{{Model: 0, Gain: 0.95}, {Model: 1, Gain: 0.8}}
	return scenario{
		name: "ladder", what: "80 % of what a large and a small model serve together, five times what the large one serves", quiet: -1,
		spec: sim.Spec{Models: []sim.ModelSpec{big, small}, Functions: []sim.FunctionSpec{f}},
	}
}

// sharedDevice has a fast model with batches of up to 8 ms and a slow one with batches of up to 40 ms.
func sharedDevice() scenario {
	fast, slow := modelSpec("fast", 1, ms, ms/20, tightNanos), modelSpec("slow", 1, 4*ms, 2*ms/5, 100*ms)
	fast.Device, slow.Device = 0, 0
	fast.Config.Shared, slow.Config.Shared = true, true
	a := functionSpec("fast", tightNanos, steady(0.25*fast.Capacity(tightNanos*2/5)))
	b := functionSpec("slow", 100*ms, steady(0.35*slow.Capacity(40*ms)))
	b.Candidates = []sim.CandidateSpec{{Model: 1, Gain: 0.9}}
	return scenario{
		name: "device", what: "a model with an objective of 20 ms and one with 100 ms on one accelerator, 25 % and 35 % of it", quiet: 0,
		spec: sim.Spec{Models: []sim.ModelSpec{fast, slow}, Functions: []sim.FunctionSpec{a, b}, Devices: 1},
	}
}

// ensemble has four members that serve 2,000, 9,000, 23,750 and 98,000 queries a second in batches of 10 ms. 1,507 full answers a second take
// all of the device's time.
func ensemble(load float64) scenario {
	s := scenario{
		name: fmt.Sprintf("ensemble-%gx", load), quiet: -1,
		what: fmt.Sprintf("four models on one accelerator, all asked for each answer; %g times what it does with all four", load),
		spec: sim.Spec{Devices: 1},
	}
	f := functionSpec("f", 100*ms, steady(load*1507))
	f.Mode, f.Candidates = planner.All, nil
	for i, m := range []struct {
		name        string
		fixed, each int64
		gain        float64
	}{{"large", 2 * ms, 2 * ms / 5, 0.8}, {"medium", ms, ms / 10, 0.75}, {"small", ms / 2, ms / 25, 0.7}, {"tiny", ms / 5, ms / 100, 0.6}} {
		spec := modelSpec(m.name, 1, m.fixed, m.each, 100*ms)
		spec.Device, spec.Config.Shared, spec.Config.Batching.ObjectiveNanos = 0, true, 10*ms
		s.spec.Models = append(s.spec.Models, spec)
		f.Candidates = append(f.Candidates, sim.CandidateSpec{Model: i, Gain: m.gain})
	}
	s.spec.Functions = []sim.FunctionSpec{f}
	return s
}

// bandit has 18,400 queries a second. For 16,600 of them the policy prefers a model that serves 3,700.
func bandit() scenario {
	s := ladder()
	s.name, s.what = "bandit", "80 % of what a large and a small model serve together, 90 % of it preferring the large one, 4.5 times what it serves"
	f := &s.spec.Functions[0]
	f.Mode = planner.Shares
	f.Candidates[0].Share, f.Candidates[1].Share = 0.9, 0.1
	return s
}

// shadowed has 95 % of a model's capacity, and a shadow of a fifth of that on the same accelerator.
func shadowed() scenario {
	live, tried := modelSpec("live", 1, ms, ms/20, 50*ms), modelSpec("tried", 1, ms, ms/20, 50*ms)
	live.Device, tried.Device = 0, 0
	live.Config.Shared, tried.Config.Shared = true, true
	rate := 0.95 * live.Capacity(20*ms)
	a, b := functionSpec("live", 50*ms, steady(rate)), functionSpec("shadow", 50*ms, steady(0.2*rate))
	b.Candidates = []sim.CandidateSpec{{Model: 1, Gain: 0.9}}
	b.Mode, b.Background, b.Weight = planner.All, true, 0.01
	return scenario{
		name: "shadow", what: "95 % of an accelerator, and the shadow of a fifth of it on another model there", quiet: 0,
		spec: sim.Spec{Models: []sim.ModelSpec{live, tried}, Functions: []sim.FunctionSpec{a, b}, Devices: 1},
	}
}
