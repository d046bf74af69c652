package versions

import (
	"encoding/json"
	"fmt"
	"slices"
	"sort"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/learned"
	"github.com/xebec-serving/xebec/gateway/query"
	"github.com/xebec-serving/xebec/gateway/registry"
	"github.com/xebec-serving/xebec/gateway/selection"
	"github.com/xebec-serving/xebec/scheduler/driver"
	"go.uber.org/zap"
)

// rules are a family's traffic rules in force.
type rules struct {
	live *Rule // split or roll-out
	tee  *Rule // shadow
	// idle are declared rules that are not in force at the moment because another version serves. What they learned is kept.
	idle []*Rule
}

// The kinds of rules.
const (
	Split   = "split"
	Rollout = "rollout"
	Shadow  = "shadow"
)

// Rule is a traffic rule between two versions. Its counters live as long as the two versions do. Guarded by the Catalog's lock.
type Rule struct {
	Kind string
	// Part is the share of the queries of a split or a shadow.
	Part  float64
	Rule  *query.Rule       // of a split or a roll-out
	Seen  *query.Comparison // of a shadow
	Plans map[string]*PlannedArm

	key            string
	serving, other string // versions

	// Of a roll-out.
	learned *learned.Function
	name    string // under which it learns
	guard   api.GuardSpec
	cap     float64
	verdict registry.Verdict
	reason  string
}

// PlannedArm is a rule's other version as the planner sees it for one function. It belongs to package functions.
type PlannedArm struct {
	Key    uint64
	Choice *driver.Choice
}

// Live is the rule in force that divides the model's queries, and the version that gets a part of them. Nil: none.
func (f *Family) Live() (*Rule, *Version) { return f.inForce(f.rules.live) }

// Tee is the rule in force by which another version sees the model's queries and is only compared. Nil: none.
func (f *Family) Tee() (*Rule, *Version) { return f.inForce(f.rules.tee) }

func (f *Family) inForce(r *Rule) (*Rule, *Version) {
	if r == nil {
		return nil, nil
	}
	return r, f.Versions[r.other]
}

// rule puts the declared rules into force, as far as their versions are there.
func (s *State) rule(f *Family) {
	t := f.Spec()
	var live, tee *Rule
	if x := t.Split; x != nil && s.mayRule(f, x.Version) {
		live = s.ruleFor(f, Split, x.Version, "")
		live.Part = x.Percent / 100
		live.Rule.SetPart(live.Part)
	}
	if x := t.Rollout; x != nil && s.mayRule(f, x.Version) {
		live = s.rollout(f, x)
	}
	if x := t.Shadow; x != nil && s.mayRule(f, x.Version) {
		tee = s.ruleFor(f, Shadow, x.Version, "")
		tee.Part = x.Percent / 100
	}
	f.rules = rules{live, tee, s.idleRules(f, t, live, tee)}
}

// maxIdle bounds the rules of a family that are kept while they are not in force.
const maxIdle = 4

// idleRules keeps the rules that are not in force any more and may be again. The others forget what they have learned.
func (s *State) idleRules(f *Family, t *api.TrafficSpec, live, tee *Rule) (idle []*Rule) {
	for _, r := range append(f.rules.idle, f.rules.live, f.rules.tee) {
		if r == nil || r == live || r == tee || slices.Contains(idle, r) {
			continue
		}
		declared := t.Split != nil && r.Kind == Split && t.Split.Version == r.other ||
			t.Rollout != nil && r.Kind == Rollout && t.Rollout.Version == r.other || t.Shadow != nil && r.Kind == Shadow && t.Shadow.Version == r.other
		if declared && f.Versions[r.other] != nil && f.Versions[r.serving] != nil {
			idle = append(idle, r)
		} else {
			s.forgetRule(r)
		}
	}
	for ; len(idle) > maxIdle; idle = idle[1:] {
		s.forgetRule(idle[0])
	}
	return idle
}

func (s *State) forgetRule(r *Rule) {
	if r.learned != nil {
		s.c.cfg.Learned.Forget(r.name)
	}
}

// mayRule reports whether a version can be the other one of a rule.
func (s *State) mayRule(f *Family, version string) bool {
	v, serving := f.Versions[version], f.Versions[f.Serving]
	return v != nil && v.State == registry.Available && version != f.Serving && serving != nil && v.Spec().SameSignature(serving.Spec())
}

