package main

import (
	"fmt"
	"strings"

	"github.com/xebec-serving/xebec/bench/internal/results"
)

// Report holds all measurements. Its JSON form is kept in bench/results.
type Report struct {
	results.Taken
	Pairs           int           `json:"pairs"`
	WarmupSeconds   float64       `json:"warmup_seconds"`
	DurationSeconds float64       `json:"duration_seconds"`
	Procs           int           `json:"gomaxprocs"`
	Relay           bool          `json:"relay,omitempty"` // the floor asks another process
	Scenarios       []Measurement `json:"scenarios"`
}

// Measurement is one scenario.
type Measurement struct {
	Name        string  `json:"name"`
	Worker      string  `json:"worker"`
	Apart       bool    `json:"apart,omitempty"`
	Connections int     `json:"connections"`
	MaxCPURatio float64 `json:"target_cpu_ratio,omitempty"`
	MaxP50Ratio float64 `json:"target_p50_ratio,omitempty"`
	MaxMemRatio float64 `json:"target_memory_ratio,omitempty"`
	Pairs       []Pair  `json:"pairs"`
	// Profile says where the gateway's CPU time went. It is taken only if a target was missed.
	Profile string `json:"profile,omitempty"`
}

func (m *Measurement) missed() bool {
	over := func(ratio func(Pair) float64, target float64) bool {
		return target > 0 && results.Median(results.Each(m.Pairs, ratio)) > target
	}
	return over(Pair.CPURatio, m.MaxCPURatio) || over(Pair.P50Ratio, m.MaxP50Ratio)
}

// Pair is two runs, one after the other, or three with an old gateway.
type Pair struct {
	Floor Sample  `json:"floor"`
	Xebec Sample  `json:"xebec"`
	Old   *Sample `json:"old,omitempty"`
}

// Sample is one run against one server.
type Sample struct {
	Completed uint64  `json:"completed"`
	RPS       float64 `json:"rps"`
	// CPUMicros is the user and system time of the server's process per completed request, without its workers.
	CPUMicros float64 `json:"cpu_us_per_request"`
	P50Micros float64 `json:"p50_us"`
	P99Micros float64 `json:"p99_us"`
	// PeakMiB is the most memory that was resident, from the warm-up on, what the server shares with its workers included.
	PeakMiB float64 `json:"peak_mib"`

	dirty error
}

// CPURatio, P50Ratio and MemRatio are Xebec's values divided by the floor's.
func (p Pair) CPURatio() float64 { return p.Xebec.CPUMicros / p.Floor.CPUMicros }
func (p Pair) P50Ratio() float64 { return p.Xebec.P50Micros / p.Floor.P50Micros }
func (p Pair) MemRatio() float64 { return p.Xebec.PeakMiB / p.Floor.PeakMiB }

// CPUSince, P50Since and MemSince are Xebec's values divided by the old gateway's.
func (p Pair) CPUSince() float64 { return p.Xebec.CPUMicros / p.Old.CPUMicros }
func (p Pair) P50Since() float64 { return p.Xebec.P50Micros / p.Old.P50Micros }
func (p Pair) MemSince() float64 { return p.Xebec.PeakMiB / p.Old.PeakMiB }

// since is the end of the line of progress.
func (p Pair) since() string {
	if p.Old == nil {
		return ""
	}
	return fmt.Sprintf("   to the old: CPU %.2f ×, p50 %.2f ×", p.CPUSince(), p.P50Since())
}

// verdict compares the median ratio with its target.
func verdict(ratio, target float64) string {
	if target == 0 {
		return "–"
	}
	return fmt.Sprintf("≤ %.2f: %s", target, results.Verdict(ratio <= target))
}

// Empty implements results.Report.
func (r *Report) Empty() bool { return len(r.Scenarios) == 0 }

