package results

import (
	"fmt"
	"math"

	"gonum.org/v1/gonum/stat/distuv"
)

// confidence is that of all intervals.
const confidence = 0.95

// Interval is an estimate with its confidence interval of 95 %. Low is at most Value, High at least.
type Interval struct {
	Value float64 `json:"value"`
	Low   float64 `json:"low"`
	High  float64 `json:"high"`
}

// Geometric estimates the factor behind ratios that were each taken within one round. They are positive and scatter by factors, so their
// logarithms are taken: the value is the geometric mean, the bounds are Student's. One ratio says nothing about its scatter: the interval is all
// positive numbers. For no ratios the value is NaN.
//
// For example, ratios of 1.18, 1.17 and 1.33 are 1.22 (1.02–1.47).
func Geometric(ratios []float64) Interval {
	n := float64(len(ratios))
	if n == 0 {
		return Interval{Value: math.NaN(), High: math.Inf(1)}
	}
	logs := Each(ratios, math.Log)
	mean := Mean(logs)
	if n == 1 {
		return Interval{Value: math.Exp(mean), High: math.Inf(1)}
	}
	squares := 0.0
	for _, l := range logs {
		squares += (l - mean) * (l - mean)
	}
	student := distuv.StudentsT{Sigma: 1, Nu: n - 1}
	off := student.Quantile((1+confidence)/2) * math.Sqrt(squares/(n-1)/n)
	return Interval{Value: math.Exp(mean), Low: math.Exp(mean - off), High: math.Exp(mean + off)}
}

// Part estimates a probability from how many of all independent cases were so (Clopper and Pearson, Biometrika 26, 1934). Of no cases nothing
// is known: the interval is 0 to 1.
//
// For example, 0 of 100 late batches are 0 (0–0.036): that does not show that fewer than one in a hundred is late. It takes 368 batches.
func Part(so, all int) Interval {
	i := Interval{Value: Ratio(float64(so), float64(all)), High: 1}
	if so > 0 {
		i.Low = distuv.Beta{Alpha: float64(so), Beta: float64(all - so + 1)}.Quantile((1 - confidence) / 2)
	}
	if so < all {
		i.High = distuv.Beta{Alpha: float64(so + 1), Beta: float64(all - so)}.Quantile((1 + confidence) / 2)
	}
	return i
}

// Format is "value (low–high)" with the given number of decimals, or "value (no interval)" if the measurement has none.
func (i Interval) Format(digits int) string {
	if math.IsInf(i.High, 1) {
		return fmt.Sprintf("%.*f (no interval)", digits, i.Value)
	}
	return fmt.Sprintf("%.*f (%.*f–%.*f)", digits, i.Value, digits, i.Low, digits, i.High)
}

// Finding is what a measurement says about a claim.
type Finding string

// The findings. A claim holds if the whole interval agrees with it, and does not hold if the whole interval contradicts it.
const (
	Holds  Finding = "holds"
	Fails  Finding = "**does not hold**"
	Untold Finding = "cannot be told"
)

// Claim is a range in which a number is said to lie.
type Claim struct{ least, most float64 }

// AtLeast claims that a number is v or more.
func AtLeast(v float64) Claim { return Claim{v, math.Inf(1)} }

// AtMost claims that a number is v or less.
func AtMost(v float64) Claim { return Claim{math.Inf(-1), v} }

// About claims that a number is v, give or take a factor of 1 + tolerance.
func About(v, tolerance float64) Claim { return Claim{v / (1 + tolerance), v * (1 + tolerance)} }

// Judge compares the claim with what was measured.
func (c Claim) Judge(i Interval) Finding {
	switch {
	case i.Low >= c.least && i.High <= c.most:
		return Holds
	case i.High < c.least || i.Low > c.most:
		return Fails
	}
	return Untold // also if the interval is NaN
}

// All is the finding for a claim about all of several things: it holds if it holds of each, and fails if it fails of one.
func All(findings ...Finding) Finding {
	all := Holds
	for _, f := range findings {
		if f == Fails {
			return Fails
		}
		if f == Untold {
			all = Untold
		}
	}
	return all
}
