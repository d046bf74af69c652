package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/xebec-serving/xebec/api"
)

// answerShares are the parts of the answers that versions give, by model and version.
type answerShares map[api.ModelID]float64

func sharesOf(traffic []api.TrafficStatus) answerShares {
	s := answerShares{}
	for i := range traffic {
		for _, arm := range traffic[i].Arms {
			if arm.Rule != "shadow" { // its answers are given to nobody
				s[api.ModelID{Name: traffic[i].Spec.Model, Version: arm.Version}] += arm.Share
			}
		}
	}
	return s
}

// of is a version's share, for a table. Of a model that no rule divides the serving version has all.
func (s answerShares) of(m *api.ModelStatus) string {
	part, divided := s[m.Spec.ID()]
	switch {
	case divided:
		return percent(part)
	case m.Serving && (m.Version.Phase == api.PhaseAvailable || m.Version.Phase == ""):
		return percent(1)
	}
	return "-"
}

// rules are what a spec says of who answers, in words.
func rules(t *api.TrafficSpec) []string {
	var all []string
	if t.Serving != "" {
		all = append(all, "serving "+t.Serving)
	}
	for _, share := range []struct {
		name string
		of   *api.VersionShare
	}{{"split", t.Split}, {"shadow", t.Shadow}} {
		if share.of != nil {
			all = append(all, fmt.Sprintf("%s %s=%s%%", share.name, share.of.Version, figure(share.of.Percent)))
		}
	}
	if t.Rollout != nil {
		all = append(all, "rollout "+t.Rollout.Version)
	}
	if t.Rollback != nil {
		all = append(all, "rolled back from "+t.Rollback.From+" to "+t.Rollback.To)
	}
	return all
}

func versionsText(v api.VersionPolicy) string {
	switch {
	case v.All:
		return "all"
	case v.Latest > 0:
		return fmt.Sprintf("latest %d", v.Latest)
	}
	return strings.Join(v.Specific, ", ")
}

func labelsText(labels map[string]string) string {
	parts := make([]string, 0, len(labels))
	for _, label := range slices.Sorted(maps.Keys(labels)) {
		parts = append(parts, label+"="+labels[label])
	}
	return strings.Join(parts, ", ")
}

// traffic writes the fields of how a model's queries are divided.
func (p *page) traffic(indent int, t *api.TrafficStatus) {
	spec := &t.Spec
	serving := t.Serving
	switch {
	case serving == "":
		serving = "none: no version may"
	case spec.Serving == serving:
		serving += ", pinned"
	}
	if spec.Serving != "" && spec.Serving != t.Serving {
		serving += "; " + spec.Serving + " is pinned, and may not yet"
	}
	p.field(indent, "Serving", serving)
	versions := versionsText(spec.Versions)
	if versions == "" {
		versions = "as their source says"
	}
	if spec.Transition == api.TransitionResources {
		versions += "; the old one is unloaded before the new one is loaded"
	}
	p.field(indent, "Versions wanted", versions)
	p.field(indent, "Labels", labelsText(spec.Labels))
	if s := spec.Split; s != nil {
		p.field(indent, "Split", fmt.Sprintf("version %s answers %s%%", s.Version, figure(s.Percent)))
	}
	if s := spec.Shadow; s != nil {
		text := fmt.Sprintf("version %s sees %s%%", s.Version, figure(s.Percent))
		if got := t.Shadow; got != nil {
			text += fmt.Sprintf("; %d agreed with the answer, %d did not, %d failed", got.Same, got.Different, got.Failed)
		}
		p.field(indent, "Shadow", text)
	}
	if r := spec.Rollout; r != nil {
		p.field(indent, "Rollout", fmt.Sprintf("version %s by %s, after %d judged answers of each: mean loss and failures at most %s higher, P99 at most %s longer",
			r.Version, r.Policy, r.Guard.MinFeedback, figure(r.Guard.MaxErrorIncrease), percent(r.Guard.MaxP99Increase)))
	}
	if r := t.Rollout; r != nil {
		p.field(indent, "So far", fmt.Sprintf("version %s may answer at most %s", r.Version, percent(r.Cap)))
		verdict := r.Verdict
		if r.Reason != "" {
			verdict += ": " + p.why(r.Reason)
		}
		p.field(indent, "Verdict", verdict)
	}
	if r := spec.Rollback; r != nil {
		text := fmt.Sprintf("from %s to %s, until a version newer than %s may serve", r.From, r.To, r.From)
		if r.Reason != "" {
			text += ": " + p.why(r.Reason)
		}
		p.field(indent, "Rolled back", text)
	}
}

// noReplica stands where a rule's share would be misleading: queries go to whom there is.
const noReplica = "no replica: others answer"

