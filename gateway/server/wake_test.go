package server

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/registry"
	"github.com/xebec-serving/xebec/scheduler"
)

// post asks any path of the function port, with a header or two ("Name: value").
func post(t *testing.T, addr, path, body string, headers ...string) (int, string) {
	t.Helper()
	req, err := http.NewRequest("POST", "http://"+addr+path, strings.NewReader(body))
	if err != nil {
		t.Error(err)
		return 0, ""
	}
	req.Header.Set("Content-Type", "application/json")
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		req.Header.Set(name, value)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Error(err)
		return 0, ""
	}
	defer resp.Body.Close()
	out, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Error(err)
	}
	return resp.StatusCode, string(out)
}

func deploymentOf(s *Server, name, version string) *deployment {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.models[api.ModelID{Name: name, Version: version}]
}

// held waits until a version's lane holds so many queries.
func held(t *testing.T, s *Server, d *deployment, n int) {
	t.Helper()
	var snap scheduler.Snapshot
	until(t, s, fmt.Sprintf("%s holds %d queries", d.id, n), func() bool { d.lane.Snapshot(&snap); return snap.Held >= n })
}

// asleepNow is a version that has been available and has no replica.
func asleepNow(s *Server, name, version string) func() bool {
	return func() bool {
		d := s.models[api.ModelID{Name: name, Version: version}]
		return d != nil && d.life.state == registry.Available && d.asked.Load() == 0 && d.set.Len() == 0
	}
}

// A version that waits for the old one to end takes queries. When it is loaded, and may sleep, they wake it.
func TestQueriesThatCameBeforeTheLoadAreAnswered(t *testing.T) {
	s, rt, addr := alive(t, Config{})
	one := api.ModelID{Name: "m", Version: "1"}
	slow := make(chan struct{})
	rt.slow[one] = slow
	mustApply(t, s, model, "kind: Function\nname: f\nmodels: [m]\nslo: 1s\ncold_start: 15s", "kind: Traffic\nname: m\ntransition: resources\nversions: {latest: 1}")
	until(t, s, "1 serves", serves(s, "1"))
	mustApply(t, s, strings.Replace(version("2"), "min: 1", "min: 0", 1))
	until(t, s, "1 is ending", func() bool { d := s.models[one]; return d.life.stopping && d.model.Ready.Load() == 0 })
	var client sync.WaitGroup
	client.Go(func() {
		if code, body := ask(t, addr, "f"); code != 200 {
			t.Errorf("%d %s", code, body)
		}
	})
	defer client.Wait()
	held(t, s, deploymentOf(s, "m", "2"), 1)
	close(slow)
	until(t, s, "2 is awake", func() bool { return s.models[api.ModelID{Name: "m", Version: "2"}].model.Ready.Load() > 0 })
}

// A query whose lane it reaches after the version was put to sleep, although it had a replica when the query looked, wakes it.
func TestAQueryThatIsLateForTheLastReplicaWakesTheModel(t *testing.T) {
	s, _, addr := alive(t, Config{})
	mustApply(t, s, sleeper("m", "replicas: {min: 0, max: 1, idle: 1h}"), "kind: Function\nname: m\nmodels: [m]\nslo: 15s")
	if code, body := ask(t, addr, "m"); code != 200 {
		t.Fatalf("%d %s", code, body)
	}
	d := deploymentOf(s, "m", "1")
	for range 20 {
		until(t, s, "it is awake", func() bool { return d.model.Ready.Load() > 0 })
		c := s.capacity
		var clients sync.WaitGroup
		for range 4 {
			clients.Go(func() {
				if code, body := ask(t, addr, "m"); code != 200 {
					t.Errorf("%d %s", code, body)
				}
			})
		}
		c.mu.Lock() // it is put to sleep at the same time, as if it had been idle
		if st := c.seats[d]; st != nil {
			st.granted, st.want = 0, 0
			c.setLocked(st, 0)
		}
		c.mu.Unlock()
		clients.Wait()
		ask(t, addr, "m")
	}
}

// A model that sleeps is woken by whoever asks it, in whatever way.
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
			until(t, s, "both sleep", func() bool { return asleepNow(s, "a", "1")() && asleepNow(s, "b", "1")() })
			if code, body := post(t, addr, c.path, c.body); code != c.want {
				t.Errorf("%d %s", code, body)
			}
			until(t, s, "one is awake", func() bool {
				return s.models[api.ModelID{Name: "a", Version: "1"}].model.Ready.Load()+s.models[api.ModelID{Name: "b", Version: "1"}].model.Ready.Load() > 0
			})
		})
	}
}

