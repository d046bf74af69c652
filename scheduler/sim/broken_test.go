package sim

import (
	"strings"
	"testing"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/scheduler"
)

// broken is an engine with a defect: it changes the machine's inputs or its decisions.
type broken struct {
	Engine
	filter func(b *broken, now api.Nanos, in *Input) bool // false: the input is dropped
	change func(b *broken, now api.Nanos, a *scheduler.Actions)
	weigh  func(weight float64) float64
	kept   []scheduler.End
	seen   int
	lazy   bool
}

func (b *broken) AddFunction(weight float64) int32 {
	if b.weigh != nil {
		weight = b.weigh(weight)
	}
	return b.Engine.AddFunction(weight)
}

func (b *broken) Step(now api.Nanos, in *Input) {
	if b.filter == nil || b.filter(b, now, in) {
		b.Engine.Step(now, in)
	}
}

func (b *broken) Ready(now api.Nanos, a *scheduler.Actions) {
	if b.lazy {
		if b.seen++; b.seen%5 == 0 { // it decides nothing this time
			a.Reset()
			return
		}
	}
	b.Engine.Ready(now, a)
	if b.change != nil {
		b.change(b, now, a)
	}
}

// busyWorld has everything behind which a defect may hide: two functions of different weights on two replicas, more
// load than they can take, answers worth computing late, and a crash.
func busyWorld() *Spec {
	s := &Spec{Seed: 1, Policy: Unplanned, Duration: 400e6, Check: true}
	m := ModelSpec{Name: "m", Device: -1, Config: scheduler.Config{
		Retry: true, MaxQueue: 60, Batching: scheduler.Batching{MaxBatch: 8, ObjectiveNanos: 10e6},
	}}
	for range 2 {
		m.Replicas = append(m.Replicas, ReplicaSpec{FixedNanos: 2e6, EachNanos: 200e3, Sigma: 0.1, StartNanos: 20e6})
	}
	m.Replicas[1].Faults = []Fault{{Kind: Crash, AtNanos: 200e6}}
	s.Models = []ModelSpec{m}
	for _, slo := range []int64{30e6, 300e6} {
		s.Functions = append(s.Functions, FunctionSpec{
			Name: "f", Weight: 1, SLONanos: slo, TTLNanos: 400e6, Bytes: 8, Candidates: []CandidateSpec{{Gain: 1}},
			Traffic: []Traffic{{Shape: Steady, Rate: 4000}},
		})
	}
	return s
}

// sharedWorld has two models that share a device.
func sharedWorld() *Spec {
	s := busyWorld()
	s.Devices = 1
	other := s.Models[0]
	other.Replicas = append([]ReplicaSpec(nil), other.Replicas...)
	s.Models = append(s.Models, other)
	for i := range s.Models {
		s.Models[i].Device, s.Models[i].Config.Shared = 0, true
		s.Functions[i].Candidates = []CandidateSpec{{Model: i, Gain: 1}}
	}
	return s
}

