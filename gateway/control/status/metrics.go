package status

import (
	"context"
	"math/bits"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/cache"
	"github.com/xebec-serving/xebec/gateway/control/deployment"
	"github.com/xebec-serving/xebec/gateway/control/versions"
	"github.com/xebec-serving/xebec/gateway/internal/obs"
	"github.com/xebec-serving/xebec/scheduler"
)

// Read is the snapshot of all counters that a scrape shows.
func (r *Reader) Read() obs.Snapshot {
	s := r.cfg.Catalog.Lock()
	defer r.cfg.Catalog.Unlock()
	out := obs.Snapshot{Started: r.cfg.Started, Version: r.cfg.Version, AcceptErrors: r.cfg.AcceptErrors(), EdgeRefused: r.cfg.EdgeRefused(), Loops: r.cfg.Loops(), Replicas: r.cfg.Replicas()}
	r.cfg.Functions.Read(s, &out)
	var snap scheduler.Snapshot
	for id, v := range s.Versions() {
		out.Models = append(out.Models, modelSample(id, v, &snap))
		if h := v.Cold.Histogram(); h.Count > 0 {
			out.Capacity.ColdStarts = append(out.Capacity.ColdStarts, obs.ColdStartSample{Name: id.Name, Version: id.Version, Waits: h})
		}
	}
	r.readState(&out)
	out.Lifecycle.Outcomes = map[string]uint64{}
	out.Lifecycle.Outcomes["rolled_out"], out.Lifecycle.Outcomes["retreated"] = r.cfg.Declarations.Outcomes()
	out.Lifecycle.Revision = r.cfg.Declarations.StoreRevision()
	s.Read(&out.Lifecycle)
	if r.cfg.Inferences != nil {
		l := r.cfg.Inferences.Stats()
		out.Lifecycle.Log = &obs.InferenceLogSample{Records: l.Records + l.Feedback, Dropped: l.Dropped.Total(), RawBytes: l.RawBytes, WrittenBytes: l.WrittenBytes}
	}
	r.cfg.Capacity.Read(&out.Capacity)
	r.readPlan(&out)
	return out
}

func modelSample(id api.ModelID, v *versions.Version, snap *scheduler.Snapshot) obs.ModelSample {
	lane := v.Lane()
	m := obs.ModelSample{
		Name: id.Name, Version: id.Version, Ready: v.Ready(), Endpoint: v.Model().Stats.Read(),
		QueueTime: histogram(lane.QueueNanos(), 1e-9, firstNanosLog2, lastNanosLog2), BatchSize: histogram(lane.BatchSize(), 1, firstSizeLog2, lastSizeLog2),
		WorkerTime: histogram(lane.EvalNanos(), 1e-9, firstNanosLog2, lastNanosLog2), DeadlineLate: histogram(lane.LateNanos(), 1e-9, firstNanosLog2, lastNanosLog2),
	}
	lane.Snapshot(snap)
	m.Queued, m.InFlight = snap.Queued+snap.Late+snap.Retrying, snap.Held-snap.Queued-snap.Late-snap.Retrying
	m.Ended = deployment.CountsByCode(snap.Counters.Ended[:])
	m.Streams = v.StreamStatus()
	m.Hedged, m.HedgeWins = snap.Counters.Hedged, snap.Counters.HedgeWins
	m.Batches, m.Retries, m.Isolated = snap.Counters.Batches, snap.Counters.Retries, snap.Counters.Isolated
	if st := v.Model().Cache.Stats(); st != (cache.ModelStats{}) {
		m.Cache = map[string]uint64{"hit": st.Hits, "miss": st.Misses, "coalesced": st.Coalesced, "bypass": st.Bypassed}
	}
	return m
}

// readState adds what a scrape shows of the cache and of the store.
func (r *Reader) readState(out *obs.Snapshot) {
	c := r.cfg.Cache.Stats()
	out.Cache = obs.CacheSample{Bytes: c.Bytes, MaxBytes: c.MaxBytes, Entries: c.Entries, Evicted: c.Evicted, Collisions: c.Collisions}
	l := r.storeStats()
	out.State = obs.StateSample{HasStore: r.cfg.Store != nil, Unavailable: l.Unavailable, Contexts: l.Contexts, Pending: l.Pending, Lost: uint64(l.Lost), Elsewhere: uint64(l.Elsewhere), Errors: uint64(l.Errors), Evicted: uint64(l.Evicted)}
}

// readPlan adds the last plan, if the planner is awake.
func (r *Reader) readPlan(out *obs.Snapshot) {
	if r.cfg.Epoch == nil {
		return
	}
	st, err := r.Scheduler(context.Background())
	if err != nil {
		return
	}
	out.Epochs, out.PlanTime = st.Epochs, histogram(&r.cfg.Epoch.PlanNanos, 1e-9, firstPlanLog2, lastPlanLog2)
	functions := make(map[string]*api.FunctionPlanStatus, len(st.Functions))
	for i := range st.Functions {
		functions[st.Functions[i].Name] = &st.Functions[i]
	}
	for i := range out.Functions {
		f := &out.Functions[i]
		p := functions[f.Name]
		if p == nil {
			continue
		}
		f.Refused, f.CostPerSecond = p.Refused, p.CostPerSecond
		for _, c := range p.Candidates {
			if id, err := api.ParseModelRef(c.Model); err == nil {
				f.Planned = append(f.Planned, obs.PlannedSample{Model: id.Name, Version: id.Version, Part: c.Evaluated})
			}
		}
	}
	models := make(map[string]*api.ModelPlanStatus, len(st.Models))
	for i := range st.Models {
		models[st.Models[i].Model] = &st.Models[i]
	}
	for i := range out.Models {
		m := &out.Models[i]
		if p := models[m.Name+"@"+m.Version]; p != nil {
			m.CapacityPerSecond, m.PlannedPerSecond = p.CapacityPerSecond, p.PlannedPerSecond
		}
	}
	for _, d := range st.Devices {
		out.Devices = append(out.Devices, obs.DeviceSample{Name: d.Name, Busy: d.Busy})
	}
}

// The bounds of exported histograms are powers of two and always the same, so that series can be added up.
const (
	firstNanosLog2, lastNanosLog2 = 14, 36 // 16 µs to 69 s
	firstSizeLog2, lastSizeLog2   = 0, 16  // 1 to 65,536 queries
	firstPlanLog2, lastPlanLog2   = 10, 30 // 1 µs to 1.1 s
)

// histogram turns a lane's histogram into cumulative counts at powers of two, in a unit that is scale times its own.
func histogram(h interface {
	Buckets(func(int64, uint64) bool)
	Count() uint64
	Sum() int64
}, scale float64, first, last int) obs.Histogram {
	if h.Count() == 0 {
		return obs.Histogram{} // it is not shown: most of ten thousand models never see a query
	}
	counts := make([]uint64, last+1)
	out := obs.Histogram{Sum: float64(h.Sum()) * scale, Buckets: make(map[float64]uint64, last-first+1)}
	for bound, n := range h.Buckets {
		out.Count += n
		if p := bits.Len64(uint64(max(bound, 1) - 1)); p <= last {
			counts[max(p, first)] += n
		}
	}
	below := uint64(0)
	for p := first; p <= last; p++ {
		below += counts[p]
		out.Buckets[float64(int64(1)<<p)*scale] = below
	}
	return out
}
