//go:build linux && (amd64 || arm64 || loong64 || ppc64le || riscv64)

package xebec

import (
	"encoding/binary"
	"fmt"
	"math"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/worker/wire"
)

// Batch is some queries and the outputs that are to be set for them. It, and every view it gives, is valid until the
// function it was handed to returns.
//
// The methods and functions that take a name panic when the signature has no such tensor, or it is of another type, or a
// query number is not in [0, Len()): the batch then fails, and the worker goes on.
type Batch struct {
	w      *worker
	id     uint64
	n      int
	budget uint32
	in     wire.Reader
	out    wire.Builder
	// labels is the section count of a FEEDBACK, whose last section they are; 0 otherwise.
	labels     int
	predicting bool
	fault      error // the first output that contradicted the signature
}

// misuse is a panic that says what the model's code did wrong; its text needs no stack.
type misuse string

func misused(format string, args ...any) {
	panic(misuse(fmt.Sprintf("xebec: "+format, args...)))
}

func (b *Batch) begin(schema *wire.Schema, r *wire.Request, in []byte) error {
	if err := schema.Open(&b.in, in, int(r.Count)); err != nil {
		return fmt.Errorf("xebec: the gateway's batch %d cannot be read: %w", r.Batch, err)
	}
	b.id, b.n, b.budget = r.Batch, int(r.Count), r.BudgetMicros
	b.labels, b.predicting, b.fault = 0, false, nil
	return nil
}

// end takes the batch away from the model's code and gives the first fault of its outputs.
func (b *Batch) end() error {
	b.predicting, b.n = false, 0
	return b.fault
}

// Len is the number of queries.
func (b *Batch) Len() int { return b.n }

// ID numbers the batches of a replica, rising.
func (b *Batch) ID() uint64 { return b.id }

// Budget is the time until the first of the batch's callers stops waiting, as of when the batch was sent; 0 when there is
// no such time, or it has passed. A hint, for models that can choose to do less.
func (b *Batch) Budget() time.Duration { return time.Duration(b.budget) * time.Microsecond }

// Signature is what the model takes and returns, for one query. Not to be changed.
func (b *Batch) Signature() *api.Signature { return &b.w.sig }

func (b *Batch) input(name string) int {
	for s := range b.w.sig.Inputs {
		if b.w.sig.Inputs[s].Name == name {
			return s
		}
	}
	misused("the model has no input %q", name)
	return 0
}

func (b *Batch) output(name string) int {
	if !b.predicting {
		misused("output %q was asked for outside of predict", name)
	}
	for s := range b.w.sig.Outputs {
		if b.w.sig.Outputs[s].Name == name {
			return s
		}
	}
	misused("the model has no output %q", name)
	return 0
}

func (b *Batch) checkQuery(i int) {
	if uint(i) >= uint(b.n) {
		misused("query %d was asked for, the batch has %d", i, b.n)
	}
}

// item is the data of one query in any section of the input block.
func (b *Batch) item(i, s int) []byte {
	b.checkQuery(i)
	data, _, err := b.in.Item(i, s, nil)
	if err != nil {
		misused("query %d: %v", i, err)
	}
	return data
}

// Bytes is the raw data of an input of query i: for bytes[] the bytes themselves, else the elements, row-major and
// little-endian; of bytes with a rank, see [Elements].
func (b *Batch) Bytes(name string, i int) []byte { return b.item(i, b.input(name)) }

// InputRaw is [Input] as bytes, of any type.
func (b *Batch) InputRaw(name string) []byte {
	s := b.input(name)
	if spec := &b.w.sig.Inputs[s]; !spec.Fixed() {
		misused("input %q is %v, which varies from query to query: use Bytes", name, spec)
	}
	return b.in.Section(s)
}

// OutputRaw is [Output] as bytes, of any type.
func (b *Batch) OutputRaw(name string) []byte {
	s := b.output(name)
	if spec := &b.w.sig.Outputs[s]; !spec.Fixed() {
		misused("output %q is %v, which varies from query to query: use Reserve", name, spec)
	}
	return b.out.Fixed(s)
}

