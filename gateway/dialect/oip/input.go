package oip

import (
	"encoding/binary"
	"unicode/utf8"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/internal/tensorjson"
)

// maxRequestRank is the largest rank of a tensor on the wire: the declared one and the batch dimension.
const maxRequestRank = api.MaxRank + 1

// tensor is one input of a request.
type tensor struct {
	// index is the input's place in the signature.
	index int
	// given has the members of the tensor's object that have been read.
	given member
	shape [maxRequestRank]int64
	rank  int
	// dataPos is the offset of the value of "data" in the JSON.
	dataPos int
	// binarySize is the parameter binary_data_size, -1 if it is absent.
	binarySize int
}

const (
	hasName member = 1 << iota
	hasShape
	hasDatatype
	hasData
	hasParameters
	isRead // the data is in the values
)

// dims are the dimensions of one query.
func (q *Request) dims(t *tensor) []int64 {
	if q.Batched {
		return t.shape[1:t.rank]
	}
	return t.shape[:t.rank]
}

func (q *Request) inputs() error {
	r := &q.r
	r.Push("inputs")
	if err := r.Elements(q.input); err != nil {
		return err
	}
	r.Pop()
	return nil
}

// input reads one tensor of "inputs". Its members may come in any order: if "data" comes before the members that say how
// to read it, it is skipped, and read at the end of the object.
func (q *Request) input(int) error {
	r := &q.r
	q.tensors = append(q.tensors, tensor{binarySize: -1})
	t := &q.tensors[len(q.tensors)-1]
	var datatype []byte
	err := r.Members(func(name []byte) (err error) {
		switch string(name) {
		case "name":
			if err = once(r, &t.given, hasName, "name"); err == nil {
				err = q.inputName(t)
			}
		case "shape":
			if err = once(r, &t.given, hasShape, "shape"); err == nil {
				err = q.shape(t)
			}
		case "datatype":
			if err = once(r, &t.given, hasDatatype, "datatype"); err == nil {
				r.Push("datatype")
				datatype, err = r.String()
				r.Pop()
			}
		case "parameters":
			if err = once(r, &t.given, hasParameters, "parameters"); err == nil {
				err = q.inputParameters(t)
			}
		case "data":
			if err = once(r, &t.given, hasData, "data"); err == nil {
				err = q.data(t, datatype)
			}
		default:
			err = r.Skip()
		}
		return err
	})
	if err != nil {
		return err
	}
	return q.endInput(t, datatype)
}

func (q *Request) inputName(t *tensor) error {
	r := &q.r
	r.Push("name")
	name, err := r.String()
	if err != nil {
		return err
	}
	if t.index = tensorjson.Find(q.sig.Inputs, name, len(q.tensors)-1); t.index < 0 {
		return r.Errorf("the model has no input %q: expected %s", printable(name), tensorjson.Names(q.sig.Inputs))
	}
	if q.seen.Has(t.index) {
		return r.Errorf("the input %q is there twice", q.sig.Inputs[t.index].Name)
	}
	q.seen.Add(t.index)
	r.Pop()
	return nil
}

func (q *Request) shape(t *tensor) error {
	r := &q.r
	r.Push("shape")
	err := r.Elements(func(int) error {
		if t.rank == maxRequestRank {
			return r.Errorf("too many dimensions: expected at most %d", maxRequestRank)
		}
		d, err := r.Int64()
		if err != nil {
			return err
		}
		if d < 0 || d > api.MaxItemBytes {
			return r.Errorf("expected a dimension from 0 to %d, found %d", api.MaxItemBytes, d)
		}
		t.shape[t.rank] = d
		t.rank++
		return nil
	})
	if err != nil {
		return err
	}
	r.Pop()
	return nil
}

func (q *Request) inputParameters(t *tensor) error {
	r := &q.r
	return parameters(r, func(name []byte) (err error) {
		switch string(name) {
		case "binary_data_size":
			r.Push("binary_data_size")
			if t.binarySize >= 0 {
				return r.Errorf("the member is there twice")
			}
			var n int64
			if n, err = r.Int64(); err == nil {
				err = q.claim(t, n)
			}
			r.Pop()
		case "shared_memory_region", "shared_memory_offset", "shared_memory_byte_size":
			err = unsupported(r, "shared memory regions are not supported: send the data in the request")
		default:
			err = r.Skip()
		}
		return err
	})
}

