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
	"github.com/xebec-serving/xebec/scheduler"
)

// A model that evaluates one query at a time, well within its timeout, passes its warm-up however many queries there are.
func TestASlowModelPassesItsWarmUp(t *testing.T) {
	s, rt, _ := alive(t, Config{})
	rt.takes[api.ModelID{Name: "m", Version: "1"}] = 10 * time.Millisecond
	mustApply(t, s, qualified(t, "1", "timeout: 200ms\nbatching: {policy: none}\nwarmup: {queries: q.jsonl}\n", strings.Repeat(labelled, 64)))
	until(t, s, "1 is judged", func() bool { return stateIs(s, "1", registry.Available)() || stateIs(s, "1", registry.Rejected)() })
	s.mu.Lock()
	defer s.mu.Unlock()
	if l := s.models[api.ModelID{Name: "m", Version: "1"}].life; l.state != registry.Available {
		t.Errorf("1 is %v: %s", l.state, l.reason)
	}
}

// A validation ends when its version has no replica any more, however many queries are left.
func TestAValidationWhoseReplicaDiesEnds(t *testing.T) {
	s, rt, _ := alive(t, Config{})
	one := api.ModelID{Name: "m", Version: "1"}
	rt.takes[one] = time.Millisecond
	mustApply(t, s, qualified(t, "1", "timeout: 20ms\nvalidate: {queries: q.jsonl, min_accuracy: 0.5}\n", strings.Repeat(labelled, 6400)))
	s.mu.Lock()
	d := s.models[one]
	s.mu.Unlock()
	var snap scheduler.Snapshot
	until(t, s, "1 is asked", func() bool { d.lane.Snapshot(&snap); return snap.Held > 0 })
	rt.lose(d)
	until(t, s, "1 is not validated any more", func() bool { return d.life.state != registry.Validating })
}

// A validation ends when its version is not wanted any more: nobody evaluates its queries then.
func TestAValidationOfAVersionThatIsUnloadedEnds(t *testing.T) {
	s, rt, _ := alive(t, Config{DrainTimeout: 100 * time.Millisecond})
	two := api.ModelID{Name: "m", Version: "2"}
	rt.takes[two] = 20 * time.Millisecond
	mustApply(t, s, model, qualified(t, "2", "validate: {queries: q.jsonl, min_accuracy: 0.5}\n", strings.Repeat(labelled, 50_000)))
	until(t, s, "1 serves", serves(s, "1"))
	s.mu.Lock()
	d := s.models[two]
	s.mu.Unlock()
	var snap scheduler.Snapshot
	until(t, s, "2 is asked", func() bool { d.lane.Snapshot(&snap); return snap.Held > 0 })
	mustApply(t, s, "kind: Traffic\nname: m\nversions: {specific: [\"1\"]}")
	until(t, s, "2 is unloaded", stateIs(s, "2", registry.Declared))
	until(t, s, "nothing is asked of 2", func() bool { d.lane.Snapshot(&snap); return snap.Held == 0 })
}

// Where the old version is unloaded first, queries that wait for the new one do not keep the old one from being unloaded.
func TestQueriesThatWaitForTheNewVersionDoNotHoldUpTheOldOne(t *testing.T) {
	s, rt, addr := alive(t, Config{})
	rt.takes[api.ModelID{Name: "m", Version: "1"}] = 20 * time.Millisecond
	mustApply(t, s, model, strings.Replace(strings.Replace(fn, "slo: 20ms", "slo: 60s", 1), "default: -1", "", 1), "kind: Traffic\nname: m\ntransition: resources\nversions: {latest: 1}")
	until(t, s, "1 serves", serves(s, "1"))
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
	until(t, s, "2 serves", serves(s, "2"))
}

// A model that is deleted ends within its patience, although a version of another one waits for a long query.
func TestADeletionDoesNotWaitForAnotherVersionsQueries(t *testing.T) {
	s, rt, addr := alive(t, Config{DrainTimeout: 100 * time.Millisecond})
	hang := make(chan struct{})
	rt.hang[api.ModelID{Name: "m", Version: "1"}] = hang
	mustApply(t, s, model, strings.Replace(model, "name: m", "name: n", 1), strings.Replace(fn, "slo: 20ms", "slo: 60s", 1))
	n := api.ModelID{Name: "n", Version: "1"}
	until(t, s, "both serve", func() bool {
		return serves(s, "1")() && s.models[n] != nil && s.models[n].life.state == registry.Available
	})
	s.mu.Lock()
	one, other := s.models[api.ModelID{Name: "m", Version: "1"}], s.models[n]
	s.mu.Unlock()
	var client sync.WaitGroup
	client.Go(func() { ask(t, addr, "f") })
	defer client.Wait()
	defer close(hang)
	var snap scheduler.Snapshot
	until(t, s, "the query is in flight", func() bool { one.lane.Snapshot(&snap); return snap.Held > 0 })
	mustApply(t, s, version("2"), "kind: Traffic\nname: m\nversions: {specific: [\"2\"]}")
	until(t, s, "1 is unloaded", func() bool { return one.life.state == registry.Draining })
	if _, err := s.Delete(context.Background(), api.KindModel, n); err != nil {
		t.Fatal(err)
	}
	until(t, s, "the replica of the deleted model has ended", other.empty)
}

// Where the old version is unloaded first, a long query of another model does not leave this one without a version.
func TestALongQueryOfAnotherModelDoesNotHoldUpATransition(t *testing.T) {
	s, rt, addr := alive(t, Config{DrainTimeout: 100 * time.Millisecond})
	hang := make(chan struct{})
	n := api.ModelID{Name: "n", Version: "1"}
	rt.hang[n] = hang
	mustApply(t, s, model, strings.Replace(model, "name: m", "name: n", 1), "kind: Function\nname: long\nmodels: [n]\nslo: 60s",
		"kind: Traffic\nname: m\ntransition: resources\nversions: {latest: 1}")
	until(t, s, "both serve", func() bool {
		return serves(s, "1")() && s.models[n] != nil && s.models[n].life.state == registry.Available
	})
	s.mu.Lock()
	d := s.models[n]
	s.mu.Unlock()
	var client sync.WaitGroup
	client.Go(func() { ask(t, addr, "long") })
	defer client.Wait()
	defer close(hang)
	var snap scheduler.Snapshot
	until(t, s, "the query is in flight", func() bool { d.lane.Snapshot(&snap); return snap.Held > 0 })
	mustApply(t, s, version("2"))
	until(t, s, "2 serves", serves(s, "2"))
}
