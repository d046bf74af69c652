package capacity

import (
	"testing"
	"time"

	"github.com/xebec-serving/xebec/api"
)

// A version that is being validated keeps its replica, however long that takes and whichever version wants the room.
func TestALoadingVersionIsNotEvicted(t *testing.T) {
	b := newBench(t, 1<<30)
	m := b.join("m", "replicas: {min: 1, max: 2}\nresources: {memory: 700MiB}")
	m.Load(1)
	m.connect(1)
	if m.Asked() != 1 {
		t.Fatalf("it has %d replicas", m.Asked())
	}
	other := b.join("other", "replicas: {min: 1, max: 1}\nresources: {memory: 400MiB}")
	other.SetDemand(20*time.Millisecond, 10)
	other.Serve(false)
	st := m.seat()
	b.mu.Lock()
	minute := api.Nanos(time.Minute) // it has been loading for a minute
	st.last, st.grown = st.last-minute, st.grown-minute
	b.mu.Unlock()
	other.submit(other.direct)
	b.tick()
	if m.Asked() != 1 || other.Asked() != 0 {
		t.Errorf("the loading version has %d replicas, the other one %d", m.Asked(), other.Asked())
	}
}

// A version whose launches keep failing has no claim to the room of another one. When that one sleeps, it is tried again.
func TestAFailingVersionGivesItsRoomToOthers(t *testing.T) {
	t.Run("in a gateway that has just started", func(t *testing.T) { failingVersion(t, 0) })
	t.Run("later", func(t *testing.T) { failingVersion(t, api.Nanos(time.Minute)) })
}

func failingVersion(t *testing.T, ahead api.Nanos) {
	b := newBench(t, 1<<30)
	broken := b.join("broken", "replicas: {min: 1, max: 1}\nresources: {memory: 700MiB}")
	broken.Serve(false)
	fine := b.join("fine", "replicas: {min: 0, max: 1}\nresources: {memory: 700MiB}")
	fine.SetDemand(20*time.Millisecond, 1)
	fine.Serve(false)
	fine.Wake()
	b.answerCalls()
	if broken.Asked() != 1 || !fine.NoRoom() {
		t.Fatalf("while nothing has failed, the always-on version has %d replicas", broken.Asked())
	}
	broken.crashing, b.ahead = true, ahead
	fine.submit(fine.direct)
	b.tick()
	if broken.Asked() != 0 {
		t.Errorf("the failing version keeps %d replicas", broken.Asked())
	}
	until(t, "its process to end", func() bool { return broken.set.Len() == 0 })
	b.tick()
	if fine.Asked() != 1 {
		t.Errorf("the other version has %d replicas", fine.Asked())
	}
	fine.Release()
	until(t, "the other's process to end", func() bool { return fine.set.Len() == 0 })
	b.tick()
	if broken.Asked() != 1 {
		t.Errorf("the failing version has %d replicas when there is room again", broken.Asked())
	}
}

// Queries for which there is no room are looked at by each tick, and do not call one by one.
func TestAVersionWithoutRoomIsNotCalled(t *testing.T) {
	b := newBench(t, 1<<30)
	first := b.join("first", "replicas: {min: 1, max: 1}\nresources: {memory: 700MiB}")
	first.Serve(false)
	second := b.join("second", "replicas: {min: 0, max: 1}\nresources: {memory: 700MiB}")
	second.Serve(false)
	second.submit(second.direct)
	second.Wake()
	if !second.woken() {
		t.Fatal("a sleeping version was not called")
	}
	b.answerCalls()
	if !second.NoRoom() {
		t.Fatalf("it has %d replicas where there is no room", second.Asked())
	}
	if second.Wake(); second.woken() {
		t.Error("it was called although there is no room")
	}
	first.Release()
	until(t, "the first to end", func() bool { return first.set.Len() == 0 })
	b.tick()
	if second.Asked() != 1 {
		t.Errorf("it has %d replicas where there is room", second.Asked())
	}
}

// A query may reach the lane after it saw a replica, and while the version is put to sleep. It wakes the version whenever that is.
func TestAQueryThatIsLateForTheLastReplicaWakesTheVersion(t *testing.T) {
	for _, c := range []struct {
		name  string
		sleep func(b *bench, m *fake, st *seat)
	}{
		{"before the count is set to 0", func(b *bench, m *fake, st *seat) {
			m.submit(m.direct)
			b.setCount(st, 0)
		}},
		{"between that and the end of its seat", func(b *bench, m *fake, st *seat) {
			b.setCount(st, 0)
			until(b.t, "its process to end", func() bool { return m.set.Len() == 0 })
			m.submit(m.direct)
			b.vacate(st)
		}},
		{"after the end of its seat, before its process is reported gone", func(b *bench, m *fake, st *seat) {
			b.setCount(st, 0)
			m.submit(m.direct)
			m.ReplicaLost()
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t, 1<<30)
			m := b.join("m", "replicas: {min: 0, max: 1, initial: 1, idle: 1h}")
			m.Serve(false)
			st := m.seat()
			if m.Asked() != 1 {
				t.Fatalf("it has %d replicas", m.Asked())
			}
			b.mu.Lock()
			st.want, st.granted = 0, 0
			c.sleep(b, m, st)
			b.mu.Unlock()
			if !m.woken() {
				t.Fatal("it was not called")
			}
			b.answerCalls()
			if m.Asked() != 1 {
				t.Errorf("it has %d replicas", m.Asked())
			}
		})
	}
}

// A version that was awake only to be validated sleeps when it serves, unless queries wait.
func TestAVersionThatServesSleepsUnlessQueriesWait(t *testing.T) {
	for _, waits := range []bool{false, true} {
		b := newBench(t, 1<<30)
		m := b.join("m", "replicas: {min: 0, max: 1}")
		m.Load(1)
		if waits {
			m.submit(m.direct)
		}
		m.Serve(false)
		if want := map[bool]int{true: 1}[waits]; m.Asked() != want || m.model.Asleep.Load() == waits {
			t.Errorf("queries wait: %v; it has %d replicas, expected %d", waits, m.Asked(), want)
		}
	}
}
