package server

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/registry"
)

// A version that waits for the old one to end takes queries. Once it is loaded, and may sleep, they wake it.
func TestQueriesThatCameBeforeTheLoadAreAnswered(t *testing.T) {
	s, rt, addr := alive(t, Config{})
	slow := make(chan struct{})
	rt.slow[api.ModelID{Name: "m", Version: "1"}] = slow
	mustApply(t, s, model, "kind: Function\nname: f\nmodels: [m]\nslo: 1s\ncold_start: 15s", "kind: Traffic\nname: m\ntransition: resources\nversions: {latest: 1}")
	until(t, "1 serves", serves(s, "1"))
	mustApply(t, s, strings.Replace(version("2"), "min: 1", "min: 0", 1))
	v := deployed(s, "m", "1")
	until(t, "1 is ending", func() bool { return stateIs(s, "1", registry.Draining)() && v.Asked() == 0 && v.Ready() == 0 })
	var client sync.WaitGroup
	client.Go(func() {
		if code, body := ask(t, addr, "f"); code != 200 {
			t.Errorf("%d %s", code, body)
		}
	})
	defer client.Wait()
	until(t, "2 holds the query", func() bool { return held(deployed(s, "m", "2")) > 0 })
	close(slow)
	until(t, "2 is awake", func() bool { return deployed(s, "m", "2").Ready() > 0 })
}

// A sleeping model is woken by every kind of request.
func TestEveryWayOfAskingWakes(t *testing.T) {
	const in = `{"input":[1,2,3,4]}`
	const oip = `{"inputs":[{"name":"input","datatype":"FP32","shape":[1,4],"data":[1,2,3,4]}]}`
	for _, c := range []struct {
		name, path, body, more string
		want                   int
	}{
		{"function", "/f/predict", in, "", 200},
		{"function with a cold start", "/f/predict", in, "cold_start: 12s", 200},
		{"batch", "/f/predict", `{"input_batch":[[1,2,3,4],[1,2,3,4]]}`, "", 200},
		{"named version", "/f/predict", `{"input":[1,2,3,4],"models":["a@1"]}`, "models: [a]", 200},
		{"policy of one", "/f/predict", in, "policy: exp3\nmodels: [a, b]", 200},
		{"policy of several", "/f/predict", in, "policy: exp4\nmodels: [a, b]", 200},
		{"prefer", "/f/predict", in, "policy: prefer\nmodels: [a, b]", 200},
		{"oip", "/v2/models/a/infer", oip, "", 200},
		{"oip version", "/v2/models/a/versions/1/infer", oip, "", 200},
		{"feedback by input", "/f/feedback", `{"input":[1,2,3,4],"label":1}`, "policy: exp4\nmodels: [a, b]", 202},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, _, addr := alive(t, Config{})
			more := c.more
			if !strings.Contains(more, "models:") {
				more = "models: [a]\n" + more
			}
			mustApply(t, s, sleeper("a", "replicas: {min: 0, max: 1}"), sleeper("b", "replicas: {min: 0, max: 1}"), "kind: Function\nname: f\nslo: 20ms\n"+more)
			until(t, "both sleep", func() bool { return asleep(s, "a", "1")() && asleep(s, "b", "1")() })
			if code, body := post(t, addr, c.path, c.body); code != c.want {
				t.Errorf("%d %s", code, body)
			}
			until(t, "one is awake", func() bool {
				return deployed(s, "a", "1").Ready()+deployed(s, "b", "1").Ready() > 0
			})
		})
	}
}

// A version is compared with the serving one also while that one sleeps, or is being woken.
func TestValidationWakesTheServingVersion(t *testing.T) {
	for _, waking := range []bool{false, true} {
		t.Run(fmt.Sprint("waking ", waking), func(t *testing.T) {
			s, rt, addr := alive(t, Config{})
			mustApply(t, s, strings.Replace(model, "min: 1", "min: 0", 1), "kind: Function\nname: f\nmodels: [m]\nslo: 20ms\ncold_start: 15s")
			until(t, "1 sleeps", asleep(s, "m", "1"))
			one := deployed(s, "m", "1")
			var client sync.WaitGroup
			defer client.Wait()
			if waking {
				rt.set(func() { rt.dumb[one.ID()] = true }) // its process runs, and connects later
				client.Go(func() { post(t, addr, "/f/predict", `{"input":[1,2,3,4]}`) })
				until(t, "1 is being woken", func() bool { return one.Asked() == 1 })
			}
			mustApply(t, s, qualified(t, "2", "validate: {queries: q.jsonl, expect: serving, extremes: false}\n", labelled))
			validation := func() *api.ValidationStatus { return versionStatus(t, s, "2").Version.Validation }
			if waking {
				until(t, "2 is judged, or 1 asked", func() bool { return held(one) > 1 || validation() != nil })
				rt.connects(t, "m", "1")
			}
			until(t, "2 is judged", func() bool { return validation() != nil })
			if v := validation(); v.Passed || v.Matched != 0 {
				t.Errorf("a version whose answers differ from the serving one's: %+v", v)
			}
		})
	}
}

