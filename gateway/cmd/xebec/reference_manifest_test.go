package main

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/api/manifest"
)

// The fields of manifests are described in api/spec/openapi.yaml, which api/manifest holds to have the same fields as the code.
// Beyond OpenAPI, x-default and x-bounds are prose, and x-minimum, x-exclusiveMinimum and x-maximum bound durations and sizes.

// schema is the part of an OpenAPI schema that the page shows.
type schema struct {
	Ref              string   `yaml:"$ref"`
	AllOf            []schema `yaml:"allOf"`
	OneOf            []schema `yaml:"oneOf"`
	Type             string
	Enum             []string
	Properties       properties
	Items            *schema
	Required         []string
	Minimum, Maximum *float64
	ExclusiveMinimum bool `yaml:"exclusiveMinimum"`
	MinItems         int  `yaml:"minItems"`
	MaxItems         int  `yaml:"maxItems"`
	MaxLength        int  `yaml:"maxLength"`
	MaxProperties    int  `yaml:"maxProperties"`
	Default          any
	Description      string

	XDefault          any    `yaml:"x-default"`
	XBounds           string `yaml:"x-bounds"`
	XMinimum          string `yaml:"x-minimum"`
	XExclusiveMinimum string `yaml:"x-exclusiveMinimum"`
	XMaximum          string `yaml:"x-maximum"`
}

// properties keep the order of the file.
type properties []property

type property struct {
	name string
	schema
}

func (p *properties) UnmarshalYAML(n *yaml.Node) error {
	for i := 0; i+1 < len(n.Content); i += 2 {
		one := property{name: n.Content[i].Value}
		if err := n.Content[i+1].Decode(&one.schema); err != nil {
			return err
		}
		*p = append(*p, one)
	}
	return nil
}

// field is one row.
type field struct {
	path, kind string
	schema
	required bool
}

type schemas map[string]schema

func readSchemas(t *testing.T) schemas {
	text, err := os.ReadFile(root + "/api/spec/openapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		Components struct{ Schemas schemas }
	}
	if err := yaml.Unmarshal(text, &doc); err != nil {
		t.Fatal(err)
	}
	return doc.Components.Schemas
}

// resolve follows references; what stands beside a reference is the field's own.
func (all schemas) resolve(s schema) (resolved schema, kind string) {
	kind = s.Type
	ref := s.Ref
	if len(s.AllOf) == 1 {
		ref = s.AllOf[0].Ref
	}
	if ref != "" {
		name := ref[strings.LastIndexByte(ref, '/')+1:]
		base, baseKind := all.resolve(all[name])
		own := s
		s, kind = base, baseKind
		if name == "Duration" || name == "Bytes" {
			kind = strings.ToLower(name)
		}
		// A field of its own hides that of the schema it refers to.
		from, to := reflect.ValueOf(own), reflect.ValueOf(&s).Elem()
		for i := range from.NumField() {
			if name := from.Type().Field(i).Name; name != "Ref" && name != "AllOf" && !from.Field(i).IsZero() {
				to.Field(i).Set(from.Field(i))
			}
		}
	}
	return s, kind
}

// fields lists the fields of an object and of those in it.
func (all schemas) fields(object schema, prefix string) (list []field) {
	for _, p := range object.Properties {
		s, kind := all.resolve(p.schema)
		f := field{path: prefix + p.name, kind: kind, schema: s, required: prefix == "" && slices.Contains(object.Required, p.name)}
		var inner schema
		at := f.path + "."
		switch {
		case isPolicy(f.path): // its parameters have a page of their own
		case len(s.OneOf) > 0:
			for _, one := range s.OneOf {
				one, _ = all.resolve(one)
				if one.Items != nil {
					one, _ = all.resolve(*one.Items)
					at = f.path + "[]."
				}
				for _, member := range one.Properties {
					if !slices.ContainsFunc(inner.Properties, func(p property) bool { return p.name == member.name }) {
						inner.Properties = append(inner.Properties, member)
					}
				}
			}
		case s.Type == "array":
			item, itemKind := all.resolve(*s.Items)
			if f.kind = "list of " + itemKind + "s"; item.Type == "object" {
				f.kind = "list"
			}
			if p.name == "inputs" {
				at, inner = f.path+"[].", item
			}
		default:
			inner = s
		}
		switch {
		case isPolicy(f.path) || f.path == "versions" || f.path == "loss":
			f.kind = "string or mapping"
		case f.path == "expect":
			f.kind = "list"
		case f.kind == "object":
			f.kind = "mapping"
		case f.kind == "":
			f.kind = "JSON"
		}
		if len(inner.Properties) == 0 || f.Description != "" {
			list = append(list, f)
		}
		list = append(list, all.fields(inner, at)...)
	}
	return list
}

