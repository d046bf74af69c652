package oipwire

import (
	"encoding/binary"
	"math"

	"github.com/xebec-serving/xebec/api"
)

// Response is a ModelInferResponse.
type Response struct {
	Model, Version string
	ID             []byte
	// Parameters are fields made by the functions Append…Parameter.
	Parameters []byte
	Signature  *api.Signature
	// Outputs are places in the signature; Batched says that they have a batch dimension, of Queries.
	Outputs []int
	Batched bool
	// Classes has for each of Outputs how many of its largest elements are the answer instead of it, as texts of the form value:index; 0: the output
	// itself. It is empty if none is to be classified.
	Classes []int
	Queries int
	// Raw asks for raw contents instead of typed ones. Types that have only raw contents are sent raw, and then so are all outputs.
	Raw bool
	// Output returns an output of a query.
	Output func(query, tensor int) *api.Value

	classified []classes // of each of Outputs, made by Measure; empty if none has any
}

// Measure checks that each output fits one tensor, and returns a size that the response does not exceed. Outputs of different dimensions do not fit one
// tensor: the error, an *api.Error with InvalidArgument, says what to do.
func (r *Response) Measure() (int, error) {
	if r.Queries < 1 || !r.Batched && r.Queries != 1 {
		return 0, api.Errorf(api.Internal, "an answer of %d queries to a request of another number", r.Queries)
	}
	size := len(r.Model) + len(r.Version) + len(r.ID) + len(r.Parameters) + 4*maxHead
	if err := r.classify(); err != nil {
		return 0, err
	}
	for i := range r.Outputs {
		c, output := r.column(i)
		if err := c.measure(output); err != nil {
			return 0, err
		}
		size += len(c.spec.Name) + 4*maxHead + 10*len(c.dims)
		if field := contentsField(c.spec.DType); field == 0 {
			r.Raw = true
		}
		size += c.size
		if !r.Raw { // a number takes at most 10 bytes; an item of varying size has as many as raw, and a longer head perhaps
			size += int(c.total()) * (10 - c.spec.DType.Size())
		}
	}
	return size, nil
}

// maxHead is the largest tag and length of a field together.
const maxHead = 16

// Append appends the response. Call Measure before.
func (r *Response) Append(dst []byte) []byte {
	dst = appendBytes(dst, 1, r.Model)
	if r.Version != "" {
		dst = appendBytes(dst, 2, r.Version)
	}
	if len(r.ID) > 0 {
		dst = appendBytes(dst, 3, r.ID)
	}
	dst = append(dst, r.Parameters...)
	for i := range r.Outputs {
		c, output := r.column(i)
		_ = c.measure(output) // Measure has seen that it fits
		dst = r.appendHead(dst, &c, output)
	}
	if !r.Raw {
		return dst
	}
	for i := range r.Outputs {
		c, output := r.column(i)
		_ = c.measure(output)
		dst = appendTag(dst, 6, typeBytes)
		dst = binary.AppendUvarint(dst, uint64(c.size))
		for q := range r.Queries {
			v := output(q, c.index)
			if c.bare() {
				dst = binary.LittleEndian.AppendUint32(dst, uint32(len(v.Data)))
			}
			dst = append(dst, v.Data...)
		}
	}
	return dst
}

// appendHead appends an InferOutputTensor.
func (r *Response) appendHead(dst []byte, c *column, output func(query, tensor int) *api.Value) []byte {
	shape := 0
	if r.Batched {
		shape = varintSize(uint64(c.n))
	}
	for _, d := range c.dims {
		shape += varintSize(uint64(d))
	}
	datatype := c.spec.DType.OIP()
	size := 1 + varintSize(uint64(len(c.spec.Name))) + len(c.spec.Name) + 1 + varintSize(uint64(len(datatype))) + len(datatype)
	if shape > 0 {
		size += 1 + varintSize(uint64(shape)) + shape
	}
	contents := 0
	if !r.Raw {
		contents = c.contentsSize(output)
		size += 1 + varintSize(uint64(contents)) + contents
	}
	dst = appendTag(dst, 5, typeBytes)
	dst = binary.AppendUvarint(dst, uint64(size))
	dst = appendBytes(dst, 1, c.spec.Name)
	dst = appendBytes(dst, 2, datatype)
	if shape > 0 {
		dst = appendTag(dst, 3, typeBytes)
		dst = binary.AppendUvarint(dst, uint64(shape))
		if r.Batched {
			dst = binary.AppendUvarint(dst, uint64(c.n))
		}
		for _, d := range c.dims {
			dst = binary.AppendUvarint(dst, uint64(d))
		}
	}
	if !r.Raw {
		dst = appendTag(dst, 5, typeBytes)
		dst = binary.AppendUvarint(dst, uint64(contents))
		dst = c.appendContents(dst, output)
	}
	return dst
}

// column is one output of all queries.
type column struct {
	spec  *api.TensorSpec
	index int
	n     int
	dims  []int64 // of each query's value
	each  int64   // their product
	size  int     // of the raw contents
}

func (c *column) total() int64 { return c.each * int64(c.n) }

// bare reports whether values are elements without the length before them.
func (c *column) bare() bool { return c.spec.DType.Variable() && len(c.spec.Shape) == 0 }

