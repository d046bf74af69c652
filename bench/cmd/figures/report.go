package main

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/xebec-serving/xebec/bench/internal/results"
)

// Report holds all measurements. Its JSON form is kept in bench/results.
type Report struct {
	results.Taken
	Quick           bool         `json:"quick,omitempty"`
	Rounds          int          `json:"rounds"`
	DurationSeconds float64      `json:"duration_seconds"`
	Profiles        []Profile    `json:"figure3,omitempty"`
	Comparisons     []Comparison `json:"figure4,omitempty"`
	Delays          []DelayCurve `json:"figure5,omitempty"`
}

// Profile is one container's panel in figure 3.
type Profile struct {
	Model  string         `json:"model"`
	Title  string         `json:"title"`
	What   string         `json:"what"`
	Points []ProfilePoint `json:"points"`
	Line   line           `json:"line"`
	// Largest is the largest batch within the objective at P99. Beyond means that the largest measured batch still is.
	Largest int  `json:"largest_within_objective"`
	Beyond  bool `json:"beyond,omitempty"`
	// ByRound is the same in each round.
	ByRound []int `json:"largest_by_round,omitempty"`
}

// ProfilePoint is one size of batch.
type ProfilePoint struct {
	Queries    int     `json:"queries"`
	Batches    int     `json:"batches"`
	MeanMillis float64 `json:"mean_ms"`
	P50Millis  float64 `json:"p50_ms"`
	P99Millis  float64 `json:"p99_ms"`
}

// Comparison is one container's bars in figure 4.
type Comparison struct {
	Model      string     `json:"model"`
	Title      string     `json:"title"`
	Strategies []Strategy `json:"strategies"`
}

// Strategy is one way of batching.
type Strategy struct {
	Name   string   `json:"name"`
	Static int      `json:"static_cap,omitempty"`
	Rounds []Sample `json:"rounds"`
	// Finals are further rounds of the adaptive strategies and the best fixed cap only. They are used to compare these, because the best
	// of eight caps in the first rounds owes part of its result to luck.
	Finals []Sample `json:"finals,omitempty"`
	// SettledSeconds is the time in which an adaptive cap grew to SettledCap.
	SettledSeconds float64 `json:"settled_seconds,omitempty"`
	SettledCap     int     `json:"settled_cap,omitempty"`
	// Evaluation times of all rounds: their number, P99, and the fraction above the objective.
	Batches   int     `json:"batches"`
	P99Millis float64 `json:"eval_p99_ms"`
	LateShare float64 `json:"late_share"`
}

// Sample is one run.
type Sample struct {
	QPS       float64 `json:"qps"`
	MeanBatch float64 `json:"mean_batch"`
	// CPUMicros is the container's CPU time per query, Busy the fraction of the time in which it had a batch.
	CPUMicros float64 `json:"container_cpu_us_per_query,omitempty"`
	Busy      float64 `json:"busy,omitempty"`
}

func throughput(s Sample) float64 { return s.QPS }
func batchSize(s Sample) float64  { return s.MeanBatch }

// late is the share of batches that took more than the objective.
func (s *Strategy) late() results.Interval {
	return results.Part(int(math.Round(s.LateShare*float64(s.Batches))), s.Batches)
}

// best is the static cap that the adaptive ones were compared with, or nil.
func (c *Comparison) best() *Strategy {
	return results.Find(c.Strategies, func(s Strategy) bool { return s.Static > 0 && len(s.Finals) > 0 })
}

func (c *Comparison) named(name string) *Strategy {
	return results.Find(c.Strategies, func(s Strategy) bool { return s.Name == name })
}

// DelayCurve is one model in figure 5.
type DelayCurve struct {
	Model       string  `json:"model"`
	Title       string  `json:"title"`
	OneByOneQPS float64 `json:"one_by_one_qps"`
	BatchedQPS  float64 `json:"batched_qps"`
	OfferedQPS  float64 `json:"offered_qps"`
	Delays      []Delay `json:"delays"`
}