func isPolicy(path string) bool { return path == "policy" || path == "rollout.policy" }

func (f *field) defaultText() string {
	switch {
	case f.XDefault != nil:
		if s, ok := f.XDefault.(string); ok && strings.Contains(s, " ") {
			return s
		}
		return code(strings.Trim(fmt.Sprint(f.XDefault), "`"))
	case f.Default != nil:
		return code(fmt.Sprint(f.Default))
	case f.required || strings.Contains(f.path, "[]."):
		return "required"
	}
	return "none"
}

func (f *field) bounds() string {
	var all []string
	number := func(v *float64) string {
		if v == nil {
			return ""
		}
		return inDigits(*v)
	}
	low, over, high := number(f.Minimum)+f.XMinimum, f.XExclusiveMinimum, number(f.Maximum)+f.XMaximum
	if f.ExclusiveMinimum {
		low, over = "", low
	}
	switch {
	case low != "" && high != "":
		all = append(all, low+"–"+high)
	case over != "" && high != "":
		all = append(all, "above "+over+", up to "+high)
	case over != "":
		all = append(all, "above "+over)
	}
	if len(f.Enum) > 0 {
		all = append(all, "`"+strings.Join(f.Enum, "`, `")+"`")
	}
	switch {
	case f.MinItems > 0:
		all = append(all, fmt.Sprintf("%d–%d", f.MinItems, f.MaxItems))
	case f.MaxItems > 0:
		all = append(all, fmt.Sprintf("at most %d", f.MaxItems))
	case f.MaxProperties > 0:
		all = append(all, fmt.Sprintf("at most %d", f.MaxProperties))
	case f.MaxLength > 0:
		all = append(all, fmt.Sprintf("%d bytes", f.MaxLength))
	}
	if f.XBounds != "" {
		all = append(all, f.XBounds)
	}
	return strings.Join(all, "; ")
}

func manifestPage(t *testing.T) string {
	all := readSchemas(t)
	b := newPage("Fields of manifests", "A manifest holds YAML or JSON documents of kind `Model`, `Function` and `Traffic`. Reading is strict: unknown fields, fields given twice, null, anchors and tags are errors\n"+
		"with file, line and column. A duration needs a unit (`20ms`, `1.5s`, `2m`), a size has one (`512MiB`). `a.b` is the field `b` in the mapping `a`; `a[].b` is a field of\n"+
		"each item. [Writing a model](../../../worker/MODELS.md) explains models and functions, [rolling out a version](../rolling-out.md) traffic rules.")
	for _, kind := range manifestKinds {
		fmt.Fprintf(b, "\n## %s\n\n%s\n", kind.name, kind.intro)
		addTable(b, "field", "type", "default", "bounds", "meaning")
		for _, f := range all.fields(all[kind.schema], "") {
			if f.Description == "" {
				t.Errorf("api/spec/openapi.yaml: %s: %s has no description", kind.schema, f.path)
			}
			if bounds := f.bounds(); !strings.HasPrefix(f.path, "outputs[") {
				addRow(b, code(f.path), f.kind, f.defaultText(), bounds, f.Description)
			}
		}
	}
	return b.String()
}

