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
	// R2 is the fraction of the variance that the line explains.
	R2 float64 `json:"r2"`
}

func (l line) at(n float64) float64 { return l.FixedMillis + n*l.PerQueryMillis }

// fitLine fits a line to the means of a profile by least squares of relative errors. With absolute errors the few largest batches would decide
// alone, and the fixed part would be noise. Sizes and means are positive.
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

// largestWithin returns the largest batch whose P99 is within the objective, interpolated between two measured sizes. Points ascend. The size
// is 0 if no point is within the objective; beyond means that the largest measured size still is. Other work on the machine only adds to a
// time, so a smaller size that exceeds the objective below a larger one that does not is noise.
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

// profileSizes returns the first sizes of a profile: powers of two up to the largest batch.
func profileSizes(most int) []int {
	var sizes []int
	for n := 1; n < most; n *= 2 {
		sizes = append(sizes, n)
	}
	return append(sizes, most)
}

// between returns up to three more sizes between the last one within the objective and the first one beyond it.
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

// staticSizes returns up to count caps to compare an adaptive cap with: geometrically from 0.5 to 1.5 times around, at most most.
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

// bestStatic returns the fixed cap with the largest median throughput among those whose evaluations are within the objective at P99, or nil.
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

// ratios returns a's throughput divided by b's, round by round.
func ratios(a, b *Strategy) []float64 { return over(a.Rounds, b.Rounds) }

// finals returns the same for their final rounds.
func finals(a, b *Strategy) []float64 { return over(a.Finals, b.Finals) }

func over(a, b []Sample) []float64 {
	return quotients(results.Each(a, throughput), results.Each(b, throughput))
}

// quotients returns a's values divided by b's, one for each pair.
func quotients(a, b []float64) []float64 {
	var out []float64
	for i := range min(len(a), len(b)) {
		out = append(out, a[i]/b[i])
	}
	return out
}
