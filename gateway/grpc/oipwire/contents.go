package oipwire

import (
	"encoding/binary"
	"math"
	"unicode/utf8"

	"github.com/xebec-serving/xebec/api"
)

// The fields of InferTensorContents.
const (
	boolContents   = 1
	intContents    = 2
	int64Contents  = 3
	uintContents   = 4
	uint64Contents = 5
	fp32Contents   = 6
	fp64Contents   = 7
	bytesContents  = 8
)

var contentsFields = [...]string{
	boolContents: "bool_contents", intContents: "int_contents", int64Contents: "int64_contents", uintContents: "uint_contents", uint64Contents: "uint64_contents",
	fp32Contents: "fp32_contents", fp64Contents: "fp64_contents", bytesContents: "bytes_contents",
}

// contentsField returns the field that has elements of a type; 0: there is none, the type is raw only.
func contentsField(d api.DType) int {
	switch d {
	case api.Bool:
		return boolContents
	case api.Int8, api.Int16, api.Int32:
		return intContents
	case api.Int64:
		return int64Contents
	case api.Uint8, api.Uint16, api.Uint32:
		return uintContents
	case api.Uint64:
		return uint64Contents
	case api.Float32:
		return fp32Contents
	case api.Float64:
		return fp64Contents
	case api.Bytes, api.String:
		return bytesContents
	}
	return 0
}

// filler distributes elements over the values of the queries.
type filler struct {
	q        *Request
	t        *tensor
	spec     *api.TensorSpec
	input    int
	size     int   // of one element; 0: it varies
	scalar   bool  // a value of rank 0 of varying size: the element alone
	each     int64 // elements of one query
	total    int64
	elements int64 // that have come
	row      int
	left     int64 // elements that the row lacks
}

// contents reads the typed contents of an input.
func (q *Request) contents(i int, t *tensor, spec *api.TensorSpec) error {
	want := contentsField(spec.DType)
	total := api.Elements(t.shape[:t.rank])
	switch {
	case want == 0:
		return api.Errorf(api.InvalidArgument, "inputs[%d].contents: the protocol has no typed contents for %s: send raw_input_contents", i, spec.DType.OIP())
	case total > int64(len(t.contents)): // an element takes a byte at least
		return api.Errorf(api.InvalidArgument, "inputs[%d].contents: %d bytes cannot hold the %d elements of shape %s: expected them in %s or in raw_input_contents", i, len(t.contents), total, shapeOf(t), contentsFields[want])
	}
	if err := q.storage(); err != nil {
		return err
	}
	f := filler{q: q, t: t, spec: spec, input: i, size: spec.DType.Size(), each: api.Elements(q.dims(t)), total: total}
	f.left, f.scalar = f.each, spec.DType.Variable() && len(q.dims(t)) == 0
	for _, row := range q.rows {
		v := &row[t.index]
		v.Data = v.Data[:0]
	}
	for m := t.contents; len(m) > 0; {
		part, rest, ok := next(m)
		if !ok {
			return malformed("inputs.contents")
		}
		m = rest
		switch {
		case part.number > bytesContents || len(part.bytes) == 0 && part.wire == typeBytes && part.number != bytesContents: // unknown, or an empty list
			continue
		case part.number != want:
			return api.Errorf(api.InvalidArgument, "inputs[%d].contents.%s: expected %s for %s", i, contentsFields[part.number], contentsFields[want], spec.DType.OIP())
		}
		if err := f.take(&part); err != nil {
			return err
		}
	}
	if f.elements != total {
		return api.Errorf(api.InvalidArgument, "inputs[%d].contents: %d elements: expected %d for shape %s", i, f.elements, total, shapeOf(t))
	}
	return nil
}

