package server

import (
	"context"
	"strings"
	"testing"

	"github.com/xebec-serving/xebec/gateway/registry"
)

// inForce is a condition: a version of m gets a part of the queries of another.
func inForce(s *Server, serving, other string) func() bool {
	return func() bool {
		defer s.catalog.Unlock()
		f := s.catalog.Lock().Family("m")
		if f == nil || f.Serving != serving {
			return false
		}
		_, v := f.Live()
		return v != nil && v.ID().Version == other
	}
}

func TestPromotionKeepsTheLabelsThatFunctionsName(t *testing.T) {
	s, _, addr := alive(t, Config{})
	mustApply(t, s, model, version("2"), "kind: Traffic\nname: m\nserving: \"1\"\nlabels: {stable: \"1\", canary: \"2\"}",
		strings.Replace(fn, "models: [m]", `models: ["m@canary"]`, 1))
	until(t, "both are available", func() bool { return serves(s, "1")() && stateIs(s, "2", registry.Available)() })
	if status, body := ask(t, addr, "f"); status != 200 {
		t.Fatalf("before: %d %s", status, body)
	}
	if _, err := s.declared.Promote(context.Background(), "m", "2"); err != nil {
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
	until(t, "the split is in force", inForce(s, "1", "2"))
	_, err := s.Apply(context.Background(), decoded(t, version("3", "shape: [4]", "shape: [9]", "dtype: int64, shape: []", "dtype: float32, shape: [3]")), false)
	if err != nil {
		return // it is refused
	}
	until(t, "3 serves", serves(s, "3"))
	defer s.catalog.Unlock()
	f := s.catalog.Lock().Family("m")
	if r, other := f.Live(); r != nil && !other.Spec().SameSignature(f.Answering().Spec()) {
		t.Errorf("a part of the queries to %s, which takes %v, goes to %s, which takes %v", f.Answering().ID(), f.Answering().Spec().Inputs, other.ID(), other.Spec().Inputs)
	}
}

// A roll-out keeps its counters while the serving version is without a replica for a moment, and an older one answers.
func TestARolloutOutlivesAMomentWithoutTheServingVersion(t *testing.T) {
	s, rt, _ := alive(t, Config{})
	mustApply(t, s, model, version("2"), version("3"), "kind: Traffic\nname: m\nrollout: {version: \"3\"}")
	until(t, "the roll-out is in force", inForce(s, "2", "3"))
	r, _ := s.catalog.Lock().Family("m").Live()
	s.catalog.Unlock()
	r.Rule.Other.Queries.Add(100)
	rt.crash("m", "2")
	until(t, "1 serves meanwhile", serves(s, "1"))
	rt.connects(t, "m", "2")
	until(t, "the roll-out is in force again", inForce(s, "2", "3"))
	all, err := s.declared.Traffic(context.Background(), "m")
	if err != nil {
		t.Fatal(err)
	}
	for _, arm := range all[0].Arms {
		if arm.Version == "3" && arm.Queries != 100 {
			t.Errorf("3 has answered %d queries, expected 100: %+v", arm.Queries, all[0].Arms)
		}
	}
}

// One replica that is replaced is no reason to take a version back.
func TestARolloutOutlivesOneRestartOfTheNewVersion(t *testing.T) {
	s, rt, _ := alive(t, Config{})
	mustApply(t, s, model, version("2"), "kind: Traffic\nname: m\nserving: \"1\"\nrollout: {version: \"2\"}")
	until(t, "the roll-out is in force", inForce(s, "1", "2"))
	rt.crash("m", "2")
	until(t, "2 has no replica", func() bool { return deployed(s, "m", "2").Ready() == 0 })
	if over := s.catalog.JudgeRollouts(); len(over) > 0 {
		t.Errorf("%+v: its only replica was replaced", over)
	}
	rt.connects(t, "m", "2")
}
