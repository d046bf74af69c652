package capacity

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/scheduler"
	"github.com/xebec-serving/xebec/scheduler/autoscale"
)

// Question is what a plan is asked for.
type Question struct {
	Model   Model
	Traffic *Traffic
	// Percentile of the queries, more than 0 and less than 100, are to be answered within the objective.
	Percentile float64
	// Bounds are the autoscaler's. With Max 0 it may have twice what is recommended.
	Bounds autoscale.Config
	Seed   uint64
	// Progress, if it is not nil, is told how many simulations have been run, one after the other.
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
	// Notes say what was left out.
	Notes []string `json:"notes,omitempty"`
}

// ProfileUsed is what was planned with.
type ProfileUsed struct {
	FixedMicros float64 `json:"fixed_micros"`
	EachMicros  float64 `json:"each_micros"`
}

// TrafficUsed is what was planned for, in queries per second.
type TrafficUsed struct {
	Shape   string  `json:"shape"`
	Low     float64 `json:"low"`
	Peak    float64 `json:"peak"`
	Seconds float64 `json:"seconds"`
}

// Recommended is the choice that is recommended, and why.
type Recommended struct {
	Replicas int    `json:"replicas"`
	Batching string `json:"batching"`
	Cap      int    `json:"cap"`
	Reason   string `json:"reason"`
}

// Make answers a question. It makes some 20 runs with up to [MaxRunQueries] each, on all cores: of seconds in all, and where a hundred
// replicas are needed of half a minute on two cores. The error says what to do when no number of replicas is enough.
func Make(ctx context.Context, q *Question) (*Plan, error) {
	if err := q.Model.check(); err != nil {
		return nil, err
	}
	if !(q.Percentile > 0 && q.Percentile < 100) {
		return nil, fmt.Errorf("a percentile of %g: expected more than 0 and less than 100", q.Percentile)
	}
	t := &table{ctx: ctx, model: &q.Model, traffic: q.Traffic, part: q.Percentile / 100, seed: q.Seed, most: api.MaxReplicas, told: q.Progress}
	if t.told == nil {
		t.told = func(int) {}
	}
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
		return nil, fmt.Errorf("%.0f queries per second within %s are too many for %d replicas, the most that a model has: one does %.0f of them in batches of %d; expected a faster model, or a longer objective for larger batches",
			q.Traffic.Peak, time.Duration(m.SLONanos), t.most, own.perSecond, own.cap)
	}
	p.Recommended = Recommended{Replicas: best.Replicas, Batching: best.Batching, Cap: best.Cap, Reason: t.reason(all, best)}
	for _, x := range all {
		p.Choices = append(p.Choices, x.choices...)
		if x.tooMany {
			p.Notes = append(p.Notes, fmt.Sprintf("a batch cap of %d needs some %.0f replicas or more, and is not in the table", x.cap, math.Ceil(t.needed(x))))
		}
	}
	p.Day, err = t.day(q, all[0], chosen(all, best), best.Replicas)
	return p, err
}

func chosen(all []*tried, best *Choice) *tried {
	for _, x := range all {
		if x.own == best.own && x.cap == best.Cap {
			return x
		}
	}
	return all[0]
}

// reason says why it is the one.
func (t *table) reason(all []*tried, best *Choice) string {
	text := fmt.Sprintf("the fewest with %s%% of the queries within %s at %s queries per second", figure(100*t.part), time.Duration(t.model.SLONanos), figure(t.traffic.Peak))
	below := ""
	for _, x := range all {
		for i := range x.choices {
			c := &x.choices[i]
			if c.Replicas == best.Replicas-1 && c.own == best.own && c.Cap == best.Cap {
				below = fmt.Sprintf("; with %d, %s%% are missed", c.Replicas, figure(100*c.Missed))
			}
		}
	}
	if below == "" && best.Replicas == 1 {
		below = "; one cannot be less"
	}
	text += below
	switch {
	case best.own && (t.model.batching().Policy == scheduler.AIMD || t.model.batching().Policy == scheduler.Quantile):
		text += fmt.Sprintf("; %s finds the cap by itself, and follows when the model becomes slower or faster", best.Batching)
	case !best.own:
		text += fmt.Sprintf("; declare batching: {policy: fixed, max: %d} for it", best.Cap)
	}
	return text
}

// figure writes a number with three digits or so.
func figure(v float64) string {
	if v >= 1000 {
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.4g", v)
}
