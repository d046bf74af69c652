package api

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// TrafficSpec says which versions of a model are loaded and which of them answer. A model without one has the zero
// value's rules: it loads the versions that its source asks for, and the newest eligible version answers.
type TrafficSpec struct {
	// Model is the model's name. In a manifest the field is "name".
	Model string `json:"name"`
	// Versions selects the versions to load among those that exist.
	Versions VersionPolicy `json:"versions,omitzero"`
	// Transition is TransitionAvailability, or TransitionResources for a model that cannot have two versions loaded at
	// a time.
	Transition string `json:"transition,omitempty"`
	// Serving pins the version that answers. If it is empty, the newest eligible version that Split, Shadow and Rollout
	// do not name answers.
	Serving string `json:"serving,omitempty" field:"version"`
	// Split gives another version a part of the live answers. A caller's context always gets the same version.
	Split *VersionShare `json:"split,omitempty"`
	// Shadow asks another version too, for a part of the queries. Its answers are compared and counted, but never
	// returned.
	Shadow *VersionShare `json:"shadow,omitempty"`
	// Rollout lets feedback move the answers to another version.
	Rollout *RolloutSpec `json:"rollout,omitempty"`
	// Labels are other names for versions: "stable" in "digits@stable".
	Labels map[string]string `json:"labels,omitempty" field:"version"`
	// Rollback is set from a rollback until it is over.
	Rollback *RollbackSpec `json:"rollback,omitempty"`
	// RolledBack are the versions that rollbacks have taken back, oldest first. They are not loaded unless a function or
	// a rule names them, until they are promoted.
	RolledBack []string `json:"rolled_back,omitempty" field:"version"`
}

// VersionPolicy selects versions. At most one of its fields is set. If none is, the versions' source decides: a
// directory of models loads the newest; of applied versions the newest is loaded, and the one before the serving version
// is kept asleep.
type VersionPolicy struct {
	// Latest selects this many of the newest versions.
	Latest int  `json:"latest,omitempty" field:"min=1"`
	All    bool `json:"-"`
	// Specific lists the versions.
	Specific []string `json:"specific,omitempty" field:"version"`
}

// VersionShare is a version and its part of a model's queries, in percent: more than 0 and at most 100.
type VersionShare struct {
	Version string  `json:"version" field:"version"`
	Percent float64 `json:"percent" field:"positive"`
}

// RolloutSpec is a learned roll-out. A selection policy that asks one candidate per query moves the answers between the
// serving version and this one according to feedback, within Guard. It ends in a promotion or in a retreat.
type RolloutSpec struct {
	Version string     `json:"version" field:"version"`
	Policy  PolicySpec `json:"policy,omitzero"`
	Guard   GuardSpec  `json:"guard,omitzero"`
}

// GuardSpec bounds how much worse the version that is rolled out may be. A field that is 0 has its default.
type GuardSpec struct {
	// MinFeedback is how many answers of each of the two versions must have feedback before the new one can be promoted.
	MinFeedback int `json:"min_feedback,omitempty" field:"min=1"`
	// MaxErrorIncrease bounds how much higher the new version's mean loss, and its part of failed queries, may be: 0.02
	// is two in a hundred.
	MaxErrorIncrease float64 `json:"max_error_increase,omitempty" field:"positive"`
	// MaxP99Increase bounds how much longer its 99th percentile may be, relative to the serving version's: 0.5 is half
	// as long again.
	MaxP99Increase float64 `json:"max_p99_increase,omitempty" field:"positive"`
}

// RollbackSpec records the last rollback. To answers until a newer version that is not in RolledBack may serve, or From
// or a newer version is promoted. If RolledBack is empty, all versions newer than To and not newer than From were rolled
// back.
type RollbackSpec struct {
	From string `json:"from" field:"version"`
	To   string `json:"to" field:"version"`
	// Reason is for people: why the version was bad, and who or what found it.
	Reason string `json:"reason,omitempty"`
}

// The transitions from one version to the next (TensorFlow-Serving's aspired versions policies).
const (
	// TransitionAvailability loads the new version before it unloads the old one.
	TransitionAvailability = "availability"
	// TransitionResources unloads the old version first. In between no version answers.
	TransitionResources = "resources"
)

