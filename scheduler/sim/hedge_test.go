package sim

import (
	"math"
	"strings"
	"testing"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/scheduler"
)

// stalling is a model with four replicas that each stall for 60 ms, longer than the objective, in two or three batches
// of a thousand.
func stalling(hedge bool, rate float64) *Spec {
	s := &Spec{Seed: 1, Policy: Planned, Warm: 2e9, Duration: 22e9}
	m := ModelSpec{Name: "m", Device: -1, SLONanos: 50e6, Config: scheduler.Config{
		Retry: true, Hedge: hedge, Batching: scheduler.Batching{Policy: scheduler.AIMD, ObjectiveNanos: 20e6},
	}}
	for range 4 {
		m.Replicas = append(m.Replicas, ReplicaSpec{FixedNanos: 3e6, EachNanos: 500e3, Sigma: 0.1, StallEvery: 4e9, StallNanos: 60e6})
	}
	s.Models = []ModelSpec{m}
	s.Functions = []FunctionSpec{{
		Name: "f", SLONanos: 50e6, Bytes: 8, Candidates: []CandidateSpec{{Gain: 1}}, Traffic: []Traffic{{Shape: Steady, Rate: rate}},
	}}
	return s
}

// measure runs a world of one model, and also returns its engine's counters.
func measure(t *testing.T, s *Spec) (*Result, *scheduler.Counters) {
	t.Helper()
	var made Engine
	s.Engine = func(m *ModelSpec) Engine {
		made = NewMachine(m.Config)
		return made
	}
	r, err := Run(s, nil)
	if err != nil {
		t.Fatal(err)
	}
	var snap scheduler.Snapshot
	made.Snapshot(&snap)
	return r, &snap.Counters
}

// TestHedgesCutTheTail: where replicas stall now and then, hedges keep the latency of nearly all affected queries
// within the objective, for almost no extra work.
func TestHedgesCutTheTail(t *testing.T) {
	for _, rate := range []float64{200, 600, 2000} {
		without, none := measure(t, stalling(false, rate))
		with, c := measure(t, stalling(true, rate))
		before, after := &without.Functions[0], &with.Functions[0]
		t.Logf("%4.0f/s: %d of %d late without, %d with; P99 %s and %s, P99.9 %s and %s ms; replicas busy for %.2f and %.2f s; %d of %d sent twice, %d of them won",
			rate, before.Missed, before.Offered, after.Missed, inMillis(before.Quantile(0.99)), inMillis(after.Quantile(0.99)),
			inMillis(before.Quantile(0.999)), inMillis(after.Quantile(0.999)), float64(without.BusyNanos)/1e9, float64(with.BusyNanos)/1e9, c.Hedged, c.Arrived, c.HedgeWins)
		if none.Hedged != 0 {
			t.Errorf("%v/s: %d queries were sent twice where that is not allowed", rate, none.Hedged)
		}
		if before.Missed < 4 || after.Missed > before.Missed/4 {
			t.Errorf("%v/s: %d of %d queries miss their objective with hedging, %d without", rate, after.Missed, after.Offered, before.Missed)
		}
		if after.Quantile(0.999) > 25e6 {
			t.Errorf("%v/s: P99.9 %s ms with hedging, %s without", rate, inMillis(after.Quantile(0.999)), inMillis(before.Quantile(0.999)))
		}
		if float64(c.Hedged) > 0.01*float64(c.Arrived) || float64(with.BusyNanos) > 1.01*float64(without.BusyNanos) {
			t.Errorf("%v/s: %d of %d queries were sent twice, the replicas were busy for %.3f s instead of %.3f", rate, c.Hedged, c.Arrived, float64(with.BusyNanos)/1e9, float64(without.BusyNanos)/1e9)
		}
	}
}

func inMillis(nanos int64) string {
	if nanos == math.MaxInt64 {
		return "late"
	}
	return strings.TrimSuffix(span(api.Nanos(nanos)).String(), "ms")
}

