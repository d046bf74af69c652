package server

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/internal/obs"
	"github.com/xebec-serving/xebec/gateway/internal/state"
	"github.com/xebec-serving/xebec/gateway/learned"
	"github.com/xebec-serving/xebec/gateway/query"
	"github.com/xebec-serving/xebec/gateway/selection"
	"github.com/xebec-serving/xebec/scheduler/driver"
	"github.com/xebec-serving/xebec/scheduler/planner"
	"go.uber.org/zap"
)

const (
	// closeStoreWithin bounds how long the end waits for a store that takes the last deltas.
	closeStoreWithin = 5 * time.Second
	stateFile        = "state.db"
)

// openStore opens where policies' states are kept, and what keeps them in memory.
func (s *Server) openStore() error {
	where := s.cfg.Store
	if where == "" && s.cfg.DataDir != "" {
		where = filepath.Join(s.cfg.DataDir, stateFile)
	}
	if where != "" {
		store, err := state.Open(where)
		if err != nil {
			return fmt.Errorf("--store: %w", err)
		}
		s.store, s.objects = store, store
	}
	s.learned = learned.New(learned.Config{Store: s.store, Contexts: s.cfg.Contexts, Log: s.log})
	return nil
}

// closeStore writes what is not written yet.
func (s *Server) closeStore() error {
	ctx, cancel := context.WithTimeout(context.Background(), closeStoreWithin)
	defer cancel()
	if err := s.learned.Close(ctx); err != nil {
		s.log.Warn("what was learned last is not in the store", zap.Error(err))
	}
	if s.store == nil {
		return nil
	}
	return s.store.Close()
}

// policyOf makes the policy that a function declares. The error has the paths of the function's fields.
func policyOf(f *api.FunctionSpec) (selection.Policy, error) {
	return selection.New(f.Policy.Name, f.Policy.Params, f.Models)
}

// declareLocked gives a function, new or changed, its policy: what it has learned of candidates that stay is kept.
func (s *Server) declareLocked(f *function) error {
	p, err := policyOf(&f.spec)
	if err != nil {
		return err
	}
	f.policy, f.learned = p, s.learned.Declare(f.spec.Name, p, f.spec.Models)
	f.lanes = nil // the candidates may have changed
	if !slices.Equal(f.declared, f.spec.Models) {
		f.declared, f.losses, f.averages = f.spec.Models, make([]obs.Loss, len(f.spec.Models)), nil
	}
	if f.learning == nil {
		f.learning = new(obs.Learning)
	}
	shadows := make(map[string]*shadow, len(f.spec.Shadow))
	for ref := range f.spec.Shadow {
		if shadows[ref] = f.shadows[ref]; shadows[ref] == nil {
			shadows[ref] = &shadow{key: s.keys.Add(1)}
		}
	}
	f.shadows = shadows
	return nil
}

// selects reports whether the policy chooses for each query; the others leave it to the plan.
func (f *function) selects() bool {
	return f.spec.Policy.Name != api.PolicySingle && f.spec.Policy.Name != api.PolicyPrefer
}

// mode is how the planner is to see the function.
func (f *function) mode() planner.Mode {
	switch {
	case !f.selects():
		return planner.One
	case f.policy.Mode() == selection.Several:
		return planner.All
	}
	return planner.Shares
}

// lossOf is how far a function's predictions are from labels. averages is nil where outputs are labels.
func (f *function) lossOf(sig api.Signature) (loss selection.Loss, averages *query.Averages) {
	spec := f.spec.Loss.For(sig.Outputs)
	if !spec.Numeric() {
		return loss, nil
	}
	averages = f.averages
	if averages == nil || !averages.Fits(sig) || averages.Candidates() != len(f.spec.Models) {
		averages = query.NewAverages(sig, len(f.spec.Models))
	}
	if averages == nil {
		return loss, nil
	}
	averages.SetTolerance(spec.Tolerance)
	loss.Kind, _ = selection.LossKindOf(spec.Kind)
	loss.Scale = spec.Scale
	return loss, averages
}

// shadowsLocked are the shadows as the query path sees them.
func (s *Server) shadowsLocked(f *function) []query.Shadow {
	var out []query.Shadow
	for _, ref := range sortedNames(f.shadows) {
		d := s.resolveLocked(ref)
		if d == nil {
			continue
		}
		sh := f.shadows[ref]
		if sh.lane != d.lane {
			sh.lane, sh.choice = d.lane, driver.NewChoice(planner.All, 1, d.lane)
		}
		out = append(out, query.Shadow{
			Candidate: query.Candidate{Model: d.model, Queue: d.shadowQueueLocked(f)}, Part: f.spec.Shadow[ref], Choice: sh.choice,
		})
	}
	return out
}

// shadowQueueLocked is the sub-queue of the queries for which the deployment is a function's shadow.
func (d *deployment) shadowQueueLocked(f *function) int32 {
	return d.subQueueLocked(shadowName(f.spec.Name), api.MinWeight)
}

// shadowName is how a function's shadows are called among functions; no function can have that name.
func shadowName(function string) string { return function + " (shadow)" }

// planShadowsLocked adds the function's shadows to what is planned for.
func (s *Server) planShadowsLocked(t *driver.Topology, f *function, at map[*deployment]int32) {
	for _, ref := range sortedNames(f.shadows) {
		d, sh := s.resolveLocked(ref), f.shadows[ref]
		if d == nil || sh.choice == nil {
			continue
		}
		t.Functions = append(t.Functions, planner.FunctionInfo{
			Key: sh.key, Name: shadowName(f.spec.Name), Weight: api.MinWeight, SLONanos: int64(f.spec.SLO), Mode: planner.All, Background: true,
			Candidates: []planner.CandidateInfo{{Model: at[d], Queue: d.shadowQueueLocked(f), Gain: shadowGain}},
		})
		t.Choices, t.Gains = append(t.Choices, sh.choice), append(t.Gains, nil)
	}
}

// gains is who tells the planner what the function has learned of its candidates: under overload the least useful goes first.
func (f *function) gains() func([]float64) {
	if !f.selects() {
		return nil
	}
	return f.learned.Gains
}

// shadowGain is what a shadow's answer is worth beside those that are given.
const shadowGain = 0.01

// orphan is a sub-queue whose function is no more.
type orphan struct {
	d     *deployment
	queue int32
}

// detachLocked takes a function that is no more from every model. Its queues are removed once no table has them.
func (s *Server) detachLocked(name string) {
	for _, d := range s.models {
		for _, n := range []string{name, shadowName(name)} {
			if q, ok := d.queues[n]; ok {
				s.orphans = append(s.orphans, orphan{d, q})
				delete(d.queues, n)
			}
		}
	}
}
