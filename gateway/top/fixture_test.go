package top

import (
	"fmt"
	"time"

	"github.com/xebec-serving/xebec/api"
)

var then = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// fixture is a snapshot of a gateway, second seconds after it started counting. Each second adds the same to its
// counters.
func fixture(second int) *Snapshot {
	n := uint64(second)
	function := func(name string, qps, p50, p99 float64, models ...string) api.FunctionStatus {
		return api.FunctionStatus{
			Spec: api.FunctionSpec{Name: name, Models: models, Policy: api.PolicySpec{Name: api.PolicySingle}}, Ready: true,
			Rate: api.RateStatus{QueriesPerSecond: qps, P50MS: p50, P99MS: p99}, Queries: map[string]uint64{"ok": 100 * n},
		}
	}
	digits := function("digits", 1234.5, 1.234, 12.34, "digits-svm", "digits-nn@canary")
	digits.Spec.Policy.Name = api.PolicyExp3
	digits.Policy = &api.PolicyStatus{Candidates: []api.CandidateLearning{{Ref: "digits-svm", Share: 0.7}, {Ref: "digits-nn@canary", Share: 0.3}}}
	digits.Queries["overloaded"], digits.Queries["deadline_exceeded"], digits.Defaults = 12*n, 30*n, 30*n
	idle := function("idle", 0, 0, 0, "spare")
	idle.Ready = false
	words := function("words", 3.25, 120, 1834, "bert")

	model := func(name, version string, phase api.VersionPhase, qps, p99 float64, replicas ...api.ReplicaStatus) api.ModelStatus {
		return api.ModelStatus{
			Spec: api.ModelSpec{Name: name, Version: version}, State: api.ModelReady, Replicas: replicas,
			Rate: api.RateStatus{QueriesPerSecond: qps, P99MS: p99}, Version: api.VersionStatus{Phase: phase, Source: "apply"},
		}
	}
	ready := func(id, batches, queries uint64, micros int64) api.ReplicaStatus {
		return api.ReplicaStatus{
			ID: id, PID: 100 + int(id), State: api.ReplicaReady, Cap: 64 * int(id), Batches: batches, Queries: queries, Profile: api.Profile{MeanMicros: micros},
		}
	}
	svm2 := model("digits-svm", "2", api.PhaseAvailable, 1100, 11.1, ready(1, 50*n, 600*n, 10_000), ready(2, 50*n, 400*n, 10_000))
	svm2.Serving, svm2.QueueDepth, svm2.Cache = true, 1234, &api.ModelCacheStatus{Hits: 30 * n, Coalesced: 10 * n, Misses: 60 * n}
	svm3 := model("digits-svm", "3", api.PhaseAvailable, 120, 9, ready(3, 99*n, 120*n, 9800))
	svm3.Version.Source, svm3.Replicas[0].Restarts = "/srv/models", 2
	svm4 := model("digits-svm", "4", api.PhaseRejected, 0, 0)
	bert := model("bert", "1", api.PhaseLoading, 0, 0, api.ReplicaStatus{ID: 9, State: api.ReplicaBackoff, Restarts: 4})
	bert.State = api.ModelFailed

	return &Snapshot{
		At: then.Add(26*time.Hour + time.Duration(second)*time.Second),
		Gateway: api.GatewayStatus{
			Version: "v1.2.3", PID: 7, Started: then, Ready: true, Replicas: 4, Inflight: 34, Revision: 12, Cache: &api.CacheStatus{},
			Store: &api.StoreStatus{Name: "/data/state.db"}, Sources: []api.SourceStatus{{Name: "/srv/models", Problems: []string{"bert/2: no xebec.yaml"}}},
		},
		Functions: []api.FunctionStatus{digits, idle, words},
		Models:    []api.ModelStatus{bert, svm2, svm3, svm4},
		Traffic: []api.TrafficStatus{{
			Spec: api.TrafficSpec{Model: "digits-svm"}, Arms: []api.ArmStatus{{Version: "2", Rule: "serving", Share: 0.9}, {Version: "3", Rule: "split", Share: 0.1}},
		}},
	}
}

// addIdle adds models without queries until there are so many.
func addIdle(s *Snapshot, models int) {
	for i := len(s.Models); i < models; i++ {
		s.Models = append(s.Models, api.ModelStatus{
			Spec: api.ModelSpec{Name: fmt.Sprintf("m%05d", i), Version: "1"}, State: api.ModelIdle, Version: api.VersionStatus{Phase: api.PhaseDeclared, Source: "apply"},
		})
	}
}
