package registry

import (
	"fmt"
	"math"

	"github.com/xebec-serving/xebec/api"
)

// Arm has the statistics of one of the two versions of a roll-out since it started.
type Arm struct {
	// Queries is the number of queries, Failed how many of them had no answer, Feedback how many answers were judged by
	// feedback.
	Queries, Failed, Feedback uint64
	// LossSum and LossSquares are the sums of the losses, each from 0 to 1, and of their squares.
	LossSum, LossSquares float64
	// P99 is the 99th percentile of the latency in seconds, computed from Timed answers.
	P99   float64
	Timed uint64
}

// Verdict is the result of judging a roll-out.
type Verdict uint8

// Verdicts.
const (
	// Undecided: continue.
	Undecided Verdict = iota
	// Advance: the new version is within the guard; promote it.
	Advance
	// Retreat: the new version is worse than the guard permits; roll it back.
	Retreat
)

// String returns the verdict as the status shows it.
func (v Verdict) String() string {
	switch v {
	case Advance:
		return "promote"
	case Retreat:
		return "retreat"
	}
	return "undecided"
}

// Required certainty of a verdict.
const (
	// falseAlarm bounds the probability that each of four statements is ever wrong, however long a roll-out lasts: the mean losses and the
	// failure rates of both versions lie within their intervals. The probability that a version that is no worse than the guard permits is
	// ever rolled back for its losses or its failures is therefore at most 1 %, whatever share of the queries it gets, if answers fail
	// and are wrong independently of each other.
	falseAlarm = 0.0025
	// boundZ is the distance of a bound in standard errors where a version is promoted, and of percentiles. The judge looks repeatedly and
	// stops at the first convincing look: a test that is wrong once in forty looks (z = 2) is wrong sooner or later. Looks share their
	// data, so they are not independent. The data roughly doubles from one look to the next that counts as independent,
	// which is ten times between the first 30 answers and 30,000. At z = 3 one look is wrong once in 740 times, ten
	// looks once in 74 at most. The margin of the guard makes this much rarer from a few hundred answers on.
	boundZ = 3
	// minJudged is how many answers of the new version must be judged before it can be found worse, whatever the intervals say: the first
	// few may all come from one user.
	minJudged = 10 //xebec:limit judged answers before a version can be found worse
	// minQueries is the same limit for failures, which need no feedback and come by whole batches.
	minQueries = 50 //xebec:limit answers before a version can be found to fail more
	// minTimed is how many answers a 99th percentile needs. Of 200 it is the third slowest; of fewer, any pause can
	// determine it.
	minTimed = 200 //xebec:limit timed answers of each version that a 99th percentile needs
	// tailSpread is the relative standard error of a 99th percentile times √n for an exponential tail: √(0.01·0.99) /
	// (0.01·ln 100) (the variance of a sample quantile is p(1−p)/(n·f²)).
	tailSpread = 2.16
)

// Growth of the new version's cap.
const (
	firstCap = 0.05
	// capSteps is how many times the cap doubles while the guard's feedback arrives; minCapStep is the least number of
	// judged answers for each doubling.
	capSteps   = 4
	minCapStep = 20
)

// Judge compares the two versions of a roll-out. It returns Retreat as soon as one of three measures shows that the new
// version is worse than the guard permits: its mean loss (of at least 10 judged answers), its failure rate (of at least 50 queries), or its
// 99th percentile (of at least 200 answers of each version).
// It returns Advance when guard.MinFeedback answers of each were judged, neither losses nor failure rates differ by
// more than permitted with certainty, and the percentile, if known, is within the guard. The reason is one sentence
// with the numbers, the new version's first.
//
// A loss or a failure rate is worse if the lower bound of the new version's, less the upper bound of the old version's, is more than the
// guard permits. The bounds are those of [interval], which hold at all times at once: Judge may be called after each answer.
//
// To promote, means are compared by Welch's unequal variances (B. L. Welch, Biometrika 34, 1947) with the normal approximation, and
// with bounds at three standard errors because there are many looks. Each variance is that of the sample plus one
// observation of 0 and one of 1, as in Agresti and Caffo (The American Statistician 54, 2000), and at least that of a
// sample without failures. Otherwise no error in thirty answers would be certainty. For n observations without
// failures, three standard errors are 3/(n+2): the rule of three.
//
// For example, 0 failures of 250 are compared with 0 of 900. The standard errors are 1/252 and 1/902. Three times the
// root of the sum of their squares is 0.0124: the new version's failure rate is at most 1.2 % higher, which 2 %
// permits.
//
// Impossible values (a NaN loss, a percentile of 0) prove nothing.
func Judge(g api.GuardSpec, old, new Arm) (Verdict, string) {
	g = withDefaults(g)
	failures := comparison{"failure rate", "queries", share(old), share(new)}
	if bound := failures.lowerBound(); failures.new.n >= minQueries && bound > g.MaxErrorIncrease {
		return Retreat, failures.reason(g.MaxErrorIncrease, "least", bound)
	}
	losses := comparison{"mean loss", "answers", loss(old), loss(new)}
	need := float64(g.MinFeedback)
	if bound := losses.lowerBound(); losses.new.n >= minJudged && bound > g.MaxErrorIncrease {
		return Retreat, losses.reason(g.MaxErrorIncrease, "least", bound)
	}
	timed := old.Timed >= minTimed && new.Timed >= minTimed && positive(old.P99) && positive(new.P99)
	bound := old.P99 * (1 + g.MaxP99Increase)
	slow := fmt.Sprintf("p99 %s over %d answers against %s over %d, allowed %s",
		milliseconds(new.P99), new.Timed, milliseconds(old.P99), old.Timed, milliseconds(bound))
	if timed && new.P99 > bound*p99Margin(old.Timed, new.Timed) {
		return Retreat, slow
	}
	switch {
	case losses.new.n < need || losses.old.n < need:
		return Undecided, fmt.Sprintf("judged answers: %.0f against %.0f of the serving version, %d needed of each",
			losses.new.n, losses.old.n, g.MinFeedback)
	case losses.upperBound() > g.MaxErrorIncrease:
		return Undecided, losses.reason(g.MaxErrorIncrease, "most", losses.upperBound())
	case failures.upperBound() > g.MaxErrorIncrease:
		return Undecided, failures.reason(g.MaxErrorIncrease, "most", failures.upperBound())
	case timed && new.P99 > bound:
		return Undecided, slow + ", which chance may explain"
	}
	return Advance, losses.reason(g.MaxErrorIncrease, "most", losses.upperBound())
}

