//go:build linux && (amd64 || arm64 || loong64 || ppc64le || riscv64)

package xebec

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/worker/wire"
)

// Batch is a set of queries with the outputs to set. It is valid until the function that received it returns, and so is
// every view into it.
//
// Methods and functions that take a name panic if the signature has no such tensor, if the tensor has another type, or
// if a query number is not in [0, Len()). The batch then fails, and the worker goes on.
type Batch struct {
	w      *worker
	id     uint64
	n      int
	budget uint32
	in     wire.Reader
	out    wire.Builder
	// labels is the section count of a FEEDBACK block, whose last section holds the labels; 0 for other kinds.
	labels     int
	predicting bool
	touched    bool  // an output was set, in a stream since the last Send
	fault      error // the first output that contradicted the signature
	refused    map[int]refusal
	began      time.Time // when the worker began it
	stream     *stream   // nil if the model answers in single outputs
}

// refusal is how the model ended a query without an output.
type refusal struct {
	status wire.ItemStatus
	text   string
}

// Refuse ends query i as invalid input. Its caller gets status 400 and the text, of which at most 1,024 bytes; it does not count as a
// failure of the model. The query needs no output.
func (b *Batch) Refuse(i int, text string) { b.refuse(i, wire.ItemInvalidInput, text) }

// Fail ends query i as an error of the model. Its caller gets status 502, operators the text. The query needs no output.
func (b *Batch) Fail(i int, text string) { b.refuse(i, wire.ItemModelError, text) }

func (b *Batch) refuse(i int, status wire.ItemStatus, text string) {
	b.checkQuery(i)
	if !b.predicting {
		misused("query %d: queries can be refused in predict only", i)
	}
	if b.refused == nil {
		b.refused = map[int]refusal{}
	}
	b.refused[i] = refusal{status, wire.CutText(text, maxRefusalBytes)}
}

// maxRefusalBytes bounds the text of a refusal; the gateway has a smaller bound.
const maxRefusalBytes = 4096

// fillPlaceholders gives query i an output in every section, which nobody uses.
func (b *Batch) fillPlaceholders(i int) {
	for s, spec := range b.w.sig.Outputs {
		if spec.Fixed() {
			b.out.Fixed(s)
			continue
		}
		dims := slices.Clone(spec.Shape)
		for j, d := range dims {
			dims[j] = max(d, 0)
		}
		size := int(api.Elements(dims)) * max(spec.DType.Size(), 4) // an element of text is its length, 0
		if len(dims) == 0 {
			size = 0
		}
		if data, err := b.out.Item(s, i, size, dims); err == nil {
			clear(data)
		}
	}
}

// misuse is a panic for a mistake of the model's code. Its text needs no stack trace.
type misuse string

func misused(format string, args ...any) {
	panic(misuse(fmt.Sprintf("xebec: "+format, args...)))
}

func (b *Batch) begin(schema *wire.Schema, r *wire.Request, in []byte) error {
	if err := schema.Open(&b.in, in, int(r.Count)); err != nil {
		return fmt.Errorf("xebec: the gateway's batch %d cannot be read: %w", r.Batch, err)
	}
	b.id, b.n, b.budget = r.Batch, int(r.Count), r.BudgetMicros
	b.labels, b.predicting, b.touched, b.fault = 0, false, false, nil
	clear(b.refused)
	b.began = time.Now()
	return nil
}

// end invalidates the batch for the model's code and returns the first fault of its outputs.
func (b *Batch) end() error {
	b.predicting, b.n = false, 0
	return b.fault
}

// Len is the number of queries.
func (b *Batch) Len() int { return b.n }

// ID is the batch's number. Numbers increase within a replica.
func (b *Batch) ID() uint64 { return b.id }

// Budget is the time until the first caller of the batch stops waiting, counted from when the batch was sent. It is 0
// if there is no such time or it has passed. It is a hint for models that can choose to do less.
func (b *Batch) Budget() time.Duration { return time.Duration(b.budget) * time.Microsecond }

