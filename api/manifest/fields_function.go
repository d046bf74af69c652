package manifest

import (
	"go.yaml.in/yaml/v3"

	"github.com/xebec-serving/xebec/api"
)

// policy reads `exp3` as well as `{name: exp3, eta: 0.1}`. Every field beside the name is a parameter; which ones there are,
// the gateway knows.
func (d *decoder) policy(o *object) api.PolicySpec {
	n := o.get("policy")
	if n == nil {
		return api.PolicySpec{}
	}
	if n.Kind != yaml.MappingNode {
		return api.PolicySpec{Name: d.text(n, o.at("policy"))}
	}
	sub := d.object(n, o.at("policy"))
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

// loss reads `absolute` as well as `{kind: absolute, scale: 10, tolerance: 1}`.
func (d *decoder) loss(o *object) api.LossSpec {
	n := o.get("loss")
	if n == nil {
		return api.LossSpec{}
	}
	if n.Kind != yaml.MappingNode {
		return api.LossSpec{Kind: d.text(n, o.at("loss"))}
	}
	var l api.LossSpec
	o.part("loss", func(o *object) {
		l = api.LossSpec{Kind: o.text("kind"), Scale: o.float("scale", true), Tolerance: o.float("tolerance", true)}
	})
	return l
}
