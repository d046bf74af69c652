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
	Scenarios       []Measurement `json:"scenarios"`
}

// Measurement is one scenario.
type Measurement struct {
	Name        string  `json:"name"`
	Clients     int     `json:"clients"`
	MaxCPURatio float64 `json:"target_cpu_ratio,omitempty"`
	MaxP50Ratio float64 `json:"target_p50_ratio,omitempty"`
	Pairs       []Pair  `json:"pairs"`
}

// Pair is two runs, one after the other.
type Pair struct {
	Echo  Sample `json:"echo"`
	Xebec Sample `json:"xebec"`
}

// Sample is one run against one server.
type Sample struct {
	Completed uint64  `json:"completed"`
	RPS       float64 `json:"rps"`
	// CPUMicros is the user and system time of the server's process per completed call, without its workers.
	CPUMicros float64 `json:"cpu_us_per_call"`
	P50Micros float64 `json:"p50_us"`
	P99Micros float64 `json:"p99_us"`
}

// CPURatio and P50Ratio are Xebec's values divided by the bare server's.
func (p Pair) CPURatio() float64 { return p.Xebec.CPUMicros / p.Echo.CPUMicros }
func (p Pair) P50Ratio() float64 { return p.Xebec.P50Micros / p.Echo.P50Micros }

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
	b.WriteString(r.Heading("gRPC against bare grpc-go"))
	fmt.Fprintf(&b, "%d interleaved pairs of runs of %gs after %gs of warm-up, closed loop, GOMAXPROCS=%d for both servers; generator, server and worker share the machine.\n", r.Pairs, r.DurationSeconds, r.WarmupSeconds, r.Procs)
	b.WriteString("Ratios are medians over pairs, least and most in brackets. CPU is the server process's, without the worker's. How: ../METHOD.md.\n\n")
	results.TableHead(&b, "load", "CPU µs/call: bare", "Xebec", "×", "target", "p50 µs: bare", "Xebec", "×", "p99 µs: bare", "Xebec", "calls/s: bare", "Xebec")
	for i := range r.Scenarios {
		m := &r.Scenarios[i]
		cpu, p50 := results.Each(m.Pairs, Pair.CPURatio), results.Each(m.Pairs, Pair.P50Ratio)
		mid := func(value func(Pair) float64) float64 { return results.Median(results.Each(m.Pairs, value)) }
		fmt.Fprintf(&b, "| %s | %.2f | %.2f | %s | %s | %.0f | %.0f | %s | %.0f | %.0f | %.0f | %.0f |\n", m.Name,
			mid(func(p Pair) float64 { return p.Echo.CPUMicros }), mid(func(p Pair) float64 { return p.Xebec.CPUMicros }), results.Spread(2, cpu), verdict(results.Median(cpu), m.MaxCPURatio),
			mid(func(p Pair) float64 { return p.Echo.P50Micros }), mid(func(p Pair) float64 { return p.Xebec.P50Micros }), results.Spread(2, p50),
			mid(func(p Pair) float64 { return p.Echo.P99Micros }), mid(func(p Pair) float64 { return p.Xebec.P99Micros }),
			mid(func(p Pair) float64 { return p.Echo.RPS }), mid(func(p Pair) float64 { return p.Xebec.RPS }))
	}
	return b.String()
}
