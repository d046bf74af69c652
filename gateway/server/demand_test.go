package server

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/containers"
)

// TestAShortHintIsSeenFromItsLeadToItsEnd: a hint that is shorter than the time by which replicas are started ahead counts all that time
// through: they are not taken away again just before those come that they are for.
func TestAShortHintIsSeenFromItsLeadToItsEnd(t *testing.T) {
	s, _, _ := alive(t, Config{})
	from := time.Now().Add(time.Hour).Truncate(time.Second).UTC()
	to := from.Add(15 * time.Second)
	hint := func(rate float64, from, to time.Time) string {
		return fmt.Sprintf("{rate: %g, from: %s, to: %s}", rate, from.Format(time.RFC3339), to.Format(time.RFC3339))
	}
	mustApply(t, s, sleeper("m", "replicas: {min: 0, max: 2}", "expect: ["+hint(10, from, to)+", "+hint(40, from.Add(5*time.Second), from.Add(6*time.Second))+"]"))
	d := deploymentOf(s, "m", "1")
	for at := from.Add(-2 * expectAhead); at.Before(to.Add(expectAhead)); at = at.Add(time.Second) {
		want := 0.0
		switch ahead := from.Sub(at); {
		case ahead <= expectAhead-5*time.Second && ahead > -6*time.Second:
			want = 40 // the larger one is to come, or there
		case ahead <= expectAhead && at.Before(to):
			want = 10
		}
		if got := d.expected(at); got != want {
			t.Fatalf("%v before the hint begins %g queries a second are expected: expected %g", from.Sub(at), got, want)
		}
	}
}

// TestASleepingModelKeepsItsProfile: what was known of a replica's times is told of a model that has none any more.
func TestASleepingModelKeepsItsProfile(t *testing.T) {
	s, _, addr := alive(t, Config{})
	mustApply(t, s, sleeper("m", "replicas: {min: 0, max: 1, idle: 1s}"), "kind: Function\nname: m\nmodels: [m]\nslo: 1s\ncold_start: 10s")
	if p := modelStatus(t, s, "m").Capacity.Profile; p != nil {
		t.Fatalf("before anybody has asked: %+v", p)
	}
	for range knownBatches { // one after the other, so that each is a batch
		if code, body := ask(t, addr, "m"); code != 200 {
			t.Fatalf("%d %s", code, body)
		}
	}
	until(t, s, "it sleeps", asleepNow(s, "m", "1"))
	m := modelStatus(t, s, "m")
	if p := m.Capacity.Profile; len(m.Replicas) != 0 || p == nil || p.Batches < knownBatches || math.Abs(p.InterceptMicros-1) > 1e-9 || p.SlopeMicros != 0 || p.P99Micros != 1 || p.MeanBatch != 1 {
		t.Errorf("%d batches of one query that took a microsecond each, and %d replicas are left: %+v", knownBatches, len(m.Replicas), p)
	}
}

// TestAFailureIsRememberedWithoutReplicas: a model that fails says why, also when nobody asks it any more.
func TestAFailureIsRememberedWithoutReplicas(t *testing.T) {
	s, _, _ := alive(t, Config{})
	mustApply(t, s, sleeper("m", "replicas: {min: 0, max: 1}"))
	until(t, s, "it sleeps", asleepNow(s, "m", "1"))
	d := deploymentOf(s, "m", "1")
	for replica := range uint64(crashLoop) {
		d.logs.Add(1000+replica, containers.Stderr, "  File \"model.py\", line 1")
		d.logs.Add(1000+replica, containers.Stderr, fmt.Sprintf("ModuleNotFoundError: No module named 'sklearn%d'", replica))
		d.logs.Add(1000+replica, containers.System, "replica ended")
		d.event(containers.Event{Kind: containers.Exited, Replica: 1000 + replica, Reason: "exited with code 1 after 0.3 s"})
	}
	m := modelStatus(t, s, "m")
	const want = "0 of 0 replicas are ready; exited with code 1 after 0.3 s: ModuleNotFoundError: No module named 'sklearn2'"
	if c := m.Conditions[0]; m.State != api.ModelFailed || c.Reason != "ReplicasFail" || !strings.HasSuffix(c.Message, want) {
		t.Errorf("%s, %s: %q, expected %q", m.State, c.Reason, c.Message, want)
	}
}
