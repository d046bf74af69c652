package manifest

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/xebec-serving/xebec/api"
)

// The fields of a spec are those of its struct in package api, in its order. A field's type and its tags say how it is read:
//
//	json:"name"        its name; "-" for none
//	need:"WHAT"        it must be there; WHAT is what is expected
//	field:"positive"   zero is refused, in a number or duration where it would mean the default
//	field:"min=1"      the smallest whole number, 0 without it
//	field:"bytes"      a number of bytes, "512MiB"
//	field:"word"       a scalar of any type as it is written
//	field:"version"    a version: 1.10 as well as "1.10"
//	field:"moment"     a time of day or an RFC 3339 time, as it is written
//	field:"switch"     on or off
//	field:"one"        one object as well as a list of them
//
// A type whose form is its own has a hook in readerOf.

// plan says how the fields of one type are read.
type plan struct {
	fields []field
	// after, if not nil, completes what the fields say together.
	after func(o *object, v reflect.Value)
}

type field struct {
	index      int
	name, need string
	read       reader
}

// reader reads the field of that name into v, which is zero.
type reader func(o *object, name string, v reflect.Value)

var (
	modelPlan    = planOf(reflect.TypeFor[api.ModelSpec]())
	functionPlan = planOf(reflect.TypeFor[api.FunctionSpec]())
	trafficPlan  = planOf(reflect.TypeFor[api.TrafficSpec]())
)

func planOf(t reflect.Type) *plan {
	p := &plan{}
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name != "-" {
			p.fields = append(p.fields, field{i, name, f.Tag.Get("need"), readerOf(f.Type, f.Tag.Get("field"))})
		}
	}
	if t == reflect.TypeFor[api.ReplicaBounds]() {
		p.after = replicaBounds
	}
	return p
}

// read reads all fields into a zero struct.
func (p *plan) read(o *object, v reflect.Value) {
	for i := range p.fields {
		f := &p.fields[i]
		f.read(o, f.name, v.Field(f.index))
		if f.need != "" && o.values[f.name] == nil {
			o.d.errorf(o.node, o.at(f.name), "is missing: expected %s", f.need)
		}
	}
	if p.after != nil {
		p.after(o, v)
	}
}

func read[T any](o *object, p *plan) (spec T) {
	p.read(o, reflect.ValueOf(&spec).Elem())
	return spec
}

// readerOf returns the reader of a type with the options of a field tag. It panics where there is none.
func readerOf(t reflect.Type, option string) reader {
	positive := option == "positive"
	low := int64(0)
	if text, ok := strings.CutPrefix(option, "min="); ok {
		low, _ = strconv.ParseInt(text, 10, 64)
	}
	switch t {
	case reflect.TypeFor[api.PolicySpec]():
		return set((*decoder).policy)
	case reflect.TypeFor[api.LossSpec]():
		return lossReader(planOf(t))
	case reflect.TypeFor[api.VersionPolicy]():
		return versionsReader(planOf(t))
	case reflect.TypeFor[api.DType]():
		return set((*decoder).dtype)
	case reflect.TypeFor[json.RawMessage]():
		return set((*decoder).anyField)
	case reflect.TypeFor[time.Duration]():
		return func(o *object, name string, v reflect.Value) { v.SetInt(int64(o.duration(name, positive))) }
	case reflect.TypeFor[map[string]float64]():
		return set((*decoder).numbers)
	case reflect.TypeFor[map[string]string]():
		if option == "version" {
			return set((*decoder).labels)
		}
	case reflect.TypeFor[map[string]api.EnvValue]():
		return set((*decoder).env)
	case reflect.TypeFor[*bool]():
		return func(o *object, name string, v reflect.Value) {
			if given, ok := o.boolean(name); ok {
				v.Set(reflect.ValueOf(&given))
			}
		}
	}
	switch t.Kind() {
	case reflect.String:
		return func(o *object, name string, v reflect.Value) { v.SetString(textReaders[option](o, name)) }
	case reflect.Int:
		return func(o *object, name string, v reflect.Value) { v.SetInt(int64(o.count(name, low))) }
	case reflect.Int64:
		if option == "bytes" {
			return func(o *object, name string, v reflect.Value) { v.SetInt(o.bytes(name)) }
		}
		return func(o *object, name string, v reflect.Value) { v.SetInt(o.integer(name, low)) }
	case reflect.Float64:
		return func(o *object, name string, v reflect.Value) { v.SetFloat(o.float(name, positive)) }
	case reflect.Bool:
		return func(o *object, name string, v reflect.Value) {
			given, _ := o.boolean(name)
			v.SetBool(given)
		}
	case reflect.Struct:
		p := planOf(t)
		return func(o *object, name string, v reflect.Value) { o.part(name, func(o *object) { p.read(o, v) }) }
	case reflect.Pointer:
		p := planOf(t.Elem())
		return func(o *object, name string, v reflect.Value) {
			o.part(name, func(o *object) {
				v.Set(reflect.New(t.Elem()))
				p.read(o, v.Elem())
			})
		}
	case reflect.Slice:
		return listReader(t, option)
	}
	panic(fmt.Sprintf("manifest: no reader of %s", t))
}

// textReaders are the readers of a string, by the option of its tag.
var textReaders = map[string]func(o *object, name string) string{
	"":        (*object).text,
	"version": func(o *object, name string) string { return o.d.version(o, name) },
	"moment":  func(o *object, name string) string { return o.d.moment(o, name) },
	"switch":  func(o *object, name string) string { return o.d.onOff(o, name) },
}