// Markdown implements results.Report.
func (r *Report) Markdown() string {
	var b strings.Builder
	b.WriteString(r.Heading("The whole path against bare Hertz"))
	fmt.Fprintf(&b, "%d interleaved pairs of runs of %gs after %gs of warm-up, closed loop, GOMAXPROCS=%d for both servers; generator, server and worker share the machine, but where it says *apart*: there the generator has a core of its own.\n", r.Pairs, r.DurationSeconds, r.WarmupSeconds, r.Procs)
	b.WriteString("Ratios are medians over pairs, least and most in brackets. CPU is the server process's, without the worker's. How: ../METHOD.md.\n\n")
	if r.Relay {
		b.WriteString("The floor asks another process before each answer, with a message of a few bytes and one back.\n\n")
	}
	b.WriteString("| load | CPU µs/request: floor | Xebec | × | target | p50 µs: floor | Xebec | × | target | p99 µs: floor | Xebec | requests/s: floor | Xebec |\n")
	b.WriteString("|---|---|---|---|---|---|---|---|---|---|---|---|---|\n")
	for i := range r.Scenarios {
		m := &r.Scenarios[i]
		cpu, p50 := results.Each(m.Pairs, Pair.CPURatio), results.Each(m.Pairs, Pair.P50Ratio)
		mid := func(value func(Pair) float64) float64 { return results.Median(results.Each(m.Pairs, value)) }
		fmt.Fprintf(&b, "| %s | %.2f | %.2f | %s | %s | %.0f | %.0f | %s | %s | %.0f | %.0f | %.0f | %.0f |\n", m.Name,
			mid(func(p Pair) float64 { return p.Floor.CPUMicros }), mid(func(p Pair) float64 { return p.Xebec.CPUMicros }), results.Spread(2, cpu), verdict(results.Median(cpu), m.MaxCPURatio),
			mid(func(p Pair) float64 { return p.Floor.P50Micros }), mid(func(p Pair) float64 { return p.Xebec.P50Micros }), results.Spread(2, p50), verdict(results.Median(p50), m.MaxP50Ratio),
			mid(func(p Pair) float64 { return p.Floor.P99Micros }), mid(func(p Pair) float64 { return p.Xebec.P99Micros }),
			mid(func(p Pair) float64 { return p.Floor.RPS }), mid(func(p Pair) float64 { return p.Xebec.RPS }))
	}
	b.WriteString("\nThe most memory resident, with what the gateway and its workers share, MiB:\n\n")
	results.TableHead(&b, "load", "floor", "Xebec", "×", "target")
	for i := range r.Scenarios {
		m := &r.Scenarios[i]
		mem := results.Each(m.Pairs, Pair.MemRatio)
		fmt.Fprintf(&b, "| %s | %.0f | %.0f | %s | %s |\n", m.Name, results.Median(results.Each(m.Pairs, func(p Pair) float64 { return p.Floor.PeakMiB })),
			results.Median(results.Each(m.Pairs, func(p Pair) float64 { return p.Xebec.PeakMiB })), results.Spread(2, mem), verdict(results.Median(mem), m.MaxMemRatio))
	}
	r.writeSince(&b)
	for i := range r.Scenarios {
		if m := &r.Scenarios[i]; m.Profile != "" {
			fmt.Fprintf(&b, "\n## Where the gateway's CPU time goes: %s\n\n```\n%s```\n", m.Name, m.Profile)
		}
	}
	return b.String()
}

// writeSince compares the gateway with the old one, if there was one.
func (r *Report) writeSince(b *strings.Builder) {
	if len(r.Scenarios) == 0 || len(r.Scenarios[0].Pairs) == 0 || r.Scenarios[0].Pairs[0].Old == nil {
		return
	}
	b.WriteString("\nThis gateway's values divided by those of the old one, in the same rounds:\n\n")
	results.TableHead(b, "load", "CPU", "p50", "memory")
	for i := range r.Scenarios {
		m := &r.Scenarios[i]
		fmt.Fprintf(b, "| %s | %s | %s | %s |\n", m.Name, results.Spread(2, results.Each(m.Pairs, Pair.CPUSince)),
			results.Spread(2, results.Each(m.Pairs, Pair.P50Since)), results.Spread(2, results.Each(m.Pairs, Pair.MemSince)))
	}
}
