package deployment

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/containers"
	"github.com/xebec-serving/xebec/gateway/internal/numerals"
	"github.com/xebec-serving/xebec/scheduler"
	"github.com/xebec-serving/xebec/worker"
)

// Status describes the version's replicas, queue and capacity. What belongs to its life cycle is left out.
func (d *Deployment) Status() api.ModelStatus {
	var snap scheduler.Snapshot
	d.lane.Snapshot(&snap)
	m := api.ModelStatus{
		Spec: *d.Spec(), Dir: d.Spec().Dir, Created: d.created, Replicas: []api.ReplicaStatus{},
		QueueDepth: snap.Queued + snap.Late + snap.Retrying, ObjectiveMicros: d.objectiveNanos.Load() / 1000, Queries: CountsByCode(snap.Counters.Ended[:]),
		BusyPoll: d.h.busyPollStatus(d.Spec()), Streams: d.StreamStatus(),
	}
	m.Spec.ImageDigest = d.ImageDigest()
	read := d.model.Stats.Read() // of requests that addressed the version; the queries are those of all functions
	read.Queries = snap.Counters.Ended[api.OK]
	m.Rate = d.rate.Look(read, time.Now())
	if n := snap.Counters.Hedged; n > 0 {
		m.Hedges = &api.HedgeStatus{Hedged: n, Wins: snap.Counters.HedgeWins}
	}
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
	cached := d.model.Cache.Stats()
	m.Cache = &api.ModelCacheStatus{
		On: d.h.CacheBytes > 0 && d.model.CacheOn.Load() && !d.model.Teachable.Load(), Hits: cached.Hits, Misses: cached.Misses, Coalesced: cached.Coalesced, Bypassed: cached.Bypassed,
	}
	m.Capacity = d.Member.Status()
	m.Capacity.Unenforced = d.unenforced()
	wanted := m.Capacity.Wanted
	c := api.Condition{Type: "Ready", Status: api.ConditionTrue, Reason: "ReplicasReady", Message: readyText(ready, wanted)}
	switch {
	case wanted == 0 && ready == 0 && failures < crashLoop:
		m.State = api.ModelIdle
		c.Status, c.Reason = api.ConditionFalse, "NoReplicaWanted"
	case wanted > 0 && m.Capacity.Granted == 0 && failures < crashLoop: // a version that fails has to be repaired first
		m.State = api.ModelDegraded
		c.Status, c.Reason, reason = api.ConditionFalse, "NoRoom", m.Capacity.ShortWhy
	case ready > 0 && ready >= d.Spec().Replicas.Min:
		m.State = api.ModelReady
	case ready > 0:
		m.State = api.ModelDegraded
		c.Status, c.Reason = api.ConditionFalse, "TooFewReplicas"
	case failed:
		m.State = api.ModelFailed
		c.Status, c.Reason = api.ConditionFalse, "ReplicasFail"
		if reason == "" { // the replicas that failed are gone, because no query asks for the version any more
			reason = lastExit
		}
	default:
		m.State = api.ModelStarting
		c.Status, c.Reason = api.ConditionFalse, "Starting"
		if reason == "" {
			reason = silentReplica(m.Replicas, cmp.Or(m.Spec.StartTimeout, api.DefaultStartTimeout))
		}
	}
	if reason != "" {
		c.Message += "; " + reason
	}
	m.Conditions = []api.Condition{c}
	return m
}

// silentAfter is when a process whose worker has not connected is worth a remark. Large models load for longer.
const silentAfter = 10 * time.Second

// silentReplica remarks that a process runs and its worker has not connected.
func silentReplica(replicas []api.ReplicaStatus, within time.Duration) string {
	for _, r := range replicas {
		if ran := time.Since(r.Since); r.State == api.ReplicaRunning && ran >= silentAfter {
			return fmt.Sprintf("replica %d runs for %v and its worker has not connected: it loads, or does not come to its xebec.serve; it is ended and started again after %v",
				r.ID, ran.Round(time.Second), within)
		}
	}
	return ""
}

func (d *Deployment) replicaStatus(st containers.Status, scheduled map[uint64]scheduler.ReplicaSnapshot) api.ReplicaStatus {
	r := api.ReplicaStatus{ID: st.Replica, PID: st.PID, Since: st.Since, Restarts: st.Restarts, NextAttempt: st.NextAttempt, LastExit: st.LastExit,
		Isolation: st.Layers, NotIsolated: st.Missing}
	r.State = api.ReplicaState(st.State.String()) // the two packages use the same names for the same states; a test checks it
	d.mu.Lock()
	if l := d.launches[st.Replica]; l != nil {
		r.LastError, r.LastErrorAt = l.lastError, l.lastErrorAt
		if l.worker != nil {
			served := l.worker.Stats()
			r.Binding, r.Ring = l.worker.Info().Binding, hasRing(l.worker)
			if n := l.worker.Info().Concurrency; n > 1 {
				r.Concurrency = n
			}
			r.Batches, r.Queries, r.InPlace = served.Batches, served.Queries, served.InPlace
		}
	}
	d.mu.Unlock()
	if r.LastError != "" {
		r.LastError = d.advised(r.LastError)
	}
	if s, ok := scheduled[st.Replica]; ok {
		r.Cap, r.Outstanding = s.Cap, s.Queries
		if s.Isolating {
			r.CapWhy = "single queries make batches fail"
		}
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

// advised is a worker's text, with what the runtime knows of it below.
func (d *Deployment) advised(text string) string {
	l := d.launch()
	if r, ok := containers.As[containers.Adviser](d.h.Runtime, l); ok {
		for _, advice := range r.Advise(l, text) {
			text = strings.TrimRight(text, "\n") + "\n" + advice
		}
	}
	return text
}

// CountsByCode names the counts that are not zero; counts is indexed by api.Code.
func CountsByCode(counts []uint64) map[string]uint64 {
	m := map[string]uint64{}
	for c, n := range counts {
		if n > 0 {
			m[api.Code(c).String()] = n
		}
	}
	return m
}

// accuracyWithin bounds how long a description waits for models to report their accuracy.
const accuracyWithin = time.Second //xebec:limit time for replicas to report their accuracy

// Accuracy asks the replicas how accurate the model has been, and returns the mean of the answers that come in time; nil: none.
func (d *Deployment) Accuracy(ctx context.Context) *float64 {
	d.mu.Lock()
	var ask []worker.Learner
	for r := range d.connected {
		if l, ok := r.(worker.Learner); ok && r.Info().Capabilities.Accuracy {
			ask = append(ask, l)
		}
	}
	d.mu.Unlock()
	if len(ask) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, accuracyWithin)
	defer cancel()
	answers := make(chan float64, len(ask))
	for _, r := range ask {
		r.Accuracy(func(value float64, code api.Code, _ string) {
			if code != api.OK {
				value = math.NaN()
			}
			answers <- value
		})
	}
	sum, n := 0.0, 0
	for range ask {
		select {
		case v := <-answers:
			if !math.IsNaN(v) {
				sum += v
				n++
			}
		case <-ctx.Done():
		}
	}
	if n == 0 {
		return nil
	}
	mean := sum / float64(n)
	return &mean
}

// readyText is "1 of 1 replica is ready" or "2 of 3 replicas are ready".
func readyText(ready, wanted int) string {
	verb := "are"
	if ready == 1 || wanted == 1 {
		verb = "is"
	}
	return fmt.Sprintf("%d of %s %s ready", ready, numerals.Count(wanted, "replica"), verb)
}