// claim reserves n bytes of the binary part for a tensor.
func (q *Request) claim(t *tensor, n int64) error {
	switch {
	case n < 0:
		return q.r.Errorf("expected 0 or more bytes, found %d", n)
	case !q.hasHeader:
		return q.r.Errorf("the request has no header Inference-Header-Content-Length: expected it, with the length of the JSON, before binary data")
	case n > int64(q.binaryLeft):
		return q.r.Errorf("%d bytes of binary data are claimed, but the body has %d that no input before has claimed", n, q.binaryLeft)
	}
	q.binaryLeft -= int(n)
	t.binarySize = int(n)
	return nil
}

// data reads the member "data". If a member that says how to read it has not come yet, data only notes its position.
func (q *Request) data(t *tensor, datatype []byte) error {
	const needed = hasName | hasShape | hasDatatype
	r := &q.r
	r.Peek()
	t.dataPos = r.Pos()
	if t.given&needed != needed {
		return r.Skip()
	}
	return q.readData(t, datatype)
}

func (q *Request) readData(t *tensor, datatype []byte) error {
	if err := q.check(t, datatype); err != nil {
		return err
	}
	if api.Elements(t.shape[:t.rank]) > int64(q.r.Len()) {
		return q.r.Errorf("the shape %s is of more elements than the body could hold", shapeOf(t))
	}
	if err := q.storage(); err != nil {
		return err
	}
	q.r.Push("data")
	if err := q.r.Column(q.rows, t.index, &q.sig.Inputs[t.index], q.dims(t), q.Batched); err != nil {
		return err
	}
	q.r.Pop()
	q.setDims(t)
	t.given |= isRead
	return nil
}

// endInput checks that a tensor is complete, and reads data that came too early.
func (q *Request) endInput(t *tensor, datatype []byte) error {
	r := &q.r
	switch {
	case t.given&hasName == 0:
		return r.Errorf("the member \"name\" is missing")
	case t.given&hasShape == 0:
		return r.Errorf("the member \"shape\" is missing")
	case t.given&hasDatatype == 0:
		return r.Errorf("the member \"datatype\" is missing")
	case t.given&hasData != 0 && t.binarySize >= 0:
		return r.Errorf("expected one of \"data\" and the parameter \"binary_data_size\", found both")
	case t.given&isRead != 0:
		return nil
	case t.given&hasData != 0:
		end := r.Pos()
		r.Seek(t.dataPos)
		if err := q.readData(t, datatype); err != nil {
			return err
		}
		r.Seek(end)
		return nil
	case t.binarySize < 0:
		return r.Errorf("expected a member \"data\", or binary data and the parameter \"binary_data_size\"")
	}
	if err := q.check(t, datatype); err != nil {
		return err
	}
	if err := q.checkBinarySize(t); err != nil {
		return err
	}
	return q.storage()
}

// check compares a tensor's type and shape with the declared ones, and its number of queries with the other inputs'.
func (q *Request) check(t *tensor, datatype []byte) error {
	r := &q.r
	spec := &q.sig.Inputs[t.index]
	if string(datatype) != spec.DType.OIP() {
		if string(datatype) == "BF16" {
			return r.Errorf("datatype BF16 is not supported: the input %q takes %s", spec.Name, spec.DType.OIP())
		}
		return r.Errorf("the input %q has datatype %q: expected %s", spec.Name, printable(datatype), spec.DType.OIP())
	}
	shape := t.shape[:t.rank]
	batched := t.rank == len(spec.Shape)+1
	dims, n := shape, int64(1)
	if batched {
		dims, n = shape[1:], shape[0]
	}
	if !api.FitsShape(spec.Shape, dims) {
		return r.Errorf("the input %q has shape %s: expected %s, or %s for one query", spec.Name, shapeOf(t), batchShape(spec.Shape), api.ShapeString(spec.Shape))
	}
	switch {
	case n == 0:
		return r.Errorf("the input %q has shape %s: expected one query or more", spec.Name, shapeOf(t))
	case n > int64(q.limit):
		return r.Errorf("the input %q has shape %s: expected at most %d queries", spec.Name, shapeOf(t), q.limit)
	case api.Elements(dims) < 0 || api.Elements(shape) < 0:
		return r.Errorf("the input %q has shape %s: expected at most %d elements", spec.Name, shapeOf(t), api.MaxItemBytes)
	case q.first == "":
		q.first, q.Queries, q.Batched = spec.Name, int(n), batched
	case batched != q.Batched:
		return r.Errorf("the inputs %q and %q differ: one has a batch dimension, the other has none", q.first, spec.Name)
	case int(n) != q.Queries:
		return r.Errorf("the input %q is of %d queries: expected %d, as of %q", spec.Name, n, q.Queries, q.first)
	}
	return nil
}

