package results

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
)

// Median returns the mean of the middle two values if their number is even. The median of no values is NaN.
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

// Mean of no values is 0.
func Mean[T int64 | float64](values []T) float64 {
	sum := 0.0
	for _, v := range values {
		sum += float64(v)
	}
	return sum / float64(max(len(values), 1))
}

// Quantiles sorts a copy of values and returns its quantiles by nearest rank: the smallest value that at least the fraction q of the values
// does not exceed. For example, quantile 0.99 of 1 to 100 is 99. The quantiles of no values are NaN.
func Quantiles[T int64 | float64](values []T) func(q float64) float64 {
	rising := slices.Sorted(slices.Values(values))
	return func(q float64) float64 {
		if len(rising) == 0 {
			return math.NaN()
		}
		at := int(math.Ceil(q*float64(len(rising)))) - 1
		return float64(rising[min(max(at, 0), len(rising)-1)])
	}
}

// Ratio is part/whole, or 0 if whole is 0.
func Ratio[T int | int64 | float64](part, whole T) float64 {
	if whole == 0 {
		return 0
	}
	return float64(part) / float64(whole)
}

// Each returns one number of every round, in the order of the rounds.
func Each[T any](rounds []T, value func(T) float64) []float64 {
	out := make([]float64, len(rounds))
	for i, r := range rounds {
		out[i] = value(r)
	}
	return out
}

// Where returns a new slice of the rows that match.
func Where[T any](rows []T, match func(T) bool) []T {
	var out []T
	for _, row := range rows {
		if match(row) {
			out = append(out, row)
		}
	}
	return out
}

// Find returns a pointer to the first row that matches, or nil.
func Find[T any](rows []T, match func(T) bool) *T {
	if i := slices.IndexFunc(rows, match); i >= 0 {
		return &rows[i]
	}
	return nil
}

// Spread formats values as "median (least–most)" with the given number of decimals, and no values as a dash.
func Spread(digits int, values []float64) string {
	if len(values) == 0 {
		return "–"
	}
	return fmt.Sprintf("%.*f (%.*f–%.*f)", digits, Median(values), digits, slices.Min(values), digits, slices.Max(values))
}

// Verdict is the word in a table for a target that was met or missed.
func Verdict(met bool) string {
	if met {
		return "met"
	}
	return "**missed**"
}

// TableHead writes the first two lines of a Markdown table.
func TableHead(w io.Writer, columns ...string) {
	fmt.Fprintf(w, "| %s |\n|%s\n", strings.Join(columns, " | "), strings.Repeat("---|", len(columns)))
}

// Smoke is the notice in the reports of -quick runs.
const Smoke = "**A smoke test (`-quick`): the numbers mean nothing.**\n\n"