var manifestKinds = []struct {
	name, schema, intro string
	minimal             string   // a document with the fields that are required
	groups              []string // documents with what cannot be in it, or must be for other fields
}{
	{"Model", "ModelSpec", "Of a declared version `inputs`, `outputs`, `run`, `python`, `preload`, `limits`, `resources.gpu`, `device`, `stream` and the directory never change: declare a new version.\n" +
		"The other fields can be applied again at any time. `outputs[]` has the fields of `inputs[]`.",
		`{"kind": "Model", "name": "m", "inputs": [{"name": "x", "dtype": "bytes", "shape": []}], "outputs": [{"name": "y", "dtype": "int64", "shape": []}], "run": {"command": ["a"]}}`,
		[]string{`{"warmup": {"queries": "w"}, "validate": {"queries": "v"}}`, `{"validate": {"queries": "v", "expect": "serving"}}`, `{"replicas": {"max": 1024}}`, `{"stream": true}`}},
	{"Function", "FunctionSpec", "What an app calls. Everything can be applied again at any time.",
		`{"kind": "Function", "name": "f", "models": ["m"]}`, []string{`{"default": 0}`, `{"loss": {"kind": "absolute"}, "log": {"sample": 0}, "cors": {"origins": ["https://a.example"]}}`}},
	{"Traffic", "TrafficSpec", "The rules of one model, named after it: which versions are loaded and which of them answer. Rules apply to callers that name the model without a version.",
		`{"kind": "Traffic", "name": "m"}`,
		[]string{`{"rollout": {"version": "4"}}`, `{"split": {"version": "4", "percent": 1}, "shadow": {"version": "4", "percent": 1}}`, `{"rollback": {"from": "4", "to": "3"}}`}},
}

// TestReferenceIsWhatTheCodeTakes: a default on the page is the code's, a value beyond its bounds is refused, and one at its bounds is taken.
func TestReferenceIsWhatTheCodeTakes(t *testing.T) {
	all := readSchemas(t)
	for _, kind := range manifestKinds {
		documents := []map[string]any{document(t, kind.minimal, "{}")}
		for _, group := range kind.groups {
			documents = append(documents, document(t, kind.minimal, group))
		}
		for _, f := range all.fields(all[kind.schema], "") {
			if strings.Contains(f.path, "[]") || strings.HasPrefix(f.path, "versions.") {
				continue
			}
			checkDefault(t, &f, documents)
			beyond, at := f.probes(t)
			for _, value := range beyond {
				if accepted(f.path, value, documents) {
					t.Errorf("%s: %v is taken: the reference says %s", f.path, value, f.bounds())
				}
			}
			for _, value := range at {
				if !accepted(f.path, value, documents) {
					t.Errorf("%s: %v is refused: the reference says %s", f.path, value, f.bounds())
				}
			}
		}
	}
}

func document(t *testing.T, minimal, more string) (d map[string]any) {
	for _, text := range []string{minimal, more} {
		if err := json.Unmarshal([]byte(text), &d); err != nil {
			t.Fatal(err)
		}
	}
	return d
}

// checkDefault compares the default with what a document without the field comes to. What is written out where it is not set must be on
// the page; a zero is not written.
func checkDefault(t *testing.T, f *field, documents []map[string]any) {
	if strings.HasPrefix(fmt.Sprint(f.XDefault), "required") || f.XDefault != nil && reflect.ValueOf(f.XDefault).Kind() == reflect.String {
		return
	}
	for _, d := range documents {
		if _, given := lookUp(d, f.path); given {
			continue
		}
		text, err := json.Marshal(d)
		if err != nil {
			t.Fatal(err)
		}
		set, err := manifest.Decode("m.json", text)
		if err != nil {
			t.Fatal(err)
		}
		if text, err = set.JSON(); err != nil {
			t.Fatal(err)
		}
		var written []map[string]any
		if err := json.Unmarshal(text, &written); err != nil {
			t.Fatal(err)
		}
		got, there := lookUp(written[0], f.path)
		if group, _ := got.(map[string]any); !there || group != nil {
			continue
		}
		want := f.Default
		if want == nil {
			want = f.XDefault
		}
		if !sameValue(got, want) {
			t.Errorf("%s is %v where a document does not say it: the reference says %v", f.path, got, f.defaultText())
		}
		return
	}
	if f.Default != nil && !sameValue(f.Default, 0) {
		t.Errorf("%s: no document comes to the default %v of the reference", f.path, f.Default)
	}
}

