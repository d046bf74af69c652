package sim

import (
	"bytes"
	"strings"
	"testing"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/scheduler"
)

// streamWorld is busyWorld with streams: two replicas of three places, more load than they can take, a crash in the
// middle of streams, and callers that leave.
func streamWorld() *Spec {
	s := busyWorld()
	m := &s.Models[0]
	m.Config.Streams = true
	m.Stream = StreamSpec{Places: 3, LengthNanos: 20e6, Sigma: 0.5, SinglePart: 0.1, LeavePart: 0.2, SilenceNanos: 10e6}
	for i := range s.Functions {
		s.Functions[i].Traffic[0].Rate = 300
	}
	return s
}

// TestQuietStreams compares a world with a calculation: one stream at a time. A call's latency is that of its first
// output, and the next one waits for no end of a stream while there is a place.
func TestQuietStreams(t *testing.T) {
	s := &Spec{
		Seed: 1, Policy: Unplanned, Duration: 1e9, Check: true,
		Models: []ModelSpec{{
			Device: -1, Config: scheduler.Config{Streams: true}, Stream: StreamSpec{Places: 4, LengthNanos: 10e6},
			Replicas: []ReplicaSpec{{FixedNanos: 2e6, EachNanos: 1e6}},
		}},
		Functions: []FunctionSpec{{
			Name: "f", SLONanos: 20e6, Candidates: []CandidateSpec{{Gain: 1}}, Traffic: []Traffic{{Shape: Recorded, Times: []api.Nanos{1e6, 5e6, 9e6, 13e6, 14e6}}},
		}},
	}
	r, err := Run(s, nil)
	if err != nil {
		t.Fatal(err)
	}
	// The fifth arrives while four are open, and begins when the end of the first one has been seen.
	const first, length = int64(3e6 + 2*handNanos), int64(10e6)
	want := []int64{first, first, first, first, first}
	if want[4] += 1e6 + first + length - 14e6; want[4] < first {
		want[4] = first
	}
	f := &r.Functions[0]
	if f.Good != 5 || f.Missed+f.Refused != 0 {
		t.Fatalf("%d good, %d missed, %d refused, expected 5 good", f.Good, f.Missed, f.Refused)
	}
	for i := range want {
		if f.Latencies[i] != want[i] {
			t.Errorf("latencies %v, expected %v", f.Latencies, want)
			break
		}
	}
	if wantBusy := 5 * (int64(3e6) + length); r.BusyNanos != wantBusy {
		t.Errorf("places were held for %d ns, expected %d", r.BusyNanos, wantBusy)
	}
}

// TestSilentStreams: a replica that hangs in the middle of a stream is ended by its transport, and its streams with it.
func TestSilentStreams(t *testing.T) {
	s := streamWorld()
	s.Models[0].Replicas[1].Faults = []Fault{{Kind: Hang, AtNanos: 200e6}}
	var log bytes.Buffer
	if _, err := Run(s, &log); err != nil {
		t.Fatal(err)
	}
	if text := log.String(); !strings.Contains(text, "210.2ms m0   gone r2\n") || !strings.Contains(text, "210.2ms m0 > release q") {
		t.Error("expected the replica to be gone 10 ms after it hung, and to break off its streams")
	}
}

// TestStreamsAfterACrash: a query that may have killed its replica needs another one for itself, and streams last longer
// than it can wait. The other replicas go on meanwhile.
func TestStreamsAfterACrash(t *testing.T) {
	s := &Spec{Seed: 1, Policy: Unplanned, Duration: 60e9, Check: true}
	m := ModelSpec{
		Device: -1, Config: scheduler.Config{Streams: true, Retry: true}, Stream: StreamSpec{Places: 8, LengthNanos: 9e9, Sigma: 0.5},
	}
	for range 4 {
		m.Replicas = append(m.Replicas, ReplicaSpec{FixedNanos: 2e9, StartNanos: 20e9, Sigma: 0.1})
	}
	m.Replicas[1].Faults = []Fault{{Kind: Crash, AtNanos: 20e9}}
	s.Models = []ModelSpec{m}
	s.Functions = []FunctionSpec{{
		Name: "f", SLONanos: 5e9, Candidates: []CandidateSpec{{Gain: 1}}, Traffic: []Traffic{{Shape: Steady, Rate: 2.5}},
	}}
	r, err := Run(s, nil)
	if err != nil {
		t.Fatal(err)
	}
	f := &r.Functions[0]
	t.Logf("of %d calls, %d in time, %d late or lost, %d refused or dropped", f.Offered, f.Good, f.Missed, f.Refused+f.Dropped)
	if f.Offered-f.Good > 3 {
		t.Errorf("of %d calls, %d were not answered in time", f.Offered, f.Offered-f.Good)
	}
}