// Delay is one delay.
type Delay struct {
	HoldMillis float64       `json:"hold_ms"`
	Rounds     []DelaySample `json:"rounds"`
}

// DelaySample is one run. Latency is from when a query was due to its answer.
type DelaySample struct {
	QPS       float64 `json:"qps"`
	MeanBatch float64 `json:"mean_batch"`
	P50Millis float64 `json:"p50_ms"`
	P99Millis float64 `json:"p99_ms"`
	// CPUMicros is the container's CPU time per query, Busy the fraction of the time in which it had a batch.
	CPUMicros float64 `json:"container_cpu_us_per_query"`
	Busy      float64 `json:"busy"`
	// Refused means that the queue was full.
	Refused bool `json:"refused,omitempty"`
}

func (d *Delay) median(value func(DelaySample) float64) float64 {
	return results.Median(results.Each(d.Rounds, value))
}

func (d *DelayCurve) at(holdMillis float64) *Delay {
	return results.Find(d.Delays, func(x Delay) bool { return x.HoldMillis == holdMillis })
}

// Empty implements results.Report.
func (r *Report) Empty() bool {
	return len(r.Profiles) == 0 && len(r.Comparisons) == 0 && len(r.Delays) == 0
}

// Markdown implements results.Report.
func (r *Report) Markdown() string {
	var b strings.Builder
	b.WriteString(r.Heading("The paper's figures 3, 4 and 5 on scikit-learn containers"))
	if r.Quick {
		b.WriteString(results.Smoke)
	}
	fmt.Fprintf(&b, "One container at a time, one process on one core, 784 float32 features a query, without HTTP; objective %d ms. Points of %gs, %d rounds; medians over rounds, least and most in brackets. How: ../METHOD.md, models: ../models.\n", objectiveMillis, r.DurationSeconds, r.Rounds)
	r.besidePaper(&b)
	r.profiles(&b)
	r.comparisons(&b)
	r.delays(&b)
	r.differences(&b)
	return b.String()
}

func (r *Report) profile(name string) *Profile {
	return results.Find(r.Profiles, func(p Profile) bool { return p.Model == name })
}

func (r *Report) comparison(name string) *Comparison {
	return results.Find(r.Comparisons, func(c Comparison) bool { return c.Model == name })
}

// The share of late batches that a P99 within the objective permits, and the least throughput of an adaptive cap beside the best static one.
const (
	lateAllowed   = 0.01
	adaptiveLeast = 0.95
)

