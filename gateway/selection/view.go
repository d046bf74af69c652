package selection

import (
	"encoding/binary"
	"iter"

	"github.com/xebec-serving/xebec/api"
)

// Tensors are the inputs of a query, the outputs of a prediction, or a label: views of memory that belongs to the
// caller. Nothing is copied or decoded before a policy asks for it, and a view is not valid after the call. The zero
// value has none.
type Tensors struct {
	Specs  []api.TensorSpec
	Values []api.Value
}

// Len returns the number of tensors.
func (t Tensors) Len() int { return min(len(t.Specs), len(t.Values)) }

// At returns tensor i.
func (t Tensors) At(i int) Tensor { return Tensor{&t.Specs[i], &t.Values[i]} }

// Named returns the tensor of that name, or the first one if the name is empty. ok is false if there is none.
func (t Tensors) Named(name string) (_ Tensor, ok bool) {
	for i := range t.Len() {
		if name == "" || t.Specs[i].Name == name {
			return t.At(i), true
		}
	}
	return Tensor{}, false
}

// Tensor is a view of one tensor of one query.
type Tensor struct {
	Spec  *api.TensorSpec
	Value *api.Value
}

// Numeric reports whether the elements are numbers; otherwise they are texts or bytes.
func (t Tensor) Numeric() bool { return t.Spec.DType.Valid() && !t.Spec.DType.Variable() }

// Elements returns the number of elements. It counts what the data has, whatever the dimensions say.
func (t Tensor) Elements() int {
	if t.Numeric() {
		return len(t.Value.Data) / t.Spec.DType.Size()
	}
	n := 0
	for range t.All() {
		n++
	}
	return n
}

// Number returns element i of a numeric tensor, in row-major order. 0 ≤ i < Elements().
func (t Tensor) Number(i int) float64 {
	return t.Spec.DType.Number(t.Value.Data[i*t.Spec.DType.Size():])
}

// All iterates over the bytes of each element: of a number its little-endian form, otherwise the text itself. Elements
// after a damaged length are left out.
func (t Tensor) All() iter.Seq2[int, []byte] {
	return func(yield func(int, []byte) bool) {
		data := t.Value.Data
		if !t.Numeric() && len(t.Spec.Shape) == 0 {
			yield(0, data)
			return
		}
		for i := 0; ; i++ {
			size := t.Spec.DType.Size()
			if !t.Numeric() {
				if len(data) < 4 {
					return
				}
				size, data = int(binary.LittleEndian.Uint32(data)), data[4:]
			}
			if size > len(data) || len(data) == 0 && t.Numeric() || !yield(i, data[:size]) {
				return
			}
			data = data[size:]
		}
	}
}

// Prediction is one candidate's prediction as policies with [Needs].Predictions see it.
type Prediction struct {
	Candidate int
	// Outputs are all outputs of the model. Their element types and shapes are those of the function.
	Outputs Tensors
	// Confidence is the model's own, from 0 to 1; NaN if it states none.
	Confidence float64
	// LatencyNanos is the time from the arrival of the query to the prediction; near 0 if the prediction was cached.
	LatencyNanos int64
}

// AddOutputs appends n empty values to Output. They use the memory of earlier answers again.
func (c *Combination) AddOutputs(n int) {
	for range n {
		if at := len(c.Output); at < cap(c.Output) {
			c.Output = c.Output[:at+1]
			v := &c.Output[at]
			v.Data, v.Dims = v.Data[:0], v.Dims[:0]
		} else {
			c.Output = append(c.Output, api.Value{})
		}
	}
}

// Judged returns the output that labels are about. With several outputs and none that labels are about (output < 0) it
// is the first one.
func (p *Prediction) Judged(output int) (_ Tensor, ok bool) {
	if output = max(output, 0); output >= p.Outputs.Len() {
		return Tensor{}, false
	}
	return p.Outputs.At(output), true
}
