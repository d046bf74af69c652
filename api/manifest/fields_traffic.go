package manifest

import (
	"go.yaml.in/yaml/v3"

	"github.com/xebec-serving/xebec/api"
)

func (d *decoder) traffic(o *object) api.TrafficSpec {
	t := api.TrafficSpec{Model: o.text("name"), Versions: d.versions(o)}
	t.Transition = o.text("transition")
	t.Serving = d.version(o, "serving")
	t.Split = d.share(o, "split")
	t.Shadow = d.share(o, "shadow")
	o.part("rollout", func(o *object) {
		t.Rollout = &api.RolloutSpec{Version: d.version(o, "version"), Policy: d.policy(o)}
		o.part("guard", func(o *object) {
			t.Rollout.Guard = api.GuardSpec{
				MinFeedback: o.count("min_feedback", 1), MaxErrorIncrease: o.float("max_error_increase", true), MaxP99Increase: o.float("max_p99_increase", true),
			}
		})
	})
	t.Labels = d.labels(o)
	o.part("rollback", func(o *object) {
		t.Rollback = &api.RollbackSpec{From: d.version(o, "from"), To: d.version(o, "to"), Reason: o.text("reason")}
	})
	return t
}

// versions reads `all`, `{latest: 2}` and `{specific: [3, 4]}`. What would read like no policy at all is refused: it would mean what the
// model's source aspires to, which is something else than nothing.
func (d *decoder) versions(o *object) api.VersionPolicy {
	var p api.VersionPolicy
	n := o.get("versions")
	switch {
	case n == nil:
	case n.Kind == yaml.ScalarNode && n.ShortTag() == "!!str" && n.Value == "all":
		p.All = true
	case n.Kind != yaml.MappingNode:
		d.errorf(n, "versions", "%s: expected all, {latest: 2} or {specific: [...]}", describe(n))
	default:
		o.part("versions", func(o *object) {
			p.Latest = o.count("latest", 1)
			o.list("specific", func(n *yaml.Node, path string) { p.Specific = append(p.Specific, d.versionText(n, path)) })
			switch list := o.values["specific"]; {
			case list != nil && list.Kind == yaml.SequenceNode && len(list.Content) == 0:
				d.errorf(list, o.at("specific"), "is empty: expected versions of the model")
			case len(n.Content) == 0:
				d.errorf(n, "versions", "is empty: expected all, {latest: 2} or {specific: [...]}")
			}
		})
	}
	return p
}

func (d *decoder) share(o *object, name string) *api.VersionShare {
	var s *api.VersionShare
	o.part(name, func(o *object) {
		s = &api.VersionShare{Version: d.version(o, "version"), Percent: o.float("percent", true)}
	})
	return s
}

// labels reads a mapping of labels to versions; nil when it is not there or has nothing in it.
func (d *decoder) labels(o *object) map[string]string {
	n := o.get("labels")
	if n == nil {
		return nil
	}
	path := o.at("labels")
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

// quality reads what a version must do before it gets traffic.
func (d *decoder) quality(o *object, m *api.ModelSpec) {
	o.part("warmup", func(o *object) {
		m.Warmup = &api.WarmupSpec{Queries: o.text("queries"), Repeat: o.count("repeat", 1)}
	})
	o.part("validate", func(o *object) {
		v := &api.ValidateSpec{
			Queries: o.text("queries"), Expect: o.text("expect"), MinAccuracy: o.float("min_accuracy", false),
			MaxDifference: o.float("max_difference", false), Tolerance: o.float("tolerance", false),
		}
		if extremes, given := o.boolean("extremes"); given {
			v.Extremes = &extremes
		}
		m.Validation = v
	})
}

func (d *decoder) log(o *object) *api.LogSpec {
	var l *api.LogSpec
	o.part("log", func(o *object) {
		l = &api.LogSpec{Sample: o.float("sample", false)}
		if o.values["sample"] == nil {
			d.errorf(o.node, o.at("sample"), "is missing: expected the part of the queries that the inference log takes, from 0 to 1")
		}
	})
	return l
}