func sameValue(a, b any) bool {
	if a == nil || b == nil {
		return a == b
	}
	x, errX := time.ParseDuration(fmt.Sprint(a))
	y, errY := time.ParseDuration(fmt.Sprint(b))
	if errX == nil && errY == nil {
		return x == y
	}
	var m, n float64
	if _, err := fmt.Sscan(fmt.Sprint(a), &m); err == nil {
		if _, err := fmt.Sscan(fmt.Sprint(b), &n); err == nil {
			return m == n
		}
	}
	return fmt.Sprint(a) == fmt.Sprint(b)
}

func lookUp(d map[string]any, path string) (v any, there bool) {
	v = d
	for name := range strings.SplitSeq(path, ".") {
		o, ok := v.(map[string]any)
		if !ok {
			return nil, false
		}
		if v, there = o[name]; !there {
			return nil, false
		}
	}
	return v, true
}

// with is a copy of a document in which a field has a value.
func with(d map[string]any, path []string, value any) map[string]any {
	c := map[string]any{}
	for k, v := range d {
		c[k] = v
	}
	if len(path) == 1 {
		c[path[0]] = value
		return c
	}
	inner, _ := d[path[0]].(map[string]any)
	c[path[0]] = with(inner, path[1:], value)
	return c
}

// accepted: in one of the documents nothing is wrong with the field.
func accepted(path string, value any, documents []map[string]any) bool {
	return slices.ContainsFunc(documents, func(d map[string]any) bool {
		text, err := json.Marshal(with(d, strings.Split(path, "."), value))
		if err != nil {
			return false
		}
		_, err = manifest.Decode("m.json", text)
		return err == nil
	})
}

// probes are values beyond and at the bounds of a field.
func (f *field) probes(t *testing.T) (beyond, at []any) {
	switch f.kind {
	case "integer", "number":
		step := func(v float64) float64 {
			if f.kind == "integer" {
				return 1
			}
			return max(1e-13, math.Abs(v)/1000)
		}
		if v := f.Minimum; v != nil && f.ExclusiveMinimum {
			beyond, at = append(beyond, *v), append(at, *v+0.001)
		} else if v != nil {
			beyond, at = append(beyond, *v-step(*v)), append(at, *v)
		}
		if v := f.Maximum; v != nil {
			beyond, at = append(beyond, *v+step(*v)), append(at, *v)
		}
	case "duration":
		if f.XMaximum == "" {
			t.Errorf("api/spec/openapi.yaml: %s is a duration without x-maximum", f.path)
			return nil, nil
		}
		longest, err := time.ParseDuration(f.XMaximum)
		if err != nil {
			t.Fatal(err)
		}
		beyond, at = append(beyond, (longest+1).String()), append(at, longest.String())
		if f.XExclusiveMinimum != "" {
			beyond, at = append(beyond, f.XExclusiveMinimum), append(at, "1ms")
		} else if shortest, err := time.ParseDuration(f.XMinimum); err == nil {
			beyond, at = append(beyond, (shortest-1).String()), append(at, f.XMinimum)
		}
	case "bytes":
		low, errLow := api.ParseBytes(f.XMinimum)
		high, errHigh := api.ParseBytes(f.XMaximum)
		if errLow != nil || errHigh != nil {
			t.Errorf("api/spec/openapi.yaml: %s: %v, %v", f.path, errLow, errHigh)
		}
		beyond, at = append(beyond, fmt.Sprint(high+1)), append(at, f.XMinimum, f.XMaximum)
		if low > 1 {
			beyond = append(beyond, fmt.Sprint(low-1))
		}
	case "string":
		if len(f.Enum) > 0 {
			beyond = append(beyond, "no-such-word")
		}
	}
	return beyond, at
}
