package server

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/registry"
)

// A model that evaluates one query at a time, well within its timeout, passes its warm-up however many queries it has.
func TestASlowModelPassesItsWarmUp(t *testing.T) {
	s, rt, _ := alive(t, Config{})
	rt.takes[api.ModelID{Name: "m", Version: "1"}] = 10 * time.Millisecond
	mustApply(t, s, qualified(t, "1", "timeout: 200ms\nbatching: {policy: none}\nwarmup: {queries: q.jsonl}\n", strings.Repeat(labelled, 64)))
	until(t, "1 is judged", judged(s, "1"))
	mustBeAvailable(t, s, "1")
}

// A validation ends when its version has no replica any more, however many queries are left.
func TestAValidationWhoseReplicaDiesEnds(t *testing.T) {
	s, rt, _ := alive(t, Config{})
	rt.takes[api.ModelID{Name: "m", Version: "1"}] = time.Millisecond
	mustApply(t, s, qualified(t, "1", "timeout: 20ms\nvalidate: {queries: q.jsonl, min_accuracy: 0.5}\n", strings.Repeat(labelled, 6400)))
	until(t, "1 is asked", func() bool { return held(deployed(s, "m", "1")) > 0 })
	rt.lose("m", "1")
	until(t, "1 is not validated any more", func() bool { return !stateIs(s, "1", registry.Validating)() })
}

// A validation ends when its version is not wanted any more: its queries get no answers then.
func TestAValidationOfAVersionThatIsUnloadedEnds(t *testing.T) {
	s, rt, _ := alive(t, Config{DrainTimeout: 100 * time.Millisecond})
	rt.takes[api.ModelID{Name: "m", Version: "2"}] = 20 * time.Millisecond
	mustApply(t, s, model, qualified(t, "2", "validate: {queries: q.jsonl, min_accuracy: 0.5}\n", strings.Repeat(labelled, 50_000)))
	until(t, "1 serves", serves(s, "1"))
	two := deployed(s, "m", "2")
	until(t, "2 is asked", func() bool { return held(two) > 0 })
	mustApply(t, s, "kind: Traffic\nname: m\nversions: {specific: [\"1\"]}")
	until(t, "2 is unloaded", stateIs(s, "2", registry.Declared))
	until(t, "nothing is asked of 2", func() bool { return held(two) == 0 })
}

// With transition: resources, queries that wait for the new version do not keep the old one from being unloaded.
func TestQueriesThatWaitForTheNewVersionDoNotHoldUpTheOldOne(t *testing.T) {
	s, rt, addr := alive(t, Config{})
	rt.takes[api.ModelID{Name: "m", Version: "1"}] = 20 * time.Millisecond
	mustApply(t, s, model, strings.Replace(strings.Replace(fn, "slo: 20ms", "slo: 60s", 1), "default: -1", "", 1), "kind: Traffic\nname: m\ntransition: resources\nversions: {latest: 1}")
	until(t, "1 serves", serves(s, "1"))
	ctx, cancel := context.WithCancel(context.Background())
	var clients sync.WaitGroup
	defer clients.Wait()
	defer cancel()
	for range 8 {
		clients.Go(func() {
			for ctx.Err() == nil {
				req, err := http.NewRequestWithContext(ctx, "POST", "http://"+addr+"/f/predict", strings.NewReader(`{"input":[1,2,3,4]}`))
				if err != nil {
					t.Error(err)
					return
				}
				if resp, err := http.DefaultClient.Do(req); err == nil {
					if resp.StatusCode != 200 {
						t.Errorf("a query is answered %s", resp.Status)
					}
					resp.Body.Close()
				}
			}
		})
	}
	mustApply(t, s, version("2"))
	until(t, "2 serves", serves(s, "2"))
}

