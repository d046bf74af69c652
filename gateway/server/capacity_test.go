package server

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/registry"
)

// A model that may sleep has no replica until a query comes, answers it, and has none again after its idle time.
func TestSleepsAndWakes(t *testing.T) {
	s, _, addr := alive(t, Config{})
	mustApply(t, s, sleeper("m", "replicas: {min: 0, max: 2, idle: 300ms}"), `{kind: Function, name: m, models: [m], slo: 20ms}`)
	until(t, "the version to be available", stateIs(s, "1", registry.Available))
	if st := modelStatus(t, s, "m"); st.State != api.ModelIdle || len(st.Replicas) != 0 {
		t.Fatalf("at first: %s, %d replicas", st.State, len(st.Replicas))
	}
	for range 2 {
		if code, body := ask(t, addr, "m"); code != http.StatusOK || !strings.Contains(body, `"output":1`) {
			t.Fatalf("asked a model that sleeps: %d %s", code, body)
		}
		until(t, "it sleeps again", func() bool { return running(s, "m") == 0 })
	}
	st := modelStatus(t, s, "m")
	if st.Capacity.ColdStarts != nil && st.Capacity.ColdStarts.Count > 2 || st.Capacity.Wanted != 0 {
		t.Errorf("capacity %+v, %+v", st.Capacity, st.Capacity.ColdStarts)
	}
}

// Queries that come together for a sleeping model start one replica, and all are answered.
func TestManyWakeAtOnce(t *testing.T) {
	s, rt, addr := alive(t, Config{})
	mustApply(t, s, sleeper("m", "replicas: {min: 0, max: 1}"), `{kind: Function, name: m, models: [m], slo: 10s}`)
	var wg sync.WaitGroup
	for range 64 {
		wg.Go(func() {
			if code, body := ask(t, addr, "m"); code != http.StatusOK {
				t.Errorf("%d %s", code, body)
			}
		})
	}
	wg.Wait()
	if n := rt.launches(); n > 1 {
		t.Errorf("%d replicas were started", n)
	}
}

// A sleeping candidate is passed over for one that is awake, and woken for later queries.
func TestFallbackWakesThePreferred(t *testing.T) {
	const both = `{kind: Function, name: f, models: [best, other], policy: prefer, slo: 1s}`
	best := api.ModelID{Name: "best", Version: "1"}
	for _, connects := range []bool{false, true} {
		t.Run(fmt.Sprintf("connects %v", connects), func(t *testing.T) {
			s, rt, addr := alive(t, Config{})
			rt.set(func() { rt.dumb[best] = !connects })
			mustApply(t, s, sleeper("best", "replicas: {min: 0, max: 1}"), sleeper("other"), both)
			until(t, "the other to run", func() bool { return deployed(s, "other", "1").Ready() == 1 })
			code, body := ask(t, addr, "f")
			if code != http.StatusOK || !connects && !strings.Contains(body, "other") { // else the best one may have been fast enough
				t.Fatalf("%d %s", code, body)
			}
			until(t, "the best one to be started", func() bool { return running(s, "best") == 1 })
			for late := time.Now().Add(testTimeout); connects && !strings.Contains(body, "best"); { // a plan or two later
				if code, body = ask(t, addr, "f"); code != http.StatusOK || time.Now().After(late) {
					t.Fatalf("%d %s", code, body)
				}
			}
		})
	}
}

// A function with a default answers with it at its objective, and the model wakes all the same.
func TestDefaultWhileItWakes(t *testing.T) {
	s, rt, addr := alive(t, Config{})
	rt.set(func() { rt.dumb[api.ModelID{Name: "m", Version: "1"}] = true })
	mustApply(t, s, sleeper("m", "replicas: {min: 0, max: 1}"), `{kind: Function, name: m, models: [m], slo: 20ms, default: 7}`)
	code, body := ask(t, addr, "m")
	if code != http.StatusOK || !strings.Contains(body, `"output":7`) || !strings.Contains(body, `"default":true`) {
		t.Fatalf("%d %s", code, body)
	}
	until(t, "a replica to be started", func() bool { return running(s, "m") == 1 })
}

// Replicas are started as far as the node has room. A version that waits for room says why, and gets its replica when there is.
func TestNoRoom(t *testing.T) {
	s, _, _ := alive(t, Config{NodeMemoryBytes: 1 << 30, NodeCPU: 4})
	mustApply(t, s, sleeper("first", "resources: {memory: 700MiB}"), sleeper("second", "resources: {memory: 700MiB}"))
	until(t, "the first to run", func() bool { return running(s, "first") == 1 })
	until(t, "the second to be short", func() bool {
		c := modelStatus(t, s, "second").Capacity
		return c.Wanted == 1 && c.Granted == 0
	})
	st := modelStatus(t, s, "second")
	if len(st.Replicas) != 0 || !strings.Contains(st.Capacity.ShortWhy, "700 MiB") {
		t.Errorf("%d replicas, %q", len(st.Replicas), st.Capacity.ShortWhy)
	}
	until(t, "readiness not to wait for a version that has no room", func() bool { ready, _ := s.Ready(); return ready })
	if _, err := s.Delete(context.Background(), api.KindModel, api.ModelID{Name: "first"}); err != nil {
		t.Fatal(err)
	}
	until(t, "the second to get its room", func() bool { return running(s, "second") == 1 })
}

