package forecast

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/internal/numerals"
	"github.com/xebec-serving/xebec/scheduler"
	"github.com/xebec-serving/xebec/scheduler/autoscale"
)

// Question is what to plan for.
type Question struct {
	Model   Model
	Traffic *Traffic
	// Percentile is the percentage of queries to answer within the objective, more than 0 and less than 100.
	Percentile float64
	// Bounds are the autoscaler's. With Max 0 it may use twice the recommended number of replicas.
	Bounds autoscale.Config
	Seed   uint64
	// Progress, unless it is nil, is called after each simulation with the number of simulations so far. Calls do not
	// overlap.
	Progress func(runs int)
}

// Plan is the answer.
type Plan struct {
	Profile     ProfileUsed `json:"profile"`
	SLOMillis   float64     `json:"slo_ms"`
	Percentile  float64     `json:"percentile"`
	StartMillis float64     `json:"start_ms"`
	Traffic     TrafficUsed `json:"traffic"`
	Choices     []Choice    `json:"choices"`
	Recommended Recommended `json:"recommended"`
	Day         Day         `json:"day"`
	// Measured is what the gateway has measured of the version that the plan is for; nil: the plan is for none, or nothing is known.
	Measured *api.MeasuredStatus `json:"measured,omitempty"`
	// Notes say what was left out.
	Notes []string `json:"notes,omitempty"`
}

// ProfileUsed is the profile that the plan is based on.
type ProfileUsed struct {
	FixedMicros float64 `json:"fixed_micros"`
	EachMicros  float64 `json:"each_micros"`
}

// Profile converts it back.
func (p ProfileUsed) Profile() Profile {
	return Profile{FixedNanos: p.FixedMicros * 1e3, EachNanos: p.EachMicros * 1e3}
}

// TrafficUsed is the traffic that the plan is for, in queries per second.
type TrafficUsed struct {
	Shape   string  `json:"shape"`
	Low     float64 `json:"low"`
	Peak    float64 `json:"peak"`
	Seconds float64 `json:"seconds"`
}

// Recommended is the recommended choice, and why it is.
type Recommended struct {
	Replicas int    `json:"replicas"`
	Batching string `json:"batching"`
	Cap      int    `json:"cap"`
	Reason   string `json:"reason"`
}

// Make answers a question. It makes some 20 runs with up to [MaxRunQueries] queries each, on all cores. That takes
// seconds, and half a minute on two cores if a hundred replicas are needed. If no number of replicas is enough, the
// error says what to do.
func Make(ctx context.Context, q *Question) (*Plan, error) {
	if err := q.Model.check(); err != nil {
		return nil, err
	}
	if !(q.Percentile > 0 && q.Percentile < 100) {
		return nil, fmt.Errorf("the percentile is %g: expected more than 0 and less than 100", q.Percentile)
	}
	t := &table{ctx: ctx, model: &q.Model, traffic: q.Traffic, fraction: q.Percentile / 100, seed: q.Seed, maxReplicas: api.MaxReplicas, progress: q.Progress}
	all, err := t.make()
	if err != nil {
		return nil, err
	}
	m := &q.Model
	p := &Plan{
		Profile:   ProfileUsed{FixedMicros: m.FixedNanos / 1e3, EachMicros: m.EachNanos / 1e3},
		SLOMillis: float64(m.SLONanos) / 1e6, Percentile: q.Percentile, StartMillis: float64(m.StartNanos) / 1e6,
		Traffic: TrafficUsed{Shape: q.Traffic.Shape, Low: q.Traffic.Low, Peak: q.Traffic.Peak, Seconds: q.Traffic.Span.Seconds()},
	}
	best := recommend(all)
	if best == nil {
		own := all[0]
		return nil, fmt.Errorf("%.0f queries per second within %s are too many for %d replicas, the most that a model can have: one serves %.0f in batches of %d; expected a faster model, or a longer objective for larger batches",
			q.Traffic.Peak, time.Duration(m.SLONanos), t.maxReplicas, own.perSecond, own.cap)
	}
	p.Recommended = Recommended{Replicas: best.Replicas, Batching: best.Batching, Cap: best.Cap, Reason: t.reason(all, best)}
	for _, r := range all {
		p.Choices = append(p.Choices, r.choices...)
		if r.tooMany {
			p.Notes = append(p.Notes, fmt.Sprintf("a batch cap of %d is not in the table: it needs about %.0f replicas or more", r.cap, math.Ceil(t.needed(r))))
		}
	}
	p.Day, err = t.day(q, rowsOf(all, best), best.Replicas)
	return p, err
}

// rowsOf finds the batching that a choice uses.
func rowsOf(all []*rows, c *Choice) *rows {
	for _, r := range all {
		if r.own == c.own && r.cap == c.Cap {
			return r
		}
	}
	return all[0]
}

// reason says why a choice is recommended.
func (t *table) reason(all []*rows, best *Choice) string {
	text := fmt.Sprintf("the fewest that answer %s%% of the queries within %s at %s queries per second", numerals.Short(100*t.fraction), time.Duration(t.model.SLONanos), numerals.Short(t.traffic.Peak))
	for _, r := range all {
		for i := range r.choices {
			c := &r.choices[i]
			if c.Replicas == best.Replicas-1 && c.own == best.own && c.Cap == best.Cap {
				if 1-c.Missed < t.fraction {
					text += fmt.Sprintf("; with %d, %s%% are missed", c.Replicas, numerals.Short(100*c.Missed))
				} else {
					text += fmt.Sprintf("; %d cannot keep up with this rate for long", c.Replicas)
				}
			}
		}
	}
	switch {
	case best.own && (t.model.batching().Policy == scheduler.AIMD || t.model.batching().Policy == scheduler.Quantile):
		text += fmt.Sprintf("; %s finds the cap by itself and adapts it when the model gets slower or faster", best.Batching)
	case !best.own:
		text += fmt.Sprintf("; declare batching: {policy: fixed, max: %d} to use it", best.Cap)
	}
	return text
}
