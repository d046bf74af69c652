package capacity

import (
	"testing"

	"github.com/xebec-serving/xebec/scheduler/placement"
)

// What is planned for a replica, measurement after measurement.
func TestUsage(t *testing.T) {
	young := func(pid int, m int64) measured { return measured{pid: pid, memoryBytes: m * mib, cpuMillis: 100} }
	old := func(pid int, m int64) measured {
		return measured{pid: pid, memoryBytes: m * mib, cpuMillis: 100, warm: true}
	}
	for _, tc := range []struct {
		name         string
		measurements [][]measured
		want         int64 // MiB
		warm         bool
	}{
		{"nothing yet", nil, 0, false},
		{"a replica that has just started", [][]measured{{young(1, 50)}}, 50, false},
		{"it grows", [][]measured{{young(1, 50)}, {old(1, 300)}}, 300, true},
		{"it shrinks, slowly", [][]measured{{old(1, 320)}, {old(1, 10)}}, 310, true},
		{"a new one will grow as the old one did", [][]measured{{old(1, 300)}, {old(1, 300), young(2, 20)}}, 300, true},
		{"a new one that is larger counts as it is", [][]measured{{old(1, 100), young(2, 300)}}, 200, true},
		{"one that leaks counts once", [][]measured{{old(1, 283), old(2, 17), old(3, 18)}}, 106, true},
		{"and not after it has ended", [][]measured{{old(1, 283), old(2, 17), old(3, 18)}, {old(2, 17), old(3, 18), young(4, 17)}}, 17, true},
		{"a replica that has just started does not reset the mean", [][]measured{{old(1, 320)}, {young(2, 20)}}, 310, true},
		{"a measurement without replicas", [][]measured{{old(1, 320)}, {}}, 320, true},
	} {
		var u usage
		for _, all := range tc.measurements {
			u = u.next(all)
		}
		if got := u.memoryBytes / mib; got != tc.want || u.warm != tc.warm || len(tc.measurements) > 0 && u.cpuMillis != 100 {
			t.Errorf("%s: %d MiB, %+v; expected %d", tc.name, got, u, tc.want)
		}
	}
}

// One replica that has grown counts as what it uses, and the others as what they use.
func TestOneReplicaThatGrowsDoesNotCountForAll(t *testing.T) {
	b := newBench(t, 600*mib)
	m := b.join("m", "replicas: {min: 3, max: 3}\nresources: {memory: 20MiB}")
	m.Serve(false)
	if m.Asked() != 3 {
		t.Fatalf("it has %d replicas", m.Asked())
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	st := b.seats[&m.Member]
	st.usage = st.usage.next([]measured{{pid: 1, memoryBytes: 275 * mib, warm: true}, {pid: 2, memoryBytes: 17 * mib, warm: true}, {pid: 3, memoryBytes: 17 * mib, warm: true}})
	b.place()
	if st.granted != 3 || st.short != placement.NotShort {
		t.Errorf("%d of 3 replicas are left, although all of them fit", st.granted)
	}
}

// The memory of processes with preloaded modules is not available to replicas, and is shown.
func TestPreloadedModulesTakeRoom(t *testing.T) {
	b := newBench(t, 600*mib)
	b.setPreloaded(2, 200*mib)
	m := b.join("large", "replicas: {min: 1, max: 1}\nresources: {memory: 450MiB}")
	m.Serve(false)
	if !m.NoRoom() || m.Asked() != 0 {
		t.Errorf("%d replicas of 450 MiB where 400 MiB are free", m.Asked())
	}
	if n := b.Node(); n.Zygotes != 2 || n.ZygoteBytes != 200*mib || n.Free.MemoryBytes != 400*mib || n.Budget.MemoryBytes != 600*mib {
		t.Errorf("the node is %+v", n)
	}
	b.setPreloaded(0, 0)
	b.tick()
	if m.Asked() != 1 {
		t.Errorf("%d replicas where 600 MiB are free", m.Asked())
	}
}