// ruleFor returns the rule that exists already, or a new one.
func (s *State) ruleFor(f *Family, kind, other, more string) *Rule {
	key := kind + " " + f.Serving + " " + other + " " + more
	for _, old := range append(f.rules.idle, f.rules.live, f.rules.tee) {
		if old != nil && old.key == key {
			return old
		}
	}
	r := &Rule{key: key, Kind: kind, serving: f.Serving, other: other, Plans: map[string]*PlannedArm{}}
	if kind == Shadow {
		r.Seen = new(query.Comparison)
	} else {
		r.Rule = query.NewRule(f.Name, nil)
	}
	return r
}

// rollout is the rule of a learned roll-out.
func (s *State) rollout(f *Family, x *api.RolloutSpec) *Rule {
	policy, _ := json.Marshal(x.Policy) // a policy that was judged can be marshalled
	r := s.ruleFor(f, Rollout, x.Version, string(policy))
	r.guard = x.Guard
	if r.learned == nil {
		refs := []string{f.Name + "@" + f.Serving, f.Name + "@" + x.Version}
		p, err := selection.New(x.Policy.Name, x.Policy.Params, refs)
		if err != nil {
			s.c.cfg.Log.Error("roll-out", zap.String("model", f.Name), zap.Error(err))
			return nil
		}
		r.name = fmt.Sprintf("%s (rollout %s to %s)", f.Name, f.Serving, x.Version)
		r.learned = s.c.cfg.Learned.Declare(r.name, p, refs)
		r.Rule.Selector = r.learned
		r.limit()
	}
	return r
}

// limit gives the new version of a roll-out as many queries as it may have so far. It scales the policy's wish, because that is
// how policies take limits.
func (r *Rule) limit() {
	fed, _ := r.Rule.Other.Losses.Read()
	r.cap = registry.Cap(r.guard, fed, r.Rule.Other.Queries.Load())
	shares := make([]float64, 2)
	r.learned.Shares(shares)
	part := 1.0
	if wish := shares[1]; wish > r.cap {
		part = r.cap / wish
	}
	r.Rule.SetPart(part)
}

// share is the part of the queries that the other version answers.
func (r *Rule) share() float64 {
	if r.learned == nil {
		return r.Part
	}
	shares := make([]float64, 2)
	r.learned.Shares(shares)
	return min(shares[1], r.cap)
}

// Verdict is the end of a roll-out.
type Verdict struct {
	Model, Version string
	Advance        bool // it is promoted; else it is taken back
	Reason         string
}

// JudgeRollouts returns the roll-outs that are over, by model. One that has to be taken back gets no queries from now on.
func (c *Catalog) JudgeRollouts() (over []Verdict) {
	s := c.Lock()
	defer c.Unlock()
	for name, f := range s.families {
		r := f.rules.live
		if f.Traffic != nil && f.Traffic.Rollout != nil {
			version := f.Traffic.Rollout.Version
			if v := f.Versions[version]; v != nil && v.State == registry.Rejected {
				over = append(over, Verdict{Model: name, Version: version, Reason: v.reason})
				continue
			}
		}
		if r == nil || r.learned == nil {
			continue
		}
		if r.verdict == registry.Retreat { // and its end is not stored yet
			over = append(over, Verdict{name, r.other, false, r.reason})
			continue
		}
		r.limit()
		r.verdict, r.reason = registry.Judge(r.guard, evidence(&r.Rule.Serving), evidence(&r.Rule.Other))
		r.reason = name + "@" + r.other + ": " + r.reason
		if r.verdict == registry.Undecided && f.Versions[r.other].Crashing() {
			r.verdict, r.reason = registry.Retreat, fmt.Sprintf("%s@%s has lost its replicas", name, r.other)
		}
		if r.verdict == registry.Retreat {
			r.Rule.SetPart(0) // at once, whether the store is reachable or not
		}
		if r.verdict != registry.Undecided {
			over = append(over, Verdict{name, r.other, r.verdict == registry.Advance, r.reason})
		}
	}
	sort.Slice(over, func(i, j int) bool { return over[i].Model < over[j].Model })
	return over
}

func evidence(a *query.Arm) registry.Arm {
	n, sum := a.Losses.Read()
	return registry.Arm{
		Queries: a.Queries.Load(), Failed: a.Failed.Load(), Feedback: n, LossSum: sum, LossSquares: a.Squares.Load(),
		P99: a.Latency.Quantile(0.99) / 1e9, Timed: a.Latency.Count(),
	}
}
