package main

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/xebec-serving/xebec/bench/internal/gobench"
	"github.com/xebec-serving/xebec/bench/internal/results"
)

// Report holds all measurements. Its JSON form is kept in bench/results.
type Report struct {
	results.Taken
	Rounds        int                 `json:"rounds"`
	WindowSeconds float64             `json:"window_seconds"`
	Connections   int                 `json:"connections"`
	Rollouts      []Rollout           `json:"rollouts,omitempty"`
	Lookups       []gobench.Benchmark `json:"lookups,omitempty"`
	Declared      []Declared          `json:"declared,omitempty"`
	Applied       []Applied           `json:"applied,omitempty"`
	Logged        []Logged            `json:"logged,omitempty"`
	Takeovers     []Takeover          `json:"takeovers,omitempty"`
}

// Empty implements results.Report.
func (r *Report) Empty() bool {
	return len(r.Rollouts) == 0 && len(r.Lookups) == 0 && len(r.Declared) == 0 && len(r.Applied) == 0 && len(r.Logged) == 0 && len(r.Takeovers) == 0
}

// unexpected returns an error for queries that failed, which must not happen on any machine.
func (r *Report) unexpected() error {
	var errs []error
	for _, x := range r.Rollouts {
		for _, c := range x.Changes {
			if c.Failed > 0 {
				errs = append(errs, fmt.Errorf("%s, %s loop: %d queries failed at a %s: %s", x.Workload, x.Load, c.Failed, c.Kind, c.FailedWhy))
			}
		}
	}
	for _, l := range r.Logged {
		for i, p := range l.Pairs {
			if p.Failed > 0 {
				errs = append(errs, fmt.Errorf("inference log, %s, pair %d: %d queries failed", l.Name, i+1, p.Failed))
			}
		}
	}
	for i, t := range r.Takeovers {
		if n := t.failed(); n > 0 {
			errs = append(errs, fmt.Errorf("takeover %d: %d queries failed: kept connections: %s; fresh ones: %s", i, n, cmp.Or(t.Kept.FailedWhy, "none"), cmp.Or(t.Fresh.FailedWhy, "none")))
		}
	}
	return errors.Join(errs...)
}

// Markdown implements results.Report.
func (r *Report) Markdown() string {
	var b strings.Builder
	b.WriteString(r.Heading("Life cycle: what changes cost"))
	fmt.Fprintf(&b, "Made by `bin/lifecycle`: %d rounds; medians, with the least and the most in brackets.\n", r.Rounds)
	r.rollouts(&b)
	r.lookups(&b)
	r.declared(&b)
	r.applied(&b)
	r.logged(&b)
	r.takeovers(&b)
	return b.String()
}

func (r *Report) rollouts(b *strings.Builder) {
	if len(r.Rollouts) == 0 {
		return
	}
	fmt.Fprintf(b, "\n## A roll-out and a rollback under load\n\n"+
		"The closed loop has %d clients, the open one Poisson arrivals at %.0f %% of what the closed one reached. P99 is of the answers from the "+
		"request for the change until %v after the other version had begun to serve, against a window of %.1f s right before. Only the newest version is kept "+
		"loaded (`latest: 1`), so that a rollback has to load the older one again.\n\n"+
		"| model | load | change | P99 before, ms | P99 during, ms | ratio | target | | failed | serves after, s |\n|---|---|---|---|---|---|---|---|---|---|\n",
		r.Connections, openPart*100, after, r.WindowSeconds)
	for _, x := range r.Rollouts {
		for _, kind := range []string{"roll-out", "rollback"} {
			changes := results.Where(x.Changes, func(c Change) bool { return c.Kind == kind })
			of := func(value func(*Change) float64) []float64 {
				return results.Each(changes, func(c Change) float64 { return value(&c) })
			}
			if len(changes) == 0 {
				continue
			}
			failed := uint64(0)
			for _, c := range changes {
				failed += c.Failed
			}
			ratios := of((*Change).ratio)
			fmt.Fprintf(b, "| %s | %s, %.0f/s | %s | %s | %s | %s | ≤ %.1f | %s | %d (%s) | %s |\n", x.Workload, x.Load, x.RateRPS, kind,
				results.Spread(2, of(func(c *Change) float64 { return c.QuietP99 })), results.Spread(2, of(func(c *Change) float64 { return c.P99 })),
				results.Spread(2, ratios), maxP99Ratio, results.Verdict(results.Median(ratios) <= maxP99Ratio), failed, results.Verdict(failed == 0),
				results.Spread(2, of(func(c *Change) float64 { return c.ServeSeconds })))
		}
	}
}

func (r *Report) lookups(b *strings.Builder) {
	if len(r.Lookups) == 0 {
		return
	}
	b.WriteString("\n## Looking up the serving version\n\n`BenchmarkLookup` of package gateway/query.\n\n| | ns | bytes | allocations |\n|---|---|---|---|\n")
	for _, l := range r.Lookups {
		fmt.Fprintf(b, "| %s | %s | %.0f | %.0f |\n", strings.ReplaceAll(l.Name, "_", " "), results.Spread(1, l.Nanos), results.Median(l.Bytes), results.Median(l.Allocs))
	}
}