// A version is compared with the one that serves also where that sleeps, or is only just being woken.
func TestValidationWakesTheServingVersion(t *testing.T) {
	for _, waking := range []bool{false, true} {
		t.Run(fmt.Sprint("waking ", waking), func(t *testing.T) {
			s, rt, addr := alive(t, Config{})
			one := api.ModelID{Name: "m", Version: "1"}
			mustApply(t, s, strings.Replace(model, "min: 1", "min: 0", 1), "kind: Function\nname: f\nmodels: [m]\nslo: 20ms\ncold_start: 15s")
			until(t, s, "1 sleeps", asleepNow(s, "m", "1"))
			d := deploymentOf(s, "m", "1")
			if waking {
				rt.mu.Lock()
				rt.dumb[one] = true // its process runs, and connects later
				rt.mu.Unlock()
				go post(t, addr, "/f/predict", `{"input":[1,2,3,4]}`)
				until(t, s, "1 is being woken", func() bool { return d.asked.Load() == 1 })
			}
			mustApply(t, s, qualified(t, "2", "validate: {queries: q.jsonl, expect: serving, extremes: false}\n", labelled))
			if waking {
				until(t, s, "2 is judged, or 1 asked", func() bool {
					var snap scheduler.Snapshot
					d.lane.Snapshot(&snap)
					return snap.Held > 1 || s.models[api.ModelID{Name: "m", Version: "2"}].life.validation != nil
				})
				d.mu.Lock()
				var launched uint64
				for replica := range d.launches {
					launched = replica
				}
				d.mu.Unlock()
				i := &liveReplica{r: rt, id: one, replica: scheduler.ReplicaID(launched), gone: make(chan struct{})}
				i.connect(launched)
			}
			until(t, s, "2 is judged", func() bool { return s.models[api.ModelID{Name: "m", Version: "2"}].life.validation != nil })
			s.mu.Lock()
			defer s.mu.Unlock()
			if v := s.models[api.ModelID{Name: "m", Version: "2"}].life.validation; v.Passed || v.Matched != 0 {
				t.Errorf("a version that says something else than the one that serves: %+v", v)
			}
		})
	}
}

// A model that has failed once, and has gone to sleep, is waited for like any other.
func TestAFailureBeforeTheSleepDoesNotTurnAnybodyAway(t *testing.T) {
	s, _, addr := alive(t, Config{})
	mustApply(t, s, sleeper("m", "replicas: {min: 0, max: 1, idle: 1h}"), "kind: Function\nname: m\nmodels: [m]\nslo: 1ms")
	if code, body := ask(t, addr, "m"); code != 200 {
		t.Fatalf("%d %s", code, body)
	}
	d := deploymentOf(s, "m", "1")
	d.mu.Lock()
	d.failures = 1 // the launch before has
	d.mu.Unlock()
	s.capacity.mu.Lock()
	st := s.capacity.seats[d]
	st.want, st.granted = 0, 0
	s.capacity.setLocked(st, 0)
	s.capacity.mu.Unlock()
	until(t, s, "it sleeps", asleepNow(s, "m", "1"))
	if d.model.Down.Load() {
		t.Error("nobody who asks it would wait for it, although it would be started for him at once")
	}
	if code, body := ask(t, addr, "m"); code != 200 {
		t.Errorf("%d %s", code, body)
	}
}

// Whoever was accepted before the gateway began to stop is answered, also where his model sleeps.
func TestTheEndWakesThoseWhoAreWaitedFor(t *testing.T) {
	s, _, addr, stop := aliveUntil(t, Config{})
	mustApply(t, s, sleeper("m", "replicas: {min: 0, max: 1}"), "kind: Function\nname: m\nmodels: [m]\nslo: 1s")
	until(t, s, "it sleeps", asleepNow(s, "m", "1"))
	d := deploymentOf(s, "m", "1")
	s.capacity.mu.Lock() // nobody is woken until the gateway is stopping
	var client, end sync.WaitGroup
	client.Go(func() {
		if code, body := ask(t, addr, "m"); code != 200 {
			t.Errorf("%d %s", code, body)
		}
	})
	var snap scheduler.Snapshot
	for d.lane.Snapshot(&snap); snap.Held == 0; d.lane.Snapshot(&snap) {
		<-time.After(time.Millisecond)
	}
	end.Go(stop)
	for !s.draining.Load() {
		<-time.After(time.Millisecond)
	}
	s.capacity.mu.Unlock()
	client.Wait()
	end.Wait()
}

// A gateway that ends while replicas start answers those who wait for them, and leaves no process behind.
func TestTheEndDuringAStart(t *testing.T) {
	s, rt, addr, stop := aliveUntil(t, Config{DrainTimeout: 100 * time.Millisecond})
	m := api.ModelID{Name: "m", Version: "1"}
	rt.mu.Lock()
	rt.dumb[m] = true
	rt.mu.Unlock()
	mustApply(t, s, sleeper("m", "replicas: {min: 0, max: 1}"), "kind: Function\nname: m\nmodels: [m]\nslo: 1s\ncold_start: 1m")
	var client sync.WaitGroup
	client.Go(func() {
		if code, body := ask(t, addr, "m"); code != 503 {
			t.Errorf("%d %s", code, body)
		}
	})
	until(t, s, "it is being woken", func() bool { return running(s, "m") == 1 && !s.models[m].empty() })
	d := deploymentOf(s, "m", "1")
	stop()
	client.Wait()
	if n := d.set.Len(); n != 0 || !d.empty() {
		t.Errorf("%d replicas are left", n)
	}
}

