package status

import (
	"cmp"
	"slices"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/control/versions"
	"github.com/xebec-serving/xebec/scheduler"
)

// Statistics counts what each version of a model has done, or of every model where name is empty.
func (r *Reader) Statistics(name string) []api.ModelStatistics {
	s := r.cfg.Catalog.Lock()
	defer r.cfg.Catalog.Unlock()
	var out []api.ModelStatistics
	var snap scheduler.Snapshot
	for id, v := range s.Versions() {
		if name == "" || id.Name == name {
			out = append(out, statisticsOf(id, v, &snap))
		}
	}
	slices.SortFunc(out, func(a, b api.ModelStatistics) int {
		return cmp.Or(cmp.Compare(a.ID.Name, b.ID.Name), api.CompareVersions(a.ID.Version, b.ID.Version))
	})
	return out
}

func statisticsOf(id api.ModelID, v *versions.Version, snap *scheduler.Snapshot) api.ModelStatistics {
	lane, cached := v.Lane(), v.Model().Cache.Stats()
	lane.Snapshot(snap)
	st := api.ModelStatistics{ID: id, Batches: snap.Counters.Batches, CacheHits: cached.Hits, CacheMisses: cached.Misses}
	for code, n := range snap.Counters.Ended {
		if api.Code(code) == api.OK {
			st.Succeeded += n
		} else {
			st.Failed += n
		}
	}
	queue, evaluation := lane.QueueNanos(), lane.EvalNanos()
	st.Queue = api.Durations{Count: queue.Count(), Nanos: uint64(max(queue.Sum(), 0))}
	st.Evaluation = api.Durations{Count: evaluation.Count(), Nanos: uint64(max(evaluation.Sum(), 0))}
	return st
}
