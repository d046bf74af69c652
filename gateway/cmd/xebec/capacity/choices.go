package capacity

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

// Choice is a number of replicas under a batch cap, and what came of the simulated queries.
type Choice struct {
	Replicas int `json:"replicas"`
	// Batching is how the cap is found: "fixed" for one that is tried, else the model's policy. Cap is the most queries in a batch.
	Batching string `json:"batching"`
	Cap      int    `json:"cap"`
	// P50Millis and PMillis are latencies of all queries, the latter at Plan.Percentile; null where so many were missed.
	P50Millis *float64 `json:"p50_ms"`
	PMillis   *float64 `json:"percentile_ms"`
	// Missed is the part of the queries that had no answer within the objective.
	Missed float64 `json:"missed"`
	// Capacity is how many queries per second such replicas answer within the objective when they are offered more, Utilization the
	// part of it that comes. (Replicas are busy for longer than that: they do not wait for batches to fill.)
	Capacity    float64 `json:"queries_per_second"`
	Utilization float64 `json:"utilization"`
	// Meets says that enough queries were answered within the objective, and that the rate is no more than the capacity: else the queue
	// would fill up some time after the simulation. Recorded traffic is over by then.
	Meets       bool `json:"meets"`
	Recommended bool `json:"recommended"`

	own bool // the model's own batching
}

// tried is a batching of the table with what one replica showed when it was saturated.
type tried struct {
	batching  scheduler.Batching
	own       bool
	cap       int
	perSecond float64
	choices   []Choice
	// tooMany: the fewest replicas would be more than there can be, or than anybody would choose.
	tooMany bool
}

// table makes the choices.
type table struct {
	ctx     context.Context
	model   *Model
	traffic *Traffic
	// part of the queries must be answered within the objective.
	part float64
	seed uint64
	most int // replicas

	mu   sync.Mutex
	runs int
	told func(runs int)
}

// run simulates so many replicas and counts.
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
	t.mu.Lock()
	t.runs++
	t.told(t.runs)
	t.mu.Unlock()
	f := &result.Functions[0]
	c := Choice{Replicas: replicas, Batching: b.Policy.String()}
	if f.Offered > 0 {
		slices.Sort(f.Latencies)
		c.P50Millis, c.PMillis = quantile(f, 0.5), quantile(f, t.part)
		c.Missed = float64(f.Offered-f.Good) / float64(f.Offered)
		c.Meets = c.PMillis != nil
	}
	c.Capacity = float64(f.Good) / float64(l.duration-l.warm) * 1e9
	var s scheduler.Snapshot
	engine.Snapshot(&s)
	return c, &s, nil
}

// quantile is over all queries: those without an answer in time are the slowest.
func quantile(f *sim.FunctionResult, q float64) *float64 {
	at := max(0, int(math.Ceil(q*float64(f.Offered)))-1)
	if at >= len(f.Latencies) {
		return nil
	}
	millis := math.Round(float64(f.Latencies[at])/1e4) / 100
	return &millis
}

// alone makes sure that a query that meets nobody is answered within the objective.
func (t *table) alone() error {
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
	return fmt.Errorf("no number of replicas meets %s: a query that has a replica to itself takes %s on average, and only %.3g%% of them are answered within it; "+
		"expected an objective of some %s or more, or a faster model", time.Duration(m.SLONanos), span(float64(m.Nanos(n))), 100*(1-c.Missed),
		time.Duration(max(m.SLONanos, m.Nanos(n))*3/2).Round(time.Millisecond))
}

// saturatingQueries are about how many make up the batches, at least 40, that show what a replica does.
const saturatingQueries = 12_500

