package versions

import (
	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/internal/obs"
	"github.com/xebec-serving/xebec/gateway/query"
)

// Status is where a version of the family is in its life.
func (f *Family) Status(v *Version) api.VersionStatus {
	st := api.VersionStatus{
		Phase: v.State.Phase(), Since: v.since, Aspired: v.aspired, Source: v.Source, Reason: v.reason, Validation: v.validation, Rehearsal: v.rehearsal,
	}
	if f.Traffic != nil {
		for _, label := range sortedNames(f.Traffic.Labels) {
			if f.Traffic.Labels[label] == v.ID().Version {
				st.Labels = append(st.Labels, label)
			}
		}
	}
	if w := v.Model().Drift.Load(); w != nil {
		st.Drift = w.Report()
	}
	return st
}

// TrafficStatus is how the family's queries are divided. The revision is left out.
func (f *Family) TrafficStatus() api.TrafficStatus {
	st := api.TrafficStatus{Spec: *f.Spec(), Declared: f.Traffic != nil, Serving: f.InForce()}
	for _, a := range f.arms() {
		st.Arms = append(st.Arms, a.status())
	}
	if r := f.rules.tee; r != nil {
		st.Shadow = &api.ComparedStatus{Version: r.other, Same: r.Seen.Same.Load(), Different: r.Seen.Different.Load(), Failed: r.Seen.Failed.Load()}
	}
	if r := f.rules.live; r != nil && r.learned != nil {
		st.Rollout = &api.RolloutStatus{Version: r.other, Cap: r.cap, Verdict: r.verdict.String(), Reason: r.reason}
	}
	return st
}

// arm is one version's part of the family's queries.
type arm struct {
	version, kind string
	share         float64
	seen          *query.Arm // nil: no rule counts
}

// arms are the version that serves, unless it does not answer now, and then those that the rules in force give queries to.
func (f *Family) arms() (all []arm) {
	main := arm{version: f.Serving, kind: "serving", share: 1}
	if r := f.rules.live; r != nil {
		share := r.share()
		main = arm{r.serving, "serving", 1 - share, &r.Rule.Serving}
		all = append(all, arm{r.other, r.Kind, share, &r.Rule.Other})
	}
	if r := f.rules.tee; r != nil {
		if main.seen == nil {
			main = arm{r.serving, "serving", 1, &r.Seen.Serving}
		}
		all = append(all, arm{r.other, r.Kind, 0, &r.Seen.Other})
	}
	if f.InForce() != "" {
		all = append([]arm{main}, all...)
	}
	return all
}

func (a arm) status() api.ArmStatus {
	st := api.ArmStatus{Version: a.version, Rule: a.kind, Share: a.share}
	if a.seen == nil {
		return st
	}
	n, sum := a.seen.Losses.Read()
	st.Queries, st.Failed, st.Feedback = a.seen.Queries.Load(), a.seen.Failed.Load(), n
	st.P50MS, st.P99MS = a.seen.Latency.Quantile(0.5)/1e6, a.seen.Latency.Quantile(0.99)/1e6
	if n > 0 {
		st.MeanLoss = sum / float64(n)
	}
	return st
}

// Read adds what a scrape shows of versions and traffic rules.
func (s *State) Read(out *obs.LifecycleSample) {
	out.Phases = map[string]int{}
	for _, phase := range []api.VersionPhase{api.PhaseDeclared, api.PhaseLoading, api.PhaseValidating, api.PhaseAvailable, api.PhaseDraining, api.PhaseRejected} {
		out.Phases[string(phase)] = 0
	}
	out.Outcomes["validated"], out.Outcomes["rejected"] = s.c.validated.Load(), s.c.rejected.Load()
	for id, v := range s.versions {
		out.Phases[string(v.State.Phase())]++
		if w := v.Model().Drift.Load(); w != nil {
			if report := w.Report(); report != nil {
				out.Drift = append(out.Drift, obs.DriftSample{Model: id.Name, Version: id.Version, Input: report.Input, Output: report.Output})
			}
		}
	}
	for name, f := range s.families {
		arms := f.arms()
		if len(arms) < 2 {
			continue
		}
		for _, a := range arms {
			if a.seen == nil {
				continue
			}
			n, sum := a.seen.Losses.Read()
			sample := obs.ArmSample{
				Model: name, Version: a.version, Rule: a.kind, Share: a.share, Queries: a.seen.Queries.Load(), Failed: a.seen.Failed.Load(), Feedback: n, LossSum: sum,
			}
			if a.kind == Shadow {
				sample.Same, sample.Different = f.rules.tee.Seen.Same.Load(), f.rules.tee.Seen.Different.Load()
			}
			out.Arms = append(out.Arms, sample)
		}
	}
}
