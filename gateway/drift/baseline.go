package drift

import (
	"cmp"
	"maps"
	"math"
	"slices"

	"github.com/xebec-serving/xebec/api"
)

const (
	// maxRows is how many queries a baseline is made of at most: beyond that evenly chosen ones. More would tell nothing that the
	// served ones, a few thousand, could be compared with.
	maxRows = 100_000
	// maxSorted is how many values the bounds of bins are found by; all rows are counted.
	maxSorted = 20_000
	// minValidated is how many queries a baseline needs; with fewer there is nothing but chance to be seen.
	minValidated = 50
	// mostBins is how many bins numbers are divided into, where there are rowsPerBin of them for each.
	mostBins   = 10
	rowsPerBin = 25
	// minInBin is how many validated values a bin of numbers or a label has at least: the χ² approximation's rule of thumb.
	minInBin = 5
)

// Baseline is the distribution of a version's inputs and outputs when it was validated. It never changes; any number of watches may
// share it.
type Baseline struct {
	validated int
	features  []*feature
	bins      int // of all features
}

// NewBaseline sums up validated queries: inputs[i] and outputs[i] are those of query i, in the order of the signature, and may be
// changed afterwards. It takes some milliseconds for each thousand queries of a usual model. With fewer than 50 queries the
// baseline has nothing to compare with, and reports say so by having no features.
func NewBaseline(sig api.Signature, inputs, outputs [][]api.Value) *Baseline {
	b := &Baseline{validated: min(len(inputs), len(outputs))}
	inputs, outputs = evenly(inputs[:b.validated], maxRows), evenly(outputs[:b.validated], maxRows)
	if b.validated < minValidated {
		return b
	}
	for _, f := range append(features(sig.Inputs, false), features(sig.Outputs, true)...) {
		if !f.tryLabels(outputs) {
			f.findBins(inputs, outputs)
		}
		seen := 0.0
		for i := range inputs {
			bin, x := f.bin(f.value(inputs[i], outputs[i]))
			f.validated[bin]++
			if !math.IsNaN(x) {
				seen++
				f.mean += (x - f.mean) / seen
			}
		}
		b.features = append(b.features, f)
		b.bins += len(f.validated)
	}
	return b
}

// evenly chooses at most n of some rows.
func evenly[T any](rows []T, n int) []T {
	if len(rows) <= n {
		return rows
	}
	chosen := make([]T, n)
	for i := range chosen {
		chosen[i] = rows[i*len(rows)/n]
	}
	return chosen
}

// labelled makes labels of an output, if it has few different values.
func (f *feature) tryLabels(outputs [][]api.Value) bool {
	if !f.output {
		return false
	}
	switch f.dtype {
	case api.Float16, api.Float32, api.Float64:
		return false
	case api.Bytes:
		if f.rank > 0 {
			return false
		}
		common, ok := frequent(outputs, func(row []api.Value) (string, bool) {
			v := f.value(nil, row)
			return string(v.Data), len(v.Data) <= maxLabelBytes
		})
		if !ok {
			return false
		}
		f.measure, f.name, f.texts, f.labels = textLabel, f.name[:len(f.name)-len(" (length)")], map[string]int{}, []string{}
		for i, s := range common {
			f.texts[s], f.labels = i, append(f.labels, labelText(s))
		}
	default:
		if f.measure != singleElement {
			return false
		}
		common, ok := frequent(outputs, func(row []api.Value) (int64, bool) { return f.integer(f.value(nil, row)) })
		if !ok {
			return false
		}
		f.measure, f.integers, f.labels = integerLabel, map[int64]int{}, []string{}
		for i, v := range common {
			f.integers[v], f.labels = i, append(f.labels, f.integerText(v))
		}
	}
	f.validated = make([]uint32, len(f.labels)+1)
	return true
}

// frequent lists the values that come often enough to be labels, the most frequent first. False: there are too many different ones, or none
// that comes often, or some that are no labels.
func frequent[T cmp.Ordered](rows [][]api.Value, value func([]api.Value) (T, bool)) ([]T, bool) {
	counts := map[T]int{}
	for _, row := range rows {
		v, ok := value(row)
		if !ok {
			return nil, false
		}
		counts[v]++
		if len(counts) > maxLabels {
			return nil, false
		}
	}
	common := slices.SortedFunc(maps.Keys(counts), func(a, b T) int { return cmp.Or(counts[b]-counts[a], cmp.Compare(a, b)) })
	common = slices.DeleteFunc(common, func(v T) bool { return counts[v] < minInBin })
	return common, len(common) > 0
}

// divide finds the bins of a number.
func (f *feature) findBins(inputs, outputs [][]api.Value) {
	ins, outs := evenly(inputs, maxSorted), evenly(outputs, maxSorted)
	values := make([]float64, 0, len(ins))
	for i := range ins {
		if x := f.number(f.value(ins[i], outs[i])); finite(x) {
			values = append(values, x)
		}
	}
	slices.Sort(values)
	f.edges = edges(values)
	f.validated = make([]uint32, len(f.edges)+2)
}

// edges divides sorted numbers into bins of about equal counts. A number that comes as often as a bin is large has a bin for itself,
// between itself and the next float64: what is less and what is more than it is then told apart from it, which bins between quantiles
// would not do (of a pixel that is black in 95 % of the pictures all deciles are 0).
func edges(sorted []float64) []float64 {
	var out []float64
	add := func(x float64) {
		if len(out) == 0 || out[len(out)-1] < x {
			out = append(out, x)
		}
	}
	n := len(sorted)
	// A bin is no smaller than a fiftieth: ratios of smaller parts are mostly chance.
	minCount := max(minInBin, n/50)
	left := min(max(n/rowsPerBin, 2), mostBins)
	inBin := 0
	for i := 0; i < n; {
		end := i + 1
		for end < n && sorted[end] == sorted[i] {
			end++
		}
		want := max(minCount, (n-i+inBin)/left)
		switch {
		case end-i >= want:
			add(sorted[i])
			add(math.Nextafter(sorted[i], math.Inf(1)))
			inBin, left = 0, max(1, left-1)
		default:
			inBin += end - i
			if inBin >= want && n-end >= minCount {
				add(sorted[end])
				inBin, left = 0, max(1, left-1)
			}
		}
		i = end
	}
	return out
}