// besidePaper compares the claims of the paper's text with the measurements.
func (r *Report) besidePaper(b *strings.Builder) {
	b.WriteString("\n## Beside the paper\n\nA claim *holds* if the interval of 95 % agrees with it, and does not hold if the interval contradicts it. Intervals are Student's, of the logarithms of ratios that were each taken within a round.\n\n")
	results.TableHead(b, "the paper's text", "claim here", "measured (95 %)", "", "")
	row := func(paper, claimed string, c results.Claim, i results.Interval, note string) {
		fmt.Fprintf(b, "| %s | %s | %s | %s | %s |\n", paper, claimed, i.Format(2), c.Judge(i), note)
	}
	linear, kernel := r.profile(linearSVM), r.profile(kernelSVM)
	if linear != nil && kernel != nil && kernel.Largest > 0 {
		row("largest batches within 20 ms differ by 241× between linear and kernel SVM", "241×, give or take a quarter", results.About(241, 0.25), results.Geometric(largestRatios(linear, kernel)),
			fmt.Sprintf("%s against %d queries", bound(linear.Beyond, float64(linear.Largest)), kernel.Largest))
	}
	l, k := r.comparison(linearSVM), r.comparison(kernelSVM)
	if l != nil && k != nil {
		lq, kq := results.Median(results.Each(l.named("aimd").Rounds, throughput)), results.Median(results.Each(k.named("aimd").Rounds, throughput))
		row("nearly 30,000 queries/s against 200 (150×), linear and kernel SVM", "≥ 150×", results.AtLeast(150), results.Geometric(ratios(l.named("aimd"), k.named("aimd"))), fmt.Sprintf("%.0f against %.0f queries/s, AIMD", lq, kq))
	}
	if l != nil {
		row("batching gains up to 26× (linear SVM)", "≥ 26×", results.AtLeast(26), results.Geometric(ratios(l.named("aimd"), l.named("none"))), "AIMD")
	}
	for i := range r.Comparisons {
		c := &r.Comparisons[i]
		if q := c.named("quantile"); q != nil {
			row("AIMD and quantile regression perform nearly identically", "1, give or take a tenth", results.About(1, 0.1), results.Geometric(append(ratios(q, c.named("aimd")), finals(q, c.named("aimd"))...)), c.Title+", quantile ÷ AIMD")
		}
	}
	for i := range r.Delays {
		d := &r.Delays[i]
		before, after := d.at(0), d.at(2)
		if before == nil || after == nil {
			continue
		}
		qps := func(s DelaySample) float64 { return s.QPS }
		busy := func(s DelaySample) float64 { return s.Busy }
		paper, claimed, claim := "2 ms of delay: 3.3× the throughput (linear SVM)", "≥ 3.3×", results.AtLeast(3.3)
		if d.Model != linearSVM {
			paper, claimed, claim = "no gain where a batch has no fixed cost (Spark SVM)", "1, give or take a tenth", results.About(1, 0.1)
		}
		row(paper, claimed, claim, results.Geometric(quotients(results.Each(after.Rounds, qps), results.Each(before.Rounds, qps))), fmt.Sprintf("the container is busy %.0f %% of the time instead of %.0f %%: %.1f× less",
			100*after.median(busy), 100*before.median(busy), before.median(busy)/after.median(busy)))
	}
}

// largestRatios returns the ratio of the largest batches, round by round. Of a report without rounds of profiles it is the one ratio.
func largestRatios(a, b *Profile) []float64 {
	if len(a.ByRound) == 0 || len(a.ByRound) != len(b.ByRound) {
		return []float64{float64(a.Largest) / float64(b.Largest)}
	}
	number := func(n int) float64 { return float64(n) }
	return quotients(results.Each(a.ByRound, number), results.Each(b.ByRound, number))
}

// bound formats a number, marked if it is a lower bound.
func bound(beyond bool, v float64) string {
	if beyond {
		return fmt.Sprintf("> %.0f", v)
	}
	return fmt.Sprintf("%.0f", v)
}

func (r *Report) profiles(b *strings.Builder) {
	if len(r.Profiles) == 0 {
		return
	}
	b.WriteString("\n## Figure 3: latency profiles\n\nBatches of exactly n, one at a time, from the descriptor written to the answer seen. The line is fitted to the means by least squares of relative errors.\n\n")
	b.WriteString("| container | what | fixed, ms | per query, µs | R² | largest batch within 20 ms at P99 |\n|---|---|---|---|---|---|\n")
	var sizes []int
	for _, p := range r.Profiles {
		fmt.Fprintf(b, "| %s | %s | %.3f | %.2f | %.3f | %s |\n", p.Title, p.What, p.Line.FixedMillis, p.Line.PerQueryMillis*1e3, p.Line.R2, bound(p.Beyond, float64(p.Largest)))
		for _, q := range p.Points {
			if !slices.Contains(sizes, q.Queries) && q.Queries&(q.Queries-1) == 0 {
				sizes = append(sizes, q.Queries)
			}
		}
	}
	b.WriteString("\nMean / P99 in ms by size of batch; sizes in between are in the JSON.\n\n")
	columns := []string{"n"}
	for _, p := range r.Profiles {
		columns = append(columns, p.Title)
	}
	results.TableHead(b, columns...)
	slices.Sort(sizes)
	for _, n := range sizes {
		fmt.Fprintf(b, "| %d |", n)
		for _, p := range r.Profiles {
			i := slices.IndexFunc(p.Points, func(q ProfilePoint) bool { return q.Queries == n })
			if i < 0 {
				b.WriteString(" |")
				continue
			}
			fmt.Fprintf(b, " %.2f / %.2f |", p.Points[i].MeanMillis, p.Points[i].P99Millis)
		}
		b.WriteString("\n")
	}
}

