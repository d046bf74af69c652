package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/bench/internal/results"
	"github.com/xebec-serving/xebec/scheduler/sim"
)

// Figure 5 of the Clipper paper (NSDI 2017, section 4.3.2) in simulation: what a container gains when a batch that is not full waits for more
// queries. The paper's container gains 3.3 times the throughput at a moderate load, because a batch has a high fixed cost. Here fixed costs,
// costs per query and loads form a grid, so that the paper's regime is in it wherever it lies.
const (
	// delayObjective is the time of a batch in the paper's figures, delaySLO that of a query: a batch waits for the one before it.
	delayObjective = 20 * ms
	delaySLO       = 100 * ms
	// delaySeeds is the default number of seeds of each cell.
	delaySeeds = 5
	// delayGain is the ratio of throughput or goodput from which on a delay is worth something.
	delayGain = 1.02
	// A run counts delayQueries queries, within delayLeast and delayMost, after delayWarm, in which the cap settles.
	delayQueries          = 30_000
	delayWarm             = api.Nanos(1e9)
	delayLeast, delayMost = api.Nanos(1e9), api.Nanos(5e9)
)

var (
	// fixedCosts and eachCosts are nanoseconds of a batch and of each query in it. 33 µs is what the paper's 30,000 queries/s leave for each.
	fixedCosts = []int64{ms / 2, 2 * ms, 5 * ms, 10 * ms}
	eachCosts  = []int64{10_000, 33_000, 200_000}
	// delayLoads are multiples of what the container does in batches of delayObjective.
	delayLoads = []float64{0.1, 0.3, 0.6, 0.9, 1.2}
	holds      = []int64{0, ms, 2 * ms, 3 * ms, 4 * ms, 5 * ms}
)

// delayCell is one container under one load, with a run of each seed for each delay.
type delayCell struct {
	FixedMillis float64 `json:"fixed_ms"`
	EachMicros  float64 `json:"each_us"`
	// Load is the offered rate as a multiple of the capacity, OneByOne as a multiple of what the container does in batches of one.
	Load       float64 `json:"load"`
	OneByOne   float64 `json:"load_one_by_one"`
	OfferedQPS float64 `json:"offered_qps"`
	Delays     []held  `json:"delays"`
}

func (c delayCell) String() string {
	return fmt.Sprintf("%g ms + %g µs × n, load %g", c.FixedMillis, c.EachMicros, c.Load)
}

// held is one delay. Slices have a value for each seed.
type held struct {
	HoldMillis float64 `json:"hold_ms"`
	// AnsweredQPS counts all answers, GoodQPS those in time. Busy is the fraction of the time in which the container had a batch.
	AnsweredQPS []float64 `json:"answered_qps"`
	GoodQPS     []float64 `json:"good_qps"`
	MeanBatch   []float64 `json:"mean_batch"`
	Busy        []float64 `json:"busy"`
	P99Millis   []float64 `json:"p99_ms"` // -1: so many missed their objective
	// Throughput and Goodput are the ratios to no delay with the same queries.
	Throughput results.Interval `json:"throughput_ratio"`
	Goodput    results.Interval `json:"goodput_ratio"`
}

// compareDelays runs the grid.
func compareDelays(w *bufio.Writer, cfg *config) error {
	seeds := int(cfg.seeds)
	if seeds == 0 {
		seeds = delaySeeds
	}
	if seeds < 2 {
		return errors.New("-delay needs -seeds of at least 2, for intervals")
	}
	var cells []delayCell
	for _, fixed := range fixedCosts {
		for _, each := range eachCosts {
			m := delayModel(fixed, each, 0)
			capacity := m.Capacity(delayObjective)
			for _, load := range delayLoads {
				c := delayCell{FixedMillis: float64(fixed) / 1e6, EachMicros: float64(each) / 1e3, Load: load, OfferedQPS: load * capacity}
				if !cfg.only.MatchString(c.String()) {
					continue
				}
				c.OneByOne = c.OfferedQPS * float64(fixed+each) / 1e9
				for _, hold := range holds {
					n := func() []float64 { return make([]float64, seeds) }
					c.Delays = append(c.Delays, held{HoldMillis: float64(hold) / 1e6, AnsweredQPS: n(), GoodQPS: n(), MeanBatch: n(), Busy: n(), P99Millis: n()})
				}
				cells = append(cells, c)
			}
		}
	}
	if len(cells) == 0 {
		return fmt.Errorf("-only %s: no cell matches; the first is %q", cfg.only, delayCell{FixedMillis: float64(fixedCosts[0]) / 1e6, EachMicros: float64(eachCosts[0]) / 1e3, Load: delayLoads[0]})
	}
	perCell := len(holds) * seeds
	errs := inParallel(len(cells)*perCell, func(i int) error {
		return cells[i/perCell].run(i%perCell/seeds, i%seeds, cfg.seed)
	})
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	for i := range cells {
		cells[i].compare()
	}
	report := comparison{
		kind: "delay", heading: fmt.Sprintf("# Delayed batching in simulation, %d seeds from %d on\n\n%s\n", seeds, cfg.seed, delayPreface), rows: cells,
		tables:  func(w io.Writer) { writeDelays(w, cells) },
		figures: func() ([]results.Figure, error) { return nil, nil },
	}
	return report.publish(w, cfg)
}

func delayModel(fixed, each, hold int64) sim.ModelSpec {
	m := modelSpec("model", 1, fixed, each, delaySLO)
	m.Config.Batching.ObjectiveNanos, m.Config.Batching.HoldNanos = delayObjective, hold
	return m
}

