package sim

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/xebec-serving/xebec/scheduler"
	"github.com/xebec-serving/xebec/scheduler/planner"
)

// TestSeeds runs short random worlds with all checks on. A failure prints the end of the transcript and how to see all
// of it.
func TestSeeds(t *testing.T) {
	seeds := 300
	if testing.Short() || raceEnabled {
		seeds = 40
	}
	for seed := range uint64(seeds) {
		if err := Replay(seed); err != nil {
			t.Fatal(err)
		}
	}
}

// TestDeterminism: a world's transcript is the same each time, and differs between seeds.
func TestDeterminism(t *testing.T) {
	seen := map[string]uint64{}
	for seed := range uint64(8) {
		first := transcript(t, Random(seed))
		if again := transcript(t, Random(seed)); again != first {
			t.Errorf("seed %d: two runs differ", seed)
		}
		if other, ok := seen[first]; ok {
			t.Errorf("seeds %d and %d are the same world", other, seed)
		}
		seen[first] = seed
	}
}

func transcript(t *testing.T, s *Spec) string {
	h := sha256.New()
	if _, err := Run(s, h); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%x", h.Sum(nil))
}

// TestRandomWorldsCoverEverything: together the random worlds contain everything that they are meant to test.
func TestRandomWorldsCoverEverything(t *testing.T) {
	var all bytes.Buffer
	worlds := 30
	for seed := range uint64(worlds) {
		if _, err := Run(Random(seed), &all); err != nil {
			t.Fatal(err)
		}
	}
	text := all.String()
	for _, want := range []string{
		"> send ", "> hedge ", " +", "ok\n", "deadline_exceeded", "overloaded", "cancelled", "replica_lost", "too_large", "model_error", "no_replica",
		"> answer ", "> release ", "> kill ", "has had no answer", "> drained ", "gone r", "send failed", "> want turn", "> end turn", "  turn of",
		"first output r", "places 8", "plan whole", "plan split", "plan stream", "depth 4", "drain r", "* replicas 0 → ", " → 0: ", ": waking, at once: true", "at once: false",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q does not happen in %d random worlds", want, worlds)
		}
	}
}

// TestExplain: the error of a failed world has its last lines and the command that replays it.
func TestExplain(t *testing.T) {
	s := busyWorld()
	s.Engine = func(m *ModelSpec) Engine {
		cfg := m.Config
		cfg.MaxQueue = 100
		return NewMachine(cfg)
	}
	_, err := Run(s, nil)
	if err == nil {
		t.Fatal("expected this world to fail")
	}
	text := Explain(s, err, "make sim SEED=1").Error()
	for _, want := range []string{"make sim SEED=1", err.Error(), "!! ", "arrive q"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in the explanation:\n%s", want, text)
		}
	}
	if n := strings.Count(text, "\n"); n < 20 || n > tailLines+10 {
		t.Errorf("the explanation has %d lines, expected at most %d", n, tailLines+10)
	}
}

// TestQuietWorld compares a world with a calculation: one query at a time to a replica without jitter.
func TestQuietWorld(t *testing.T) {
	s := &Spec{
		Seed: 1, Policy: Unplanned, Duration: 1e9, Check: true,
		Models: []ModelSpec{{Device: -1, Replicas: []ReplicaSpec{{FixedNanos: 2e6, EachNanos: 1e6}}}},
		Functions: []FunctionSpec{{
			Name: "f", SLONanos: 20e6, Candidates: []CandidateSpec{{Gain: 1}}, Traffic: []Traffic{{Shape: Closed, Clients: 1}},
		}},
	}
	r, err := Run(s, nil)
	if err != nil {
		t.Fatal(err)
	}
	f := &r.Functions[0]
	const each = int64(3e6 + 2*handNanos)
	if want := 1e9/(each+1) + 1; f.Offered != want || f.Good != want || f.Missed+f.Refused != 0 {
		t.Errorf("%d offered, %d good, expected %d of each: %+v", f.Offered, f.Good, want, *f)
	}
	if p50, p99 := f.Quantile(0.5), f.Quantile(0.99); p50 != each || p99 != each {
		t.Errorf("p50 %d, p99 %d, expected %d ns", p50, p99, each)
	}
	if want := f.Good * 3e6; r.BusyNanos != want {
		t.Errorf("busy for %d ns, expected %d", r.BusyNanos, want)
	}
}