// take takes one field: a list, or one element of one that is not packed.
func (f *filler) take(part *field) error {
	switch f.spec.DType {
	case api.Bytes, api.String:
		if err := part.is(typeBytes, "inputs.contents", "bytes_contents"); err != nil {
			return err
		}
		return f.item(part.bytes)
	case api.Float32, api.Float64:
		return f.floats(part)
	}
	if part.wire == typeVarint {
		return f.integer(part.varint)
	}
	if err := part.is(typeBytes, "inputs.contents", contentsFields[part.number]); err != nil {
		return err
	}
	for m := part.bytes; len(m) > 0; {
		v, rest, ok := varint(m)
		if !ok {
			return malformed("inputs.contents")
		}
		m = rest
		if err := f.integer(v); err != nil {
			return err
		}
	}
	return nil
}

// next returns the value that the next element belongs to.
func (f *filler) next() (*api.Value, error) {
	if f.elements == f.total {
		return nil, api.Errorf(api.InvalidArgument, "inputs[%d].contents: expected %d elements for shape %s, found more", f.input, f.total, shapeOf(f.t))
	}
	if f.left == 0 {
		f.row, f.left = f.row+1, f.each
	}
	f.left--
	f.elements++
	return &f.q.rows[f.row][f.t.index], nil
}

// floats takes floats, whose bytes on the wire are those of the value.
func (f *filler) floats(part *field) error {
	switch {
	case part.wire == typeFixed4 && f.size == 4:
		v, err := f.next()
		if err == nil {
			v.Data = binary.LittleEndian.AppendUint32(v.Data, uint32(part.varint))
		}
		return err
	case part.wire == typeFixed8 && f.size == 8:
		v, err := f.next()
		if err == nil {
			v.Data = binary.LittleEndian.AppendUint64(v.Data, part.varint)
		}
		return err
	case part.wire != typeBytes || len(part.bytes)%f.size != 0:
		return malformed("inputs.contents." + contentsFields[part.number])
	}
	for data := part.bytes; len(data) > 0; {
		v, err := f.next() // one element, and with it as many as the row lacks
		if err != nil {
			return err
		}
		n := min(1+f.left, int64(len(data)/f.size))
		f.left, f.elements = f.left-(n-1), f.elements+n-1
		v.Data = append(v.Data, data[:n*int64(f.size)]...)
		data = data[n*int64(f.size):]
	}
	return nil
}

// integer takes an integer or a truth value.
func (f *filler) integer(x uint64) error {
	v, err := f.next()
	if err != nil {
		return err
	}
	d := f.spec.DType
	fits := true
	switch d {
	case api.Bool:
		if x != 0 {
			x = 1
		}
	case api.Int8:
		fits = int64(x) >= math.MinInt8 && int64(x) <= math.MaxInt8
	case api.Int16:
		fits = int64(x) >= math.MinInt16 && int64(x) <= math.MaxInt16
	case api.Int32:
		fits = int64(x) >= math.MinInt32 && int64(x) <= math.MaxInt32
	case api.Uint8:
		fits = x <= math.MaxUint8
	case api.Uint16:
		fits = x <= math.MaxUint16
	case api.Uint32:
		fits = x <= math.MaxUint32
	}
	if !fits {
		return api.Errorf(api.InvalidArgument, "inputs[%d].contents: element %d does not fit %s", f.input, f.elements-1, d.OIP())
	}
	switch f.size {
	case 1:
		v.Data = append(v.Data, byte(x))
	case 2:
		v.Data = binary.LittleEndian.AppendUint16(v.Data, uint16(x))
	case 4:
		v.Data = binary.LittleEndian.AppendUint32(v.Data, uint32(x))
	default:
		v.Data = binary.LittleEndian.AppendUint64(v.Data, x)
	}
	return nil
}

// item takes an element of varying size.
func (f *filler) item(b []byte) error {
	v, err := f.next()
	if err != nil {
		return err
	}
	if f.spec.DType == api.String && !utf8.Valid(b) {
		return notText(f.spec, f.elements-1)
	}
	if !f.scalar {
		v.Data = binary.LittleEndian.AppendUint32(v.Data, uint32(len(b)))
	}
	v.Data = append(v.Data, b...)
	return nil
}
