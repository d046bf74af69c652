package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/xebec-serving/xebec/gateway/forecast"
	"github.com/xebec-serving/xebec/gateway/internal/numerals"
)

func (c *cli) printPlan(p *forecast.Plan, o *planOptions) error {
	if o.format != formatTable {
		return c.printJSON(o.format, p)
	}
	var out strings.Builder
	fmt.Fprintf(&out, "A batch of n takes %s; %s%% of the queries within %s; %s.\n\n",
		p.Profile.Profile(), numerals.Short(p.Percentile), planMillis(p.SLOMillis), planTraffic(&p.Traffic))
	planTable(&out, p)
	fmt.Fprintf(&out, "\n* %s with a batch cap of %d: %s.\n", numerals.Count(p.Recommended.Replicas, "replica"), p.Recommended.Cap, p.Recommended.Reason)
	for _, note := range p.Notes {
		fmt.Fprintf(&out, "%s.\n", strings.ToUpper(note[:1])+note[1:])
	}
	fmt.Fprintf(&out, "\nOver %s, with replicas that take %s to start:\n\n", planSpan(p.Traffic.Seconds), planMillis(p.StartMillis))
	planDay(&out, p)
	fmt.Fprintf(&out, "\n%s\n", planVerdict(&p.Day))
	if o.svg != "" {
		fmt.Fprintf(c.err, "the day is drawn in %s\n", o.svg)
	}
	_, err := io.WriteString(c.out, out.String())
	return err
}

func planTable(out io.Writer, p *forecast.Plan) {
	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintf(w, "\tREPLICAS\tBATCH CAP\tP50\tP%s\tMISSED\tQUERIES/S\tUTILIZATION\n", numerals.Short(p.Percentile))
	for i := range p.Choices {
		x := &p.Choices[i]
		mark := " "
		if x.Recommended {
			mark = "*"
		}
		fmt.Fprintf(w, "%s\t%d\t%d %s\t%s\t%s\t%s\t%.0f\t%.0f%%\n", mark, x.Replicas, x.Cap, x.Batching, planLatency(x.P50Millis), planLatency(x.PMillis),
			forecast.Percent(x.Missed), x.Capacity, 100*x.Utilization)
	}
	_ = w.Flush() // writing to a string does not fail
}

func planDay(out io.Writer, p *forecast.Plan) {
	d := &p.Day
	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(w, "REPLICAS\tREPLICA-HOURS\tPEAK\tMISSED\tSTARTS\tCOLD STARTS")
	for _, row := range []struct {
		name string
		*forecast.Totals
	}{{fmt.Sprintf("%d to %d, by the autoscaler", d.Min, d.Max), &d.Autoscaler}, {fmt.Sprintf("%d, fixed", p.Recommended.Replicas), &d.Fixed}} {
		fmt.Fprintf(w, "%s\t%.1f\t%d\t%s\t%d\t%d\n", row.name, row.ReplicaHours, row.Peak, forecast.Percent(row.MissedPart), row.Starts, row.ColdStarts)
	}
	_ = w.Flush() // writing to a string does not fail
}

// planVerdict compares the autoscaler with the fixed number.
func planVerdict(d *forecast.Day) string {
	a, f := &d.Autoscaler, &d.Fixed
	text := "The autoscaler saves nothing here: it uses as many replica-hours."
	saved := 0.0
	if f.ReplicaHours > 0 {
		saved = d.SavedHours / f.ReplicaHours
	}
	switch {
	case saved >= 0.005:
		text = fmt.Sprintf("The autoscaler saves %.1f replica-hours, %.0f%%.", d.SavedHours, 100*saved)
	case saved <= -0.005:
		text = fmt.Sprintf("The autoscaler uses %.1f more replica-hours, %.0f%%: it plans with a fraction of what a replica can do (--utilization).", -d.SavedHours, -100*saved)
	}
	if more := a.Missed - f.Missed; more > 0 {
		text += fmt.Sprintf(" It misses %d more queries, %s of all.", more, forecast.Percent(float64(more)/float64(max(a.Queries, 1))))
	}
	return text
}

func planTraffic(t *forecast.TrafficUsed) string {
	if t.Low == t.Peak {
		return fmt.Sprintf("%s queries per second, %s", numerals.Short(t.Peak), t.Shape)
	}
	return fmt.Sprintf("%s to %s queries per second, %s", numerals.Short(t.Low), numerals.Short(t.Peak), t.Shape)
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

// planSpan writes a duration without the zeros that time.Duration.String adds.
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
