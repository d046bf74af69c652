package drift

import (
	"cmp"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/xebec-serving/xebec/api"
)

const (
	// A window ends after windowQueries observations, but not before windowTime: a second of many queries may be that of
	// one caller. The current window and the previous, full one are the served queries.
	windowQueries = 4096             //xebec:limit queries in each of the two windows that drift is computed from, at least
	windowTime    = 10 * time.Second //xebec:limit time that each of these windows covers, at least
	// minServed is the least number of served queries for a report.
	minServed = 200
	// maxReported is the most features in a report.
	maxReported = 8
)

// Watch counts served queries and compares them with a baseline. It is safe for concurrent use.
type Watch struct {
	baseline          *Baseline
	mu                sync.Mutex
	current, previous window
}

// window holds the counts of some observations.
type window struct {
	queries int
	since   api.Nanos
	bins    []uint32 // of all features, concatenated
	means   []float64
	finite  []uint32 // number of values in each mean
}

// NewWatch returns a watch without observations.
func NewWatch(b *Baseline) *Watch {
	empty := func() window {
		return window{bins: make([]uint32, b.bins), means: make([]float64, len(b.features)), finite: make([]uint32, len(b.features))}
	}
	return &Watch{baseline: b, current: empty(), previous: empty()}
}

// Observe counts a query that is served at a time. It reads the values during the call and does not retain them. Its
// caller waits for at most the counters of another query: values are read before the lock is taken.
func (w *Watch) Observe(now api.Nanos, inputs, outputs []api.Value) {
	features := w.baseline.features
	if len(features) == 0 {
		return
	}
	var bins [2 * maxFeatures]int32
	var values [2 * maxFeatures]float64
	first := int32(0)
	for i, f := range features {
		bin, x := f.bin(f.value(inputs, outputs))
		bins[i], values[i] = first+int32(bin), x
		first += int32(len(f.validated))
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.turn(now)
	w.current.queries++
	for i := range features {
		w.current.bins[bins[i]]++
		if x := values[i]; !math.IsNaN(x) {
			w.current.finite[i]++
			w.current.means[i] += (x - w.current.means[i]) / float64(w.current.finite[i])
		}
	}
}

// turn begins a new window if the current one is full. Its caller holds w.mu.
func (w *Watch) turn(now api.Nanos) {
	switch c := &w.current; {
	case c.queries == 0:
		c.since = now
	case c.queries >= windowQueries && now-c.since >= api.Nanos(windowTime):
		w.current, w.previous = w.previous, w.current
		w.current.queries, w.current.since = 0, now
		clear(w.current.bins)
		clear(w.current.means)
		clear(w.current.finite)
	}
}

// Report compares recently served queries with the baseline. Features has the features that have drifted, at most
// eight. It is nil if fewer than 200 queries were observed or the baseline has fewer than 50.
func (w *Watch) Report() *api.DriftStatus {
	served := w.served()
	if served.queries < minServed {
		return nil
	}
	out := &api.DriftStatus{Validated: w.baseline.validated, Served: served.queries}
	first := 0
	for i, f := range w.baseline.features {
		bins := served.bins[first : first+len(f.validated)]
		first += len(bins)
		index := stability(f.validated, bins)
		if index == 0 {
			continue
		}
		if f.output {
			out.Output = max(out.Output, index)
		} else {
			out.Input = max(out.Input, index)
		}
		out.Features = append(out.Features, api.FeatureDrift{
			Name: f.name, PSI: index, Validated: f.summary(f.validated, f.mean), Served: f.summary(bins, served.means[i]),
		})
	}
	slices.SortStableFunc(out.Features, func(a, b api.FeatureDrift) int { return cmp.Compare(b.PSI, a.PSI) })
	out.Features = slices.Clip(out.Features[:min(len(out.Features), maxReported)])
	return out
}

// served returns the sum of both windows as a copy, so that Observe is blocked only while copying.
func (w *Watch) served() window {
	w.mu.Lock()
	defer w.mu.Unlock()
	sum := window{
		queries: w.current.queries + w.previous.queries, bins: slices.Clone(w.current.bins), means: slices.Clone(w.current.means), finite: slices.Clone(w.current.finite),
	}
	for i, n := range w.previous.bins {
		sum.bins[i] += n
	}
	for i, n := range w.previous.finite {
		if n > 0 {
			sum.finite[i] += n
			sum.means[i] += (w.previous.means[i] - sum.means[i]) * (float64(n) / float64(sum.finite[i]))
		}
	}
	return sum
}

// significance is the quantile of the standard normal distribution that chance exceeds once in 300,000 times.
const significance = 4.5

// stability returns the population stability index of two histograms over the same bins, minus its mean by chance, or 0
// if chance may explain it (the package comment has the sources).
//
// A bin that is empty on one side would make the index infinite. So half an observation for each bin is added to both
// sides, distributed like both together. An unseen value then counts for more the more was observed, and equal
// fractions stay equal however different n and m are.
func stability(validated, served []uint32) float64 {
	n, m, bins := 0.0, 0.0, 0.0
	for b := range validated {
		n += float64(validated[b])
		m += float64(served[b])
		if validated[b]+served[b] > 0 {
			bins++
		}
	}
	if n == 0 || m == 0 || bins < 2 {
		return 0
	}
	added, index := bins/2, 0.0
	for b := range validated {
		both := (float64(validated[b]) + float64(served[b])) / (n + m)
		if both == 0 {
			continue
		}
		v := (float64(validated[b]) + added*both) / (n + added)
		s := (float64(served[b]) + added*both) / (m + added)
		index += (s - v) * math.Log(s/v)
	}
	chance, freedom := 1/n+1/m, bins-1
	// Wilson and Hilferty's approximation of the χ² distribution's quantile (The Distribution of Chi-Square, 1931).
	spread := 2 / (9 * freedom)
	critical := freedom * math.Pow(1-spread+significance*math.Sqrt(spread), 3)
	if index < chance*critical {
		return 0
	}
	return index - chance*freedom
}
