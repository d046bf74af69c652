package server

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/registry"
	"github.com/xebec-serving/xebec/scheduler"
)

// sleepyVersion is a version of model m that may sleep.
func sleepyVersion(version, replicas string) string {
	return strings.Replace(sleeper("m", "replicas: {"+replicas+"}"), "\nname: m\n", fmt.Sprintf("\nname: m\nversion: %q\n", version), 1)
}

const askM = "kind: Function\nname: m\nmodels: [m]\nslo: 1s\ncold_start: 1m"

// silent has a version's processes run and not connect.
func (r *liveRuntime) silent(version string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.dumb[api.ModelID{Name: "m", Version: version}] = true
}

// connects has the oldest launch of a version that has not yet connected do so.
func (r *liveRuntime) connects(t *testing.T, version string) {
	t.Helper()
	d := deploymentOf(r.s, "m", version)
	var launched []uint64
	until(t, r.s, "a launch of version "+version, func() bool {
		launched = nil
		d.mu.Lock()
		defer d.mu.Unlock()
		r.mu.Lock()
		defer r.mu.Unlock()
		for n := range d.launches {
			if r.replicas[n] == nil {
				launched = append(launched, n)
			}
		}
		return len(launched) > 0
	})
	n := slices.Min(launched)
	i := &liveReplica{r: r, id: d.id, replica: scheduler.ReplicaID(n), gone: make(chan struct{})}
	i.connect(n)
}

func answers(t *testing.T, addr, by string) {
	t.Helper()
	if code, body := ask(t, addr, "m"); code != 200 || !strings.Contains(body, `"`+by+`"`) {
		t.Errorf("answered %d %s: expected %s", code, body, by)
	}
}

func launches(s *Server, version string, n int) func() bool {
	return func() bool {
		d := s.models[api.ModelID{Name: "m", Version: version}]
		d.mu.Lock()
		defer d.mu.Unlock()
		return len(d.launches) == n
	}
}

// A version that may sleep takes over from one that is awake when it has as many replicas as that one, and not before: a start, however long,
// costs no query its answer.
func TestAVersionThatMaySleepTakesOverAwake(t *testing.T) {
	s, rt, addr := alive(t, Config{})
	mustApply(t, s, sleepyVersion("1", "min: 0, max: 3, initial: 2, idle: 1h"), askM)
	until(t, s, "two replicas", func() bool { return deploymentLocked(s, "1").model.Ready.Load() == 2 })
	answers(t, addr, "m@1")
	rt.silent("2")
	mustApply(t, s, sleepyVersion("2", "min: 0, max: 3, idle: 1h"))
	until(t, s, "two launches", launches(s, "2", 2))
	answers(t, addr, "m@1")
	rt.connects(t, "2")
	answers(t, addr, "m@1")
	rt.connects(t, "2")
	until(t, s, "version 2 to serve", serves(s, "2"))
	until(t, s, "its replicas to stay", launches(s, "2", 2))
	answers(t, addr, "m@2")
}

// One that never comes up never takes over, and deploying it says so.
func TestAVersionThatCannotStartDoesNotTakeOver(t *testing.T) {
	s, rt, addr := alive(t, Config{})
	mustApply(t, s, sleepyVersion("1", "min: 0, max: 1, idle: 1h"), askM)
	answers(t, addr, "m@1")
	rt.silent("2")
	mustApply(t, s, sleepyVersion("2", "min: 0, max: 1, idle: 1h"))
	until(t, s, "a launch", launches(s, "2", 1))
	fails(s, "2")
	for range 3 {
		answers(t, addr, "m@1")
	}
	until(t, s, "version 2 to be loading still", stateIs(s, "2", registry.Loading))
	if st := deploymentOf(s, "m", "2").status(); st.State != api.ModelFailed {
		t.Errorf("version 2 is called %s", st.State)
	}
}

// fails notes that a version's launches have failed again and again.
func fails(s *Server, version string) {
	d := deploymentOf(s, "m", version)
	d.mu.Lock()
	d.failed, d.failures = true, crashLoop
	d.mu.Unlock()
	s.noted("m")
}

func deploymentLocked(s *Server, version string) *deployment {
	return s.models[api.ModelID{Name: "m", Version: version}]
}

// Who promotes, or rolls back to, a version that sleeps wakes it; until it is up the one that is awake answers.
func TestASleeperIsWokenBeforeItServes(t *testing.T) {
	s, rt, addr := alive(t, Config{})
	const pinned = "kind: Traffic\nname: m\nserving: "
	mustApply(t, s, sleepyVersion("1", "min: 0, max: 1, idle: 1h"), pinned+`"1"`, askM)
	answers(t, addr, "m@1")
	rt.silent("2")
	mustApply(t, s, sleepyVersion("2", "min: 0, max: 1, idle: 1h"))
	until(t, s, "version 2 to be there, asleep", stateIs(s, "2", registry.Available))
	until(t, s, "no launch", launches(s, "2", 0))
	mustApply(t, s, pinned+`"2"`)
	until(t, s, "a launch", launches(s, "2", 1))
	answers(t, addr, "m@1")
	rt.connects(t, "2")
	until(t, s, "version 2 to serve", serves(s, "2"))
	answers(t, addr, "m@2")
}

// Where nobody is awake a version takes over asleep. If it turns out that it cannot start, the one before answers again.
func TestASleeperThatCannotStartIsReplaced(t *testing.T) {
	s, rt, addr := alive(t, Config{})
	mustApply(t, s, sleepyVersion("1", "min: 0, max: 1, idle: 1h"), askM)
	until(t, s, "version 1 to sleep", serves(s, "1"))
	rt.silent("2")
	mustApply(t, s, sleepyVersion("2", "min: 0, max: 1, idle: 1h"))
	until(t, s, "version 2 to serve", serves(s, "2"))
	until(t, s, "no launch", launches(s, "2", 0))
	fails(s, "2")
	until(t, s, "version 1 to serve", serves(s, "1"))
	answers(t, addr, "m@1")
}

// A version begins to load while the old one sleeps, so that it needs no replica, and the old one wakes before it is looked at again: it gets
// one then, and does not load for as long as the old one is asked.
func TestTheOldOneWakesMeanwhile(t *testing.T) {
	s, _, addr := alive(t, Config{})
	const only = "kind: Traffic\nname: m\nversions: {specific: [\"1\"]}"
	mustApply(t, s, sleepyVersion("1", "min: 0, max: 1, idle: 1h"), only, askM)
	until(t, s, "version 1 to sleep", serves(s, "1"))
	mustApply(t, s, sleepyVersion("2", "min: 0, max: 1, idle: 1h"))
	s.mu.Lock()
	f, two := s.families["m"], deploymentLocked(s, "2")
	f.traffic = nil
	s.loadLocked(f, two)
	if two.asked.Load() != 0 {
		t.Error("a version that takes over asleep was given a replica")
	}
	f.versions["1"].model.Ready.Add(1)
	s.lookLocked(f)
	s.mu.Unlock()
	until(t, s, "version 2 to serve", serves(s, "2"))
	if two.model.Ready.Load() == 0 {
		t.Error("it serves without a replica")
	}
	answers(t, addr, "m@2")
	f.versions["1"].model.Ready.Add(-1)
}