// checkBinarySize compares binary_data_size with the shape.
func (q *Request) checkBinarySize(t *tensor) error {
	spec := &q.sig.Inputs[t.index]
	elements := api.Elements(t.shape[:t.rank])
	want := elements * int64(spec.DType.Size())
	switch {
	case spec.DType.Variable() && int64(t.binarySize) < 4*elements:
		return q.r.Errorf("binary_data_size is %d: expected at least %d for BYTES of shape %s", t.binarySize, 4*elements, shapeOf(t))
	case !spec.DType.Variable() && int64(t.binarySize) != want:
		return q.r.Errorf("binary_data_size is %d: expected %d for %s of shape %s", t.binarySize, want, spec.DType.OIP(), shapeOf(t))
	}
	return nil
}

// storage takes the inputs of each query from the sink. The first tensor has determined the number of queries.
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

// setDims sets the dimensions of a tensor's values. Those of a tensor of fixed shape stay empty.
func (q *Request) setDims(t *tensor) {
	spec := &q.sig.Inputs[t.index]
	dims := q.dims(t)
	if spec.Fixed() {
		dims = nil
	}
	for _, row := range q.rows {
		v := &row[t.index]
		v.Dims = append(v.Dims[:0], dims...)
	}
}

// binary reads the binary part: the tensors that have binary_data_size, in the order of the request.
func (q *Request) binary(data []byte) error {
	if q.binaryLeft > 0 {
		return api.Errorf(api.InvalidArgument, "body: %d bytes of binary data follow the JSON, but the inputs claim %d of them", q.binaryLen, q.binaryLen-q.binaryLeft)
	}
	for i := range q.tensors {
		t := &q.tensors[i]
		if t.binarySize < 0 {
			continue
		}
		part := data[:t.binarySize]
		data = data[t.binarySize:]
		var err error
		if spec := &q.sig.Inputs[t.index]; spec.DType.Variable() {
			err = q.splitBytes(t, spec, part)
		} else {
			err = q.split(t, spec, part)
		}
		if err != nil {
			return err
		}
		q.setDims(t)
	}
	return nil
}

// split distributes a numeric tensor's raw data over the queries.
func (q *Request) split(t *tensor, spec *api.TensorSpec, part []byte) error {
	if spec.DType == api.Bool {
		for i, c := range part {
			if c > 1 {
				return api.Errorf(api.InvalidArgument, "input %q: binary element %d is %d: expected 0 or 1 for BOOL", spec.Name, i, c)
			}
		}
	}
	size := len(part) / q.Queries
	for i, row := range q.rows {
		v := &row[t.index]
		v.Data = append(v.Data[:0], part[i*size:(i+1)*size]...)
	}
	return nil
}

// splitBytes distributes a BYTES tensor's elements over the queries. An element is stored with the length before it,
// unless the query's tensor has rank 0: then the element alone is the value.
func (q *Request) splitBytes(t *tensor, spec *api.TensorSpec, part []byte) error {
	dims := q.dims(t)
	elements := api.Elements(dims)
	at := 0
	for i, row := range q.rows {
		start := at
		for e := int64(0); e < elements; e++ {
			if len(part)-at < 4 {
				return api.Errorf(api.InvalidArgument, "input %q: binary data end before element %d: expected %d elements with a length of 4 bytes each",
					spec.Name, int64(i)*elements+e, elements*int64(q.Queries))
			}
			size := uint64(binary.LittleEndian.Uint32(part[at:]))
			if size > uint64(len(part)-at-4) {
				return api.Errorf(api.InvalidArgument, "input %q: binary element %d has a length of %d bytes, and %d are left", spec.Name, int64(i)*elements+e, size, len(part)-at-4)
			}
			if spec.DType == api.String && !utf8.Valid(part[at+4:at+4+int(size)]) {
				return api.Errorf(api.InvalidArgument, "input %q: binary element %d is not valid UTF-8, which a string is", spec.Name, int64(i)*elements+e)
			}
			at += 4 + int(size)
		}
		v := &row[t.index]
		if len(dims) == 0 {
			start += 4
		}
		v.Data = append(v.Data[:0], part[start:at]...)
	}
	if at != len(part) {
		return api.Errorf(api.InvalidArgument, "input %q: %d bytes follow the last of %d binary elements", spec.Name, len(part)-at, elements*int64(q.Queries))
	}
	return nil
}

// shapeOf formats a tensor's shape for a message.
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
