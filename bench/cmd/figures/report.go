package main

import (
	"fmt"
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
}

func throughput(s Sample) float64 { return s.QPS }
func batchSize(s Sample) float64  { return s.MeanBatch }

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

// besidePaper compares the claims of the paper's text with the measurements.
func (r *Report) besidePaper(b *strings.Builder) {
	b.WriteString("\n## Beside the paper\n\n| the paper's text | here | |\n|---|---|---|\n")
	linear, kernel := r.profile(linearSVM), r.profile(kernelSVM)
	if linear != nil && kernel != nil && kernel.Largest > 0 {
		fmt.Fprintf(b, "| largest batches within 20 ms differ by 241× between linear and kernel SVM | %s× | %s against %d queries |\n",
			bound(linear.Beyond, float64(linear.Largest)/float64(kernel.Largest)), bound(linear.Beyond, float64(linear.Largest)), kernel.Largest)
	}
	l, k := r.comparison(linearSVM), r.comparison(kernelSVM)
	if l != nil && k != nil {
		lq, kq := results.Median(results.Each(l.named("aimd").Rounds, throughput)), results.Median(results.Each(k.named("aimd").Rounds, throughput))
		fmt.Fprintf(b, "| nearly 30,000 queries/s against 200 (150×) | %.0f against %.0f (%.0f×) | AIMD |\n", lq, kq, lq/kq)
	}
	if l != nil {
		gain := results.Median(ratios(l.named("aimd"), l.named("none")))
		fmt.Fprintf(b, "| batching gains up to 26× (linear SVM) | %.0f× | target ≥ 26×: %s |\n", gain, results.Verdict(gain >= 26))
	}
	var equal []float64
	for i := range r.Comparisons {
		if q := r.Comparisons[i].named("quantile"); q != nil {
			equal = append(equal, results.Median(ratios(q, r.Comparisons[i].named("aimd"))))
		}
	}
	if len(equal) > 0 {
		fmt.Fprintf(b, "| AIMD and quantile regression perform nearly identically | quantile/AIMD %s | median, least and most of the containers |\n", results.Spread(2, equal))
	}
	for i := range r.Delays {
		d := &r.Delays[i]
		before, after := d.at(0), d.at(2)
		if before == nil || after == nil {
			continue
		}
		qps := func(s DelaySample) float64 { return s.QPS }
		busy := func(s DelaySample) float64 { return s.Busy }
		paper := "2 ms of delay: 3.3× the throughput (linear SVM)"
		if d.Model != linearSVM {
			paper = "no gain where a batch has no fixed cost (Spark SVM)"
		}
		fmt.Fprintf(b, "| %s | %.2f× | the container is busy %.0f %% of the time instead of %.0f %%: %.1f× less |\n", paper, after.median(qps)/before.median(qps),
			100*after.median(busy), 100*before.median(busy), before.median(busy)/after.median(busy))
	}
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
		best, none := bestStatic(c.Strategies, objectiveMillis), c.named("none")
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
	b.WriteString("\nTarget: adaptive ≥ 0.95 × the best static cap.")
	for i := range r.Comparisons {
		c := &r.Comparisons[i]
		best := bestStatic(c.Strategies, objectiveMillis)
		if best == nil {
			continue
		}
		for j := range c.Strategies {
			if s := &c.Strategies[j]; s.SettledCap > 0 && results.Median(finals(s, best)) < 0.95 {
				fmt.Fprintf(b, " %s, %s: **missed**.", c.Title, s.Name)
			}
		}
	}
	b.WriteString(" Every static cap that was tried:\n\n| container | cap: queries/s, P99 in ms |\n|---|---|\n")
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
- *P99 and 20 ms.* AIMD finds the objective by exceeding it: some of its batches are late, by design. A static cap counts as within the objective when its P99 is.
- *Delay.* The paper's dispatcher sends what there is whenever the container is free, and without delay its SVM falls behind the load. This one does so too, but batches form by
  themselves while the container is busy; the table says whether that suffices. What delay gains then is the container's time: the fixed cost is paid for larger batches, and the core is
  free for others meanwhile. It costs latency: about the delay, and up to a tick of the scheduler's clock more. Only an idle container's batch is delayed: where a
  batch costs less than 100 µs by itself, as with "row by row", a busy one gets its next batch at once, and the mean batch stays small.
`)
}
