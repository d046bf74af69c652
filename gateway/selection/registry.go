package selection

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/xebec-serving/xebec/api"
)

// Definition describes a policy that a function's declaration can name.
type Definition struct {
	Name string
	// Doc is one sentence for readers who choose between policies.
	Doc        string
	Parameters []Parameter
	// Make builds the policy. Each parameter has been checked on its own. For parameters that are invalid together,
	// Make returns an [api.FieldErrors] with the same kind of paths as New.
	Make func(Values) (Policy, error)
}

// Kind is the type of a parameter.
type Kind uint8

const (
	// Number is a float64 between Low and High.
	Number Kind = iota
	// Whole is a Number without a fraction.
	Whole
	// Flag is true or false.
	Flag
	// Text is a string.
	Text
	// Weights is a number between Low and High for each of some candidates, by their names in the declaration.
	Weights
)

var kindNames = [...]string{"a number", "a whole number", "true or false", "a string", "a number for each candidate, as {model: 0.9, other: 0.1}"}

func (k Kind) String() string { return kindNames[k] }

// Parameter is a parameter that a declaration may set.
type Parameter struct {
	Name string
	Kind Kind
	// Default is a float64 (also for Whole), a bool, a string, or nil for Weights.
	Default any
	// Low and High bound a Number, a Whole, and each element of Weights.
	Low, High float64
	// Doc says in one sentence what the parameter does.
	Doc string
}

// Values are the checked parameters of one policy, with defaults for those that the declaration omits.
type Values struct {
	// Candidates are the names of the function's models, in the order of its declaration.
	Candidates []string
	values     map[string]any
}

// Number returns a Number or a Whole. Like the other accessors it panics if the definition has no such parameter, which
// any test of the policy shows.
func (v Values) Number(name string) float64 { return v.values[name].(float64) }

// Flag returns a Flag.
func (v Values) Flag(name string) bool { return v.values[name].(bool) }

// Text returns a Text.
func (v Values) Text(name string) string { return v.values[name].(string) }

// Weights returns a Weights, by candidate, or nil if the declaration has none. A candidate that is not named has 0.
func (v Values) Weights(name string) []float64 {
	w, _ := v.values[name].([]float64)
	return w
}

// definitions is filled by the init function in each policy's file, and only read after that.
var definitions []Definition

// Register makes a policy available to declarations. Call it from an init function only: it must not run concurrently
// with anything else in this package. It panics if the name is taken.
func Register(d Definition) {
	if d.Name == "" || d.Make == nil || slices.ContainsFunc(definitions, func(o Definition) bool { return o.Name == d.Name }) {
		panic("selection: Register needs a Make and a name that is not taken: " + strconv.Quote(d.Name))
	}
	definitions = append(definitions, d)
	slices.SortFunc(definitions, func(a, b Definition) int { return strings.Compare(a.Name, b.Name) })
}

// Names returns the names of all policies, sorted.
func Names() []string {
	names := make([]string, len(definitions))
	for i, d := range definitions {
		names[i] = d.Name
	}
	return names
}

// Find returns a policy's definition.
func Find(name string) (Definition, bool) {
	i := slices.IndexFunc(definitions, func(d Definition) bool { return d.Name == name })
	if i < 0 {
		return Definition{}, false
	}
	return definitions[i], true
}

// Parameters returns the parameters of a policy, or nil if there is no such policy.
func Parameters(name string) []Parameter {
	d, _ := Find(name)
	return d.Parameters
}

