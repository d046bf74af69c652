package autoscale

import (
	"math"

	"github.com/xebec-serving/xebec/api"
)

const (
	// panicThreshold times what the replicas that were ready are planned to serve is a rush that begins a panic. It is Knative's.
	panicThreshold = 2.0
	// minBand and maxBand bound by how much less must be needed before a replica goes: see [Scaler.band].
	minBand, maxBand = 0.05, 0.3
	// bandDeviations is how many standard deviations that is.
	bandDeviations = 2.0
	// overdraft is by how much more than planned a replica may be used before there is another: 70.7 % for 70 % are no reason for one.
	overdraft = 0.01
	// maxTickNanos is as much as one tick counts for. Ticks are 10 s apart at most; when a sample comes later, nobody has looked, the machine
	// slept, or the clock jumped, and what was known before is still the best that is known.
	maxTickNanos = int64(15e9)
	// maxNanos is longer than any window, delay, objective or start that means something.
	maxNanos = 4 * int64(api.MaxScaleWindow)
)

// Scaler decides for one model version. The zero value is one that has seen nothing; it is 1 KiB, and allocates nothing. It is not for
// several goroutines at once.
type Scaler struct {
	begun bool
	// now is the last sample's clock, ageNanos the scaler's own, which only goes forward; tickNanos is what passed between the last two.
	now       api.Nanos
	ageNanos  int64
	tickNanos int64

	arrived, refused uint64
	window           window
	backlog          backlog
	capacity         capacity
	chance           chance  // by the capacity of the last tick
	held             float64 // queries that wait or are in flight, the mean of about a stable window
	ready            int
	needed           float64 // at the last tick

	initial   int     // what there was at the first tick
	delayed   maximum // of what was needed, within the delay
	asked     maximum // of what was asked for, within a panic window
	panicking bool
	overAt    int64 // the age at which a panic was last called for
	// calm is how many were ready before those that were ordered in one go, calmNanos how long it is since wanted was raised. Orders are one
	// when each is within a third of the panic window, in which a step shows, of the one before.
	calm, wanted int
	calmNanos    int64
}

// New makes a scaler that has seen nothing.
func New() *Scaler { return &Scaler{} }

// Decide says how many replicas there are to be. It may be asked at any time, and at once when a query comes for a model that sleeps.
// Whatever a sample says, the decision is within Min and Max, and every number in it is finite and not negative.
func (s *Scaler) Decide(in *Sample) Decision {
	cfg := in.Config.sane()
	tick := *in
	tick.clean()
	current := tick.Wanted
	if !s.begun {
		current = max(current, tick.Ready+tick.Starting)
	}
	if in.Unknown {
		return s.decision(&cfg, current, need{reason: NoData}, NoData)
	}
	came := s.observe(&tick, &cfg, current)

	var urgent, all need
	if s.capacity.full() > 0 {
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
		return s.wake(&tick, &cfg, all, came)
	}
	n, why := s.pace(&tick, &cfg, current, all)
	if n <= 1 && cfg.Min == 0 && !s.panicking && s.idle(&tick, &cfg, came) {
		n, why = 0, Sleeping
	}
	return s.decision(&cfg, n, all, why)
}

// clean takes out of a sample what cannot be.
func (in *Sample) clean() {
	for _, n := range []*int{&in.Ready, &in.Starting, &in.Wanted, &in.Queued, &in.InFlight} {
		*n = clamp(*n, 0, math.MaxInt32)
	}
	in.StartNanos = clamp(in.StartNanos, 0, maxNanos)
	in.SLONanos = clamp(in.SLONanos, 0, maxNanos)
}

