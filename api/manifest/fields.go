package manifest

import (
	"encoding/json"
	"math"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/xebec-serving/xebec/api"
)

func (d *decoder) model(o *object) api.ModelSpec {
	m := api.ModelSpec{
		Name:    o.text("name"),
		Version: d.version(o, "version"),
		Inputs:  d.tensors(o, "inputs"),
		Outputs: d.tensors(o, "outputs"),
	}
	o.part("run", func(o *object) {
		o.list("command", func(n *yaml.Node, path string) { m.Run.Command = append(m.Run.Command, d.word(n, path)) })
		m.Run.Image = o.text("image")
		m.Run.Env = d.env(o)
	})
	m.Python = o.text("python")
	o.part("replicas", func(o *object) {
		m.Replicas = api.ReplicaBounds{
			Min: o.count("min", 0), Max: o.count("max", 1), Initial: o.count("initial", 0),
			Idle: o.duration("idle", true), Window: o.duration("window", true), Delay: o.duration("delay", true),
			Utilization: o.float("utilization", true), Up: o.float("up", true), Down: o.float("down", true),
		}
		// A spec cannot tell "min: 0" from no min; here it can.
		switch _, given := o.values["min"]; {
		case !given && m.Replicas.Max > 0:
			m.Replicas.Min = 1
		case given && m.Replicas.Min == 0 && m.Replicas.Max == 0:
			m.Replicas.Max = 1
		}
	})
	o.part("resources", func(o *object) {
		m.Resources = api.ResourceSpec{CPU: o.float("cpu", false), MemoryBytes: o.bytes("memory"), GPU: o.count("gpu", 0)}
	})
	o.part("limits", func(o *object) {
		m.Limits = api.LimitSpec{CPU: o.float("cpu", true), MemoryBytes: o.bytes("memory"), PIDs: o.count("pids", 1)}
	})
	o.list("preload", func(n *yaml.Node, path string) { m.Preload = append(m.Preload, d.text(n, path)) })
	m.Expect = d.expect(o)
	o.part("batching", func(o *object) {
		m.Batching.Policy = o.text("policy")
		m.Batching.Max = o.count("max", 1)
		m.Batching.MaxBytes = o.integer("max_bytes", 1)
		m.Batching.Hold = o.duration("hold", false)
		m.Batching.Objective = o.duration("objective", true)
		m.Batching.Pad, _ = o.boolean("pad")
	})
	if retry, given := o.boolean("retry"); given {
		m.Retry = &retry
	}
	m.Timeout = o.duration("timeout", true)
	o.part("queue", func(o *object) { m.Queue.Max = o.count("max", 1) })
	m.Cache = d.cache(o)
	m.Cost = o.float("cost", false)
	m.Device = o.text("device")
	d.quality(o, &m)
	m.Dir = o.text("dir")
	return m
}

// expect takes one hint or a list of them.
func (d *decoder) expect(o *object) (hints []api.ExpectSpec) {
	one := func(n *yaml.Node, path string) {
		o := d.object(n, path)
		if o == nil {
			return
		}
		hints = append(hints, api.ExpectSpec{Rate: o.float("rate", true), From: d.moment(o, "from"), To: d.moment(o, "to")})
		o.done()
	}
	if n := o.get("expect"); n != nil && n.Kind == yaml.MappingNode {
		one(n, o.at("expect")+"[0]")
		return hints
	}
	o.list("expect", one)
	return hints
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

func (d *decoder) function(o *object) api.FunctionSpec {
	f := api.FunctionSpec{Name: o.text("name")}
	o.list("models", func(n *yaml.Node, path string) { f.Models = append(f.Models, d.text(n, path)) })
	f.SLO = o.duration("slo", true)
	if n := o.get("default"); n != nil {
		f.Default = d.anyJSON(n, "default")
	}
	f.Policy = d.policy(o)
	f.Loss = d.loss(o)
	f.MinConfidence = o.float("min_confidence", false)
	f.Shadow = d.numbers(o, "shadow")
	f.Weight = o.float("weight", true)
	f.Budget = o.float("budget", false)
	f.ColdStart = o.duration("cold_start", false)
	f.Log = d.log(o)
	return f
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

// cache takes on and off with and without quotes; some YAML writers hold them for booleans and quote them, some do not.
func (d *decoder) cache(o *object) string {
	n := o.get("cache")
	if n != nil && n.Kind == yaml.ScalarNode && n.ShortTag() == "!!bool" {
		d.errorf(n, "cache", "%s: expected off or on", describe(n))
		return ""
	}
	return o.text("cache")
}

func (d *decoder) tensors(o *object, name string) []api.TensorSpec {
	var specs []api.TensorSpec
	o.list(name, func(n *yaml.Node, path string) {
		o := d.object(n, path)
		if o == nil {
			return
		}
		spec := api.TensorSpec{Name: o.text("name")}
		if given := o.get("dtype"); given != nil {
			dtype, err := api.ParseDType(d.text(given, o.at("dtype")))
			if err != nil && given.ShortTag() == "!!str" {
				d.errorf(given, o.at("dtype"), "%s", err.Error())
			}
			spec.DType = dtype
		}
		if o.values["shape"] == nil {
			d.errorf(n, o.at("shape"), "is missing: expected the dimensions of one query, [] for a single element")
		}
		o.list("shape", func(n *yaml.Node, path string) {
			dim, _ := d.integer(n, path)
			spec.Shape = append(spec.Shape, dim)
		})
		o.done()
		specs = append(specs, spec)
	})
	return specs
}

func (d *decoder) env(o *object) map[string]string {
	n := o.get("env")
	if n == nil {
		return nil
	}
	path := o.at("env")
	if n.Kind != yaml.MappingNode {
		d.errorf(n, path, "%s: expected a mapping of names to values", describe(n))
		return nil
	}
	env := make(map[string]string, len(n.Content)/2)
	for i := 0; i+1 < len(n.Content); i += 2 {
		name, value := n.Content[i].Value, n.Content[i+1]
		at := path + "." + name
		d.positions[at] = n.Content[i]
		env[name] = d.word(value, at)
	}
	if len(env) == 0 {
		return nil
	}
	return env
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
