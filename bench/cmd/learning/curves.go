package main

import (
	"github.com/xebec-serving/xebec/bench/internal/results"
)

// The arithmetic of the figures. It knows no gateway.

// errorRate returns the fraction of true values, or 0 if there are none.
func errorRate(wrong []bool) float64 {
	n := 0
	for _, w := range wrong {
		if w {
			n++
		}
	}
	if len(wrong) == 0 {
		return 0
	}
	return float64(n) / float64(len(wrong))
}

// Point is a curve's value after a number of queries or observations.
type Point struct {
	After int     `json:"after"`
	Value float64 `json:"value"`
}

// cumulative returns the error rate from the first query on, at multiples of every queries.
func cumulative(wrong []bool, every int) []Point {
	var out []Point
	n := 0
	for i, w := range wrong {
		if w {
			n++
		}
		if (i+1)%every == 0 {
			out = append(out, Point{i + 1, float64(n) / float64(i+1)})
		}
	}
	return out
}

// windows returns the rate within each window of length queries.
func windows(is []bool, length int) []Point {
	var out []Point
	for end := length; end <= len(is); end += length {
		out = append(out, Point{end, errorRate(is[end-length : end])})
	}
	return out
}

// at returns the curve's value after so many queries, or 0 if it has no such point.
func at(curve []Point, after int) float64 {
	if p := results.Find(curve, func(p Point) bool { return p.After == after }); p != nil {
		return p.Value
	}
	return 0
}

// Group is the queries for which the same number of models agree with the function's answer.
type Group struct {
	// Agree is the number of models that give the function's answer.
	Agree int `json:"agree"`
	// Share is the group's fraction of all queries, Error the fraction of its queries that were answered wrongly.
	Share float64 `json:"share"`
	Error float64 `json:"error"`
	// Confidence is the mean confidence of the gateway's answers.
	Confidence float64 `json:"confidence"`
}

// answered is one answer of an ensemble.
type answered struct {
	agree      int
	wrong      bool
	confidence float64
}

// groups sorts queries by the number of models that agree, from 0 to models. Groups without queries are left out.
func groups(all []answered, models int) []Group {
	var out []Group
	for k := range models + 1 {
		var g Group
		n := 0
		for _, a := range all {
			if a.agree != k {
				continue
			}
			n++
			g.Confidence += a.confidence
			if a.wrong {
				g.Error++
			}
		}
		if n > 0 {
			out = append(out, Group{k, float64(n) / float64(len(all)), g.Error / float64(n), g.Confidence / float64(n)})
		}
	}
	return out
}

// split merges the groups in which at least k models agree into one, and the others into another: the paper's k-agree bars.
func split(all []Group, k int) (sure, unsure Group) {
	sure.Agree, unsure.Agree = k, k-1
	for _, g := range all {
		to := &unsure
		if g.Agree >= k {
			to = &sure
		}
		to.Share += g.Share
		to.Error += g.Error * g.Share
		to.Confidence += g.Confidence * g.Share
	}
	for _, g := range []*Group{&sure, &unsure} {
		if g.Share > 0 {
			g.Error /= g.Share
			g.Confidence /= g.Share
		}
	}
	return sure, unsure
}

// byFeedback returns the error rate over all users in windows of length queries per user, by the amount of feedback that each user had given
// when the window began.
func byFeedback(wrong [][]bool, length int) []Point {
	var out []Point
	if len(wrong) == 0 {
		return nil
	}
	for from := 0; from+length <= len(wrong[0]); from += length {
		sum := 0.0
		for _, u := range wrong {
			sum += errorRate(u[from : from+length])
		}
		out = append(out, Point{from, sum / float64(len(wrong))})
	}
	return out
}

// Latency is in milliseconds.
type Latency struct {
	Mean float64 `json:"mean_ms"`
	P50  float64 `json:"p50_ms"`
	P99  float64 `json:"p99_ms"`
}

func latencyOf(nanos []int64) Latency {
	if len(nanos) == 0 {
		return Latency{}
	}
	q := results.Quantiles(nanos)
	return Latency{results.Mean(nanos) / 1e6, q(0.5) / 1e6, q(0.99) / 1e6}
}
