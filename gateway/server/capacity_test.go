package server

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/registry"
	"github.com/xebec-serving/xebec/scheduler/placement"
)

// sleeper is a model that answers 1, with what is added to its declaration.
func sleeper(name string, more ...string) string {
	return fmt.Sprintf(`kind: Model
name: %s
inputs:  [{name: input, dtype: float32, shape: [4]}]
outputs: [{name: output, dtype: int32, shape: []}]
run: {command: [python, model.py]}
cache: off
%s
`, name, strings.Join(more, "\n"))
}

// running is how many replicas a model's set has, those included that are starting or ending.
func running(s *Server, name string) int {
	d := s.models[api.ModelID{Name: name, Version: "1"}]
	if d == nil {
		return -1
	}
	return d.set.Len()
}

func modelStatus(t *testing.T, s *Server, name string) api.ModelStatus {
	t.Helper()
	all, err := s.Models(context.Background(), name)
	if err != nil || len(all) != 1 {
		t.Fatalf("%s: %d versions, %v", name, len(all), err)
	}
	return all[0]
}

// TestSleepsAndWakes: a model that may sleep has no replica until somebody asks, answers him as if it had been there, and has none again
// when nobody has asked for its idle time.
func TestSleepsAndWakes(t *testing.T) {
	s, _, addr := alive(t, Config{})
	mustApply(t, s, sleeper("m", "replicas: {min: 0, max: 2, idle: 300ms}"), `{kind: Function, name: m, models: [m], slo: 20ms}
`)
	until(t, s, "the version to be available", func() bool {
		return s.models[api.ModelID{Name: "m", Version: "1"}].life.state == registry.Available
	})
	if st := modelStatus(t, s, "m"); st.State != api.ModelIdle || len(st.Replicas) != 0 {
		t.Fatalf("at first: %s, %d replicas", st.State, len(st.Replicas))
	}
	for range 2 {
		if code, body := ask(t, addr, "m"); code != http.StatusOK || !strings.Contains(body, `"output":1`) {
			t.Fatalf("asked a model that sleeps: %d %s", code, body)
		}
		until(t, s, "it sleeps again", func() bool { return running(s, "m") == 0 })
	}
	st := modelStatus(t, s, "m")
	if st.Capacity.ColdStarts != nil && st.Capacity.ColdStarts.Count > 2 || st.Capacity.Wanted != 0 {
		t.Errorf("capacity %+v, %+v", st.Capacity, st.Capacity.ColdStarts)
	}
}

// TestManyWakeAtOnce: queries that come together for a model that sleeps start one replica, and all are answered.
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
	rt.mu.Lock()
	defer rt.mu.Unlock()
	if len(rt.replicas) > 1 {
		t.Errorf("%d replicas were started", len(rt.replicas))
	}
}

// TestFallbackWakesThePreferred: a candidate that sleeps is passed over for one that does not, and woken for those who come later.
func TestFallbackWakesThePreferred(t *testing.T) {
	const both = `{kind: Function, name: f, models: [best, other], policy: prefer, slo: 1s}`
	best, other := api.ModelID{Name: "best", Version: "1"}, api.ModelID{Name: "other", Version: "1"}
	for _, connects := range []bool{false, true} {
		t.Run(fmt.Sprintf("connects %v", connects), func(t *testing.T) {
			s, rt, addr := alive(t, Config{})
			rt.mu.Lock()
			rt.dumb[best] = !connects
			rt.mu.Unlock()
			mustApply(t, s, sleeper("best", "replicas: {min: 0, max: 1}"), sleeper("other"), both)
			until(t, s, "the other to run", func() bool { return s.models[other].model.Ready.Load() == 1 })
			code, body := ask(t, addr, "f")
			if code != http.StatusOK || !connects && !strings.Contains(body, "other") { // else the best one may have been fast enough
				t.Fatalf("%d %s", code, body)
			}
			until(t, s, "the best one to be started", func() bool { return running(s, "best") == 1 })
			for late := time.Now().Add(patienceOfTests); connects && !strings.Contains(body, "best"); { // a plan or two later
				if code, body = ask(t, addr, "f"); code != http.StatusOK || time.Now().After(late) {
					t.Fatalf("%d %s", code, body)
				}
			}
		})
	}
}

// TestDefaultWhileItWakes: where a function has a default it answers with it at its objective, and the model wakes all the same.
func TestDefaultWhileItWakes(t *testing.T) {
	s, rt, addr := alive(t, Config{})
	m := api.ModelID{Name: "m", Version: "1"}
	rt.mu.Lock()
	rt.dumb[m] = true // its process runs, and does not connect
	rt.mu.Unlock()
	mustApply(t, s, sleeper("m", "replicas: {min: 0, max: 1}"), `{kind: Function, name: m, models: [m], slo: 20ms, default: 7}
`)
	code, body := ask(t, addr, "m")
	if code != http.StatusOK || !strings.Contains(body, `"output":7`) || !strings.Contains(body, `"default":true`) {
		t.Fatalf("%d %s", code, body)
	}
	until(t, s, "a replica to be started", func() bool { return running(s, "m") == 1 })
}

