package main

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/internal/numerals"
)

// declared writes what a function declares about choosing models and judging their answers.
func (p *page) declared(f *api.FunctionSpec) {
	p.field(0, "Policy", f.Policy.String())
	if l := f.Loss; l != (api.LossSpec{}) {
		var parts []string
		if l.Kind != "" {
			parts = append(parts, l.Kind)
		}
		if l.Scale > 0 {
			parts = append(parts, "scale "+numerals.Short(l.Scale))
		}
		if l.Tolerance > 0 {
			parts = append(parts, "tolerance "+numerals.Short(l.Tolerance))
		}
		p.field(0, "Loss", strings.Join(parts, ", "))
	}
	if f.MinConfidence > 0 {
		p.field(0, "Confidence", "at least "+numerals.Short(f.MinConfidence)+", otherwise the default")
	}
}

// learning writes what a policy does with feedback. The tables at the end of the page say what it has learned.
func (p *page) learning(s *api.PolicyStatus) {
	if s == nil {
		return
	}
	if s.Mode == api.PolicyAsksSeveral {
		p.field(0, "Missing", fmt.Sprintf("%s late%s, %d left out by the plan", numerals.Count(s.Late, "prediction"), p.lateOf(s.Candidates), s.Dropped))
	}
	p.field(0, "Feedback", feedbackText(s.Feedback))
	if !s.Learns {
		return
	}
	p.field(0, "Contexts", fmt.Sprintf("%d in memory", s.ContextsInMemory))
	p.store("Learned in", s.Store)
}

