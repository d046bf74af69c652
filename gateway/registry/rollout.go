package registry

import (
	"fmt"
	"math"

	"github.com/xebec-serving/xebec/api"
)

// Arm is what is known of one of the two versions of a roll-out, since it began.
type Arm struct {
	// Queries is how many it was asked, Failed how many of those it did not answer, Feedback how many of its answers were judged.
	Queries, Failed, Feedback uint64
	// LossSum and LossSquares are the sums of the losses, each from 0 to 1, and of their squares.
	LossSum, LossSquares float64
	// P99 is the 99th percentile of its latency in seconds, found from Timed answers.
	P99   float64
	Timed uint64
}

// Verdict is what a roll-out has come to.
type Verdict uint8

// The verdicts.
const (
	// Undecided: go on.
	Undecided Verdict = iota
	// Advance: the new version is within the guard; promote it.
	Advance
	// Retreat: the new version is worse than the guard allows; roll it back.
	Retreat
)

// String is the verdict as the status has it.
func (v Verdict) String() string {
	switch v {
	case Advance:
		return "promote"
	case Retreat:
		return "retreat"
	}
	return "undecided"
}

// How sure a verdict must be.
const (
	// looksZ is how many standard errors a bound lies away. The judge looks again and again, and stops at the first look that convinces it: a
	// test that is wrong once in forty looks (z = 2) is wrong sooner or later. Looks that share their data are not independent: from
	// one look to the next that differs enough to count as another one the data about double, which is ten times between the
	// first 30 answers and 30,000. At z = 3 one look is wrong once in 740 times, ten once in 74 at most; and what the guard allows
	// comes on top, which from some hundred answers on makes it much rarer still.
	boundZ = 3
	// minJudged is how many answers of the new version must have been judged before it can be found worse, whatever the guard says: below, the
	// mean of losses has no normal distribution to speak of.
	minJudged = 30
	// minQueries is the same for failures, which need no feedback.
	minQueries = 50
	// minTimed is how many answers a 99th percentile needs: of 200 it is the third slowest, of fewer one that any pause makes.
	minTimed = 200
	// tailSpread is what the relative standard error of a 99th percentile is, times √n, where the tail falls off exponentially:
	// √(0.01·0.99) / (0.01·ln 100) (the variance of a sample quantile is p(1−p)/(n·f²)).
	tailSpread = 2.16
)

// How the new version's part grows.
const (
	firstCap = 0.05
	// capSteps is how many times it doubles while the guard's feedback comes, minCapStep how many judged answers a doubling needs at least.
	capSteps   = 4
	minCapStep = 20
)