// TestNoHedgesUnderOverload: while queries always wait, none is sent twice.
func TestNoHedgesUnderOverload(t *testing.T) {
	s := stalling(true, 0)
	s.Warm, s.Duration = 0, 5e9
	s.Functions[0].Traffic[0].Rate = 3 * s.Models[0].Capacity(20e6)
	r, c := measure(t, s)
	if r.Functions[0].Good == 0 || c.Hedged > 10 { // while profiles are being learned
		t.Errorf("%d of %d queries were sent twice", c.Hedged, c.Arrived)
	}
}

// TestHedgesDoNotLowerCaps: a twin counts for the replica that evaluates it. The stalls of one replica must not lower
// the others' caps, which stay about as without hedging.
func TestHedgesDoNotLowerCaps(t *testing.T) {
	var caps [2]int
	for seed := range uint64(8) {
		for i, hedge := range []bool{false, true} {
			s := stalling(hedge, 2000)
			s.Seed, s.Duration = seed, 12e9
			var made Engine
			s.Engine = func(m *ModelSpec) Engine {
				made = NewMachine(m.Config)
				return made
			}
			if _, err := Run(s, nil); err != nil {
				t.Fatal(err)
			}
			var snap scheduler.Snapshot
			made.Snapshot(&snap)
			for j := range snap.Replicas {
				caps[i] += snap.Replicas[j].Learned
			}
		}
	}
	if float64(caps[1]) < 0.9*float64(caps[0]) {
		t.Errorf("the caps add up to %d with hedging, %d without", caps[1], caps[0])
	}
}

// hanging is a world in which seven of eight replicas hang at once, each with 64 queries that have nearly a second
// left: more than may be sent twice. A few queries arrive after that.
func hanging() *Spec {
	s := &Spec{Seed: 1, Policy: Unplanned, Duration: 600e6, Check: true}
	m := ModelSpec{Name: "m", Device: -1, Config: scheduler.Config{
		Retry: true, Hedge: true, Batching: scheduler.Batching{Policy: scheduler.Fixed, MaxBatch: 64},
	}}
	for i := range 8 {
		r := ReplicaSpec{FixedNanos: 1e6, EachNanos: 50e3, StartNanos: 10e9}
		if i > 0 {
			r.Faults = []Fault{{Kind: Hang, AtNanos: 350e6}}
		}
		m.Replicas = append(m.Replicas, r)
	}
	s.Models = []ModelSpec{m}
	f := FunctionSpec{Name: "f", SLONanos: 900e6, Bytes: 8, Candidates: []CandidateSpec{{Gain: 1}}}
	recorded := Traffic{Shape: Recorded}
	for at := api.Nanos(1e6); at < 370e6; at += 20e6 {
		for range 8 * 64 {
			recorded.Times = append(recorded.Times, at)
		}
	}
	for at := api.Nanos(400e6); at < 600e6; at += 20e6 {
		recorded.Times = append(recorded.Times, at)
	}
	f.Traffic = []Traffic{recorded}
	s.Functions = []FunctionSpec{f}
	return s
}

// TestHedgeBudget: no more queries are sent twice than the budget allows, although all would gain.
func TestHedgeBudget(t *testing.T) {
	r, c := measure(t, hanging())
	most := scheduler.HedgePart*float64(c.Arrived) + scheduler.HedgeBurst
	if c.Hedged == 0 || c.Hedged != c.HedgeWins || float64(c.Hedged) > most || r.Functions[0].Missed != 7*64-int64(c.Hedged) {
		t.Errorf("%d were sent twice and %d of them won, at most %.0f are allowed; %d missed", c.Hedged, c.HedgeWins, most, r.Functions[0].Missed)
	}
}

