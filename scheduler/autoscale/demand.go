package autoscale

import "math"

const (
	// certain is how many standard deviations a short window's count is taken less for, before it counts against the stable window: of queries
	// that come independently of each other (Poisson), a count of N has the standard deviation √N. Of 100 in the panic window 70 are certain.
	// With two, a model of nine queries a second that has one replica for ten would be given a second one nine times an hour.
	certain = 3.0
	// minLookBuckets and maxLookBuckets bound the quarters in which a trend is looked for: from a fifth of the stable window to all of it.
	minLookBuckets = 3
	maxLookBuckets = windowBuckets / 4
	// maxTrend is how many times what comes now may be planned for because of a trend.
	maxTrend = 2.0
	// maxStepRatio is how many times as large as the smallest step of a trend its largest may be: those of a line differ by chance, those of a
	// load that has jumped are most of the jump, and chance.
	maxStepRatio = 4.0
	// minSlotNanos: a queue that is not empty for so long stands; one that is seen twice within less is one burst.
	minSlotNanos = int64(100e6)
	// crowdedGrowth is how many times as many are asked for while nobody knows what one can do.
	crowdedGrowth = 1.5
	// maxRate is more than any gateway sees: it keeps a counter that was overwritten from becoming infinite.
	maxRate = 1e12
)

// need is how many replicas something needs, a real number, and why.
type need struct {
	replicas, rate float64
	reason         Reason
}

// raise makes n so many replicas, which rate needs, if that is more.
func (n *need) raise(replicas, rate float64, why Reason) {
	if replicas > n.replicas {
		*n = need{replicas, rate, why}
	}
}

// rates says how many queries per second come: in the mean of the stable window, for certain in the panic window or the last third of it,
// and as they will when a replica that is started now is ready. No rush is shorter than the objective: what comes within it may wait that
// long, which is a backlog's business.
func (s *Scaler) rates(in *Sample) (mean, rush, ahead float64) {
	w := &s.window
	count, nanos := w.last(windowBuckets)
	mean = count / seconds(max(nanos, w.lengthNanos))
	patience := int(min((objectiveNanos(in)+w.lengthNanos-1)/w.lengthNanos, windowBuckets))
	for _, buckets := range [...]int{max(patience, rushBuckets), max(patience, rushBuckets/3)} {
		count, nanos = w.last(buckets)
		rush = max(rush, surely(count)/seconds(max(nanos, w.lengthNanos)))
	}
	return mean, rush, s.trend(in.StartNanos)
}

func surely(count float64) float64 { return max(0, count-certain*math.Sqrt(count)) }

// trend is the rate when a replica that is started now is ready, if the rate rises; else 0.
//
// It looks back twice as far as it looks ahead, in quarters. A rate that rises is higher in each of them than in the one before. What is
// more than chance (a standard deviation) of the smallest of the three steps goes on. Where a load jumps within a quarter, two of the steps are
// parts of the jump, and the third is chance: so they must be alike, for a jump is no trend. 1,000, 1,200, 1,400 and 1,600 queries/s in
// quarters of 3 s, of which the last step is 505 queries for certain, become 1,600 + 505/3/3 × (1.5 + 5 + 1) = 2,021 when a start takes 5 s and
// a tick 1 s.
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

// backlog is what stands in the queue: the least that was seen in the last two slots, as a queue that empties now and then is none, however
// long it is in between (Nichols and Jacobson, Controlling Queue Delay, ACM Queue 2012). Without a replica all that waits stands.
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

// clear forgets what was seen: there were other replicas then.
func (b *backlog) clear(queued int) { *b = backlog{least: queued} }

func (b *backlog) standing() int {
	if !b.whole {
		return 0
	}
	return min(b.least, b.before)
}

// demand is what is needed of replicas whose capacity is known: urgent without looking at the stable window or ahead, all with everything.
//
// With 1,000 queries/s for each, a utilization of 0.7, batches of 20 ms and an objective of 100 ms: 3,000 queries/s in the mean need 4.24;
// 4,000 in each second of the panic window, 24,000 of which 23,535 are certain, need 5.34 for the rush; 4,000 in a second are worked off in
// it and the 80 ms after it by 4,000/(1,000 × 1.08) = 3.70. Six replicas.
func (s *Scaler) demand(in *Sample, cfg *Config) (urgent, all need) {
	full := s.capacity.full()
	s.chance = s.capacity.chance(in.SLONanos)
	planned := func(rate float64) float64 { return s.chance.planned(cfg, rate) }
	mean, rush, ahead := s.rates(in)
	urgent.raise(planned(rush), rush, Rush)

	// What comes within one bucket has as long to be served as that takes, and what the objective leaves beside one batch. (An arrival curve
	// against a service curve: Cruz, 1991; InferLine, SoCC 2020, asks it of windows of all lengths.)
	slack := max(s.capacity.batchNanos, float64(objectiveNanos(in))-s.capacity.batchNanos)
	within := (float64(s.window.lengthNanos) + slack) / 1e9
	burst := s.window.burst() / within
	urgent.raise(burst/full, burst, Burst)

	// What waits is worked off within the objective, a bucket, or while a replica starts, whichever takes longest: beside what comes, with all that
	// there is. Beside what comes now: the mean still counts a load that has gone.
	count, nanos := s.window.last(rushBuckets)
	lately := count / seconds(max(nanos, s.window.lengthNanos))
	standing := s.backlog.standing()
	if in.Ready == 0 {
		standing = in.Queued
	}
	if standing > 0 {
		rate := max(min(mean, lately), rush) + float64(standing)/seconds(max(objectiveNanos(in), in.StartNanos, s.window.lengthNanos))
		urgent.raise(rate/full, rate, Backlog)
	}

	// The mean of the stable window is not thrown about by chance, but for as long as that it goes on when nobody comes any more. So it counts
	// for no more than was needed within the delay at some time, by the mean of a panic window or by anything else.
	s.delayed.put(max(planned(max(lately, ahead, expected(in))), urgent.replicas))
	all.raise(min(planned(mean), s.delayed.value()), mean, Rate)
	if urgent.replicas > all.replicas {
		all = urgent
	}
	all.raise(planned(ahead), ahead, Trend)
	all.raise(planned(expected(in)), expected(in), Expected)
	return urgent, all
}

// guess is what is needed of replicas of which nobody knows what they do. As many as there are, or were asked for; half as many again when they
// are busy and in two slots never held as much as waited, or refused a part; one for each query that is held, in the mean and at the utilization
// that is planned with, if that is less.
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

// objectiveNanos is how long a query may take.
func objectiveNanos(in *Sample) int64 {
	if in.SLONanos <= 0 {
		return openNanos
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