// TestNoRoom: replicas are started as far as the node has room; who waits says why, and gets his when there is.
func TestNoRoom(t *testing.T) {
	s, _, _ := alive(t, Config{NodeMemoryBytes: 1 << 30, NodeCPU: 4})
	mustApply(t, s, sleeper("first", "resources: {memory: 700MiB}"), sleeper("second", "resources: {memory: 700MiB}"))
	until(t, s, "the first to run", func() bool { return running(s, "first") == 1 })
	until(t, s, "the second to be short", func() bool {
		d := s.models[api.ModelID{Name: "second", Version: "1"}]
		return s.capacity.status(d).Wanted == 1 && s.capacity.status(d).Granted == 0
	})
	st := modelStatus(t, s, "second")
	if len(st.Replicas) != 0 || !strings.Contains(st.Capacity.ShortWhy, "700 MiB") {
		t.Errorf("%d replicas, %q", len(st.Replicas), st.Capacity.ShortWhy)
	}
	until(t, s, "readiness not to wait for what there is no room for", func() bool { return len(s.waitingLocked()) == 0 })
	if _, err := s.Delete(context.Background(), api.KindModel, api.ModelID{Name: "first"}); err != nil {
		t.Fatal(err)
	}
	until(t, s, "the second to get its room", func() bool { return running(s, "second") == 1 })
}

// TestLargerThanTheNode: what could never run is refused when it is declared.
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

// TestIdleGiveWay: where there is no room a model that is asked takes that of one that nobody asks.
func TestIdleGiveWay(t *testing.T) {
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
	until(t, s, "the first to have given way", func() bool { return running(s, "first") == 0 && running(s, "second") == 1 })
}

// TestBoundsChange: bounds that are applied to a version that runs are followed at once.
func TestBoundsChange(t *testing.T) {
	s, _, _ := alive(t, Config{})
	mustApply(t, s, sleeper("m"))
	until(t, s, "one replica", func() bool { return running(s, "m") == 1 })
	mustApply(t, s, sleeper("m", "replicas: {min: 3, max: 3}"))
	until(t, s, "three", func() bool { return running(s, "m") == 3 })
	mustApply(t, s, sleeper("m", "replicas: {min: 0, max: 3, idle: 1ms, window: 1s, delay: 1ms}"))
	until(t, s, "none", func() bool { return running(s, "m") == 0 })
	mustApply(t, s, sleeper("m", "replicas: {min: 1, max: 1}"))
	until(t, s, "one again", func() bool { return running(s, "m") == 1 })
}

// TestHintWakes: replicas are there before the queries that an operator expects.
func TestHintWakes(t *testing.T) {
	s, _, _ := alive(t, Config{})
	from, to := time.Now().Add(-time.Minute).UTC().Format(time.RFC3339), time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
	mustApply(t, s, sleeper("m", "replicas: {min: 0, max: 2, idle: 1ms}", fmt.Sprintf("expect: {rate: 10, from: %s, to: %s}", from, to)))
	until(t, s, "it to be awake", func() bool { return running(s, "m") >= 1 })
}

// TestLeftBehind: a query that reaches the lane just when the last replica goes wakes the model all the same.
func TestLeftBehind(t *testing.T) {
	s, rt, addr := alive(t, Config{})
	m := api.ModelID{Name: "m", Version: "1"}
	mustApply(t, s, sleeper("m", "replicas: {min: 0, max: 1, idle: 50ms}"), `{kind: Function, name: m, models: [m], slo: 5s}
`)
	rt.mu.Lock()
	rt.takes[m] = 2 * time.Millisecond
	rt.mu.Unlock()
	for range 30 { // it goes to sleep and is woken all the time
		if code, body := ask(t, addr, "m"); code != http.StatusOK {
			t.Fatalf("%d %s", code, body)
		}
		pause := time.NewTimer(45 * time.Millisecond)
		<-pause.C
	}
}

// TestGPUsAreForOne: a GPU goes to one launch, and to another when that has ended.
func TestGPUsAreForOne(t *testing.T) {
	c := &capacity{gpus: []gpu{{index: 0}, {index: 3}}}
	env, err := c.takeGPUs(1, 1)
	if err != nil || !slices.Equal(env, []string{"CUDA_VISIBLE_DEVICES=0", "XEBEC_GPUS=0"}) {
		t.Fatal(env, err)
	}
	if env, err = c.takeGPUs(2, 1); err != nil || env[1] != "XEBEC_GPUS=3" {
		t.Fatal(env, err)
	}
	if _, err = c.takeGPUs(3, 1); err == nil {
		t.Fatal("a third replica has got one of two")
	}
	c.freeGPUs(1)
	if env, err = c.takeGPUs(3, 1); err != nil || env[1] != "XEBEC_GPUS=0" {
		t.Fatal(env, err)
	}
}

func TestColdStartsAreMeasuredOnce(t *testing.T) {
	var c coldStarts
	c.answered(5e6) // nobody has waited
	if c.read() != nil {
		t.Fatal("a cold start that was none")
	}
	c.called(1e9)
	c.called(2e9) // the first one counts
	c.answered(15e8)
	c.answered(16e8)
	if r := c.read(); r == nil || r.Count != 1 || r.LastMS != 500 {
		t.Errorf("%+v", r)
	}
	if h := c.histogram(); h.Count != 1 || h.Sum != 0.5 || h.Buckets[0.25] != 0 || h.Buckets[1] != 1 {
		t.Errorf("%+v", h)
	}
}

func TestResourcesText(t *testing.T) {
	for want, r := range map[string]placement.Resources{
		"nothing":                            {},
		"0.5 cores":                          {CPUMillis: 500},
		"2 cores, 512 MiB of memory, 1 GPUs": {CPUMillis: 2000, MemoryBytes: 512 << 20, GPUs: 1},
	} {
		if got := resourcesText(r); got != want {
			t.Errorf("%q, expected %q", got, want)
		}
	}
}
