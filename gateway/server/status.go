package server

import (
	"context"
	"fmt"
	"math/bits"
	"sort"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/containers"
	"github.com/xebec-serving/xebec/gateway/cache"
	"github.com/xebec-serving/xebec/gateway/internal/obs"
	"github.com/xebec-serving/xebec/scheduler"
)

// describeLogLines is how many log lines a model's description ends with.
const describeLogLines = 20

// Models describes every version of every model, or those of one.
func (s *Server) Models(ctx context.Context, name string) ([]api.ModelStatus, error) {
	s.mu.Lock()
	var of []*deployment
	for id, d := range s.models {
		if name == "" || id.Name == name {
			of = append(of, d)
		}
	}

	s.mu.Unlock()
	if name != "" && len(of) == 0 {
		return nil, api.Errorf(api.NotFound, "no model %q", name)
	}
	sort.Slice(of, func(i, j int) bool {
		a, b := of[i].id, of[j].id
		return a.Name < b.Name || a.Name == b.Name && api.CompareVersions(a.Version, b.Version) < 0
	})
	out := make([]api.ModelStatus, 0, len(of))
	for _, d := range of {
		m := d.status()
		s.mu.Lock()
		if s.models[d.id] != d { // it was deleted since: whoever edits it is not to declare it anew
			s.mu.Unlock()
			continue
		}
		m.Spec, m.Dir, m.Revision = *d.spec(), d.spec().Dir, s.revisionLocked(api.KindModel, d.id.String()) // of one moment
		if f := s.families[d.id.Name]; f != nil {
			m.ServingVersion = f.inForce()
			m.Serving = m.ServingVersion == d.id.Version
			m.Version = d.versionStatusLocked(f)
			m.State = stateOf(&m.Version, &m)
			if m.Version.Reason != "" {
				m.Conditions = append(m.Conditions, api.Condition{
					Type: "Serving", Status: api.ConditionFalse, Reason: string(m.Version.Phase), Message: m.Version.Reason, Since: m.Version.Since,
				})
			}
		}
		s.mu.Unlock()
		if name != "" {
			m.Logs = lastLines([]*deployment{d}, describeLogLines)
			m.Accuracy = d.accuracy(ctx)
		}
		out = append(out, m)
	}
	if name != "" && len(out) == 0 {
		return nil, api.Errorf(api.NotFound, "no model %q", name)
	}
	return out, nil
}

func (d *deployment) status() api.ModelStatus {
	var snap scheduler.Snapshot
	d.lane.Snapshot(&snap)
	m := api.ModelStatus{
		Spec: *d.spec(), Dir: d.spec().Dir, Created: d.created, Replicas: []api.ReplicaStatus{},
		QueueDepth: snap.Queued + snap.Late + snap.Retrying, ObjectiveMicros: d.objectiveNanos.Load() / 1000, Queries: codes(snap.Counters.Ended[:]),
	}
	if n := snap.Counters.Hedged; n > 0 {
		m.Hedges = &api.HedgeStatus{Hedged: n, Wins: snap.Counters.HedgeWins}
	}
	m.Rate = d.modelRate(snap.Counters.Ended[api.OK])
	scheduled := map[uint64]scheduler.ReplicaSnapshot{}
	for _, r := range snap.Replicas {
		scheduled[uint64(r.ID)] = r
	}
	ready, reason := 0, ""
	for _, st := range d.set.Status() {
		r := d.replicaStatus(st, scheduled)
		if r.State == api.ReplicaReady {
			ready++
		} else if st.LastExit != "" && reason == "" {
			reason = exitText(st.LastExit, st.LastExitLines)
		}
		m.Replicas = append(m.Replicas, r)
	}
	d.mu.Lock()
	failed, failures, lastExit := d.failed, d.failures, d.lastExit
	d.mu.Unlock()
	m.Cache, m.Capacity = d.cacheStatus(), d.s.capacity.status(d)
	wanted := m.Capacity.Wanted
	c := api.Condition{Type: "Ready", Status: api.ConditionTrue, Reason: "ReplicasReady", Message: fmt.Sprintf("%d of %d replicas are ready", ready, wanted)}
	switch {
	case wanted == 0 && ready == 0 && failures < crashLoop:
		m.State = api.ModelIdle
		c.Status, c.Reason = api.ConditionFalse, "NoReplicaWanted"
	case wanted > 0 && m.Capacity.Granted == 0 && failures < crashLoop: // one that fails has to be mended first
		m.State = api.ModelDegraded
		c.Status, c.Reason, reason = api.ConditionFalse, "NoRoom", m.Capacity.ShortWhy
	case ready > 0 && ready >= d.spec().Replicas.Min:
		m.State = api.ModelReady
	case ready > 0:
		m.State = api.ModelDegraded
		c.Status, c.Reason = api.ConditionFalse, "TooFewReplicas"
	case failed:
		m.State = api.ModelFailed
		c.Status, c.Reason = api.ConditionFalse, "ReplicasFail"
		if reason == "" { // nobody asks it any more, so that the replicas that failed are not there to say it
			reason = lastExit
		}
	default:
		m.State = api.ModelStarting
		c.Status, c.Reason = api.ConditionFalse, "Starting"
		if reason == "" {
			reason = silent(m.Replicas)
		}
	}
	if reason != "" {
		c.Message += "; " + reason
	}
	m.Conditions = []api.Condition{c}
	return m
}

