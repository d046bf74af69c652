package oipwire

import (
	"encoding/binary"
	"strings"
	"unicode/utf8"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/internal/classify"
)

// Sink gives storage for the inputs of one query after the other, one value for each of the signature.
type Sink interface {
	Next() ([]api.Value, error)
}

// Raw reports whether the request has raw contents. Its answer then has, too.
func (q *Request) Raw() bool { return !q.typed }

// Read compares what Scan has found with a signature and copies the inputs to storage of the sink. A request of more than limit queries is refused before
// it takes any. After an error the caller reclaims what the sink has returned.
func (q *Request) Read(sig *api.Signature, sink Sink, limit int) error {
	q.sig, q.sink, q.limit = sig, sink, limit
	q.Queries, q.Batched, q.first, q.seen, q.rows, q.Outputs, q.Classes = 0, false, "", seen{}, q.rows[:0], q.Outputs[:0], q.Classes[:0]
	if len(sig.Inputs) > MaxTensors || len(sig.Outputs) > MaxTensors {
		return api.Errorf(api.Internal, "the signature has more than %d inputs or outputs", MaxTensors)
	}
	switch {
	case len(q.raws) > 0 && q.typed:
		return api.Errorf(api.InvalidArgument, "raw_input_contents and contents exclude each other: expected the data of all inputs in one of them")
	case len(q.raws) > 0 && len(q.raws) != len(q.inputs):
		return api.Errorf(api.InvalidArgument, "raw_input_contents: %d for %d inputs: expected one for each input, in their order", len(q.raws), len(q.inputs))
	case q.sharing:
		return api.Errorf(api.Unsupported, "outputs.parameters: shared memory regions are not supported: take the data from the response")
	}
	for i := range q.inputs {
		if err := q.input(i); err != nil {
			return err
		}
	}
	for i := range sig.Inputs {
		if spec := &sig.Inputs[i]; !q.seen.has(i) {
			return api.Errorf(api.InvalidArgument, "inputs: the input %q (%s %s) is missing", spec.Name, spec.DType.OIP(), batchShape(spec.Shape))
		}
	}
	if q.Queries == 0 {
		return api.Errorf(api.InvalidArgument, "the model takes no inputs, so the protocol cannot say how many queries there are")
	}
	return q.outputs()
}

// input reads one input.
func (q *Request) input(i int) error {
	t := &q.inputs[i]
	if t.sharedMemory {
		return api.Errorf(api.Unsupported, "inputs[%d].parameters: shared memory regions are not supported: send the data in the request", i)
	}
	if len(t.name) == 0 {
		return api.Errorf(api.InvalidArgument, "inputs[%d]: the name is missing", i)
	}
	if t.index = find(q.sig.Inputs, t.name, i); t.index < 0 {
		return api.Errorf(api.InvalidArgument, "inputs[%d].name: the model has no input %q: expected %s", i, printable(t.name), names(q.sig.Inputs))
	}
	spec := &q.sig.Inputs[t.index]
	if q.seen.has(t.index) {
		return api.Errorf(api.InvalidArgument, "inputs[%d].name: the input %q is there twice", i, spec.Name)
	}
	q.seen.add(t.index)
	if err := q.check(i, t, spec); err != nil {
		return err
	}
	if len(q.raws) > 0 {
		raw := q.raws[i]
		if err := q.checkRaw(i, t, spec, raw); err != nil {
			return err
		}
		if err := q.storage(); err != nil {
			return err
		}
		if spec.DType.Variable() {
			if err := q.splitBytes(t, spec, raw); err != nil {
				return err
			}
		} else if err := q.split(t, spec, raw); err != nil {
			return err
		}
	} else if err := q.contents(i, t, spec); err != nil {
		return err
	}
	q.setDims(t, spec)
	return nil
}

