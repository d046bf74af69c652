package server

import (
	"context"
	"math"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/internal/obs"
	"github.com/xebec-serving/xebec/gateway/learned"
	"github.com/xebec-serving/xebec/gateway/selection"
	"github.com/xebec-serving/xebec/worker/local"
)

// policyStatusLocked is what a function's policy does and has learned; contexts bounds how many are shown.
func (s *Server) policyStatusLocked(f *function, contexts int) *api.PolicyStatus {
	report := f.learned.Report(contexts)
	st := &api.PolicyStatus{
		Name: f.spec.Policy.Name, Mode: api.PolicyAsksOne, Learns: f.policy.Learns(), Feedback: feedbackStatus(f.learning),
		Late: f.learning.Late.Load(), Dropped: f.learning.Dropped.Load(), ContextsInMemory: int64(report.InMemory), Store: s.storeStatus(),
	}
	if f.policy.Mode() == selection.Several {
		st.Mode = api.PolicyAsksSeveral
	}
	st.Candidates = s.candidatesLocked(f, report.Global)
	for i := range st.Candidates {
		c := &st.Candidates[i]
		if !st.Learns { // what feedback says of fixed policies is counted, and changes nothing
			n, sum := f.losses[i].Read()
			c.Count, c.MeanLoss = float64(n), sum/math.Max(float64(n), 1)
		}
		if f.averages != nil {
			c.Mean = f.averages.Mean(i)
		}
	}
	for _, c := range report.Contexts {
		if c.Own {
			st.Contexts = append(st.Contexts, api.ContextStatus{Context: c.Context, Candidates: s.candidatesLocked(f, c.Rows)})
		}
	}
	return st
}

func (s *Server) candidatesLocked(f *function, rows []learned.Row) []api.CandidateLearning {
	out := make([]api.CandidateLearning, 0, len(rows))
	for _, r := range rows {
		c := api.CandidateLearning{Ref: r.Ref, Share: r.Share, Weight: r.Weight, Count: r.Count, MeanLoss: r.Loss}
		if d := s.resolveLocked(r.Ref); d != nil {
			c.Model = d.id.String()
		}
		out = append(out, c)
	}
	return out
}

func feedbackStatus(l *obs.Learning) api.FeedbackStatus {
	return api.FeedbackStatus{
		Counted: l.Counted.Load(), Duplicate: l.Duplicates.Load(), Late: l.TooLate.Load(), Unknown: l.Unknown.Load(), Refused: l.Refused.Load(),
		Nothing: l.Nothing.Load(), Asked: l.Asked.Load(), Taught: l.Taught.Load(),
	}
}

// storeStatus is nil when what is learned is kept nowhere.
func (s *Server) storeStatus() *api.StoreStatus {
	if s.store == nil {
		return nil
	}
	st := s.learned.Stats()
	return &api.StoreStatus{
		Name: s.store.Name(), Shared: s.store.Shared(), Away: st.Away, Pending: st.Pending, Lost: st.Lost,
		LastSuccess: st.LastSuccess, LastError: st.LastError, LastErrorAt: st.LastErrorAt,
	}
}

// shadowStatusLocked is nil for functions without shadows.
func (s *Server) shadowStatusLocked(f *function) *api.ShadowStatus {
	if len(f.shadows) == 0 {
		return nil
	}
	l := f.learning
	st := &api.ShadowStatus{Same: l.ShadowsSame.Load(), Different: l.ShadowsOther.Load(), Failed: l.ShadowsFailed.Load(), Dropped: l.ShadowsDropped.Load()}
	for _, ref := range sortedNames(f.shadows) {
		m := api.ShadowModelStatus{Ref: ref, Part: f.spec.Shadow[ref]}
		if d := s.resolveLocked(ref); d != nil {
			m.Model = d.id.String()
		}
		st.Models = append(st.Models, m)
	}
	return st
}

// cacheStatus is how the cache serves the version.
func (d *deployment) cacheStatus() *api.ModelCacheStatus {
	st := d.model.Cache.Stats()
	return &api.ModelCacheStatus{
		On: d.s.cfg.CacheBytes > 0 && d.model.CacheOn.Load() && !d.model.Teachable.Load(), Hits: st.Hits, Misses: st.Misses, Coalesced: st.Coalesced, Bypassed: st.Bypassed,
	}
}

// accuracyWithin bounds how long a description waits for models to say how accurate they are.
const accuracyWithin = time.Second

// accuracy asks the replicas how accurate the model has been, and returns the mean of what those say that answer in time; nil: none.
func (d *deployment) accuracy(ctx context.Context) *float64 {
	d.mu.Lock()
	var ask []*local.Replica
	for r := range d.connected {
		if r.Capabilities().Accuracy {
			ask = append(ask, r)
		}
	}
	d.mu.Unlock()
	if len(ask) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, accuracyWithin)
	defer cancel()
	said := make(chan float64, len(ask))
	for _, r := range ask {
		r.Accuracy(func(value float64, code api.Code) {
			if code != api.OK {
				value = math.NaN()
			}
			said <- value
		})
	}
	sum, n := 0.0, 0
	for range ask {
		select {
		case v := <-said:
			if !math.IsNaN(v) {
				sum += v
				n++
			}
		case <-ctx.Done():
		}
	}
	if n == 0 {
		return nil
	}
	mean := sum / float64(n)
	return &mean
}

// readLearning adds what a scrape shows of a function's learning.
func (f *function) readLearning(out *obs.FunctionSample) {
	out.Learning = f.learning
	shares := make([]float64, len(f.spec.Models))
	f.learned.Shares(shares)
	for i, ref := range f.spec.Models {
		n, sum := f.losses[i].Read()
		out.Candidates = append(out.Candidates, obs.CandidateSample{Ref: ref, Share: shares[i], Losses: n, LossSum: sum})
	}
}

// readState adds what a scrape shows of the cache and of the store.
func (s *Server) readState(out *obs.Snapshot) {
	c := s.cache.Stats()
	out.Cache = obs.CacheSample{Bytes: c.Bytes, MaxBytes: c.MaxBytes, Entries: c.Entries, Evicted: c.Evicted, Collisions: c.Collisions}
	l := s.learned.Stats()
	out.State = obs.StateSample{Kept: s.store != nil, Away: l.Away, Contexts: l.Contexts, Pending: l.Pending, Lost: uint64(l.Lost), Errors: uint64(l.Errors), Evicted: uint64(l.Evicted)}
}
