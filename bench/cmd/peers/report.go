package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/xebec-serving/xebec/bench/internal/results"
)

// Failure is a server that could not be measured, or was left out.
type Failure struct {
	Peer  string `json:"peer"`
	Model string `json:"model,omitempty"`
	Why   string `json:"why"`
}

// Measurement is a load with its runs on all servers.
type Measurement struct {
	LoadName string   `json:"load"`
	Load     Load     `json:"settings"`
	Samples  []Sample `json:"samples"`
}

// Report implements results.Report.
type Report struct {
	results.Taken
	Quick           bool          `json:"quick,omitempty"`
	Rounds          int           `json:"rounds"`
	WarmupSeconds   float64       `json:"warmup_s"`
	DurationSeconds float64       `json:"duration_s"`
	ObjectiveMillis float64       `json:"objective_ms"`
	TookSeconds     float64       `json:"took_s"`
	Peers           []*Peer       `json:"peers"`
	NotTried        []Failure     `json:"not_tried"`
	Failures        []Failure     `json:"failures"`
	Measurements    []Measurement `json:"measurements"`
}

// Empty implements results.Report.
func (r *Report) Empty() bool {
	return !slices.ContainsFunc(r.Measurements, func(m Measurement) bool { return len(m.Samples) > 0 })
}

// of returns a server's runs of a load.
func (m *Measurement) of(peer string) []Sample {
	return results.Where(m.Samples, func(s Sample) bool { return s.Peer == peer })
}

// ratio divides a server's value by Xebec's, within each round. A round in which one of them has none is left out.
func (m *Measurement) ratio(peer string, value func(Sample) float64) string {
	var ratios []float64
	for _, s := range m.of(peer) {
		our := results.Find(m.Samples, func(o Sample) bool { return o.Peer == ours && o.Round == s.Round })
		if our != nil && value(*our) > 0 && value(s) > 0 {
			ratios = append(ratios, value(s)/value(*our))
		}
	}
	if len(ratios) == 0 {
		return "–"
	}
	return results.Geometric(ratios).Format(2)
}

// Markdown implements results.Report.
func (r *Report) Markdown() string {
	var b strings.Builder
	b.WriteString(r.Heading("Servers of models compared"))
	if r.Quick {
		b.WriteString(results.Smoke)
	}
	fmt.Fprintf(&b, "%d rounds; in each, every server has every load once, in rotating order, for %g s after %g s of warm-up. Generator and server share the machine; the servers that wait are stopped. ", r.Rounds, r.DurationSeconds, r.WarmupSeconds)
	b.WriteString("Numbers are medians over rounds. Columns with *÷ Xebec* are ratios within a round: geometric mean, with the interval of 95 % over rounds (Student's, of logarithms). Above 1 the server has more than Xebec: more requests a second is better, more CPU or memory is worse. ")
	b.WriteString("Only right outputs count. CPU and memory are those of all processes of a server. How: ../METHOD.md.\n\n")
	r.writePeers(&b)
	for i := range r.Measurements {
		m := &r.Measurements[i]
		if len(m.Samples) == 0 {
			continue
		}
		fmt.Fprintf(&b, "\n## %s\n\n", m.LoadName)
		if m.Load.Rate > 0 {
			r.writeOpen(&b, m)
		} else {
			r.writeClosed(&b, m)
		}
		r.writeWhy(&b, m)
	}
	r.writeSplits(&b)
	return b.String()
}

func (r *Report) writePeers(b *strings.Builder) {
	results.TableHead(b, "server", "version", "settings", "tuned by")
	for _, p := range r.Peers {
		if p.Missing == "" {
			fmt.Fprintf(b, "| %s | %s | %s | %s |\n", p.Title, cmp.Or(p.Version, "this"), p.Tuning, p.About)
		}
	}
	var missing []string
	for _, p := range r.Peers {
		if p.Missing != "" {
			missing = append(missing, fmt.Sprintf("%s could not be had: %s", p.Title, oneLine(p.Missing)))
		}
	}
	for _, f := range r.Failures {
		missing = append(missing, fmt.Sprintf("%s with the model %s was not measured: %s", r.title(f.Peer), f.Model, oneLine(f.Why)))
	}
	for _, f := range r.NotTried {
		missing = append(missing, fmt.Sprintf("%s was not tried: %s", f.Peer, f.Why))
	}
	if len(missing) > 0 {
		fmt.Fprintf(b, "\n- %s\n", strings.Join(missing, "\n- "))
	}
}

// oneLine makes an error fit into a list.
func oneLine(text string) string {
	return fmt.Sprintf("%.600s", strings.Join(strings.Fields(text), " "))
}

func (r *Report) title(name string) string {
	for _, p := range r.Peers {
		if p.Name == name {
			return p.Title
		}
	}
	return name
}