// Cap returns the largest fraction of the queries that the new version of a roll-out may get, from 0 to 1, whatever its
// policy gives it. It starts at a twentieth and doubles with each quarter of guard.MinFeedback (at least 20) judged
// answers. With the default of 200 it no longer limits after 250. feedback and queries are the new version's. An answer
// with several judgements counts once, so judged answers are limited to queries.
func Cap(g api.GuardSpec, feedback, queries uint64) float64 {
	g = withDefaults(g)
	doublings := min(feedback, queries) / uint64(max(g.MinFeedback/capSteps, minCapStep))
	if doublings > 10 {
		return 1
	}
	return min(1, firstCap*float64(uint64(1)<<doublings))
}

// withDefaults fills in the guard's defaults.
func withDefaults(g api.GuardSpec) api.GuardSpec {
	if g.MinFeedback <= 0 {
		g.MinFeedback = api.DefaultMinFeedback
	}
	if !positive(g.MaxErrorIncrease) {
		g.MaxErrorIncrease = api.DefaultMaxErrorIncrease
	}
	if !positive(g.MaxP99Increase) {
		g.MaxP99Increase = api.DefaultMaxP99Increase
	}
	return g
}

// sample is a sum of observations from 0 to 1, their mean and the square of its standard error.
type sample struct {
	n, sum, mean, variance float64
}

// loss returns the sample of losses, or an empty one if the sums cannot be those of losses from 0 to 1.
func loss(a Arm) sample {
	n := float64(a.Feedback)
	const rounding = 1e-6
	if n == 0 || !(a.LossSum >= -rounding*n && a.LossSum <= n*(1+rounding) && a.LossSquares >= -rounding*n && a.LossSquares <= n*(1+rounding)) {
		return estimate(0, 0, 0)
	}
	return estimate(n, a.LossSum, a.LossSquares)
}

// share returns the sample of queries, where a failure is 1 and a success 0.
func share(a Arm) sample {
	failed := float64(min(a.Failed, a.Queries))
	return estimate(float64(a.Queries), failed, failed)
}

func estimate(n, sum, squares float64) sample {
	mean := (sum + 1) / (n + 2)
	variance := max((squares+1)/(n+2)-mean*mean, (n+1)/((n+2)*(n+2))) / (n + 2)
	return sample{n, sum, sum / max(n, 1), variance}
}

// comparison is one measure of both versions.
type comparison struct {
	what, of string
	old, new sample
}

func (c comparison) difference() float64 { return c.new.mean - c.old.mean }

// lowerBound is that of the increase from the old to the new version, at all times at once.
func (c comparison) lowerBound() float64 {
	new, _ := interval(c.new.n, c.new.sum, falseAlarm)
	_, old := interval(c.old.n, c.old.sum, falseAlarm)
	return new - old
}

// upperBound is that of the increase, at three standard errors.
func (c comparison) upperBound() float64 {
	return c.difference() + boundZ*math.Sqrt(c.new.variance+c.old.variance)
}

func (c comparison) reason(allowed float64, which string, bound float64) string {
	return fmt.Sprintf("%s %.3g over %.0f %s against %.3g over %.0f: %+.3f (at %s %+.3f), allowed %+.3g",
		c.what, c.new.mean, c.new.n, c.of, c.old.mean, c.old.n, c.difference(), which, bound, allowed)
}

// p99Margin returns the factor by which two 99th percentiles of equal latencies may differ by chance: 1.9 for 200
// answers of each, 1.23 for 2,000, 1.07 for 20,000.
func p99Margin(n, m uint64) float64 {
	return math.Exp(boundZ * tailSpread * math.Sqrt(1/float64(n)+1/float64(m)))
}

func milliseconds(seconds float64) string { return fmt.Sprintf("%.3g ms", seconds*1000) }

// positive returns false also for NaN and infinity.
func positive(x float64) bool { return x > 0 && x <= math.MaxFloat64 }