func (r *Report) comparisons(b *strings.Builder) {
	if len(r.Comparisons) == 0 {
		return
	}
	fmt.Fprintf(b, "\n## Figure 4: strategies of batching\n\nClosed loop with three caps of queries in flight (at least %d, at most %d), caps of at most %d. P99 is that of the evaluation of a batch over all rounds; late batches took more than 20 ms. Ratios are taken within rounds.\n\n", minInFlight, maxInFlight, maxBatch)
	b.WriteString("| container | strategy | queries/s | mean batch | P99, ms | late | × none | × best static | settled after |\n|---|---|---|---|---|---|---|---|---|\n")
	for i := range r.Comparisons {
		c := &r.Comparisons[i]
		best, none := c.best(), c.named("none")
		for j := range c.Strategies {
			s := &c.Strategies[j]
			if s.Static > 0 && s != best {
				continue
			}
			name, settled, toBest := s.Name, "–", "–"
			if s == best {
				name = "best " + name
			}
			if s.SettledCap > 0 {
				settled = fmt.Sprintf("%.1f s", s.SettledSeconds)
				if best != nil {
					toBest = results.Spread(2, finals(s, best))
				}
			}
			fmt.Fprintf(b, "| %s | %s | %s | %.0f | %.2f | %.1f %% | %s | %s | %s |\n", c.Title, name, results.Spread(0, results.Each(s.Rounds, throughput)), results.Median(results.Each(s.Rounds, batchSize)),
				s.P99Millis, 100*s.LateShare, results.Spread(1, ratios(s, none)), toBest, settled)
		}
		if best == nil {
			fmt.Fprintf(b, "| %s | no static cap was within 20 ms at P99 | | | | | | | |\n", c.Title)
		}
	}
	r.adaptive(b)
	b.WriteString("\nEvery static cap that was tried:\n\n| container | cap: queries/s, P99 in ms |\n|---|---|\n")
	for _, c := range r.Comparisons {
		var all []string
		for _, s := range c.Strategies {
			if s.Static > 0 {
				all = append(all, fmt.Sprintf("%d: %.0f, %.1f", s.Static, results.Median(results.Each(s.Rounds, throughput)), s.P99Millis))
			}
		}
		fmt.Fprintf(b, "| %s | %s |\n", c.Title, strings.Join(all, " · "))
	}
}

// adaptive judges the adaptive caps by the rule that the static caps must keep.
func (r *Report) adaptive(b *strings.Builder) {
	fmt.Fprintf(b, "\n### By the same rule\n\nA cap, adaptive or static, is within the objective if at most %g %% of its batches take more than %d ms. A finding about an adaptive cap is about both: it keeps the objective, and it has at least "+
		"%g times the throughput of the best static cap that keeps it. The shares' intervals are Clopper's and Pearson's.\n\n", 100*lateAllowed, objectiveMillis, adaptiveLeast)
	results.TableHead(b, "container", "strategy", "late, % (95 %)", "keeps the objective", "× best static (95 %)", "as fast", "")
	for i := range r.Comparisons {
		c := &r.Comparisons[i]
		best := c.best()
		for j := range c.Strategies {
			s := &c.Strategies[j]
			if s.SettledCap == 0 && s != best {
				continue
			}
			late := s.late()
			kept := results.AtMost(lateAllowed).Judge(late)
			shown := results.Interval{Value: 100 * late.Value, Low: 100 * late.Low, High: 100 * late.High}
			speed, fast, both := "–", results.Finding("–"), results.Finding("–")
			if s.SettledCap > 0 {
				ratio := results.Geometric(nil)
				if best != nil {
					ratio = results.Geometric(finals(s, best))
					speed = ratio.Format(2)
				}
				fast = results.AtLeast(adaptiveLeast).Judge(ratio)
				both = results.All(kept, fast)
			}
			fmt.Fprintf(b, "| %s | %s | %s | %s | %s | %s | %s |\n", c.Title, s.Name, shown.Format(1), kept, speed, fast, both)
		}
	}
}