// measured returns the servers with a run of the load, the one with the largest median first.
func (m *Measurement) measured(value func(Sample) float64) []string {
	var names []string
	for _, s := range m.Samples {
		if !slices.Contains(names, s.Peer) {
			names = append(names, s.Peer)
		}
	}
	median := func(name string) float64 { return results.Median(results.Each(m.of(name), value)) }
	slices.SortStableFunc(names, func(a, b string) int {
		return cmp.Compare(median(b), median(a))
	})
	return names
}

func (r *Report) writeClosed(b *strings.Builder, m *Measurement) {
	rps := func(s Sample) float64 { return s.RPS }
	cpu := func(s Sample) float64 { return s.CPUMicros }
	memory := func(s Sample) float64 { return s.MemoryMiB }
	results.TableHead(b, "server", "requests/s", "÷ Xebec", "P50 ms", "P99 ms", "CPU µs/request", "÷ Xebec", "resident MiB", "÷ Xebec")
	for _, name := range m.measured(rps) {
		all := m.of(name)
		mid := func(value func(Sample) float64) float64 { return results.Median(results.Each(all, value)) }
		fmt.Fprintf(b, "| %s | %.0f | %s | %.2f | %.2f | %.0f | %s | %.0f | %s |\n", r.title(name), mid(rps), m.ratio(name, rps),
			mid(func(s Sample) float64 { return s.P50Millis }), mid(func(s Sample) float64 { return s.P99Millis }), mid(cpu), m.ratio(name, cpu), mid(memory), m.ratio(name, memory))
	}
}

func (r *Report) writeOpen(b *strings.Builder, m *Measurement) {
	goodput := func(s Sample) float64 { return s.GoodputRPS(m.Load) }
	fmt.Fprintf(b, "Objective: %g ms from when a request was due. *Met* says that the P99 is within it, of all requests; those without a right output count as too late.\n\n", r.ObjectiveMillis)
	results.TableHead(b, "server", "goodput/s", "÷ Xebec", "in time", "P50 ms", "P99 ms", "objective", "CPU µs/request", "resident MiB", "generator late, P99 ms")
	for _, name := range m.measured(goodput) {
		all := m.of(name)
		mid := func(value func(Sample) float64) float64 { return results.Median(results.Each(all, value)) }
		p99 := mid(func(s Sample) float64 { return s.P99Millis })
		fmt.Fprintf(b, "| %s | %.0f | %s | %.1f %% | %.2f | %.2f | %s | %.0f | %.0f | %.2f |\n", r.title(name), mid(goodput), m.ratio(name, goodput), 100*mid(func(s Sample) float64 { return s.InTime }),
			mid(func(s Sample) float64 { return s.P50Millis }), p99, results.Verdict(p99 > 0 && p99 <= r.ObjectiveMillis),
			mid(func(s Sample) float64 { return s.CPUMicros }), mid(func(s Sample) float64 { return s.MemoryMiB }), mid(func(s Sample) float64 { return s.SendDelay }))
	}
}

// writeWhy lists what had no right output.
func (r *Report) writeWhy(b *strings.Builder, m *Measurement) {
	var lines []string
	for _, name := range m.measured(func(Sample) float64 { return 0 }) {
		var failed uint64
		for _, s := range m.of(name) {
			failed += s.Failed
		}
		if failed > 0 {
			lines = append(lines, fmt.Sprintf("- %s: %d requests without a right output: %s\n", r.title(name), failed, oneLine(reasons(m.of(name)))))
		}
	}
	if len(lines) > 0 {
		fmt.Fprintf(b, "\n%s", strings.Join(lines, ""))
	}
}

// writeSplits shows where a query's time goes, for the servers that count it.
func (r *Report) writeSplits(b *strings.Builder) {
	head := false
	for i := range r.Measurements {
		m := &r.Measurements[i]
		for _, name := range m.measured(func(s Sample) float64 { return s.RPS }) {
			var splits []Split
			for _, s := range m.of(name) {
				if s.Split != nil {
					splits = append(splits, *s.Split)
				}
			}
			if len(splits) == 0 {
				continue
			}
			if !head {
				head = true
				b.WriteString("\n## Where a query's time goes\n\nMeans, in µs: what a query waited for its batch and what a batch was evaluated, both as the server counts them, and the rest of what the client saw (the paper's figure 11).\n\n")
				results.TableHead(b, "load", "server", "predict", "queue", "overhead")
			}
			mid := func(value func(Split) float64) float64 { return results.Median(results.Each(splits, value)) }
			fmt.Fprintf(b, "| %s | %s | %.0f | %.0f | %.0f |\n", m.LoadName, r.title(name), mid(func(s Split) float64 { return s.PredictMicros }),
				mid(func(s Split) float64 { return s.QueueMicros }), mid(func(s Split) float64 { return s.OverheadMicros }))
		}
	}
}
