package autoscale

import (
	"math"

	"github.com/xebec-serving/xebec/api"
)

const (
	// panicThreshold times what the previously ready replicas are planned to serve is a rush that begins a panic. The
	// factor is Knative's.
	panicThreshold = 2.0
	// minBand and maxBand bound how much less must be needed before a replica is removed: see [Scaler.band].
	minBand, maxBand = 0.05, 0.3
	// bandDeviations is the size of the band in standard deviations.
	bandDeviations = 2.0
	// overdraft is by how much more than planned a replica may be used before another one is added: 70.7 % instead of
	// 70 % is no reason for one.
	overdraft = 0.01
	// maxTickNanos bounds what one tick counts for. Ticks are at most 10 s apart. A later sample means that the scaler
	// was not called, the machine was suspended, or the clock jumped, and old knowledge is the best there is.
	maxTickNanos = int64(15e9)
	// maxNanos is longer than any meaningful window, delay, objective or start.
	maxNanos = 4 * int64(api.MaxScaleWindow)
)

// Scaler decides for one model version. The zero value has seen nothing. It takes 1 KiB and allocates nothing. It is
// not safe for concurrent use.
type Scaler struct {
	begun bool
	// now is the last sample's clock. ageNanos is the scaler's own clock, which only goes forward. tickNanos is the
	// time between the last two samples.
	now       api.Nanos
	ageNanos  int64
	tickNanos int64

	arrived, refused uint64
	window           window
	backlog          backlog
	capacity         capacity
	chance           chance  // by the capacity at the last tick
	held             float64 // queries waiting or in flight, the mean over about a stable window
	places           float64 // of streams, in a replica; 0: unknown
	ready            int
	needed           float64 // at the last tick

	initial   int     // replicas at the first tick
	delayed   maximum // the most that was needed within the delay
	asked     maximum // the most that was asked for within a panic window
	panicking bool
	panicAt   int64 // the age at which the rush last met the panic threshold
	// readyBefore is how many replicas were ready before the latest orders, sinceOrderNanos how long it is since wanted
	// was raised. Orders belong together if each is within a third of the panic window, in which a step shows, of the
	// one before.
	readyBefore, wanted int
	sinceOrderNanos     int64
}

// New makes a scaler that has seen nothing.
func New() *Scaler { return &Scaler{} }

// Decide returns how many replicas there are to be. It may be called at any time, and at once when a query arrives for
// a sleeping model. Whatever a sample says, the decision is within Min and Max, and every number in it is finite and
// not negative.
func (s *Scaler) Decide(in *Sample) Decision {
	cfg := in.Config.normalized()
	tick := *in
	tick.clean()
	current := tick.Wanted
	if !s.begun {
		current = max(current, tick.Ready+tick.Starting)
	}
	if in.Unknown {
		return s.decision(&cfg, current, need{reason: NoData}, NoData)
	}
	arrivals := s.observe(&tick, &cfg, current)

	var urgent, all need
	if tick.Streams {
		urgent, all = s.occupancy(&tick, &cfg)
	} else if s.capacity.full() > 0 {
		urgent, all = s.demand(&tick, &cfg)
	} else {
		all = s.guess(&tick, &cfg, current)
		if all.reason == Crowded {
			urgent = all
		}
	}
	s.needed = all.replicas
	s.alarm(&tick, &cfg, urgent.replicas)
	s.asked.put(float64(current))

	if current == 0 {
		return s.wake(&tick, &cfg, all, arrivals)
	}
	n, why := s.pace(&tick, &cfg, current, all)
	if n <= 1 && cfg.Min == 0 && !s.panicking && s.idle(&tick, &cfg, arrivals) {
		n, why = 0, Sleeping
	}
	return s.decision(&cfg, n, all, why)
}

