package apptest

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/xebec-serving/xebec/api"
)

// One of two replicas is stopped for less time than the hang timeout. No caller waits for it: the other replica, when
// idle, evaluates its queries too, and describe and the metrics count that. When the stopped replica continues, its late
// answers are ignored.
func TestHedging(t *testing.T) {
	t.Parallel()
	const known = 16 // batches until the scheduler trusts a replica's times
	g := serve(t, "--config", manifest(t,
		testModel("m", []string{"-spin", "5ms"}, "replicas: {min: 2}", "batching: {policy: none}", stoppable, uncached), function("f", "m", "slo: 60s")))
	g.awaitReplicas("m", 2)
	warm := g.startLoad("f", 2, maxLoad)
	m := g.awaitModel("m", "profiles of both replicas", func(m api.ModelStatus) bool {
		return len(m.Replicas) == 2 && min(m.Replicas[0].Profile.Samples, m.Replicas[1].Profile.Samples) >= known
	})
	judge(t, warm.stop(), "ok")

	release := freeze(t, m.Replicas[0].PID)
	l := g.startLoad("f", 2, maxLoad)
	g.await("the other replica to answer first", func(ctx context.Context) (bool, string) {
		m, err := g.scrape(ctx)
		if err != nil {
			return false, err.Error()
		}
		hedged, wins := m.of("hedged_queries_total", "m"), m.of("hedge_wins_total", "m")
		return wins > 0 && hedged >= wins, fmt.Sprintf("%v hedged, %v won", hedged, wins)
	})
	l.served(50)
	judge(t, l.stop(), "ok") // stop returns when every client has its answer
	m = g.model("m")
	if m.Hedges == nil || m.Hedges.Wins == 0 || m.Hedges.Hedged < m.Hedges.Wins {
		t.Errorf("unexpected hedge counts: %+v", m.Hedges)
	}
	g.describes("m", "Hedged:", "went to a second replica too, which answered first")

	release()
	after := g.startLoad("f", 2, maxLoad)
	g.awaitModel("m", "the stopped replica to answer again", func(now api.ModelStatus) bool {
		return len(now.Replicas) == 2 && now.Replicas[0].Queries > m.Replicas[0].Queries+10
	})
	judge(t, after.stop(), "ok")
	if m := g.model("m"); restarts(m) != 0 || g.metrics().exits("m", "hung") != 0 || strings.Contains(lastExits(m), "killed") {
		t.Errorf("%d restarts, %q: expected no restart of the stopped replica", restarts(m), lastExits(m))
	}
}
