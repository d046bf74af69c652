package apptest

import (
	"strings"
	"syscall"
	"testing"

	"github.com/xebec-serving/xebec/api"
)

// maxLoad bounds every load: no test needs more requests to cause what it waits for.
const maxLoad = 50_000

// Two replicas, and one of them is killed again and again under load: what it had is evaluated by the other, and no caller
// notices. The killed replica comes back, and describe says why it went.
func TestKilledWorkerCostsNoAnswer(t *testing.T) {
	t.Parallel()
	g := serve(t, "--config", manifest(t,
		testModel("m", []string{"-spin", "5ms"}, "replicas: {min: 2}"), function("f", "m", "slo: 60s")))
	l := g.startLoad("f", 8, maxLoad)
	for range 6 { // a killed replica has nearly always begun something; once is enough, and each kill doubles the back-off
		m := g.awaitReplicas("m", 2)
		l.served(50)
		before := restarts(m)
		kill(t, m.Replicas[0].PID)
		g.awaitModel("m", "the killed replica is back", func(m api.ModelStatus) bool { return restarts(m) > before && m.ReadyReplicas() == 2 })
		if g.metrics().of("retries_total", "m") > 0 {
			break
		}
	}
	ends := judge(t, l.stop(), "ok")
	if g.metrics().of("retries_total", "m") == 0 {
		t.Error("no query was retried: expected the queries of killed replicas to be tried again")
	}
	if exits := lastExits(g.model("m")); !strings.Contains(exits, "SIGKILL") {
		t.Errorf("the last exits are %q: expected SIGKILL", exits)
	}
	if text := g.must("describe", "model", "m"); !strings.Contains(text, "Last exit:") || !strings.Contains(text, "SIGKILL") {
		t.Errorf("describe does not say how the replica ended:\n%s", text)
	}
	t.Logf("%v", ends)
}

// The only replica is killed under load. Its queries wait for the next one, or get the default at their deadline; the service
// recovers by itself.
func TestKilledOnlyWorkerRecovers(t *testing.T) {
	t.Parallel()
	g := serve(t, "--config", manifest(t,
		testModel("m", []string{"-spin", "1ms"}), function("f", "m", "slo: 1s", theDefault)))
	l := g.startLoad("f", 8, maxLoad)
	for n := range 3 {
		l.served(50)
		kill(t, g.awaitReplicas("m", 1).Replicas[0].PID)
		g.awaitModel("m", "a new replica", func(m api.ModelStatus) bool { return restarts(m) > n && m.ReadyReplicas() == 1 })
	}
	l.served(50)
	t.Logf("%v", judge(t, l.stop(), "ok", "default"))
}

func kill(t *testing.T, pid int) {
	t.Helper()
	if pid <= 0 { // which would mean everybody in this process's group
		t.Fatalf("kill worker %d: there is no such process", pid)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatalf("kill worker %d: %v", pid, err)
	}
}

// A query makes its worker hang. Everybody is answered by the deadline's default or by a prediction; the worker is killed after
// its timeout, and its successor serves.
func TestHungWorkerIsKilled(t *testing.T) {
	t.Parallel()
	g := serve(t, "--config", manifest(t,
		testModel("m", nil, "retry: false", "timeout: 1s"), function("f", "m", "slo: 300ms", theDefault)))
	l := g.startLoad("f", 4, maxLoad)
	l.served(50)

	hung := g.raw("f", "hang")
	if want := api.DeadlineExceeded.Reason(); !hung.Default || hung.DefaultExplanation != want || hung.text() != defaultText {
		t.Errorf("the query that hangs was answered by %v: expected the default, because %q", hung, want)
	}
	g.awaitMetric(1, "kills_total", "m")
	l.served(50)
	m := g.awaitReplicas("m", 1)
	if !strings.Contains(lastExits(m), "killed: ") {
		t.Errorf("the last exit is %q: expected that it was killed, and why", lastExits(m))
	}
	t.Logf("%v; %s", judge(t, l.stop(), "ok", "default"), lastExits(m))
}

// A query kills every worker that evaluates it. It is tried twice, each time costing one worker, and its batch-mates, tried again
// apart from it, are answered.
func TestPoisonQueryCostsTwoBatches(t *testing.T) {
	t.Parallel()
	g := serve(t, "--config", manifest(t,
		testModel("m", []string{"-spin", "2ms"}, "replicas: {min: 2}"), function("f", "m", "slo: 60s"), function("g", "m", "slo: 60s", theDefault),
		testModel("once", nil, "retry: false"), function("once", "once", "slo: 60s")))
	l := g.startLoad("f", 8, maxLoad)
	l.served(50)

	poison := g.raw("f", "die")
	if poison.Status != 502 || poison.Code != "replica_lost" || poison.Cause != api.ReplicaLost.Reason() {
		t.Errorf("the poison was answered by %v: expected 502 replica_lost", poison)
	}
	m := g.awaitModel("m", "2 replicas ready, 2 restarts", func(m api.ModelStatus) bool { return m.ReadyReplicas() == 2 && restarts(m) == 2 })
	if !strings.Contains(lastExits(m), "code 3") {
		t.Errorf("the last exits are %q: expected the worker's exit code 3", lastExits(m))
	}
	if a := g.raw("g", "die"); !a.Default || a.DefaultExplanation != api.ReplicaLost.Reason() || a.text() != defaultText {
		t.Errorf("a poison for a function with a default was answered by %v: expected the default", a)
	}
	g.awaitModel("m", "2 replicas ready, 4 restarts", func(m api.ModelStatus) bool { return m.ReadyReplicas() == 2 && restarts(m) == 4 })
	l.served(50)
	t.Logf("%v", judge(t, l.stop(), "ok"))

	if a := g.raw("once", "die"); a.Code != "replica_lost" {
		t.Errorf("a poison for a model that forbids retries was answered by %v", a)
	}
	g.awaitModel("once", "1 replica ready, 1 restart", func(m api.ModelStatus) bool { return m.ReadyReplicas() == 1 && restarts(m) == 1 })
}
