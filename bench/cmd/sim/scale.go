package main

import (
	"bufio"
	"fmt"
	"io"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/bench/internal/results"
	"github.com/xebec-serving/xebec/scheduler"
	"github.com/xebec-serving/xebec/scheduler/autoscale"
	"github.com/xebec-serving/xebec/scheduler/sim"
)

// All scalers control replicas of a model that runs on a few cores, with an objective of half a second.
const (
	scaleSLO = 500 * ms
	// replicaServes is how many queries a second a saturated replica answers within the objective. Batches of 7 in 200 ms, two fifths of the
	// objective, would give 35. Because times scatter, the cap is 5 or 6 most of the time. A test measures it.
	replicaServes = 30.4
	// scaleSeeds is the default number of seeds for each trace.
	scaleSeeds = 5
	second     = api.Nanos(1e9)
	minute     = 60 * second
	// The objective holds in a second in which at most the fraction missedPart of the queries missed it.
	missedPart = 0.01
)

// trace is traffic under which scalers are compared.
type trace struct {
	name, what string
	duration   api.Nanos
	// startNanos is the start time of a replica, initial the number of replicas at first.
	startNanos int64
	initial    int
	// traffic returns the traffic for replicas that serve capacity queries per second within the objective.
	traffic func(capacity float64) []sim.Traffic
	// step is when the rate jumps from zero. 0 means that it does not.
	step api.Nanos
}

// slowStart is the start time of a container with an interpreter and large libraries, quickStart that of a fork of a process that has loaded
// them.
const (
	slowStart  = 5000 * ms
	quickStart = 100 * ms
)

// traces returns the traces of -scale. Rates are multiples of what one replica serves.
func traces() []trace {
	one := func(t sim.Traffic) func(c float64) []sim.Traffic {
		return func(c float64) []sim.Traffic {
			scaled := t
			scaled.Rate, scaled.Peak = t.Rate*c, t.Peak*c
			return []sim.Traffic{scaled}
		}
	}
	spikes := func(c float64) []sim.Traffic {
		return []sim.Traffic{
			steady(c),
			{Shape: sim.Switching, Peak: 4 * c, Period: 2 * minute, Duty: 0.08},
			{Shape: sim.Switching, Peak: 9 * c, Period: 5 * minute, Duty: 0.03},
		}
	}
	step := func(c float64) []sim.Traffic {
		return []sim.Traffic{{Shape: sim.Steady, Rate: 0.6 * c, Until: minute}, {Shape: sim.Steady, Rate: 20 * c, From: 4 * minute}}
	}
	square := sim.Traffic{Shape: sim.Square, Rate: 1, Peak: 8, Period: 5 * minute, Duty: 0.5}
	list := []trace{
		{name: "steady", what: "what 5 replicas serve, all the time", duration: 20 * minute, initial: 8, traffic: one(sim.Traffic{Shape: sim.Steady, Rate: 5})},
		{name: "square", what: "what 8 replicas serve and what 1 serves, 2.5 minutes each", duration: 20 * minute, initial: 1, traffic: one(square)},
		{name: "ramp", what: "from what 1 replica serves to what 10 serve in 5 minutes, and back", duration: 20 * minute, initial: 1,
			traffic: one(sim.Traffic{Shape: sim.Ramp, Rate: 1, Peak: 10, Period: 10 * minute, Duty: 0.5})},
		{name: "spiky", what: "what 1 replica serves, with bursts of 5 and 10 times that of about 10 seconds, at random", duration: 30 * minute, initial: 2, traffic: spikes},
		{name: "daily", what: "a day in an hour: from what 0.2 replicas serve to what 8 serve, and back; the scalers' windows are not compressed", duration: 60 * minute,
			initial: 1, traffic: one(sim.Traffic{Shape: sim.Daily, Rate: 0.2, Peak: 8, Period: 60 * minute})},
		{name: "step", what: "little for a minute, nothing for three, in which the model falls asleep, and then what 20 replicas serve", duration: 12 * minute,
			initial: 1, traffic: step, step: 4 * minute},
	}
	for i := range list {
		list[i].startNanos = slowStart
	}
	for _, t := range list[1:] {
		if t.name == "square" || t.name == "spiky" || t.name == "step" {
			t.name, t.what, t.startNanos = t.name+"-quick", "the same with replicas that start in 0.1 s", quickStart
			list = append(list, t)
		}
	}
	return list
}

// forecast returns the simulation of a trace for one contender and seed.
func (t *trace) forecast(c *contender, seed uint64) *sim.Forecast {
	f := &sim.Forecast{
		Seed: seed, Duration: t.duration, SLONanos: scaleSLO, ColdStartNanos: 10_000 * ms,
		Config: scheduler.Config{Retry: true, Batching: scheduler.Batching{Policy: scheduler.AIMD}},
		Scale: sim.ScaleSpec{
			Scaler: c.scaler, TickNanos: c.tickNanos, StartSigma: 0.3, Initial: t.initial,
			Replica: sim.ReplicaSpec{FixedNanos: 60 * ms, EachNanos: 20 * ms, Sigma: 0.1, StartNanos: t.startNanos},
			Bounds: autoscale.Config{
				Max: 60, IdleNanos: int64(minute), WindowNanos: int64(api.DefaultScaleWindow), DelayNanos: int64(api.DefaultScaleDelay),
				Utilization: api.DefaultUtilization, Up: api.DefaultScaleUp, Down: api.DefaultScaleDown,
			},
		},
	}
	f.Traffic = t.traffic(replicaServes)
	return f
}

