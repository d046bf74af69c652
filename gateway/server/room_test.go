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
	"github.com/xebec-serving/xebec/scheduler"
)

// What is ending takes its room until it is gone, also where its version is no more.
func TestADeletedVersionsRoomIsTakenUntilItsProcessesAreGone(t *testing.T) {
	s, rt, _ := alive(t, Config{NodeMemoryBytes: 1 << 30, NodeCPU: 4})
	first := api.ModelID{Name: "first", Version: "1"}
	slow := make(chan struct{})
	rt.mu.Lock()
	rt.slow[first] = slow
	rt.mu.Unlock()
	mustApply(t, s, sleeper("first", "resources: {memory: 700MiB}"))
	until(t, s, "the first to run", func() bool { return running(s, "first") == 1 })
	d := deploymentOf(s, "first", "1")
	until(t, s, "the first to serve", func() bool { return d.model.Ready.Load() == 1 })
	if _, err := s.Delete(context.Background(), api.KindModel, api.ModelID{Name: "first"}); err != nil {
		t.Fatal(err)
	}
	until(t, s, "the first to be ending", func() bool { return d.model.Ready.Load() == 0 })
	mustApply(t, s, sleeper("second", "resources: {memory: 700MiB}"))
	s.capacity.tick()
	s.mu.Lock()
	n, still := running(s, "second"), d.set.Len()
	s.mu.Unlock()
	if n > 0 && still > 0 {
		t.Errorf("%d replicas have been started in the room of one that is still ending", n)
	}
	close(slow)
	until(t, s, "the second to run", func() bool { return running(s, "second") == 1 })
}

// A new version takes no room that the serving version of the same model runs in, however small it is: the old one goes when the new one serves.
func TestANewVersionDoesNotEvictTheOneThatServes(t *testing.T) {
	for _, bounds := range []string{"{min: 1, max: 1}", "{min: 0, max: 1, idle: 1h}"} {
		t.Run(bounds, func(t *testing.T) {
			s, _, addr := alive(t, Config{NodeMemoryBytes: 1 << 30, NodeCPU: 4})
			mustApply(t, s, sleeper("m", "version: \"1\"\nreplicas: "+bounds+"\nresources: {memory: 700MiB}"), "kind: Function\nname: m\nmodels: [m]\nslo: 10s")
			until(t, s, "1 serves", serves(s, "1"))
			if code, body := ask(t, addr, "m"); code != 200 {
				t.Fatalf("%d %s", code, body)
			}
			old := deploymentOf(s, "m", "1")
			mustApply(t, s, sleeper("m", "version: \"2\"\nreplicas: {min: 1, max: 1}\nresources: {memory: 400MiB}"))
			s.capacity.tick()
			if n := old.asked.Load(); n != 1 && !serves(s, "2")() {
				t.Errorf("the version that serves has %d replicas", n)
			}
			if code, body := ask(t, addr, "m"); code != 200 {
				t.Errorf("%d %s", code, body)
			}
		})
	}
}

// A version that is being validated keeps its replica, however long that takes and whoever else wants the room.
func TestAValidationIsNotEvicted(t *testing.T) {
	s, rt, addr := alive(t, Config{NodeMemoryBytes: 1 << 30, NodeCPU: 4})
	m := api.ModelID{Name: "m", Version: "1"}
	hang := make(chan struct{})
	rt.mu.Lock()
	rt.hang[m] = hang
	rt.mu.Unlock()
	mustApply(t, s, qualified(t, "1", "resources: {memory: 700MiB}\nvalidate: {queries: q.jsonl, extremes: false}\n", strings.ReplaceAll(labelled, ":2", ":1")))
	d := deploymentOf(s, "m", "1")
	held(t, s, d, 1)
	mustApply(t, s, sleeper("other", "replicas: {min: 1, max: 1}\nresources: {memory: 400MiB}"), "kind: Function\nname: f\nmodels: [other]\nslo: 20ms\ndefault: 0\nweight: 10")
	s.capacity.mu.Lock()
	if st := s.capacity.seats[d]; st != nil { // it has taken a minute so far
		st.last, st.grown = st.last-60e9, st.grown-60e9
	}
	s.capacity.mu.Unlock()
	ask(t, addr, "f")
	s.capacity.tick()
	if d.asked.Load() == 0 {
		t.Error("it has lost its replica")
	}
	close(hang)
	until(t, s, "it is judged", func() bool { return d.life.state == registry.Available || d.life.state == registry.Rejected })
	s.mu.Lock()
	defer s.mu.Unlock()
	if d.life.state != registry.Available {
		t.Error(d.life.reason)
	}
}

