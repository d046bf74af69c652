package autoscale

import (
	"math"

	"github.com/xebec-serving/xebec/api"
)

// Knative's defaults, from its config-autoscaler.
const (
	knativeTickNanos   = int64(2e9)
	knativeWindowNanos = int64(60e9) // its panic window is 10 % of that: 6 s, as with rushBuckets
	knativeUtilization = 0.7         // container-concurrency-target-percentage
	knativeUp          = 1000.0
	knativeDown        = 2.0
	knativePanic       = 2.0
	knativeGraceNanos  = int64(30e9)
)

// Knative decides by the rules of Knative's pod autoscaler, with its defaults. [Scaler] is compared with it in
// simulations; no gateway uses it. It was written from a description of the rules, not from Knative's code. Give it the
// same samples, about every second. The zero value has seen nothing. It allocates nothing.
//
// On each tick of 2 s it decides as follows. Between ticks the last decision stands.
//
//   - - Its load is concurrency: queries waiting and in flight. A sample's value counts for the time since the sample
//     before. stable is the mean of the last 60 s, rush of the last 6 s, or since it began.
//   - - Its target is 70 % of the concurrency that a replica serves within the objective: two of its largest batches,
//     one in evaluation and one behind it, by the profile as [Scaler] reads it. (Knative's own default, 100, is
//     independent of the model.) Target replaces that. Without a profile it does nothing.
//   - - desired = ⌈load/target⌉, for stable and for rush, both within ⌊ready/2⌋ and 1,000 × ready, where ready is at
//     least 1.
//   - - A panic begins when ⌈rush/target⌉ is at least twice what is ready, or at the first sample if more than one
//     replica is ready. It ends when that has not been so for 60 s. During a panic the larger of both is desired, and
//     never less than before in the same panic.
//   - - It asks for the largest desired number within DelayNanos (its scale-down-delay: none), within Min and Max.
//   - - No data, no action. Without replicas and with a query waiting it decides at once, at least one replica.
//   - - The last replica is removed when zero has been desired for 30 s. In Knative that grace is the longest wait for
//     routes to change.
//
// Left out: burst capacity and the activator, whose role the scheduler's queue plays; the activation scale; unreachable
// pods. Of the sample's Config it uses only Min and Max.
type Knative struct {
	// Target is the planned concurrency of one replica, after the 70 %; 0: by the profile.
	Target float64
	// DelayNanos is how long less must have been desired, at most an hour; 0: no delay.
	DelayNanos int64

	begun     bool
	now       api.Nanos
	ageNanos  int64
	window    window
	batch     float64 // the largest within the objective, by the last profile
	delayed   maximum
	decided   bool
	decidedAt int64
	last      Decision
	panicking bool
	panicAt   int64
	panicMost int
	zeroSince int64 // when zero was first desired; -1: it is not desired
}

// Decide returns how many replicas Knative would ask for. Rate stays 0. Capacity is the target, a concurrency.
func (k *Knative) Decide(in *Sample) Decision {
	cfg := in.Config.normalized()
	tick := *in
	tick.clean()
	current := tick.Wanted
	if !k.begun {
		current = max(current, tick.Ready+tick.Starting)
	}
	if in.Unknown {
		return Decision{Replicas: clamp(current, cfg.Min, cfg.Max), Reason: NoData, Panic: k.panicking}
	}
	k.observe(&tick)
	target := k.target()
	waking := current == 0 && tick.Queued+tick.InFlight > 0
	switch {
	case target == 0 && waking:
		return Decision{Replicas: clamp(1, cfg.Min, cfg.Max), Reason: Waking}
	case target == 0:
		return Decision{Replicas: clamp(current, cfg.Min, cfg.Max), Reason: Steady}
	case k.decided && !waking && k.ageNanos-k.decidedAt < knativeTickNanos:
		d := k.last
		d.Replicas = clamp(d.Replicas, cfg.Min, cfg.Max)
		return d
	}
	k.decided, k.decidedAt = true, k.ageNanos
	n, why := k.desired(&tick, target)
	if waking {
		n, why = max(1, n), Waking
	}
	k.last = Decision{Replicas: clamp(n, cfg.Min, cfg.Max), Reason: why, Capacity: target, Panic: k.panicking}
	return k.last
}

func (k *Knative) observe(in *Sample) {
	k.window.span(knativeWindowNanos)
	k.delayed.span(clamp(k.DelayNanos, 1, int64(api.MaxScaleWindow)))
	if !k.begun {
		k.begun = true
		k.now = in.Now
		k.zeroSince = -1
		if in.Ready > 1 {
			k.panicking, k.panicMost = true, in.Ready
		}
	}
	nanos := min(since(in.Now, k.now), maxNanos)
	k.now = in.Now
	k.ageNanos += nanos
	k.delayed.pass(nanos)
	k.window.add(float64(in.Queued+in.InFlight)*seconds(nanos), nanos)

	var c capacity
	cfg := in.Config.normalized()
	c.learn(in, &cfg, 0)
	if c.profiled > 0 {
		k.batch = math.Round(c.profiled * c.batchNanos / 1e9)
	}
}

func (k *Knative) target() float64 {
	if k.Target > 0 {
		return k.Target
	}
	return 2 * k.batch * knativeUtilization
}

func (k *Knative) desired(in *Sample, target float64) (int, Reason) {
	ready := max(1, in.Ready)
	least, most := int(float64(ready)/knativeDown), replicas(knativeUp*float64(ready))
	load := func(buckets int) int {
		count, nanos := k.window.last(buckets)
		if nanos == 0 {
			return replicas(float64(in.Queued+in.InFlight) / target)
		}
		return replicas(count / seconds(nanos) / target)
	}
	stable, rush := load(windowBuckets), load(rushBuckets)

	if float64(rush) >= knativePanic*float64(ready) {
		k.panicking, k.panicAt = true, k.ageNanos
	} else if k.panicking && k.ageNanos-k.panicAt > knativeWindowNanos {
		k.panicking, k.panicMost = false, 0
	}
	n, why := clamp(stable, least, most), Rate
	if k.panicking {
		k.panicMost = max(k.panicMost, n, clamp(rush, least, most))
		n, why = k.panicMost, Panicking
	}
	k.delayed.put(float64(n))
	if held := replicas(k.delayed.value()); k.DelayNanos > 0 && held > n {
		n, why = held, Delayed
	}
	if n > 0 {
		k.zeroSince = -1
		return n, why
	}
	if k.zeroSince < 0 {
		k.zeroSince = k.ageNanos
	}
	if in.Ready+in.Starting > 0 && k.ageNanos-k.zeroSince < knativeGraceNanos {
		return 1, Delayed
	}
	return 0, Sleeping
}