// scaleRow is the result of one contender under one trace.
type scaleRow struct {
	Trace    string `json:"trace"`
	Scaler   string `json:"scaler"`
	Seeds    int    `json:"seeds"`
	scaleRun        // the mean over the seeds
	// Each has the runs, in the order of their seeds.
	Each []scaleRun `json:"each"`

	first *sim.ForecastResult
}

// scaleRun is one run, or the mean of several.
type scaleRun struct {
	// ReplicaSeconds are counted from the order of each replica on. Load is the offered load as a fraction of what the replicas could have
	// served in that time.
	ReplicaSeconds float64 `json:"replica_seconds"`
	Load           float64 `json:"load"`
	// Missed is the number of queries without an answer within the objective, MissedPart their fraction.
	Missed     float64 `json:"missed"`
	MissedPart float64 `json:"missed_part"`
	// Changes are decisions for another number of replicas, Reversals those in the opposite direction to the one before.
	Changes    float64 `json:"changes"`
	Reversals  float64 `json:"reversals"`
	Starts     float64 `json:"starts"`
	ColdStarts float64 `json:"cold_starts"`
	Peak       float64 `json:"peak"`
	// RecoverySeconds is from the step to the end of the last second in which more than 1 % missed. -1 means that there is no step.
	RecoverySeconds float64 `json:"recovery_s"`
	P99Millis       float64 `json:"p99_ms"`
}

// compareScalers runs every trace with every scaler and seed.
func compareScalers(w *bufio.Writer, cfg *config) error {
	var chosen []trace
	for _, t := range traces() {
		if cfg.only.MatchString(t.name) {
			chosen = append(chosen, t)
		}
	}
	if len(chosen) == 0 {
		return fmt.Errorf("-only %v: no trace has such a name", cfg.only)
	}
	rows, err := scaleAll(chosen, cfg)
	if err != nil {
		return err
	}
	report := comparison{
		kind: "autoscale", heading: scaleHeading(cfg, rows[0].Seeds), rows: rows,
		tables:  func(w io.Writer) { writeScaleTables(w, chosen, rows) },
		figures: func() ([]results.Figure, error) { return drawScaleFigures(cfg, chosen, rows) },
	}
	return report.publish(w, cfg)
}

// scaleAll runs the traces. Each run and the order of rows are deterministic.
func scaleAll(list []trace, cfg *config) ([]scaleRow, error) {
	seeds := int(cfg.seeds)
	if seeds == 0 {
		seeds = scaleSeeds
	}
	rows := make([]scaleRow, len(list)*len(contenders))
	for i := range rows {
		rows[i] = scaleRow{Trace: list[i/len(contenders)].name, Scaler: contenders[i%len(contenders)].name, Seeds: seeds, Each: make([]scaleRun, seeds)}
	}
	errs := inParallel(len(rows)*seeds, func(job int) error {
		i, seed := job/seeds, job%seeds
		t, row := &list[i/len(contenders)], &rows[i]
		r, err := t.forecast(&contenders[i%len(contenders)], cfg.seed+uint64(seed)).Run()
		if err != nil {
			return err
		}
		row.Each[seed] = runOf(t, r)
		if seed == 0 {
			row.first = r
		}
		return nil
	})
	for job, err := range errs {
		if err != nil {
			return nil, fmt.Errorf("%s scaled by %s: %w", rows[job/seeds].Trace, rows[job/seeds].Scaler, err)
		}
	}
	for i := range rows {
		rows[i].scaleRun = meanOf(rows[i].Each)
	}
	return rows, nil
}

func runOf(t *trace, r *sim.ForecastResult) scaleRun {
	return scaleRun{
		ReplicaSeconds: r.ReplicaSeconds, Load: float64(r.Offered) / (replicaServes * max(1, r.ReplicaSeconds)),
		Missed: float64(r.Missed), MissedPart: results.Ratio(r.Missed, r.Offered),
		Changes: float64(r.Changes), Reversals: float64(r.Reversals), Starts: float64(r.Starts), ColdStarts: float64(r.ColdStarts), Peak: float64(r.Peak),
		RecoverySeconds: stepRecovery(t, r), P99Millis: millis(r.P99Nanos),
	}
}

// stepRecovery returns how long after the step the objective did not hold, in seconds.
func stepRecovery(t *trace, r *sim.ForecastResult) float64 {
	if t.step == 0 {
		return -1
	}
	last := t.step
	for _, p := range r.Points {
		if p.At >= t.step && float64(p.Missed) > missedPart*float64(p.Offered) {
			last = p.At + second
		}
	}
	return float64(last-t.step) / float64(second)
}

func meanOf(runs []scaleRun) scaleRun {
	var m scaleRun
	n := float64(len(runs))
	for _, r := range runs {
		m.ReplicaSeconds += r.ReplicaSeconds / n
		m.Load += r.Load / n
		m.Missed += r.Missed / n
		m.MissedPart += r.MissedPart / n
		m.Changes += r.Changes / n
		m.Reversals += r.Reversals / n
		m.Starts += r.Starts / n
		m.ColdStarts += r.ColdStarts / n
		m.Peak += r.Peak / n
		m.RecoverySeconds += r.RecoverySeconds / n
		if m.P99Millis >= 0 {
			m.P99Millis += r.P99Millis / n
		}
		if r.P99Millis < 0 {
			m.P99Millis = -1
		}
	}
	return m
}
