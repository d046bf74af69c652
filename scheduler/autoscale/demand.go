package autoscale

import "math"

const (
	// certain is how many standard deviations are subtracted from the count of a short window before it counts against
	// the stable window. A count of N queries that arrive independently (Poisson) has the standard deviation √N. Of 100
	// queries in the panic window 70 are certain. With two deviations, a model of nine queries/s with one replica for
	// ten would get a second one nine times an hour.
	certain = 3.0
	// minLookBuckets and maxLookBuckets bound the quarters of a trend, in buckets: from a fifth of the stable window to
	// all of it.
	minLookBuckets = 3
	maxLookBuckets = windowBuckets / 4
	// maxTrend bounds the rate planned for a trend, as a multiple of the current rate.
	maxTrend = 2.0
	// maxStepRatio bounds the largest step of a trend as a multiple of the smallest. The steps of a steady rise differ
	// by chance. After a jump, one step is most of the jump and another one is chance.
	maxStepRatio = 4.0
	// minSlotNanos is the least time that a queue must stand. A queue that is seen twice within less time may be one
	// burst.
	minSlotNanos = int64(100e6)
	// crowdedGrowth is the growth factor while the capacity of a replica is unknown.
	crowdedGrowth = 1.5
	// maxRate is more than any gateway sees. It keeps an overwritten counter from becoming infinite.
	maxRate = 1e12
)

// need is a number of replicas, not rounded, with the rate and the reason behind it.
type need struct {
	replicas, rate float64
	reason         Reason
}

// raise replaces n if the given number of replicas is larger.
func (n *need) raise(replicas, rate float64, why Reason) {
	if replicas > n.replicas {
		*n = need{replicas, rate, why}
	}
}

// rates returns the arrival rates in queries per second: the mean of the stable window; the rate that is certain in the
// panic window or the last third of it; and the rate expected when a replica that is started now is ready. No rush is
// shorter than the objective, because what arrives within the objective may wait that long and belongs to the backlog.
func (s *Scaler) rates(in *Sample) (mean, rush, ahead float64) {
	w := &s.window
	count, nanos := w.last(windowBuckets)
	mean = count / seconds(max(nanos, w.lengthNanos))
	objectiveBuckets := int(min((objectiveNanos(in)+w.lengthNanos-1)/w.lengthNanos, windowBuckets))
	for _, buckets := range [...]int{max(objectiveBuckets, rushBuckets), max(objectiveBuckets, rushBuckets/3)} {
		count, nanos = w.last(buckets)
		rush = max(rush, certainPart(count)/seconds(max(nanos, w.lengthNanos)))
	}
	return mean, rush, s.trend(in.StartNanos)
}

func certainPart(count float64) float64 { return max(0, count-certain*math.Sqrt(count)) }

// trend returns the expected rate when a replica that is started now is ready, if the rate rises; else 0.
//
// It looks back twice as far as ahead, in quarters. A rising rate is higher in each quarter than in the one before. The
// smallest of the three steps, less one standard deviation for chance, is extrapolated. If the load jumps within a
// quarter, two of the steps are parts of the jump and the third is chance. So the steps must be similar. 1,000, 1,200,
// 1,400 and 1,600 queries/s in quarters of 3 s, of which the last step is 505 queries for certain, become 1,600 +
// 505/3/3 × (1.5 + 5 + 1) = 2,021 if a start takes 5 s and a tick 1 s.
func (s *Scaler) trend(startNanos int64) float64 {
	w := &s.window
	ahead := clamp(startNanos, 0, 4*maxLookBuckets*w.lengthNanos)
	buckets := clamp(int((ahead+2*w.lengthNanos-1)/(2*w.lengthNanos)), minLookBuckets, maxLookBuckets)
	q, ok := w.quarters(buckets)
	if !ok {
		return 0
	}
	step, least, most := math.Inf(1), math.Inf(1), 0.0
	for i := 1; i < len(q); i++ {
		rise := q[i] - q[i-1]
		step = min(step, rise-math.Sqrt(q[i]+q[i-1]))
		least, most = min(least, rise), max(most, rise)
	}
	if step <= 0 || most > maxStepRatio*least {
		return 0
	}
	quarter := seconds(int64(buckets) * w.lengthNanos)
	now := q[len(q)-1] / quarter
	return min(maxTrend*now, now+step/quarter/quarter*(quarter/2+seconds(ahead+s.tickNanos)))
}

// backlog finds the standing queue: the least length seen in the last two slots. A queue that empties now and then does
// not stand, however long it is in between (Nichols and Jacobson, Controlling Queue Delay, ACM Queue 2012). Without a
// replica the whole queue stands.
type backlog struct {
	least, before int
	slotNanos     int64
	whole         bool // there was a slot before this one
}