// Signature is what the model takes and returns, for one query. It must not be modified.
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
		misused("output %q: outputs can be set in predict only", name)
	}
	b.touched = true
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
		misused("no query %d: the batch has %d", i, b.n)
	}
}

// item returns the data of one query in any section of the input block.
func (b *Batch) item(i, s int) []byte {
	b.checkQuery(i)
	data, _, err := b.in.Item(i, s, nil)
	if err != nil {
		misused("query %d: %v", i, err)
	}
	return data
}

// Bytes returns the raw data of an input of query i. For bytes[] these are the bytes themselves, for numeric types the
// elements, row-major and little-endian. For bytes with a rank see [Elements].
func (b *Batch) Bytes(name string, i int) []byte { return b.item(i, b.input(name)) }

// InputRaw is [Input] as bytes, for any type.
func (b *Batch) InputRaw(name string) []byte {
	s := b.input(name)
	if spec := &b.w.sig.Inputs[s]; !spec.Fixed() {
		misused("input %q is %v, whose size varies between queries: use Bytes", name, spec)
	}
	return b.in.Section(s)
}

// OutputRaw is [Output] as bytes, for any type.
func (b *Batch) OutputRaw(name string) []byte {
	s := b.output(name)
	if spec := &b.w.sig.Outputs[s]; !spec.Fixed() {
		misused("output %q is %v, whose size varies between queries: use Reserve", name, spec)
	}
	return b.out.Fixed(s)
}

// Dims returns the dimensions of an input of query i: those of the signature, with every -1 replaced. They must not be
// modified.
func (b *Batch) Dims(name string, i int) []int64 {
	b.checkQuery(i)
	s := b.input(name)
	if spec := &b.w.sig.Inputs[s]; spec.Fixed() {
		return spec.Shape
	}
	return b.in.Dims(i, s)
}

// Context is the context that query i's caller sent (user, session …). It is empty if the caller sent none or Serve was
// not given [WithContexts].
func (b *Batch) Context(i int) []byte {
	b.checkQuery(i)
	if b.w.mode&wire.ModeContexts == 0 {
		return nil
	}
	return b.item(i, len(b.w.sig.Inputs))
}

// Label is the label of query i as JSON text in a feedback batch, nil in others.
func (b *Batch) Label(i int) []byte {
	b.checkQuery(i)
	if b.labels == 0 {
		return nil
	}
	return b.item(i, b.labels-1)
}

// Confidences returns one element per query, for the model to set to its confidence in the output. The elements are NaN
// at first, which means none. Serve must be given [WithConfidences].
func (b *Batch) Confidences() []float64 {
	if !b.predicting || b.w.capabilities&wire.CapConfidences == 0 {
		misused("confidences need Serve(…, WithConfidences()) and can be set in predict only")
	}
	return view[float64](b.out.Fixed(len(b.w.sig.Outputs)))
}

func (b *Batch) fillConfidences() {
	data := b.out.Fixed(len(b.w.sig.Outputs))
	for ; len(data) > 0; data = data[8:] {
		binary.LittleEndian.PutUint64(data, math.Float64bits(math.NaN()))
	}
}

// SetBytes sets an output of query i to a copy of data. A numeric output takes its elements, row-major and
// little-endian, and its dimensions if the signature leaves them open.
//
// An output that contradicts the signature fails the batch as BAD_OUTPUT when predict has returned.
func (b *Batch) SetBytes(name string, i int, data []byte, dims ...int64) {
	copy(b.Reserve(name, i, len(data), dims...), data)
}

// Reserve is SetBytes without the copy. It returns n bytes to fill before the next call of a method of b, in the
// gateway's memory if they fit. Their initial content is undefined.
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

// recordFault records the fault and returns memory that is thrown away, so that the caller need not check.
func (b *Batch) recordFault(err error, n int) []byte {
	if n < 0 || n > api.MaxItemBytes {
		misused("%v", err)
	}
	if b.fault == nil {
		b.fault = err
	}
	return make([]byte, n)
}

// Elements iterates over the elements of a BYTES value with a rank, in row-major order. data comes from [Batch.Bytes].
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