// lateOf says whose predictions were late: " (small 3, large 1)".
func (p *page) lateOf(candidates []api.CandidateLearning) string {
	var parts []string
	for _, c := range candidates {
		if c.Late > 0 {
			parts = append(parts, fmt.Sprintf("%s %d", p.c.cell(c.Ref), c.Late))
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return " (" + strings.Join(parts, ", ") + ")"
}

func feedbackText(f api.FeedbackStatus) string {
	parts := []string{fmt.Sprintf("%d counted", f.Counted)}
	for _, c := range []struct {
		n    uint64
		what string
	}{
		{f.InPart, "counted without its input"}, {f.Duplicate, "duplicate"}, {f.Late, "late"}, {f.Unknown, "unknown"}, {f.Refused, "refused"}, {f.Nothing, "about no candidate"},
		{f.Asked, "models asked to judge it"}, {f.Taught, "labels passed to models"},
	} {
		if c.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", c.n, c.what))
		}
	}
	return strings.Join(parts, ", ")
}

// store writes where learned state is kept, and what has not been written yet.
func (p *page) store(name string, s *api.StoreStatus) {
	if s == nil {
		p.field(0, name, "memory only: it is lost when the gateway stops")
		return
	}
	text := s.Name
	if s.Shared {
		text += ", which other gateways may share"
	}
	text += "; " + numerals.Count(s.Pending, "state") + " to be written"
	if s.Lost > 0 {
		text += ", " + numerals.Count(s.Lost, "update") + " lost"
	}
	p.field(0, name, p.c.cell(text))
	switch {
	case s.Away && !s.LastSuccess.IsZero():
		p.field(0, "Store", p.c.cell("away: "+s.LastError+"; last reached "+p.since(s.LastSuccess)))
	case s.Away:
		p.field(0, "Store", p.c.cell("away: "+s.LastError))
	default:
		p.field(0, "Last written", p.since(s.LastSuccess))
	}
}

func (p *page) shadow(s *api.ShadowStatus) {
	if s == nil {
		return
	}
	parts := make([]string, len(s.Models))
	for i, m := range s.Models {
		parts[i] = m.Ref
		if m.Model != "" && m.Model != m.Ref {
			parts[i] += " (" + m.Model + ")"
		}
		parts[i] += " sees " + numerals.Percent(m.Part)
	}
	p.field(0, "Shadow", fmt.Sprintf("%s; %d agreed with the answer, %d did not, %d failed, %d were dropped", strings.Join(parts, ", "), s.Same, s.Different, s.Failed, s.Dropped))
}

// learned writes what a policy has learned about its candidates, over all contexts and for each context.
func (p *page) learned(s *api.PolicyStatus) {
	if s == nil {
		return
	}
	rows := p.candidates(nil, "(all)", s.Candidates)
	for i := range s.Contexts {
		rows = p.candidates(rows, p.c.cell(s.Contexts[i].Context), s.Contexts[i].Candidates)
	}
	p.table("CONTEXT\tCANDIDATE\tVERSION\tSHARE\tWEIGHT\tLOSSES\tMEAN LOSS\tMEAN ANSWER", rows)
}

func (p *page) candidates(rows [][]string, context string, all []api.CandidateLearning) [][]string {
	for _, c := range all {
		version, loss, mean := "-", "-", "-"
		if _, v, ok := strings.Cut(c.Model, "@"); ok {
			version = v
		}
		if c.Count > 0 {
			loss = numerals.Short(c.MeanLoss)
		}
		if len(c.Mean) > 0 {
			mean = means(c.Mean)
		}
		rows = append(rows, []string{context, c.Ref, version, numerals.Percent(c.Share), numerals.Short(c.Weight), numerals.Short(c.Count), loss, mean})
	}
	return rows
}

// means shows the first elements of a running average.
func means(all []float64) string {
	const most = 4
	parts := make([]string, 0, most+1)
	for i, v := range all {
		if i == most {
			parts = append(parts, fmt.Sprintf("… (%d)", len(all)))
			break
		}
		parts = append(parts, numerals.Short(v))
	}
	return strings.Join(parts, " ")
}

// cache writes how well the prediction cache serves a model.
func (p *page) cache(m *api.ModelStatus) {
	if calls := m.Spec.Calls; len(calls) > 0 {
		p.field(0, "Calls", strings.Join(calls, ", "))
	}
	c := m.Cache
	switch {
	case m.Spec.Cache != api.CacheOn:
		p.field(0, "Cache", m.Spec.Cache)
	case c == nil || !c.On:
		p.field(0, "Cache", "off, though declared on: the gateway has no cache, or the model learns from labels")
	default:
		text := fmt.Sprintf("on, %s, %s, %d waited for an identical query", numerals.Count(c.Hits, "hit"), numerals.Count(c.Misses, "miss"), c.Coalesced)
		if all := c.Hits + c.Misses + c.Coalesced; all > 0 {
			text += ": " + numerals.Percent(float64(c.Hits+c.Coalesced)/float64(all)) + " not evaluated"
		}
		if c.Bypassed > 0 {
			text += fmt.Sprintf("; %d did not fit", c.Bypassed)
		}
		p.field(0, "Cache", text)
	}
	if m.Accuracy != nil {
		p.field(0, "Accuracy", numerals.Percent(*m.Accuracy)+", as the model reports")
	}
}

// caches writes what the prediction cache holds.
func (p *page) caches(c *api.CacheStatus) {
	if c == nil {
		p.field(0, "Cache", "off")
		return
	}
	text := fmt.Sprintf("%s in %s of %s, %d evicted", numerals.Count(c.Entries, "prediction"), bytesText(c.Bytes), bytesText(c.MaxBytes), c.Evicted)
	if c.Collisions > 0 {
		text += ", " + numerals.Count(c.Collisions, "collision")
	}
	p.field(0, "Cache", text)
}

// bytesText writes a size in the largest unit.
func bytesText(n int64) string {
	const kibi = 1024
	switch {
	case n < kibi:
		return strconv.FormatInt(n, 10) + " B"
	case n < kibi*kibi:
		return numerals.Short(float64(n)/kibi) + " KiB"
	case n < kibi*kibi*kibi:
		return numerals.Short(float64(n)/kibi/kibi) + " MiB"
	}
	return numerals.Short(float64(n)/kibi/kibi/kibi) + " GiB"
}
