package main

import (
	"bufio"
	"fmt"
	"io"
	"math"
	"os"

	"github.com/xebec-serving/xebec/bench/internal/results"
	"github.com/xebec-serving/xebec/scheduler/sim"
)

// row is the result of one policy in one scenario.
type row struct {
	Scenario string     `json:"scenario"`
	Policy   sim.Policy `json:"policy"`
	// OfferedPerSecond and GoodPerSecond are rates. OfPossible is the fraction of good answers among the possible ones: the offered queries,
	// or the capacity if that is less.
	OfferedPerSecond float64 `json:"offered_per_second"`
	GoodPerSecond    float64 `json:"good_per_second"`
	OfPossible       float64 `json:"of_possible"`
	// MissedPart and RefusedPart are fractions of the offered queries, MissedOfAccepted of those that were neither refused nor dropped.
	MissedPart       float64 `json:"missed_part"`
	MissedOfAccepted float64 `json:"missed_of_accepted"`
	RefusedPart      float64 `json:"refused_part"`
	// DroppedPart is the fraction of queries that were accepted but dropped before their deadline, because they would have missed it.
	DroppedPart float64 `json:"dropped_part"`
	// P50Millis and P99Millis are those of the accepted queries. -1 means that so many missed their objective.
	P50Millis float64 `json:"p50_ms"`
	P99Millis float64 `json:"p99_ms"`
	// SecondsPerThousand is the replicas' time for 1,000 good answers, MeanBatch the mean number of queries in a batch.
	SecondsPerThousand float64 `json:"replica_seconds_per_1000_good"`
	MeanBatch          float64 `json:"mean_batch"`
	// MeanGain is the value of an answer in time, 1 − Π(1 − gain) over the models that took part. MembersPerAnswer is the mean number of those
	// models.
	MeanGain         float64 `json:"mean_gain"`
	MembersPerAnswer float64 `json:"members_per_answer"`
	// PlansPerSecond is how often a model's plan changed.
	PlansPerSecond float64 `json:"plan_changes_per_second"`
	// RecoveryMillis is the longest time after a burst until nothing was refused or missed. -1 means that there was no burst.
	RecoveryMillis float64 `json:"recovery_ms"`
	// Functions has the numbers of each function, if there are several.
	Functions []part `json:"functions,omitempty"`
	// Alone is the quiet function's run without the others.
	Alone *part `json:"alone,omitempty"`

	total sim.FunctionResult
}

// part is one function's part of a row.
type part struct {
	Name          string  `json:"name"`
	GoodPerSecond float64 `json:"good_per_second"`
	GoodPart      float64 `json:"good_part"`
	RefusedPart   float64 `json:"refused_part"`
	P50Millis     float64 `json:"p50_ms"`
	P99Millis     float64 `json:"p99_ms"`
}

// compare runs the scenarios, or a trace, under every policy.
func compare(w *bufio.Writer, cfg *config) error {
	list := scenarios(cfg.seed)
	if cfg.trace != "" {
		s, err := traceScenario(cfg)
		if err != nil {
			return err
		}
		list = []scenario{s}
	}
	chosen := list[:0]
	for _, s := range list {
		if cfg.only.MatchString(s.name) {
			chosen = append(chosen, s)
		}
	}
	rows, err := runAll(chosen)
	if err != nil {
		return err
	}
	report := comparison{
		kind: "sim", heading: compareHeading(cfg), rows: rows,
		tables:  func(w io.Writer) { writeTables(w, chosen, rows) },
		figures: func() ([]results.Figure, error) { return drawFigures(cfg, chosen, rows) },
	}
	return report.publish(w, cfg)
}

// traceScenario is one model under the queries of all functions in the trace.
func traceScenario(cfg *config) (scenario, error) {
	f, err := os.Open(cfg.trace)
	if err != nil {
		return scenario{}, err
	}
	defer f.Close()
	trace, err := sim.ParseTrace(f)
	if err != nil {
		return scenario{}, fmt.Errorf("%s: %w", cfg.trace, err)
	}
	s := plain("trace", cfg.trace, func(float64) sim.Traffic { return sim.Traffic{} })
	s.spec.Functions = nil
	for _, name := range trace.Names() {
		times := trace[name]
		s.spec.Functions = append(s.spec.Functions, functionSpec(name, tightNanos, sim.Traffic{Shape: sim.Recorded, Times: times}))
		s.spec.Duration = max(s.spec.Duration, times[len(times)-1]+1)
	}
	s.spec.Seed = cfg.seed
	return s, nil
}