func TestQuantileAndRecovery(t *testing.T) {
	f := FunctionResult{Latencies: []int64{5, 1, 4, 2, 3}, Missed: 5, Series: make([]Slot, 10)}
	for _, test := range []struct {
		q    float64
		want int64
	}{{0.1, 1}, {0.5, 5}, {0.51, math.MaxInt64}, {1, math.MaxInt64}} {
		if got := f.Quantile(test.q); got != test.want {
			t.Errorf("quantile %v is %d, expected %d", test.q, got, test.want)
		}
	}
	f.Series[4].Refused, f.Series[8].Missed = 1, 1
	if got := f.Recovery(20e6, 100e6); got != 70e6 {
		t.Errorf("recovered after %d ns, expected 70 ms", got)
	}
	if got := f.Recovery(20e6, 80e6); got != 30e6 {
		t.Errorf("recovered after %d ns up to the next burst, expected 30 ms", got)
	}
}

func TestCapacity(t *testing.T) {
	m := ModelSpec{Replicas: []ReplicaSpec{{FixedNanos: 2e6, EachNanos: 200e3}, {FixedNanos: 2e6, EachNanos: 200e3}}}
	if got := m.Capacity(10e6); got != 8000 { // batches of 40 in 10 ms
		t.Errorf("capacity %v, expected 8000", got)
	}
	m.Config = scheduler.Config{Batching: scheduler.Batching{MaxBatch: 1}}
	if got, want := m.Capacity(10e6), 2/0.0022; math.Abs(got-want) > 1e-6 {
		t.Errorf("capacity one by one %v, expected %v", got, want)
	}
}

// TestSpecErrors: an invalid world is refused, and the error says why.
func TestSpecErrors(t *testing.T) {
	for _, test := range []struct {
		change func(s *Spec)
		want   string
	}{
		{func(s *Spec) { s.Models[0].Device = 1 }, "device 1 of 0"},
		{func(s *Spec) { s.Functions[0].Candidates = nil }, "no candidates"},
		{func(s *Spec) { s.Functions[0].Candidates[0].Model = 3 }, "model 3 of 1"},
	} {
		s := busyWorld()
		test.change(s)
		if _, err := Run(s, nil); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("expected an error with %q, got %v", test.want, err)
		}
	}
}

// TestParts: any run of queries meets the parts of a plan, and the rest is refused.
func TestParts(t *testing.T) {
	s := &Spec{
		Seed: 1, Policy: Unplanned, Duration: 1e9,
		Models: []ModelSpec{{Device: -1}, {Device: -1}},
		Functions: []FunctionSpec{
			{Name: "one", Candidates: []CandidateSpec{{Model: 0}, {Model: 1}}},
			{Name: "all", Candidates: []CandidateSpec{{Model: 0}, {Model: 1}}, Mode: planner.All},
			{Name: "shares", Candidates: []CandidateSpec{{Model: 0, Share: 3}, {Model: 1, Share: 1}}, Mode: planner.Shares},
		},
	}
	w := &world{spec: s, rng: stream(1, 0)}
	if err := w.build(); err != nil {
		t.Fatal(err)
	}
	for _, f := range w.functions[:2] {
		f.parts = []float64{0.25, 0.5}
		asked := [2]int{}
		for range 1000 {
			w.call(f, -1)
			if c := w.calls[len(w.calls)-1]; c != nil {
				for _, q := range c.queries {
					asked[q.model.index]++
				}
			}
		}
		if math.Abs(float64(asked[0])-250) > 3 || math.Abs(float64(asked[1])-500) > 3 || math.Abs(float64(f.refused)-250) > 3 {
			t.Errorf("%s: asked %v, refused %d of 1000", f.spec.Name, asked, f.refused)
		}
	}
	// The policy wishes three quarters and one quarter. The plan refuses a fifth of the queries, and has room for a
	// third of the wishes for the first candidate.
	f := w.functions[2]
	f.parts, f.refuse, f.limits = []float64{0.2, 0.6}, 0.2, []float64{1.0 / 3, 1}
	asked := [2]int{}
	const n = 20000
	for range n {
		w.call(f, -1)
		if c := w.calls[len(w.calls)-1]; c != nil {
			asked[c.queries[0].model.index]++
		}
	}
	for i, got := range []float64{float64(asked[0]), float64(asked[1]), float64(f.refused), float64(f.wished[0])} {
		if want := n * []float64{0.2, 0.6, 0.2, 0.75}[i]; math.Abs(got-want) > 0.02*n {
			t.Errorf("shares: asked %v, refused %d, wished %v of %d", asked, f.refused, f.wished, n)
			break
		}
	}
}