func (r *Report) declared(b *strings.Builder) {
	if len(r.Declared) == 0 {
		return
	}
	fmt.Fprintf(b, "\n## %d declared models, none running\n\nMemory is resident, in 10⁶ bytes: when /readyz said 200, and after %.0f s alone.\n\n"+
		"| started from | ready after, s | target | | memory at once | later | target | |\n|---|---|---|---|---|---|---|---|\n", r.Declared[0].Models, r.Declared[0].SettleSeconds)
	for _, from := range distinct(r.Declared, func(d Declared) string { return d.From }) {
		rows := results.Where(r.Declared, func(d Declared) bool { return d.From == from })
		seconds := results.Each(rows, func(d Declared) float64 { return d.StartSeconds })
		settled := results.Each(rows, func(d Declared) float64 { return d.SettledMegabytes })
		fmt.Fprintf(b, "| %s | %s | ≤ %d | %s | %s | %s | ≤ %d | %s |\n", from, results.Spread(2, seconds), maxStartSeconds, results.Verdict(results.Median(seconds) <= maxStartSeconds),
			results.Spread(0, results.Each(rows, func(d Declared) float64 { return d.ReadyMegabytes })), results.Spread(0, settled), maxResidentMegabytes,
			results.Verdict(results.Median(settled) <= maxResidentMegabytes))
	}
}

func (r *Report) applied(b *strings.Builder) {
	if len(r.Applied) == 0 {
		return
	}
	fmt.Fprintf(b, "\n## apply of %d models\n\nThe second time nothing changes. After each the gateway was killed (kill -9), and all models were there again.\n\n"+
		"| store | how | seconds | target | | once more |\n|---|---|---|---|---|---|\n", r.Applied[0].Models)
	for _, key := range distinct(r.Applied, func(a Applied) string { return a.Store + " | " + a.How }) {
		rows := results.Where(r.Applied, func(a Applied) bool { return a.Store+" | "+a.How == key })
		seconds := results.Each(rows, func(a Applied) float64 { return a.Seconds })
		fmt.Fprintf(b, "| %s | %s | ≤ %d | %s | %s |\n", key, results.Spread(2, seconds), maxApplySeconds, results.Verdict(results.Median(seconds) <= maxApplySeconds),
			results.Spread(2, results.Each(rows, func(a Applied) float64 { return a.AgainSeconds })))
	}
}

func (r *Report) logged(b *strings.Builder) {
	if len(r.Logged) == 0 {
		return
	}
	fmt.Fprintf(b, "\n## The inference log at 100 %%\n\nA closed loop of %d clients, a compiled no-op worker; ratios are taken within each pair of runs. *Floor*: without the log, beside a\n"+
		"program that only writes as many bytes a second to files. *Costs*: what the log takes of the throughput, and how many times the floor's share that is.\n\n"+
		"| query | without, /s | with, /s | ratio | target | | log, MB | floor | costs |\n|---|---|---|---|---|---|---|---|---|\n", loggedConnections)
	for _, l := range r.Logged {
		ratio := results.Median(results.Each(l.Pairs, LoggedPair.ratio))
		floor, costs := "–", fmt.Sprintf("%.1f %%", 100*(1-ratio))
		if floors := results.Each(l.Pairs, LoggedPair.floorRatio); results.Median(floors) > 0 {
			floor = results.Spread(3, floors)
			if taken := 1 - results.Median(floors); taken > 0 {
				costs += fmt.Sprintf(", %.1f ×", (1-ratio)/taken)
			}
		}
		fmt.Fprintf(b, "| %s | %s | %s | %s | ≥ %.2f | %s | %.1f | %s | %s |\n", l.Name, results.Spread(0, results.Each(l.Pairs, func(p LoggedPair) float64 { return p.PlainRPS })),
			results.Spread(0, results.Each(l.Pairs, func(p LoggedPair) float64 { return p.LoggedRPS })), results.Spread(3, results.Each(l.Pairs, LoggedPair.ratio)), minLoggedRatio,
			results.Verdict(ratio >= minLoggedRatio), float64(l.LogBytes)/1e6, floor, costs)
	}
}

// distinct returns the keys of rows, in the order of their first occurrence.
func distinct[T any](rows []T, key func(T) string) []string {
	var keys []string
	for _, row := range rows {
		if k := key(row); !slices.Contains(keys, k) {
			keys = append(keys, k)
		}
	}
	return keys
}

func (r *Report) takeovers(b *strings.Builder) {
	if len(r.Takeovers) == 0 {
		return
	}
	fmt.Fprintf(b, "\n## Takeovers under load\n\n"+
		"`xebec upgrade` of a gateway with two replicas of a compiled model, one takeover after the other, under %d requests/s with Poisson arrivals: half of them on %d "+
		"kept connections, half on a fresh connection each. Requests are due at their times whatever came back; latencies count from then, and include the connect. The "+
		"load lasts from %.2f s before the upgrade until the old process has ended and longer (%.0f s in all). Row 0 is the same load without a takeover.\n\n"+
		"| takeover | serves after, s | old process ended after, s | kept: queries | P50, ms | P99, ms | max, ms | failed | fresh: queries | P50, ms | P99, ms | max, ms | failed |\n|---|---|---|---|---|---|---|---|---|---|---|---|---|\n",
		takeoverRate, takeoverConnections, r.WindowSeconds/4, 2*r.WindowSeconds+takeoverDrain.Seconds())
	failed, queries := uint64(0), uint64(0)
	for i, t := range r.Takeovers {
		failed, queries = failed+t.failed(), queries+t.Kept.Queries+t.Fresh.Queries
		fmt.Fprintf(b, "| %d | %.2f | %.2f |", i, t.Seconds, t.EndSeconds)
		for _, h := range []Half{t.Kept, t.Fresh} {
			fmt.Fprintf(b, " %d | %.2f | %.2f | %.1f | %d |", h.Queries, h.P50, h.P99, h.Max, h.Failed)
		}
		b.WriteString("\n")
	}
	fmt.Fprintf(b, "\nFailed: %d of %d (%s).\n", failed, queries, results.Verdict(failed == 0))
}
