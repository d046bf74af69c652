package apptest

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/xebec-serving/xebec/api"
)

// The gateway is stopped for longer than a worker's timeout, while the worker answers its queries. Those queries get
// their answers when the gateway continues. A query that waited behind them past its deadline gets the default. No worker
// is killed.
func TestAPauseKillsNobody(t *testing.T) {
	t.Parallel()
	const timeout = 8 * time.Second
	g := serve(t, "--config", manifest(t, testModel("m", nil, uncached, "timeout: "+timeout.String(), "batching: {policy: none}"),
		function("f", "m", "slo: 60s"), function("urgent", "m", "slo: 6s", theDefault)))
	pid := g.awaitReplicas("m", 1).Replicas[0].PID
	release := stall(g, "m")
	ctx := bounded(t)
	var asking sync.WaitGroup
	ask := func(function, body string, check func(a answer) bool) {
		asking.Go(func() {
			if a, err := g.post(ctx, "/"+function+"/predict", "text/plain", []byte(body)); err != nil || !check(a) {
				t.Errorf("%s: %s is answered by %v, %v", function, body, a, err)
			}
		})
	}
	predicted := func(a answer) bool { return a.predicted() }
	for range 2 {
		ask("f", "in time", predicted)
	}
	g.awaitMetric(2, "in_flight", "m")
	ask("urgent", "too late", func(a answer) bool { return a.Default && a.DefaultExplanation == api.DeadlineExceeded.Reason() })
	g.awaitModel("m", "one query to wait", func(m api.ModelStatus) bool { return m.QueueDepth == 1 })
	thaw := freeze(t, g.cmd.Process.Pid)
	began := time.Now()
	release()
	g.await("the worker's timeout to pass, and a second", func(context.Context) (bool, string) {
		return time.Since(began) > timeout+time.Second, ""
	})
	thaw()
	asking.Wait()
	m := g.model("m")
	if restarts(m) > 0 || m.ReadyReplicas() != 1 || m.Replicas[0].PID != pid {
		t.Errorf("the worker was ended: %s", lastExits(m))
	}
	g.awaitExits(0, "m", "hung")
	if a := g.raw("f", "hello"); !a.predicted() {
		t.Errorf("after the pause the model answers %v", a)
	}
}
