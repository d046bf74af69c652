package server

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sort"
	"strings"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/api/manifest"
	"github.com/xebec-serving/xebec/gateway/learned"
	"github.com/xebec-serving/xebec/gateway/query"
	"github.com/xebec-serving/xebec/gateway/registry"
	"github.com/xebec-serving/xebec/gateway/selection"
	"github.com/xebec-serving/xebec/scheduler/driver"
)

// rules are a family's traffic rules in force. Guarded by Server.mu.
type rules struct {
	live *rule // split or roll-out
	tee  *rule // shadow
	// idle are rules of what is declared that cannot be in force for the moment, for another version serves: what they have learned is kept.
	idle []*rule
}

// rule is a traffic rule between two versions. What it counts is kept as long as these are.
type rule struct {
	key     string
	kind    string // "split", "rollout" or "shadow"
	serving string
	other   string
	part    float64 // of a split or a shadow
	rule    *query.Rule
	seen    *query.Seen

	// Of a roll-out.
	learned *learned.Function
	name    string // under which it learns
	guard   api.GuardSpec
	cap     float64
	verdict registry.Verdict
	reason  string

	plans map[string]*plannedArm // by function
}

// plannedArm is a rule's other version as the planner sees it for one function.
type plannedArm struct {
	key    uint64
	choice *driver.Choice
}

// ruleLocked makes the rules in force those that are declared, as far as the versions are there.
func (s *Server) ruleLocked(f *family) {
	t := f.spec()
	var live, tee *rule
	if x := t.Split; x != nil && s.mayRule(f, x.Version) {
		live = s.ruleFor(f, "split", x.Version, "")
		live.part = x.Percent / 100
		live.rule.SetPart(live.part)
	}
	if x := t.Rollout; x != nil && s.mayRule(f, x.Version) {
		live = s.rolloutLocked(f, x)
	}
	if x := t.Shadow; x != nil && s.mayRule(f, x.Version) {
		tee = s.ruleFor(f, "shadow", x.Version, "")
		tee.part = x.Percent / 100
	}
	f.rules = rules{live, tee, s.idleLocked(f, t, live, tee)}
}

// maxIdle is how many of a family's rules are remembered that are not in force.
const maxIdle = 4