// A query that was accepted before the gateway began to stop is answered, although its model is woken only after that.
func TestTheEndWakesModelsThatQueriesWaitFor(t *testing.T) {
	s, _, addr, stop := aliveUntil(t, Config{NodeMemoryBytes: 1 << 30, NodeCPU: 4})
	mustApply(t, s, sleeper("first", "resources: {memory: 700MiB}"), sleeper("m", "replicas: {min: 0, max: 1}\nresources: {memory: 700MiB}"), "kind: Function\nname: m\nmodels: [m]\nslo: 1s\ncold_start: 1m")
	until(t, "first to run, and m to sleep", func() bool { return running(s, "first") == 1 && asleep(s, "m", "1")() })
	var client, end sync.WaitGroup
	client.Go(func() {
		if code, body := ask(t, addr, "m"); code != 200 {
			t.Errorf("%d %s", code, body)
		}
	})
	until(t, "the query to wait for room", deployed(s, "m", "1").NoRoom)
	end.Go(stop)
	until(t, "the gateway to be stopping", func() bool {
		g, err := s.status.Gateway(context.Background())
		return err == nil && g.Draining
	})
	if _, err := s.Delete(context.Background(), api.KindModel, api.ModelID{Name: "first"}); err != nil {
		t.Error(err)
	}
	client.Wait()
	end.Wait()
}

// A gateway that ends while replicas start answers the queries that wait for them, and leaves no process behind.
func TestTheEndDuringAStart(t *testing.T) {
	s, rt, addr, stop := aliveUntil(t, Config{DrainTimeout: 100 * time.Millisecond})
	rt.dumb[api.ModelID{Name: "m", Version: "1"}] = true
	mustApply(t, s, sleeper("m", "replicas: {min: 0, max: 1}"), "kind: Function\nname: m\nmodels: [m]\nslo: 1s\ncold_start: 1m")
	var client sync.WaitGroup
	client.Go(func() {
		if code, body := ask(t, addr, "m"); code != 503 {
			t.Errorf("%d %s", code, body)
		}
	})
	d := deployed(s, "m", "1")
	until(t, "it is being woken", func() bool { return rt.alive() == 1 })
	stop()
	client.Wait()
	if n := len(d.Status().Replicas); n != 0 || !d.Empty() || rt.alive() != 0 {
		t.Errorf("%d replicas and %d processes are left", n, rt.alive())
	}
}

// A model that is deleted while it wakes answers the queries that woke it.
func TestDeleteWhileWaking(t *testing.T) {
	s, rt, addr := alive(t, Config{})
	rt.dumb[api.ModelID{Name: "m", Version: "1"}] = true
	mustApply(t, s, sleeper("m", "replicas: {min: 0, max: 1}"))
	until(t, "it sleeps", asleep(s, "m", "1"))
	d := deployed(s, "m", "1")
	var client sync.WaitGroup
	client.Go(func() {
		if code, body := post(t, addr, "/v2/models/m/infer", `{"inputs":[{"name":"input","datatype":"FP32","shape":[1,4],"data":[1,2,3,4]}]}`); code != 200 {
			t.Errorf("%d %s", code, body)
		}
	})
	defer client.Wait()
	until(t, "it is being woken", func() bool { return held(d) == 1 && rt.alive() == 1 })
	if _, err := s.Delete(context.Background(), api.KindModel, api.ModelID{Name: "m"}); err != nil {
		t.Fatal(err)
	}
	rt.connects(t, "m", "1")
	client.Wait()
	until(t, "its process has ended", d.Empty)
}

// A query that the cache answers wakes no model.
func TestTheCacheWakesNoModel(t *testing.T) {
	s, rt, addr := alive(t, Config{})
	mustApply(t, s, strings.Replace(sleeper("m", "replicas: {min: 0, max: 1, idle: 300ms}"), "cache: off", "cache: on", 1), "kind: Function\nname: m\nmodels: [m]\nslo: 1s")
	for range 2 { // the first answer is not kept: it was not known yet whether it may be
		if code, body := ask(t, addr, "m"); code != 200 {
			t.Fatalf("%d %s", code, body)
		}
	}
	until(t, "it sleeps", asleep(s, "m", "1"))
	before := rt.launches()
	for range 10 {
		if code, body := ask(t, addr, "m"); code != 200 {
			t.Fatalf("%d %s", code, body)
		}
	}
	if d := deployed(s, "m", "1"); d.Cold.Pending() || d.Asked() != 0 || rt.launches() != before {
		t.Errorf("it was woken by queries that the cache answers: a call is pending: %v, %d replicas are wanted, %d were started", d.Cold.Pending(), d.Asked(), rt.launches()-before)
	}
}
