package manifest

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/xebec-serving/xebec/api"
)

// trafficWith returns a model's traffic whose document ends with the given lines; the first of them is line 3.
func trafficWith(lines string) string { return "kind: Traffic\nname: digits\n" + lines }

func TestTrafficExample(t *testing.T) {
	got, err := Decode("traffic.yaml", []byte(`kind: Traffic
name: digits
versions: {latest: 2}
transition: resources
serving: "3"
shadow: {version: 5, percent: 0.5}
rollout: {version: 4, policy: {name: exp3, eta: 0.1}, guard: {min_feedback: 100, max_error_increase: 0.05, max_p99_increase: 1}}
labels: {stable: 3, canary: "4"}
rollback: {from: "6", to: 1.10, reason: "it was worse"}
`))
	if err != nil {
		t.Fatal(err)
	}
	want := &Set{Traffic: []api.TrafficSpec{{
		Model: "digits", Versions: api.VersionPolicy{Latest: 2}, Transition: api.TransitionResources, Serving: "3",
		Shadow: &api.VersionShare{Version: "5", Percent: 0.5},
		Rollout: &api.RolloutSpec{
			Version: "4", Policy: api.PolicySpec{Name: "exp3", Params: map[string]any{"eta": 0.1}},
			Guard: api.GuardSpec{MinFeedback: 100, MaxErrorIncrease: 0.05, MaxP99Increase: 1},
		},
		Labels:   map[string]string{"stable": "3", "canary": "4"},
		Rollback: &api.RollbackSpec{From: "6", To: "1.10", Reason: "it was worse"},
	}}}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(Set{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	text, err := got.YAML()
	if err != nil {
		t.Fatal(err)
	}
	wantText := `kind: Traffic
name: digits
versions: {latest: 2}
transition: resources
serving: "3"
shadow: {version: "5", percent: 0.5}
rollout: {version: "4", policy: {name: exp3, eta: 0.1}, guard: {min_feedback: 100, max_error_increase: 0.05, max_p99_increase: 1}}
labels: {canary: "4", stable: "3"}
rollback: {from: "6", to: "1.10", reason: "it was worse"}
`
	if diff := cmp.Diff(wantText, string(text)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestTrafficFields(t *testing.T) {
	yes, no := true, false
	for _, c := range []struct {
		name, text string
		check      func(*Set) (got, want any)
	}{
		{"nothing but the name", trafficWith(""), func(s *Set) (any, any) {
			return s.Traffic[0], api.TrafficSpec{Model: "digits", Transition: api.TransitionAvailability}
		}},
		{"all", trafficWith("versions: all"), func(s *Set) (any, any) { return s.Traffic[0].Versions, api.VersionPolicy{All: true} }},
		{"specific", trafficWith("versions: {specific: [3, '4', 1.10, 2026-01-02, 0x10]}"), func(s *Set) (any, any) {
			return s.Traffic[0].Versions, api.VersionPolicy{Specific: []string{"3", "4", "1.10", "2026-01-02", "0x10"}}
		}},
		{"serving of a number", trafficWith("serving: 3"), func(s *Set) (any, any) { return s.Traffic[0].Serving, "3" }},
		{"split", trafficWith("split: {version: 4, percent: 10}"), func(s *Set) (any, any) {
			return s.Traffic[0].Split, &api.VersionShare{Version: "4", Percent: 10}
		}},
		{"rollout by itself", trafficWith("rollout: {version: 4}"), func(s *Set) (any, any) {
			return s.Traffic[0].Rollout, &api.RolloutSpec{Version: "4", Policy: api.PolicySpec{Name: "exp3"}, Guard: api.GuardSpec{MinFeedback: 200, MaxErrorIncrease: 0.02, MaxP99Increase: 0.5}}
		}},
		{"no labels", trafficWith("labels: {}"), func(s *Set) (any, any) { return s.Traffic[0].Labels, map[string]string(nil) }},
		{"as JSON", `{"kind": "Traffic", "name": "m", "versions": {"specific": ["1"]}, "labels": {"stable": "1"}}`, func(s *Set) (any, any) {
			return s.Traffic[0].Labels, map[string]string{"stable": "1"}
		}},
		{"traffic counts", trafficWith("") + "---\n" + functionWith(""), func(s *Set) (any, any) { return s.Len(), 2 }},
		{"no warm-up with recent queries", modelWith("warmup: {recent: false}"), func(s *Set) (any, any) {
			return s.Models[0].Warmup, &api.WarmupSpec{Recent: new(bool)}
		}},
		{"warm-up", modelWith("warmup: {queries: warmup.jsonl, repeat: 2}"), func(s *Set) (any, any) {
			return s.Models[0].Warmup, &api.WarmupSpec{Queries: "warmup.jsonl", Repeat: 2}
		}},
		{"validation", modelWith("validate: {queries: holdout.jsonl, expect: labels, min_accuracy: 0.9, tolerance: 0.001, extremes: false}"), func(s *Set) (any, any) {
			return s.Models[0].Validation, &api.ValidateSpec{Queries: "holdout.jsonl", Expect: "labels", MinAccuracy: 0.9, Tolerance: 0.001, Extremes: &no}
		}},
		{"validation by the serving version", modelWith("validate: {queries: holdout.jsonl, expect: serving, max_difference: 0.05}"), func(s *Set) (any, any) {
			return s.Models[0].Validation, &api.ValidateSpec{Queries: "holdout.jsonl", Expect: "serving", MaxDifference: 0.05, Extremes: &yes}
		}},
		{"no quality", modelWith(""), func(s *Set) (any, any) {
			return []any{s.Models[0].Warmup == nil, s.Models[0].Validation == nil}, []any{true, true}
		}},
		{"dir", modelWith("dir: models/m"), func(s *Set) (any, any) { return s.Models[0].Dir, "models/m" }},
		{"log", functionWith("log: {sample: 0.1}"), func(s *Set) (any, any) { return s.Functions[0].Log, &api.LogSpec{Sample: 0.1} }},
		{"log of nothing", functionWith("log: {sample: 0}"), func(s *Set) (any, any) { return s.Functions[0].Log, &api.LogSpec{} }},
		{"cors", functionWith("cors: {origins: [https://app.example.com, 'http://localhost:3000'], credentials: true, headers: [X-Tenant], max_age: 1h}"), func(s *Set) (any, any) {
			return s.Functions[0].CORS, &api.CORSSpec{Origins: []string{"https://app.example.com", "http://localhost:3000"}, Credentials: true, Headers: []string{"X-Tenant"}, MaxAge: time.Hour}
		}},
		{"cors of every page", functionWith("cors: {origins: ['*']}"), func(s *Set) (any, any) {
			return s.Functions[0].CORS, &api.CORSSpec{Origins: []string{"*"}, MaxAge: 10 * time.Minute}
		}},
		{"no log", functionWith(""), func(s *Set) (any, any) { return s.Functions[0].Log == nil, true }},
	} {
		t.Run(c.name, func(t *testing.T) {
			set, err := Decode("f.yaml", []byte(c.text))
			if err != nil {
				t.Fatal(err)
			}
			got, want := c.check(set)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestTrafficErrors(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"twice", trafficWith("") + "---\n" + trafficWith(""), `f.yaml:5:7: name: traffic digits is declared twice: first at line 2`},
		{"no name", "kind: Traffic\nserving: 1", `f.yaml:1:1: name: model name is empty`},
		{"versions of another word", trafficWith("versions: latest"), `f.yaml:3:11: versions: "latest" is a string: expected all, {latest: 2} or {specific: [...]}`},
		{"versions of a list", trafficWith("versions: [3, 4]"), `f.yaml:3:11: versions: is a list: expected all, {latest: 2} or {specific: [...]}`},
		{"versions of nothing", trafficWith("versions: {}"), `f.yaml:3:11: versions: is empty: expected all, {latest: 2} or {specific: [...]}`},
		{"versions all of them", trafficWith("versions: {all: true}"), `f.yaml:3:12: versions.all: there is no such field: expected one of latest, specific`},
		{"latest of none", trafficWith("versions: {latest: 0}"), `f.yaml:3:20: versions.latest: 0: expected at least 1`},
		{"specific of none", trafficWith("versions: {specific: []}"), `f.yaml:3:22: versions.specific: is empty: expected versions of the model`},
		{"specific of null", trafficWith("versions: {specific: [~]}"), `f.yaml:3:23: versions.specific[0]: is null: expected a string`},
		{"specific of an empty string", trafficWith("versions: {specific: ['']}"), `f.yaml:3:23: versions.specific[0]: is empty: give it a value or leave it out`},
		{"specific twice", trafficWith("versions: {specific: [1, '1']}"), `f.yaml:3:26: versions.specific[1]: "1" is there twice`},
		{"two version policies", trafficWith("versions: {latest: 1, specific: [1]}"), `f.yaml:3:11: versions: has more than one of all, latest and specific: expected one of them`},
		{"serving of a list", trafficWith("serving: [3]"), `f.yaml:3:10: serving: is a list: expected a string`},
		{"serving of a boolean", trafficWith("serving: true"), `f.yaml:3:10: serving: true is a boolean: expected a string`},
		{"split of a version", trafficWith("split: 4"), `f.yaml:3:8: split: 4 is a number: expected a mapping of fields`},
		{"split of no version", trafficWith("split: {percent: 10}"), `f.yaml:3:8: split.version: is missing: expected a version of the model`},
		{"split of no part", trafficWith("split: {version: 4}"), `f.yaml:3:8: split.percent: 0: expected more than 0 and at most 100 (percent of the queries)`},
		{"split of nothing", trafficWith("split: {version: 4, percent: 0}"), `f.yaml:3:30: split.percent: 0: expected more than 0`},
		{"split of text", trafficWith("split: {version: 4, percent: 10%}"), `f.yaml:3:30: split.percent: "10%" is a string: expected a number`},
		{"shadow of more than all", trafficWith("shadow: {version: 4, percent: 101}"), `f.yaml:3:31: shadow.percent: 101: expected more than 0 and at most 100 (percent of the queries)`},
		{"split and rollout", trafficWith("split: {version: 4, percent: 1}\nrollout: {version: 4}"), `f.yaml:4:10: rollout: is there beside split, and both give answers to another version: leave one of them out`},
		{"policy of a roll-out", trafficWith("rollout: {version: 4, policy: exp4}"), `f.yaml:3:31: rollout.policy: "exp4": expected one that asks one version for each query: exp3, epsilon-greedy, ucb1, thompson, split`},
		{"parameter of a roll-out's policy", trafficWith("rollout: {version: 4, policy: {name: exp3, eta: [1]}}"), `f.yaml:3:49: rollout.policy.eta: is a list: expected a number, true or false, a string, or a mapping of models to numbers`},
		{"guard of nothing", trafficWith("rollout: {version: 4, guard: {max_error_increase: 0}}"), `f.yaml:3:51: rollout.guard.max_error_increase: 0: expected more than 0`},
		{"guard of no feedback", trafficWith("rollout: {version: 4, guard: {min_feedback: 0}}"), `f.yaml:3:45: rollout.guard.min_feedback: 0: expected at least 1`},
		{"field of a guard", trafficWith("rollout: {version: 4, guard: {max_p99: 1}}"), `f.yaml:3:31: rollout.guard.max_p99: there is no such field: expected one of min_feedback, max_error_increase, max_p99_increase`},
		{"labels of a list", trafficWith("labels: [stable]"), `f.yaml:3:9: labels: is a list: expected a mapping of labels to versions`},
		{"label of null", trafficWith("labels: {stable: }"), `f.yaml:3:18: labels.stable: is null: expected a string`},
		{"label of a bad version", trafficWith("labels: {a: 1, b: a b}"), `f.yaml:3:19: labels.b: version "a b": expected letters`},
		{"label of a number", trafficWith("labels: {4: 3}"), `f.yaml:3:10: the key 4 is a number: expected a string`},
		{"label that looks like one", trafficWith("labels: {'4': 3}"), `f.yaml:3:15: labels.4: starts with a digit, as versions do: expected a letter first`},
		{"label of a version of the set", trafficWith("labels: {canary: 1}\n---\n") + strings.Replace(modelWith("version: canary"), "name: m", "name: digits", 1),
			`f.yaml:3:18: labels.canary: model digits@canary has this name: expected a label that no version has for its name`},
		{"rollback to nothing", trafficWith("rollback: {from: 4}"), `f.yaml:3:11: rollback.to: is missing: expected a version of the model`},
		{"rollback to a newer one", trafficWith("rollback: {from: 4, to: 5}"), `f.yaml:3:25: rollback.to: "5" is not older than "4": a rollback goes from a version to an older one`},
		{"field of a model", trafficWith("cost: 1"), `f.yaml:3:1: cost: there is no such field: expected one of kind, name, versions, transition, serving, split, shadow, rollout, labels, rollback`},
		{"warm-up of a file", modelWith("warmup: warmup.jsonl"), `f.yaml:6:9: warmup: "warmup.jsonl" is a string: expected a mapping of fields`},
		{"warm-up of nothing", modelWith("warmup: {}"), `f.yaml:6:9: warmup.queries: is missing: expected a file in the model's directory`},
		{"warm-up that is not repeated", modelWith("warmup: {queries: q, repeat: 0}"), `f.yaml:6:30: warmup.repeat: 0: expected at least 1`},
		{"validation from above", modelWith("validate: {queries: ../q}"), `f.yaml:6:21: validate.queries: "../q" leaves the model's directory: expected a path without ..`},
		{"validation in percent", modelWith("validate: {queries: q, min_accuracy: 90}"), `f.yaml:6:38: validate.min_accuracy: 90: expected 0 to 1`},
		{"extremes", modelWith("validate: {queries: q, extremes: some}"), `f.yaml:6:34: validate.extremes: "some" is a string: expected true or false`},
		{"dir of nothing", modelWith(`dir: ""`), `f.yaml:6:6: dir: is empty: give it a value or leave it out`},
		{"log of a number", functionWith("log: 0.1"), `f.yaml:4:6: log: 0.1 is a number: expected a mapping of fields`},
		{"log of no part", functionWith("log: {}"), `f.yaml:4:6: log.sample: is missing: expected the part of the queries that the inference log takes, from 0 to 1`},
		{"log in percent", functionWith("log: {sample: 10}"), `f.yaml:4:15: log.sample: 10: expected 0 to 1`},
		{"nothing", "# nothing\n", `f.yaml:1:1: declares nothing: expected documents with kind: Model, kind: Function or kind: Traffic`},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Decode("f.yaml", []byte(c.text))
			if err == nil || !strings.HasPrefix(err.Error(), c.want) {
				t.Errorf("got  %v\nwant %q first", err, c.want)
			}
		})
	}
}

// A label means a version, also when a function is checked against the models of its manifest.
func TestLabelsOfFunctions(t *testing.T) {
	two := modelWith("version: 1\n---\n") + strings.Replace(modelWith("version: 2\n---\n"), "float32, shape: [2]", "float32, shape: [3]", 1) +
		"kind: Traffic\nname: m\nlabels: {stable: 1, canary: 2, gone: 3}\n---\n"
	function := func(models string) string {
		return two + "kind: Function\nname: f\nmodels: " + models + "\npolicy: prefer\ndefault: x\n"
	}
	for _, c := range []struct{ models, want string }{
		{"[m@stable]", `default: "x" is a string: expected a number (int64) (outputs of model m@1)`},
		{"[m@2]", `default: "x" is a string: expected a number (int64) (outputs of model m@2)`},
		{"[m@gone]", ""},
		{"[m@unknown]", ""},
		{"[m]", ""}, // two versions, and the serving one is unknown
	} {
		_, err := Decode("f.yaml", []byte(function(c.models)))
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.HasSuffix(err.Error(), c.want)) {
			t.Errorf("%s: got %v, want %q", c.models, err, c.want)
		}
	}
	_, err := Decode("f.yaml", []byte(strings.Replace(function("[m@stable, m@canary]"), "default: x", "default: 1", 1)))
	if want := "models[1]: model m@2 takes other inputs than m@1: x float32[3], not x float32[2]"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %q in it", err, want)
	}
}

func TestTrafficIsLocated(t *testing.T) {
	text := trafficWith("labels:\n  stable: 3\n---\n") + functionWith("")
	set, err := Decode("a.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	all := &Set{Traffic: []api.TrafficSpec{{Model: "first"}}}
	all.Append(set)
	if got, want := all.Index(api.KindTraffic, "digits", ""), 1; got != want {
		t.Fatalf("traffic of digits is object %d, want %d", got, want)
	}
	if got := all.Index(api.KindTraffic, "f", ""); got != -1 {
		t.Errorf("a function was found among the traffic: %d", got)
	}
	for path, want := range map[string]string{"labels.stable": "a.yaml:4:11", "labels.canary": "a.yaml:4:3", "serving": "a.yaml:1:1"} {
		if got := all.Locate(api.KindTraffic, 1, path); got != want {
			t.Errorf("%s: got %q, want %q", path, got, want)
		}
	}
	refused := all.Refuse(api.KindTraffic, 1, api.FieldErrors{{Path: "labels.stable", Message: "there is no version 3"}})
	want := "a.yaml:4:11: traffic digits: labels.stable: there is no version 3"
	if refused == nil || refused.Error() != want {
		t.Errorf("got %v, want %s", refused, want)
	}
	var errs Errors
	if !errors.As(refused, &errs) {
		t.Fatalf("got %T", refused)
	}
	if got := all.Relocate(errs.Problems()).Error(); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got, want := all.Refuse(api.KindTraffic, 0, errors.New("is wrong")).Error(), "traffic first: is wrong"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// A model's dir is relative to the directory of its manifest, wherever that is read from.
func TestDir(t *testing.T) {
	dir := write(t, map[string]string{
		"models.yaml": modelWith("dir: below/m\n---\n") + strings.Replace(modelWith("dir: /elsewhere\n---\n"), "name: m", "name: n", 1) + strings.Replace(modelWith(""), "name: m", "name: o", 1),
	})
	set, err := Load(filepath.Join(dir, "models.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{filepath.Join(dir, "below/m"), "/elsewhere", dir}
	dirs := func(s *Set) (all []string) {
		for i := range s.Models {
			all = append(all, s.Models[i].Dir)
		}
		return all
	}
	if diff := cmp.Diff(want, dirs(set)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if err := set.CheckDirs(); err != nil {
		t.Error(err)
	}

	// The written form means the same in any directory.
	text, err := set.YAML()
	if err != nil {
		t.Fatal(err)
	}
	other := filepath.Join(t.TempDir(), "export.yaml")
	if err := os.WriteFile(other, text, 0o600); err != nil {
		t.Fatal(err)
	}
	again, err := Load(other)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(set, again, cmpopts.IgnoreUnexported(Set{})); diff != "" {
		t.Errorf("(-first +again):\n%s", diff)
	}

	// A relative dir is refused if the manifest's directory is unknown.
	sent, err := Decode("manifest", []byte(modelWith("dir: below/m\n---\n")+functionWith("")))
	if err != nil {
		t.Fatal(err)
	}
	sent.SetDir("")
	if diff := cmp.Diff([]string{"below/m"}, dirs(sent)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	refused := `manifest:6:6: model m@1: dir: "below/m" is relative, and the directory of the manifest is not known: expected an absolute path`
	if err := sent.CheckDirs(); err == nil || err.Error() != refused {
		t.Errorf("got %v, want %s", err, refused)
	}
	sent.SetDir("/here")
	if diff := cmp.Diff([]string{"/here/below/m"}, dirs(sent)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Ten thousand models with all fields can be sent and exported at once.
func TestManyModelsFit(t *testing.T) {
	one, err := Decode("f.yaml", []byte(modelWith("dir: /srv/models/digits/12\nwarmup: {queries: warmup.jsonl}\nvalidate: {queries: holdout.jsonl, min_accuracy: 0.9}\n")))
	if err != nil {
		t.Fatal(err)
	}
	const n = 100 // extrapolated a hundred times
	many := &Set{}
	for i := range n {
		m := one.Models[0]
		m.Version = strconv.Itoa(10000 + i)
		many.Models = append(many.Models, m)
	}
	for _, encode := range []func() ([]byte, error){many.YAML, many.JSON} {
		text, err := encode()
		if err != nil {
			t.Fatal(err)
		}
		if 100*len(text) > MaxBytes {
			t.Errorf("%d models take %d bytes: a hundred times that is more than %d", n, len(text), MaxBytes)
		}
	}
}

func TestTrafficOfADirectory(t *testing.T) {
	dir := write(t, map[string]string{"a.yaml": trafficWith(""), "b.yaml": functionWith("---\n") + strings.Replace(trafficWith(""), "digits", "letters", 1)})
	set, err := Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(set.Traffic) != 2 || set.Traffic[1].Model != "letters" || set.Locate(api.KindTraffic, 1, "name") != filepath.Join(dir, "b.yaml")+":6:7" {
		t.Errorf("got %+v, the second at %s", set.Traffic, set.Locate(api.KindTraffic, 1, "name"))
	}
	if err := os.WriteFile(filepath.Join(dir, "c.yaml"), []byte(trafficWith("")), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(dir); err == nil || !strings.Contains(err.Error(), "c.yaml: traffic digits is declared twice: first in ") {
		t.Errorf("got %v", err)
	}
}

// The manifest in the package documentation is valid.
func TestEssay(t *testing.T) {
	text, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	var example strings.Builder
	for line := range strings.Lines(string(text)) {
		if code, ok := strings.CutPrefix(line, "//\t"); ok {
			example.WriteString(code)
		}
	}
	set, err := Decode("doc.go", []byte(example.String()))
	if err != nil {
		t.Fatal(err)
	}
	if len(set.Models) != 1 || len(set.Functions) != 2 || len(set.Traffic) != 1 {
		t.Errorf("it declares %d models, %d functions and %d models' traffic", len(set.Models), len(set.Functions), len(set.Traffic))
	}
}
