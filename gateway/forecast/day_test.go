package forecast

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/scheduler"
	"github.com/xebec-serving/xebec/scheduler/autoscale"
	"github.com/xebec-serving/xebec/scheduler/sim"
)

// byRate is a scaler that only looks at the arrivals of the last ten seconds. It does not react to what was missed, so
// it decides the same for both simulations, and every difference is theirs.
type byRate struct {
	each float64
	past []autoscale.Sample
}

func (s *byRate) Decide(in *autoscale.Sample) autoscale.Decision {
	s.past = append(s.past, *in)
	for in.Now-s.past[0].Now > 10e9 {
		s.past = s.past[1:]
	}
	n := in.Wanted
	if seconds := float64(in.Now-s.past[0].Now) / 1e9; seconds >= 5 {
		n = int(math.Ceil(float64(in.Arrived-s.past[0].Arrived) / seconds / s.each))
	}
	return autoscale.Decision{Replicas: min(max(n, in.Config.Min), in.Config.Max)}
}

// playBoth plays traffic in rates, as a plan does, and query by query in the simulator.
func playBoth(t *testing.T, m *Model, b autoscale.Config, scaler func() sim.Scaler, initial int, shape sim.Traffic, x *Traffic) (rates *fleet, queries *sim.ForecastResult) {
	t.Helper()
	tab := &table{ctx: t.Context(), model: m, traffic: x, fraction: 0.99, seed: 1, maxReplicas: api.MaxReplicas}
	one, err := tab.saturate(m.batching(), true)
	if err != nil {
		t.Fatal(err)
	}
	rates = &fleet{
		model: m, traffic: x, bounds: b, scaler: scaler(), step: shortestStep,
		arrivals: rand.New(rand.NewPCG(1, 2)), queueing: rand.New(rand.NewPCG(1, 3)),
		perSecond: one.perSecond, batchCap: one.cap, waitNanos: max(0, float64(m.SLONanos-m.Nanos(one.cap))), ready: initial, wanted: initial,
	}
	if err := rates.play(tab, 0); err != nil {
		t.Fatal(err)
	}
	f := sim.Forecast{
		Seed: 1, Duration: api.Nanos(x.Span), Traffic: []sim.Traffic{shape}, SLONanos: m.SLONanos, ColdStartNanos: m.ColdStartNanos, Config: m.Config,
		Scale: sim.ScaleSpec{
			Scaler: scaler, Bounds: b, Initial: initial,
			Replica: sim.ReplicaSpec{FixedNanos: int64(m.FixedNanos), EachNanos: int64(m.EachNanos), Sigma: scatter, StartNanos: m.StartNanos},
		},
	}
	if queries, err = f.Run(); err != nil {
		t.Fatal(err)
	}
	return rates, queries
}

