package drift

import (
	"cmp"
	"math"
	"slices"
	"sync"

	"github.com/xebec-serving/xebec/api"
)

const (
	// windowQueries is how many observations a window has; the last full one and the one that is being filled are what is served.
	windowQueries = 4096
	// minServed is how many served queries a report needs.
	minServed = 200
	// maxReported is how many features a report has.
	maxReported = 8
)

// Watch counts what is served and compares it with a baseline. Its methods may be called by many goroutines at once.
type Watch struct {
	baseline          *Baseline
	mu                sync.Mutex
	current, previous window
}

// window is a number of observations.
type window struct {
	queries int
	bins    []uint32 // of all features, one after the other
	means   []float64
	finite  []uint32 // what the means stand on
}

// NewWatch starts with nothing served.
func NewWatch(b *Baseline) *Watch {
	empty := func() window {
		return window{bins: make([]uint32, b.bins), means: make([]float64, len(b.features)), finite: make([]uint32, len(b.features))}
	}
	return &Watch{baseline: b, current: empty(), previous: empty()}
}

// Observe counts a served query, unless another goroutine is counting one: it never waits. The values are read during the call
// and belong to the caller.
func (w *Watch) Observe(inputs, outputs []api.Value) {
	if len(w.baseline.features) == 0 || !w.mu.TryLock() {
		return
	}
	defer w.mu.Unlock()
	if w.current.queries == windowQueries {
		w.current, w.previous = w.previous, w.current
		w.current.queries = 0
		clear(w.current.bins)
		clear(w.current.means)
		clear(w.current.finite)
	}
	w.current.queries++
	first := 0
	for i, f := range w.baseline.features {
		bin, x := f.bin(f.value(inputs, outputs))
		w.current.bins[first+bin]++
		if !math.IsNaN(x) {
			w.current.finite[i]++
			w.current.means[i] += (x - w.current.means[i]) / float64(w.current.finite[i])
		}
		first += len(f.validated)
	}
}

// Report compares what was served lately with the baseline. Features has those that have moved, at most eight; none, and no indices,
// while fewer than 200 queries were observed, or the baseline is of fewer than 50.
func (w *Watch) Report() api.DriftStatus {
	served := w.served()
	out := api.DriftStatus{Validated: w.baseline.validated, Served: served.queries}
	if served.queries < minServed {
		return out
	}
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

// served adds both windows up, in a copy, so that Observe is held up for no longer than that takes.
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

// significance is the quantile of the standard normal distribution that chance passes once in 300,000 times.
const significance = 4.5

// stability is the population stability index of two histograms over the same bins, less what chance makes of it, and 0 where
// chance may be all (the package's essay has the sources).
//
// A bin that is empty on one side would make it infinite. So both sides are given half an observation a bin, divided as both together
// are: what has never been seen counts for more the more was looked at, and equal parts stay equal however different n and m are.
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
