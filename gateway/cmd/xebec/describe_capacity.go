package main

import (
	"fmt"
	"strings"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/internal/numerals"
)

// wantedReplicas is how many replicas a version should have now.
func wantedReplicas(m *api.ModelStatus) int {
	if m.Capacity != nil {
		return m.Capacity.Wanted
	}
	return m.Spec.Replicas.Min
}

// readyOf is "2 of 3 replicas ready".
func readyOf(m *api.ModelStatus) string {
	return fmt.Sprintf("%d of %s ready", m.ReadyReplicas(), numerals.Count(wantedReplicas(m), "replica"))
}

// capacity writes how many replicas a version has, why, and what they need.
func (p *page) capacity(m *api.ModelStatus) {
	c := m.Capacity
	if c == nil {
		return
	}
	b := &m.Spec.Replicas
	bounds := fmt.Sprintf("%d to %d", b.Min, b.Max)
	if b.Min == b.Max {
		bounds = fmt.Sprint(b.Min)
	}
	if b.Min == 0 {
		bounds += fmt.Sprintf(", none after %s without a query", b.Idle)
	}
	p.field(0, "Replicas", bounds)
	hints := make([]string, len(m.Spec.Expect))
	for i := range m.Spec.Expect {
		hints[i] = m.Spec.Expect[i].String()
	}
	p.field(0, "Expected", strings.Join(hints, "; "))
	wanted := fmt.Sprint(c.Wanted)
	if c.Reason != "" {
		wanted += ": " + c.Reason
		if c.Rate > 0 && c.PerReplica > 0 {
			wanted += fmt.Sprintf(" (%s queries/s, %s per replica)", numerals.Short(c.Rate), numerals.Short(c.PerReplica))
		}
		if c.Panic {
			wanted += ", in panic mode"
		}
	}
	p.field(0, "Wanted", wanted)
	if c.Granted < c.Wanted {
		p.field(0, "Granted", fmt.Sprintf("%d: %s", c.Granted, c.ShortWhy))
	}
	p.field(0, "Per replica", needs(c))
	p.field(0, "Limits", limitsText(&m.Spec.Limits))
	p.text(0, "Not enforced", c.Unenforced)
	if len(m.Spec.Preload) > 0 {
		p.field(0, "Preload", strings.Join(m.Spec.Preload, ", "))
	}
	start := ""
	if c.StartMS > 0 {
		start = fmt.Sprintf("a replica starts in %s", millis(c.StartMS))
	}
	if s := c.ColdStarts; s != nil {
		start += fmt.Sprintf("; %s: P50 %s, P99 %s, the last one %s", numerals.Count(s.Count, "cold start"), millis(s.P50MS), millis(s.P99MS), millis(s.LastMS))
	}
	p.field(0, "Start", start)
	if s := m.Streams; s != nil {
		p.field(0, "Streams", fmt.Sprintf("%d open, %s so far; ended: %d finished, %d left by their callers, %d failed, %d lost", s.Open, numerals.Count(s.Outputs, "output"), s.Ended.Finished, s.Ended.Left, s.Ended.Failed, s.Ended.Lost))
	}
	if h := m.Hedges; h != nil {
		p.field(0, "Hedged", fmt.Sprintf("%s went to a second replica too, which answered first %s", numerals.Count(h.Hedged, "query"), numerals.Count(h.Wins, "time")))
	}
}

// needs is what the placement of a replica assumes that it needs, "" if that is nothing.
func needs(c *api.CapacityStatus) string {
	var parts []string
	if c.Takes.CPU > 0 {
		parts = append(parts, cores(c.Takes.CPU))
	}
	if c.Takes.MemoryBytes > 0 {
		measured := ""
		if c.Measured {
			measured = ", measured"
		}
		parts = append(parts, fmt.Sprintf("%d MiB of memory%s", c.Takes.MemoryBytes>>20, measured))
	}
	if c.Takes.GPU > 0 {
		parts = append(parts, numerals.Count(c.Takes.GPU, "GPU"))
	}
	if c.UsedCPU > 0 {
		parts = append(parts, cores(c.UsedCPU)+" used recently")
	}
	return strings.Join(parts, "; ")
}

func cores(n float64) string {
	if n == 1 {
		return "1 core"
	}
	return numerals.Short(n) + " cores"
}

func limitsText(l *api.LimitSpec) string {
	var parts []string
	if l.CPU > 0 {
		parts = append(parts, cores(l.CPU))
	}
	if l.MemoryBytes > 0 {
		parts = append(parts, api.FormatBytes(l.MemoryBytes)+" of memory")
	}
	if l.PIDs > 0 {
		parts = append(parts, fmt.Sprintf("%d processes and threads", l.PIDs))
	}
	return strings.Join(parts, ", ")
}

// node writes what the gateway's machine has for replicas. If more is in use than the machine has, 0 is free.
func (p *page) node(n *api.NodeStatus) {
	if n == nil {
		return
	}
	text := fmt.Sprintf("%s of %s free, %d of %d MiB of memory", numerals.Short(max(0, n.Free.CPU)), cores(n.Budget.CPU), max(0, n.Free.MemoryBytes>>20), n.Budget.MemoryBytes>>20)
	if n.Budget.GPU > 0 {
		text += fmt.Sprintf(", %d of %d GPUs", max(0, n.Free.GPU), n.Budget.GPU)
	}
	if n.From != "" {
		text += " (" + n.From + ")"
	}
	p.field(0, "Node", text)
	p.field(0, "Awake", numerals.Count(n.Awake, "model version"))
	if n.Zygotes > 0 {
		p.field(0, "Zygotes", fmt.Sprintf("%d, which hold %d MiB", n.Zygotes, n.ZygoteBytes>>20))
	}
}
