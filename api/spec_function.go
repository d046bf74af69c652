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
	Name string `json:"name"`
	// Models are the candidates; there may be none if there is a Default, which is then every answer. "name" means the model's serving version, "name@version" pins a version, "name@label"
	// means the version that has this label in the model's [TrafficSpec].
	Models []string `json:"models"`
	// InputType is Clipper's name of the type of the input, one of [InputTypes]: every model must have one input of that type. Empty:
	// models may have any inputs.
	InputType string `json:"input_type,omitempty"`
	// SLO is the latency objective: the longest time that a caller waits for its answer.
	SLO time.Duration `json:"slo,omitempty" field:"positive"`
	// Default is the output to answer with if there is no prediction: JSON as callers read it, nil for none. It is kept
	// as text in the form of [CanonicalJSON], so that no number loses digits.
	Default json.RawMessage `json:"default,omitempty"`
	// Policy selects among the candidates and combines their answers.
	Policy PolicySpec `json:"policy,omitzero"`
	// Loss says how feedback scores an answer.
	Loss LossSpec `json:"loss,omitzero"`
	// Label names the output that feedback is about, of models with several outputs, and by which answers are compared. Empty means
	// all of them.
	Label string `json:"label,omitempty"`
	// MinConfidence, from 0 to 1, replaces an answer of lower confidence by the default output.
	MinConfidence float64 `json:"min_confidence,omitempty"`
	// Shadow has models, named as in Models, and the part of the queries, more than 0 and at most 1, that each also
	// evaluates. Their answers are compared with the one that was given and are never returned.
	Shadow map[string]float64 `json:"shadow,omitempty"`
	// Weight is the function's share relative to other functions where a resource is short: a model's replicas, or a
	// shared device.
	Weight float64 `json:"weight,omitempty" field:"positive"`
	// Budget bounds the cost per second of evaluating the function's queries, in the unit of [ModelSpec.Cost]. 0 means
	// no bound.
	Budget float64 `json:"budget,omitempty"`
	// ColdStart is how long a query may wait for the first replica of a model that has none. Its deadline is then
	// arrival + max(SLO, ColdStart).
	ColdStart time.Duration `json:"cold_start,omitempty"`
	// Log says which of the function's queries the inference log records; nil means none.
	Log *LogSpec `json:"log,omitempty"`
	// CORS says which web pages may call the function; nil means only those of the gateway's own origin.
	CORS *CORSSpec `json:"cors,omitempty"`
}

// Defaults and limits of a function's spec.
const (
	// DefaultSLO is the latency at which an answer stops feeling immediate to a person.
	DefaultSLO = 100 * time.Millisecond
	// MaxSLO and MaxColdStart bound how long a query can hold a connection.
	MaxSLO       = 10 * time.Minute //xebec:limit `slo`
	MaxColdStart = 10 * time.Minute //xebec:limit `cold_start`
	// MaxModels bounds the candidates of a function.
	MaxModels = 64 //xebec:limit candidates of a function
	// MaxDefaultBytes bounds a default output. Every answer without a prediction contains it.
	MaxDefaultBytes = 64 << 10 //xebec:limit a default output
	// DefaultWeight is the weight of a function that sets none. MinWeight and MaxWeight keep the smallest share large
	// enough to be served at all.
	DefaultWeight = 1
	MinWeight     = 0.01
	MaxWeight     = 100 //xebec:limit `weight`
	// MaxBudget pays for a thousand of the most expensive evaluations per second. More is a typing error, not a bound.
	MaxBudget = 1e12 //xebec:limit `budget`
)

// WithDefaults returns a copy with every unset field that has a default set to it, and with a valid default output in
// its canonical form. It is idempotent.
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
	f.CORS = f.CORS.withDefaults()
	if f.Default != nil {
		if canonical, err := CanonicalJSON(f.Default); err == nil {
			f.Default = canonical
		}
	}
	return f
}

// Validate checks a spec that has its defaults. The error is nil or [FieldErrors] with all problems.
func (f FunctionSpec) Validate() error {
	var e FieldErrors
	e.check("name", CheckName("function", f.Name))
	if slices.Contains(ReservedNames, f.Name) {
		e.add("name", "%q is reserved: expected a name other than %s", f.Name, strings.Join(ReservedNames, ", "))
	}
	f.validateModels(&e)
	if f.InputType != "" && !slices.Contains(InputTypes, f.InputType) {
		e.add("input_type", "%q: expected one of %s", f.InputType, strings.Join(InputTypes, ", "))
	}
	if f.SLO <= 0 || f.SLO > MaxSLO {
		e.add("slo", "%s: expected more than 0 and at most %s", f.SLO, MaxSLO)
	}
	f.validateDefault(&e)
	f.Policy.validate(&e)
	f.Loss.validate(&e)
	if len(f.Label) > MaxTensorNameBytes {
		e.add("label", "has %d bytes: expected the name of an output, at most %d", len(f.Label), MaxTensorNameBytes)
	}
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
	f.CORS.validate(&e)
	return e.err()
}

