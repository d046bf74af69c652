package manifest

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/xebec-serving/xebec/api"
)

const located = `# two of each
kind: Model
name: a
inputs: [{name: x, dtype: float32, shape: [2]}]
outputs: [{name: x, dtype: int64, shape: [2]}, {name: z, dtype: bool, shape: []}]
run: {command: [python, model.py]}
device: gpu0
---
kind: Function
name: f
models: [a,
  b@1]
policy:
  name: split
  weights: {a: 0.9, b@1: 0.1}
default: {x: [1, 2], z: true}
`

func TestLocate(t *testing.T) {
	set, err := Decode("models.yaml", []byte(located))
	if err != nil {
		t.Fatal(err)
	}
	set.Functions = append(set.Functions, api.FunctionSpec{Name: "appended"})
	for _, c := range []struct {
		kind api.Kind
		i    int
		path string
		want string
	}{
		{api.KindModel, 0, "", "models.yaml:2:1"},
		{api.KindModel, 0, "device", "models.yaml:7:9"},
		{api.KindModel, 0, "inputs[0].shape[0]", "models.yaml:4:9"}, // models keep no deeper positions
		{api.KindModel, 0, "cost", "models.yaml:2:1"},
		{api.KindModel, 1, "", ""},
		{api.KindFunction, 0, "models[1]", "models.yaml:12:3"},
		{api.KindFunction, 0, "models[7]", "models.yaml:11:9"},
		{api.KindFunction, 0, "policy.weights.b@1", "models.yaml:15:26"},
		{api.KindFunction, 0, "policy.weights.c@1.5", "models.yaml:15:12"},
		{api.KindFunction, 0, "policy.eta", "models.yaml:14:3"},
		{api.KindFunction, 0, "default.x[0]", "models.yaml:16:10"}, // nor do defaults
		{api.KindFunction, 0, "loss", "models.yaml:9:1"},
		{api.KindFunction, 1, "policy", ""},
		{api.KindFunction, -1, "policy", ""},
	} {
		if got := set.Locate(c.kind, c.i, c.path); got != c.want {
			t.Errorf("%s %d %s: got %q, want %q", c.kind, c.i, c.path, got, c.want)
		}
	}
}

func TestRefuse(t *testing.T) {
	set, err := Decode("models.yaml", []byte(located))
	if err != nil {
		t.Fatal(err)
	}
	set.Functions = append(set.Functions, api.FunctionSpec{Name: "appended"})
	fields := api.FieldErrors{{Path: "policy.eta", Message: "2: expected 0 to 1"}, {Path: "models", Message: "is wrong"}}
	for _, c := range []struct {
		err  error
		want string
	}{
		{set.Refuse(api.KindFunction, 0, fields), "models.yaml:14:3: function f: policy.eta: 2: expected 0 to 1\nmodels.yaml:11:9: function f: models: is wrong"},
		{set.Refuse(api.KindModel, 0, errors.New("exists")), "models.yaml:2:1: model a@1: exists"},
		{set.Refuse(api.KindFunction, 1, fields[:1]), "function appended: policy.eta: 2: expected 0 to 1"},
	} {
		if c.err == nil || c.err.Error() != c.want {
			t.Errorf("got %v, want %s", c.err, c.want)
		}
	}
	if err := set.Refuse(api.KindModel, 0, nil); err != nil {
		t.Errorf("nothing was refused with %v", err)
	}

	// A problem that a gateway reports for the text that it received is located in the client's files.
	set.Functions = set.Functions[:1]
	text, err := set.JSON()
	if err != nil {
		t.Fatal(err)
	}
	sent, err := Decode("manifest", text)
	if err != nil {
		t.Fatal(err)
	}
	var refused Errors
	if !errors.As(sent.Refuse(api.KindFunction, 0, fields), &refused) || refused[0].Line == 14 {
		t.Fatalf("got %v", refused)
	}
	problems := append(refused.Problems(), api.Problem{Kind: api.KindModel, Name: "other", Version: "2", Message: "is there"})
	want := "models.yaml:14:3: function f: policy.eta: 2: expected 0 to 1\nmodels.yaml:11:9: function f: models: is wrong\nmodel other@2: is there"
	if got := set.Relocate(problems).Error(); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// Objects keep their positions when the manifests of a directory are merged and when sets are appended.
func TestPositionsOfSeveralFiles(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"1.yaml": functionWith("slo: 1s\n"), "2.yaml": "# a comment\nkind: Function\nname: g\nmodels: [m]\nslo: 2s\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	loaded, err := Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	all := &Set{Functions: []api.FunctionSpec{{Name: "first"}}}
	all.Append(loaded)
	all.Functions = append(all.Functions, api.FunctionSpec{Name: "between"})
	all.Append(loaded)
	var got []string
	for i := range all.Functions {
		at := all.Locate(api.KindFunction, i, "slo")
		if at != "" {
			if at, err = filepath.Rel(dir, at); err != nil {
				t.Fatal(err)
			}
		}
		got = append(got, all.Functions[i].Name+" "+at)
	}
	want := []string{"first ", "f 1.yaml:4:6", "g 2.yaml:5:6", "between ", "f 1.yaml:4:6", "g 2.yaml:5:6"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A container gets a directory that is named, or a model directory, but not the directory that a manifest happens to be
// in.
func TestDirOfImages(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	image := strings.Replace(modelWith(""), "command: [python, model.py]", "image: x", 1)
	for _, c := range []struct{ name, text, want string }{
		{"m.yaml", image, ""},
		{"n.yaml", image + "\ndir: sub", filepath.Join(dir, "sub")},
		{ModelFile, image, dir},
	} {
		set, err := Load(write(c.name, c.text))
		if err != nil || set.Models[0].Dir != c.want {
			t.Errorf("%s: %q, %v, expected %q", c.name, set.Models[0].Dir, err, c.want)
		}
	}
}
