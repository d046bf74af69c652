package manifest

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"
)

// The OpenAPI description has exactly the fields that manifests have.
func TestEveryFieldIsDescribed(t *testing.T) {
	text, err := os.ReadFile("../spec/openapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		Components struct{ Schemas map[string]schema }
	}
	if err := yaml.Unmarshal(text, &doc); err != nil {
		t.Fatal(err)
	}
	// Each document has an unknown field at the end of the path, so that the error lists the known ones.
	const unknown = "there-is-none-of-this-name: 1"
	for _, c := range []struct{ schema, path, text string }{
		{"ModelSpec", "", modelWith(unknown)},
		{"ModelSpec", "run", strings.Replace(modelWith(""), "model.py]", "model.py], "+unknown, 1)},
		{"ModelSpec", "replicas", modelWith("replicas: {" + unknown + "}")},
		{"ModelSpec", "resources", modelWith("resources: {" + unknown + "}")},
		{"ModelSpec", "limits", modelWith("limits: {" + unknown + "}")},
		{"Expectation", "", modelWith("expect: [{" + unknown + "}]")},
		{"ModelSpec", "batching", modelWith("batching: {" + unknown + "}")},
		{"ModelSpec", "queue", modelWith("queue: {" + unknown + "}")},
		{"ModelSpec", "warmup", modelWith("warmup: {" + unknown + "}")},
		{"ModelSpec", "validate", modelWith("validate: {" + unknown + "}")},
		{"FunctionSpec", "", functionWith(unknown)},
		{"FunctionSpec", "log", functionWith("log: {sample: 1, " + unknown + "}")},
		{"FunctionSpec", "cors", functionWith("cors: {origins: ['*'], " + unknown + "}")},
		{"TrafficSpec", "", trafficWith(unknown)},
		{"TrafficSpec", "rollout", trafficWith("rollout: {" + unknown + "}")},
		{"TrafficSpec", "rollout.guard", trafficWith("rollout: {guard: {" + unknown + "}}")},
		{"TrafficSpec", "rollback", trafficWith("rollback: {" + unknown + "}")},
		{"VersionShare", "", trafficWith("split: {" + unknown + "}")},
	} {
		_, err := Decode("f.yaml", []byte(c.text))
		if err == nil {
			t.Fatalf("%s %s: a field that there is not was taken", c.schema, c.path)
		}
		m := knownFields.FindStringSubmatch(err.Error())
		if m == nil {
			t.Fatalf("%s %s: got %v", c.schema, c.path, err)
		}
		known := slices.DeleteFunc(strings.Split(m[1], ", "), func(name string) bool { return name == "kind" })
		described := doc.Components.Schemas[c.schema]
		for part := range strings.SplitSeq(c.path, ".") {
			if part != "" {
				described = described.Properties[part]
			}
		}
		var names []string
		for name := range described.Properties {
			names = append(names, name)
		}
		slices.Sort(known)
		slices.Sort(names)
		if diff := cmp.Diff(known, names); diff != "" {
			t.Errorf("%s %s (-has +described):\n%s", c.schema, c.path, diff)
		}
	}
}

type schema struct {
	Properties map[string]schema
}

var knownFields = regexp.MustCompile(`there is no such field: expected one of ([^\n]*)`)