// A deleted model ends within the time to drain, although a version of another model waits for a long query.
func TestADeletionDoesNotWaitForAnotherVersionsQueries(t *testing.T) {
	s, rt, addr := alive(t, Config{DrainTimeout: 100 * time.Millisecond})
	hang := make(chan struct{})
	rt.hang[api.ModelID{Name: "m", Version: "1"}] = hang
	mustApply(t, s, model, strings.Replace(model, "name: m", "name: n", 1), strings.Replace(fn, "slo: 20ms", "slo: 60s", 1))
	until(t, "both serve", func() bool {
		return serves(s, "1")() && inState(s, "n", "1", registry.Available)()
	})
	one, other := deployed(s, "m", "1"), deployed(s, "n", "1")
	var client sync.WaitGroup
	client.Go(func() { ask(t, addr, "f") })
	defer client.Wait()
	defer close(hang)
	until(t, "the query is in flight", func() bool { return held(one) > 0 })
	mustApply(t, s, version("2"), "kind: Traffic\nname: m\nversions: {specific: [\"2\"]}")
	until(t, "1 is unloaded", stateIs(s, "1", registry.Draining))
	if _, err := s.Delete(context.Background(), api.KindModel, api.ModelID{Name: "n", Version: "1"}); err != nil {
		t.Fatal(err)
	}
	until(t, "the replica of the deleted model has ended", other.Empty)
}

// With transition: resources, a long query of another model does not leave this one without a version.
func TestALongQueryOfAnotherModelDoesNotHoldUpATransition(t *testing.T) {
	s, rt, addr := alive(t, Config{DrainTimeout: 100 * time.Millisecond})
	hang := make(chan struct{})
	rt.hang[api.ModelID{Name: "n", Version: "1"}] = hang
	mustApply(t, s, model, strings.Replace(model, "name: m", "name: n", 1), "kind: Function\nname: long\nmodels: [n]\nslo: 60s",
		"kind: Traffic\nname: m\ntransition: resources\nversions: {latest: 1}")
	until(t, "both serve", func() bool {
		return serves(s, "1")() && inState(s, "n", "1", registry.Available)()
	})
	var client sync.WaitGroup
	client.Go(func() { ask(t, addr, "long") })
	defer client.Wait()
	defer close(hang)
	until(t, "the query is in flight", func() bool { return held(deployed(s, "n", "1")) > 0 })
	mustApply(t, s, version("2"))
	until(t, "2 serves", serves(s, "2"))
}

// A version that is to be compared with the serving one can replace a serving version that has lost its replicas.
func TestAVersionIsNotComparedWithOneThatHasLostItsReplicas(t *testing.T) {
	s, rt, _ := alive(t, Config{})
	mustApply(t, s, model+"timeout: 100ms\n", fn)
	until(t, "1 serves", serves(s, "1"))
	deployed(s, "m", "1").Model().ColdStart = 50 * time.Millisecond // the test does not wait for a replica that does not come
	rt.lose("m", "1")
	mustApply(t, s, qualified(t, "2", "timeout: 100ms\nvalidate: {queries: q.jsonl, expect: serving, extremes: false}\n", labelled))
	until(t, "2 is judged", judged(s, "2"))
	mustBeAvailable(t, s, "2")
}

// A version is judged by the validation that is declared while it runs.
func TestAChangeOfTheValidationWhileItRuns(t *testing.T) {
	s, rt, _ := alive(t, Config{})
	hang := make(chan struct{})
	rt.hang[api.ModelID{Name: "m", Version: "2"}] = hang
	text := qualified(t, "2", "validate: {queries: q.jsonl, expect: labels, min_accuracy: 1, extremes: false}\n", strings.Replace(labelled, `"label":2`, `"label":7`, 1))
	mustApply(t, s, model, text)
	until(t, "2 is validated", stateIs(s, "2", registry.Validating))
	mustApply(t, s, strings.Replace(text, "min_accuracy: 1", "min_accuracy: 0.0", 1))
	close(hang)
	until(t, "2 is judged", judged(s, "2"))
	mustBeAvailable(t, s, "2")
}

// A version that is deleted while it is validated was not rejected.
func TestADeletionDuringValidationIsNoRejection(t *testing.T) {
	s, rt, _ := alive(t, Config{})
	two := api.ModelID{Name: "m", Version: "2"}
	hang := make(chan struct{})
	rt.hang[two] = hang
	mustApply(t, s, model, qualified(t, "2", "warmup: {queries: q.jsonl}\n", strings.Repeat(labelled, 200)))
	until(t, "2 is validated", stateIs(s, "2", registry.Validating))
	if _, err := s.Delete(context.Background(), api.KindModel, two); err != nil {
		t.Fatal(err)
	}
	rt.set(func() { rt.fail[two] = true })
	close(hang)
	s.endLife()
	s.background.Wait()
	if n := s.status.Read().Lifecycle.Outcomes["rejected"]; n != 0 {
		t.Errorf("%d versions were rejected", n)
	}
}
