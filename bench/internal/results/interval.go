package results

import (
	"fmt"
	"math"

	"gonum.org/v1/gonum/stat/distuv"
)

// Average estimates the mean of independent values; the bounds are Student's. A single value says nothing of its spread: its interval is all
// numbers, as far as they can be written in JSON.
//
// For example, 1, 2, 3, 4 and 5 are 3 (1.04–4.96).
func Average(values []float64) Interval {
	n := float64(len(values))
	mean := Mean(values)
	if n < 2 {
		return Interval{Value: mean, Low: -math.MaxFloat64, High: math.MaxFloat64}
	}
	squares := 0.0
	for _, v := range values {
		squares += (v - mean) * (v - mean)
	}
	off := distuv.StudentsT{Sigma: 1, Nu: n - 1}.Quantile((1+confidence)/2) * math.Sqrt(squares/(n-1)/n)
	return Interval{Value: mean, Low: mean - off, High: mean + off}
}

// Differences returns a[i] − b[i].
func Differences(a, b []float64) []float64 {
	out := make([]float64, len(a))
	for i := range a {
		out[i] = a[i] - b[i]
	}
	return out
}

// Minus estimates the difference of two independent estimates, the second times a factor above 0 (Newcombe, Statistics in Medicine 17, 1998,
// method 10, for proportions).
func (i Interval) Minus(factor float64, other Interval) Interval {
	value := i.Value - factor*other.Value
	return Interval{
		Value: value,
		Low:   value - math.Hypot(i.Value-i.Low, factor*(other.High-other.Value)),
		High:  value + math.Hypot(i.High-i.Value, factor*(other.Value-other.Low)),
	}
}

// Over divides by a number above 0.
func (i Interval) Over(by float64) Interval { return Interval{i.Value / by, i.Low / by, i.High / by} }

// Signed is "+value ± half" with the given number of decimals, for a symmetric interval.
func (i Interval) Signed(digits int) string {
	return fmt.Sprintf("%+.*f", digits, i.Value) + i.half(digits)
}

// PlusMinus is "value ± half" with the given number of decimals, for a symmetric interval.
func (i Interval) PlusMinus(digits int) string {
	return fmt.Sprintf("%.*f", digits, i.Value) + i.half(digits)
}

func (i Interval) half(digits int) string {
	if i.High > math.MaxFloat64/2 {
		return " (no interval)"
	}
	return fmt.Sprintf(" ± %.*f", digits, (i.High-i.Low)/2)
}