// New makes the policy of a function. name and params are as in its declaration, candidates are the names of its
// models. The values of params are float64, bool, string or map[string]float64. The error is an [api.FieldErrors] that
// lists every problem; its paths begin with "policy", or with "models" for the number of candidates.
func New(name string, params map[string]any, candidates []string) (Policy, error) {
	d, ok := Find(name)
	if !ok {
		return nil, api.FieldErrors{{Path: "policy", Message: fmt.Sprintf("there is no policy %q: %s", clip(name), hint(name, Names()))}}
	}
	if n := len(candidates); n < 1 || n > MaxCandidates {
		return nil, api.FieldErrors{{Path: "models", Message: fmt.Sprintf("%d candidates: a policy chooses among 1 to %d", n, MaxCandidates)}}
	}
	var errs api.FieldErrors
	v := Values{Candidates: candidates, values: map[string]any{}}
	known := make([]string, len(d.Parameters))
	for i, p := range d.Parameters {
		known[i] = p.Name
		v.values[p.Name] = p.Default
		if given, ok := params[p.Name]; ok {
			checked, bad := p.check(given, candidates)
			errs = append(errs, bad...)
			v.values[p.Name] = checked
		}
	}
	for name := range params {
		if slices.Contains(known, name) {
			continue
		}
		message := fmt.Sprintf("%s has no such parameter: %s", d.Name, hint(name, known))
		if len(known) == 0 {
			message = d.Name + " has no parameters"
		}
		errs = append(errs, api.FieldError{Path: "policy." + clip(name), Message: message})
	}
	if len(errs) > 0 {
		slices.SortFunc(errs, func(a, b api.FieldError) int { return strings.Compare(a.Path, b.Path) })
		return nil, errs
	}
	return d.Make(v)
}

// check returns given with the type that the parameter's kind has, or what is wrong with it.
func (p Parameter) check(given any, candidates []string) (any, api.FieldErrors) {
	path := "policy." + p.Name
	switch g := given.(type) {
	case float64:
		if p.Kind == Number || p.Kind == Whole {
			return g, p.checkNumber(path, g)
		}
	case bool:
		if p.Kind == Flag {
			return g, nil
		}
	case string:
		if p.Kind == Text {
			return g, nil
		}
	case map[string]float64:
		if p.Kind == Weights {
			return p.checkWeights(path, g, candidates)
		}
	}
	return nil, api.FieldErrors{{Path: path, Message: fmt.Sprintf("%s: expected %s", describe(given), p.expected())}}
}

func (p Parameter) expected() string {
	switch p.Kind {
	case Number, Whole:
		return fmt.Sprintf("%s from %g to %g (%s)", p.Kind, p.Low, p.High, p.Doc)
	case Weights:
		return fmt.Sprintf("%s, from %g to %g (%s)", p.Kind, p.Low, p.High, p.Doc)
	default:
		return fmt.Sprintf("%s (%s)", p.Kind, p.Doc)
	}
}

func (p Parameter) checkNumber(path string, n float64) api.FieldErrors {
	inRange := n >= p.Low && n <= p.High // false for NaN
	if inRange && (p.Kind != Whole || n == math.Trunc(n)) {
		return nil
	}
	return api.FieldErrors{{Path: path, Message: fmt.Sprintf("%v: expected %s", n, p.expected())}}
}

func (p Parameter) checkWeights(path string, given map[string]float64, candidates []string) (any, api.FieldErrors) {
	var errs api.FieldErrors
	weights := make([]float64, len(candidates))
	for ref, w := range given {
		i := slices.Index(candidates, ref)
		if i < 0 {
			errs = append(errs, api.FieldError{Path: path + "." + clip(ref), Message: "is not among the function's models: " + hint(ref, candidates)})
			continue
		}
		errs = append(errs, p.checkNumber(path+"."+ref, w)...)
		weights[i] = w
	}
	return weights, errs
}

func describe(v any) string {
	switch v := v.(type) {
	case nil:
		return "null"
	case string:
		return fmt.Sprintf("%q is a string", clip(v))
	case bool:
		return strconv.FormatBool(v)
	case float64:
		return fmt.Sprintf("%v is a number", v)
	default:
		return "an object or a list"
	}
}

// clip shortens text from a declaration so that a message stays on one line.
func clip(s string) string {
	const most = 40
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}

// hint suggests the element of known that was probably meant, or lists them all.
func hint(given string, known []string) string {
	best, least := "", 3 // at most two typos, and fewer than half of the name's letters
	for _, k := range known {
		if d := distance(strings.ToLower(clip(given)), k); d < least && 2*d < len(k) {
			best, least = k, d
		}
	}
	if best != "" {
		return fmt.Sprintf("did you mean %q?", best)
	}
	return "expected one of " + strings.Join(known, ", ")
}

// distance returns the number of bytes to insert, delete or replace to turn a into b (Levenshtein, 1966).
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replaced := diagonal
			if a[i] != b[j] {
				replaced++
			}
			diagonal = row[j+1]
			row[j+1] = min(replaced, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
