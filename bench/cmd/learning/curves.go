package main

import (
	"slices"

	"github.com/xebec-serving/xebec/bench/internal/results"
)

// The arithmetic of the figures: counting rights and wrongs. It knows no gateway.

// errorRate is the part that is true; of none, 0.
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

// Point is a curve's value after so many queries, or so much feedback.
type Point struct {
	After int     `json:"after"`
	Value float64 `json:"value"`
}

// cumulative is the error rate from the beginning to after every so many queries (figure 8's axis).
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

// windows is the rate within each stretch of so many queries.
func windows(is []bool, length int) []Point {
	var out []Point
	for end := length; end <= len(is); end += length {
		out = append(out, Point{end, errorRate(is[end-length : end])})
	}
	return out
}

// at is a curve's value after so many queries; 0 where it has none.
func at(curve []Point, after int) float64 {
	i := slices.IndexFunc(curve, func(p Point) bool { return p.After == after })
	if i < 0 {
		return 0
	}
	return curve[i].Value
}

// Group is the queries whose answer so many models gave themselves.
type Group struct {
	// Agree is how many models' own answers are the function's.
	Agree int `json:"agree"`
	// Share is the part of all queries that are in the group, Error the part of these that were answered wrongly.
	Share float64 `json:"share"`
	Error float64 `json:"error"`
	// Confidence is the mean of what the gateway said.
	Confidence float64 `json:"confidence"`
}

// answered is one query of an ensemble, as it came out.
type answered struct {
	agree      int
	wrong      bool
	confidence float64
}

// groups sorts queries by how many of the models agree, from 0 to models; groups without queries are left out.
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

// split joins the groups in which at least k models agree, and the others: the paper's k-agree bars.
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

// byFeedback is the error rate over all users at each stretch of so many queries of theirs, by the feedback that each had given
// when the stretch began.
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
	rising := slices.Sorted(slices.Values(nanos))
	sum := 0.0
	for _, n := range rising {
		sum += float64(n)
	}
	return Latency{sum / float64(len(rising)) / 1e6, results.Quantile(rising, 0.5) / 1e6, results.Quantile(rising, 0.99) / 1e6}
}

// mean of none is 0.
func mean(values []float64) float64 {
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	if len(values) == 0 {
		return 0
	}
	return sum / float64(len(values))
}