// measure determines the dimensions that all queries share, and checks that each value has as much data as they need.
func (c *column) measure(output func(query, tensor int) *api.Value) error {
	c.dims = c.spec.Shape
	for q := range c.n {
		v := output(q, c.index)
		if !c.spec.Fixed() && len(c.spec.Shape) > 0 {
			if q == 0 {
				c.dims = v.Dims
			} else if !equal(c.dims, v.Dims) {
				return api.Errorf(api.InvalidArgument, "output %q: query 0 has shape %s and query %d %s, which one tensor cannot hold: send the queries one by one",
					c.spec.Name, api.ShapeString(c.dims), q, api.ShapeString(v.Dims))
			}
		}
		if q == 0 {
			c.each = api.Elements(c.dims)
		}
		if c.each < 0 || len(c.dims) != len(c.spec.Shape) || !c.holds(v) {
			return api.Errorf(api.Internal, "output %q: the value of query %d does not fit its shape %s", c.spec.Name, q, api.ShapeString(c.dims))
		}
		c.size += len(v.Data)
		if c.bare() {
			c.size += 4
		}
	}
	return nil
}

// holds reports whether a value's data has the length of its elements.
func (c *column) holds(v *api.Value) bool {
	if !c.spec.DType.Variable() {
		return int64(len(v.Data)) == c.each*int64(c.spec.DType.Size())
	}
	if c.bare() {
		return true
	}
	data := v.Data
	for range c.each {
		if len(data) < 4 {
			return false
		}
		size := uint64(binary.LittleEndian.Uint32(data))
		if size > uint64(len(data)-4) {
			return false
		}
		data = data[4+size:]
	}
	return len(data) == 0
}

func equal(a, b []int64) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

// items calls yield with the elements of varying size.
func (c *column) items(output func(query, tensor int) *api.Value, yield func(item []byte)) {
	for q := range c.n {
		data := output(q, c.index).Data
		if c.bare() {
			yield(data)
			continue
		}
		for range c.each {
			n := 4 + int(binary.LittleEndian.Uint32(data))
			yield(data[4:n])
			data = data[n:]
		}
	}
}

// payload is the length of a packed list of fixed-size or integer elements.
func (c *column) payload(output func(query, tensor int) *api.Value) int {
	d := c.spec.DType
	if d == api.Float32 || d == api.Float64 || d == api.Bool {
		return int(c.total()) * d.Size()
	}
	n := 0
	for q := range c.n {
		for data := output(q, c.index).Data; len(data) > 0; data = data[d.Size():] {
			n += varintSize(integerOf(d, data))
		}
	}
	return n
}

// contentsSize is the length of the message InferTensorContents.
func (c *column) contentsSize(output func(query, tensor int) *api.Value) int {
	if c.total() == 0 {
		return 0
	}
	if c.spec.DType.Variable() {
		n := 0
		c.items(output, func(item []byte) { n += 1 + varintSize(uint64(len(item))) + len(item) })
		return n
	}
	n := c.payload(output)
	return 1 + varintSize(uint64(n)) + n
}

// appendContents appends the fields of InferTensorContents.
func (c *column) appendContents(dst []byte, output func(query, tensor int) *api.Value) []byte {
	if c.total() == 0 {
		return dst
	}
	d := c.spec.DType
	field := contentsField(d)
	if d.Variable() {
		c.items(output, func(item []byte) { dst = appendBytes(dst, field, item) })
		return dst
	}
	dst = appendTag(dst, field, typeBytes)
	dst = binary.AppendUvarint(dst, uint64(c.payload(output)))
	for q := range c.n {
		data := output(q, c.index).Data
		if d == api.Float32 || d == api.Float64 || d == api.Bool {
			dst = append(dst, data...)
			continue
		}
		for ; len(data) > 0; data = data[d.Size():] {
			dst = binary.AppendUvarint(dst, integerOf(d, data))
		}
	}
	return dst
}

// integerOf is the first integer of data as it is on the wire: negative ones as those of 64 bits.
func integerOf(d api.DType, data []byte) uint64 {
	switch d {
	case api.Int8:
		return uint64(int64(int8(data[0])))
	case api.Int16:
		return uint64(int64(int16(binary.LittleEndian.Uint16(data))))
	case api.Int32:
		return uint64(int64(int32(binary.LittleEndian.Uint32(data))))
	case api.Uint8:
		return uint64(data[0])
	case api.Uint16:
		return uint64(binary.LittleEndian.Uint16(data))
	case api.Uint32:
		return uint64(binary.LittleEndian.Uint32(data))
	}
	return binary.LittleEndian.Uint64(data)
}

// The parameters of a response: each function appends one entry.

// AppendTextParameter appends a text.
func AppendTextParameter(dst []byte, name string, v []byte) []byte {
	dst = appendParameter(dst, name, 1+varintSize(uint64(len(v)))+len(v))
	return appendBytes(dst, 3, v)
}

// AppendBoolParameter appends a truth value.
func AppendBoolParameter(dst []byte, name string, v bool) []byte {
	dst = appendTag(appendParameter(dst, name, 2), 1, typeVarint)
	if v {
		return append(dst, 1)
	}
	return append(dst, 0)
}

// AppendIntParameter appends an integer.
func AppendIntParameter(dst []byte, name string, v int64) []byte {
	dst = appendParameter(dst, name, 1+varintSize(uint64(v)))
	return binary.AppendUvarint(appendTag(dst, 2, typeVarint), uint64(v))
}

// AppendFloatParameter appends a number.
func AppendFloatParameter(dst []byte, name string, v float64) []byte {
	dst = appendTag(appendParameter(dst, name, 9), 4, typeFixed8)
	return binary.LittleEndian.AppendUint64(dst, math.Float64bits(v))
}

// appendParameter appends an entry up to its value, of so many bytes.
func appendParameter(dst []byte, name string, size int) []byte {
	key := 1 + varintSize(uint64(len(name))) + len(name)
	dst = appendTag(dst, 4, typeBytes)
	dst = binary.AppendUvarint(dst, uint64(key+1+varintSize(uint64(size))+size))
	dst = appendBytes(dst, 1, name)
	dst = appendTag(dst, 2, typeBytes)
	return binary.AppendUvarint(dst, uint64(size))
}
