package api

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"unicode/utf8"
)

// PolicySpec names a function's selection policy and its parameters. In a manifest it is the name alone, `policy:
// exp3`, or a mapping of the name and the parameters, `policy: {name: exp3, eta: 0.1}`.
type PolicySpec struct {
	// Name is a shipped policy or one that the program adds. The gateway, not this package, knows which names,
	// parameters and values exist.
	Name string
	// Params are float64, bool, string, or map[string]float64 (numbers by model). nil means none.
	Params map[string]any
}

// The shipped policies.
const (
	// PolicySingle asks one model and returns its answer.
	PolicySingle = "single"
	// PolicyPrefer has candidates in order of preference. The first one that capacity and the budget allow answers the
	// query.
	PolicyPrefer = "prefer"
	// PolicySplit divides the queries by fixed weights. Queries of one context stay with one candidate.
	PolicySplit = "split"
	// PolicyExp3 asks one candidate for each query and learns from feedback which is best.
	PolicyExp3 = "exp3"
	// PolicyExp4 asks all candidates, answers with their weighted majority or weighted mean, and learns the weights.
	PolicyExp4 = "exp4"
	// PolicyEpsilonGreedy asks the candidate with the smallest mean loss, and occasionally another one.
	PolicyEpsilonGreedy = "epsilon-greedy"
	// PolicyUCB1 asks the candidate with the best confidence bound.
	PolicyUCB1 = "ucb1"
	// PolicyThompson asks each candidate with the probability that it is the best.
	PolicyThompson = "thompson"
)

// LossSpec says how far an output is from its label, from 0 (right) to 1 (as wrong as possible). In a manifest it is
// the kind alone, `loss: absolute`, or a mapping, `loss: {kind: absolute, scale: 10, tolerance: 1}`.
type LossSpec struct {
	// Kind is LossZeroOne, LossAbsolute or LossSquared. If it is empty, the type of the candidates' output decides: see
	// [LossSpec.For].
	Kind string `json:"kind,omitempty"`
	// Scale is the difference from the label that counts as a loss of 1. 0 means DefaultLossScale.
	Scale float64 `json:"scale,omitempty" field:"positive"`
	// Tolerance is how far two numbers may be apart, in each element, and still agree. 0 means a tenth of Scale.
	Tolerance float64 `json:"tolerance,omitempty" field:"positive"`
}

// The kinds of loss.
const (
	// LossZeroOne is 0 for an output that equals its label, else 1.
	LossZeroOne = "zero-one"
	// LossAbsolute is the mean of |output - label| / Scale over the elements, LossSquared the mean of its square; both
	// are at most 1.
	LossAbsolute = "absolute"
	LossSquared  = "squared"
)

// Defaults and limits of policies, losses and shadows.
const (
	// MaxPolicyParams is several times what any policy has.
	MaxPolicyParams = 16 //xebec:limit parameters of a policy
	// MaxPolicyTextBytes bounds a parameter that is a string.
	MaxPolicyTextBytes = 256 //xebec:limit a text parameter of a policy
	// DefaultLossScale suits outputs from 0 to 1.
	DefaultLossScale = 1
	// MaxLossScale, and its inverse as the minimum, keep squares of quotients finite.
	MaxLossScale = 1e12 //xebec:limit `loss.scale` and `loss.tolerance`, and their inverses
	// MaxShadow bounds a function's shadow models. Each costs as much as a candidate and answers no caller.
	MaxShadow = 8 //xebec:limit shadows of a function
)

// String formats the policy for people: "exp3", or "exp3 (eta 0.1, floor 0.02)".
func (p PolicySpec) String() string {
	if len(p.Params) == 0 {
		return p.Name
	}
	text := p.Name + " ("
	for i, name := range slices.Sorted(maps.Keys(p.Params)) {
		if i > 0 {
			text += ", "
		}
		text += name + " " + paramText(p.Params[name])
	}
	return text + ")"
}

func paramText(v any) string {
	switch v := v.(type) {
	case float64:
		return number(v)
	case map[string]float64:
		text := "{"
		for i, name := range slices.Sorted(maps.Keys(v)) {
			if i > 0 {
				text += ", "
			}
			text += name + ": " + number(v[name])
		}
		return text + "}"
	}
	return fmt.Sprint(v)
}