// Defaults and limits of a traffic spec.
const (
	DefaultMinFeedback      = 200
	DefaultMaxErrorIncrease = 0.02
	DefaultMaxP99Increase   = 0.5
	// MaxMinFeedback bounds how long a roll-out can go without a conclusion. More feedback adds no information.
	MaxMinFeedback = 1e9 //xebec:limit `rollout.guard.min_feedback`
	// MaxP99Factor bounds a latency guard; a larger one would guard nothing.
	MaxP99Factor = 1000 //xebec:limit `rollout.guard.max_p99_increase`
	// MaxLabels and MaxSpecific bound what a person can keep track of.
	MaxLabels   = 64 //xebec:limit labels of a model
	MaxSpecific = 64 //xebec:limit versions in `versions.specific`
	// MaxRolledBack bounds a record that grows with every bad version. The oldest are forgotten first.
	MaxRolledBack = 1024 //xebec:limit versions in `rolled_back`
	// MaxLatest exceeds the number of versions that a model can reasonably have. Use "all" instead.
	MaxLatest = 10_000 //xebec:limit `versions.latest`
	// MaxReasonBytes bounds a rollback's reason.
	MaxReasonBytes = 1024 //xebec:limit reason of a rollback
)

// RolloutPolicies are the policies that a roll-out can have: those that ask one candidate for each query.
var RolloutPolicies = []string{PolicyExp3, PolicyEpsilonGreedy, PolicyUCB1, PolicyThompson, PolicySplit}

// WithDefaults returns a copy with every unset field that has a default set to it. It is idempotent.
func (t TrafficSpec) WithDefaults() TrafficSpec {
	if t.Transition == "" {
		t.Transition = TransitionAvailability
	}
	if t.Rollout != nil {
		r := *t.Rollout // do not change the caller's
		if r.Policy.Name == "" {
			r.Policy.Name = PolicyExp3
		}
		if r.Guard.MinFeedback == 0 {
			r.Guard.MinFeedback = DefaultMinFeedback
		}
		if r.Guard.MaxErrorIncrease == 0 {
			r.Guard.MaxErrorIncrease = DefaultMaxErrorIncrease
		}
		if r.Guard.MaxP99Increase == 0 {
			r.Guard.MaxP99Increase = DefaultMaxP99Increase
		}
		t.Rollout = &r
	}
	return t
}

// Validate checks a spec that has its defaults. The error is nil or [FieldErrors] with all problems. The gateway, not
// this package, knows which versions exist.
func (t TrafficSpec) Validate() error {
	var e FieldErrors
	e.check("name", CheckName("model", t.Model))
	t.Versions.validate(&e)
	if t.Transition != TransitionAvailability && t.Transition != TransitionResources {
		e.add("transition", "%q: expected %s or %s", t.Transition, TransitionAvailability, TransitionResources)
	}
	if t.Serving != "" {
		e.check("serving", CheckVersion(t.Serving))
	}
	t.Split.validate(&e, "split", t.Serving)
	t.Shadow.validate(&e, "shadow", t.Serving)
	t.Rollout.validate(&e, t.Serving)
	if t.Split != nil && t.Rollout != nil {
		e.add("rollout", "is there beside split, and both give answers to another version: leave one of them out")
	}
	t.validateLabels(&e)
	t.Rollback.validate(&e)
	t.validateRolledBack(&e)
	return e.err()
}

func (p *VersionPolicy) validate(e *FieldErrors) {
	kinds := 0
	for _, is := range []bool{p.All, p.Latest != 0, len(p.Specific) > 0} {
		if is {
			kinds++
		}
	}
	if kinds > 1 {
		e.add("versions", "has more than one of all, latest and specific: expected one of them")
	}
	if p.Latest < 0 || p.Latest > MaxLatest {
		e.add("versions.latest", "%d: expected 1 to %d, or versions: all", p.Latest, MaxLatest)
	}
	if len(p.Specific) > MaxSpecific {
		e.add("versions.specific", "has %d versions: expected at most %d", len(p.Specific), MaxSpecific)
		return
	}
	checkVersions(e, "versions.specific", p.Specific)
}

// checkVersions checks a list of different versions.
func checkVersions(e *FieldErrors, at string, versions []string) {
	for i, v := range versions {
		at := fmt.Sprintf("%s[%d]", at, i)
		checkNamedVersion(e, at, v)
		if slices.Contains(versions[:i], v) {
			e.add(at, "%q is there twice", v)
		}
	}
}

func (t *TrafficSpec) validateRolledBack(e *FieldErrors) {
	if len(t.RolledBack) > MaxRolledBack {
		e.add("rolled_back", "has %d versions: expected at most %d", len(t.RolledBack), MaxRolledBack)
		return
	}
	checkVersions(e, "rolled_back", t.RolledBack)
	if t.Rollback != nil && slices.Contains(t.RolledBack, t.Rollback.To) {
		e.add("rolled_back", "has version %q, which the model was rolled back to: expected versions that are not to serve", t.Rollback.To)
	}
}

