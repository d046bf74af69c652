package main

import (
	"fmt"
	"io"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"

	"github.com/xebec-serving/xebec/bench/internal/plots"
	"github.com/xebec-serving/xebec/bench/internal/results"
)

// writeScaleTables writes a table for each trace, in Markdown that reads well as text.
func writeScaleTables(w io.Writer, list []trace, rows []scaleRow) {
	for i := range list {
		t := &list[i]
		fmt.Fprintf(w, "## %s: %s\n\n", t.name, t.what)
		fmt.Fprintln(w, "| scaler         | replica s |  load | missed | missed part | changes | reversals | starts | cold starts | peak |  p99 ms | recovery |")
		fmt.Fprintln(w, "|----------------|----------:|------:|-------:|------------:|--------:|----------:|-------:|------------:|-----:|--------:|---------:|")
		for _, r := range rows {
			if r.Trace == t.name {
				fmt.Fprintf(w, "| %-14s | %9.0f | %4.0f%% | %6.0f | %10.3f%% | %7.1f | %9.1f | %6.1f | %11.1f | %4.1f | %7s | %8s |\n", r.Scaler, r.ReplicaSeconds, 100*r.Load,
					r.Missed, 100*r.MissedPart, r.Changes, r.Reversals, r.Starts, r.ColdStarts, r.Peak, latency(r.P99Millis), recoverySeconds(r.RecoverySeconds))
			}
		}
		fmt.Fprintf(w, "\n%s\n", verdict(t, rows))
	}
}

func recoverySeconds(s float64) string {
	if s < 0 {
		return "–"
	}
	return fmt.Sprintf("%.1f s", s)
}

// verdict says in how many runs ours used no more replica seconds and missed no more than each of the others.
func verdict(t *trace, rows []scaleRow) string {
	var ours *scaleRow
	var b strings.Builder
	for i := range rows {
		r := &rows[i]
		switch {
		case r.Trace != t.name:
		case ours == nil:
			ours = r
		default:
			cheaper, better, both := 0, 0, 0
			for k := range r.Each {
				c, m := ours.Each[k].ReplicaSeconds <= r.Each[k].ReplicaSeconds, ours.Each[k].Missed <= r.Each[k].Missed
				if c {
					cheaper++
				}
				if m {
					better++
				}
				if c && m {
					both++
				}
			}
			fmt.Fprintf(&b, "- %s against %s: replica seconds %+.0f %%, misses %+.0f %%; no more replica seconds in %d, no more misses in %d, both in %d of %d runs\n",
				ours.Scaler, r.Scaler, change(ours.ReplicaSeconds, r.ReplicaSeconds), change(ours.Missed, r.Missed), cheaper, better, both, len(r.Each))
		}
	}
	return b.String()
}

// change returns the difference of a from b in per cent.
func change(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return 100 * (a/b - 1)
}

// scaleHeading precedes the tables of -scale.
func scaleHeading(cfg *config, seeds int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# Autoscalers compared in simulation, %d seeds from %d on\n\n%s", seeds, cfg.seed, scalePreface)
	for i := range contenders {
		fmt.Fprintf(&b, "* **%s**: %s\n", contenders[i].name, contenders[i].what)
	}
	b.WriteByte('\n')
	return b.String()
}

// drawScaleFigures draws a figure for each trace.
func drawScaleFigures(cfg *config, list []trace, rows []scaleRow) ([]results.Figure, error) {
	var all []drawing
	for i := range list {
		all = append(all, drawing{list[i].name, 24 * vg.Centimeter, func() (*plot.Plot, error) { return replicasOverTime(&list[i], rows) }})
	}
	return drawAll(cfg, "autoscale", all)
}

// replicasOverTime returns the replicas of each scaler over the first run, including those that start and drain, and the replicas that the rate
// needs.
func replicasOverTime(t *trace, rows []scaleRow) (*plot.Plot, error) {
	p := plots.Panel(t.what, "minutes", "replicas")
	n := 0
	for i := range rows {
		r := &rows[i]
		if r.Trace != t.name {
			continue
		}
		var have, rate plotter.XYs
		for _, point := range r.first.Points {
			at := float64(point.At+second) / float64(minute)
			have = append(have, plotter.XY{X: at, Y: float64(point.Ready + point.Starting + point.Draining)})
			rate = append(rate, plotter.XY{X: at, Y: float64(point.Offered) / replicaServes})
		}
		if n == 0 {
			if err := plots.Curve(p, rate, plots.Style{Color: plots.Faint, Width: vg.Points(0.5)}, "the rate, in what a replica serves"); err != nil {
				return nil, err
			}
		}
		if err := plots.Curve(p, have, plots.Style{Color: plots.Palette[n], Width: vg.Points(1.5)}, r.Scaler); err != nil {
			return nil, err
		}
		n++
	}
	p.X.Max *= 1.2 // room for the legend
	return p, nil
}

const scalePreface = `Made by ` + "`bin/sim -scale`" + `; the same seeds give the same numbers on any machine, for time is simulated. The scalers are the real ones, and so are the scheduler's
machine, its admission and its batching; replicas, callers and the clock are simulated (scheduler/sim says how). All scalers get the same queries, and the nth replica that a
run starts takes the same time for every scaler.

A replica takes 60 ms + 20 ms × n for a batch of n, with 10 % jitter, and 5 s to start (a container), in the traces called quick 0.1 s (a fork), with 30 % jitter; its objective is 500 ms, in which it serves 30.4 queries a second. A
query that finds no replica waits up to 10 s for one, but is counted as missed after the objective. There are 0 to 60 replicas; a model sleeps after a minute without a
query, as with Knative's window. Nothing is left out at the start of a run.

*replica s* are from the order of each replica to its end, in seconds. *load* is the part of what they could have served that was offered. *missed* are queries without an
answer within the objective: refused, late or lost. *changes* are decisions for another number of replicas, *reversals* those in the opposite direction to the one
before. *recovery* is from the step to the end of the last second in which more than 1 % missed. All numbers are means over the seeds; the figures have the first one.

`