// A model that is deleted while it wakes answers those who woke it.
func TestDeleteWhileWaking(t *testing.T) {
	s, rt, addr := alive(t, Config{})
	m := api.ModelID{Name: "m", Version: "1"}
	rt.mu.Lock()
	rt.dumb[m] = true
	rt.mu.Unlock()
	mustApply(t, s, sleeper("m", "replicas: {min: 0, max: 1}"))
	until(t, s, "it sleeps", asleepNow(s, "m", "1"))
	d := deploymentOf(s, "m", "1")
	var client sync.WaitGroup
	client.Go(func() {
		if code, body := post(t, addr, "/v2/models/m/infer", `{"inputs":[{"name":"input","datatype":"FP32","shape":[1,4],"data":[1,2,3,4]}]}`); code != 200 {
			t.Errorf("%d %s", code, body)
		}
	})
	defer client.Wait()
	held(t, s, d, 1)
	until(t, s, "it is being woken", func() bool { return d.set.Len() == 1 && !d.empty() })
	d.mu.Lock()
	var launched uint64
	for replica := range d.launches {
		launched = replica
	}
	d.mu.Unlock()
	i := &liveReplica{r: rt, id: m, replica: scheduler.ReplicaID(launched), gone: make(chan struct{})}
	if _, err := s.Delete(context.Background(), api.KindModel, api.ModelID{Name: "m"}); err != nil {
		t.Fatal(err)
	}
	i.d = d
	d.lane.AddReplica(i.replica, i, scheduler.DefaultDepth)
	d.model.Ready.Add(1)
	client.Wait()
	until(t, s, "its process has ended", d.empty)
}

// A wait counts that a query had for the replica that it woke, and nothing else.
func TestOnlyWaitsAreColdStarts(t *testing.T) {
	var c coldStarts
	c.called(1e9)
	c.missedNobody() // the replica comes; whoever called it has been answered by another model, or with a default
	c.answered(60e9)
	if r := c.read(); r != nil {
		t.Errorf("%+v: nobody has waited", r)
	}
	c.called(100e9) // and the replica does not come for an hour
	c.answered(100e9 + api.Nanos(time.Hour))
	if r := c.read(); r != nil {
		t.Errorf("%+v: nobody waits for so long", r)
	}
	c.called(5000e9)
	c.answered(5001e9)
	if r := c.read(); r == nil || r.Count != 1 || r.LastMS != 1000 {
		t.Errorf("%+v", r)
	}
}

// What a start takes is what those take that somebody waits for.
func TestQuietStartsAreOnlyAFirstGuess(t *testing.T) {
	var c coldStarts
	for _, x := range []struct {
		took  time.Duration
		quiet bool
		want  time.Duration
	}{
		{10 * time.Second, true, 10 * time.Second},
		{time.Second, false, time.Second},
		{10 * time.Second, true, time.Second},
		{2 * time.Second, false, 1300 * time.Millisecond},
	} {
		c.started(x.took, x.quiet)
		if got := time.Duration(c.startNanos.Load()); (got - x.want).Abs() > time.Microsecond {
			t.Errorf("after %v, quiet %v: %v, expected %v", x.took, x.quiet, got, x.want)
		}
	}
}

// What the cache answers wakes nobody.
func TestTheCacheWakesNobody(t *testing.T) {
	s, rt, addr := alive(t, Config{})
	mustApply(t, s, strings.Replace(sleeper("m", "replicas: {min: 0, max: 1, idle: 1h}"), "cache: off", "cache: on", 1), "kind: Function\nname: m\nmodels: [m]\nslo: 1s")
	for range 2 { // of the first one nobody knew yet whether it may be kept
		if code, body := ask(t, addr, "m"); code != 200 {
			t.Fatalf("%d %s", code, body)
		}
	}
	d := deploymentOf(s, "m", "1")
	s.capacity.mu.Lock()
	st := s.capacity.seats[d]
	st.want, st.granted = 0, 0
	s.capacity.setLocked(st, 0)
	s.capacity.mu.Unlock()
	until(t, s, "it sleeps", asleepNow(s, "m", "1"))
	rt.mu.Lock()
	before := len(rt.replicas)
	rt.mu.Unlock()
	for range 10 {
		if code, body := ask(t, addr, "m"); code != 200 {
			t.Fatalf("%d %s", code, body)
		}
	}
	s.capacity.answerCalls() // of whoever has called
	until(t, s, "it sleeps on", asleepNow(s, "m", "1"))
	rt.mu.Lock()
	defer rt.mu.Unlock()
	if n := len(rt.replicas); n != before {
		t.Errorf("%d replicas have been started for what was in the cache", n-before)
	}
}
