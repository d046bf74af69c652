package manifest

import (
	"encoding/json"
	"math"
	"reflect"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/xebec-serving/xebec/api"
)

// policy reads `exp3` as well as `{name: exp3, eta: 0.1}`. Every field beside the name is a parameter; which ones there are,
// the gateway knows.
func (d *decoder) policy(o *object, name string) api.PolicySpec {
	n := o.get(name)
	if n == nil {
		return api.PolicySpec{}
	}
	if n.Kind != yaml.MappingNode {
		return api.PolicySpec{Name: d.text(n, o.at(name))}
	}
	sub := d.object(n, o.at(name))
	p := api.PolicySpec{Name: sub.text("name")}
	if sub.values["name"] == nil {
		d.errorf(n, sub.at("name"), "is missing: expected the name of a policy")
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		name := n.Content[i].Value
		if name == "name" {
			continue
		}
		value := sub.get(name)
		if value == nil {
			continue
		}
		if p.Params == nil {
			p.Params = make(map[string]any, len(n.Content)/2)
		}
		p.Params[name] = d.param(sub, name, value)
	}
	return p
}

func (d *decoder) param(o *object, name string, n *yaml.Node) any {
	switch tag := n.ShortTag(); {
	case n.Kind == yaml.MappingNode:
		if numbers := d.numbers(o, name); numbers != nil {
			return numbers
		}
		return map[string]float64{}
	case n.Kind != yaml.ScalarNode:
		d.errorf(n, o.at(name), "%s: expected a number, true or false, a string, or a mapping of models to numbers", describe(n))
		return nil
	case tag == "!!bool":
		v, _ := o.boolean(name)
		return v
	case tag == "!!int" || tag == "!!float" || beyondFloat(n):
		v, _ := d.finite(n, o.at(name))
		return v
	}
	return d.text(n, o.at(name))
}

// lossReader reads `absolute` as well as `{kind: absolute, scale: 10, tolerance: 1}`.
func lossReader(p *plan) reader {
	return func(o *object, name string, v reflect.Value) {
		n := o.get(name)
		switch {
		case n == nil:
		case n.Kind != yaml.MappingNode:
			v.Set(reflect.ValueOf(api.LossSpec{Kind: o.d.text(n, o.at(name))}))
		default:
			o.part(name, func(o *object) { p.read(o, v) })
		}
	}
}

// versionsReader reads `all`, `{latest: 2}` and `{specific: [3, 4]}`. It refuses an empty policy: its meaning would be that the model's source
// decides, not that no version is loaded.
func versionsReader(p *plan) reader {
	return func(o *object, name string, v reflect.Value) {
		d, n := o.d, o.get(name)
		switch {
		case n == nil:
		case n.Kind == yaml.ScalarNode && n.ShortTag() == "!!str" && n.Value == "all":
			v.Set(reflect.ValueOf(api.VersionPolicy{All: true}))
		case n.Kind != yaml.MappingNode:
			d.errorf(n, o.at(name), "%s: expected all, {latest: 2} or {specific: [...]}", describe(n))
		default:
			o.part(name, func(sub *object) {
				p.read(sub, v)
				switch list := sub.values["specific"]; {
				case list != nil && list.Kind == yaml.SequenceNode && len(list.Content) == 0:
					d.errorf(list, sub.at("specific"), "is empty: expected versions of the model")
				case len(n.Content) == 0:
					d.errorf(n, o.at(name), "is empty: expected all, {latest: 2} or {specific: [...]}")
				}
			})
		}
	}
}

// env reads a mapping of names to values. No message quotes a value: it may be secret.
func (d *decoder) env(o *object, name string) map[string]api.EnvValue {
	n := o.get(name)
	if n == nil {
		return nil
	}
	path := o.at(name)
	if n.Kind != yaml.MappingNode {
		what := "is a text"
		if n.Kind == yaml.SequenceNode {
			what = "is a list"
		}
		d.errorf(n, path, "%s: expected a mapping of names to values", what)
		return nil
	}
	env := make(map[string]api.EnvValue, len(n.Content)/2)
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i].Value, n.Content[i+1]
		at := path + "." + key
		d.positions[at] = n.Content[i]
		if value.Kind == yaml.MappingNode {
			env[key] = d.envSource(value, at)
		} else {
			env[key] = api.EnvValue{Value: d.word(value, at)}
		}
	}
	if len(env) == 0 {
		return nil
	}
	return env
}

// envSource reads {valueFrom: {file: PATH}}, and {masked: true}, which a gateway shows in place of a text.
func (d *decoder) envSource(n *yaml.Node, path string) (v api.EnvValue) {
	before := len(d.errs)
	o := d.object(n, path)
	o.part("valueFrom", func(from *object) {
		v.File = from.text("file")
		if from.values["file"] == nil {
			d.errorf(from.node, from.at("file"), "is missing: expected the path of a file that has the value")
		}
	})
	v.Masked, _ = o.boolean("masked")
	o.done()
	if (v.File == "") == !v.Masked && len(d.errs) == before {
		d.errorf(n, path, "expected a text, or {valueFrom: {file: PATH}}")
	}
	return v
}

// anyField reads any value as canonical JSON, nil if there is none.
func (d *decoder) anyField(o *object, name string) json.RawMessage {
	if n := o.get(name); n != nil {
		return d.anyJSON(n, o.at(name))
	}
	return nil
}

// anyJSON turns a node into canonical JSON; nil, after reporting it, where that cannot be.
func (d *decoder) anyJSON(n *yaml.Node, path string) json.RawMessage {
	before := len(d.errs)
	value := d.anyValue(n, path)
	if len(d.errs) > before {
		return nil
	}
	raw, err := json.Marshal(value)
	if err == nil {
		raw, err = api.CanonicalJSON(raw)
	}
	if err != nil {
		d.errorf(n, path, "%s", err.Error())
		return nil
	}
	return raw
}

func (d *decoder) anyValue(n *yaml.Node, path string) any {
	switch n.Kind {
	case yaml.SequenceNode:
		list := []any{}
		d.list(n, path, func(n *yaml.Node, path string) { list = append(list, d.anyValue(n, path)) })
		return list
	case yaml.MappingNode:
		object := make(map[string]any, len(n.Content)/2)
		for i := 0; i+1 < len(n.Content); i += 2 {
			object[n.Content[i].Value] = d.anyValue(n.Content[i+1], path+"."+clip(n.Content[i].Value))
		}
		return object
	}
	switch n.ShortTag() {
	case "!!null":
		return nil
	case "!!bool":
		return strings.EqualFold(n.Value, "true")
	case "!!int", "!!float":
		return d.number(n, path)
	}
	return n.Value
}

// number keeps the digits where they are a number of JSON too, and converts YAML's other spellings (0x10, 1_000, .5).
func (d *decoder) number(n *yaml.Node, path string) any {
	if json.Valid([]byte(n.Value)) {
		return json.Number(n.Value)
	}
	var i int64
	var u uint64
	var f float64
	switch {
	case n.ShortTag() == "!!int" && n.Decode(&i) == nil:
		return json.Number(strconv.FormatInt(i, 10))
	case n.ShortTag() == "!!int" && n.Decode(&u) == nil:
		return json.Number(strconv.FormatUint(u, 10))
	case n.Decode(&f) == nil && !math.IsNaN(f) && !math.IsInf(f, 0):
		return json.Number(strconv.FormatFloat(f, 'g', -1, 64))
	}
	d.errorf(n, path, "%s: expected a number that JSON can carry", clip(n.Value))
	return nil
}