// doubleSend is a defect that sends a part of the engine's batches a second time at once, to the third replica, which the
// engine does not know.
func doubleSend(when func(b *broken) bool) broken {
	return broken{filter: func(_ *broken, _ api.Nanos, in *Input) bool {
		return in.Replica != 3
	}, change: func(b *broken, _ api.Nanos, a *scheduler.Actions) {
		if b.seen > 0 || len(a.Dispatches) == 0 || !when(b) {
			return
		}
		b.seen++
		batch := &api.Batch{ID: 1}
		for _, q := range a.Dispatches[0].Batch.Queries {
			twin := *q
			batch.Queries = append(batch.Queries, &twin)
		}
		a.Dispatches = append(a.Dispatches, scheduler.Dispatch{Replica: 3, Batch: batch, Hedge: true})
	}}
}

// TestBrokenHedges breaks the promises about queries that are sent twice, and expects the checks to find it.
func TestBrokenHedges(t *testing.T) {
	for _, test := range []struct {
		name, want string
		world      func() *Spec
		engine     broken
	}{
		{name: "hedges everything", want: "it is late after", world: threeReplicas, engine: doubleSend(func(*broken) bool { return true })},
		{name: "hedges while others wait", want: "others wait", world: func() *Spec {
			s := threeReplicas()
			s.Check = false
			return s
		}, engine: doubleSend(func(b *broken) bool {
			var s scheduler.Snapshot
			b.Snapshot(&s)
			return s.Queued > 0
		})},
		{name: "hedges a model that must not see a query twice", want: "allowed false", world: func() *Spec {
			s := threeReplicas()
			s.Models[0].Config.Retry = false
			return s
		}, engine: doubleSend(func(*broken) bool { return true })},
		{name: "beyond its budget", want: "were sent twice: at most", world: hanging, engine: broken{filter: func(b *broken, now api.Nanos, in *Input) bool {
			// The machine sees thousands of extra queries for each late one. They are refused at once, because their
			// deadlines have passed.
			if in.Kind == Arrive && now >= 400e6 {
				for range 5000 {
					b.Engine.Step(now, &Input{Kind: Arrive, Item: &scheduler.Item{Owner: phantom{}}})
				}
			}
			return true
		}, change: func(_ *broken, _ api.Nanos, a *scheduler.Actions) {
			var ends []scheduler.End
			for _, e := range a.Ends {
				if _, no := e.Item.Owner.(phantom); !no {
					ends = append(ends, e)
				}
			}
			a.Ends = ends
		}}},
		{name: "released while the other batch is out", want: "is released out of batch", world: hanging, engine: broken{
			change: func(_ *broken, _ api.Nanos, a *scheduler.Actions) {
				for i := range a.Ends {
					if e := &a.Ends[i]; e.Code == api.OK && e.Kind == scheduler.AnswerOnly {
						e.Kind = scheduler.Both
					}
				}
			},
		}},
		{name: "the outputs of the slower one", want: "that came second", world: hanging, engine: broken{
			change: func(_ *broken, _ api.Nanos, a *scheduler.Actions) {
				for i := range a.Ends {
					if it := a.Ends[i].Item; it.Result() != &it.Query {
						it.SetResult(nil, 0)
					}
				}
			},
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			spec := test.world()
			if _, err := Run(spec, nil); err != nil {
				t.Fatalf("the world without a defect failed: %v", err)
			}
			spec.Engine = func(m *ModelSpec) Engine {
				b := test.engine
				b.Engine = NewMachine(m.Config)
				return &b
			}
			_, err := Run(spec, nil)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("expected the checks to find %q, got: %v", test.want, err)
			}
		})
	}
}

// phantom owns queries that the world does not know.
type phantom struct{}

func (phantom) Answered(*scheduler.Item, api.Code) {}
func (phantom) Released(*scheduler.Item, api.Code) {}

func threeReplicas() *Spec {
	s := busyWorld()
	m := &s.Models[0]
	m.Config.Hedge = true
	m.Replicas = append(m.Replicas, m.Replicas[0])
	return s
}