// Equal reports whether p and q have the same name and parameters.
func (p PolicySpec) Equal(q PolicySpec) bool {
	return p.Name == q.Name && maps.EqualFunc(p.Params, q.Params, func(a, b any) bool {
		if m, ok := a.(map[string]float64); ok {
			n, ok := b.(map[string]float64)
			return ok && maps.Equal(m, n)
		}
		_, other := b.(map[string]float64)
		return !other && a == b
	})
}

// MarshalJSON writes the name alone if there are no parameters, else an object.
func (p PolicySpec) MarshalJSON() ([]byte, error) {
	if len(p.Params) == 0 {
		return json.Marshal(p.Name)
	}
	name, err := json.Marshal(p.Name)
	if err != nil {
		return nil, err
	}
	params, err := json.Marshal(p.Params) // in the order of their names
	if err != nil {
		return nil, err
	}
	return slices.Concat([]byte(`{"name":`), name, []byte(","), params[1:]), nil
}

// UnmarshalJSON reads both forms.
func (p *PolicySpec) UnmarshalJSON(data []byte) error {
	*p = PolicySpec{}
	var fields map[string]any
	if json.Unmarshal(data, &p.Name) == nil {
		return nil
	}
	if err := json.Unmarshal(data, &fields); err != nil {
		return fmt.Errorf("policy: expected a name, or an object with a name and parameters: %w", err)
	}
	for name, v := range fields {
		if name == "name" {
			text, ok := v.(string)
			if !ok {
				return fmt.Errorf("policy.name: expected a string")
			}
			p.Name = text
			continue
		}
		if object, ok := v.(map[string]any); ok {
			numbers := make(map[string]float64, len(object))
			for key, item := range object {
				n, ok := item.(float64)
				if !ok {
					return fmt.Errorf("policy.%s.%s: expected a number", name, key)
				}
				numbers[key] = n
			}
			v = numbers
		}
		if p.Params == nil {
			p.Params = make(map[string]any, len(fields))
		}
		p.Params[name] = v
	}
	return nil
}

func (p *PolicySpec) validate(e *FieldErrors) {
	if err := CheckName("policy", p.Name); err != nil {
		e.add("policy", "%s", err.Error())
		return
	}
	if len(p.Params) > MaxPolicyParams {
		e.add("policy", "has %d parameters: expected at most %d", len(p.Params), MaxPolicyParams)
		return
	}
	for _, name := range slices.Sorted(maps.Keys(p.Params)) {
		at := "policy." + name
		if !paramName(name) {
			e.add("policy", "%.80q is not the name of a parameter: expected lower-case letters, digits and '_', a letter first, and at most %d of them", name, MaxNameBytes)
			continue
		}
		switch v := p.Params[name].(type) {
		case float64:
			checkFinite(e, at, v)
		case bool:
		case string:
			if len(v) > MaxPolicyTextBytes || !plainText(v) {
				e.add(at, "%.40q: expected at most %d bytes of UTF-8 text without control characters", v, MaxPolicyTextBytes)
			}
		case map[string]float64:
			if len(v) > MaxModels {
				e.add(at, "has %d numbers: expected at most %d", len(v), MaxModels)
				continue
			}
			for _, key := range slices.Sorted(maps.Keys(v)) {
				if _, err := ParseModelRef(key); err != nil {
					e.add(at, "%s", err.Error())
					continue
				}
				checkFinite(e, at+"."+key, v[key])
			}
		default:
			e.add(at, "%T: expected a number, true or false, a string, or a mapping of models to numbers", v)
		}
	}
}

func checkFinite(e *FieldErrors, at string, v float64) {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		e.add(at, "%g: expected a finite number", v)
	}
}

// paramName accepts names that cannot be mistaken for a path of fields.
func paramName(s string) bool {
	for i := 0; i < len(s); i++ {
		c := s[i]
		if !(c >= 'a' && c <= 'z') && (i == 0 || c != '_' && (c < '0' || c > '9')) {
			return false
		}
	}
	return s != "" && len(s) <= MaxNameBytes && utf8.ValidString(s)
}

