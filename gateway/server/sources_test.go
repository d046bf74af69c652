package server

import (
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/registry"
	"github.com/xebec-serving/xebec/gateway/registry/watch"
)

// reported is what a watched directory would report that has these declarations.
func reported(t *testing.T, texts ...string) watch.Report {
	t.Helper()
	set := decoded(t, strings.Join(texts, "\n---\n"))
	r := watch.Report{Models: map[string][]api.ModelSpec{}, Functions: set.Functions, Complete: true}
	for _, m := range set.Models {
		r.Models[m.Name] = append(r.Models[m.Name], m)
	}
	return r
}

// watching is a server with a watched directory that only the test reports of.
func watching(t *testing.T) (*Server, *liveRuntime, string, *watched) {
	s, rt, addr := alive(t, Config{})
	w := &watched{dir: "/models", seen: true}
	s.mu.Lock()
	s.watching = append(s.watching, w)
	s.mu.Unlock()
	return s, rt, addr, w
}

func problemsOf(s *Server, w *watched) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(w.problems, "\n")
}

// A new version in a watched directory must not change what a function with several models takes or returns.
func TestAWatchedVersionMustFitTheFunctionsThatWillUseIt(t *testing.T) {
	s, _, _, w := watching(t)
	s.aspire(w, reported(t, model))
	other := strings.Replace(model, "name: m", "name: n", 1)
	mustApply(t, s, other, "kind: Function\nname: both\nmodels: [n, m]\npolicy: {name: exp4}")
	s.aspire(w, reported(t, model, version("2", "dtype: int64, shape: []", "dtype: float32, shape: [3]")))
	until(t, s, "version 2 is judged", func() bool {
		d := s.models[api.ModelID{Name: "m", Version: "2"}]
		return d == nil || d.life.state == registry.Available || len(w.problems) > 0
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	a, b := s.resolveLocked("n").spec(), s.resolveLocked("m").spec()
	if !sameSignature(a, b) {
		t.Errorf("function both has the candidates %v with outputs %v and %v with outputs %v; problems: %q", a.ID(), a.Outputs, b.ID(), b.Outputs, w.problems)
	}
}

// A function that a newer version declares wrongly stays as it was.
func TestABrokenFunctionInAWatchedDirectoryLeavesTheOldOneServing(t *testing.T) {
	s, _, addr, w := watching(t)
	s.aspire(w, reported(t, model, fn))
	until(t, s, "1 serves", serves(s, "1"))
	if status, body := ask(t, addr, "f"); status != 200 {
		t.Fatalf("before: %d %s", status, body)
	}
	s.aspire(w, reported(t, model, version("2"), strings.Replace(fn, "models: [m]", "models: [nobody]", 1)))
	if status, body := ask(t, addr, "f"); status != 200 || problemsOf(s, w) == "" {
		t.Errorf("afterwards: %d %s; problems %q", status, body, problemsOf(s, w))
	}
}

func TestAWatchedFunctionMayNameALabel(t *testing.T) {
	s, _, _, w := watching(t)
	s.aspire(w, reported(t, model))
	mustApply(t, s, "kind: Traffic\nname: m\nlabels: {stable: \"1\"}")
	s.aspire(w, reported(t, model, strings.Replace(fn, "models: [m]", `models: ["m@stable"]`, 1)))
	if p := problemsOf(s, w); p != "" {
		t.Errorf("problems: %s", p)
	}
}

// Who applies, or scales, what a watched directory declares is told which file to edit.
func TestAWatchedModelIsChangedInItsFile(t *testing.T) {
	dir := t.TempDir()
	s, _, _ := alive(t, Config{Models: []string{dir}, ModelsEvery: 5 * time.Millisecond})
	put(t, dir, "m/1", model)
	until(t, s, "the directory's version serves", serves(s, "1"))
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

// What a problem says is to be removed, is removed: then the other one serves.
func TestAWatchedModelComesWhenTheAppliedOneOfItsNameIsDeleted(t *testing.T) {
	dir := t.TempDir()
	s, _, _ := alive(t, Config{Models: []string{dir}, ModelsEvery: 5 * time.Millisecond})
	mustApply(t, s, model)
	put(t, dir, "m/2", version("2"))
	until(t, s, "the directory's is refused", func() bool { return strings.Contains(strings.Join(s.watching[0].problems, " "), "by apply already") })
	if _, err := s.Delete(context.Background(), api.KindModel, api.ModelID{Name: "m"}); err != nil {
		t.Fatal(err)
	}
	until(t, s, "the directory's version serves", serves(s, "2"))
}

// A function of a watched directory whose model is applied later comes then.
func TestAWatchedFunctionComesWithTheModelThatItNeeds(t *testing.T) {
	dir := t.TempDir()
	s, _, _ := alive(t, Config{Models: []string{dir}, ModelsEvery: 5 * time.Millisecond})
	put(t, dir, "m/1", model+strings.Replace(fn, "models: [m]", "models: [m, n]\npolicy: {name: exp3}", 1))
	until(t, s, "the function's problem is seen", func() bool { return strings.Contains(strings.Join(s.watching[0].problems, " "), "there is no model n") })
	mustApply(t, s, strings.Replace(model, "name: m", "name: n", 1))
	until(t, s, "the function is there", func() bool { return s.functions["f"] != nil })
}

func put(t *testing.T, dir, version, text string) {
	t.Helper()
	at := filepath.Join(dir, version)
	if err := os.MkdirAll(at, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(at, "xebec.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// A version's name comes before a label of the same name, for functions and for requests that address the model alike.
func TestAVersionComesBeforeALabelOfItsName(t *testing.T) {
	s, _, addr, w := watching(t)
	s.aspire(w, reported(t, model))
	mustApply(t, s, "kind: Traffic\nname: m\nversions: all\nlabels: {canary: \"1\"}")
	s.aspire(w, reported(t, version("canary"), model))
	until(t, s, "canary is available, or refused", func() bool { return stateIs(s, "canary", registry.Available)() || len(w.problems) > 0 })
	if problemsOf(s, w) != "" {
		return // a version that would take a label's name is not taken, and the problem says why
	}
	resp, err := http.Post("http://"+addr+"/v2/models/m/versions/canary/infer", "application/json",
		strings.NewReader(`{"inputs":[{"name":"input","datatype":"FP32","shape":[1,4],"data":[1,2,3,4]}]}`))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	if !strings.Contains(string(body), `"model_version":"canary"`) {
		t.Errorf("m@canary answers %s: expected the version of that name", body)
	}
}

// A function keeps its default when the version that it names is removed from its directory.
func TestAFunctionWhoseWatchedVersionIsRemovedStillAnswers(t *testing.T) {
	s, _, addr, w := watching(t)
	s.aspire(w, reported(t, model, version("2")))
	mustApply(t, s, strings.Replace(fn, "models: [m]", `models: ["m@2"]`, 1))
	until(t, s, "2 serves", serves(s, "2"))
	if status, body := ask(t, addr, "f"); status != 200 {
		t.Fatalf("before: %d %s", status, body)
	}
	s.aspire(w, reported(t, model))
	until(t, s, "2 is unloaded", func() bool {
		d := s.models[api.ModelID{Name: "m", Version: "2"}]
		return d == nil || d.life.state == registry.Declared
	})
	if status, body := ask(t, addr, "f"); status != 200 {
		t.Errorf("afterwards: %d %s; problems %q", status, body, problemsOf(s, w))
	}
}
