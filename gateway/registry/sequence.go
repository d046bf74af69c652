package registry

import "math"

// interval returns bounds of the mean of observations from 0 to 1, of which there are n with this sum. The probability that the bounds miss
// the mean for any n, now or later, is at most alpha. A caller may therefore look after each observation and stop whenever it likes. The
// observations may be of any distribution on [0, 1]. Each must have this mean whatever the earlier ones were; which version was asked
// when, and how often, then does not matter.
//
// This is a confidence sequence: the means p that a bet against p would not have refuted. A bet on the next observation x multiplies a
// fortune by θ^x (1−θ)^(1−x) / (p^x (1−p)^(1−x)), whose expectation is at most 1 if p is the mean: it is convex in x, and 1 for
// observations that are 0 or 1. Mixed over θ by Beta(½, ½), the fortune after n observations with the sum s is
//
//	B(s+½, n−s+½) / B(½, ½) / (p^s (1−p)^(n−s)),
//
// which exceeds 1/alpha at any time with probability alpha at most (Ville's inequality). The mixture is that of H. Robbins (Statistical
// methods related to the law of the iterated logarithm, Annals of Mathematical Statistics 41, 1970); for bounded observations see S. Howard,
// A. Ramdas, J. McAuliffe and J. Sekhon (Time-uniform, nonparametric, nonasymptotic confidence sequences, Annals of Statistics 49, 2021),
// the sub-Bernoulli case; the prior is that of R. Krichevsky and V. Trofimov.
func interval(n, sum, alpha float64) (low, high float64) {
	if n <= 0 {
		return 0, 1
	}
	ones := min(max(sum, 0), n)
	zeros := n - ones
	mixed := logBeta(ones+0.5, zeros+0.5) - math.Log(math.Pi) // B(½, ½) is π
	refuted := func(p float64) bool {
		return mixed-times(ones, math.Log(p))-times(zeros, math.Log1p(-p)) >= -math.Log(alpha)
	}
	mean := ones / n
	return crossing(mean, 0, refuted), crossing(mean, 1, refuted)
}

// crossing returns the bound between mean, which is not refuted, and end.
func crossing(mean, end float64, refuted func(float64) bool) float64 {
	if !refuted(end) {
		return end
	}
	for range 60 { // halvings: to the last bit
		middle := (mean + end) / 2
		if refuted(middle) {
			end = middle
		} else {
			mean = middle
		}
	}
	return end
}

func logBeta(a, b float64) float64 {
	x, _ := math.Lgamma(a)
	y, _ := math.Lgamma(b)
	z, _ := math.Lgamma(a + b)
	return x + y - z
}

// times returns n·x. It is 0 for n = 0, also if x is infinite.
func times(n, x float64) float64 {
	if n == 0 {
		return 0
	}
	return n * x
}
