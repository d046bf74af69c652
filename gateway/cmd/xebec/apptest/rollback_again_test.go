package apptest

import (
	"context"
	"strings"
	"testing"

	"github.com/xebec-serving/xebec/api"
)

// stays checks a model's rollback, that the version it went to answers, and that the other versions are not loaded.
func (g *gateway) stays(what, from, to string, out ...string) {
	g.t.Helper()
	g.awaitServing("m@" + to)
	for _, v := range out {
		g.awaitVersion("m@"+v, what+": the version to be unloaded", func(m api.ModelStatus) bool {
			return m.Version.Phase == api.PhaseDeclared && !m.Version.Aspired
		})
	}
	st, err := g.trafficOf(bounded(g.t), "m")
	if b := st.Spec.Rollback; err != nil || b == nil || b.From != from || b.To != to || st.Serving != to {
		g.t.Errorf("%s: the traffic is %s (%v): expected a rollback from %s to %s", what, toJSON(g.t, st), err, from, to)
	}
	if a := g.ask("f", 7, ""); !a.predicted() || a.Models[0] != "m@"+to {
		g.t.Errorf("%s: f answers %v", what, a)
	}
}

// A rollback after a rollback, or a roll-out that retreats, still keeps out the versions of the first rollback. None of
// the bad versions answers again, even after SIGKILL, until it is promoted or there is a newer version.
func TestRollbackAfterRollback(t *testing.T) {
	t.Parallel()
	args := []string{"--data-dir", newDir(t)}
	g := serve(t, args...)
	good, bad := number("m", "echo", uncached), number("m", "noop", uncached)
	g.apply(good, function("f", "m", "slo: 60s"))
	g.apply(version(bad, "2"))
	g.apply(version(bad, "3"))
	g.awaitServing("m@3")
	g.must("rollback", "m", "--wait")
	g.stays("rolled back", "3", "2", "3")
	g.must("rollback", "m", "--wait")
	g.stays("rolled back again", "3", "1", "2", "3")

	g.must("traffic", "m", "--split", "2=50")
	g.awaitTraffic("m", "the split", func(s api.TrafficStatus) bool { return len(s.Arms) == 2 })
	g.must("rollback", "m", "--wait")
	g.stays("a split undone", "3", "1", "2", "3")

	g.must("traffic", "m", "--rollout", "2", "--min-feedback", "20")
	g.awaitTraffic("m", "the roll-out to begin", func(s api.TrafficStatus) bool { return len(s.Arms) == 2 })
	g.await("the retreat", func(ctx context.Context) (bool, string) {
		g.teach("f", 1, 20, "", itself)
		st, err := g.trafficOf(ctx, "m")
		return err == nil && st.Spec.Rollout == nil, toJSON(t, st)
	})
	g.lastEvent("m", "retreated")
	g.stays("a roll-out that retreated", "3", "1", "2", "3")

	kill(t, g.cmd.Process.Pid)
	g.gone(-1)
	g = serve(t, args...)
	g.stays("after kill -9", "3", "1", "2", "3")
	g.must("promote", "m@2", "--wait")
	g.awaitServing("m@2")
	g.awaitVersion("m@3", "the version to be unloaded", func(m api.ModelStatus) bool { return !m.Version.Aspired })
	g.must("traffic", "m", "--clear", "serving")
	g.stays("an older one promoted, and no more pinned", "3", "2", "3")
	g.apply(version(good, "4"))
	g.awaitServing("m@4")

	// What was rolled back stays out although a newer version has served since.
	g.must("traffic", "m", "--all")
	g.awaitVersion("m@1", "the version to be loaded", func(m api.ModelStatus) bool { return m.Version.Phase == api.PhaseAvailable })
	g.must("rollback", "m", "--wait")
	g.stays("a newer one rolled back", "4", "2", "3", "4")
	if text := g.must("describe", "model", "m@2"); !strings.Contains(text, "3, 4") {
		t.Errorf("describe model does not show versions 3 and 4 as kept out:\n%s", text)
	}
}