// share is the part of the answers that an arm gives as its model's versions, all of those that there are, stand: of a split or a roll-out
// whose one version has no replica the other one answers all.
func share(arm *api.ArmStatus, t *api.TrafficStatus, versions []api.ModelStatus) string {
	without := func(version string) bool {
		m := findVersion(versions, api.ModelID{Name: t.Spec.Model, Version: version})
		return m != nil && m.ReadyReplicas() == 0
	}
	if arm.Rule == "shadow" {
		return percent(arm.Share)
	}
	for _, other := range t.Arms {
		if other.Rule == "shadow" || other.Version == arm.Version || without(other.Version) == without(arm.Version) {
			continue
		}
		if without(arm.Version) {
			return noReplica
		}
		return percent(1)
	}
	return percent(arm.Share)
}

// arms writes the table of what came of the versions that answer or are compared.
func (p *page) arms(t *api.TrafficStatus, versions []api.ModelStatus) {
	rows := make([][]string, 0, len(t.Arms))
	for _, a := range t.Arms {
		loss := "-"
		if a.Feedback > 0 {
			loss = figure(a.MeanLoss)
		}
		rows = append(rows, []string{
			a.Version, a.Rule, share(&a, t, versions), fmt.Sprint(a.Queries), fmt.Sprint(a.Failed), fmt.Sprint(a.Feedback), loss,
			millis(a.P50MS), millis(a.P99MS),
		})
	}
	p.table("VERSION\tRULE\tSHARE\tQUERIES\tFAILED\tFEEDBACK\tMEAN LOSS\tP50\tP99", rows)
}

func millis(ms float64) string {
	if ms <= 0 {
		return "-"
	}
	return figure(ms) + "ms"
}

// lifecycle writes where a version is in its life, and why.
func (p *page) lifecycle(v *api.VersionStatus) {
	if v.Phase == "" {
		return
	}
	phase := string(v.Phase)
	if !v.Since.IsZero() {
		phase += " since " + p.since(v.Since)
	}
	if !v.Aspired {
		phase += ", not wanted to be loaded"
	}
	p.field(0, "Phase", phase)
	if v.Reason != "" {
		p.field(0, "Reason", p.why(v.Reason))
	}
	p.field(0, "Source", v.Source)
	p.field(0, "Labels", strings.Join(v.Labels, ", "))
	p.validation(v.Validation)
	p.drift(v.Drift)
}

func (p *page) validation(v *api.ValidationStatus) {
	if v == nil {
		return
	}
	text := "passed"
	if !v.Passed {
		text = "not passed"
		if v.Reason != "" {
			text += ": " + p.why(v.Reason)
		}
	}
	p.field(0, "Validation", text)
	var parts []string
	if v.WarmedUp > 0 {
		parts = append(parts, fmt.Sprintf("%d warm-up queries", v.WarmedUp))
	}
	if v.Queries > 0 {
		matched := fmt.Sprintf("%d of %d queries (%s) as expected (%s)", v.Matched, v.Queries, percent(float64(v.Matched)/float64(v.Queries)), orDash(v.Expect))
		if v.Failed > 0 {
			matched += fmt.Sprintf(", %d without an answer", v.Failed)
		}
		parts = append(parts, matched)
	}
	if v.Extremes > 0 {
		parts = append(parts, fmt.Sprintf("%d extreme inputs, %d refused", v.Extremes, v.Refused))
	}
	if len(parts) > 0 {
		p.field(1, "Evaluated", fmt.Sprintf("%s; in %d ms", strings.Join(parts, "; "), v.TookMS))
	}
	p.field(1, "At", p.since(v.At))
}

// The bounds of the population stability index that people go by.
const (
	driftToSpeakOf = 0.1
	driftMuch      = 0.25
)

func (p *page) drift(d *api.DriftStatus) {
	if d == nil {
		return
	}
	word := "none to speak of"
	switch most := max(d.Input, d.Output); {
	case most >= driftMuch:
		word = "much"
	case most >= driftToSpeakOf:
		word = "some"
	}
	p.field(0, "Drift", fmt.Sprintf("%s: input %s, output %s (stability index of %d queries against %d validated ones)",
		word, figure(d.Input), figure(d.Output), d.Served, d.Validated))
	for _, f := range d.Features {
		text := figure(f.PSI)
		if f.Validated != "" || f.Served != "" {
			text += fmt.Sprintf(", %s when validated, %s now", p.why(f.Validated), p.why(f.Served))
		}
		p.field(1, f.Name, text)
	}
}

// sources writes where model versions come from, and what keeps something there from being served.
func (p *page) sources(all []api.SourceStatus) {
	for i := range all {
		p.field(0, "Source", fmt.Sprintf("%s, %d models", p.why(all[i].Name), all[i].Models))
		p.text(1, "Problems", all[i].Problems)
	}
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
