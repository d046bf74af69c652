package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/xebec-serving/xebec/gateway/cmd/xebec/capacity"
)

// printPlan writes the answer in the format that was asked for.
func (c *cli) printPlan(p *capacity.Plan, o *planOptions) error {
	if o.format != formatTable {
		text, err := json.Marshal(p)
		if err != nil {
			return err
		}
		return c.print(o.format, text)
	}
	var out strings.Builder
	fmt.Fprintf(&out, "A batch of n takes %s; %s%% of the queries within %s; %s.\n\n",
		capacity.Profile{FixedNanos: p.Profile.FixedMicros * 1e3, EachNanos: p.Profile.EachMicros * 1e3}, figure(p.Percentile), planMillis(p.SLOMillis), planTraffic(&p.Traffic))
	planTable(&out, p)
	fmt.Fprintf(&out, "\n* %s with a batch cap of %d: %s.\n", replicasText(p.Recommended.Replicas), p.Recommended.Cap, p.Recommended.Reason)
	for _, note := range p.Notes {
		fmt.Fprintf(&out, "%s.\n", strings.ToUpper(note[:1])+note[1:])
	}
	d := &p.Day
	fmt.Fprintf(&out, "\n%s of it, replicas that start in %s:\n\n", planSpan(p.Traffic.Seconds), planMillis(p.StartMillis))
	planDay(&out, p)
	fmt.Fprintf(&out, "\n%s\n", planVerdict(d))
	if o.svg != "" {
		fmt.Fprintf(c.err, "the day is drawn in %s\n", o.svg)
	}
	_, err := io.WriteString(c.out, out.String())
	return err
}

func planTable(out io.Writer, p *capacity.Plan) {
	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintf(w, "\tREPLICAS\tBATCH CAP\tP50\tP%s\tMISSED\tQUERIES/S\tUTILIZATION\n", figure(p.Percentile))
	for i := range p.Choices {
		x := &p.Choices[i]
		mark := " "
		if x.Recommended {
			mark = "*"
		}
		fmt.Fprintf(w, "%s\t%d\t%d %s\t%s\t%s\t%s\t%.0f\t%.0f%%\n", mark, x.Replicas, x.Cap, x.Batching, planLatency(x.P50Millis), planLatency(x.PMillis),
			capacity.Percent(x.Missed), x.Capacity, 100*x.Utilization)
	}
	_ = w.Flush() // a string takes everything
}

func planDay(out io.Writer, p *capacity.Plan) {
	d := &p.Day
	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(w, "REPLICAS\tREPLICA-HOURS\tPEAK\tMISSED\tSTARTS\tCOLD STARTS")
	for _, row := range []struct {
		name string
		*capacity.Totals
	}{{fmt.Sprintf("%d to %d, by the autoscaler", d.Min, d.Max), &d.Autoscaler}, {fmt.Sprintf("%d, fixed", p.Recommended.Replicas), &d.Fixed}} {
		fmt.Fprintf(w, "%s\t%.1f\t%d\t%s\t%d\t%d\n", row.name, row.ReplicaHours, row.Peak, capacity.Percent(row.MissedPart), row.Starts, row.ColdStarts)
	}
	_ = w.Flush() // a string takes everything
}

// planVerdict sets the autoscaler against the fixed number.
func planVerdict(d *capacity.Day) string {
	a, f := &d.Autoscaler, &d.Fixed
	text := "The autoscaler saves nothing here: it takes as many replica-hours."
	part := 0.0
	if f.ReplicaHours > 0 {
		part = d.SavedHours / f.ReplicaHours
	}
	switch {
	case part >= 0.005:
		text = fmt.Sprintf("The autoscaler saves %.1f replica-hours, %.0f%%.", d.SavedHours, 100*part)
	case part <= -0.005:
		text = fmt.Sprintf("The autoscaler takes %.1f replica-hours more, %.0f%%: it plans with less than what a replica can do (--utilization).", -d.SavedHours, -100*part)
	}
	if more := a.Missed - f.Missed; more > 0 {
		text += fmt.Sprintf(" It misses %d queries more, %s of all.", more, capacity.Percent(float64(more)/float64(max(a.Queries, 1))))
	}
	return text
}

func planTraffic(t *capacity.TrafficUsed) string {
	if t.Low == t.Peak {
		return fmt.Sprintf("%s queries a second, %s", figure(t.Peak), t.Shape)
	}
	return fmt.Sprintf("%s to %s queries a second, %s", figure(t.Low), figure(t.Peak), t.Shape)
}

func replicasText(n int) string {
	if n == 1 {
		return "1 replica"
	}
	return fmt.Sprintf("%d replicas", n)
}

func planLatency(millis *float64) string {
	if millis == nil {
		return "missed"
	}
	return fmt.Sprintf("%.1f ms", *millis)
}

func planMillis(ms float64) string {
	return time.Duration(ms * float64(time.Millisecond)).Round(time.Microsecond).String()
}

// planSpan writes hours without the zeros of a time.Duration.
func planSpan(seconds float64) string {
	text := time.Duration(seconds * float64(time.Second)).String()
	if short, cut := strings.CutSuffix(text, "m0s"); cut {
		text = short + "m"
	}
	if short, cut := strings.CutSuffix(text, "h0m"); cut {
		text = short + "h"
	}
	return text
}
