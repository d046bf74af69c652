package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/xebec-serving/xebec/scheduler/planner"
)

// writeTables writes a table for each scenario, in Markdown that reads well as text.
func writeTables(w io.Writer, list []scenario, rows []row) {
	for i := range list {
		s := &list[i]
		fmt.Fprintf(w, "## %s: %s\n\n", s.name, s.what)
		fmt.Fprintln(w, "| policy        | offered/s | good/s | of possible | missed | refused | dropped |  p50 ms |  p99 ms | replica s/1000 | batch | recovery |")
		fmt.Fprintln(w, "|---------------|----------:|-------:|------------:|-------:|--------:|--------:|--------:|--------:|---------------:|------:|---------:|")
		for _, r := range rows {
			if r.Scenario == s.name {
				fmt.Fprintf(w, "| %-13v | %9.0f | %6.0f | %10.1f%% | %5.2f%% | %6.2f%% | %6.2f%% | %7s | %7s | %14.3f | %5.1f | %8s |\n", r.Policy, r.OfferedPerSecond,
					r.GoodPerSecond, 100*r.OfPossible, 100*r.MissedPart, 100*r.RefusedPart, 100*r.DroppedPart, latency(r.P50Millis), latency(r.P99Millis),
					r.SecondsPerThousand, r.MeanBatch, recoveryText(r.RecoveryMillis))
			}
		}
		fmt.Fprintln(w)
		writeFunctions(w, s, rows)
	}
}

// writeFunctions writes the numbers of each function if there are several functions, or several models to choose from.
func writeFunctions(w io.Writer, s *scenario, rows []row) {
	any := false
	for _, r := range rows {
		if r.Scenario != s.name {
			continue
		}
		var parts []string
		for _, p := range r.Functions {
			parts = append(parts, fmt.Sprintf("%s %.0f/s good (%.1f%%), %.1f%% refused, p50 %s, p99 %s ms", p.Name, p.GoodPerSecond, 100*p.GoodPart,
				100*p.RefusedPart, latency(p.P50Millis), latency(p.P99Millis)))
		}
		if r.Alone != nil {
			parts = append(parts, fmt.Sprintf("%s alone p50 %s, p99 %s ms", r.Alone.Name, latency(r.Alone.P50Millis), latency(r.Alone.P99Millis)))
		}
		if len(s.spec.Functions[0].Candidates) > 1 {
			parts = append(parts, fmt.Sprintf("mean gain of the answers %.3f", r.MeanGain))
		}
		if s.spec.Functions[0].Mode == planner.All {
			parts = append(parts, fmt.Sprintf("%.2f members in an answer", r.MembersPerAnswer))
		}
		if r.PlansPerSecond >= 1 {
			parts = append(parts, fmt.Sprintf("%.0f plan changes a second", r.PlansPerSecond))
		}
		if len(parts) > 0 {
			any = true
			fmt.Fprintf(w, "- %v: %s\n", r.Policy, strings.Join(parts, "; "))
		}
	}
	if any {
		fmt.Fprintln(w)
	}
}

func latency(millis float64) string {
	if millis < 0 {
		return "missed"
	}
	return fmt.Sprintf("%.2f", millis)
}

func recoveryText(millis float64) string {
	if millis < 0 {
		return "–"
	}
	return fmt.Sprintf("%.0f ms", millis)
}
