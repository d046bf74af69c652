package results

import (
	"fmt"
	"math"
	"slices"
)

// Median of an even number of values is the mean of the middle two; of none, NaN.
func Median(values []float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	if n%2 == 1 {
		return sorted[n/2]
	}
	return (sorted[n/2-1] + sorted[n/2]) / 2
}

// Quantile is the nearest rank: the smallest of rising values that at least the part q of them does not exceed, so that of 1 to
// 100 the quantile 0.99 is 99; of none, NaN.
func Quantile[T int64 | float64](rising []T, q float64) float64 {
	if len(rising) == 0 {
		return math.NaN()
	}
	at := int(math.Ceil(q*float64(len(rising)))) - 1
	return float64(rising[min(max(at, 0), len(rising)-1)])
}

// Each is one number of every round, in the rounds' order.
func Each[T any](rounds []T, value func(T) float64) []float64 {
	out := make([]float64, len(rounds))
	for i, r := range rounds {
		out[i] = value(r)
	}
	return out
}

// Spread is "median (least–most)", with so many digits after the point; of none, a dash.
func Spread(digits int, values []float64) string {
	if len(values) == 0 {
		return "–"
	}
	return fmt.Sprintf("%.*f (%.*f–%.*f)", digits, Median(values), digits, slices.Min(values), digits, slices.Max(values))
}

// Verdict says in a table whether a target was reached.
func Verdict(met bool) string {
	if met {
		return "met"
	}
	return "**missed**"
}
