package server

import (
	"sync"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/internal/obs"
)

// versionStatusLocked is where a version is in its life.
func (d *deployment) versionStatusLocked(f *family) api.VersionStatus {
	l := &d.life
	v := api.VersionStatus{
		Phase: l.state.Phase(), Since: l.since, Aspired: l.aspired, Source: l.source, Reason: l.reason, Validation: l.validation,
	}
	if f.traffic != nil {
		for _, label := range sortedNames(f.traffic.Labels) {
			if f.traffic.Labels[label] == d.id.Version {
				v.Labels = append(v.Labels, label)
			}
		}
	}
	if w := d.model.Drift.Load(); w != nil {
		drift := w.Report()
		v.Drift = &drift
	}
	return v
}

// readLifecycleLocked is what a scrape shows of versions and traffic rules.
func (s *Server) readLifecycleLocked(out *obs.LifecycleSample) {
	out.Phases, out.Revision = map[string]int{}, s.revision
	out.Outcomes = map[string]uint64{
		"validated": s.qualified.Load(), "rejected": s.rejected.Load(), "rolled_out": s.rolledOut.Load(), "retreated": s.retreated.Load(),
	}
	for _, phase := range []api.VersionPhase{api.PhaseDeclared, api.PhaseLoading, api.PhaseValidating, api.PhaseAvailable, api.PhaseDraining, api.PhaseRejected} {
		out.Phases[string(phase)] = 0
	}
	for _, d := range s.models {
		out.Phases[string(d.life.state.Phase())]++
		if w := d.model.Drift.Load(); w != nil {
			report := w.Report()
			out.Drift = append(out.Drift, obs.DriftSample{Model: d.id.Name, Version: d.id.Version, Input: report.Input, Output: report.Output})
		}
	}
	for name, f := range s.families {
		st := f.status()
		if len(st.Arms) < 2 {
			continue
		}
		for _, a := range st.Arms {
			arm := obs.ArmSample{
				Model: name, Version: a.Version, Rule: a.Rule, Share: a.Share, Queries: a.Queries, Failed: a.Failed, Feedback: a.Feedback,
				LossSum: a.MeanLoss * float64(a.Feedback),
			}
			if a.Rule == "shadow" && st.Shadow != nil {
				arm.Same, arm.Different = st.Shadow.Same, st.Shadow.Different
			}
			out.Arms = append(out.Arms, arm)
		}
	}
	if s.inferences != nil {
		l := s.inferences.Stats()
		out.Log = &obs.InferenceLogSample{Records: l.Records + l.Feedback, Dropped: l.Dropped.Total(), RawBytes: l.RawBytes, WrittenBytes: l.WrittenBytes}
	}
}

// rate is what a function did lately, from one look to the next.
type rate struct {
	mu       sync.Mutex
	at       time.Time    // of last
	last     *obs.Reading // nil: empty, as of nearly all of ten thousand models; it takes a KiB
	show     api.RateStatus
	previous bool
}

// rateEvery is the shortest time that a rate is of: whoever asks more often is told the same again.
const rateEvery = time.Second

// look takes a reading and says what happened since the one before.
func (r *rate) look(read obs.Reading, now time.Time) api.RateStatus {
	r.mu.Lock()
	defer r.mu.Unlock()
	passed := now.Sub(r.at)
	if r.previous && passed < rateEvery {
		return r.show
	}
	if r.previous {
		since := read
		if r.last != nil {
			since = read.Since(*r.last)
		}
		r.show = api.RateStatus{
			QueriesPerSecond: float64(since.Queries) / passed.Seconds(), P50MS: since.Quantile(0.5) * 1000, P99MS: since.Quantile(0.99) * 1000,
		}
	}
	r.at, r.last, r.previous = now, nil, true
	if !read.Empty() {
		r.last = &read
	}
	return r.show
}

// modelRate is the version's share of work lately: queries of all functions, and how long requests that addressed it took.
func (d *deployment) modelRate(queries uint64) api.RateStatus {
	read := d.model.Stats.Read()
	read.Queries = queries
	return d.rate.look(read, time.Now())
}

// stateOf is a version's state for people: that of its replicas, where it is to have any.
func stateOf(v *api.VersionStatus, m *api.ModelStatus) api.ModelState {
	switch v.Phase {
	case api.PhaseDeclared:
		return api.ModelIdle
	case api.PhaseDraining:
		return api.ModelStopping
	case api.PhaseRejected:
		return api.ModelFailed
	}
	return m.State
}