// exitText is how a process ended, with the last of what it wrote to stderr.
func exitText(how string, lines []string) string {
	if n := len(lines); n > 0 {
		how += ": " + lines[n-1]
	}
	return how
}

// lastWords are the last lines that a replica wrote to stderr.
func (d *deployment) lastWords(replica uint64) (lines []string) {
	for _, l := range d.logs.TailOf(replica, describeLogLines) {
		if l.Stream == containers.Stderr {
			lines = append(lines, l.Text)
		}
	}
	return lines
}

// silentAfter is when it is worth saying that a process runs and its worker has not connected. Large models load for longer.
const silentAfter = 10 * time.Second

// silent says so, of the replica that has been running longest.
func silent(replicas []api.ReplicaStatus) string {
	for _, r := range replicas {
		if ran := time.Since(r.Since); r.State == api.ReplicaRunning && ran >= silentAfter {
			return fmt.Sprintf("replica %d runs for %v and its worker has not connected: it loads, or does not come to its xebec.serve; it is ended and started again after %v",
				r.ID, ran.Round(time.Second), containers.DefaultReadyWithin)
		}
	}
	return ""
}

func (d *deployment) replicaStatus(st containers.Status, scheduled map[uint64]scheduler.ReplicaSnapshot) api.ReplicaStatus {
	r := api.ReplicaStatus{ID: st.Replica, PID: st.PID, Since: st.Since, Restarts: st.Restarts, NextAttempt: st.NextAttempt, LastExit: st.LastExit}
	r.State = api.ReplicaState(st.State.String()) // the two packages name the same states alike; a test holds them to it
	d.mu.Lock()
	if l := d.launches[st.Replica]; l != nil {
		r.LastError, r.LastErrorAt = l.lastError, l.lastErrorAt
		if l.worker != nil {
			r.Binding, r.Ring = l.worker.Binding(), l.worker.Ring()
			r.Batches, r.Queries = l.worker.Served()
		}
	}
	d.mu.Unlock()
	if s, ok := scheduled[st.Replica]; ok {
		r.Cap, r.Outstanding = s.Cap, s.Queries
		mean := 0.0
		if r.Batches > 0 {
			mean = s.InterceptNanos + s.SlopeNanos*float64(r.Queries)/float64(r.Batches)
		}
		r.Profile = api.Profile{
			Samples: s.Samples, MeanMicros: int64(mean / 1000), P99Micros: s.P99Nanos / 1000, InterceptMicros: s.InterceptNanos / 1000, SlopeMicros: s.SlopeNanos / 1000,
		}
	}
	return r
}

// codes names what is not zero.
func codes(counts []uint64) map[string]uint64 {
	m := map[string]uint64{}
	for c, n := range counts {
		if n > 0 {
			m[api.Code(c).String()] = n
		}
	}
	return m
}

