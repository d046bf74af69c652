package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/internal/numerals"
)

// answerShares are the shares of the answers that versions give.
type answerShares map[api.ModelID]float64

func sharesOf(traffic []api.TrafficStatus) answerShares {
	s := answerShares{}
	for i := range traffic {
		for _, arm := range traffic[i].Arms {
			if arm.Rule != "shadow" { // its answers are only compared
				s[api.ModelID{Name: traffic[i].Spec.Model, Version: arm.Version}] += arm.Share
			}
		}
	}
	return s
}

// of is a version's share, for a table. Without a rule that divides a model's queries, the serving version answers all.
func (s answerShares) of(m *api.ModelStatus) string {
	fraction, divided := s[m.Spec.ID()]
	switch {
	case divided:
		return numerals.Percent(fraction)
	case m.Serving && (m.Version.Phase == api.PhaseAvailable || m.Version.Phase == ""):
		return numerals.Percent(1)
	}
	return "-"
}

// rules are the rules of a spec, in short.
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
			all = append(all, fmt.Sprintf("%s %s=%s%%", share.name, share.of.Version, numerals.Short(share.of.Percent)))
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

// traffic writes how a model's queries are divided.
func (p *page) traffic(indent int, t *api.TrafficStatus) {
	spec := &t.Spec
	serving := t.Serving
	switch {
	case serving == "":
		serving = "none yet: no version is available"
	case spec.Serving == serving:
		serving += ", pinned"
	}
	if spec.Serving != "" && spec.Serving != t.Serving {
		serving += "; " + spec.Serving + " is pinned, but may not serve yet"
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
		p.field(indent, "Split", fmt.Sprintf("version %s answers %s%%", s.Version, numerals.Short(s.Percent)))
	}
	if s := spec.Shadow; s != nil {
		text := fmt.Sprintf("version %s sees %s%%", s.Version, numerals.Short(s.Percent))
		if got := t.Shadow; got != nil {
			text += fmt.Sprintf("; %d agreed with the answer, %d did not, %d failed", got.Same, got.Different, got.Failed)
		}
		p.field(indent, "Shadow", text)
	}
	if r := spec.Rollout; r != nil {
		p.field(indent, "Rollout", fmt.Sprintf("version %s by %s, after %d judged answers of each: mean loss and failures at most %s higher, P99 at most %s longer",
			r.Version, r.Policy, r.Guard.MinFeedback, numerals.Short(r.Guard.MaxErrorIncrease), numerals.Percent(r.Guard.MaxP99Increase)))
	}
	if r := t.Rollout; r != nil {
		p.field(indent, "So far", fmt.Sprintf("version %s may answer at most %s", r.Version, numerals.Percent(r.Cap)))
		verdict := r.Verdict
		if r.Reason != "" {
			verdict += ": " + p.c.cell(r.Reason)
		}
		p.field(indent, "Verdict", verdict)
	}
	if r := spec.Rollback; r != nil {
		text := fmt.Sprintf("from %s to %s", r.From, r.To)
		if spec.Serving == "" { // what is pinned stays
			text += ", until a newer version may serve that was not rolled back"
		}
		if r.Reason != "" {
			text += ": " + p.c.cell(r.Reason)
		}
		p.field(indent, "Rolled back", text)
	}
	p.field(indent, "Kept out", strings.Join(spec.RolledBack, ", "))
}

// noReplica replaces the share of a version without replicas, whose queries go to other versions.
const noReplica = "no replica: others answer"

// share is the share of the answers that an arm gives now. In a split or a roll-out, if one version has no replica, the
// other one answers everything. versions are all versions of the model.
func share(arm *api.ArmStatus, t *api.TrafficStatus, versions []api.ModelStatus) string {
	without := func(version string) bool {
		m := findVersion(versions, api.ModelID{Name: t.Spec.Model, Version: version})
		return m != nil && m.ReadyReplicas() == 0
	}
	if arm.Rule == "shadow" {
		return numerals.Percent(arm.Share)
	}
	for _, other := range t.Arms {
		if other.Rule == "shadow" || other.Version == arm.Version || without(other.Version) == without(arm.Version) {
			continue
		}
		if without(arm.Version) {
			return noReplica
		}
		return numerals.Percent(1)
	}
	return numerals.Percent(arm.Share)
}