func (r *Report) delays(b *strings.Builder) {
	if len(r.Delays) == 0 {
		return
	}
	b.WriteString("\n## Figure 5: delayed batching\n\nOpen loop, Poisson arrivals, the same for every delay. Latency is from when a query was due to its answer; *busy* is the fraction of the time in which the container had a batch; the rest is room for more load.\n")
	for i := range r.Delays {
		d := &r.Delays[i]
		fmt.Fprintf(b, "\n**%s**: %.0f queries/s offered; the container does at most %.0f one by one, and %.0f in batches of 512.\n\n", d.Title, d.OfferedQPS, d.OneByOneQPS, d.BatchedQPS)
		b.WriteString("| delay, ms | queries/s | mean batch | p50, ms | P99, ms | container's CPU, µs/query | busy |\n|---|---|---|---|---|---|---|\n")
		for j := range d.Delays {
			x := &d.Delays[j]
			kept := ""
			if slices.ContainsFunc(x.Rounds, func(s DelaySample) bool { return s.Refused }) {
				kept = " (not all)"
			}
			fmt.Fprintf(b, "| %g | %s%s | %.1f | %.2f | %s | %s | %.0f %% |\n", x.HoldMillis,
				results.Spread(0, results.Each(x.Rounds, func(s DelaySample) float64 { return s.QPS })), kept,
				x.median(func(s DelaySample) float64 { return s.MeanBatch }),
				x.median(func(s DelaySample) float64 { return s.P50Millis }),
				results.Spread(2, results.Each(x.Rounds, func(s DelaySample) float64 { return s.P99Millis })),
				results.Spread(1, results.Each(x.Rounds, func(s DelaySample) float64 { return s.CPUMicros })),
				100*x.median(func(s DelaySample) float64 { return s.Busy }))
		}
	}
}

// differences explains why the numbers differ from the paper's. It holds for any run.
func (r *Report) differences(b *strings.Builder) {
	b.WriteString(`
## What differs from the paper, and why

- *The data.* The paper's models have learned MNIST, these 8 × 8 digits enlarged to 28 × 28. The number of features is the same; a kernel SVM needs fewer support
  vectors for it, and evaluates faster in proportion.
- *The machine and the libraries* are some years younger. A query costs the linear models a microsecond or two, where 30,000 queries/s leave 33 µs for each, most of them
  for serialising and copying; here a batch arrives as one array in shared memory. So within 20 ms the linear models and the no-op could take batches of more than ten thousand. In
  figure 4 they stop at the gateway's default bound of ` + fmt.Sprint(maxBatch) + ` before they meet the objective.
- *"row by row"* is no Spark. It is the linear SVM's coefficients in a Python loop, with the one property that figure 5 asks for: a batch has next to no fixed cost.
- *P99 and 20 ms.* AIMD finds the objective by exceeding it. A static cap is known to the operator only after such a measurement, on this machine with this model.
- *Delay.* The paper's dispatcher sends what there is whenever the container is free, and without delay its SVM falls behind the load. This one does so too, but batches form by
  themselves while the container is busy; the table says whether that suffices. What delay gains then is the container's time: the fixed cost is paid for larger batches, and the core is
  free for others meanwhile. It costs latency: about the delay, and up to a tick of the scheduler's clock more. Only an idle container's batch is delayed: where a
  batch costs less than 100 µs by itself, as with "row by row", a busy one gets its next batch at once, and the mean batch stays small.
`)
}
