package server

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/registry"
)

// watching is a gateway that watches a directory of models.
func watching(t *testing.T) (s *Server, addr, dir string) {
	t.Helper()
	dir = t.TempDir()
	s, _, addr = alive(t, Config{Models: []string{dir}, ModelsEvery: 5 * time.Millisecond})
	return s, addr, dir
}

// problems are what could not be taken of watched directories.
func problems(t *testing.T, s *Server) string {
	t.Helper()
	g, err := s.status.Gateway(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, source := range g.Sources[1:] {
		all = append(all, source.Problems...)
	}
	return strings.Join(all, "\n")
}

// A new version in a watched directory must not change what a function with several models takes or returns.
func TestAWatchedVersionMustFitTheFunctionsThatWillUseIt(t *testing.T) {
	s, _, dir := watching(t)
	put(t, dir, "m/1", model)
	until(t, "1 serves", serves(s, "1"))
	mustApply(t, s, strings.Replace(model, "name: m", "name: n", 1), "kind: Function\nname: both\nmodels: [n, m]\npolicy: {name: exp4}")
	put(t, dir, "m/2", version("2", "dtype: int64, shape: []", "dtype: float32, shape: [3]"))
	until(t, "version 2 is judged", func() bool { return stateIs(s, "2", registry.Available)() || problems(t, s) != "" })
	defer s.catalog.Unlock()
	state := s.catalog.Lock()
	if a, b := state.Resolve("n").Spec(), state.Resolve("m").Spec(); !a.SameSignature(b) {
		t.Errorf("function both has the candidates %v with outputs %v and %v with outputs %v", a.ID(), a.Outputs, b.ID(), b.Outputs)
	}
}

// A function that a newer version declares wrongly stays as it was.
func TestABrokenFunctionInAWatchedDirectoryLeavesTheOldOneServing(t *testing.T) {
	s, addr, dir := watching(t)
	put(t, dir, "m/1", model+fn)
	until(t, "1 serves", serves(s, "1"))
	if status, body := ask(t, addr, "f"); status != 200 {
		t.Fatalf("before: %d %s", status, body)
	}
	put(t, dir, "m/2", version("2")+strings.Replace(fn, "models: [m]", "models: [unknown]", 1))
	until(t, "the problem is seen", func() bool { return strings.Contains(problems(t, s), "function f: ") })
	if status, body := ask(t, addr, "f"); status != 200 {
		t.Errorf("afterwards: %d %s; problems %q", status, body, problems(t, s))
	}
}

func TestAWatchedFunctionMayNameALabel(t *testing.T) {
	s, _, dir := watching(t)
	put(t, dir, "m/1", model)
	until(t, "1 serves", serves(s, "1"))
	mustApply(t, s, "kind: Traffic\nname: m\nlabels: {stable: \"1\"}")
	put(t, dir, "m/1", model+strings.Replace(fn, "models: [m]", `models: ["m@stable"]`, 1))
	until(t, "the function is there, or refused", func() bool {
		_, err := s.Functions(context.Background(), "f")
		return err == nil || problems(t, s) != ""
	})
	if p := problems(t, s); p != "" {
		t.Errorf("problems: %s", p)
	}
}

// The error of applying or scaling a watched model names the file to edit.
func TestAWatchedModelIsChangedInItsFile(t *testing.T) {
	s, _, dir := watching(t)
	put(t, dir, "m/1", model)
	until(t, "the directory's version serves", serves(s, "1"))
	for text, want := range map[string]string{
		strings.Replace(model, "max: 2", "max: 3", 1): "edit replicas in " + filepath.Join(dir, "m/1/xebec.yaml") + ", which the gateway follows",
		model + "batching: {policy: none}":            "edit " + filepath.Join(dir, "m/1/xebec.yaml"),
		version("2"):                                  "put the version there, or give this model another name",
	} {
		_, err := s.Apply(t.Context(), decoded(t, text), false)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "watched directory "+dir) {
			t.Errorf("%s\nis answered by %v: expected %q", text, err, want)
		}
	}
}

// A watched model that an applied one displaces comes when that is deleted, as its problem says.
func TestAWatchedModelComesWhenTheAppliedOneOfItsNameIsDeleted(t *testing.T) {
	s, _, dir := watching(t)
	mustApply(t, s, model)
	put(t, dir, "m/2", version("2"))
	until(t, "the directory's is refused", func() bool { return strings.Contains(problems(t, s), "by apply already") })
	if _, err := s.Delete(context.Background(), api.KindModel, api.ModelID{Name: "m"}); err != nil {
		t.Fatal(err)
	}
	until(t, "the directory's version serves", serves(s, "2"))
}

// A function of a watched directory whose model is applied later comes then.
func TestAWatchedFunctionComesWithTheModelThatItNeeds(t *testing.T) {
	s, _, dir := watching(t)
	put(t, dir, "m/1", model+strings.Replace(fn, "models: [m]", "models: [m, n]\npolicy: {name: exp3}", 1))
	until(t, "the function's problem is seen", func() bool { return strings.Contains(problems(t, s), "there is no model n") })
	mustApply(t, s, strings.Replace(model, "name: m", "name: n", 1))
	until(t, "the function is there", func() bool { _, err := s.Functions(context.Background(), "f"); return err == nil })
}

// A version's name comes before a label of the same name, for functions and for requests that address the model alike.
func TestAVersionComesBeforeALabelOfItsName(t *testing.T) {
	s, addr, dir := watching(t)
	put(t, dir, "m/1", model)
	until(t, "1 serves", serves(s, "1"))
	mustApply(t, s, "kind: Traffic\nname: m\nversions: all\nlabels: {canary: \"1\"}")
	put(t, dir, "m/canary", version("canary"))
	until(t, "canary is available, or refused", func() bool { return stateIs(s, "canary", registry.Available)() || problems(t, s) != "" })
	if problems(t, s) != "" {
		return // a version that would take a label's name is not taken, and the problem says why
	}
	_, body := post(t, addr, "/v2/models/m/versions/canary/infer", `{"inputs":[{"name":"input","datatype":"FP32","shape":[1,4],"data":[1,2,3,4]}]}`)
	if !strings.Contains(body, `"model_version":"canary"`) {
		t.Errorf("m@canary answers %s: expected the version of that name", body)
	}
}

// A function answers with its default when the version that it names is removed from its directory.
func TestAFunctionWhoseWatchedVersionIsRemovedStillAnswers(t *testing.T) {
	s, addr, dir := watching(t)
	put(t, dir, "m/1", model)
	put(t, dir, "m/2", version("2"))
	until(t, "2 serves", serves(s, "2"))
	mustApply(t, s, strings.Replace(fn, "models: [m]", `models: ["m@2"]`, 1))
	if status, body := ask(t, addr, "f"); status != 200 {
		t.Fatalf("before: %d %s", status, body)
	}
	if err := os.RemoveAll(filepath.Join(dir, "m/2")); err != nil {
		t.Fatal(err)
	}
	until(t, "2 is unloaded", func() bool { return deployed(s, "m", "2") == nil || stateIs(s, "2", registry.Declared)() })
	if status, body := ask(t, addr, "f"); status != 200 {
		t.Errorf("afterwards: %d %s; problems %q", status, body, problems(t, s))
	}
}