// arms writes a table of the versions that answer or are compared.
func (p *page) arms(t *api.TrafficStatus, versions []api.ModelStatus) {
	rows := make([][]string, 0, len(t.Arms))
	for _, a := range t.Arms {
		loss := "-"
		if a.Feedback > 0 {
			loss = numerals.Short(a.MeanLoss)
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
	return numerals.Short(ms) + "ms"
}

// lifecycle writes the stage of a version's life, and why.
func (p *page) lifecycle(v *api.VersionStatus) {
	if v.Phase == "" {
		return
	}
	phase := string(v.Phase)
	if !v.Since.IsZero() {
		phase += " since " + p.since(v.Since)
	}
	if !v.Aspired {
		phase += ", not to be loaded"
	}
	p.field(0, "Phase", phase)
	if v.Reason != "" {
		p.field(0, "Reason", p.c.cell(v.Reason))
	}
	p.field(0, "Source", v.Source)
	p.field(0, "Labels", strings.Join(v.Labels, ", "))
	p.validation(v.Validation)
	p.rehearsal(v.Rehearsal)
	p.drift(v.Drift)
}

func (p *page) validation(v *api.ValidationStatus) {
	if v == nil {
		return
	}
	text := "passed"
	if !v.Passed {
		text = "failed"
		if v.Reason != "" {
			text += ": " + p.c.cell(v.Reason)
		}
	}
	p.field(0, "Validation", text)
	var parts []string
	if v.WarmedUp > 0 {
		parts = append(parts, numerals.Count(v.WarmedUp, "warm-up query"))
	}
	if v.Queries > 0 {
		matched := fmt.Sprintf("%d of %s (%s) as expected (%s)", v.Matched, numerals.Count(v.Queries, "query"), numerals.Percent(float64(v.Matched)/float64(v.Queries)), orDash(v.Expect))
		if v.Failed > 0 {
			matched += fmt.Sprintf(", %d without an answer", v.Failed)
		}
		parts = append(parts, matched)
	}
	if v.Extremes > 0 {
		parts = append(parts, fmt.Sprintf("%s, %d refused", numerals.Count(v.Extremes, "extreme input"), v.Refused))
	}
	if len(parts) > 0 {
		p.field(1, "Evaluated", fmt.Sprintf("%s; in %d ms", strings.Join(parts, "; "), v.TookMS))
	}
	p.field(1, "At", p.since(v.At))
}

func (p *page) rehearsal(r *api.RehearsalStatus) {
	if r == nil {
		return
	}
	text := fmt.Sprintf("%s of %s on %s", numerals.Count(r.Evaluated, "evaluation"), numerals.Count(r.Recent, "recent query"), numerals.Count(r.Replicas, "replica"))
	if r.Failed > 0 {
		text += fmt.Sprintf(", %d without an answer", r.Failed)
	}
	text += fmt.Sprintf("; in %d ms", r.TookMS)
	if r.Reason != "" {
		text += "; cut short: " + p.c.cell(r.Reason)
	}
	p.field(0, "Rehearsal", text)
	p.field(1, "At", p.since(r.At))
}

// The usual bounds of the population stability index.
const (
	someDrift  = 0.1
	largeDrift = 0.25
)

func (p *page) drift(d *api.DriftStatus) {
	if d == nil {
		return
	}
	word := "small"
	switch most := max(d.Input, d.Output); {
	case most >= largeDrift:
		word = "large"
	case most >= someDrift:
		word = "some"
	}
	p.field(0, "Drift", fmt.Sprintf("%s: input %s, output %s (population stability index of %s, compared with %d validated ones)",
		word, numerals.Short(d.Input), numerals.Short(d.Output), numerals.Count(d.Served, "query"), d.Validated))
	for _, f := range d.Features {
		text := numerals.Short(f.PSI)
		if f.Validated != "" || f.Served != "" {
			text += fmt.Sprintf(", %s when validated, %s now", p.c.cell(f.Validated), p.c.cell(f.Served))
		}
		p.field(1, f.Name, text)
	}
}

// sources writes where model versions come from, and the problems there.
func (p *page) sources(all []api.SourceStatus) {
	for i := range all {
		p.field(0, "Source", fmt.Sprintf("%s, %s", p.c.cell(all[i].Name), numerals.Count(all[i].Models, "model")))
		p.text(1, "Problems", all[i].Problems)
	}
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
