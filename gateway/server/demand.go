package server

import (
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/scheduler"
	"github.com/xebec-serving/xebec/scheduler/autoscale"
)

// sampleLocked is what the scaler is shown.
func (c *capacity) sampleLocked(st *seat) autoscale.Sample {
	d := st.d
	b := &d.spec().Replicas
	d.lane.Snapshot(&c.snap)
	now := c.snap.Now
	in := autoscale.Sample{
		Now: now, Wanted: st.set, Starting: max(0, st.set-int(d.model.Ready.Load())), SLONanos: d.sloNanos.Load(), StartNanos: d.cold.startNanos.Load(),
		Queued: c.snap.Queued + c.snap.Retrying, ExpectedRate: d.expected(time.Now()),
		Config: autoscale.Config{
			Min: b.Min, Max: b.Max, IdleNanos: int64(b.Idle), WindowNanos: int64(b.Window), DelayNanos: int64(b.Delay),
			Utilization: b.Utilization, Up: b.Up, Down: b.Down,
		},
	}
	n := &c.snap.Counters
	away := d.turnedAway()
	in.Arrived = n.Arrived + away
	in.Refused = n.QueueFull + n.RefusedEarly + n.Shed + n.PassedOver + n.Ended[api.DeadlineExceeded] + n.Ended[api.NoReplica] + away
	in.InFlight = max(0, c.snap.Held-c.snap.Queued-c.snap.Late-c.snap.Retrying)
	known, profile := 0, api.KnownProfile{}
	for i := range c.snap.Replicas {
		r := &c.snap.Replicas[i]
		if r.State != scheduler.Serving {
			continue
		}
		in.Ready++
		if r.Samples >= knownBatches {
			known++
			profile.Batches += r.Samples
			profile.P99Micros = max(profile.P99Micros, r.P99Nanos/1000)
			in.InterceptNanos += r.InterceptNanos
			in.SlopeNanos += r.SlopeNanos
			if r.Settled {
				in.Cap += r.Learned
			} else {
				in.Cap += d.spec().Batching.Max // it is still growing, and says nothing of what the replica can do
			}
		}
	}
	if known > 0 {
		in.Known = true
		in.InterceptNanos /= float64(known)
		in.SlopeNanos /= float64(known)
		in.Cap /= known
		d.remember(profile, in.InterceptNanos, in.SlopeNanos)
	}
	if in.Arrived != st.arrived {
		st.last = now
	}
	in.LastArrival = max(st.last, d.readyAt()) // it is idle from when it could have been asked
	if in.Ready == 0 && st.set > 0 && !d.crashing() {
		in.LastArrival = now // it is still starting
	}
	st.rate = st.decision.Rate
	st.arrived = in.Arrived
	if st.waiting = in.Queued; in.Ready > 0 {
		st.waiting = 0
	}
	return in
}

// remember keeps what is known of replicas, for when there is none.
func (d *deployment) remember(p api.KnownProfile, interceptNanos, slopeNanos float64) {
	p.InterceptMicros, p.SlopeMicros = interceptNanos/1000, slopeNanos/1000
	if sizes := d.lane.BatchSize(); sizes.Count() > 0 {
		p.MeanBatch = float64(sizes.Sum()) / float64(sizes.Count())
	}
	if d.profile == nil {
		d.profile = new(api.KnownProfile)
	}
	*d.profile = p
}

// knownBatches is how many batches a replica must have shown before its times are believed, as in package scheduler.
const knownBatches = 16

// expected is the largest rate that an operator's hints say is there now, or is to come by the time that a replica which is started now is
// ready.
func (d *deployment) expected(now time.Time) (rate float64) {
	hints := d.spec().Expect
	if len(hints) == 0 {
		return 0
	}
	ahead := now.Add(max(2*time.Duration(d.cold.startNanos.Load()), expectAhead))
	for i := range hints {
		if hints[i].During(now, ahead) {
			rate = max(rate, hints[i].Rate)
		}
	}
	return rate
}

// expectAhead is how long before the time of a hint replicas are started at the latest.
const expectAhead = 30 * time.Second