// checkNamedVersion checks a field that must name a version.
func checkNamedVersion(e *FieldErrors, at, version string) {
	if version == "" {
		e.add(at, "is missing: expected a version of the model")
		return
	}
	e.check(at, CheckVersion(version))
}

// checkOtherVersion checks a field that must name a version other than the serving one.
func checkOtherVersion(e *FieldErrors, at, version, serving string) {
	checkNamedVersion(e, at, version)
	if version != "" && version == serving {
		e.add(at, "%q is the serving version: expected another one", version)
	}
}

func (s *VersionShare) validate(e *FieldErrors, at, serving string) {
	if s == nil {
		return
	}
	checkOtherVersion(e, at+".version", s.Version, serving)
	if !(s.Percent > 0 && s.Percent <= 100) { // NaN too
		e.add(at+".percent", "%s: expected more than 0 and at most 100 (percent of the queries)", number(s.Percent))
	}
}

func (r *RolloutSpec) validate(e *FieldErrors, serving string) {
	if r == nil {
		return
	}
	checkOtherVersion(e, "rollout.version", r.Version, serving)
	if !slices.Contains(RolloutPolicies, r.Policy.Name) {
		e.add("rollout.policy", "%.40q: expected one that asks one version for each query: %s", r.Policy.Name, strings.Join(RolloutPolicies, ", "))
	} else {
		var policy FieldErrors
		r.Policy.validate(&policy)
		for _, f := range policy {
			e.add("rollout."+f.Path, "%s", f.Message)
		}
	}
	g := r.Guard
	if g.MinFeedback < 1 || g.MinFeedback > MaxMinFeedback {
		e.add("rollout.guard.min_feedback", "%d: expected 1 to %d (judged answers of each of the two versions)", g.MinFeedback, int64(MaxMinFeedback))
	}
	if !(g.MaxErrorIncrease > 0 && g.MaxErrorIncrease <= 1) {
		e.add("rollout.guard.max_error_increase", "%s: expected more than 0 and at most 1 (a mean loss, and a part of the queries)", number(g.MaxErrorIncrease))
	}
	if !(g.MaxP99Increase > 0 && g.MaxP99Increase <= MaxP99Factor) {
		e.add("rollout.guard.max_p99_increase", "%s: expected more than 0 and at most %d (a part of the serving version's 99th percentile)", number(g.MaxP99Increase), MaxP99Factor)
	}
}

// validateLabels keeps labels and versions apart: "digits@canary" must not be ambiguous, and a label must not look like
// a number.
func (t *TrafficSpec) validateLabels(e *FieldErrors) {
	if len(t.Labels) > MaxLabels {
		e.add("labels", "has %d labels: expected at most %d", len(t.Labels), MaxLabels)
		return
	}
	named := t.named()
	for _, label := range slices.Sorted(maps.Keys(t.Labels)) {
		if err := CheckName("label", label); err != nil {
			e.add("labels", "%s", err.Error())
			continue
		}
		at := "labels." + label
		if label[0] < 'a' {
			e.add(at, "starts with a digit, as versions do: expected a letter first")
		}
		checkNamedVersion(e, at, t.Labels[label])
		if slices.Contains(named, label) {
			e.add(at, "is the name of a version too: expected a label that no version has for its name")
		}
	}
}

// named returns the versions that the spec names, possibly with duplicates.
func (t *TrafficSpec) named() []string {
	all := append(slices.Clone(t.Versions.Specific), t.Serving)
	for _, s := range []*VersionShare{t.Split, t.Shadow} {
		if s != nil {
			all = append(all, s.Version)
		}
	}
	if t.Rollout != nil {
		all = append(all, t.Rollout.Version)
	}
	if t.Rollback != nil {
		all = append(all, t.Rollback.From, t.Rollback.To)
	}
	all = append(all, t.RolledBack...)
	return slices.AppendSeq(all, maps.Values(t.Labels))
}

func (r *RollbackSpec) validate(e *FieldErrors) {
	if r == nil {
		return
	}
	before := len(*e)
	checkNamedVersion(e, "rollback.from", r.From)
	checkNamedVersion(e, "rollback.to", r.To)
	if len(*e) == before && CompareVersions(r.From, r.To) <= 0 {
		e.add("rollback.to", "%q is not older than %q: a rollback goes from a version to an older one", r.To, r.From)
	}
	switch {
	case len(r.Reason) > MaxReasonBytes:
		e.add("rollback.reason", "has %d bytes: expected at most %d", len(r.Reason), MaxReasonBytes)
	case !plainText(r.Reason):
		e.add("rollback.reason", "%.60q: expected UTF-8 text without control characters", r.Reason)
	}
}