// Dims are the dimensions of an input of query i: those of the signature, with every -1 replaced. Not to be changed.
func (b *Batch) Dims(name string, i int) []int64 {
	b.checkQuery(i)
	s := b.input(name)
	if spec := &b.w.sig.Inputs[s]; spec.Fixed() {
		return spec.Shape
	}
	return b.in.Dims(i, s)
}

// Context is what the caller of query i sent as its context (user, session …); empty when it sent none or Serve was not
// told [WithContexts].
func (b *Batch) Context(i int) []byte {
	b.checkQuery(i)
	if !b.w.contexts {
		return nil
	}
	return b.item(i, len(b.w.sig.Inputs))
}

// Label is the label of query i as JSON text, in a feedback batch; nil in others.
func (b *Batch) Label(i int) []byte {
	b.checkQuery(i)
	if b.labels == 0 {
		return nil
	}
	return b.item(i, b.labels-1)
}

// Confidences has one element for each query, to be filled with what the model thinks of its output; NaN, which they
// begin with, says nothing. Serve must have been told [WithConfidences].
func (b *Batch) Confidences() []float64 {
	if !b.predicting || b.w.capabilities&wire.CapConfidences == 0 {
		misused("confidences need Serve(…, WithConfidences()), and belong to predict")
	}
	return view[float64](b.out.Fixed(len(b.w.sig.Outputs)))
}

func (b *Batch) fillConfidences() {
	data := b.out.Fixed(len(b.w.sig.Outputs))
	for ; len(data) > 0; data = data[8:] {
		binary.LittleEndian.PutUint64(data, math.Float64bits(math.NaN()))
	}
}

// SetBytes sets an output of query i to a copy of data. For bytes[] that is all; a numeric output takes its elements,
// row-major and little-endian, and its dimensions when the signature leaves them open.
//
// An output that contradicts the signature fails the batch as BAD_OUTPUT when predict has returned.
func (b *Batch) SetBytes(name string, i int, data []byte, dims ...int64) {
	copy(b.Reserve(name, i, len(data), dims...), data)
}

// Reserve is SetBytes without the copy: it gives n bytes to be filled, in the gateway's memory where they fit, before the next
// call of a method of b. Their content is undefined.
func (b *Batch) Reserve(name string, i, n int, dims ...int64) []byte {
	s := b.output(name)
	b.checkQuery(i)
	spec := &b.w.sig.Outputs[s]
	if !spec.Fixed() {
		dst, err := b.out.Item(s, i, n, dims)
		if err != nil {
			return b.recordFault(err, n)
		}
		return dst
	}
	if size := spec.ItemBytes(); n != size {
		return b.recordFault(fmt.Errorf("output %q of query %d has %d bytes, expected %d for %v", name, i, n, size, spec), n)
	}
	if len(dims) > 0 && !api.FitsShape(spec.Shape, dims) {
		return b.recordFault(fmt.Errorf("output %q of query %d has shape %s, expected %v", name, i, api.ShapeString(dims), spec), n)
	}
	return b.out.Fixed(s)[i*n : (i+1)*n : (i+1)*n]
}

// recordFault remembers the fault and gives memory that goes nowhere, so that the caller need not look.
func (b *Batch) recordFault(err error, n int) []byte {
	if n < 0 || n > api.MaxItemBytes {
		misused("%v", err)
	}
	if b.fault == nil {
		b.fault = err
	}
	return make([]byte, n)
}

// Elements calls yield for each element of a BYTES value with a rank, in row-major order. data is what [Batch.Bytes] gives.
func Elements(data []byte) func(yield func([]byte) bool) {
	return func(yield func([]byte) bool) {
		for len(data) >= 4 {
			n := binary.LittleEndian.Uint32(data)
			if uint64(n) > uint64(len(data)-4) {
				return
			}
			if !yield(data[4 : 4+n : 4+n]) {
				return
			}
			data = data[4+n:]
		}
	}
}

// AppendElement appends one element to the value of a BYTES output with a rank.
func AppendElement(dst, element []byte) []byte {
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(element)))
	return append(dst, element...)
}