// check compares a tensor's type and shape with the declared ones, and its number of queries with the other inputs'.
func (q *Request) check(i int, t *tensor, spec *api.TensorSpec) error {
	if string(t.datatype) != spec.DType.OIP() {
		return api.Errorf(api.InvalidArgument, "inputs[%d]: the input %q has datatype %q: expected %s", i, spec.Name, printable(t.datatype), spec.DType.OIP())
	}
	shape := t.shape[:t.rank]
	batched := t.rank == len(spec.Shape)+1
	dims, n := shape, int64(1)
	if batched {
		dims, n = shape[1:], shape[0]
	}
	if !api.FitsShape(spec.Shape, dims) {
		return api.Errorf(api.InvalidArgument, "inputs[%d]: the input %q has shape %s: expected %s, or %s for one query", i, spec.Name, shapeOf(t), batchShape(spec.Shape), api.ShapeString(spec.Shape))
	}
	switch {
	case n == 0:
		return api.Errorf(api.InvalidArgument, "inputs[%d]: the input %q has shape %s: expected one query or more", i, spec.Name, shapeOf(t))
	case n > int64(q.limit):
		return api.Errorf(api.InvalidArgument, "inputs[%d]: the input %q has shape %s: expected at most %d queries", i, spec.Name, shapeOf(t), q.limit)
	case api.Elements(dims) < 0 || api.Elements(shape) < 0:
		return api.Errorf(api.InvalidArgument, "inputs[%d]: the input %q has shape %s: expected at most %d elements", i, spec.Name, shapeOf(t), api.MaxItemBytes)
	case q.first == "":
		q.first, q.Queries, q.Batched = spec.Name, int(n), batched
	case batched != q.Batched:
		return api.Errorf(api.InvalidArgument, "inputs[%d]: the inputs %q and %q differ: one has a batch dimension, the other has none", i, q.first, spec.Name)
	case int(n) != q.Queries:
		return api.Errorf(api.InvalidArgument, "inputs[%d]: the input %q is of %d queries: expected %d, as of %q", i, spec.Name, n, q.Queries, q.first)
	}
	return nil
}

// checkRaw compares the length of raw contents with the shape.
func (q *Request) checkRaw(i int, t *tensor, spec *api.TensorSpec, raw []byte) error {
	elements := api.Elements(t.shape[:t.rank])
	switch want := elements * int64(spec.DType.Size()); {
	case spec.DType.Variable() && int64(len(raw)) < 4*elements:
		return api.Errorf(api.InvalidArgument, "raw_input_contents[%d]: %d bytes: expected at least %d for BYTES of shape %s", i, len(raw), 4*elements, shapeOf(t))
	case !spec.DType.Variable() && int64(len(raw)) != want:
		return api.Errorf(api.InvalidArgument, "raw_input_contents[%d]: %d bytes: expected %d for %s of shape %s", i, len(raw), want, spec.DType.OIP(), shapeOf(t))
	}
	return nil
}

// storage takes the inputs of each query from the sink. The first input has determined the number of queries.
func (q *Request) storage() error {
	for len(q.rows) < q.Queries {
		row, err := q.sink.Next()
		if err != nil {
			return err
		}
		if len(row) != len(q.sig.Inputs) {
			return api.Errorf(api.Internal, "storage for %d inputs: expected %d", len(row), len(q.sig.Inputs))
		}
		q.rows = append(q.rows, row)
	}
	return nil
}

// dims are the dimensions of one query.
func (q *Request) dims(t *tensor) []int64 {
	if q.Batched {
		return t.shape[1:t.rank]
	}
	return t.shape[:t.rank]
}

// setDims sets the dimensions of a tensor's values. Those of a tensor of fixed shape stay empty.
func (q *Request) setDims(t *tensor, spec *api.TensorSpec) {
	dims := q.dims(t)
	if spec.Fixed() {
		dims = nil
	}
	for _, row := range q.rows {
		v := &row[t.index]
		v.Dims = append(v.Dims[:0], dims...)
	}
}

// borrowFrom is the size from which an input is worth borrowing instead of copying.
const borrowFrom = 32 << 10

// split distributes a numeric tensor's raw contents over the queries.
func (q *Request) split(t *tensor, spec *api.TensorSpec, raw []byte) error {
	if spec.DType == api.Bool {
		for i, c := range raw {
			if c > 1 {
				return api.Errorf(api.InvalidArgument, "input %q: raw element %d is %d: expected 0 or 1 for BOOL", spec.Name, i, c)
			}
		}
	}
	if q.Queries == 1 && len(q.sig.Inputs) == 1 && len(raw) >= borrowFrom && q.Borrow != nil && q.Borrow(raw) {
		return nil
	}
	size := len(raw) / q.Queries
	for i, row := range q.rows {
		v := &row[t.index]
		v.Data = append(v.Data[:0], raw[i*size:(i+1)*size]...)
	}
	return nil
}

