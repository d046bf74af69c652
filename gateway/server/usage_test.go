package server

import (
	"testing"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/registry"
	"github.com/xebec-serving/xebec/scheduler/placement"
)

const mib = 1 << 20

// What is planned with for a replica, look after look.
func TestUsage(t *testing.T) {
	young := func(pid int, m int64) seen { return seen{pid: pid, memoryBytes: m * mib, cpuMillis: 100} }
	old := func(pid int, m int64) seen { return seen{pid: pid, memoryBytes: m * mib, cpuMillis: 100, grown: true} }
	for _, tc := range []struct {
		name  string
		looks [][]seen
		want  int64 // MiB
		grown bool
	}{
		{"nothing yet", nil, 0, false},
		{"one that has only started", [][]seen{{young(1, 50)}}, 50, false},
		{"it grows", [][]seen{{young(1, 50)}, {old(1, 300)}}, 300, true},
		{"it shrinks, slowly", [][]seen{{old(1, 320)}, {old(1, 10)}}, 310, true},
		{"a new one will grow as the old one did", [][]seen{{old(1, 300)}, {old(1, 300), young(2, 20)}}, 300, true},
		{"a new one that is larger counts as it is", [][]seen{{old(1, 100), young(2, 300)}}, 200, true},
		{"one that leaks counts once", [][]seen{{old(1, 283), old(2, 17), old(3, 18)}}, 106, true},
		{"and no more when it has ended", [][]seen{{old(1, 283), old(2, 17), old(3, 18)}, {old(2, 17), old(3, 18), young(4, 17)}}, 17, true},
		{"but nothing is forgotten for one that has only started", [][]seen{{old(1, 320)}, {young(2, 20)}}, 310, true},
		{"a look that finds nobody", [][]seen{{old(1, 320)}, {}}, 320, true},
	} {
		var u usage
		for _, all := range tc.looks {
			u = u.next(all)
		}
		if got := u.memoryBytes / mib; got != tc.want || u.grown != tc.grown || len(tc.looks) > 0 && u.cpuMillis != 100 {
			t.Errorf("%s: %d MiB, %+v; expected %d", tc.name, got, u, tc.want)
		}
	}
}

// One replica that has grown takes what it takes, and the others what they do: the room of a node is divided by what is there.
func TestOneReplicaThatGrowsDoesNotCountForAll(t *testing.T) {
	s, _, _ := alive(t, Config{NodeMemoryBytes: 600 * mib, NodeCPU: 4})
	mustApply(t, s, sleeper("m", "replicas: {min: 3, max: 3}\nresources: {memory: 20MiB}"))
	until(t, s, "three", func() bool { return running(s, "m") == 3 && stateIs(s, "1", registry.Available)() })
	d := deploymentOf(s, "m", "1")
	s.capacity.mu.Lock()
	defer s.capacity.mu.Unlock()
	st := s.capacity.seats[d]
	st.takes = st.takes.next([]seen{{pid: 1, memoryBytes: 275 * mib, grown: true}, {pid: 2, memoryBytes: 17 * mib, grown: true}, {pid: 3, memoryBytes: 17 * mib, grown: true}})
	s.capacity.placeLocked()
	if st.granted != 3 || st.short != placement.NotShort {
		t.Errorf("%d of 3 replicas are left, although all of them fit", st.granted)
	}
}

// What zygotes hold is not there for replicas, and is shown.
func TestZygotesTakeRoom(t *testing.T) {
	s, _, _ := alive(t, Config{NodeMemoryBytes: 600 * mib, NodeCPU: 4})
	s.capacity.zygotesHold(2, 200*mib)
	mustApply(t, s, sleeper("large", "replicas: {min: 1, max: 1}\nresources: {memory: 450MiB}"))
	until(t, s, "there to be no room", deploymentOf(s, "large", "1").full.Load)
	if n := s.capacity.node(); n.Zygotes != 2 || n.ZygoteBytes != 200*mib || n.Free.MemoryBytes != 400*mib || n.Budget.MemoryBytes != 600*mib {
		t.Errorf("the node is %+v", n)
	}
	s.capacity.zygotesHold(0, 0)
	until(t, s, "a replica", func() bool { return running(s, "large") == 1 })
}

// A model whose starts fail keeps no room from one that can run: whoever is asked gets it. When that one sleeps the other is tried again.
func TestAFailedModelLeavesItsRoomToOthers(t *testing.T) {
	for what, bounds := range map[string]string{"always on": "replicas: {min: 1, max: 1}", "being asked": "replicas: {min: 0, max: 1, initial: 1, idle: 1h}"} {
		t.Run(what, func(t *testing.T) {
			s, rt, addr := alive(t, Config{NodeMemoryBytes: 1 << 30, NodeCPU: 4})
			rt.mu.Lock()
			rt.dumb[api.ModelID{Name: "broken", Version: "1"}] = true
			rt.mu.Unlock()
			mustApply(t, s, sleeper("broken", bounds+"\nresources: {memory: 700MiB}"))
			until(t, s, "its start", func() bool { return running(s, "broken") == 1 })
			d := deploymentOf(s, "broken", "1")
			d.mu.Lock()
			d.failed, d.failures = true, crashLoop
			d.mu.Unlock()
			mustApply(t, s, sleeper("fine", "replicas: {min: 0, max: 1, idle: 1s, delay: 1ms, window: 1s}\nresources: {memory: 700MiB}"), "kind: Function\nname: fine\nmodels: [fine]\nslo: 20ms\ncold_start: 10s")
			if code, body := ask(t, addr, "fine"); code != 200 {
				t.Errorf("a model for which there is room, but for one that has failed, answers %d %s", code, body)
			}
			if m := d.status(); m.State != "failed" {
				t.Errorf("the model that has failed is called %s", m.State)
			}
			if what == "always on" {
				until(t, s, "the broken one to be tried again", func() bool { return running(s, "broken") == 1 })
			}
		})
	}
}