// Functions describes every function, or one.
func (s *Server) Functions(_ context.Context, name string) ([]api.FunctionStatus, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []api.FunctionStatus
	for n, f := range s.functions {
		if name != "" && name != n {
			continue
		}
		read := f.stats.Read()
		st := api.FunctionStatus{Spec: f.spec, Revision: s.revisionLocked(api.KindFunction, n), Created: f.created, Queries: codes(read.Codes[:]), Rate: f.rate.look(read, time.Now())}
		if f.spec.Default != nil {
			for c, n := range read.Codes {
				if api.Code(c) != api.OK && api.Code(c) != api.InvalidArgument {
					st.Defaults += n
				}
			}
		}
		contexts := 0
		if name != "" {
			contexts = api.MaxStatusContexts
		}
		st.Policy, st.Shadow = s.policyStatusLocked(f, contexts), s.shadowStatusLocked(f)
		c := api.Condition{Type: "Ready", Status: api.ConditionFalse, Reason: "NoReplica", Message: "no replica of its model is ready"}
		for _, ref := range f.spec.Models {
			d := s.resolveLocked(ref)
			if d == nil {
				continue
			}
			st.Models = append(st.Models, d.id.String())
			if ready := d.model.Ready.Load(); ready > 0 && !st.Ready {
				st.Ready = true
				c.Status, c.Reason, c.Message = api.ConditionTrue, "ReplicasReady", fmt.Sprintf("%d replicas of %s are ready", ready, d.id)
			}
		}
		st.Conditions = []api.Condition{c}
		out = append(out, st)
	}
	if name != "" && len(out) == 0 {
		return nil, api.Errorf(api.NotFound, "no function %q", name)
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Spec.Name < out[j].Spec.Name })
	return out, nil
}

func lostText(n uint64) string {
	return fmt.Sprintf("%d lines came faster than they could be read and are lost here", n)
}

// Read shows the counters to a scrape.
func (s *Server) Read() obs.Snapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := obs.Snapshot{Started: s.started, Version: s.cfg.Version}

	for name, f := range s.functions {
		model := ""
		if d := s.resolveLocked(f.spec.Models[0]); d != nil {
			model = d.id.Name
		}
		sample := obs.FunctionSample{Name: name, Model: model, Endpoint: f.stats.Read()}
		f.readLearning(&sample)
		out.Functions = append(out.Functions, sample)
	}
	var snap scheduler.Snapshot
	for _, d := range s.models {
		m := obs.ModelSample{
			Name: d.id.Name, Version: d.id.Version, Ready: int(d.model.Ready.Load()), Endpoint: d.model.Stats.Read(),
			QueueTime: histogram(d.lane.QueueNanos(), 1e-9, firstNanosLog2, lastNanosLog2), BatchSize: histogram(d.lane.BatchSize(), 1, firstSizeLog2, lastSizeLog2), WorkerTime: histogram(d.lane.EvalNanos(), 1e-9, firstNanosLog2, lastNanosLog2),
		}
		d.lane.Snapshot(&snap)
		m.Queued, m.InFlight = snap.Queued+snap.Late+snap.Retrying, snap.Held-snap.Queued-snap.Late-snap.Retrying
		m.Ended = codes(snap.Counters.Ended[:])
		m.Hedged, m.HedgeWins = snap.Counters.Hedged, snap.Counters.HedgeWins
		m.Batches, m.Retries, m.Kills = snap.Counters.Batches, snap.Counters.Retries, snap.Counters.Kills
		for _, st := range d.set.Status() {
			m.Restarts += uint64(st.Restarts)
		}
		if st := d.model.Cache.Stats(); st != (cache.ModelStats{}) {
			m.Cache = map[string]uint64{"hit": st.Hits, "miss": st.Misses, "coalesced": st.Coalesced, "bypass": st.Bypassed}
		}
		m.DeadlineLate = histogram(d.lane.LateNanos(), 1e-9, firstNanosLog2, lastNanosLog2)
		out.Models = append(out.Models, m)
	}
	s.readState(&out)
	s.readLifecycleLocked(&out.Lifecycle)
	s.capacity.read(&out.Capacity)
	for id, d := range s.models {
		if h := d.cold.histogram(); h.Count > 0 {
			out.Capacity.ColdStarts = append(out.Capacity.ColdStarts, obs.ColdStartSample{Name: id.Name, Version: id.Version, Waits: h})
		}
	}
	s.readPlan(&out)
	return out
}

// readPlan adds what the last plan says. While the planner sleeps there is nothing to say.
func (s *Server) readPlan(out *obs.Snapshot) {
	if s.epoch == nil {
		return
	}
	st, err := s.Scheduler(context.Background())
	if err != nil {
		return
	}
	out.Epochs, out.PlanTime = st.Epochs, histogram(&s.epoch.PlanNanos, 1e-9, firstPlanLog2, lastPlanLog2)
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

// The bounds of exported histograms are powers of two, always the same ones: series that come and go cannot be added up.
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
		return obs.Histogram{} // which is not shown: of ten thousand models most never see a query
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
