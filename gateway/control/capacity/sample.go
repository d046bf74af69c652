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
	known, measured, profile := 0, 0, api.KnownProfile{}
	for i := range c.snap.Replicas {
		r := &c.snap.Replicas[i]
		if r.State != scheduler.Serving {
			continue
		}
		in.Ready++
		in.Concurrency = max(in.Concurrency, r.Concurrency)
		if r.Samples >= knownBatches || r.Presumed {
			known++
			if r.Samples >= knownBatches {
				measured++
				profile.Batches += r.Samples
				profile.P99Micros = max(profile.P99Micros, r.P99Nanos/1000)
				profile.InterceptMicros += r.InterceptNanos / 1000
				profile.SlopeMicros += r.SlopeNanos / 1000
			}
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
	}
	if measured > 0 {
		profile.InterceptMicros /= float64(measured)
		profile.SlopeMicros /= float64(measured)
		m.remember(profile)
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

// remember keeps the profile of the replicas for the time when there is none, and as the prior of later replicas.
func (m *Member) remember(p api.KnownProfile) {
	if m.profile != nil && !m.profile.Kept && m.profile.Batches == p.Batches {
		return
	}
	p.At = time.Now().UTC()
	if sizes := m.lane.BatchSize(); sizes.Count() > 0 {
		p.MeanBatch = float64(sizes.Sum()) / float64(sizes.Count())
	}
	if m.profile == nil {
		m.profile = new(api.KnownProfile)
	}
	*m.profile = p
	m.profiled.Store(true)
	m.setPrior()
}

// setPrior tells the lane what replicas that have evaluated nothing yet are expected to be like.
func (m *Member) setPrior() {
	m.lane.SetPrior(scheduler.Prior{InterceptNanos: m.profile.InterceptMicros * 1000, SlopeNanos: m.profile.SlopeMicros * 1000, Batch: m.profile.MeanBatch})
}

// Profile is what is known of the times of the version's batches; nil: nothing. It takes no lock while that is so.
func (m *Member) Profile() *api.KnownProfile {
	if !m.profiled.Load() {
		return nil
	}
	m.c.mu.Lock()
	profile := *m.profile
	m.c.mu.Unlock()
	if !profile.Kept {
		for _, s := range m.lane.BySize() {
			profile.Sizes = append(profile.Sizes, api.SizeTime{From: s.From, To: s.To, Batches: s.Batches, MeanMicros: s.MeanNanos / 1000})
		}
	}
	return &profile
}

// Recall gives the version the profile that it had before the gateway started. The planner and the autoscaler begin with it, as [scheduler.Prior]
// says. A version that has been measured since ignores it.
func (m *Member) Recall(p api.KnownProfile) {
	m.c.mu.Lock()
	defer m.c.mu.Unlock()
	if m.profile != nil {
		return
	}
	p.Kept = true
	m.profile = &p
	m.profiled.Store(true)
	m.setPrior()
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