func (f *FunctionSpec) validateModels(e *FieldErrors) {
	switch {
	case len(f.Models) == 0 && f.Default == nil:
		e.add("models", "is empty: a function has at least one candidate model, or a default output that is its answer until it has one")
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
	if len(f.Shadow) > 0 && len(f.Models) == 0 {
		e.add("shadow", "needs models, with whose answers those of the shadows are compared")
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

// CheckModel checks the function against one of its models, both with their defaults: the default output must match the
// model's outputs, the loss must suit them, and the model must not hold a batch as long as the function's callers wait.
// The error is nil or [FieldErrors] with paths of the function.
func (f *FunctionSpec) CheckModel(m *ModelSpec) error {
	var e FieldErrors
	if m.Batching.Hold >= f.SLO {
		e.add("slo", "%s is not more than batching.hold of model %s, %s: every answer could be late", f.SLO, m.ID(), m.Batching.Hold)
	}
	if takes := InputTypeOf(m.Inputs); f.InputType != "" && takes != f.InputType {
		e.add("input_type", "model %s does not take one input of type %s: expected %s", m.ID(), f.InputType, describeInputs(m.Inputs, takes))
	}
	if f.Label != "" && f.LabelIndex(m.Outputs) == 0 {
		e.add("label", "model %s has no output %q: expected one of %s", m.ID(), f.Label, outputNames(m.Outputs))
	} else {
		f.Loss.check(&e, m, f.Judged(m.Outputs))
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

// LabelIndex is 1 plus the index of the output that Label names; 0 if it names none.
func (f *FunctionSpec) LabelIndex(outputs []TensorSpec) int {
	if f.Label == "" {
		return 0
	}
	return 1 + slices.IndexFunc(outputs, func(t TensorSpec) bool { return t.Name == f.Label })
}

// Judged are the outputs that feedback is about: the one that Label names, or all.
func (f *FunctionSpec) Judged(outputs []TensorSpec) []TensorSpec {
	if i := f.LabelIndex(outputs); i > 0 {
		return outputs[i-1 : i]
	}
	return outputs
}

func outputNames(outputs []TensorSpec) string {
	names := make([]string, len(outputs))
	for i := range outputs {
		names[i] = outputs[i].Name
	}
	return strings.Join(names, ", ")
}

// Refs returns all models that the function names: the candidates in their order, then those of Shadow sorted by name.
func (f *FunctionSpec) Refs() []string {
	if len(f.Shadow) == 0 {
		return f.Models
	}
	return slices.AppendSeq(slices.Clone(f.Models), slices.Values(slices.Sorted(maps.Keys(f.Shadow))))
}

// CheckCandidates checks the function's models against each other. Callers do not know which model answers, and answers
// are combined and compared, so all models must have the same inputs (names, types, shapes, media types and order) and the same
// outputs (the name of a single output does not matter). candidates is indexed like [FunctionSpec.Refs] and has the
// versions that each reference may mean; an entry may be empty if none is known. [FunctionSpec.CheckModel] checks
// whether a model fits the function. The error is nil or [FieldErrors] with paths of the function.
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

// differs describes the first difference in b, or returns "".
func differs(a, b []TensorSpec, anyName bool) string {
	if len(a) != len(b) {
		return fmt.Sprintf("%d tensors, not %d", len(b), len(a))
	}
	for i := range a {
		switch {
		case a[i].Media != b[i].Media:
			return fmt.Sprintf("%s has media %q, not %q", b[i].Name, b[i].Media, a[i].Media)
		case a[i].DType == b[i].DType && slices.Equal(a[i].Shape, b[i].Shape) && (anyName || a[i].Name == b[i].Name):
		case anyName:
			return fmt.Sprintf("%s, not %s", b[i], a[i])
		default:
			return fmt.Sprintf("%s %s, not %s %s", b[i].Name, b[i], a[i].Name, a[i])
		}
	}
	return ""
}