// itemReaders are the readers of an item of a list of strings.
var itemReaders = map[string]func(d *decoder, n *yaml.Node, path string) string{
	"": (*decoder).text, "word": (*decoder).word, "version": (*decoder).versionText,
}

func set[T any](read func(d *decoder, o *object, name string) T) reader {
	return func(o *object, name string, v reflect.Value) {
		*v.Addr().Interface().(*T) = read(o.d, o, name)
	}
}

func listReader(t reflect.Type, option string) reader {
	switch t.Elem().Kind() {
	case reflect.String:
		read := itemReaders[option]
		return func(o *object, name string, v reflect.Value) {
			list := v.Addr().Interface().(*[]string)
			o.list(name, func(n *yaml.Node, path string) { *list = append(*list, read(o.d, n, path)) })
		}
	case reflect.Int64:
		return func(o *object, name string, v reflect.Value) {
			list := v.Addr().Interface().(*[]int64)
			o.list(name, func(n *yaml.Node, path string) {
				item, _ := o.d.integer(n, path)
				*list = append(*list, item)
			})
		}
	}
	p := planOf(t.Elem())
	return func(o *object, name string, v reflect.Value) {
		d := o.d
		item := func(n *yaml.Node, path string) {
			if sub := d.object(n, path); sub != nil {
				one := reflect.New(t.Elem()).Elem()
				p.read(sub, one)
				sub.done()
				v.Set(reflect.Append(v, one))
			}
		}
		if n := o.values[name]; option == "one" && n != nil && n.Kind == yaml.MappingNode {
			item(o.get(name), o.at(name)+"[0]")
			return
		}
		o.list(name, item)
	}
}

// replicaBounds tells "min: 0" from no min, which a spec cannot.
func replicaBounds(o *object, v reflect.Value) {
	r := v.Addr().Interface().(*api.ReplicaBounds)
	switch _, given := o.values["min"]; {
	case !given && r.Max > 0:
		r.Min = 1
	case given && r.Min == 0 && r.Max == 0:
		r.Max = 1
	}
}

func (d *decoder) dtype(o *object, name string) api.DType {
	n := o.get(name)
	if n == nil {
		return api.InvalidDType
	}
	dtype, err := api.ParseDType(d.text(n, o.at(name)))
	if err != nil && n.ShortTag() == "!!str" {
		d.errorf(n, o.at(name), "%s", err.Error())
	}
	return dtype
}

// onOff reads on and off with and without quotes. Some YAML writers take them for booleans and quote them, some do not.
func (d *decoder) onOff(o *object, name string) string {
	n := o.get(name)
	switch {
	case n == nil:
		return ""
	case n.Kind == yaml.ScalarNode && n.ShortTag() == "!!bool":
		d.errorf(n, o.at(name), "%s: expected off or on", describe(n))
		return ""
	}
	return d.text(n, o.at(name))
}

// moment takes "08:00" and an RFC 3339 time with and without quotes, as it was written.
func (d *decoder) moment(o *object, name string) string {
	n := o.get(name)
	if n == nil {
		return ""
	}
	if n.Kind != yaml.ScalarNode {
		d.errorf(n, o.at(name), "%s: expected a time of day such as \"08:00\", or a moment such as 2026-01-31T08:00:00Z", describe(n))
		return ""
	}
	return n.Value
}

// version takes 1 and 1.10 as well as "1" and "1.10": what was written is the version.
func (d *decoder) version(o *object, name string) string {
	n := o.get(name)
	if n == nil {
		return ""
	}
	return d.versionText(n, o.at(name))
}

func (d *decoder) versionText(n *yaml.Node, path string) string {
	switch {
	case n.Kind != yaml.ScalarNode || n.ShortTag() == "!!bool" || n.ShortTag() == "!!null":
		d.errorf(n, path, "%s: expected a string", describe(n))
	case n.Value == "":
		d.errorf(n, path, "is empty: give it a value or leave it out")
	}
	return n.Value
}

// labels reads a mapping of labels to versions; nil when it is not there or has nothing in it.
func (d *decoder) labels(o *object, name string) map[string]string {
	n := o.get(name)
	if n == nil {
		return nil
	}
	path := o.at(name)
	if n.Kind != yaml.MappingNode {
		d.errorf(n, path, "%s: expected a mapping of labels to versions", describe(n))
		return nil
	}
	var labels map[string]string
	for i := 0; i+1 < len(n.Content); i += 2 {
		label, value := n.Content[i].Value, n.Content[i+1]
		d.positions[path+"."+label] = value
		if labels == nil {
			labels = make(map[string]string, len(n.Content)/2)
		}
		labels[label] = d.versionText(value, path+"."+clip(label))
	}
	return labels
}

// numbers reads a mapping of names to finite numbers; nil when it is not there or has nothing in it.
func (d *decoder) numbers(o *object, name string) map[string]float64 {
	n := o.get(name)
	if n == nil {
		return nil
	}
	path := o.at(name)
	if n.Kind != yaml.MappingNode {
		d.errorf(n, path, "%s: expected a mapping of models to numbers", describe(n))
		return nil
	}
	var numbers map[string]float64
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i].Value, n.Content[i+1]
		at := path + "." + key
		d.positions[at] = value
		if numbers == nil {
			numbers = make(map[string]float64, len(n.Content)/2)
		}
		numbers[key], _ = d.finite(value, path+"."+clip(key))
	}
	return numbers
}
