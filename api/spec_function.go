package api

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// FunctionSpec declares what an app calls: a named HTTP endpoint over one or several candidate models.
type FunctionSpec struct {
	Name string
	// Models are the candidates: "name" means the model's serving version, "name@version" pins one, "name@label" means the one that the
	// model's [TrafficSpec] gives that label.
	Models []string
	// SLO is the latency objective: the longest that a caller waits for its answer.
	SLO time.Duration
	// Default is the output that is given when there is no prediction: JSON as callers read it, nil for none. It is kept as
	// text, so that no number loses digits, in the form of [CanonicalJSON].
	Default json.RawMessage
	// Policy is how the candidates are chosen from and their answers combined.
	Policy PolicySpec
	// Loss is how feedback judges an answer.
	Loss LossSpec
	// MinConfidence, from 0 to 1, turns an answer of less confidence into the default output.
	MinConfidence float64
	// Shadow has models, as in Models, that are asked beside the candidates for a part of the queries, more than 0 and at most
	// 1: their answers are compared with the one that was given, and shown to nobody else.
	Shadow map[string]float64
	// Weight is the function's share against others where there is not enough for all: of a model's replicas, of a shared
	// device.
	Weight float64
	// Budget is what the evaluations of the function's queries may cost per second, in the unit of [ModelSpec.Cost]; 0: any.
	Budget float64
	// ColdStart is how long a query may wait for the first replica of a model that has none: its deadline is then
	// arrival + max(SLO, ColdStart).
	ColdStart time.Duration
	// Log is what the inference log takes of the function's queries; nil: nothing.
	Log *LogSpec
}

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

// WithDefaults returns a copy in which every field that has a default is set and the default output is in its canonical
// form, if it is valid at all. It is idempotent.
func (f FunctionSpec) WithDefaults() FunctionSpec {
	if f.SLO == 0 {
		f.SLO = DefaultSLO
	}
	if f.Policy.Name == "" {
		f.Policy.Name = PolicySingle
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
	f.Policy.validate(&e)
	f.Loss.validate(&e)
	checkNumber(&e, "min_confidence", f.MinConfidence, 0, 1, "of the weight of the models asked, 0 for any")
	if f.MinConfidence > 0 && f.Default == nil {
		e.add("min_confidence", "needs a default output, which is answered in place of a doubtful one: add default")
	}
	f.validateShadow(&e)
	checkNumber(&e, "weight", f.Weight, MinWeight, MaxWeight, "the share against other functions")
	checkNumber(&e, "budget", f.Budget, 0, MaxBudget, "cost per second, 0 for no bound")
	if f.ColdStart < 0 || f.ColdStart > MaxColdStart {
		e.add("cold_start", "%s: expected 0 to %s", f.ColdStart, MaxColdStart)
	}
	f.Log.validate(&e)
	return e.err()
}

func (f *FunctionSpec) validateModels(e *FieldErrors) {
	switch {
	case len(f.Models) == 0:
		e.add("models", "is empty: a function has at least one candidate model")
	case len(f.Models) > MaxModels:
		e.add("models", "has %d candidates: expected at most %d", len(f.Models), MaxModels)
		return
	case len(f.Models) > 1 && f.Policy.Name == PolicySingle:
		e.add("models", "has %d candidates: the policy %q takes one; all others take several, %q in order of preference", len(f.Models), PolicySingle, PolicyPrefer)
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

func (f *FunctionSpec) validateShadow(e *FieldErrors) {
	if len(f.Shadow) > MaxShadow {
		e.add("shadow", "has %d models: expected at most %d", len(f.Shadow), MaxShadow)
		return
	}
	for _, ref := range slices.Sorted(maps.Keys(f.Shadow)) {
		if _, err := ParseModelRef(ref); err != nil {
			e.add("shadow", "%s", err.Error())
			continue
		}
		at := "shadow." + ref
		if slices.Contains(f.Models, ref) {
			e.add(at, "is a candidate too: a model either answers or is compared with the answers")
		}
		if part := f.Shadow[ref]; !(part > 0 && part <= 1) {
			e.add(at, "%s: expected more than 0 and at most 1 (the part of the queries that ask it)", number(part))
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
// the model's, the loss must be one of such outputs, and a batch must not be held longer than the function's callers wait. The error is nil or [FieldErrors]
// with paths of the function.
func (f *FunctionSpec) CheckModel(m *ModelSpec) error {
	var e FieldErrors
	if m.Batching.Hold >= f.SLO {
		e.add("slo", "%s is not more than batching.hold of model %s, %s: every answer could be late", f.SLO, m.ID(), m.Batching.Hold)
	}
	f.Loss.check(&e, m)
	if f.Default != nil {
		if err := checkDefault(f.Default, m.Outputs); err != nil {
			err.Path = "default" + err.Path
			err.Message += fmt.Sprintf(" (outputs of model %s)", m.ID())
			e = append(e, *err)
		}
	}
	return e.err()
}

// Refs are all models that the function names: the candidates in their order, then those of Shadow in the order of their
// names.
func (f *FunctionSpec) Refs() []string {
	if len(f.Shadow) == 0 {
		return f.Models
	}
	return slices.AppendSeq(slices.Clone(f.Models), slices.Values(slices.Sorted(maps.Keys(f.Shadow))))
}

// CheckCandidates judges the models that a function asks against each other. Callers do not know which of them has answered
// them, and answers are combined and compared: all take the same inputs, by name, type, shape and order, and return the same
// outputs, where the name of an only output does not matter. candidates is indexed like [FunctionSpec.Refs] and has the
// versions that each may mean; one of which nothing is known may be empty. Whether a model fits the function is for
// [FunctionSpec.CheckModel]. The error is nil or [FieldErrors] with paths of the function.
func (f *FunctionSpec) CheckCandidates(candidates [][]*ModelSpec) error {
	refs := f.Refs()
	if len(refs) < 2 {
		return nil // versions of one model may differ: the serving one's signature is the function's
	}
	var e FieldErrors
	var first *ModelSpec
	for i, versions := range candidates {
		at := fmt.Sprintf("models[%d]", i)
		if i >= len(f.Models) {
			at = "shadow." + refs[i]
		}
		for _, m := range versions {
			if first == nil {
				first = m
			}
			if diff := differs(first.Inputs, m.Inputs, false); diff != "" {
				e.add(at, "model %s takes other inputs than %s: %s; expected the same inputs of all models of a function", m.ID(), first.ID(), diff)
				break
			}
			if diff := differs(first.Outputs, m.Outputs, len(first.Outputs) == 1); diff != "" {
				e.add(at, "model %s has other outputs than %s: %s; expected the same outputs of all models of a function", m.ID(), first.ID(), diff)
				break
			}
		}
	}
	return e.err()
}

// differs says what is first different in b, or "".
func differs(a, b []TensorSpec, anyName bool) string {
	if len(a) != len(b) {
		return fmt.Sprintf("%d tensors, not %d", len(b), len(a))
	}
	for i := range a {
		switch {
		case a[i].DType == b[i].DType && slices.Equal(a[i].Shape, b[i].Shape) && (anyName || a[i].Name == b[i].Name):
		case anyName:
			return fmt.Sprintf("%s, not %s", b[i], a[i])
		default:
			return fmt.Sprintf("%s %s, not %s %s", b[i].Name, b[i], a[i].Name, a[i])
		}
	}
	return ""
}