// Judge compares the two versions of a roll-out. It says Retreat as soon as one of three things shows that the new one is worse than the guard
// allows: its mean loss (once guard.MinFeedback of its answers, and 30, were judged), its part of failed queries (of 50 at least),
// or its 99th percentile (of 200 answers of each). It says Advance once guard.MinFeedback answers of each were judged and it is sure that
// neither losses nor failures are further apart than allowed, and the percentile, if there is one, is within the guard. The reason is one
// sentence with the numbers, of which the new version's come first.
//
// Means are compared by Welch's unequal variances (B. L. Welch, Biometrika 34, 1947), by the normal approximation, with bounds at three standard
// errors because there are many looks. Each variance is that of the sample with one observation of 0 and one of 1 added, as
// Agresti and Caffo do (The American Statistician 54, 2000), and at least what it is where nobody has ever failed: without that, no error
// in thirty would be certainty. With n observations, none of them a failure, three standard errors are 3/(n+2): the rule of three.
//
// A worked example: 0 failures of 250 against 0 of 900. The standard errors are 1/252 and 1/902; three times their root of squares is 0.0124:
// the new version's part of failures is at most 1.2 % higher, which 2 % allows.
//
// What cannot be (a loss that is no number, a percentile of 0) proves nothing.
func Judge(g api.GuardSpec, old, new Arm) (Verdict, string) {
	g = withDefaults(g)
	failures := comparison{"failure rate", "queries", share(old), share(new)}
	if failures.new.n >= minQueries && failures.lowerBound() > g.MaxErrorIncrease {
		return Retreat, failures.reason(g.MaxErrorIncrease, "least", failures.lowerBound())
	}
	losses := comparison{"mean loss", "answers", loss(old), loss(new)}
	need := float64(g.MinFeedback)
	if losses.new.n >= max(need, minJudged) && losses.lowerBound() > g.MaxErrorIncrease {
		return Retreat, losses.reason(g.MaxErrorIncrease, "least", losses.lowerBound())
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

// Cap is the largest part of the queries that the new version of a roll-out may get, from 0 to 1, whatever its policy would give it: a twentieth
// at first, twice as much with each quarter of guard.MinFeedback (at least 20) of its answers that was judged. With the default of 200
// it is out of the way after 250. feedback and queries are the new version's: an answer that several people have judged counts
// once, so that no more were judged than were given.
func Cap(g api.GuardSpec, feedback, queries uint64) float64 {
	g = withDefaults(g)
	doublings := min(feedback, queries) / uint64(max(g.MinFeedback/capSteps, minCapStep))
	if doublings > 10 {
		return 1
	}
	return min(1, firstCap*float64(uint64(1)<<doublings))
}

// guarded is the guard with its defaults.
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

// sample is a mean and the square of its standard error.
type sample struct {
	n, mean, variance float64
}

// loss is the sample of losses; of none, where the sums are not those of losses from 0 to 1.
func loss(a Arm) sample {
	n := float64(a.Feedback)
	const rounding = 1e-6
	if n == 0 || !(a.LossSum >= -rounding*n && a.LossSum <= n*(1+rounding) && a.LossSquares >= -rounding*n && a.LossSquares <= n*(1+rounding)) {
		return estimate(0, 0, 0)
	}
	return estimate(n, a.LossSum, a.LossSquares)
}

// share is the sample of queries of which each failed, 1, or not, 0.
func share(a Arm) sample {
	failed := float64(min(a.Failed, a.Queries))
	return estimate(float64(a.Queries), failed, failed)
}

func estimate(n, sum, squares float64) sample {
	mean := (sum + 1) / (n + 2)
	variance := max((squares+1)/(n+2)-mean*mean, (n+1)/((n+2)*(n+2))) / (n + 2)
	return sample{n, sum / max(n, 1), variance}
}

// compared is one measure of the two versions.
type comparison struct {
	what, of string
	old, new sample
}

func (c comparison) difference() float64 { return c.new.mean - c.old.mean }
func (c comparison) margin() float64     { return boundZ * math.Sqrt(c.new.variance+c.old.variance) }

// least and most are the bounds of how much higher the new version's is.
func (c comparison) lowerBound() float64 { return c.difference() - c.margin() }
func (c comparison) upperBound() float64 { return c.difference() + c.margin() }

func (c comparison) reason(allowed float64, which string, bound float64) string {
	return fmt.Sprintf("%s %.3g over %.0f %s against %.3g over %.0f: %+.3f (at %s %+.3f), allowed %+.3g",
		c.what, c.new.mean, c.new.n, c.of, c.old.mean, c.old.n, c.difference(), which, bound, allowed)
}

// p99Margin is the factor by which two 99th percentiles of the same latencies may differ by chance: with 200 answers of each 1.9, with 2,000
// of each 1.23, with 20,000 of each 1.07.
func p99Margin(n, m uint64) float64 {
	return math.Exp(boundZ * tailSpread * math.Sqrt(1/float64(n)+1/float64(m)))
}

func milliseconds(seconds float64) string { return fmt.Sprintf("%.3g ms", seconds*1000) }

// positive also says no to NaN and to infinity.
func positive(x float64) bool { return x > 0 && x <= math.MaxFloat64 }