// TestBrokenEngines breaks the machine in each way that the checks cover, and expects the error to name the promise.
func TestBrokenEngines(t *testing.T) {
	every := func(n int, do func(b *broken, now api.Nanos, a *scheduler.Actions)) func(*broken, api.Nanos, *scheduler.Actions) {
		return func(b *broken, now api.Nanos, a *scheduler.Actions) {
			if b.seen++; b.seen%n == 0 {
				do(b, now, a)
			}
		}
	}
	functions := 0
	for _, test := range []struct {
		name, want string
		shared     bool
		lowLoad    bool                    // hardly any load
		unchecked  bool                    // without the checks that would fail earlier
		cfg        func(*scheduler.Config) // applied to the machine only, not to the world
		engine     broken
	}{
		{name: "an end is lost", want: "were never released", unchecked: true, engine: broken{change: every(50, func(_ *broken, _ api.Nanos, a *scheduler.Actions) {
			if n := len(a.Ends); n > 0 {
				a.Ends = a.Ends[:n-1]
			}
		})}},
		{name: "an arrival is lost", want: "it was given", engine: broken{filter: func(b *broken, _ api.Nanos, in *Input) bool {
			b.seen++
			return in.Kind != Arrive || b.seen%100 != 0
		}}},
		{name: "a query ends twice", want: "ends again", engine: broken{change: every(20, func(_ *broken, _ api.Nanos, a *scheduler.Actions) {
			for _, e := range a.Ends {
				if e.Kind == scheduler.Both {
					a.Ends = append(a.Ends, e)
					return
				}
			}
		})}},
		{name: "released without an answer", want: "answered before: false", engine: broken{change: func(_ *broken, _ api.Nanos, a *scheduler.Actions) {
			for i := range a.Ends {
				a.Ends[i].Kind = scheduler.ReleaseOnly
			}
		}}},
		{name: "released out of a batch", want: "out of batch", engine: broken{change: func(b *broken, _ api.Nanos, a *scheduler.Actions) {
			if len(a.Dispatches) > 0 && len(a.Dispatches[0].Batch.Queries) > 2 {
				for _, d := range a.Dispatches {
					for _, e := range b.kept {
						if &e.Item.Query == d.Batch.Queries[0] {
							a.Ends = append(a.Ends, scheduler.End{Item: e.Item, Code: api.DeadlineExceeded})
						}
					}
				}
			}
		}, filter: func(b *broken, _ api.Nanos, in *Input) bool {
			if in.Kind == Arrive {
				b.kept = append(b.kept, scheduler.End{Item: in.Item})
			}
			return true
		}}},
		{name: "an answer without an evaluation", want: "without having been evaluated", engine: broken{change: func(_ *broken, _ api.Nanos, a *scheduler.Actions) {
			for i := range a.Ends {
				a.Ends[i].Code = api.OK
			}
		}}},
		{name: "a batch is not sent", want: "it was given", engine: broken{change: every(30, func(_ *broken, _ api.Nanos, a *scheduler.Actions) {
			a.Dispatches = a.Dispatches[:0]
		})}},
		{name: "a replica idles", want: "a replica has idled", lowLoad: true, engine: broken{lazy: true}},
		{name: "a batch is sent twice", want: "in two batches", engine: broken{change: func(_ *broken, _ api.Nanos, a *scheduler.Actions) {
			a.Dispatches = append(a.Dispatches, a.Dispatches...)
		}}},
		{name: "an unbounded queue", want: "the queue takes", cfg: func(c *scheduler.Config) { c.MaxQueue = 100 }},
		{name: "too large a batch", want: "(at most 8)", cfg: func(c *scheduler.Config) { c.Batching.MaxBatch = 9 }},
		{name: "too deep a pipeline", want: "which holds 2 of 2", engine: broken{filter: func(_ *broken, _ api.Nanos, in *Input) bool {
			in.Depth = 3
			return true
		}}},
		{name: "a query that is too late is sent", want: "after its deadline", engine: broken{filter: func(b *broken, now api.Nanos, in *Input) bool {
			if in.Kind == Arrive { // the machine sees later deadlines than the callers have
				in.Item.Deadline += 100e6
				in.Item.Expires += 100e6
			}
			return true
		}, change: func(b *broken, now api.Nanos, a *scheduler.Actions) {
			for _, d := range a.Dispatches {
				for _, q := range d.Batch.Queries {
					q.Deadline -= 100e6
					q.Expires -= 100e6
				}
			}
		}}},
		{name: "deadlines are handled too late", want: "after its deadline", engine: broken{filter: func(_ *broken, now api.Nanos, in *Input) bool {
			return in.Kind != Advance
		}}},
		{name: "refusals are late", want: "after it arrived", unchecked: true, engine: broken{change: func(b *broken, now api.Nanos, a *scheduler.Actions) {
			var ends []scheduler.End
			for _, e := range a.Ends {
				if e.Code == api.Overloaded && e.Kind == scheduler.Both {
					b.kept = append(b.kept, e)
				} else {
					ends = append(ends, e)
				}
			}
			if len(b.kept) > 0 && now >= b.kept[0].Item.Deadline {
				ends = append(ends, b.kept...)
				b.kept = nil
			}
			a.Ends = ends
		}}},
		{name: "a function starves", want: "starves", engine: broken{weigh: func(float64) float64 {
			functions++
			return []float64{100, 0.01}[functions%2]
		}}},
		{name: "two tenants on a device", want: "no turn", shared: true, cfg: func(c *scheduler.Config) { c.Shared = false }},
		{name: "a turn that does not end", want: "has a turn and nothing in flight", shared: true, engine: broken{change: every(3, func(_ *broken, _ api.Nanos, a *scheduler.Actions) {
			a.EndTurn = 0
		})}},
		{name: "a lost query is sent with others", want: "is not sent alone", engine: broken{filter: func(_ *broken, _ api.Nanos, in *Input) bool {
			in.Begun = func(uint64) bool { return false }
			return true
		}}},
		{name: "a kill of an unknown replica", want: "killed", engine: broken{change: every(200, func(_ *broken, _ api.Nanos, a *scheduler.Actions) {
			a.Kills = append(a.Kills, scheduler.Kill{Replica: 77})
		})}},
	} {
		t.Run(test.name, func(t *testing.T) {
			spec := busyWorld()
			if test.shared {
				spec = sharedWorld()
			}
			spec.Check = !test.unchecked
			if test.lowLoad {
				for i := range spec.Functions {
					spec.Functions[i].Traffic[0].Rate = 50
				}
			}
			if _, err := Run(spec, nil); err != nil {
				t.Fatalf("the world without a defect failed: %v", err)
			}
			spec.Engine = func(m *ModelSpec) Engine {
				cfg := m.Config
				if test.cfg != nil {
					test.cfg(&cfg)
				}
				b := test.engine
				b.Engine = NewMachine(cfg)
				return &b
			}
			_, err := Run(spec, nil)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("expected the checks to find %q, got: %v", test.want, err)
			}
		})
	}
}

// TestBrokenPlan: the checks notice when the machine ignores a plan's caps and weights.
func TestBrokenPlan(t *testing.T) {
	found := 0
	for seed := range uint64(40) {
		spec := Random(seed)
		spec.Policy = RandomPlans
		spec.Engine = func(m *ModelSpec) Engine {
			return &broken{Engine: NewMachine(m.Config), filter: func(_ *broken, _ api.Nanos, in *Input) bool { return in.Kind != SetPlan }}
		}
		if _, err := Run(spec, nil); err != nil {
			found++
		}
	}
	if found == 0 {
		t.Error("machines that ignore plans passed 40 worlds without an error")
	}
}
