package server

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/registry"
)

// version is the model's manifest with another version, and other replacements.
func version(v string, more ...string) string {
	return strings.NewReplacer(append([]string{`version: "1"`, `version: "` + v + `"`}, more...)...).Replace(model)
}

func mustApply(t *testing.T, s *Server, texts ...string) {
	t.Helper()
	if _, err := s.Apply(context.Background(), decoded(t, strings.Join(texts, "\n---\n")), false); err != nil {
		t.Fatal(err)
	}
}

func serves(s *Server, v string) func() bool {
	return func() bool {
		f := s.families["m"]
		return f != nil && f.serving == v && f.versions[v] != nil && f.versions[v].life.state == registry.Available
	}
}

// stateIs: with the lock held.
func stateIs(s *Server, v string, want registry.State) func() bool {
	return func() bool {
		d := s.models[api.ModelID{Name: "m", Version: v}]
		return d != nil && d.life.state == want
	}
}

// ask sends one query to a function.
func ask(t *testing.T, addr, name string) (int, string) {
	t.Helper()
	resp, err := http.Post("http://"+addr+"/"+name+"/predict", "application/json", strings.NewReader(`{"input":[1,2,3,4]}`))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(body)
}

func TestPromotionKeepsTheLabelsThatFunctionsName(t *testing.T) {
	s, _, addr := alive(t, Config{})
	mustApply(t, s, model, version("2"), "kind: Traffic\nname: m\nserving: \"1\"\nlabels: {stable: \"1\", canary: \"2\"}",
		strings.Replace(fn, "models: [m]", `models: ["m@canary"]`, 1))
	until(t, s, "both are available", func() bool { return serves(s, "1")() && stateIs(s, "2", registry.Available)() })
	if status, body := ask(t, addr, "f"); status != 200 {
		t.Fatalf("before: %d %s", status, body)
	}
	if _, err := s.Promote(context.Background(), "m", "2"); err != nil {
		t.Fatal(err)
	}
	if status, body := ask(t, addr, "f"); status != 200 {
		t.Errorf("after the promotion function f is answered %d %s", status, body)
	}
}

// A new version must fit the rules that are in force, as it must fit functions.
func TestANewVersionMustFitTheTrafficRulesOfTheModel(t *testing.T) {
	s, _, _ := alive(t, Config{})
	mustApply(t, s, model, version("2"), "kind: Traffic\nname: m\nsplit: {version: \"2\", percent: 50}", strings.Replace(fn, "default: -1", "", 1))
	until(t, s, "the split is in force", func() bool { return s.families["m"].rules.live != nil })
	_, err := s.Apply(context.Background(), decoded(t, version("3", "shape: [4]", "shape: [9]", "dtype: int64, shape: []", "dtype: float32, shape: [3]")), false)
	if err != nil {
		return // it is refused
	}
	until(t, s, "3 serves", serves(s, "3"))
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.families["m"].rules.live; r != nil {
		t.Errorf("a part of the queries to m@%s, which takes %v, goes to m@%s, which takes %v", r.serving, s.models[api.ModelID{Name: "m", Version: r.serving}].spec().Inputs, r.other, s.models[api.ModelID{Name: "m", Version: r.other}].spec().Inputs)
	}
}

// What a roll-out has learned is not lost while the serving version is without a replica for a moment, and an older one answers.
func TestARolloutOutlivesAMomentWithoutTheServingVersion(t *testing.T) {
	s, _, _ := alive(t, Config{})
	mustApply(t, s, model, version("2"), version("3"), "kind: Traffic\nname: m\nrollout: {version: \"3\"}")
	inForce := func() bool {
		r := s.families["m"].rules.live
		return serves(s, "2")() && r != nil && r.serving == "2" && r.other == "3"
	}
	until(t, s, "the roll-out is in force", inForce)
	s.mu.Lock()
	s.families["m"].rules.live.rule.Other.Queries.Add(100)
	d := s.models[api.ModelID{Name: "m", Version: "2"}]
	s.mu.Unlock()
	d.model.Ready.Add(-1)
	s.noted("m")
	until(t, s, "1 serves meanwhile", serves(s, "1"))
	d.model.Ready.Add(1)
	s.noted("m")
	until(t, s, "the roll-out is in force again", inForce)
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := s.families["m"].rules.live.rule.Other.Queries.Load(); n != 100 {
		t.Errorf("of 100 queries that 3 has answered %d are known", n)
	}
}

// One replica that is replaced is no reason to give a version up for good.
func TestARolloutOutlivesOneRestartOfTheNewVersion(t *testing.T) {
	s, _, _ := alive(t, Config{})
	mustApply(t, s, model, version("2"), "kind: Traffic\nname: m\nserving: \"1\"\nrollout: {version: \"2\"}")
	until(t, s, "the roll-out is in force", func() bool { return s.families["m"].rules.live != nil })
	s.mu.Lock()
	d := s.models[api.ModelID{Name: "m", Version: "2"}]
	s.mu.Unlock()
	d.model.Ready.Add(-1) // its worker has asked to be replaced
	over := s.judgeRollouts()
	d.model.Ready.Add(1)
	if len(over) > 0 {
		t.Errorf("%+v: its only replica was replaced", over)
	}
}
