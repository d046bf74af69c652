package api

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
)

// FunctionSpec declares what an app calls: a named HTTP endpoint over one or several candidate models.
type FunctionSpec struct {
	Name string
	// Models are the candidates: "name" means the model's serving version, "name@version" pins one.
	Models []string
	// SLO is the latency objective: the longest that a caller waits for its answer.
	SLO time.Duration
	// Default is the output that is given when there is no prediction: JSON as callers read it, nil for none. It is kept as
	// text, so that no number loses digits, in the form of [CanonicalJSON].
	Default json.RawMessage
	// Policy is how the candidates are chosen from: PolicySingle or PolicyPrefer.
	Policy string
	// Weight is the function's share against others where there is not enough for all: of a model's replicas, of a shared
	// device.
	Weight float64
	// Budget is what the evaluations of the function's queries may cost per second, in the unit of [ModelSpec.Cost]; 0: any.
	Budget float64
	// ColdStart is how long a query may wait for the first replica of a model that has none: its deadline is then
	// arrival + max(SLO, ColdStart).
	ColdStart time.Duration
}

// The policies.
const (
	// PolicySingle asks one model and answers what it says.
	PolicySingle = "single"
	// PolicyPrefer has candidates in order of preference: each query is answered by one of them, the first that capacity and
	// the budget allow.
	PolicyPrefer = "prefer"
)

// Defaults and limits of a function's spec.
const (
	// DefaultSLO is where an answer stops feeling immediate to a person.
	DefaultSLO = 100 * time.Millisecond
	// MaxSLO and MaxColdStart bound how long a connection can be held by a query.
	MaxSLO       = 10 * time.Minute
	MaxColdStart = 10 * time.Minute
	// MaxModels bounds the candidates of a function.
	MaxModels = 64
	// MaxDefaultBytes bounds a default output; it is written into every answer that has no prediction.
	MaxDefaultBytes = 64 << 10
	// DefaultWeight is that of a function which says nothing; MinWeight and MaxWeight keep the smallest share large enough
	// to be served at all.
	DefaultWeight = 1
	MinWeight     = 0.01
	MaxWeight     = 100
	// MaxBudget pays for a thousand of the dearest evaluations a second; more is no bound but a slip of the keyboard.
	MaxBudget = 1e12
)

// policies are those of this version, laterPolicies the names that the design has and this version does not.
var (
	policies      = fmt.Sprintf("%q (one model) or %q (candidates in order of preference)", PolicySingle, PolicyPrefer)
	laterPolicies = []string{"exp3", "exp4", "epsilon-greedy", "ucb", "thompson", "split", "shadow"}
)

// WithDefaults returns a copy in which every field that has a default is set and the default output is in its canonical
// form, if it is valid at all. It is idempotent.
func (f FunctionSpec) WithDefaults() FunctionSpec {
	if f.SLO == 0 {
		f.SLO = DefaultSLO
	}
	if f.Policy == "" {
		f.Policy = PolicySingle
	}
	if f.Weight == 0 {
		f.Weight = DefaultWeight
	}
	if f.Default != nil {
		if canonical, err := CanonicalJSON(f.Default); err == nil {
			f.Default = canonical
		}
	}
	return f
}

// Validate judges a spec that has its defaults. The error is nil or [FieldErrors] with everything that is wrong.
func (f FunctionSpec) Validate() error {
	var e FieldErrors
	e.check("name", CheckName("function", f.Name))
	if slices.Contains(ReservedNames, f.Name) {
		e.add("name", "%q is reserved: expected a name other than %s", f.Name, strings.Join(ReservedNames, ", "))
	}
	f.validateModels(&e)
	if f.SLO <= 0 || f.SLO > MaxSLO {
		e.add("slo", "%s: expected more than 0 and at most %s", f.SLO, MaxSLO)
	}
	f.validateDefault(&e)
	switch {
	case f.Policy == PolicySingle, f.Policy == PolicyPrefer:
	case slices.Contains(laterPolicies, f.Policy):
		e.add("policy", "%q is not in this version: expected %s", f.Policy, policies)
	default:
		e.add("policy", "%q: expected %s", f.Policy, policies)
	}
	checkNumber(&e, "weight", f.Weight, MinWeight, MaxWeight, "the share against other functions")
	checkNumber(&e, "budget", f.Budget, 0, MaxBudget, "cost per second, 0 for no bound")
	if f.ColdStart < 0 || f.ColdStart > MaxColdStart {
		e.add("cold_start", "%s: expected 0 to %s", f.ColdStart, MaxColdStart)
	}
	return e.err()
}

