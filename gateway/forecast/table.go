package forecast

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/scheduler"
	"github.com/xebec-serving/xebec/scheduler/sim"
)

// Choice is a number of replicas with a batch cap, and the outcome of the simulated queries.
type Choice struct {
	Replicas int `json:"replicas"`
	// Batching is "fixed" for a cap that was tried, otherwise the model's own policy. Cap is the largest number of
	// queries in a batch.
	Batching string `json:"batching"`
	Cap      int    `json:"cap"`
	// P50Millis and PMillis are latencies over all queries, the latter at Plan.Percentile. They are null if so many
	// were missed.
	P50Millis *float64 `json:"p50_ms"`
	PMillis   *float64 `json:"percentile_ms"`
	// Missed is the fraction of the queries without an answer within the objective.
	Missed float64 `json:"missed"`
	// Capacity is how many queries per second these replicas answer within the objective when they are offered more.
	// Utilization is the fraction of it that the traffic needs. (Replicas are busy for longer than that: they do not
	// wait for batches to fill.)
	Capacity    float64 `json:"queries_per_second"`
	Utilization float64 `json:"utilization"`
	// Meets means that enough queries were answered within the objective and that the rate is within the capacity.
	// Above the capacity the queue would fill up some time after the end of the simulation. Recorded traffic is over by
	// then.
	Meets       bool `json:"meets"`
	Recommended bool `json:"recommended"`

	own bool // the model's own batching
}

// rows are the choices with one batching, and what a saturated replica showed with it.
type rows struct {
	batching  scheduler.Batching
	own       bool // the model's own
	cap       int
	perSecond float64
	choices   []Choice
	// tooMany: the fewest replicas would be more than a model can have, or far more than with the model's own batching.
	tooMany bool
}

// table makes the choices.
type table struct {
	ctx     context.Context
	model   *Model
	traffic *Traffic
	// fraction of the queries must be answered within the objective.
	fraction    float64
	seed        uint64
	maxReplicas int

	mu       sync.Mutex
	runs     int
	progress func(runs int) // may be nil
}

// run simulates some replicas and counts.
func (t *table) run(replicas int, b scheduler.Batching, l *load) (Choice, *scheduler.Snapshot, error) {
	if err := t.ctx.Err(); err != nil {
		return Choice{}, nil, err
	}
	spec := t.model.world(t.seed, replicas, b, l)
	var engine sim.Engine
	spec.Engine = func(m *sim.ModelSpec) sim.Engine {
		engine = sim.NewMachine(m.Config)
		return engine
	}
	result, err := sim.Run(spec, nil)
	if err != nil {
		return Choice{}, nil, fmt.Errorf("simulating %d replicas: %w", replicas, err)
	}
	t.countRun()
	f := &result.Functions[0]
	c := Choice{Replicas: replicas, Batching: b.Policy.String()}
	if f.Offered > 0 {
		slices.Sort(f.Latencies)
		c.P50Millis, c.PMillis = quantile(f, 0.5), quantile(f, t.fraction)
		c.Missed = float64(f.Offered-f.Good) / float64(f.Offered)
		c.Meets = c.PMillis != nil
	}
	c.Capacity = float64(f.Good) / float64(l.duration-l.warm) * 1e9
	var s scheduler.Snapshot
	engine.Snapshot(&s)
	return c, &s, nil
}

func (t *table) countRun() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.runs++
	if t.progress != nil {
		t.progress(t.runs)
	}
}

// quantile is over all queries: missed ones are the slowest.
func quantile(f *sim.FunctionResult, q float64) *float64 {
	at := max(0, int(math.Ceil(q*float64(f.Offered)))-1)
	if at >= len(f.Latencies) {
		return nil
	}
	millis := math.Round(float64(f.Latencies[at])/1e4) / 100
	return &millis
}

// checkObjective fails if a query that has a replica to itself misses the objective.
func (t *table) checkObjective() error {
	m := t.model
	one := m.Nanos(1)
	b := m.batching()
	rate := min(100, 0.05e9/float64(one))
	c, _, err := t.run(1, b, &load{traffic: steady(rate, 0).traffic, warm: api.Nanos(100 / rate * 1e9), duration: api.Nanos(3000 / rate * 1e9)})
	if err != nil {
		return err
	}
	if c.Meets {
		return nil
	}
	n := 1
	if b.Pad {
		n = b.MaxBatch
	}
	return fmt.Errorf("no number of replicas meets %s: a query that has a replica to itself takes %s on average, and only %.3g%% of them are answered in time; "+
		"expected an objective of about %s or more, or a faster model", time.Duration(m.SLONanos), span(float64(m.Nanos(n))), 100*(1-c.Missed),
		time.Duration(max(m.SLONanos, m.Nanos(n))*3/2).Round(time.Millisecond))
}

// saturatingQueries is about how many queries show the capacity of a replica, in at least 40 batches.
const saturatingQueries = 12_500

// saturate offers one replica twice what it should be able to do, and measures its capacity.
func (t *table) saturate(b scheduler.Batching, own bool) (*rows, error) {
	n := t.model.guess(b)
	perBatch := api.Nanos(t.model.Nanos(n))
	rate := 2 * float64(n) / float64(perBatch) * 1e9
	// AIMD doubles the cap until a batch takes the objective, which needs 12 batches at most, and then moves it by 2.
	batches := api.Nanos(min(max(saturatingQueries/n, 40), 400))
	l := &load{traffic: []sim.Traffic{{Shape: sim.Steady, Rate: rate}}, warm: batches / 2 * perBatch, duration: batches / 2 * 3 * perBatch}
	c, s, err := t.run(1, b, l)
	if err != nil {
		return nil, err
	}
	r := &rows{batching: b, own: own, perSecond: c.Capacity, cap: n}
	for i := range s.Replicas {
		r.cap = s.Replicas[i].Learned
	}
	return r, nil
}

