package server

import (
	"fmt"
	"strings"
	"testing"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/registry"
)

// sleepyVersion is a version of model m that may sleep.
func sleepyVersion(version, replicas string) string {
	return strings.Replace(sleeper("m", "replicas: {"+replicas+"}"), "\nname: m\n", fmt.Sprintf("\nname: m\nversion: %q\n", version), 1)
}

const askM = "kind: Function\nname: m\nmodels: [m]\nslo: 1s\ncold_start: 1m"

// silent lets a version's processes run and not connect.
func (r *liveRuntime) silent(version string) {
	r.set(func() { r.dumb[api.ModelID{Name: "m", Version: version}] = true })
}

// broken lets a version's processes end at once.
func (r *liveRuntime) broken(version string) {
	r.set(func() { r.exits[api.ModelID{Name: "m", Version: version}] = true })
}

func answers(t *testing.T, addr, by string) {
	t.Helper()
	if code, body := ask(t, addr, "m"); code != 200 || !strings.Contains(body, `"`+by+`"`) {
		t.Errorf("answered %d %s: expected %s", code, body, by)
	}
}

// launched is a condition: a version of m has so many processes.
func launched(rt *liveRuntime, version string, n int) func() bool {
	return func() bool { return len(rt.processes("m", version)) == n }
}

// A version that may sleep takes over from an awake one when it has as many replicas as that one, and not before: a start, however
// long, costs no query its answer.
func TestAVersionThatMaySleepTakesOverAwake(t *testing.T) {
	s, rt, addr := alive(t, Config{})
	mustApply(t, s, sleepyVersion("1", "min: 0, max: 3, initial: 2, idle: 1h"), askM)
	until(t, "two replicas", func() bool { return deployed(s, "m", "1").Ready() == 2 })
	answers(t, addr, "m@1")
	rt.silent("2")
	mustApply(t, s, sleepyVersion("2", "min: 0, max: 3, idle: 1h"))
	until(t, "two launches", launched(rt, "2", 2))
	answers(t, addr, "m@1")
	rt.connects(t, "m", "2")
	answers(t, addr, "m@1")
	rt.connects(t, "m", "2")
	until(t, "version 2 to serve", serves(s, "2"))
	until(t, "its replicas to stay", launched(rt, "2", 2))
	answers(t, addr, "m@2")
}

// A version whose processes fail never takes over, and its status says that it has failed.
func TestAVersionThatCannotStartDoesNotTakeOver(t *testing.T) {
	s, rt, addr := alive(t, Config{})
	mustApply(t, s, sleepyVersion("1", "min: 0, max: 1, idle: 1h"), askM)
	answers(t, addr, "m@1")
	rt.broken("2")
	mustApply(t, s, sleepyVersion("2", "min: 0, max: 1, idle: 1h"))
	until(t, "launches of version 2 to have failed", deployed(s, "m", "2").Crashing)
	for range 3 {
		answers(t, addr, "m@1")
	}
	if st := versionStatus(t, s, "2"); st.Version.Phase != api.PhaseLoading || st.State != api.ModelFailed {
		t.Errorf("version 2 is in phase %s and shown as %s", st.Version.Phase, st.State)
	}
}

// Promoting a sleeping version wakes it; until it is up the awake one answers.
func TestASleeperIsWokenBeforeItServes(t *testing.T) {
	s, rt, addr := alive(t, Config{})
	const pinned = "kind: Traffic\nname: m\nserving: "
	mustApply(t, s, sleepyVersion("1", "min: 0, max: 1, idle: 1h"), pinned+`"1"`, askM)
	answers(t, addr, "m@1")
	rt.silent("2")
	mustApply(t, s, sleepyVersion("2", "min: 0, max: 1, idle: 1h"))
	until(t, "version 2 to be there, asleep", stateIs(s, "2", registry.Available))
	until(t, "no launch", launched(rt, "2", 0))
	mustApply(t, s, pinned+`"2"`)
	until(t, "a launch", launched(rt, "2", 1))
	answers(t, addr, "m@1")
	rt.connects(t, "m", "2")
	until(t, "version 2 to serve", serves(s, "2"))
	answers(t, addr, "m@2")
}

// Where no version is awake, a new one takes over asleep. If it cannot start then, the one before it answers again.
func TestASleeperThatCannotStartIsReplaced(t *testing.T) {
	s, rt, addr := alive(t, Config{})
	mustApply(t, s, sleepyVersion("1", "min: 0, max: 1, idle: 1h"), askM)
	until(t, "version 1 to sleep", serves(s, "1"))
	rt.broken("2")
	mustApply(t, s, sleepyVersion("2", "min: 0, max: 1, idle: 1h"), "kind: Function\nname: hurried\nmodels: [m]\nslo: 20ms\ndefault: 0")
	until(t, "version 2 to serve", serves(s, "2"))
	if n := rt.launches(); n != 0 {
		t.Errorf("%d processes have been started", n)
	}
	ask(t, addr, "hurried") // it is answered with the default, and wakes version 2
	until(t, "version 1 to serve", serves(s, "1"))
	answers(t, addr, "m@1")
}
