package sim

import (
	"fmt"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/scheduler"
	"github.com/xebec-serving/xebec/scheduler/autoscale"
)

// Scaler decides how many replicas a model has, as the gateway's autoscaler does. [autoscale.Scaler] is one.
type Scaler interface {
	Decide(s *autoscale.Sample) autoscale.Decision
}

// ScaleSpec makes a model's replicas follow its queries, instead of being there from the start.
type ScaleSpec struct {
	// Scaler makes the scaler. It is called once for each run, so that runs are independent.
	Scaler func() Scaler
	// Bounds are the operator's settings.
	Bounds autoscale.Config
	// TickNanos is the time between two runs of the scaler; 0: 250 ms, as in the gateway. A query that comes while
	// there is no replica runs it at once.
	TickNanos int64
	// Replica describes each replica. A replica that was ordered takes batches after its StartNanos, with lognormal
	// jitter of StartSigma. AtNanos is ignored. Faults apply to the oldest replica, except Slow, which applies to all.
	Replica    ReplicaSpec
	StartSigma float64
	// Initial is the number of replicas that are ready at the start.
	Initial int
	// UnknownPart is the part of the samples that cannot be read. FailPart is the part of starts that fail at their end
	// and are repeated.
	UnknownPart, FailPart float64
}

// Forecast asks what becomes of this traffic, and what it costs, with replicas like this one that scale within these
// bounds. It is one function on one model; worlds with more are a [Spec].
type Forecast struct {
	Seed uint64
	// Duration is how long queries come, at most a week.
	Duration api.Nanos
	Traffic  []Traffic
	// SLONanos is the function's objective, more than 0. ColdStartNanos is how long a query may wait when there is no
	// replica.
	SLONanos, ColdStartNanos int64
	// Config is the model's. A batching objective of 0 means two fifths of the SLO, as in the gateway; the other
	// defaults are the scheduler's.
	Config scheduler.Config
	Scale  ScaleSpec
}

// ForecastResult is the result of a forecast.
type ForecastResult struct {
	// Points has the run second by second.
	Points []ForecastPoint
	// Decisions are those that changed the number of wanted replicas, in order.
	Decisions []ScaleDecision
	// Offered counts queries. Missed ones had no answer within the SLO: they were refused or dropped (Refused), waited
	// too long for a replica, or were late in another way.
	Offered, Missed, Refused int64
	// P50Nanos and P99Nanos are quantiles of the answers, those after the SLO included; math.MaxInt64 if too many
	// queries had none.
	P50Nanos, P99Nanos int64
	ScaleTotals
}

// ForecastPoint is a second of a run.
type ForecastPoint struct {
	// At is when it began.
	At api.Nanos
	// Offered queries came in this second, and Missed of them had no answer within the SLO. As it is one second, both
	// are rates.
	Offered, Missed int64
	ScalePoint
}

// ScalePoint is the number of replicas of a model at the end of a second: Wanted by the last decision, Ready ones take
// batches, Starting ones will, and Draining ones no longer do.
type ScalePoint struct {
	Wanted, Ready, Starting, Draining int
}

// ScaleTotals are the costs of scaling.
type ScaleTotals struct {
	// ReplicaSeconds is from the order of each replica to its end, or the end of the traffic.
	ReplicaSeconds float64
	// Starts and Stops count replicas, without those that are there at the start. ColdStarts counts queries that found
	// no replica and none starting. Peak is the largest number at a time, ready, starting or draining.
	Starts, Stops, ColdStarts, Peak int
	// Changes counts decisions for a new number. Reversals counts those that went in the opposite direction of the
	// change before: a scaler that flaps has many.
	Changes, Reversals int
}

// ScaleDecision is one change of the number of wanted replicas.
type ScaleDecision struct {
	At       api.Nanos
	From, To int
	// AtOnce: it was made between two ticks, because a query found no replica.
	AtOnce bool
	autoscale.Decision
}

