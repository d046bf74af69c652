package server

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/xebec-serving/xebec/api"
)

// Ending replicas count against the node until their processes are gone, also those of a deleted version.
func TestADeletedVersionsRoomIsTakenUntilItsProcessesAreGone(t *testing.T) {
	s, rt, _ := alive(t, Config{NodeMemoryBytes: 1 << 30, NodeCPU: 4})
	slow := make(chan struct{})
	rt.slow[api.ModelID{Name: "first", Version: "1"}] = slow
	mustApply(t, s, sleeper("first", "resources: {memory: 700MiB}"))
	first := deployed(s, "first", "1")
	until(t, "the first to serve", func() bool { return first.Ready() == 1 })
	if _, err := s.Delete(context.Background(), api.KindModel, api.ModelID{Name: "first"}); err != nil {
		t.Fatal(err)
	}
	until(t, "the first to be ending", func() bool { return first.Ready() == 0 })
	mustApply(t, s, sleeper("second", "resources: {memory: 700MiB}"))
	until(t, "the second to be granted a replica", func() bool { return modelStatus(t, s, "second").Capacity.Granted == 1 })
	if n := running(s, "second"); n > 0 {
		t.Errorf("%d replicas have been started in the room of one that is still ending", n)
	}
	close(slow)
	until(t, "the second to serve", func() bool { return deployed(s, "second", "1").Ready() == 1 })
	if n := rt.most(); n != 1 {
		t.Errorf("%d processes at a time where there is room for 1", n)
	}
}

// A new version, however small, does not take the room of the serving version of the same model: the old one goes when the new one
// serves.
func TestANewVersionDoesNotEvictTheOneThatServes(t *testing.T) {
	for _, bounds := range []string{"{min: 1, max: 1}", "{min: 0, max: 1, idle: 1h}"} {
		t.Run(bounds, func(t *testing.T) {
			s, _, addr := alive(t, Config{NodeMemoryBytes: 1 << 30, NodeCPU: 4})
			mustApply(t, s, sleeper("m", "version: \"1\"\nreplicas: "+bounds+"\nresources: {memory: 700MiB}"), "kind: Function\nname: m\nmodels: [m]\nslo: 10s")
			until(t, "1 serves", serves(s, "1"))
			if code, body := ask(t, addr, "m"); code != 200 {
				t.Fatalf("%d %s", code, body)
			}
			old := deployed(s, "m", "1")
			mustApply(t, s, sleeper("m", "version: \"2\"\nreplicas: {min: 1, max: 1}\nresources: {memory: 400MiB}"))
			until(t, "the new version to wait for room", func() bool { return versionStatus(t, s, "2").Capacity.ShortWhy != "" })
			if n := old.Asked(); n != 1 {
				t.Errorf("the version that serves has %d replicas", n)
			}
			if code, body := ask(t, addr, "m"); code != 200 {
				t.Errorf("%d %s", code, body)
			}
		})
	}
}

// A query for which there is no room is answered once there is.
func TestAQueryWaitsForRoom(t *testing.T) {
	s, _, addr := alive(t, Config{NodeMemoryBytes: 1 << 30, NodeCPU: 4})
	mustApply(t, s, sleeper("first", "resources: {memory: 700MiB}"), sleeper("second", "replicas: {min: 0, max: 1}\nresources: {memory: 700MiB}"), `{kind: Function, name: second, models: [second], slo: 20ms, cold_start: 15s}`)
	until(t, "the first to run, and the second to sleep", func() bool { return running(s, "first") == 1 && asleep(s, "second", "1")() })
	var client sync.WaitGroup
	client.Go(func() {
		if code, body := ask(t, addr, "second"); code != 200 {
			t.Errorf("%d %s", code, body)
		}
	})
	defer client.Wait()
	until(t, "there to be no room", deployed(s, "second", "1").NoRoom)
	if _, err := s.Delete(context.Background(), api.KindModel, api.ModelID{Name: "first"}); err != nil {
		t.Fatal(err)
	}
}

// Models that do not fit beside each other are queried one after the other, while their bounds and versions change. All queries are
// answered, and there are never more processes than there is room for.
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
	for i := range 60 {
		if code, body := ask(t, addr, names[i%len(names)]); code != 200 {
			t.Errorf("query %d: %d %s", i, code, body)
		}
	}
	close(stop)
	others.Wait()
	until(t, "all sleep", func() bool { return rt.alive() == 0 })
	if n := rt.most(); n > 2 {
		t.Errorf("%d processes at a time where there is room for 2", n)
	}
	until(t, "no version to be awake", func() bool { return s.capacity.Awake() == 0 && s.capacity.Node().Awake == 0 })
}

// A model whose processes fail leaves its room to one with queries. When that one sleeps, the failed one is tried again.
func TestAFailedModelLeavesItsRoomToOthers(t *testing.T) {
	for what, bounds := range map[string]string{"always on": "replicas: {min: 1, max: 1}", "with queries": "replicas: {min: 0, max: 1, initial: 1, idle: 1h}"} {
		t.Run(what, func(t *testing.T) {
			s, rt, addr := alive(t, Config{NodeMemoryBytes: 1 << 30, NodeCPU: 4})
			rt.exits[api.ModelID{Name: "broken", Version: "1"}] = true
			mustApply(t, s, sleeper("broken", bounds+"\nresources: {memory: 700MiB}"))
			until(t, "its launches to fail", deployed(s, "broken", "1").Crashing)
			mustApply(t, s, sleeper("fine", "replicas: {min: 0, max: 1, idle: 1s, delay: 1ms, window: 1s}\nresources: {memory: 700MiB}"), "kind: Function\nname: fine\nmodels: [fine]\nslo: 20ms\ncold_start: 10s")
			if code, body := ask(t, addr, "fine"); code != 200 {
				t.Errorf("a model for which there is room, but for one that has failed, answers %d %s", code, body)
			}
			if m := modelStatus(t, s, "broken"); m.State != api.ModelFailed {
				t.Errorf("the model that has failed is shown as %s", m.State)
			}
			if what == "always on" {
				until(t, "the broken one to be tried again", func() bool { return running(s, "broken") == 1 })
			}
		})
	}
}