// runAll runs every scenario under every policy. Each run and the order of rows are deterministic.
func runAll(list []scenario) ([]row, error) {
	rows := make([]row, len(list)*len(sim.Policies))
	errs := inParallel(len(rows), func(i int) (err error) {
		rows[i], err = runOne(&list[i/len(sim.Policies)], sim.Policies[i%len(sim.Policies)])
		return err
	})
	for i, err := range errs {
		if err != nil {
			return nil, fmt.Errorf("%s under %v: %w", rows[i].Scenario, rows[i].Policy, err)
		}
	}
	return rows, nil
}

func runOne(s *scenario, p sim.Policy) (row, error) {
	spec := s.spec
	spec.Policy = p
	r := row{Scenario: s.name, Policy: p, RecoveryMillis: -1}
	result, err := sim.Run(&spec, nil)
	if err != nil {
		return r, err
	}
	seconds := float64(spec.Duration-spec.Warm) / 1e9
	t := result.Total()
	r.total = t
	r.OfferedPerSecond, r.GoodPerSecond = float64(t.Offered)/seconds, float64(t.Good)/seconds
	possible := r.OfferedPerSecond
	if s.capacity > 0 {
		possible = possibleOf(s, &t) / seconds
	}
	r.OfPossible = r.GoodPerSecond / possible
	r.MissedPart, r.RefusedPart = results.Ratio(t.Missed, t.Offered), results.Ratio(t.Refused, t.Offered)
	r.DroppedPart = results.Ratio(t.Dropped, t.Offered)
	r.MissedOfAccepted = results.Ratio(t.Missed, t.Missed+t.Good)
	r.P50Millis, r.P99Millis = millis(t.Quantile(0.5)), millis(t.Quantile(0.99))
	if t.Good > 0 {
		r.SecondsPerThousand = float64(result.BusyNanos) / 1e9 / float64(t.Good) * 1000
		r.MeanGain = t.Gain / float64(t.Good)
		for _, n := range t.Answers {
			r.MembersPerAnswer += float64(n) / float64(t.Good)
		}
	}
	r.PlansPerSecond = float64(result.PlanChanges) / seconds
	r.MeanBatch = results.Ratio(result.Evaluated, result.Batches)
	for _, b := range s.bursts {
		r.RecoveryMillis = max(r.RecoveryMillis, float64(t.Recovery(b.end, b.until))/1e6)
	}
	if len(result.Functions) > 1 {
		for i := range result.Functions {
			r.Functions = append(r.Functions, partOf(&result.Functions[i], seconds))
		}
	}
	if s.quiet >= 0 {
		spec.Functions = spec.Functions[s.quiet : s.quiet+1]
		alone, err := sim.Run(&spec, nil)
		if err != nil {
			return r, err
		}
		p := partOf(&alone.Functions[0], seconds)
		r.Alone = &p
	}
	return r, nil
}

// possibleOf returns how many queries could be answered. Per slot that is the number of offered queries, including those that wait from the
// slots within the last objective, or the capacity if that is less.
func possibleOf(s *scenario, t *sim.FunctionResult) float64 {
	perSlot := s.capacity * sim.SlotNanos / 1e9
	carry, sum := 0.0, 0.0
	window := perSlot * float64(s.spec.Functions[0].SLONanos) / sim.SlotNanos // queries that can wait and still be in time
	for i := int(s.spec.Warm / sim.SlotNanos); i < len(t.Series); i++ {
		carry += float64(t.Series[i].Offered)
		served := min(carry, perSlot)
		sum += served
		carry = min(carry-served, window)
	}
	return sum
}

func partOf(f *sim.FunctionResult, seconds float64) part {
	return part{
		Name: f.Name, GoodPerSecond: float64(f.Good) / seconds, GoodPart: results.Ratio(f.Good, f.Offered), RefusedPart: results.Ratio(f.Refused, f.Offered),
		P50Millis: millis(f.Quantile(0.5)), P99Millis: millis(f.Quantile(0.99)),
	}
}

// millis returns -1 if the quantile lies among the queries that missed.
func millis(nanos int64) float64 {
	if nanos == math.MaxInt64 {
		return -1
	}
	return float64(nanos) / 1e6
}
