package apptest

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/xebec-serving/xebec/api"
)

// maxLoad bounds every load: no test needs more requests to cause its condition.
const maxLoad = 50_000

// One of two replicas is killed again and again under load. The other replica evaluates its queries, and every caller
// gets a prediction. The killed replica is started again, and describe says why it ended.
func TestKilledWorkerCostsNoAnswer(t *testing.T) {
	t.Parallel()
	g := serve(t, "--config", manifest(t,
		testModel("m", []string{"-spin", "5ms"}, "replicas: {min: 2}"), function("f", "m", "slo: 60s")))
	l := g.startLoad("f", 8, maxLoad)
	for range 6 { // a killed replica has nearly always begun a batch; one retried query is enough, and each kill doubles the back-off
		m := g.awaitReplicas("m", 2)
		l.served(50)
		before := restarts(m)
		kill(t, m.Replicas[0].PID)
		g.awaitModel("m", "the killed replica to be ready again", func(m api.ModelStatus) bool { return restarts(m) > before && m.ReadyReplicas() == 2 })
		if g.metrics().of("retries_total", "m") > 0 {
			break
		}
	}
	ends := judge(t, l.stop(), "ok")
	if g.metrics().of("retries_total", "m") == 0 {
		t.Error("no query was retried: expected retries of the queries of killed replicas")
	}
	if exits := lastExits(g.model("m")); !strings.Contains(exits, "SIGKILL") {
		t.Errorf("the last exits are %q: expected SIGKILL", exits)
	}
	if text := g.must("describe", "model", "m"); !strings.Contains(text, "Last exit:") || !strings.Contains(text, "SIGKILL") {
		t.Errorf("describe does not say how the replica ended:\n%s", text)
	}
	t.Logf("%v", ends)
}

// The only replica is killed under load. Its queries wait for the next replica, or get the default at their deadline. The
// service recovers by itself.
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
	if pid <= 0 { // kill(2) would signal the whole process group
		t.Fatalf("kill worker %d: expected a positive process id", pid)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatalf("kill worker %d: %v", pid, err)
	}
}

// A query makes its worker hang. Every caller gets a prediction, or the default at the deadline. The worker is killed
// after its timeout, and the next replica serves.
func TestHungWorkerIsKilled(t *testing.T) {
	t.Parallel()
	g := serve(t, "--config", manifest(t,
		testModel("m", nil, "retry: false", "timeout: 1s"), function("f", "m", "slo: 300ms", theDefault)))
	l := g.startLoad("f", 4, maxLoad)
	l.served(50)

	hung := g.raw("f", "hang")
	if want := api.DeadlineExceeded.Reason(); !hung.Default || hung.DefaultExplanation != want || hung.text() != defaultText {
		t.Errorf("the hanging query is answered by %v: expected the default with the reason %q", hung, want)
	}
	g.awaitExits(1, "m", "hung")
	l.served(50)
	m := g.awaitReplicas("m", 1)
	if !strings.Contains(lastExits(m), "killed: ") {
		t.Errorf("the last exit is %q: expected that it was killed, with the reason", lastExits(m))
	}
	t.Logf("%v; %s", judge(t, l.stop(), "ok", "default"), lastExits(m))
}

// A query kills every worker that evaluates it. It is tried twice if it was in a batch with others, which costs one worker each
// time, and a third if that batch was late and a second replica evaluated it too. Its batch-mates are retried apart from it and answered.
func TestPoisonQueryCostsItsOwnBatches(t *testing.T) {
	t.Parallel()
	g := serve(t, "--config", manifest(t,
		testModel("m", []string{"-spin", "2ms"}, "replicas: {min: 2}"), function("f", "m", "slo: 60s"), function("g", "m", "slo: 60s", theDefault),
		testModel("once", nil, "retry: false"), function("once", "once", "slo: 60s")))
	l := g.startLoad("f", 8, maxLoad)
	l.served(50)

	poison := g.raw("f", "die")
	if poison.Status != 502 || poison.Code != "replica_lost" || poison.Cause != api.ReplicaLost.Reason() {
		t.Errorf("the poison query is answered by %v: expected 502 replica_lost", poison)
	}
	healed := func(before int) api.ModelStatus {
		return g.awaitModel("m", "2 replicas ready, 1 to 3 restarts more", func(m api.ModelStatus) bool {
			n := restarts(m) - before
			return m.ReadyReplicas() == 2 && 1 <= n && n <= 3
		})
	}
	m := healed(0)
	if !strings.Contains(lastExits(m), "code 3") {
		t.Errorf("the last exits are %q: expected the worker's exit code 3", lastExits(m))
	}
	if a := g.raw("g", "die"); !a.Default || a.DefaultExplanation != api.ReplicaLost.Reason() || a.text() != defaultText {
		t.Errorf("a poison query for a function with a default is answered by %v: expected the default", a)
	}
	healed(restarts(m))
	l.served(50)
	t.Logf("%v", judge(t, l.stop(), "ok"))

	if a := g.raw("once", "die"); a.Code != "replica_lost" {
		t.Errorf("a poison query for a model without retries is answered by %v", a)
	}
	g.awaitModel("once", "1 replica ready, 1 restart", func(m api.ModelStatus) bool { return m.ReadyReplicas() == 1 && restarts(m) == 1 })
}

// Queries that end the process come again and again, with others between them. Each is alone in its batch, so it costs
// one replica and is not tried again, and the delays of the restarts do not grow, because every replica has served.
func TestDeadlyQueriesDoNotAddUp(t *testing.T) {
	t.Parallel()
	g := serve(t, "--config", manifest(t, testModel("m", nil), function("f", "m", "slo: 60s")))
	for n := range 6 {
		if a := g.raw("f", fmt.Sprint("fine ", n)); a.Status != 200 {
			t.Fatalf("query %d is answered by %v: expected a prediction", n, a)
		}
		if a := g.raw("f", "die"); a.Code != "replica_lost" {
			t.Fatalf("deadly query %d is answered by %v: expected replica_lost", n, a)
		}
	}
	ends, longest := 0, 200*time.Millisecond // of the second delay, if a query was tried twice because the machine is busy
	for _, line := range strings.Split(g.must("logs", "m"), "\n") {
		_, text, is := strings.Cut(line, "; next attempt in ")
		if !is {
			continue
		}
		ends++
		if delay, err := time.ParseDuration(text); err != nil || delay > longest {
			t.Errorf("%s: expected a delay of at most %v", line, longest)
		}
	}
	if ends < 6 || ends >= 12 {
		t.Errorf("%d replicas ended: expected one for each deadly query, or two where the end was not known in time", ends)
	}
}
