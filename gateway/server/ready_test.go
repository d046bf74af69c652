package server

import (
	"strings"
	"testing"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/registry"
)

// At a start with a newest version that does not start, the gateway is ready when the one before it has a replica, and not in the moment in
// which the newest has failed and the other one has not begun.
func TestReadyWaitsForTheVersionBefore(t *testing.T) {
	cfg := Config{DataDir: t.TempDir()}
	broken := api.ModelID{Name: "m", Version: "2"}
	s, rt, _, stop := aliveUntil(t, cfg)
	mustApply(t, s, model+fn)
	until(t, "1 serves", serves(s, "1"))
	rt.set(func() { rt.exits[broken] = true })
	mustApply(t, s, version("2"))
	stop()

	s, rt, _, _ = aliveUntil(t, cfg, func(rt *liveRuntime) {
		rt.dumb[broken], rt.dumb[api.ModelID{Name: "m", Version: "1"}] = true, true
	})
	until(t, "2 is started", func() bool { return len(rt.processes("m", "2")) > 0 })
	until(t, "1 is kept asleep", stateIs(s, "1", registry.Available))
	v := deployed(s, "m", "2")
	state := s.catalog.Lock() // no version takes a step
	rt.set(func() { rt.exits[broken] = true })
	for _, p := range rt.processes("m", "2") {
		p.end(1)
	}
	until(t, "2 has failed", v.Failed)
	if waiting := strings.Join(state.Waiting(), " "); waiting != "m@1" {
		t.Errorf("the gateway waits for %q", waiting)
	}
	s.catalog.Unlock()
	if ok, why := s.Ready(); ok {
		t.Errorf("it is ready before a version answers: %s", why)
	}
	rt.connects(t, "m", "1")
	until(t, "it is ready", func() bool { ok, _ := s.Ready(); return ok })
	if !serves(s, "1")() {
		t.Error("1 does not serve")
	}
}

// Where no version of a model starts, and where models sleep, the gateway is ready.
func TestReadyDoesNotWaitForWhatDoesNotCome(t *testing.T) {
	cfg := Config{DataDir: t.TempDir()}
	s, _, _, stop := aliveUntil(t, cfg)
	asleep := strings.NewReplacer("name: m", "name: n", "min: 1", "min: 0").Replace(model)
	mustApply(t, s, model, version("2"), asleep, strings.Replace(asleep, `"1"`, `"2"`, 1))
	until(t, "2 serves", serves(s, "2"))
	stop()
	s, _, _, _ = aliveUntil(t, cfg, func(rt *liveRuntime) {
		rt.exits[api.ModelID{Name: "m", Version: "1"}], rt.exits[api.ModelID{Name: "m", Version: "2"}] = true, true
	})
	until(t, "it is ready", func() bool { ok, _ := s.Ready(); return ok })
}