// splitBytes distributes a BYTES tensor's raw elements over the queries. An element is stored with the length before it, unless the query's tensor has
// rank 0: then the element alone is the value.
func (q *Request) splitBytes(t *tensor, spec *api.TensorSpec, raw []byte) error {
	dims := q.dims(t)
	elements := api.Elements(dims)
	at := 0
	for i, row := range q.rows {
		start := at
		for e := range elements {
			if len(raw)-at < 4 {
				return api.Errorf(api.InvalidArgument, "input %q: raw contents end before element %d: expected %d elements with a length of 4 bytes each", spec.Name, int64(i)*elements+e, elements*int64(q.Queries))
			}
			size := uint64(binary.LittleEndian.Uint32(raw[at:]))
			if size > uint64(len(raw)-at-4) {
				return api.Errorf(api.InvalidArgument, "input %q: raw element %d has a length of %d bytes, and %d are left", spec.Name, int64(i)*elements+e, size, len(raw)-at-4)
			}
			if spec.DType == api.String && !utf8.Valid(raw[at+4:at+4+int(size)]) {
				return notText(spec, int64(i)*elements+e)
			}
			at += 4 + int(size)
		}
		v := &row[t.index]
		if len(dims) == 0 {
			start += 4
		}
		v.Data = append(v.Data[:0], raw[start:at]...)
	}
	if at != len(raw) {
		return api.Errorf(api.InvalidArgument, "input %q: %d bytes follow the last of %d raw elements", spec.Name, len(raw)-at, elements*int64(q.Queries))
	}
	return nil
}

func notText(spec *api.TensorSpec, element int64) error {
	return api.Errorf(api.InvalidArgument, "input %q: element %d is not valid UTF-8, which a string is", spec.Name, element)
}

// outputs finds the requested outputs: all of the signature if none is named.
func (q *Request) outputs() error {
	var chosen seen
	for i, name := range q.names {
		if len(name) == 0 {
			return api.Errorf(api.InvalidArgument, "outputs[%d]: the name is missing", i)
		}
		at := find(q.sig.Outputs, name, i)
		if at < 0 {
			return api.Errorf(api.InvalidArgument, "outputs[%d].name: the model has no output %q: expected %s", i, printable(name), names(q.sig.Outputs))
		}
		if chosen.has(at) {
			return api.Errorf(api.InvalidArgument, "outputs[%d]: the output %q is there twice", i, q.sig.Outputs[at].Name)
		}
		chosen.add(at)
		if spec := &q.sig.Outputs[at]; q.classes[i] > 0 && (!classify.Supports(spec.DType) || len(spec.Shape) == 0) {
			return api.Errorf(api.InvalidArgument, "outputs[%d]: parameters.classification: the output %q is %s: only arrays of numbers have classes", i, spec.Name, spec.String())
		}
		q.Outputs, q.Classes = append(q.Outputs, at), append(q.Classes, q.classes[i])
	}
	if len(q.names) == 0 {
		for i := range q.sig.Outputs {
			q.Outputs, q.Classes = append(q.Outputs, i), append(q.Classes, 0)
		}
	}
	return nil
}

// find returns the place of a tensor, which is likely at guess; -1: there is none of this name.
func find(specs []api.TensorSpec, name []byte, guess int) int {
	if guess < len(specs) && string(name) == specs[guess].Name {
		return guess
	}
	for i := range specs {
		if string(name) == specs[i].Name {
			return i
		}
	}
	return -1
}

func names(specs []api.TensorSpec) string {
	var b strings.Builder
	for i := range specs {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(`"` + specs[i].Name + `"`)
	}
	if len(specs) == 0 {
		return "none"
	}
	return b.String()
}

func shapeOf(t *tensor) string { return api.ShapeString(t.shape[:t.rank]) }

// batchShape formats a declared shape with the batch dimension, as requests have it.
func batchShape(shape []int64) string {
	s := api.ShapeString(shape)
	if len(shape) == 0 {
		return "[-1]"
	}
	return "[-1, " + s[1:]
}

// printable shortens a name from a request for a message, without cutting a character in two.
func printable(name []byte) string {
	const most = 63
	if len(name) > most {
		name = name[:most]
		for len(name) > 0 && !utf8.Valid(name) {
			name = name[:len(name)-1]
		}
	}
	return string(name)
}
