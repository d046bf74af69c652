package drift

import (
	"cmp"
	"maps"
	"math"
	"slices"

	"github.com/xebec-serving/xebec/api"
)

const (
	// maxRows is the most queries in a baseline; of more, evenly spaced ones are chosen. More would add nothing to a
	// comparison with a few thousand served ones.
	maxRows = 100_000
	// maxSorted is how many values are sorted to find the bounds of bins. All rows are then counted.
	maxSorted = 20_000
	// minValidated is the least number of queries in a baseline; with fewer, all differences are chance.
	minValidated = 50
	// mostBins is the most bins for numbers, if there are rowsPerBin values for each.
	mostBins   = 10
	rowsPerBin = 25
	// minInBin is the least number of validated values in a bin of numbers or of a label: a rule of thumb for the χ²
	// approximation.
	minInBin = 5
)

// Baseline is the distribution of a version's inputs and outputs at its validation. It never changes, and any number of
// watches may share it.
type Baseline struct {
	validated int
	features  []*feature
	bins      int // of all features
}

// NewBaseline summarises validated queries. inputs[i] and outputs[i] are those of query i, in the order of the
// signature; they are not retained. It takes a few milliseconds for each thousand queries of a usual model. With fewer
// than 50 queries the baseline has no features, and nothing is compared.
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

// evenly chooses at most n evenly spaced rows.
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

// tryLabels turns an output feature into labels if it has few different values.
func (f *feature) tryLabels(outputs [][]api.Value) bool {
	if !f.output {
		return false
	}
	switch f.dtype {
	case api.Float16, api.BFloat16, api.Float32, api.Float64:
		return false
	case api.Bytes, api.String:
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

// frequent returns the values that are frequent enough to be labels, most frequent first. It returns false if there are
// too many different values, no frequent ones, or values that cannot be labels.
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

// findBins finds the bins of a numeric feature.
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

// edges divides sorted numbers into bins of about equal counts. A number that alone fills a bin gets its own bin, from
// itself to the next float64, so that smaller and larger values are distinguished from it. Bins between quantiles would
// not do that: all deciles of a pixel that is black in 95 % of the pictures are 0.
func edges(sorted []float64) []float64 {
	var out []float64
	add := func(x float64) {
		if len(out) == 0 || out[len(out)-1] < x {
			out = append(out, x)
		}
	}
	n := len(sorted)
	// A bin has at least a fiftieth of the values: ratios of smaller fractions are mostly chance.
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
