package server

import (
	"context"
	"encoding/json"
	"fmt"
	"sort"
	"sync/atomic"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/admin"
	"github.com/xebec-serving/xebec/gateway/query"
	"github.com/xebec-serving/xebec/gateway/registry"
	"github.com/xebec-serving/xebec/gateway/selection"
	"go.uber.org/zap"
)

// rolloutLocked is the rule of a learned roll-out.
func (s *Server) rolloutLocked(f *family, x *api.RolloutSpec) *rule {
	policy, _ := json.Marshal(x.Policy) // a policy that was judged can be written
	r := s.ruleFor(f, "rollout", x.Version, string(policy))
	r.guard = x.Guard
	if r.learned == nil {
		refs := []string{f.name + "@" + f.serving, f.name + "@" + x.Version}
		p, err := selection.New(x.Policy.Name, x.Policy.Params, refs)
		if err != nil {
			s.log.Error("roll-out", zap.String("model", f.name), zap.Error(err))
			return nil
		}
		r.name = fmt.Sprintf("%s (rollout %s to %s)", f.name, f.serving, x.Version)
		r.learned = s.learned.Declare(r.name, p, refs)
		r.rule.Selector = r.learned
		s.capLocked(r)
	}
	return r
}

// capLocked gives the new version of a roll-out as much as it may have so far. The policy's wish is limited in proportion, for that is how
// policies take limits.
func (s *Server) capLocked(r *rule) {
	fed, _ := r.rule.Other.Losses.Read()
	r.cap = registry.Cap(r.guard, fed, r.rule.Other.Queries.Load())
	shares := make([]float64, 2)
	r.learned.Shares(shares)
	part := 1.0
	if wish := shares[1]; wish > r.cap {
		part = r.cap / wish
	}
	r.rule.SetPart(part)
}

// superviseEvery is how often roll-outs are judged.
const superviseEvery = time.Second

// supervise judges roll-outs, and ends those about which there is a verdict.
func (s *Server) supervise(ctx context.Context) {
	t := time.NewTicker(superviseEvery)
	defer t.Stop()
	for {
		select {
		case <-t.C:
		case <-ctx.Done():
			return
		}
		for _, e := range s.judgeRollouts() {
			if err := s.conclude(ctx, e); err != nil {
				s.log.Warn("a roll-out is over and could not be ended: tried again", zap.String("model", e.model), zap.Error(err))
			}
		}
	}
}

// ending is the end of a roll-out, as it was judged.
type ending struct {
	model, version string
	advance        bool
	reason         string
}

// judgeRollouts returns the roll-outs that are over.
func (s *Server) judgeRollouts() (over []ending) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, f := range s.families {
		r := f.rules.live
		if f.traffic != nil && f.traffic.Rollout != nil {
			version := f.traffic.Rollout.Version
			if d := f.versions[version]; d != nil && d.life.state == registry.Rejected {
				over = append(over, ending{model: name, version: version, reason: d.life.reason})
				continue
			}
		}
		if r == nil || r.learned == nil {
			continue
		}
		if r.verdict == registry.Retreat { // and its end has yet to be stored
			over = append(over, ending{name, r.other, false, r.reason})
			continue
		}
		s.capLocked(r)
		r.verdict, r.reason = registry.Judge(r.guard, armOf(&r.rule.Serving), armOf(&r.rule.Other))
		r.reason = name + "@" + r.other + ": " + r.reason
		if r.verdict == registry.Undecided && f.versions[r.other].crashing() {
			r.verdict, r.reason = registry.Retreat, fmt.Sprintf("%s@%s has lost its replicas", name, r.other)
		}
		if r.verdict == registry.Retreat {
			r.rule.SetPart(0) // at once, whether the store is there or not
		}
		if r.verdict != registry.Undecided {
			over = append(over, ending{name, r.other, r.verdict == registry.Advance, r.reason})
		}
	}
	sort.Slice(over, func(i, j int) bool { return over[i].model < over[j].model })
	return over
}

func armOf(a *query.Arm) registry.Arm {
	n, sum := a.Losses.Read()
	return registry.Arm{
		Queries: a.Queries.Load(), Failed: a.Failed.Load(), Feedback: n, LossSum: sum, LossSquares: a.Squares.Load(),
		P99: a.Latency.Quantile(0.99) / 1e9, Timed: a.Latency.Count(),
	}
}

// conclude ends a roll-out: in a promotion, or in a retreat that keeps the version from being loaded again.
func (s *Server) conclude(ctx context.Context, over ending) error {
	ctx = admin.WithCaller(ctx, admin.Caller{Name: "rollout"})
	_, err := s.change(ctx, false, func() (*edit, error) {
		f := s.families[over.model]
		if f == nil || f.traffic == nil || f.traffic.Rollout == nil || f.traffic.Rollout.Version != over.version {
			return &edit{install: func() error { return nil }}, nil // somebody else was faster, or wants something else now
		}
		if over.advance {
			spec, err := registry.Promote(*f.traffic, s.modelLocked(f), over.version)
			if err != nil {
				return nil, err
			}
			s.keepLabelsLocked(f, &spec, over.version)
			return s.counted(s.trafficEditLocked(ctx, f, spec, "promoted", over.version, over.reason), &s.rolledOut), nil
		}
		spec, err := registry.TakeBack(*f.traffic, s.modelLocked(f), over.reason)
		if err != nil { // it was an older one: there is nothing to keep out
			spec = *f.traffic
			spec.Rollout = nil
		}
		s.keepLabelsLocked(f, &spec, f.serving)
		return s.counted(s.trafficEditLocked(ctx, f, spec, "retreated", over.version, over.reason), &s.retreated), nil
	})
	return err
}

// counted counts an edit when it is made.
func (s *Server) counted(e *edit, n *atomic.Uint64) *edit {
	install := e.install
	e.install = func() error {
		n.Add(1)
		return install()
	}
	return e
}