// For resolves what the spec leaves to the function's outputs. A single float tensor gets absolute loss, anything else
// zero-one loss. In the result Scale and Tolerance are set for a numeric loss, and zero for zero-one loss.
func (l LossSpec) For(outputs []TensorSpec) LossSpec {
	if l.Kind == "" {
		l.Kind = LossZeroOne
		if len(outputs) == 1 && outputs[0].DType.Float() {
			l.Kind = LossAbsolute
		}
	}
	if l.Kind == LossZeroOne {
		return LossSpec{Kind: LossZeroOne}
	}
	if l.Scale == 0 {
		l.Scale = DefaultLossScale
	}
	if l.Tolerance == 0 {
		l.Tolerance = l.Scale / 10
	}
	return l
}

// Numeric reports whether the loss is a difference between numbers. The spec must come from [LossSpec.For].
func (l LossSpec) Numeric() bool { return l.Kind == LossAbsolute || l.Kind == LossSquared }

// lossJSON is the object form, without the methods.
type lossJSON LossSpec

// MarshalJSON writes the kind alone if nothing else is set, else an object.
func (l LossSpec) MarshalJSON() ([]byte, error) {
	if l.Scale == 0 && l.Tolerance == 0 {
		return json.Marshal(l.Kind)
	}
	return json.Marshal(lossJSON(l))
}

// UnmarshalJSON reads both forms.
func (l *LossSpec) UnmarshalJSON(data []byte) error {
	*l = LossSpec{}
	if json.Unmarshal(data, &l.Kind) == nil {
		return nil
	}
	var j lossJSON
	if err := json.Unmarshal(data, &j); err != nil {
		return fmt.Errorf("loss: expected its kind, or an object with kind, scale and tolerance: %w", err)
	}
	*l = LossSpec(j)
	return nil
}

func (l *LossSpec) validate(e *FieldErrors) {
	switch l.Kind {
	case "", LossAbsolute, LossSquared:
	case LossZeroOne:
		if l.Scale != 0 {
			e.add("loss.scale", "is only for the kinds %q and %q", LossAbsolute, LossSquared)
		}
		if l.Tolerance != 0 {
			e.add("loss.tolerance", "is only for the kinds %q and %q", LossAbsolute, LossSquared)
		}
		return
	default:
		e.add("loss.kind", "%q: expected %s, %s or %s", l.Kind, LossZeroOne, LossAbsolute, LossSquared)
		return
	}
	if l.Scale != 0 {
		checkNumber(e, "loss.scale", l.Scale, 1/MaxLossScale, MaxLossScale, "the difference that is as wrong as can be")
	}
	if l.Tolerance != 0 {
		checkNumber(e, "loss.tolerance", l.Tolerance, 1/MaxLossScale, MaxLossScale, "the difference up to which numbers agree")
	}
}

// check checks that the loss can be computed from the model's outputs.
func (l *LossSpec) check(e *FieldErrors, m *ModelSpec, outputs []TensorSpec) {
	switch numeric := len(outputs) == 1 && isNumeric(outputs[0].DType); {
	case numeric:
	case l.Numeric():
		e.add("loss", "%s needs one output of numbers: model %s has %s", l.Kind, m.ID(), outputsText(outputs))
	case l.Scale != 0 || l.Tolerance != 0:
		e.add("loss", "scale and tolerance need one output of numbers: model %s has %s", m.ID(), outputsText(outputs))
	}
	if l.Kind == "" && (l.Scale != 0 || l.Tolerance != 0) && len(outputs) == 1 && isNumeric(outputs[0].DType) && !outputs[0].DType.Float() {
		e.add("loss", "scale and tolerance need a kind, %s or %s, where the output is whole numbers (model %s: %s): without one it is right or wrong", LossAbsolute, LossSquared, m.ID(), outputs[0])
	}
}

func outputsText(outputs []TensorSpec) string {
	if len(outputs) == 1 {
		return outputs[0].String()
	}
	return fmt.Sprintf("%d outputs", len(outputs))
}

func isNumeric(d DType) bool { return d.Valid() && d != Bytes && d != Bool }
