package native

import (
	"encoding/json"
	"math"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/dialect"
	"github.com/xebec-serving/xebec/gateway/query"
)

// description is the answer to GET /{function}: what a caller must know to call it.
type description struct {
	Function  string          `json:"function"`
	Models    []string        `json:"models"`
	SLOMillis float64         `json:"slo_ms"`
	Streams   bool            `json:"streams"`
	Default   json.RawMessage `json:"default,omitempty"`
	Label     string          `json:"label,omitempty"` // the output that feedback is about
	Inputs    []tensor        `json:"inputs"`
	Outputs   []tensor        `json:"outputs"`
	Input     *schema         `json:"input"`
	Output    *schema         `json:"output"`
	// Raw says which requests need no JSON.
	Raw     rawForms        `json:"raw"`
	Example json.RawMessage `json:"example,omitempty"` // a body for predict; nil if it would be long
}

// tensor is an input or an output as manifests declare it.
type tensor struct {
	Name  string  `json:"name"`
	DType string  `json:"dtype"`
	Shape []int64 `json:"shape"`
	Media string  `json:"media,omitempty"`
}

// rawForms says whether the body of a request may be the input's bytes, and the answer the output's.
type rawForms struct {
	Input  bool `json:"input"`
	Output bool `json:"output"`
}

// schema is a JSON Schema of draft 2020-12.
type schema struct {
	Draft       string             `json:"$schema,omitempty"`
	Description string             `json:"description,omitempty"`
	Type        any                `json:"type,omitempty"` // a name, or a list of names
	OneOf       []*schema          `json:"oneOf,omitempty"`
	Minimum     any                `json:"minimum,omitempty"`
	Maximum     any                `json:"maximum,omitempty"`
	Encoding    string             `json:"contentEncoding,omitempty"`
	Media       string             `json:"contentMediaType,omitempty"`
	Items       *schema            `json:"items,omitempty"`
	MinItems    *int64             `json:"minItems,omitempty"`
	MaxItems    *int64             `json:"maxItems,omitempty"`
	Required    []string           `json:"required,omitempty"`
	Properties  map[string]*schema `json:"properties,omitempty"`
	Additional  *bool              `json:"additionalProperties,omitempty"`
}

const schemaDraft = "https://json-schema.org/draft/2020-12/schema"

// maxExampleElements bounds the example of a description.
const maxExampleElements = 1024 //xebec:limit elements of the example in a function's description

// describe serves GET /{function}.
func (s *service) describe(x dialect.Exchange) {
	fn, err := s.path.FindFunction(x.Param("function"))
	if err != nil {
		dialect.Fail(x, Dialect{}, err)
		return
	}
	answerJSON(x, describe(fn))
}

// maxListed bounds a list of functions.
const maxListed = 1000 //xebec:limit functions that `/docs` lists

// list serves GET /docs/functions, for the page at /docs.
func (s *service) list(x dialect.Exchange) {
	names := s.path.Functions()
	answerJSON(x, struct {
		Functions []string `json:"functions"`
		Total     int      `json:"total"`
	}{names[:min(len(names), maxListed)], len(names)})
}

func answerJSON(x dialect.Exchange, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		dialect.Fail(x, Dialect{}, err)
		return
	}
	x.Answer(&dialect.Answer{Status: 200, ContentType: dialect.JSON, Body: append(body, '\n')})
}

func describe(fn *query.Function) *description {
	m := fn.Candidates[0].Model // all candidates have the same signature
	inputs, outputs := m.Signature.Inputs, m.Signature.Outputs
	d := &description{
		Function: fn.Name, SLOMillis: fn.SLO.Seconds() * 1000, Streams: m.Streams, Default: fn.Default, Inputs: tensors(inputs), Outputs: tensors(outputs),
		Input: schemaOf(inputs, true), Output: schemaOf(outputs, false),
		Raw:     rawForms{Input: len(inputs) == 1 && rawInput(&inputs[0]), Output: len(outputs) == 1 && rawOutput(&outputs[0], m.Streams)},
		Example: exampleOf(inputs),
	}
	for i := range fn.Candidates {
		d.Models = append(d.Models, fn.Candidates[i].Model.Ref())
	}
	if fn.Label > 0 {
		d.Label = outputs[fn.Label-1].Name
	}
	d.Input.Draft, d.Output.Draft = schemaDraft, schemaDraft
	return d
}

