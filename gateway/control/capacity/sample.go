package capacity

import (
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/scheduler"
	"github.com/xebec-serving/xebec/scheduler/autoscale"
)

// sample is the scaler's input. Its caller holds Capacity.mu.
func (c *Capacity) sample(st *seat) autoscale.Sample {
	m := st.m
	spec := m.version.Spec()
	b := m.bounds()
	m.lane.Snapshot(&c.snap)
	now := c.snap.Now
	in := autoscale.Sample{
		Now: now, Wanted: st.set, Starting: max(0, st.set-int(m.model.Ready.Load())), SLONanos: m.sloNanos.Load(), StartNanos: m.Cold.startNanos.Load(),
		Queued: c.snap.Queued + c.snap.Retrying, Streams: spec.Stream, ExpectedRate: m.expected(time.Now()),
		Config: autoscale.Config{
			Min: max(b.Min, c.floor(m)), Max: b.Max, IdleNanos: int64(b.Idle), WindowNanos: int64(b.Window), DelayNanos: int64(b.Delay),
			Utilization: b.Utilization, Up: b.Up, Down: b.Down,
		},
	}
	n := &c.snap.Counters
	refused := m.refusedByPlan()
	in.Arrived = n.Arrived + refused
	in.Refused = n.QueueFull + n.RefusedEarly + n.Shed + n.PassedOver + n.Ended[api.DeadlineExceeded] + n.Ended[api.NoReplica] + refused
	in.InFlight = max(0, c.snap.Held-c.snap.Queued-c.snap.Late-c.snap.Retrying)
	known, profile := 0, api.KnownProfile{}
	for i := range c.snap.Replicas {
		r := &c.snap.Replicas[i]
		if r.State != scheduler.Serving {
			continue
		}
		in.Ready++
		in.Concurrency = max(in.Concurrency, r.Concurrency)
		if r.Samples >= knownBatches {
			known++
			profile.Batches += r.Samples
			profile.P99Micros = max(profile.P99Micros, r.P99Nanos/1000)
			in.InterceptNanos += r.InterceptNanos
			in.SlopeNanos += r.SlopeNanos
			if r.Settled {
				in.Cap += r.Learned
			} else {
				in.Cap += spec.Batching.Max // it still grows, and says nothing about what the replica can do
			}
		}
	}
	if known > 0 {
		in.Known = true
		in.InterceptNanos /= float64(known)
		in.SlopeNanos /= float64(known)
		in.Cap /= known
		m.remember(profile, in.InterceptNanos, in.SlopeNanos)
	}
	if in.Arrived != st.arrived {
		st.last = now
	}
	in.LastArrival = max(st.last, m.readyAt()) // it cannot be idle before it could be asked
	if in.Ready == 0 && st.set > 0 && !m.version.Crashing() {
		in.LastArrival = now // it is still starting
	}
	st.rate = st.decision.Rate
	st.arrived = in.Arrived
	if st.waiting = in.Queued; in.Ready > 0 {
		st.waiting = 0
	}
	return in
}

// remember keeps the profile of the replicas for the time when there is none.
func (m *Member) remember(p api.KnownProfile, interceptNanos, slopeNanos float64) {
	p.InterceptMicros, p.SlopeMicros = interceptNanos/1000, slopeNanos/1000
	if sizes := m.lane.BatchSize(); sizes.Count() > 0 {
		p.MeanBatch = float64(sizes.Sum()) / float64(sizes.Count())
	}
	if m.profile == nil {
		m.profile = new(api.KnownProfile)
	}
	*m.profile = p
}

// knownBatches is how many batches a replica must have evaluated before its times are used, as in package scheduler.
const knownBatches = 16 //xebec:limit batches before a profile is used for capacity

// expected is the largest rate that the operator's hints announce for now, or for the time when a replica that is started now
// will be ready.
func (m *Member) expected(now time.Time) (rate float64) {
	hints := m.version.Spec().Expect
	if len(hints) == 0 {
		return 0
	}
	ahead := now.Add(max(2*time.Duration(m.Cold.startNanos.Load()), expectAhead))
	for i := range hints {
		if hints[i].During(now, ahead) {
			rate = max(rate, hints[i].Rate)
		}
	}
	return rate
}

// expectAhead is the minimum time by which replicas are started before a hint begins.
const expectAhead = 30 * time.Second //xebec:limit how long before an `expect` hint replicas are started, or two starts if those take longer