// observe takes a sample over, and reports whether queries came since the last one.
func (s *Scaler) observe(in *Sample, cfg *Config, current int) (came bool) {
	s.window.span(cfg.WindowNanos)
	s.delayed.span(max(cfg.DelayNanos, cfg.panicNanos()))
	s.asked.span(cfg.panicNanos())
	if !s.begun {
		// What was counted before may have come at any time. A gateway that has just begun may be here because of the first query.
		s.begun = true
		s.now, s.arrived, s.refused = in.Now, in.Arrived, in.Refused
		s.initial, s.ready = current, in.Ready
		s.wanted, s.calm = current, in.Ready
		s.backlog.clear(in.Queued)
		s.capacity.learn(in, cfg, 0)
		return in.LastArrival != 0 && since(in.Now, in.LastArrival) < cfg.IdleNanos
	}
	passed := since(in.Now, s.now)
	s.now = in.Now
	nanos := min(passed, maxTickNanos)
	s.ageNanos += nanos
	s.tickNanos = nanos

	arrived := grown(in.Arrived, s.arrived)
	refused := min(grown(in.Refused, s.refused), arrived)
	s.arrived, s.refused = in.Arrived, in.Refused
	came = arrived > 0
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
	s.capacity.learn(in, cfg, nanos)
	s.capacity.observe(in, cfg, arrived, refused, nanos, s.needed)
	return came
}

// since is how long it is from then to now, 0 where the clock went back.
func since(now, then api.Nanos) int64 {
	if now <= then {
		return 0
	}
	if d := int64(now - then); d > 0 {
		return d
	}
	return math.MaxInt64 // more than fits
}

// grown is by how much a counter grew. One that went back began anew, and shows what it has counted since.
func grown(now, before uint64) float64 {
	if now < before {
		before = 0
	}
	return min(float64(now-before), maxRate)
}

// alarm begins a panic when what came in the panic window needs twice the replicas that were ready before more were ordered for it: replicas that
// start in no time follow a rush step by step, and are never half of what is needed. It ends when nothing has needed twice what is ready for a
// whole stable window.
func (s *Scaler) alarm(in *Sample, cfg *Config, urgent float64) {
	s.calmNanos += s.tickNanos
	if in.Wanted > s.wanted {
		s.calmNanos = 0
	}
	s.wanted = in.Wanted
	if s.calm = min(s.calm, in.Ready); s.panicking || s.calmNanos >= cfg.panicNanos()/3 {
		s.calm = in.Ready
	}
	if urgent >= panicThreshold*float64(max(1, s.calm)) {
		s.panicking = true
		s.overAt = s.ageNanos
	} else if s.ageNanos-s.overAt >= cfg.WindowNanos {
		s.panicking = false
	}
}

// band is by how much less must be needed before a replica goes, as a part: two standard deviations of the number of queries in the stable
// window, if they come independently of each other, and at least a twentieth. Of 600 queries, 8 %.
func (s *Scaler) band() float64 {
	count, _ := s.window.last(windowBuckets)
	return clampFloat(bandDeviations/math.Sqrt(max(1, count)), minBand, maxBand)
}

func clampFloat(v, low, high float64) float64 { return min(max(v, low), high) }

// pace goes from current towards what is needed as far as it may: up at once to Up times what is ready; down to what was needed at most
// within the delay and a band more, not in a panic, not before a whole stable window has been seen, and to no less than 1/Down of what was
// asked for within a panic window.
func (s *Scaler) pace(in *Sample, cfg *Config, current int, all need) (int, Reason) {
	// Bounds come first: what may not be is nobody's decision.
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

// wake decides for a model that sleeps. It wakes when a query came or is expected to.
func (s *Scaler) wake(in *Sample, cfg *Config, all need, came bool) Decision {
	n, why := 0, Sleeping
	switch {
	case came || in.Queued > 0:
		n, why = max(1, replicas(all.replicas)), Waking
	case expected(in) > 0:
		n, why = max(1, replicas(all.replicas)), Expected
	}
	n = min(n, max(1, replicas(cfg.Up*float64(max(1, in.Ready)))))
	return s.decision(cfg, n, all, why)
}

// idle reports whether the last replica may go.
func (s *Scaler) idle(in *Sample, cfg *Config, came bool) bool {
	if came || in.Queued > 0 || in.InFlight > 0 || expected(in) > 0 {
		return false
	}
	quiet := s.ageNanos
	if in.LastArrival != 0 {
		quiet = since(in.Now, in.LastArrival)
	}
	return quiet >= cfg.IdleNanos
}

// used is the part of n replicas that is planned with; where there is none it is that of one.
func (s *Scaler) used(cfg *Config, n int) float64 {
	if s.chance.beside <= 0 {
		return cfg.used(n)
	}
	return min(cfg.used(n), s.chance.used(float64(max(n, 1))))
}

// decision is n within the bounds.
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