func (f *FunctionSpec) validateModels(e *FieldErrors) {
	switch {
	case len(f.Models) == 0:
		e.add("models", "is empty: a function has at least one candidate model")
	case len(f.Models) > MaxModels:
		e.add("models", "has %d candidates: expected at most %d", len(f.Models), MaxModels)
		return
	case len(f.Models) > 1 && f.Policy == PolicySingle:
		e.add("models", "has %d candidates: the policy %q takes one; %q takes several, in order of preference", len(f.Models), PolicySingle, PolicyPrefer)
	}
	for i, ref := range f.Models {
		at := fmt.Sprintf("models[%d]", i)
		_, err := ParseModelRef(ref)
		e.check(at, err)
		if slices.Contains(f.Models[:i], ref) {
			e.add(at, "%q is there twice", ref)
		}
	}
}

func (f *FunctionSpec) validateDefault(e *FieldErrors) {
	if f.Default == nil {
		return
	}
	if len(f.Default) > MaxDefaultBytes {
		e.add("default", "has %d bytes of JSON: expected at most %d", len(f.Default), MaxDefaultBytes)
		return
	}
	canonical, err := CanonicalJSON(f.Default)
	switch {
	case err != nil:
		e.add("default", "%s", err.Error())
	case string(canonical) == "null":
		e.add("default", "is null: leave the field out when the function has no default output")
	}
}

// CheckModel judges the function against one of its models, both with their defaults: the default output must look like
// the model's, and a batch must not be held longer than the function's callers wait. The error is nil or [FieldErrors]
// with paths of the function.
func (f *FunctionSpec) CheckModel(m *ModelSpec) error {
	var e FieldErrors
	if m.Batching.Hold >= f.SLO {
		e.add("slo", "%s is not more than batching.hold of model %s, %s: every answer could be late", f.SLO, m.ID(), m.Batching.Hold)
	}
	if f.Default != nil {
		if err := checkDefault(f.Default, m.Outputs); err != nil {
			err.Path = "default" + err.Path
			err.Message += fmt.Sprintf(" (outputs of model %s)", m.ID())
			e = append(e, *err)
		}
	}
	return e.err()
}

// CheckCandidates judges the candidates of a policy that takes several against each other: callers do not know which of
// them is chosen, so all take the same inputs, by name, type, shape and order. candidates is indexed like f.Models and has
// the versions that each may mean; one of which nothing is known may be empty. Whether a model fits the function is for
// [FunctionSpec.CheckModel]. The error is nil or [FieldErrors] with paths of the function.
func (f *FunctionSpec) CheckCandidates(candidates [][]*ModelSpec) error {
	if len(f.Models) < 2 {
		return nil // versions of one model may differ: the serving one's inputs are the function's
	}
	var e FieldErrors
	var first *ModelSpec
	for i, versions := range candidates {
		for _, m := range versions {
			if first == nil {
				first = m
			}
			if diff := differs(first.Inputs, m.Inputs); diff != "" {
				e.add(fmt.Sprintf("models[%d]", i), "model %s takes other inputs than %s: %s; expected the same inputs of all candidates", m.ID(), first.ID(), diff)
				break
			}
		}
	}
	return e.err()
}

// differs says what is first different in b, or "".
func differs(a, b []TensorSpec) string {
	if len(a) != len(b) {
		return fmt.Sprintf("%d tensors, not %d", len(b), len(a))
	}
	for i := range a {
		if a[i].Name != b[i].Name || a[i].DType != b[i].DType || !slices.Equal(a[i].Shape, b[i].Shape) {
			return fmt.Sprintf("%s %s, not %s %s", b[i].Name, b[i], a[i].Name, a[i])
		}
	}
	return ""
}
