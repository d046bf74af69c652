package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/forecast"
	"github.com/xebec-serving/xebec/gateway/internal/numerals"
)

// measured writes the measured performance of a version.
func (p *page) measured(m *api.MeasuredStatus) {
	if m == nil {
		return
	}
	p.field(0, "Measured", p.c.cell(m.Hardware))
	if l := m.Latency; l != nil {
		p.field(1, "Batch of n", fmt.Sprintf("%s, P99 %s (%s of %s queries on average%s)", batchTime(l), micros(l.P99Micros), numerals.Count(l.Batches, "batch"), numerals.Short(l.MeanBatch), p.measuredAt(l.At, l.Kept)))
		sizes := make([]string, len(l.Sizes))
		for i, s := range l.Sizes {
			sizes[i] = fmt.Sprintf("%s: %s", sizeRange(s), micros(int64(s.MeanMicros)))
		}
		p.field(1, "By size", strings.Join(sizes, ", "))
	}
	if a := m.Accuracy; a != nil {
		p.field(1, "Accuracy", fmt.Sprintf("%s by feedback (%s%s)", numerals.Percent(a.Accuracy), numerals.Count(a.Labels, "label"), p.measuredAt(a.At, a.Kept)))
	}
	if d := m.Drift; d != nil && d.Kept { // else it is in the version's life
		p.field(1, "Drift", fmt.Sprintf("input %s, output %s (%s%s)", numerals.Short(d.Input), numerals.Short(d.Output), numerals.Count(d.Served, "query"), p.measuredAt(d.At, d.Kept)))
	}
	for _, e := range m.Elsewhere {
		l := &e.Latency
		p.field(1, "Other hardware", fmt.Sprintf("%s: %s, P99 %s (%s%s)", p.c.cell(e.Hardware), batchTime(l), micros(l.P99Micros), numerals.Count(l.Batches, "batch"), p.measuredAt(l.At, false)))
	}
}

// measuredAt is ", 3m ago", and what a kept figure is.
func (p *page) measuredAt(at time.Time, kept bool) string {
	text := ""
	if !at.IsZero() {
		text = ", " + p.since(at)
	}
	if kept {
		text += ", kept from before the gateway started"
	}
	return text
}

// batchTime is "2ms+100µs" as `xebec plan --profile` reads it.
func batchTime(l *api.KnownProfile) string {
	return forecast.Profile{FixedNanos: l.InterceptMicros * 1e3, EachNanos: l.SlopeMicros * 1e3}.String()
}

func sizeRange(s api.SizeTime) string {
	if s.From == s.To {
		return fmt.Sprint(s.From)
	}
	return fmt.Sprintf("%d to %d", s.From, s.To)
}

// measuredTable writes a line for each version.
func (c *cli) measuredTable(all []api.MeasuredStatus) error {
	return c.table("VERSION\tBATCH OF N\tP99\tBATCHES\tACCURACY\tLABELS\tDRIFT\tMEASURED", len(all), "measurements", func(w io.Writer) {
		for i := range all {
			m := &all[i]
			cells := []string{m.Model, "-", "-", "-", "-", "-", "-", "-"}
			var at time.Time
			if l := m.Latency; l != nil {
				cells[1], cells[2], cells[3], at = batchTime(l), micros(l.P99Micros), fmt.Sprint(l.Batches), l.At
			}
			if a := m.Accuracy; a != nil {
				cells[4], cells[5] = numerals.Percent(a.Accuracy), fmt.Sprint(a.Labels)
				if a.At.After(at) {
					at = a.At
				}
			}
			if d := m.Drift; d != nil {
				cells[6] = numerals.Short(max(d.Input, d.Output))
			}
			if !at.IsZero() {
				cells[7] = ago(time.Since(at))
			} else if len(m.Elsewhere) > 0 {
				cells[7] = "on other hardware: " + c.cell(m.Elsewhere[0].Hardware)
			}
			fmt.Fprintln(w, strings.Join(cells, "\t"))
		}
	})
}

// ago is how old a figure is, for people.
func ago(d time.Duration) string {
	switch d = max(d, 0); {
	case d < time.Minute:
		return fmt.Sprintf("%d s ago", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%d min ago", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h ago", int(d.Hours()))
	}
	return fmt.Sprintf("%d days ago", int(d.Hours()/24))
}