func tensors(specs []api.TensorSpec) []tensor {
	list := make([]tensor, len(specs))
	for i, t := range specs {
		list[i] = tensor{t.Name, t.DType.String(), append([]int64{}, t.Shape...), t.Media}
	}
	return list
}

// rawInput reports whether a body can be this input's bytes: [rawValue] computes at most one dimension.
func rawInput(t *api.TensorSpec) bool {
	if t.DType.Variable() {
		return len(t.Shape) == 0
	}
	open := 0
	for _, d := range t.Shape {
		if d < 0 {
			open++
		}
	}
	return open <= 1
}

func rawOutput(t *api.TensorSpec, streams bool) bool {
	return t.DType.Variable() && len(t.Shape) == 0 || t.Fixed() && !streams
}

// schemaOf describes one query's inputs or outputs: the value itself if there is one, else an object of them.
func schemaOf(specs []api.TensorSpec, input bool) *schema {
	if len(specs) == 1 {
		return tensorSchema(&specs[0], input)
	}
	all := &schema{Type: "object", Properties: map[string]*schema{}}
	for i := range specs {
		all.Required = append(all.Required, specs[i].Name)
		all.Properties[specs[i].Name] = tensorSchema(&specs[i], input)
	}
	return all
}

func tensorSchema(t *api.TensorSpec, input bool) *schema {
	s := elementSchema(t, input)
	for i := len(t.Shape) - 1; i >= 0; i-- {
		outer := &schema{Type: "array", Items: s}
		if d := t.Shape[i]; d >= 0 {
			outer.MinItems, outer.MaxItems = &d, &d
		}
		s = outer
	}
	s.Description = t.String()
	return s
}

// elementSchema describes one element. Numbers that are missing are null: NaN as an input of floats, NaN and the infinities as outputs.
func elementSchema(t *api.TensorSpec, input bool) *schema {
	switch d := t.DType; {
	case d == api.Bool:
		return &schema{Type: "boolean"}
	case d.Float():
		return &schema{Type: []string{"number", "null"}}
	case d == api.String:
		return &schema{Type: "string", Media: t.Media}
	case d == api.Bytes:
		no := false
		object := &schema{Type: "object", Required: []string{"b64"}, Additional: &no,
			Properties: map[string]*schema{"b64": {Type: "string", Encoding: "base64", Media: t.Media}}}
		if !input {
			return object
		}
		return &schema{OneOf: []*schema{object, {Type: "string", Description: "its UTF-8"}}}
	default:
		least, most := integerBounds(d)
		return &schema{Type: "integer", Minimum: least, Maximum: most}
	}
}

// integerBounds are the smallest and the largest number of an integer type.
func integerBounds(d api.DType) (least int64, most uint64) {
	bits := 8 * d.Size()
	switch d {
	case api.Uint8, api.Uint16, api.Uint32, api.Uint64:
		return 0, math.MaxUint64 >> (64 - bits)
	}
	most = math.MaxInt64 >> (64 - bits)
	return -int64(most) - 1, most
}

// exampleOf is a body for predict, with zeros for numbers, or nil if it would be long. Open dimensions are 1.
func exampleOf(inputs []api.TensorSpec) json.RawMessage {
	values, elements := make(map[string]any, len(inputs)), int64(0)
	for i := range inputs {
		dims := make([]int64, len(inputs[i].Shape))
		for k, d := range inputs[i].Shape {
			dims[k] = max(d, 1) // also for 0: an array without elements would still have all its other dimensions
		}
		n := api.Elements(dims)
		if n < 0 || n > maxExampleElements {
			return nil
		}
		if elements += n; elements > maxExampleElements {
			return nil
		}
		values[inputs[i].Name] = exampleValue(inputs[i].DType, dims)
	}
	var input any = values
	if len(inputs) == 1 {
		input = values[inputs[0].Name]
	}
	body, err := json.Marshal(map[string]any{"input": input})
	if err != nil {
		return nil
	}
	return body
}

func exampleValue(d api.DType, dims []int64) any {
	if len(dims) > 0 {
		list := make([]any, dims[0])
		for i := range list {
			list[i] = exampleValue(d, dims[1:])
		}
		return list
	}
	switch d {
	case api.Bool:
		return false
	case api.String:
		return "text"
	case api.Bytes:
		return map[string]string{"b64": "Ynl0ZXM="} // "bytes"
	default:
		return 0
	}
}