// deaf is a machine that hears of no first output: its queries are answered without it.
func deaf() broken {
	type stream struct {
		replica scheduler.ReplicaID
		batch   uint64
	}
	items, sent, answered := map[*api.Query]*scheduler.Item{}, map[stream]*scheduler.Item{}, map[*scheduler.Item]bool{}
	var first []scheduler.End
	return broken{
		filter: func(_ *broken, _ api.Nanos, in *Input) bool {
			switch in.Kind {
			case Arrive:
				items[&in.Item.Query] = in.Item
			case FirstOutput:
				if it := sent[stream{in.Replica, in.Result.ID}]; !answered[it] {
					answered[it] = true
					first = append(first, scheduler.End{Item: it, Code: api.OK, Kind: scheduler.AnswerOnly})
				}
				return false
			}
			return true
		},
		change: func(_ *broken, _ api.Nanos, a *scheduler.Actions) {
			for _, d := range a.Dispatches {
				sent[stream{d.Replica, d.Batch.ID}] = items[d.Batch.Queries[0]]
			}
			ends := first
			first = nil
			for _, e := range a.Ends {
				switch before := answered[e.Item]; {
				case before && e.Kind == scheduler.AnswerOnly:
					continue
				case before:
					e.Kind = scheduler.ReleaseOnly
				}
				answered[e.Item] = true
				ends = append(ends, e)
			}
			a.Ends = ends
		},
	}
}

// TestBrokenStreams breaks the promises about streams, and expects the checks to find it.
func TestBrokenStreams(t *testing.T) {
	isFirst := func(in *Input) bool { return in.Kind == FirstOutput }
	// endsEarly tells the machine that a stream has ended when it has its first output.
	endsEarly := func(b *broken, now api.Nanos, in *Input) bool {
		if isFirst(in) {
			done := *in
			done.Kind = BatchDone
			b.Engine.Step(now, &done)
		}
		return !isFirst(in)
	}
	for _, test := range []struct {
		name, want string
		unchecked  bool                    // without the checks that would fail earlier
		cfg        func(*scheduler.Config) // applied to the machine only, not to the world
		engine     broken
	}{
		{name: "the first output answers nothing", want: "has had its first output, and has no answer", engine: broken{filter: func(_ *broken, _ api.Nanos, in *Input) bool {
			return !isFirst(in)
		}}},
		{name: "an answer before the first output", want: "with outputs that no replica gave it", engine: broken{filter: func(b *broken, _ api.Nanos, in *Input) bool {
			if in.Kind == Arrive {
				b.kept = append(b.kept, scheduler.End{Item: in.Item, Code: api.OK, Kind: scheduler.AnswerOnly})
			}
			return true
		}, change: func(b *broken, _ api.Nanos, a *scheduler.Actions) {
			if len(a.Dispatches) > 0 {
				a.Ends = append(a.Ends, b.kept[0]) // the first batch has the first query
			}
		}}},
		{name: "the first output releases", want: "is released out of batch", engine: broken{filter: endsEarly}},
		{name: "a stream gives its place up", want: "which holds 3 of 3", unchecked: true, engine: broken{filter: endsEarly, change: func(_ *broken, _ api.Nanos, a *scheduler.Actions) {
			for i := range a.Ends {
				if e := &a.Ends[i]; e.Kind == scheduler.Both && e.Code == api.OK {
					e.Kind = scheduler.AnswerOnly
				}
			}
		}}},
		{name: "answered again at the end", want: "answered before: true", engine: broken{change: func(_ *broken, _ api.Nanos, a *scheduler.Actions) {
			for i := range a.Ends {
				if e := &a.Ends[i]; e.Kind == scheduler.ReleaseOnly && e.Code == api.OK {
					e.Kind = scheduler.Both
				}
			}
		}}},
		{name: "an end is lost", want: "were never released", unchecked: true, engine: broken{filter: func(b *broken, _ api.Nanos, in *Input) bool {
			return in.Kind != BatchDone
		}}},
		{name: "more streams than places", want: "which holds 3 of 3", engine: broken{filter: func(_ *broken, _ api.Nanos, in *Input) bool {
			in.Places++
			return true
		}}},
		{name: "an empty place", want: "a replica has idled", engine: broken{filter: func(_ *broken, _ api.Nanos, in *Input) bool {
			in.Places--
			return true
		}}},
		{name: "several queries in a stream", want: "has 2 queries (at most 1)", cfg: func(c *scheduler.Config) { c.Streams, c.Batching.MaxBatch = false, 2 }, engine: broken{
			filter: func(_ *broken, _ api.Nanos, in *Input) bool {
				in.Depth = 1
				return true
			},
		}},
		{name: "tried again after its first output", want: "whose stream has had its first output, is sent again", unchecked: true, engine: deaf()},
		{name: "a function starves", want: "starves", engine: broken{weigh: func() func(float64) float64 {
			functions := 0
			return func(float64) float64 {
				functions++
				return []float64{100, 0.01}[functions%2]
			}
		}()}},
	} {
		t.Run(test.name, func(t *testing.T) {
			spec := streamWorld()
			spec.Check = !test.unchecked
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