// clean limits a sample's values to valid ranges.
func (in *Sample) clean() {
	for _, n := range []*int{&in.Ready, &in.Starting, &in.Wanted, &in.Queued, &in.InFlight} {
		*n = clamp(*n, 0, math.MaxInt32)
	}
	in.StartNanos = clamp(in.StartNanos, 0, maxNanos)
	in.SLONanos = clamp(in.SLONanos, 0, maxNanos)
}

// observe records a sample and reports whether queries arrived since the last one.
func (s *Scaler) observe(in *Sample, cfg *Config, current int) (arrivals bool) {
	s.window.span(cfg.WindowNanos)
	s.delayed.span(max(cfg.DelayNanos, cfg.panicNanos()))
	s.asked.span(cfg.panicNanos())
	if !s.begun {
		// Earlier counts may be of any age. A gateway that has just started may have been started by the first query.
		s.begun = true
		s.now, s.arrived, s.refused = in.Now, in.Arrived, in.Refused
		s.initial, s.ready = current, in.Ready
		s.wanted, s.readyBefore = current, in.Ready
		s.backlog.clear(in.Queued)
		if !in.Streams {
			s.capacity.learn(in, cfg, 0)
		}
		return in.LastArrival != 0 && since(in.Now, in.LastArrival) < cfg.IdleNanos
	}
	passed := since(in.Now, s.now)
	s.now = in.Now
	nanos := min(passed, maxTickNanos)
	s.ageNanos += nanos
	s.tickNanos = nanos

	arrived := counterGrowth(in.Arrived, s.arrived)
	refused := min(counterGrowth(in.Refused, s.refused), arrived)
	s.arrived, s.refused = in.Arrived, in.Refused
	arrivals = arrived > 0
	if passed > nanos {
		arrived *= float64(nanos) / float64(passed)
	}

	s.window.add(arrived, nanos)
	s.delayed.pass(nanos)
	s.asked.pass(nanos)
	if nanos > 0 {
		s.held += (float64(in.Queued+in.InFlight) - s.held) * float64(nanos) / float64(max(nanos, min(s.ageNanos, cfg.WindowNanos)))
	}
	if in.Ready != s.ready {
		s.ready = in.Ready
		s.backlog.clear(in.Queued)
	} else {
		slot := clamp(max(objectiveNanos(in), in.StartNanos)/2, minSlotNanos, max(minSlotNanos, cfg.panicNanos()))
		s.backlog.observe(in.Queued, nanos, slot)
	}
	if in.Streams {
		return arrivals // their profile is that of first outputs
	}
	s.capacity.learn(in, cfg, nanos)
	s.capacity.observe(in, cfg, arrived, refused, nanos, s.needed)
	return arrivals
}

// since returns the time from then to now, 0 if the clock went back.
func since(now, then api.Nanos) int64 {
	if now <= then {
		return 0
	}
	if d := int64(now - then); d > 0 {
		return d
	}
	return math.MaxInt64 // overflow
}

// counterGrowth returns by how much a counter grew. A counter that went back restarted from 0.
func counterGrowth(now, before uint64) float64 {
	if now < before {
		before = 0
	}
	return min(float64(now-before), maxRate)
}

// alarm begins a panic when the arrivals of the panic window need twice the replicas that were ready before more were
// ordered. It does not compare with what is ready now: replicas that start fast follow a rush step by step and are
// never half of what is needed. The panic ends when nothing has needed twice what is ready for a whole stable window.
func (s *Scaler) alarm(in *Sample, cfg *Config, urgent float64) {
	s.sinceOrderNanos += s.tickNanos
	if in.Wanted > s.wanted {
		s.sinceOrderNanos = 0
	}
	s.wanted = in.Wanted
	if s.readyBefore = min(s.readyBefore, in.Ready); s.panicking || s.sinceOrderNanos >= cfg.panicNanos()/3 {
		s.readyBefore = in.Ready
	}
	if urgent >= panicThreshold*float64(max(1, s.readyBefore)) {
		s.panicking = true
		s.panicAt = s.ageNanos
	} else if s.ageNanos-s.panicAt >= cfg.WindowNanos {
		s.panicking = false
	}
}

