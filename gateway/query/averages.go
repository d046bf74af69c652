package query

import (
	"math"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/xebec-serving/xebec/api"
)

// MaxAveraged is the largest number of elements of a numeric output that is averaged; larger ones are compared like
// labels.
const MaxAveraged = 4096 //xebec:limit elements of an output that an ensemble averages; larger outputs are compared

// averagedOver is roughly the number of predictions that a running average covers.
const averagedOver = 1000

// Averages are the running averages of each candidate's predictions, for functions with a numeric output. In an ensemble they replace the
// predictions of late candidates (Clipper, section 5.2.2).
type Averages struct {
	output    int  // the index of the output
	alone     bool // it is the only one: an ensemble's answer is the average
	dtype     api.DType
	width     int
	tolerance atomic.Uint64 // bits of a float64

	mu    sync.Mutex
	count []float64
	mean  []float64
}

// NewAverages is for the output of Function.Label, or for the only one. It returns nil if that is not averaged: several outputs,
// or one whose number of elements is not fixed or too large.
func NewAverages(sig api.Signature, label, candidates int) *Averages {
	i := max(0, label-1)
	if label == 0 && len(sig.Outputs) != 1 || i >= len(sig.Outputs) || !sig.Outputs[i].Fixed() {
		return nil
	}
	out := sig.Outputs[i]
	width := out.ItemBytes() / out.DType.Size()
	if width == 0 || width > MaxAveraged {
		return nil
	}
	return &Averages{output: i, alone: len(sig.Outputs) == 1, dtype: out.DType, width: width, count: make([]float64, candidates), mean: make([]float64, candidates*width)}
}

// SetTolerance sets how far a prediction may be from the answer to agree with it.
func (a *Averages) SetTolerance(tolerance float64) { a.tolerance.Store(math.Float64bits(tolerance)) }

// Candidates returns the number of candidates.
func (a *Averages) Candidates() int { return len(a.count) }

// Mean returns candidate i's running average, or nil before its first prediction.
func (a *Averages) Mean(i int) []float64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.count[i] == 0 {
		return nil
	}
	return slices.Clone(a.mean[i*a.width:][:a.width])
}

// Fits reports whether the averages are of outputs with this signature and Function.Label.
func (a *Averages) Fits(sig api.Signature, label int) bool {
	if max(0, label-1) != a.output || a.output >= len(sig.Outputs) || a.alone != (len(sig.Outputs) == 1) || label == 0 && !a.alone {
		return false
	}
	out := sig.Outputs[a.output]
	return out.Fixed() && out.DType == a.dtype && out.ItemBytes() == a.width*a.dtype.Size()
}

// combines reports whether an ensemble's answer is the average.
func (a *Averages) combines() bool { return a != nil && a.alone }

// judged are the outputs by which predictions are compared with each other and with labels.
func (fn *Function) judged(outputs []api.Value) []api.Value {
	if fn.Label == 0 || fn.Label > len(outputs) {
		return outputs
	}
	return outputs[fn.Label-1 : fn.Label]
}

// same reports whether two predictions agree: numbers within the tolerance, labels exactly.
func (fn *Function) same(x, y []api.Value) bool {
	if fn.Averages == nil {
		return sameOutputs(fn.judged(x), fn.judged(y))
	}
	return fn.Averages.same(x, y)
}

func (a *Averages) same(x, y []api.Value) bool {
	size, tolerance := a.dtype.Size(), math.Float64frombits(a.tolerance.Load())
	for i := range a.width {
		if !(math.Abs(a.dtype.Number(x[a.output].Data[i*size:])-a.dtype.Number(y[a.output].Data[i*size:])) <= tolerance) {
			return false
		}
	}
	return true
}

// add adds a prediction to candidate i's average, unless it has elements that are not numbers.
func (a *Averages) add(i int, row []float64) {
	for _, v := range row {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return
		}
	}
	a.count[i] = min(a.count[i]+1, averagedOver)
	mean := a.mean[i*a.width:][:a.width]
	for j, v := range row {
		mean[j] += v/a.count[i] - mean[j]/a.count[i] // v-mean[j] itself could overflow
	}
}

// readNumbers reads the elements of a tensor whose type has a fixed size.
func readNumbers(dst []float64, dtype api.DType, data []byte) {
	size := dtype.Size()
	for i := range dst {
		dst[i] = dtype.Number(data[i*size:])
	}
}
