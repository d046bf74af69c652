package server

import (
	"testing"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/registry"
)

// loadingBeside serves version 1 and answers a query of it while version 2, declared with more, loads. Version 2 evaluates nothing until the
// returned function is called.
func loadingBeside(t *testing.T, more string) (s *Server, rt *liveRuntime, connect, answer func()) {
	t.Helper()
	s, rt, addr := alive(t, Config{})
	mustApply(t, s, model, fn)
	until(t, "1 serves", serves(s, "1"))
	two, hang := api.ModelID{Name: "m", Version: "2"}, make(chan struct{})
	rt.set(func() { rt.dumb[two], rt.hang[two] = true, hang })
	mustApply(t, s, version("2")+more)
	until(t, "2 loads", func() bool { return stateIs(s, "2", registry.Loading)() && len(rt.processes("m", "2")) > 0 })
	if code, body := ask(t, addr, "f"); code != 200 {
		t.Fatalf("a query while 2 loads: %d, %s", code, body)
	}
	return s, rt, func() { rt.connects(t, "m", "2") }, func() { close(hang) }
}

// A version that loads beside a serving one first evaluates queries that the other one has answered meanwhile.
func TestAVersionRehearsesBeforeItTakesOver(t *testing.T) {
	s, _, connect, answer := loadingBeside(t, "")
	connect()
	until(t, "2 is asked", func() bool { return stateIs(s, "2", registry.Validating)() && held(deployed(s, "m", "2")) > 0 })
	if !serves(s, "1")() {
		t.Error("1 does not serve while 2 rehearses")
	}
	answer()
	until(t, "2 serves", serves(s, "2"))
	if r := versionStatus(t, s, "2").Version.Rehearsal; r == nil || r.Recent != 1 || r.Replicas != 1 || r.Evaluated < 2 || r.Failed != 0 || r.Reason != "" || r.At.IsZero() {
		t.Errorf("rehearsal %+v: expected several evaluations of one query on one replica", r)
	}
	if deployed(s, "m", "1").Model().Recent.Load() != nil {
		t.Error("queries are still collected")
	}
}

// Nothing of a rehearsal decides whether the version serves.
func TestAVersionThatFailsItsRehearsalTakesOver(t *testing.T) {
	s, rt, connect, answer := loadingBeside(t, "")
	rt.set(func() { rt.fail[api.ModelID{Name: "m", Version: "2"}] = true })
	connect()
	answer()
	until(t, "2 serves", serves(s, "2"))
	if r := versionStatus(t, s, "2").Version.Rehearsal; r == nil || r.Failed == 0 || r.Failed != r.Evaluated {
		t.Errorf("rehearsal %+v: expected evaluations without an answer", r)
	}
}

func TestAVersionThatMustNotRehearse(t *testing.T) {
	s, _, connect, answer := loadingBeside(t, "warmup: {recent: false}\n")
	defer answer()
	connect()
	until(t, "2 serves without an answer", serves(s, "2"))
	if r := versionStatus(t, s, "2").Version.Rehearsal; r != nil {
		t.Errorf("rehearsal %+v: expected none", r)
	}
}

// Without queries there is nothing to rehearse, and nothing is waited for.
func TestAVersionWithoutQueriesDoesNotRehearse(t *testing.T) {
	s, rt, _ := alive(t, Config{})
	mustApply(t, s, model, fn)
	until(t, "1 serves", serves(s, "1"))
	hang := make(chan struct{})
	defer close(hang)
	rt.set(func() { rt.hang[api.ModelID{Name: "m", Version: "2"}] = hang })
	mustApply(t, s, version("2"))
	until(t, "2 serves", serves(s, "2"))
}