// A model that could never run here is refused when it is declared.
func TestLargerThanTheNode(t *testing.T) {
	s, _, _ := alive(t, Config{NodeMemoryBytes: 1 << 30, NodeCPU: 4})
	for more, want := range map[string]string{
		"resources: {memory: 2GiB}": "resources.memory: a replica takes 2GiB, this node has 1024 MiB",
		"resources: {cpu: 8}":       "resources.cpu: a replica takes 8 cores, this node has 4",
		"resources: {gpu: 60}":      "resources.gpu: a replica takes 60 GPUs",
	} {
		_, err := s.Apply(context.Background(), decoded(t, sleeper("m", more)), false)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, expected %q", more, err, want)
		}
	}
}

// Where there is no room, a model with queries takes that of an idle one.
func TestIdleModelsGiveWay(t *testing.T) {
	s, _, addr := alive(t, Config{NodeMemoryBytes: 1 << 30, NodeCPU: 4})
	idle := "replicas: {min: 0, max: 1, idle: 1h}\nresources: {memory: 700MiB}"
	mustApply(t, s, sleeper("first", idle), sleeper("second", idle), `{kind: Function, name: first, models: [first], slo: 20ms}
---
{kind: Function, name: second, models: [second], slo: 20ms, cold_start: 30s}
`)
	if code, body := ask(t, addr, "first"); code != http.StatusOK {
		t.Fatalf("%d %s", code, body)
	}
	if code, body := ask(t, addr, "second"); code != http.StatusOK {
		t.Fatalf("%d %s", code, body)
	}
	until(t, "the first to have given way", func() bool { return running(s, "first") == 0 && running(s, "second") == 1 })
}

// A running version follows new bounds at once.
func TestBoundsChange(t *testing.T) {
	s, _, _ := alive(t, Config{})
	mustApply(t, s, sleeper("m"))
	until(t, "one replica", func() bool { return running(s, "m") == 1 })
	mustApply(t, s, sleeper("m", "replicas: {min: 3, max: 3}"))
	until(t, "three", func() bool { return running(s, "m") == 3 })
	mustApply(t, s, sleeper("m", "replicas: {min: 0, max: 3, idle: 1ms, window: 1s, delay: 1ms}"))
	until(t, "none", func() bool { return running(s, "m") == 0 })
	mustApply(t, s, sleeper("m", "replicas: {min: 1, max: 1}"))
	until(t, "one again", func() bool { return running(s, "m") == 1 })
}

// Replicas are started before the queries that an operator expects.
func TestHintWakes(t *testing.T) {
	s, _, _ := alive(t, Config{})
	from, to := time.Now().Add(-time.Minute).UTC().Format(time.RFC3339), time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
	mustApply(t, s, sleeper("m", "replicas: {min: 0, max: 2, idle: 1ms}", fmt.Sprintf("expect: {rate: 10, from: %s, to: %s}", from, to)))
	until(t, "it to be awake", func() bool { return running(s, "m") >= 1 })
}

// A query that reaches the lane just as the last replica goes wakes the model. The pause between queries is about the idle time, so
// the model falls asleep around each of them.
func TestQueriesAroundTheIdleTimeAreAnswered(t *testing.T) {
	s, rt, addr := alive(t, Config{})
	mustApply(t, s, sleeper("m", "replicas: {min: 0, max: 1, idle: 50ms}"), `{kind: Function, name: m, models: [m], slo: 5s}`)
	rt.set(func() { rt.takes[api.ModelID{Name: "m", Version: "1"}] = 2 * time.Millisecond })
	for range 30 {
		if code, body := ask(t, addr, "m"); code != http.StatusOK {
			t.Fatalf("%d %s", code, body)
		}
		pause := time.NewTimer(45 * time.Millisecond)
		<-pause.C
	}
}

// A replica is known after so many batches, as in package capacity.
const knownBatches = 16

// The status of a sleeping model has the profile of its last replicas.
func TestASleepingModelKeepsItsProfile(t *testing.T) {
	s, rt, addr := alive(t, Config{})
	// The workers say a microsecond, which is believed if it has passed.
	rt.set(func() { rt.takes[api.ModelID{Name: "m", Version: "1"}] = time.Millisecond })
	mustApply(t, s, sleeper("m", "replicas: {min: 0, max: 1, idle: 1s}"), "kind: Function\nname: m\nmodels: [m]\nslo: 1s\ncold_start: 10s")
	if p := modelStatus(t, s, "m").Capacity.Profile; p != nil {
		t.Fatalf("before the first query: %+v", p)
	}
	for range knownBatches { // one after the other, so that each is a batch
		if code, body := ask(t, addr, "m"); code != 200 {
			t.Fatalf("%d %s", code, body)
		}
	}
	until(t, "it sleeps", asleep(s, "m", "1"))
	m := modelStatus(t, s, "m")
	if p := m.Capacity.Profile; len(m.Replicas) != 0 || p == nil || p.Batches < knownBatches || math.Abs(p.InterceptMicros-1) > 1e-9 || p.SlopeMicros != 0 || p.P99Micros != 1 || p.MeanBatch != 1 {
		t.Errorf("%d batches of one query that took a microsecond each, and %d replicas are left: %+v", knownBatches, len(m.Replicas), p)
	}
}