// manyReplicas take long to simulate. A cap that needs more, and more than twice as many as the model's own batching,
// is left out.
const manyReplicas = 32

// needed is about how many replicas the traffic needs.
func (t *table) needed(r *rows) float64 {
	if r.perSecond <= 0 {
		return math.MaxInt32
	}
	return min(t.fraction*t.traffic.Peak/r.perSecond, math.MaxInt32)
}

// search finds the fewest replicas that meet the objective, and the row below. More replicas are never worse, except by
// chance. So the search goes up in growing steps, and then bisects.
func (t *table) search(r, own *rows) error {
	shortest := api.Nanos(max(100*t.model.Nanos(r.cap), 20*t.model.SLONanos))
	l := t.traffic.load(shortest)
	seen := map[int]Choice{}
	try := func(n int) (meets bool, err error) {
		c, known := seen[n]
		if !known {
			if c, _, err = t.run(n, r.batching, l); err != nil {
				return false, err
			}
			c.Cap, c.own, c.Capacity = r.cap, r.own, r.perSecond*float64(n)
			c.Utilization = t.traffic.Peak / c.Capacity
			c.Meets = c.Meets && (c.Utilization <= 1 || t.traffic.busiestNanos > 0)
			seen[n] = c
		}
		return c.Meets, nil
	}
	n := max(1, int(t.needed(r)))
	if n > t.maxReplicas || !r.own && n > manyReplicas && n > 2*int(t.needed(own)) {
		r.tooMany = true
		return nil
	}
	fewest, err := t.fewest(n, try)
	if err != nil {
		return err
	}
	if fewest == 0 {
		r.tooMany = true
		return nil
	}
	shown := []int{fewest - 1, fewest}
	if r.own && fewest < t.maxReplicas {
		if _, err := try(fewest + 1); err != nil {
			return err
		}
		shown = append(shown, fewest+1)
	}
	for _, n := range shown {
		if c, known := seen[n]; known {
			r.choices = append(r.choices, c)
		}
	}
	return nil
}

// fewest is the smallest number that meets the objective, near a first guess; 0 if t.maxReplicas do not.
func (t *table) fewest(guess int, try func(n int) (meets bool, err error)) (int, error) {
	n, low, high, step := guess, 0, 0, 1 // low does not meet it, high does
	for high == 0 {
		meets, err := try(n)
		switch {
		case err != nil:
			return 0, err
		case meets:
			high = n
		case n == t.maxReplicas:
			return 0, nil
		default:
			low = n
			n = min(n+step, t.maxReplicas)
			step *= 2
		}
	}
	if low == 0 && high > 1 { // the guess was enough: is one less, too?
		low = high - 1
		if meets, err := try(low); err != nil {
			return 0, err
		} else if meets {
			low, high = 0, high-1
		}
	}
	for high-low > 1 {
		middle := (low + high) / 2
		meets, err := try(middle)
		switch {
		case err != nil:
			return 0, err
		case meets:
			high = middle
		default:
			low = middle
		}
	}
	return high, nil
}

// caps are the caps to try beside the one that the model's own batching found.
func (t *table) caps(own *rows) []int {
	if own.batching.Pad { // the model takes no other batches
		return nil
	}
	var caps []int
	for _, n := range []int{1, own.cap / 4, own.cap / 2, own.cap * 2} {
		fits := n >= 1 && n <= own.batching.MaxBatch && t.model.Nanos(n) < t.model.SLONanos
		if fits && n != own.cap && !slices.Contains(caps, n) {
			caps = append(caps, n)
		}
	}
	slices.Sort(caps)
	return caps
}

// make makes the whole table: the model's own batching first, then the caps around the one that it found.
func (t *table) make() ([]*rows, error) {
	if err := t.checkObjective(); err != nil {
		return nil, err
	}
	own, err := t.saturate(t.model.batching(), true)
	if err != nil {
		return nil, err
	}
	caps := t.caps(own)
	all := []*rows{own}
	all = append(all, make([]*rows, len(caps))...)
	errs := make([]error, len(all))
	limit := make(chan struct{}, runtime.GOMAXPROCS(0))
	var wg sync.WaitGroup
	for i := range all {
		wg.Go(func() {
			limit <- struct{}{}
			defer func() { <-limit }()
			if i > 0 {
				if all[i], errs[i] = t.saturate(t.model.fixed(caps[i-1]), false); errs[i] != nil {
					return
				}
			}
			errs[i] = t.search(all[i], own)
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	return all, nil
}

// recommend marks the choice with the fewest replicas that meets the objective. Among equals it prefers the model's own
// batching, which adapts, and then the fastest.
func recommend(all []*rows) *Choice {
	var best *Choice
	for _, r := range all {
		for i := range r.choices {
			c := &r.choices[i]
			switch {
			case !c.Meets:
			case best == nil, c.Replicas < best.Replicas, c.Replicas == best.Replicas && !best.own && (c.own || *c.PMillis < *best.PMillis):
				best = c
			}
		}
	}
	if best != nil {
		best.Recommended = true
	}
	return best
}
