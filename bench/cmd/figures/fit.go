package main

import (
	"math"
	"slices"

	"github.com/xebec-serving/xebec/bench/internal/results"
)

// line is a latency profile: a batch of n takes Fixed + n × PerQuery milliseconds.
type line struct {
	FixedMillis    float64 `json:"fixed_ms"`
	PerQueryMillis float64 `json:"per_query_ms"`
	// R2 is the part of the variance that the line explains.
	R2 float64 `json:"r2"`
}

func (l line) at(n float64) float64 { return l.FixedMillis + n*l.PerQueryMillis }

// fitLine is the line with the least sum of squared relative errors through the means of a profile: with absolute ones the few
// largest batches would decide alone, and the fixed part would be noise. Sizes and means are positive.
func fitLine(points []ProfilePoint) line {
	var w, x, y, xx, xy float64
	for _, p := range points {
		weight := 1 / (p.MeanMillis * p.MeanMillis)
		n := float64(p.Queries)
		w += weight
		x += weight * n
		y += weight * p.MeanMillis
		xx += weight * n * n
		xy += weight * n * p.MeanMillis
	}
	var l line
	if d := w*xx - x*x; len(points) > 1 && d > 0 {
		l.PerQueryMillis = (w*xy - x*y) / d
	}
	if w > 0 {
		l.FixedMillis = (y - l.PerQueryMillis*x) / w
	}
	l.R2 = determination(points, l)
	return l
}

func determination(points []ProfilePoint, l line) float64 {
	mean, left, all := 0.0, 0.0, 0.0
	for _, p := range points {
		mean += p.MeanMillis / float64(len(points))
	}
	for _, p := range points {
		off, out := p.MeanMillis-l.at(float64(p.Queries)), p.MeanMillis-mean
		left += off * off
		all += out * out
	}
	if all == 0 {
		return 1
	}
	return 1 - left/all
}

// largestWithin is the largest batch whose P99 is within the objective, between two measured sizes by interpolation. Points
// ascend. It is 0 when none is within, and beyond says that the largest measured still is. What else runs on the machine only adds
// to a time: a smaller size that is not within, below a larger one that is, had bad luck.
func largestWithin(points []ProfilePoint, objectiveMillis float64) (size int, beyond bool) {
	for i := len(points) - 1; i >= 0; i-- {
		p := points[i]
		if p.P99Millis > objectiveMillis {
			continue
		}
		if i == len(points)-1 {
			return p.Queries, true
		}
		next := points[i+1]
		part := (objectiveMillis - p.P99Millis) / (next.P99Millis - p.P99Millis)
		return p.Queries + int(part*float64(next.Queries-p.Queries)), false
	}
	return 0, false
}

// profileSizes are the sizes of a profile at first: powers of two up to the largest batch.
func profileSizes(most int) []int {
	var sizes []int
	for n := 1; n < most; n *= 2 {
		sizes = append(sizes, n)
	}
	return append(sizes, most)
}

// between are up to three more sizes between the last that was within the objective and the first that was not.
func between(low, high int) []int {
	var sizes []int
	for i := 1; i <= 3; i++ {
		n := low + (high-low)*i/4
		if n > low && n < high && !slices.Contains(sizes, n) {
			sizes = append(sizes, n)
		}
	}
	return sizes
}

// staticSizes are caps to compare an adaptive one with: count of them, geometric from half of it to one and a half times, up to
// most.
func staticSizes(around, count, most int) []int {
	var sizes []int
	for i := range count {
		exponent := 0.5
		if count > 1 {
			exponent = float64(i) / float64(count-1)
		}
		n := int(math.Round(0.5 * float64(around) * math.Pow(3, exponent)))
		n = min(max(n, 1), most)
		if !slices.Contains(sizes, n) {
			sizes = append(sizes, n)
		}
	}
	return sizes
}

// bestStatic is the strategy among the fixed caps that has the largest median throughput of those whose evaluations are within
// the objective at P99; nil when none is.
func bestStatic(all []Strategy, objectiveMillis float64) *Strategy {
	var best *Strategy
	for i := range all {
		s := &all[i]
		if s.Static == 0 || s.P99Millis > objectiveMillis {
			continue
		}
		if best == nil || results.Median(results.Each(s.Rounds, throughput)) > results.Median(results.Each(best.Rounds, throughput)) {
			best = s
		}
	}
	return best
}

// ratios are a's values over b's, round by round.
func ratios(a, b *Strategy) []float64 { return over(a.Rounds, b.Rounds) }

// finals are the same of their final rounds.
func finals(a, b *Strategy) []float64 { return over(a.Finals, b.Finals) }

func over(a, b []Sample) []float64 {
	var out []float64
	for i := range min(len(a), len(b)) {
		out = append(out, a[i].QPS/b[i].QPS)
	}
	return out
}

// quantile is that of values in any order.
func quantile(values []int64, q float64) float64 {
	return results.Quantile(slices.Sorted(slices.Values(values)), q)
}

func mean(values []int64) float64 {
	sum := 0.0
	for _, v := range values {
		sum += float64(v)
	}
	return sum / float64(len(values))
}
