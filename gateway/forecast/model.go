package forecast

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/xebec-serving/xebec/scheduler"
	"github.com/xebec-serving/xebec/scheduler/sim"
)

// Profile is how long a batch takes: FixedNanos, and EachNanos for each query in it.
type Profile struct{ FixedNanos, EachNanos float64 }

// maxProfile catches typing errors: no query takes an hour.
const maxProfile = time.Hour

// ParseProfile reads "2ms+0.1ms", a time per batch and a time per query, or "5ms", a time per query. With the latter,
// batching saves nothing.
func ParseProfile(text string) (Profile, error) {
	const expected = `expected a time per batch and a time per query, such as "2ms+0.1ms", or only a time per query, such as "5ms"`
	fixed, each, both := strings.Cut(text, "+")
	if !both {
		fixed, each = "0s", text
	}
	var p Profile
	for _, part := range []struct {
		text  string
		nanos *float64
	}{{fixed, &p.FixedNanos}, {each, &p.EachNanos}} {
		d, err := time.ParseDuration(strings.TrimSpace(part.text))
		switch {
		case err != nil:
			return Profile{}, fmt.Errorf("profile %.40q: %s", text, expected)
		case d < 0 || d > maxProfile:
			return Profile{}, fmt.Errorf("profile %.40q: %s is out of range: expected 0s to %s", text, d, maxProfile)
		}
		*part.nanos = float64(d)
	}
	if p.FixedNanos+p.EachNanos == 0 {
		return Profile{}, fmt.Errorf("profile %.40q: a batch cannot take no time: %s", text, expected)
	}
	return p, nil
}

// Nanos is how long a batch of n takes.
func (p Profile) Nanos(n int) int64 { return int64(p.FixedNanos + float64(n)*p.EachNanos) }

// String is "2ms + 100µs × n".
func (p Profile) String() string {
	return fmt.Sprintf("%s + %s × n", span(p.FixedNanos), span(p.EachNanos))
}

// span writes nanoseconds with about three significant digits.
func span(nanos float64) string {
	d := time.Duration(nanos)
	for unit := time.Second; unit >= time.Microsecond; unit /= 1000 {
		if d >= unit {
			return d.Round(unit / 1000).String()
		}
	}
	return d.String()
}

// Model is the model version to plan for.
type Model struct {
	Profile
	// SLONanos is the objective. ColdStartNanos is how long a query may wait if there is no replica; less than the
	// objective means the objective.
	SLONanos, ColdStartNanos int64
	// StartNanos is how long a replica takes to start.
	StartNanos int64
	// Config is how the gateway schedules the model. A batching objective of 0 is two fifths of the SLO, as in the
	// gateway.
	Config scheduler.Config
}

func (m *Model) check() error {
	bad := func(v float64) bool { return math.IsNaN(v) || v < 0 || v > float64(maxProfile) }
	switch {
	case bad(m.FixedNanos) || bad(m.EachNanos) || m.FixedNanos+m.EachNanos < 1:
		return fmt.Errorf("the profile is %s: expected 1ns to %s", m.Profile, maxProfile)
	case m.SLONanos <= 0:
		return errors.New("the objective must be more than 0")
	case m.StartNanos < 0 || m.ColdStartNanos < 0:
		return errors.New("start times must be 0 or more")
	}
	return nil
}

// scatter is the standard deviation of batch times, as a fraction of the mean. On a quiet machine it is 5 %, on a busy
// one 20 %.
const scatter = 0.1

// batching is the model's own, with its objective filled in.
func (m *Model) batching() scheduler.Batching {
	b := m.Config.Batching
	if b.MaxBatch <= 0 {
		b.MaxBatch = scheduler.DefaultMaxBatch
	}
	if b.ObjectiveNanos <= 0 {
		b.ObjectiveNanos = m.SLONanos * 2 / 5
	}
	return b
}

// fixed is the model's batching with a fixed cap instead of its controller.
func (m *Model) fixed(batchCap int) scheduler.Batching {
	b := m.batching()
	b.Policy, b.MaxBatch = scheduler.Fixed, batchCap
	return b
}

// guess is the largest batch that the profile allows, which is about what a controller finds.
func (m *Model) guess(b scheduler.Batching) int {
	switch {
	case b.Policy == scheduler.None:
		return 1
	case b.Policy == scheduler.Fixed || b.Pad:
		return b.MaxBatch
	}
	n := float64(b.MaxBatch)
	if m.EachNanos > 0 {
		n = min(n, (float64(b.ObjectiveNanos)-m.FixedNanos)/m.EachNanos)
	}
	return max(1, int(n))
}

// world is the model with some replicas, under a load.
func (m *Model) world(seed uint64, replicas int, b scheduler.Batching, l *load) *sim.Spec {
	cfg := m.Config
	cfg.Batching = b
	cfg.Shared = false // alone on its device
	ms := sim.ModelSpec{Name: "model", Device: -1, SLONanos: m.SLONanos, Config: cfg}
	for range replicas {
		ms.Replicas = append(ms.Replicas, sim.ReplicaSpec{FixedNanos: int64(m.FixedNanos), EachNanos: int64(m.EachNanos), Sigma: scatter})
	}
	return &sim.Spec{
		Seed: seed, Policy: sim.Planned, EpochNanos: l.epochNanos(), Warm: l.warm, Duration: l.duration,
		Models: []sim.ModelSpec{ms},
		Functions: []sim.FunctionSpec{{
			Name: "function", Weight: 1, SLONanos: m.SLONanos, Candidates: []sim.CandidateSpec{{Gain: 1}}, Traffic: l.traffic,
		}},
	}
}