// saturate finds what one replica does that is offered twice as much as it should be able to.
func (t *table) saturate(b scheduler.Batching, own bool) (*tried, error) {
	n := t.model.guess(b)
	perBatch := api.Nanos(t.model.Nanos(n))
	rate := 2 * float64(n) / float64(perBatch) * 1e9
	// AIMD doubles until it meets its objective, which takes some 12 batches at most, and then moves by 2.
	batches := api.Nanos(min(max(saturatingQueries/n, 40), 400))
	l := &load{traffic: []sim.Traffic{{Shape: sim.Steady, Rate: rate}}, warm: batches / 2 * perBatch, duration: batches / 2 * 3 * perBatch}
	c, s, err := t.run(1, b, l)
	if err != nil {
		return nil, err
	}
	x := &tried{batching: b, own: own, perSecond: c.Capacity, cap: n}
	for i := range s.Replicas {
		x.cap = s.Replicas[i].Learned
	}
	return x, nil
}

// manyReplicas take long to simulate. A cap that needs more of them, and more than twice as many as the model's own, is left out.
const manyReplicas = 32

// needed is about how many replicas it takes.
func (t *table) needed(x *tried) float64 {
	if x.perSecond <= 0 {
		return math.MaxInt32
	}
	return min(t.part*t.traffic.Peak/x.perSecond, math.MaxInt32)
}

// search finds the fewest replicas that meet the objective, and the one below. Whether n do only ever changes once as n grows, but for
// chance, so that the search goes up in growing steps and halves its way back.
func (t *table) search(x, own *tried) error {
	shortest := api.Nanos(max(100*t.model.Nanos(x.cap), 20*t.model.SLONanos))
	l := t.traffic.load(shortest)
	seen := map[int]Choice{}
	try := func(n int) (bool, error) {
		c, there := seen[n]
		if !there {
			var err error
			if c, _, err = t.run(n, x.batching, l); err != nil {
				return false, err
			}
			c.Cap, c.own, c.Capacity = x.cap, x.own, x.perSecond*float64(n)
			c.Utilization = t.traffic.Peak / c.Capacity
			c.Meets = c.Meets && (c.Utilization <= 1 || t.traffic.busiestNanos > 0)
			seen[n] = c
		}
		return c.Meets, nil
	}
	n := max(1, int(t.needed(x)))
	if n > t.most || !x.own && n > manyReplicas && n > 2*int(t.needed(own)) {
		x.tooMany = true
		return nil
	}
	low, high, step := 0, 0, 1 // low does not meet it, high does
	for high == 0 {
		meets, err := try(n)
		switch {
		case err != nil:
			return err
		case meets:
			high = n
		case n == t.most:
			x.tooMany = true
			return nil
		default:
			low = n
			n = min(n+step, t.most)
			step *= 2
		}
	}
	if low == 0 && high > 1 { // the first guess was more than enough, or just enough
		low = high - 1
		if meets, err := try(low); err != nil {
			return err
		} else if meets {
			low, high = 0, high-1
		}
	}
	for high-low > 1 {
		middle := (low + high) / 2
		meets, err := try(middle)
		switch {
		case err != nil:
			return err
		case meets:
			high = middle
		default:
			low = middle
		}
	}
	wanted := []int{high - 1, high}
	if x.own && high < t.most {
		if _, err := try(high + 1); err != nil {
			return err
		}
		wanted = append(wanted, high+1)
	}
	for _, n := range wanted {
		if c, there := seen[n]; there {
			x.choices = append(x.choices, c)
		}
	}
	return nil
}

// caps are those that are tried beside the one that the model's own batching found.
func (t *table) caps(own *tried) []int {
	if own.batching.Pad { // the model takes no others
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

// make runs all of it: the model's own batching first, then the caps around the one that it found.
func (t *table) make() ([]*tried, error) {
	if err := t.alone(); err != nil {
		return nil, err
	}
	own, err := t.saturate(t.model.batching(), true)
	if err != nil {
		return nil, err
	}
	caps := t.caps(own)
	all := []*tried{own}
	all = append(all, make([]*tried, len(caps))...)
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

// recommend marks the choice with the fewest replicas that meets the objective; of those the model's own batching, which also adapts,
// and else the fastest.
func recommend(all []*tried) *Choice {
	var best *Choice
	for _, x := range all {
		for i := range x.choices {
			c := &x.choices[i]
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