// band returns how much less must be needed before a replica is removed, as a part: two standard deviations of the
// number of queries in the stable window if they arrive independently, and at least minBand. For 600 queries it is 8 %.
func (s *Scaler) band() float64 {
	count, _ := s.window.last(windowBuckets)
	return clampFloat(bandDeviations/math.Sqrt(max(1, count)), minBand, maxBand)
}

func clampFloat(v, low, high float64) float64 { return min(max(v, low), high) }

// pace moves from current towards the need as far as allowed: up at once to Up times what is ready; down to the most
// that was needed within the delay plus the band. It does not go down in a panic, not before a whole stable window has
// been observed, and not below 1/Down of what was asked for within a panic window.
func (s *Scaler) pace(in *Sample, cfg *Config, current int, all need) (int, Reason) {
	// Bounds come first: they apply to the current number, whatever is needed.
	current = clamp(current, cfg.Min, cfg.Max)
	up := max(1, replicas(all.replicas/(1+overdraft)))
	if up > current {
		limit := max(current, replicas(cfg.Up*float64(max(1, in.Ready))))
		if min(up, cfg.Max) > limit {
			return limit, LimitedUp
		}
		return up, all.reason
	}
	if up == current {
		return current, all.reason
	}
	spare := 1 + s.band()
	down, why := max(1, replicas(s.delayed.value()*spare)), all.reason
	if s.ageNanos < cfg.WindowNanos && down < s.initial {
		down, why = s.initial, Learning
	}
	switch {
	case s.panicking:
		return current, Panicking
	case down >= current && why == Learning:
		return current, Learning
	case down >= current && replicas(all.replicas*spare) < current:
		return current, Delayed
	case down >= current:
		return current, Steady
	}
	if limit := max(1, int(s.asked.value()/cfg.Down)); max(down, cfg.Min) < limit {
		return min(current, limit), LimitedDown
	}
	return down, why
}

// wake decides for a sleeping model. It wakes up when a query arrived or is expected.
func (s *Scaler) wake(in *Sample, cfg *Config, all need, arrivals bool) Decision {
	n, why := 0, Sleeping
	switch {
	case arrivals || in.Queued > 0:
		n, why = max(1, replicas(all.replicas)), Waking
	case expected(in) > 0:
		n, why = max(1, replicas(all.replicas)), Expected
	}
	n = min(n, max(1, replicas(cfg.Up*float64(max(1, in.Ready)))))
	return s.decision(cfg, n, all, why)
}

// idle reports whether the last replica may be removed.
func (s *Scaler) idle(in *Sample, cfg *Config, arrivals bool) bool {
	if arrivals || in.Queued > 0 || in.InFlight > 0 || expected(in) > 0 {
		return false
	}
	quiet := s.ageNanos
	if in.LastArrival != 0 {
		quiet = since(in.Now, in.LastArrival)
	}
	return quiet >= cfg.IdleNanos
}

// used returns the planned part of n replicas. For none it is that of one.
func (s *Scaler) used(cfg *Config, n int) float64 {
	if s.chance.beside <= 0 {
		return cfg.used(n)
	}
	return min(cfg.used(n), s.chance.used(float64(max(n, 1))))
}

// decision returns n limited to the bounds.
func (s *Scaler) decision(cfg *Config, n int, all need, why Reason) Decision {
	bounded := clamp(n, cfg.Min, cfg.Max)
	if why != NoData && bounded > n {
		why = AtMin
	} else if why != NoData && bounded < n {
		why = AtMax
	}
	return Decision{
		Replicas: bounded, Reason: why, Panic: s.panicking,
		Rate: all.rate, Capacity: s.capacity.full() * s.used(cfg, bounded),
	}
}