// What is counted of a lane's queries does not go back when a function goes, nor when what is planned for it begins anew: to a scaler all that
// was counted before would have come at that moment.
func TestCountersDoNotGoBack(t *testing.T) {
	s, _, addr := alive(t, Config{})
	mustApply(t, s, sleeper("m", "replicas: {min: 1, max: 50}"), sleeper("n"), "kind: Function\nname: f\nmodels: [m]\nslo: 1s", "kind: Function\nname: g\nmodels: [m]\nslo: 1s")
	d := deploymentOf(s, "m", "1")
	until(t, s, "it serves", func() bool { return d.model.Ready.Load() == 1 })
	for range 20 {
		ask(t, addr, "f")
		ask(t, addr, "g")
	}
	sample := func() (arrived, refused uint64) {
		s.capacity.mu.Lock()
		defer s.capacity.mu.Unlock()
		in := s.capacity.sampleLocked(s.capacity.seatLocked(d))
		return in.Arrived, in.Refused
	}
	s.mu.Lock()
	s.functions["g"].choice.Refuse(10) // as if the plan had had no place for them
	s.mu.Unlock()
	arrived, refused := sample()
	if arrived != 50 || refused != 10 {
		t.Fatalf("%d have arrived and %d were refused, expected 50 and 10", arrived, refused)
	}
	if _, err := s.Delete(context.Background(), api.KindFunction, api.ModelID{Name: "f"}); err != nil {
		t.Fatal(err)
	}
	if a, r := sample(); a < arrived || r < refused {
		t.Errorf("a function went: %d and %d after %d and %d", a, r, arrived, refused)
	}
	mustApply(t, s, "kind: Function\nname: g\nmodels: [m, n]\npolicy: prefer\nslo: 1s")
	if a, r := sample(); a < arrived || r < refused {
		t.Errorf("a plan began anew: %d and %d after %d and %d", a, r, arrived, refused)
	}
	var snap scheduler.Snapshot
	d.lane.Snapshot(&snap)
	s.capacity.tick()
	if n := d.set.Len(); n > 2 {
		t.Errorf("it has %d replicas for %d queries in its life", n, snap.Counters.Arrived)
	}
}

// Queries for which there is no room are looked at by the tick, and not one by one.
func TestNobodyIsCalledForWhomThereIsNoRoom(t *testing.T) {
	s, _, addr := alive(t, Config{NodeMemoryBytes: 1 << 30, NodeCPU: 4})
	mustApply(t, s, sleeper("first", "resources: {memory: 700MiB}"), sleeper("second", "replicas: {min: 0, max: 1}\nresources: {memory: 700MiB}"), `{kind: Function, name: second, models: [second], slo: 20ms, cold_start: 15s}`)
	until(t, s, "the first to run, and the second to sleep", func() bool { return running(s, "first") == 1 && asleepNow(s, "second", "1")() })
	var client sync.WaitGroup
	client.Go(func() {
		if code, body := ask(t, addr, "second"); code != 200 {
			t.Errorf("%d %s", code, body)
		}
	})
	defer client.Wait()
	d := deploymentOf(s, "second", "1")
	until(t, s, "there to be no room", d.full.Load)
	d.wake()
	s.capacity.calls.Lock()
	if n := len(s.capacity.calls.woken); n != 0 {
		t.Errorf("%d calls", n)
	}
	s.capacity.calls.Unlock()
	if _, err := s.Delete(context.Background(), api.KindModel, api.ModelID{Name: "first"}); err != nil {
		t.Fatal(err)
	}
}

// alive is how many processes there are.
func (r *liveRuntime) alive() (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, i := range r.replicas {
		select {
		case <-i.gone:
		default:
			n++
		}
	}
	return n
}

// Models that do not fit beside each other are asked one after the other, while their bounds and versions change: all are answered, and
// never are more processes there than there is room for.
func TestRoomAndAnswersUnderChange(t *testing.T) {
	s, rt, addr := alive(t, Config{NodeMemoryBytes: 1 << 30, NodeCPU: 4})
	names := []string{"a", "b", "c", "d"}
	declare := func(name, version, bounds string) string {
		return sleeper(name, "version: \""+version+"\"\nreplicas: {min: 0, "+bounds+", window: 1s, delay: 1ms}\nresources: {memory: 400MiB}")
	}
	for _, name := range names {
		mustApply(t, s, declare(name, "1", "max: 1, idle: 20ms"), "kind: Function\nname: "+name+"\nmodels: ["+name+"]\nslo: 10s\ncold_start: 15s")
	}
	stop := make(chan struct{})
	var others sync.WaitGroup
	others.Go(func() { // the operator
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			case <-time.After(5 * time.Millisecond):
			}
			name := names[i%len(names)]
			switch i % 3 {
			case 0:
				mustApply(t, s, declare(name, "1", fmt.Sprintf("max: %d, idle: %dms", 1+i%2, 10+i%30)))
			case 1:
				mustApply(t, s, declare(name, "2", "max: 1, idle: 20ms"))
			default:
				_, _ = s.Delete(context.Background(), api.KindModel, api.ModelID{Name: name, Version: "2"})
			}
		}
	})
	others.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(time.Millisecond):
			}
			if n := rt.alive(); n > 2 {
				t.Errorf("%d processes where there is room for 2", n)
				return
			}
		}
	})
	for i := range 60 {
		if code, body := ask(t, addr, names[i%len(names)]); code != 200 {
			t.Errorf("query %d: %d %s", i, code, body)
		}
	}
	close(stop)
	others.Wait()
	until(t, s, "all sleep", func() bool { return rt.alive() == 0 })
	s.capacity.mu.Lock()
	defer s.capacity.mu.Unlock()
	s.capacity.placeLocked()
	if n, m := len(s.capacity.seats), len(s.capacity.order); n != m {
		t.Errorf("%d seats, %d in order", n, m)
	}
}
