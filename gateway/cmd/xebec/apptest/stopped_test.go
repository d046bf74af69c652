package apptest

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/xebec-serving/xebec/api"
)

// A replica that stops answering is replaced long before a cold replica would be, and no query fails.
func TestStoppedReplica(t *testing.T) {
	t.Parallel()
	g := serve(t, "--config", manifest(t, testModel("m", nil, "replicas: {min: 2, max: 2}", "batching: {policy: none}", "cache: off"), function("f", "m", "slo: 60s")))
	g.awaitReplicas("m", 2)
	l := g.startLoad("f", 4, maxLoad)
	pids := func(status api.ModelStatus) (pids []int) {
		for _, r := range status.Replicas {
			pids = append(pids, r.PID)
		}
		return pids
	}
	g.await("both replicas to have a profile", func(context.Context) (bool, string) {
		replicas := g.model("m").Replicas
		return !slices.ContainsFunc(replicas, func(r api.ReplicaStatus) bool { return r.Profile.Samples < 16 }), fmt.Sprint(replicas)
	})
	stopped := g.model("m").Replicas[0].PID
	freeze(t, stopped)
	g.await("the stopped replica to be replaced", func(context.Context) (bool, string) {
		m := g.model("m")
		now := pids(m)
		return len(now) == 2 && !slices.Contains(now, stopped) && !slices.Contains(now, 0), fmt.Sprint(now)
	})
	l.served(100)
	judge(t, l.stop(), "ok")
}
