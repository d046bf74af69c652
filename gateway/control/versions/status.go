package versions

import (
	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/internal/obs"
	"github.com/xebec-serving/xebec/gateway/query"
)

// Status is where a version of the family is in its life.
func (f *Family) Status(v *Version) api.VersionStatus {
	st := api.VersionStatus{
		Phase: v.State.Phase(), Since: v.since, Aspired: v.aspired, Source: v.Source, Reason: v.reason, Validation: v.validation,
	}
	if f.Traffic != nil {
		for _, label := range sortedNames(f.Traffic.Labels) {
			if f.Traffic.Labels[label] == v.ID().Version {
				st.Labels = append(st.Labels, label)
			}
		}
	}
	if w := v.Model().Drift.Load(); w != nil {
		drift := w.Report()
		st.Drift = &drift
	}
	return st
}

// TrafficStatus is how the family's queries are divided. The revision is left out.
func (f *Family) TrafficStatus() api.TrafficStatus {
	st := api.TrafficStatus{Spec: *f.Spec(), Declared: f.Traffic != nil, Serving: f.InForce()}
	main := api.ArmStatus{Version: f.Serving, Rule: "serving", Share: 1}
	if r := f.rules.tee; r != nil {
		main = armStatus(r.serving, "serving", 1, &r.Seen.Serving)
		st.Arms = append(st.Arms, armStatus(r.other, r.Kind, 0, &r.Seen.Other))
		st.Shadow = &api.ComparedStatus{Version: r.other, Same: r.Seen.Same.Load(), Different: r.Seen.Different.Load(), Failed: r.Seen.Failed.Load()}
	}
	if r := f.rules.live; r != nil {
		share := r.share()
		main = armStatus(r.serving, "serving", 1-share, &r.Rule.Serving)
		st.Arms = append([]api.ArmStatus{armStatus(r.other, r.Kind, share, &r.Rule.Other)}, st.Arms...)
		if r.learned != nil {
			st.Rollout = &api.RolloutStatus{Version: r.other, Cap: r.cap, Verdict: r.verdict.String(), Reason: r.reason}
		}
	}
	if st.Serving != "" {
		st.Arms = append([]api.ArmStatus{main}, st.Arms...)
	}
	return st
}

func armStatus(version, kind string, share float64, a *query.Arm) api.ArmStatus {
	n, sum := a.Losses.Read()
	st := api.ArmStatus{
		Version: version, Rule: kind, Share: share, Queries: a.Queries.Load(), Failed: a.Failed.Load(), Feedback: n,
		P50MS: a.Latency.Quantile(0.5) / 1e6, P99MS: a.Latency.Quantile(0.99) / 1e6,
	}
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
			report := w.Report()
			out.Drift = append(out.Drift, obs.DriftSample{Model: id.Name, Version: id.Version, Input: report.Input, Output: report.Output})
		}
	}
	for name, f := range s.families {
		st := f.TrafficStatus()
		if len(st.Arms) < 2 {
			continue
		}
		for _, a := range st.Arms {
			arm := obs.ArmSample{
				Model: name, Version: a.Version, Rule: a.Rule, Share: a.Share, Queries: a.Queries, Failed: a.Failed, Feedback: a.Feedback,
				LossSum: a.MeanLoss * float64(a.Feedback),
			}
			if a.Rule == Shadow && st.Shadow != nil {
				arm.Same, arm.Different = st.Shadow.Same, st.Shadow.Different
			}
			out.Arms = append(out.Arms, arm)
		}
	}
}