// idleLocked keeps the rules that were in force, are not now, and may be again; what the others have learned is forgotten.
func (s *Server) idleLocked(f *family, t *api.TrafficSpec, live, tee *rule) (idle []*rule) {
	for _, r := range append(f.rules.idle, f.rules.live, f.rules.tee) {
		if r == nil || r == live || r == tee || slices.Contains(idle, r) {
			continue
		}
		declared := t.Split != nil && r.kind == "split" && t.Split.Version == r.other ||
			t.Rollout != nil && r.kind == "rollout" && t.Rollout.Version == r.other || t.Shadow != nil && r.kind == "shadow" && t.Shadow.Version == r.other
		if declared && f.versions[r.other] != nil && f.versions[r.serving] != nil {
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

func (s *Server) forgetRule(r *rule) {
	if r.learned != nil {
		s.learned.Forget(r.name)
	}
}

// mayRule reports whether a version can be the other one of a rule.
func (s *Server) mayRule(f *family, version string) bool {
	d, serving := f.versions[version], f.versions[f.serving]
	return d != nil && d.life.state == registry.Available && version != f.serving && serving != nil && sameSignature(d.spec(), serving.spec())
}

// ruleFor returns the rule that is in force already, or a new one.
func (s *Server) ruleFor(f *family, kind, other, more string) *rule {
	key := kind + " " + f.serving + " " + other + " " + more
	for _, old := range append(f.rules.idle, f.rules.live, f.rules.tee) {
		if old != nil && old.key == key {
			return old
		}
	}
	r := &rule{key: key, kind: kind, serving: f.serving, other: other, plans: map[string]*plannedArm{}}
	if kind == "shadow" {
		r.seen = new(query.Seen)
	} else {
		r.rule = query.NewRule(f.name, nil)
	}
	return r
}

// trafficEditLocked replaces a family's traffic rules.
func (s *Server) trafficEditLocked(ctx context.Context, f *family, spec api.TrafficSpec, action, version, detail string) *edit {
	c := api.Change{Kind: api.KindTraffic, Name: f.name, Version: version, Action: api.Updated}
	if f.traffic == nil {
		c.Action = api.Created
	}
	put := manifest.Set{Traffic: []api.TrafficSpec{spec}}
	e := &edit{changes: []api.Change{c}, put: put, events: []api.HistoryEvent{s.event(ctx, action, c, detail)}}
	if f.serving != version {
		e.events[0].Before = f.serving
	}
	e.install = func() error { return s.installLocked(&e.put, nil, f.source) }
	return e
}

// keepLabelsLocked moves labels that a promotion or a rollback has taken away, and that functions name, to the version that is to serve
// instead: a function must not lose its model because of a name.
func (s *Server) keepLabelsLocked(f *family, spec *api.TrafficSpec, to string) {
	for label := range f.spec().Labels {
		if _, stays := spec.Labels[label]; stays || !s.labelNamedLocked(f.name, label) {
			continue
		}
		if spec.Labels == nil {
			spec.Labels = map[string]string{}
		}
		spec.Labels[label] = to
	}
}

// labelNamedLocked reports whether a function names the label.
func (s *Server) labelNamedLocked(model, label string) bool {
	for _, fn := range s.functions {
		if slices.Contains(fn.spec.Refs(), model+"@"+label) {
			return true
		}
	}
	return false
}

// Promote makes a version the one that serves.
func (s *Server) Promote(ctx context.Context, model, version string, seen ...api.ObjectRevision) ([]api.Change, error) {
	return s.change(ctx, false, func() (*edit, error) {
		f := s.families[model]
		if f == nil || len(f.versions) == 0 {
			return nil, api.Errorf(api.NotFound, "no model %q", model)
		}
		spec, err := registry.Promote(*f.spec(), s.modelLocked(f), version)
		if err != nil {
			return nil, err
		}
		to := spec.Serving
		for _, v := range s.modelLocked(f).Versions { // the newest, where none is pinned
			if spec.Serving == "" {
				to = v.Name
			}
		}
		s.keepLabelsLocked(f, &spec, to)
		return s.trafficEditLocked(ctx, f, spec, "promoted", to, ""), nil
	}, seen...)
}

// servedBefore is the version of a model that served before the one that does, as the history tells; empty where it does not. What this
// gateway has seen itself is no more than the order in which versions were loaded, when it was started since.
func (s *Server) servedBefore(ctx context.Context, model string) string {
	s.mu.Lock()
	serving := ""
	if f := s.families[model]; f != nil {
		serving = f.serving
	}
	s.mu.Unlock()
	events, err := s.History(ctx, model, servedBeforeEvents)
	if err != nil {
		return "" // the next older one is as good a guess
	}
	for _, e := range events {
		if e.Kind == api.KindTraffic && e.Before != "" && e.Version == serving {
			return e.Before
		}
	}
	return ""
}

// servedBeforeEvents is how far back the history is looked through.
const servedBeforeEvents = 200

// Rollback makes an older version serve, and keeps the one that serves now from being loaded.
func (s *Server) Rollback(ctx context.Context, model, to, reason string, seen ...api.ObjectRevision) ([]api.Change, error) {
	previous := ""
	if to == "" {
		previous = s.servedBefore(ctx, model)
	}
	return s.change(ctx, false, func() (*edit, error) {
		f := s.families[model]
		if f == nil || len(f.versions) == 0 {
			return nil, api.Errorf(api.NotFound, "no model %q", model)
		}
		spec, err := registry.Rollback(*f.spec(), s.modelLocked(f), to, cmp.Or(previous, f.before), reason)
		if err != nil {
			return nil, err
		}
		s.keepLabelsLocked(f, &spec, spec.Rollback.To)
		return s.trafficEditLocked(ctx, f, spec, "rolled back", spec.Rollback.To, reason), nil
	}, seen...)
}

// judgeTrafficLocked says what the set's traffic rules would become, or why they cannot be. models has all versions, as they would be.
func (s *Server) judgeTrafficLocked(set *manifest.Set, changes []api.Change, models map[string][]*api.ModelSpec) ([]api.Change, error) {
	declared := map[string]bool{}
	for i := range set.Traffic {
		t := &set.Traffic[i]
		if declared[t.Model] {
			return nil, refuse(set, api.KindTraffic, i, api.InvalidArgument, fmt.Errorf("is declared twice"))
		}
		declared[t.Model] = true
		if err := checkTraffic(t, models[t.Model]); err != nil {
			return nil, refuse(set, api.KindTraffic, i, api.InvalidArgument, err)
		}
		if err := s.checkLabelsLocked(t.Model, t); err != nil && !mentions(set, t.Model) {
			return nil, refuse(set, api.KindTraffic, i, api.Conflict, err)
		}
		c := api.Change{Kind: api.KindTraffic, Name: t.Model, Action: api.Created}
		if f := s.families[t.Model]; f != nil && f.traffic != nil {
			c.Action = api.Updated
			if jsonEqual(f.traffic, t) {
				c.Action = api.Unchanged
			}
		}
		changes = append(changes, c)
	}
	for i := range set.Models { // a new version must not take a label's name
		m := &set.Models[i]
		if f := s.families[m.Name]; f != nil && f.traffic != nil && !declared[m.Name] {
			if _, taken := f.traffic.Labels[m.Version]; taken {
				return nil, refuse(set, api.KindModel, i, api.Conflict, api.FieldErrors{{Path: "version", Message: fmt.Sprintf("%q is a label of another version of the model: choose another name for the version, or remove the label", m.Version)}})
			}
		}
	}
	return changes, nil
}

// mentions reports whether the set declares functions too: then they are judged together with the labels.
func mentions(set *manifest.Set, model string) bool {
	for i := range set.Functions {
		for _, ref := range set.Functions[i].Refs() {
			if strings.HasPrefix(ref, model+"@") {
				return true
			}
		}
	}
	return false
}

func jsonEqual(a, b any) bool {
	x, errX := json.Marshal(a)
	y, errY := json.Marshal(b)
	return errX == nil && errY == nil && string(x) == string(y)
}

// checkTraffic judges rules against the versions that there are. The error is nil or api.FieldErrors.
func checkTraffic(t *api.TrafficSpec, models []*api.ModelSpec) error {
	if len(models) == 0 {
		return api.FieldErrors{{Path: "name", Message: fmt.Sprintf("there is no model %q: declare it in the same manifest or before", t.Model)}}
	}
	byVersion := make(map[string]*api.ModelSpec, len(models))
	var names []string
	for _, m := range models {
		byVersion[m.Version] = m
		names = append(names, m.Version)
	}
	sort.Slice(names, func(i, j int) bool { return api.CompareVersions(names[i], names[j]) < 0 })
	var errs api.FieldErrors
	there := func(path, version string) *api.ModelSpec {
		m := byVersion[version]
		if m == nil && version != "" {
			errs = append(errs, api.FieldError{Path: path, Message: fmt.Sprintf("%s has no version %q: expected one of %s", t.Model, version, strings.Join(names, ", "))})
		}
		return m
	}
	there("serving", t.Serving)
	for i, v := range t.Versions.Specific {
		there(fmt.Sprintf("versions.specific[%d]", i), v)
	}
	for label, v := range t.Labels {
		there("labels."+label, v)
		if byVersion[label] != nil {
			errs = append(errs, api.FieldError{Path: "labels." + label, Message: "is the name of a version of the model: choose another label"})
		}
	}
	others := map[string]*api.ModelSpec{}
	if t.Split != nil {
		others["split.version"] = there("split.version", t.Split.Version)
	}
	if t.Shadow != nil {
		others["shadow.version"] = there("shadow.version", t.Shadow.Version)
	}
	if t.Rollout != nil {
		others["rollout.version"] = there("rollout.version", t.Rollout.Version)
		refs := []string{t.Model + "@old", t.Model + "@" + t.Rollout.Version}
		if _, err := selection.New(t.Rollout.Policy.Name, t.Rollout.Policy.Params, refs); err != nil {
			errs = append(errs, api.FieldError{Path: "rollout.policy", Message: err.Error()})
		}
	}
	for path, other := range others {
		for _, m := range models {
			if other != nil && m != other && !sameSignature(m, other) && (t.Serving == "" || t.Serving == m.Version) {
				errs = append(errs, api.FieldError{Path: path, Message: fmt.Sprintf("version %s has another signature than version %s, which may serve: answers of the two cannot stand for each other", other.Version, m.Version)})
				break
			}
		}
	}
	if t.Rollback != nil {
		there("rollback.to", t.Rollback.To)
	}
	if len(errs) == 0 {
		return nil
	}
	sort.SliceStable(errs, func(i, j int) bool { return errs[i].Path < errs[j].Path })
	return errs
}

func sameSignature(a, b *api.ModelSpec) bool {
	field := a.Fixed(b)
	return field != "inputs" && field != "outputs"
}

// checkLabelsLocked says which function would lose a label that it names. t is what the rules will be, nil: none.
func (s *Server) checkLabelsLocked(model string, t *api.TrafficSpec) error {
	f := s.families[model]
	if f == nil || f.traffic == nil {
		return nil
	}
	for label := range f.traffic.Labels {
		if t != nil {
			if _, stays := t.Labels[label]; stays {
				continue
			}
		}
		for _, name := range sortedNames(s.functions) {
			for _, ref := range s.functions[name].spec.Refs() {
				if ref == model+"@"+label {
					return api.Errorf(api.Conflict, "function %s names %s: change the function first, or keep the label %q", name, ref, label)
				}
			}
		}
	}
	return nil
}

// namedBy says where traffic rules name a version; empty: nowhere.
func namedBy(t *api.TrafficSpec, version string) string {
	switch {
	case t.Serving == version:
		return "serving"
	case t.Split != nil && t.Split.Version == version:
		return "split"
	case t.Shadow != nil && t.Shadow.Version == version:
		return "shadow"
	case t.Rollout != nil && t.Rollout.Version == version:
		return "rollout"
	case t.Rollback != nil && t.Rollback.To == version:
		return "rollback"
	}
	for label, v := range t.Labels {
		if v == version {
			return "label " + label
		}
	}
	for _, v := range t.Versions.Specific {
		if v == version {
			return "versions"
		}
	}
	return ""
}

// Traffic returns how models' queries are divided between their versions.
func (s *Server) Traffic(_ context.Context, model string) ([]api.TrafficStatus, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if model != "" {
		f := s.families[model]
		if f == nil || len(f.versions) == 0 {
			return nil, api.Errorf(api.NotFound, "no model %q", model)
		}
		return []api.TrafficStatus{s.trafficStatusLocked(f)}, nil
	}
	var out []api.TrafficStatus
	for _, name := range sortedNames(s.families) {
		if f := s.families[name]; f.traffic != nil {
			out = append(out, s.trafficStatusLocked(f))
		}
	}
	return out, nil
}

// inForce is the version that serves, empty while it is yet to come.
func (f *family) inForce() string {
	if d := f.versions[f.serving]; d != nil && d.life.state != registry.Available {
		return ""
	}
	return f.serving
}

func (f *family) status() api.TrafficStatus {
	st := api.TrafficStatus{Spec: *f.spec(), Declared: f.traffic != nil, Serving: f.inForce()}
	main := api.ArmStatus{Version: f.serving, Rule: "serving", Share: 1}
	if r := f.rules.tee; r != nil {
		main = armStatus(r.serving, "serving", 1, &r.seen.Serving)
		st.Arms = append(st.Arms, armStatus(r.other, r.kind, 0, &r.seen.Other))
		st.Shadow = &api.ComparedStatus{Version: r.other, Same: r.seen.Same.Load(), Different: r.seen.Different.Load(), Failed: r.seen.Failed.Load()}
	}
	if r := f.rules.live; r != nil {
		share := r.share()
		main = armStatus(r.serving, "serving", 1-share, &r.rule.Serving)
		st.Arms = append([]api.ArmStatus{armStatus(r.other, r.kind, share, &r.rule.Other)}, st.Arms...)
		if r.learned != nil {
			st.Rollout = &api.RolloutStatus{Version: r.other, Cap: r.cap, Verdict: r.verdict.String(), Reason: r.reason}
		}
	}
	if st.Serving != "" {
		st.Arms = append([]api.ArmStatus{main}, st.Arms...)
	}
	return st
}

// share is the part of the queries that the other version answers.
func (r *rule) share() float64 {
	if r.learned == nil {
		return r.part
	}
	shares := make([]float64, 2)
	r.learned.Shares(shares)
	return min(shares[1], r.cap)
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

// nameLocked finds out which versions functions name: they stay loaded.
func (s *Server) nameLocked() {
	before := s.named
	s.named = map[api.ModelID]bool{}
	for _, f := range s.functions {
		for _, ref := range f.spec.Refs() {
			if id, err := api.ParseModelRef(ref); err == nil && id.Version != "" {
				if d := s.resolveLocked(ref); d != nil {
					s.named[d.id] = true
				}
			}
		}
	}
	for id := range before {
		if !s.named[id] {
			s.touchLocked(id.Name)
		}
	}
	for id := range s.named {
		if !before[id] {
			s.touchLocked(id.Name)
		}
	}
}