// run runs one delay with one seed.
func (c *delayCell) run(delay, nth int, firstSeed uint64) error {
	f := functionSpec("f", delaySLO, steady(c.OfferedQPS))
	f.TTLNanos = delaySLO
	counted := min(max(api.Nanos(delayQueries/c.OfferedQPS*1e9), delayLeast), delayMost)
	spec := sim.Spec{
		Seed: firstSeed + uint64(nth), Warm: delayWarm, Duration: delayWarm + counted, Policy: sim.Planned,
		Models:    []sim.ModelSpec{delayModel(int64(c.FixedMillis*1e6), int64(c.EachMicros*1e3), holds[delay])},
		Functions: []sim.FunctionSpec{f},
	}
	result, err := sim.Run(&spec, nil)
	if err != nil {
		return fmt.Errorf("%v, delay %d ms: %w", c, holds[delay]/ms, err)
	}
	seconds := float64(spec.Duration-spec.Warm) / 1e9
	d, t := &c.Delays[delay], result.Total()
	d.AnsweredQPS[nth], d.GoodQPS[nth] = float64(result.Evaluated)/seconds, float64(t.Good)/seconds
	d.MeanBatch[nth] = results.Ratio(result.Evaluated, result.Batches)
	d.Busy[nth] = float64(result.BusyNanos) / 1e9 / seconds
	d.P99Millis[nth] = millis(t.Quantile(0.99))
	return nil
}

// compare fills in the ratios to no delay.
func (c *delayCell) compare() {
	none := &c.Delays[0]
	for i := range c.Delays {
		d := &c.Delays[i]
		var answered, good []float64
		for n := range d.GoodQPS {
			answered = append(answered, d.AnsweredQPS[n]/none.AnsweredQPS[n])
			good = append(good, d.GoodQPS[n]/none.GoodQPS[n])
		}
		d.Throughput, d.Goodput = results.Geometric(answered), results.Geometric(good)
	}
}

// best returns the delay with the largest goodput beside no delay, no delay excluded.
func (c *delayCell) best() *held {
	best := &c.Delays[1]
	for i := range c.Delays[2:] {
		if d := &c.Delays[i+2]; d.Goodput.Value > best.Goodput.Value {
			best = d
		}
	}
	return best
}

// most returns the cell and delay for which value is largest.
func most(cells []delayCell, value func(*held) float64) (at *delayCell, d *held) {
	for i := range cells {
		for j := range cells[i].Delays[1:] {
			if x := &cells[i].Delays[j+1]; d == nil || value(x) > value(d) {
				at, d = &cells[i], x
			}
		}
	}
	return at, d
}

func writeDelays(w io.Writer, cells []delayCell) {
	fmt.Fprintf(w, "## Beside the paper\n\n")
	results.TableHead(w, "the paper's text", "claim here", "measured (95 %)", "", "")
	for _, line := range []struct {
		what  string
		value func(*held) *results.Interval
	}{
		{"throughput", func(d *held) *results.Interval { return &d.Throughput }},
		{"answers in time", func(d *held) *results.Interval { return &d.Goodput }},
	} {
		at, d := most(cells, func(d *held) float64 { return line.value(d).Value })
		i := *line.value(d)
		fmt.Fprintf(w, "| 2 ms of delay: 3.3× the throughput | some delay somewhere: ≥ 3.3× the %s | %s | %s | the most of %d cells and %d delays: %g ms with %v |\n", line.what, i.Format(3),
			results.AtLeast(3.3).Judge(i), len(cells), len(holds)-1, d.HoldMillis, at)
	}
	worth := 0
	for i := range cells {
		if results.AtLeast(delayGain).Judge(cells[i].best().Goodput) == results.Holds {
			worth++
		}
	}
	fmt.Fprintf(w, "\nCells in which some delay has at least %g times the answers in time: %d of %d.\n\n## The cells\n\n", delayGain, worth, len(cells))
	results.TableHead(w, "a batch of n", "load", "load, one by one", "mean batch, no delay", "2 ms", "throughput, 2 ms ÷ none (95 %)", "answers in time, 2 ms ÷ none (95 %)", "best delay, ms", "its answers in time (95 %)", "busy, none → 2 ms", "P99, none → 2 ms, ms")
	two := slices.Index(holds, 2*ms)
	for i := range cells {
		c := &cells[i]
		none, d, best := &c.Delays[0], &c.Delays[two], c.best()
		fmt.Fprintf(w, "| %g ms + %g µs × n | %g | %.1f | %.1f | %.1f | %s | %s | %g | %s | %.0f → %.0f %% | %s → %s |\n", c.FixedMillis, c.EachMicros, c.Load, c.OneByOne, results.Median(none.MeanBatch), results.Median(d.MeanBatch),
			d.Throughput.Format(3), d.Goodput.Format(3), best.HoldMillis, best.Goodput.Format(3), 100*results.Median(none.Busy), 100*results.Median(d.Busy), latency(results.Median(none.P99Millis)), latency(results.Median(d.P99Millis)))
	}
	fmt.Fprintln(w)
}

const delayPreface = `Made by ` + "`bin/sim -delay`" + `; the same seeds give the same numbers on any machine, for time is simulated. The scheduler is the real one; the container, the
callers and the clock are simulated (scheduler/sim says how). The question is that of the paper's figure 5: is it worth it to let a batch wait for more queries when the container is free?

One container, AIMD with an objective of 20 ms for a batch, an objective of 100 ms for a query, Poisson arrivals, the same for each delay. *Load* is a multiple of what the container does in batches of 20 ms,
*one by one* of what it does without batches: above 1 it needs them. Ratios are taken for each seed; intervals are Student's, of their logarithms. *Busy* is the part of the time in which the container had a batch.
`