func (b *backlog) observe(queued int, nanos, lengthNanos int64) {
	b.slotNanos += nanos
	b.least = min(b.least, queued)
	if b.slotNanos >= lengthNanos {
		b.before, b.least = b.least, queued
		b.whole = true
		b.slotNanos = 0
	}
}

// clear starts over, because the number of replicas changed.
func (b *backlog) clear(queued int) { *b = backlog{least: queued} }

func (b *backlog) standing() int {
	if !b.whole {
		return 0
	}
	return min(b.least, b.before)
}

// demand returns the need of replicas with known capacity: urgent without the stable window and the trend, all with
// everything.
//
// With 1,000 queries/s for each replica, a utilization of 0.7, batches of 20 ms and an objective of 100 ms: a mean of
// 3,000 queries/s needs 4.24 replicas. 4,000 in each second of the panic window, 24,000 of which 23,535 are certain,
// need 5.34 for the rush. 4,000 in a second are worked off in it and the 80 ms after it by 4,000/(1,000 × 1.08) = 3.70.
// The result is six replicas.
func (s *Scaler) demand(in *Sample, cfg *Config) (urgent, all need) {
	full := s.capacity.full()
	s.chance = s.capacity.chance(in.SLONanos)
	planned := func(rate float64) float64 { return s.chance.planned(cfg, rate) }
	mean, rush, ahead := s.rates(in)
	urgent.raise(planned(rush), rush, Rush)

	// The queries of one bucket may be served during the bucket and in what the objective leaves beside one batch. This
	// compares an arrival curve with a service curve (Cruz, 1991); InferLine (SoCC 2020) does so for windows of all
	// lengths.
	slack := max(s.capacity.batchNanos, float64(objectiveNanos(in))-s.capacity.batchNanos)
	within := (float64(s.window.lengthNanos) + slack) / 1e9
	burst := s.window.burst() / within
	urgent.raise(burst/full, burst, Burst)

	// The backlog is worked off within the objective, a bucket, or the start of a replica, whichever is longest, in
	// addition to the arrivals, by all replicas at full capacity. The arrivals are the current ones: the mean still
	// counts a load that has gone.
	count, nanos := s.window.last(rushBuckets)
	recent := count / seconds(max(nanos, s.window.lengthNanos))
	standing := s.backlog.standing()
	if in.Ready == 0 {
		standing = in.Queued
	}
	if standing > 0 {
		rate := max(min(mean, recent), rush) + float64(standing)/seconds(max(objectiveNanos(in), in.StartNanos, s.window.lengthNanos))
		urgent.raise(rate/full, rate, Backlog)
	}

	// The mean of the stable window is stable against chance, but it takes the window's length to fall after the load
	// ends. So it is limited to what was needed at some time within the delay, by the mean of a panic window or for any
	// other reason.
	s.delayed.put(max(planned(max(recent, ahead, expected(in))), urgent.replicas))
	all.raise(min(planned(mean), s.delayed.value()), mean, Rate)
	if urgent.replicas > all.replicas {
		all = urgent
	}
	all.raise(planned(ahead), ahead, Trend)
	all.raise(planned(expected(in)), expected(in), Expected)
	return urgent, all
}

// guess returns the need of replicas without a known capacity. It is the current number; half as many again if the
// replicas are busy and either more queries stood in the queue than they hold, or queries were refused; or one for each
// held query, on average and at the planned utilization, if that is less.
func (s *Scaler) guess(in *Sample, cfg *Config, current int) need {
	mean, rush, _ := s.rates(in)
	n := need{replicas: min(float64(current), s.held/cfg.Utilization), rate: max(mean, rush), reason: Rate}
	crowded := s.backlog.standing() > in.InFlight || s.capacity.trial.refused >= minRefused
	if crowded && in.Ready > 0 && in.Starting == 0 && in.InFlight >= in.Ready {
		n.replicas, n.reason = max(n.replicas, crowdedGrowth*float64(in.Ready)), Crowded
	}
	if expected(in) > 0 && n.replicas < 1 {
		n.replicas, n.reason = 1, Expected
	}
	s.delayed.put(n.replicas)
	return n
}

// objectiveNanos returns how long a query may take.
func objectiveNanos(in *Sample) int64 {
	if in.SLONanos <= 0 {
		return defaultObjectiveNanos
	}
	return in.SLONanos
}

func expected(in *Sample) float64 {
	if !(in.ExpectedRate > 0) {
		return 0
	}
	return min(in.ExpectedRate, maxRate)
}

func seconds(nanos int64) float64 { return float64(nanos) / 1e9 }