// Bounds of a forecast.
const (
	// maxForecastNanos is a week: traffic caused by people repeats by then.
	maxForecastNanos = api.Nanos(7 * 24 * 3600e9)
	// maxForecastQueries take about two minutes and 1 GiB.
	maxForecastQueries = 50_000_000
)

// Run simulates the forecast. The same Forecast has the same result on any machine. The error says what is invalid in
// it.
//
// The machine, its admission and its batching are the real ones. There is no planner, because with one function there
// is nothing to divide.
func (f *Forecast) Run() (*ForecastResult, error) {
	spec, err := f.spec()
	if err != nil {
		return nil, err
	}
	run, err := Run(spec, nil)
	if err != nil {
		return nil, err
	}
	calls, scale := &run.Functions[0], &run.Scales[0]
	r := &ForecastResult{
		Decisions: scale.Decisions, ScaleTotals: scale.ScaleTotals,
		Offered: calls.Offered, Missed: calls.Refused + calls.Dropped + calls.Missed + calls.Slow, Refused: calls.Refused + calls.Dropped,
		P50Nanos: calls.Quantile(0.5), P99Nanos: calls.Quantile(0.99),
	}
	const slots = int(pointNanos / SlotNanos)
	for i, p := range scale.Points {
		point := ForecastPoint{At: api.Nanos(i) * pointNanos, ScalePoint: p}
		for j := range calls.Series[i*slots : (i+1)*slots] {
			s := &calls.Series[i*slots+j]
			point.Offered += int64(s.Offered)
			point.Missed += s.Late()
		}
		r.Points = append(r.Points, point)
	}
	return r, nil
}

// spec is the world of the forecast.
func (f *Forecast) spec() (*Spec, error) {
	expected := 0.0
	for i := range f.Traffic {
		t := &f.Traffic[i]
		if t.Shape == Closed {
			return nil, fmt.Errorf("a forecast cannot have closed-loop clients, because their number of queries depends on the answers: expected traffic with a rate")
		}
		if err := t.check(); err != nil {
			return nil, fmt.Errorf("traffic %d: %w", i+1, err)
		}
		expected += t.expected(f.Duration)
	}
	switch r := &f.Scale.Replica; {
	case f.Duration <= 0 || f.Duration > maxForecastNanos:
		return nil, fmt.Errorf("a forecast of %v: expected more than 0 and at most %v", span(f.Duration), span(maxForecastNanos))
	case expected > maxForecastQueries:
		return nil, fmt.Errorf("a forecast of about %.0f queries: at most %d are simulated; use a shorter duration, or a lower rate with replicas that are slower in proportion",
			expected, maxForecastQueries)
	case f.SLONanos <= 0:
		return nil, fmt.Errorf("a latency objective of %v: expected more than 0", span(api.Nanos(f.SLONanos)))
	case r.FixedNanos < 0 || r.EachNanos < 0 || r.FixedNanos+r.EachNanos <= 0:
		return nil, fmt.Errorf("a batch of n queries takes %v + n × %v: expected more than 0", span(api.Nanos(r.FixedNanos)), span(api.Nanos(r.EachNanos)))
	}
	m := ModelSpec{Name: "model", Device: -1, Config: f.Config, SLONanos: f.SLONanos, Scale: &f.Scale}
	if m.Config.Batching.ObjectiveNanos == 0 {
		m.Config.Batching.ObjectiveNanos = f.SLONanos * 2 / 5
	}
	return &Spec{
		Seed: f.Seed, Duration: f.Duration, Policy: Unplanned, Models: []ModelSpec{m},
		Functions: []FunctionSpec{{
			Name: "function", Weight: 1, SLONanos: f.SLONanos, ColdStartNanos: f.ColdStartNanos,
			Candidates: []CandidateSpec{{Gain: 1}}, Traffic: f.Traffic,
		}},
	}, nil
}