// TestDayIsLikeTheSimulation: a day in rates has the same result as the simulation of each of its queries.
func TestDayIsLikeTheSimulation(t *testing.T) {
	model := func(fixed, each, slo int64) *Model {
		return &Model{Profile: Profile{float64(fixed), float64(each)}, SLONanos: slo, StartNanos: 2e9, Config: scheduler.DefaultConfig()}
	}
	// The real autoscaler reacts to what happened, so a difference by chance makes it decide differently.
	real := func() sim.Scaler { return autoscale.New() }
	simple := func(each float64) func() sim.Scaler { return func() sim.Scaler { return &byRate{each: each} } }
	within := func(min, max int) autoscale.Config {
		b := bounds
		b.Min, b.Max = min, max
		return b
	}
	for _, c := range []struct {
		name string
		// missedBy and hoursBy are how far apart the two may be, as fractions of all queries and of the replica-hours.
		missedBy, hoursBy float64
		m                 *Model
		scaler            func() sim.Scaler
		b                 autoscale.Config
		initial           int
		shape             string
		low, peak         float64
	}{
		{"a fixed number is enough", 0.002, 0.001, model(40*ms, 4*ms, 400*ms), real, within(2, 2), 2, "steady", 150, 150},
		{"a fixed number is overloaded by two thirds", 0.01, 0.001, model(40*ms, 4*ms, 400*ms), real, within(1, 1), 1, "steady", 300, 300},
		{"a slow climb", 0.002, 0.03, model(40*ms, 4*ms, 400*ms), simple(125), within(1, 8), 1, "ramp", 25, 625},
		{"a climb that the scaler follows too late", 0.01, 0.03, model(40*ms, 4*ms, 400*ms), simple(225), within(1, 8), 1, "ramp", 25, 625},
		{"a sudden rush", 0.01, 0.06, model(40*ms, 4*ms, 400*ms), simple(125), within(1, 8), 1, "square", 25, 625},
		{"long single queries", 0.01, 0.04, model(0, 200*ms, 1000*ms), simple(3), within(1, 8), 2, "daily", 1, 15},
		{"a rush under the autoscaler", 0.03, 0.35, model(40*ms, 4*ms, 400*ms), real, within(1, 8), 1, "square", 25, 625},
		{"single queries under the autoscaler", 0.02, 0.2, model(0, 200*ms, 1000*ms), real, within(1, 8), 2, "daily", 1, 15},
	} {
		t.Run(c.name, func(t *testing.T) {
			const over = 4 * time.Minute
			x, err := Shaped(c.shape, c.low, c.peak, over, 1)
			if err != nil {
				t.Fatal(err)
			}
			shape := sim.Traffic{Rate: c.low, Peak: c.peak, Period: api.Nanos(over), Duty: 1}
			switch c.shape {
			case "steady":
				shape.Shape = sim.Steady
			case "ramp":
				shape.Shape = sim.Ramp
			case "daily":
				shape.Shape = sim.Daily
			case "square": // the simulator begins a period with the peak, Shaped has it in the middle
				shape.Shape, shape.Duty = sim.Square, 1.0/3
				rate := x.rate
				x.rate = func(at api.Nanos) float64 {
					return rate(api.Nanos(math.Mod(float64(at)+float64(over)/3, float64(over))))
				}
			}
			rates, queries := playBoth(t, c.m, c.b, c.scaler, c.initial, shape, x)
			missed, hours := float64(queries.Missed)/float64(queries.Offered), queries.ReplicaSeconds/3600
			t.Logf("missed %.4f in rates, %.4f by query; %.3f and %.3f replica-hours; at most %d and %d replicas", rates.total.MissedPart, missed, rates.total.ReplicaHours, hours, rates.total.Peak, queries.Peak)
			if math.Abs(rates.total.MissedPart-missed) > c.missedBy {
				t.Errorf("the fraction that is missed is %.4f in rates and %.4f by query", rates.total.MissedPart, missed)
			}
			if math.Abs(rates.total.ReplicaHours-hours) > c.hoursBy*hours {
				t.Errorf("replica-hours are %.3f in rates and %.3f by query", rates.total.ReplicaHours, hours)
			}
			if offered := float64(queries.Offered); math.Abs(float64(rates.total.Queries)-offered) > 0.03*offered+100 {
				t.Errorf("%d queries arrived in rates, %d by query", rates.total.Queries, queries.Offered)
			}
		})
	}
}

// TestSleeping: a model with Min 0 sleeps. Each time it wakes, the queries during its start are missed, unless they may
// wait.
func TestSleeping(t *testing.T) {
	m := &Model{Profile: Profile{10e6, 1e6}, SLONanos: 100 * ms, StartNanos: 2e9, Config: scheduler.DefaultConfig()}
	x, err := Shaped("steady", 1.0/3600, 1.0/3600, 7*day, 1)
	if err != nil {
		t.Fatal(err)
	}
	tab := &table{ctx: t.Context(), model: m, traffic: x, fraction: 0.99, seed: 1, maxReplicas: api.MaxReplicas}
	b := bounds
	b.Min, b.Max = 0, 2
	one := &rows{perSecond: 700, cap: 30}
	d, err := tab.day(&Question{Traffic: x, Bounds: b}, one, 1)
	if err != nil {
		t.Fatal(err)
	}
	a := &d.Autoscaler
	if a.ColdStarts < 100 || a.Missed < int64(a.ColdStarts) || a.Starts < a.ColdStarts || a.ReplicaHours > 40 || d.Fixed.Missed > 0 || math.Abs(d.Fixed.ReplicaHours-168) > 0.1 {
		t.Errorf("168 queries in a week, an hour apart: %+v, and with one replica %+v", *a, d.Fixed)
	}
	m.StartNanos = 50e6 // within the objective
	if d, err = tab.day(&Question{Traffic: x, Bounds: b}, one, 1); err != nil {
		t.Fatal(err)
	}
	if a := &d.Autoscaler; a.ColdStarts < 100 || a.Missed > 0 {
		t.Errorf("with a start that is shorter than the objective, queries are missed: %+v", *a)
	}
}

func TestPoisson(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for _, mean := range []float64{0.01, 1, 20, 29.9, 31, 5000} {
		sum, squares, n := 0.0, 0.0, 200_000
		for range n {
			v := float64(poisson(rng, mean))
			sum += v
			squares += v * v
		}
		got := sum / float64(n)
		variance := squares/float64(n) - got*got
		if math.Abs(got-mean) > 6*math.Sqrt(mean/float64(n)) || math.Abs(variance-mean) > 0.05*mean {
			t.Errorf("with a mean of %g: mean %g, variance %g", mean, got, variance)
		}
	}
	if poisson(rng, 0) != 0 || poisson(rng, math.NaN()) != 0 {
		t.Error("a mean of 0 or NaN draws more than 0")
	}
}
