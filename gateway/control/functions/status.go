package functions

import (
	"fmt"
	"math"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/control/deployment"
	"github.com/xebec-serving/xebec/gateway/control/versions"
	"github.com/xebec-serving/xebec/gateway/internal/numerals"
	"github.com/xebec-serving/xebec/gateway/internal/obs"
	"github.com/xebec-serving/xebec/gateway/learned"
	"github.com/xebec-serving/xebec/gateway/selection"
)

// Status describes the function of the name, or all by name where it is empty. contexts bounds how many contexts are shown. The
// catalog's lock is held. Revisions, times of creation and the store's state are left out.
func (fs *Functions) Status(s *versions.State, name string, contexts int) []api.FunctionStatus {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	var out []api.FunctionStatus
	for _, n := range sortedNames(fs.all) {
		if name == "" || name == n {
			out = append(out, fs.all[n].status(s, contexts))
		}
	}
	return out
}

func (f *function) status(s *versions.State, contexts int) api.FunctionStatus {
	read := f.stats.Read()
	st := api.FunctionStatus{Spec: f.spec, Queries: deployment.CountsByCode(read.Codes[:]), Rate: f.rate.Look(read, time.Now())}
	if f.spec.Default != nil {
		for c, n := range read.Codes {
			if api.Code(c) != api.OK && api.Code(c) != api.InvalidArgument {
				st.Defaults += n
			}
		}
	}
	if f.learned != nil {
		st.Policy = f.policyStatus(s, contexts)
	}
	st.Shadow = f.shadowStatus(s)
	c := api.Condition{Type: "Ready", Status: api.ConditionFalse, Reason: "NoReplica", Message: "no replica of its model is ready"}
	if len(f.spec.Models) == 0 {
		c.Reason, c.Message = "NoModels", "it has no models: every answer is its default output"
	}
	for _, ref := range f.spec.Models {
		v := s.Resolve(ref)
		if v == nil {
			continue
		}
		st.Models = append(st.Models, v.ID().String())
		if ready := v.Ready(); ready > 0 && !st.Ready {
			st.Ready = true
			c.Status, c.Reason, c.Message = api.ConditionTrue, "ReplicasReady", readyText(ready, v.ID())
		}
	}
	st.Conditions = []api.Condition{c}
	return st
}

// readyText is "1 replica of m@1 is ready" or "2 replicas of m@1 are ready".
func readyText(ready int, id api.ModelID) string {
	verb := "are"
	if ready == 1 {
		verb = "is"
	}
	return fmt.Sprintf("%s of %s %s ready", numerals.Count(ready, "replica"), id, verb)
}

// policyStatus is what a function's policy does and has learned.
func (f *function) policyStatus(s *versions.State, contexts int) *api.PolicyStatus {
	report := f.learned.Report(contexts)
	st := &api.PolicyStatus{
		Name: f.spec.Policy.Name, Mode: api.PolicyAsksOne, Learns: f.policy.Learns(), Feedback: feedbackStatus(f.learning),
		Late: f.learning.Late.Load(), Dropped: f.learning.Dropped.Load(), ContextsInMemory: int64(report.InMemory),
	}
	if f.policy.Mode() == selection.Several {
		st.Mode = api.PolicyAsksSeveral
	}
	st.Candidates = candidateStatus(s, report.Global)
	for i := range st.Candidates {
		c := &st.Candidates[i]
		if !st.Learns { // feedback on fixed policies is counted, and changes nothing
			n, sum := f.losses[i].Read()
			c.Count, c.MeanLoss = float64(n), sum/math.Max(float64(n), 1)
		}
		if f.averages != nil {
			c.Mean = f.averages.Mean(i)
		}
		c.Late = f.losses[i].Late.Load()
	}
	for _, c := range report.Contexts {
		if c.HasOwnState {
			st.Contexts = append(st.Contexts, api.ContextStatus{Context: c.Context, Candidates: candidateStatus(s, c.Rows)})
		}
	}
	return st
}

func candidateStatus(s *versions.State, rows []learned.Row) []api.CandidateLearning {
	out := make([]api.CandidateLearning, 0, len(rows))
	for _, r := range rows {
		c := api.CandidateLearning{Ref: r.Ref, Share: r.Share, Weight: r.Weight, Count: r.Count, MeanLoss: r.Loss}
		if v := s.Resolve(r.Ref); v != nil {
			c.Model = v.ID().String()
		}
		out = append(out, c)
	}
	return out
}

func feedbackStatus(l *obs.Learning) api.FeedbackStatus {
	return api.FeedbackStatus{
		Counted: l.Counted.Load(), InPart: l.InPart.Load(), Duplicate: l.Duplicates.Load(), Late: l.TooLate.Load(), Unknown: l.Unknown.Load(), Refused: l.Refused.Load(),
		Nothing: l.Nothing.Load(), Asked: l.ModelsAsked.Load(), Taught: l.ModelsTaught.Load(),
	}
}

// shadowStatus is nil for functions without shadows.
func (f *function) shadowStatus(s *versions.State) *api.ShadowStatus {
	if len(f.shadows) == 0 {
		return nil
	}
	l := f.learning
	st := &api.ShadowStatus{Same: l.ShadowsSame.Load(), Different: l.ShadowsDifferent.Load(), Failed: l.ShadowsFailed.Load(), Dropped: l.ShadowsDropped.Load()}
	for _, ref := range sortedNames(f.shadows) {
		m := api.ShadowModelStatus{Ref: ref, Part: f.spec.Shadow[ref]}
		if v := s.Resolve(ref); v != nil {
			m.Model = v.ID().String()
		}
		st.Models = append(st.Models, m)
	}
	return st
}

// Read adds what a scrape shows of every function. The catalog's lock is held.
func (fs *Functions) Read(s *versions.State, out *obs.Snapshot) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	for name, f := range fs.all {
		sample := obs.FunctionSample{Name: name, Endpoint: f.stats.Read(), Learning: f.learning}
		if len(f.spec.Models) == 0 {
			out.Functions = append(out.Functions, sample)
			continue
		}
		if v := s.Resolve(f.spec.Models[0]); v != nil {
			sample.Model = v.ID().Name
		}
		shares := make([]float64, len(f.spec.Models))
		f.learned.Shares(shares)
		for i, ref := range f.spec.Models {
			n, sum := f.losses[i].Read()
			sample.Candidates = append(sample.Candidates, obs.CandidateSample{Ref: ref, Share: shares[i], Losses: n, LossSum: sum})
		}
		out.Functions = append(out.Functions, sample)
	}
}
