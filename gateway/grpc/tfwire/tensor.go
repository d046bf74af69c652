package tfwire

import (
	"encoding/binary"
	"math"
	"unicode/utf8"

	"github.com/xebec-serving/xebec/api"
	pb "github.com/xebec-serving/xebec/api/tensorflowpb"
)

// tensor is an input of all queries, whose shape is checked.
type tensor struct {
	message *pb.TensorProto
	spec    *api.TensorSpec
	dims    []int64 // of one query
	each, n int     // elements of one query, and queries
	items   [][]byte
}

// check compares the values with the shape, and returns how many bytes the tensor takes.
func (t *tensor) check() (int64, error) {
	m, all := t.message, t.each*t.n
	if t.spec.DType.Variable() {
		return t.checkItems()
	}
	size := t.spec.DType.Size()
	if content := m.GetTensorContent(); len(content) > 0 {
		if len(content) != all*size {
			return 0, misfit(t.spec, "tensor_content: %d bytes: expected %d for %d elements", len(content), all*size, all)
		}
		if t.spec.DType == api.Bool {
			for i, c := range content {
				if c > 1 {
					return 0, misfit(t.spec, "tensor_content: element %d is %d: expected 0 or 1", i, c)
				}
			}
		}
		return int64(len(content)), nil
	}
	field, n := t.values()
	if n > all {
		return 0, misfit(t.spec, "%s: %d values: expected at most %d, one for each element", field, n, all)
	}
	switch t.spec.DType {
	case api.Int8, api.Uint8, api.Int16, api.Uint16:
		for i, v := range m.GetIntVal() {
			if !fits(t.spec.DType, int64(v)) {
				return 0, misfit(t.spec, "int_val[%d]: %d is not %v", i, v, DType(t.spec.DType))
			}
		}
	case api.Float16, api.BFloat16:
		for i, v := range m.GetHalfVal() {
			if !fits(api.Uint16, int64(v)) {
				return 0, misfit(t.spec, "half_val[%d]: %d: expected the 16 bits of a float", i, v)
			}
		}
	}
	return int64(all) * int64(size), nil
}

// values are the field of the type, and how many values it has.
func (t *tensor) values() (field string, n int) {
	m := t.message
	switch t.spec.DType {
	case api.Bool:
		return "bool_val", len(m.GetBoolVal())
	case api.Float16, api.BFloat16:
		return "half_val", len(m.GetHalfVal())
	case api.Float32:
		return "float_val", len(m.GetFloatVal())
	case api.Float64:
		return "double_val", len(m.GetDoubleVal())
	case api.Int64:
		return "int64_val", len(m.GetInt64Val())
	case api.Uint32:
		return "uint32_val", len(m.GetUint32Val())
	case api.Uint64:
		return "uint64_val", len(m.GetUint64Val())
	}
	return "int_val", len(m.GetIntVal())
}

// checkItems is check for texts and bytes. The last value, or an empty one, goes on for the elements that have none.
func (t *tensor) checkItems() (int64, error) {
	all := t.each * t.n
	t.items = t.message.GetStringVal()
	if content := t.message.GetTensorContent(); len(content) > 0 {
		var err error
		if t.items, err = splitContent(t.spec, content, all); err != nil {
			return 0, err
		}
	}
	if len(t.items) > all {
		return 0, misfit(t.spec, "string_val: %d values: expected at most %d, one for each element", len(t.items), all)
	}
	total := int64(0)
	for i, item := range t.items {
		if t.spec.DType == api.String && !utf8.Valid(item) {
			return 0, misfit(t.spec, "string_val[%d] is not valid UTF-8, which a string is", i)
		}
		total += 4 + int64(len(item))
	}
	last := int64(4)
	if len(t.items) > 0 {
		last += int64(len(t.items[len(t.items)-1]))
	}
	return total + int64(all-len(t.items))*last, nil
}

// splitContent splits the content of a tensor of strings: all lengths as varints, then all bytes.
func splitContent(spec *api.TensorSpec, content []byte, n int) ([][]byte, error) {
	if n > len(content) { // each length takes a byte
		return nil, misfit(spec, "tensor_content: %d bytes are too few for %d strings", len(content), n)
	}
	items, lengths := make([][]byte, n), content
	for range n {
		_, k := binary.Uvarint(lengths)
		if k <= 0 {
			return nil, misfit(spec, "tensor_content: expected the lengths of %d strings as varints", n)
		}
		lengths = lengths[k:]
	}
	data := lengths
	lengths = content
	for i := range items {
		length, k := binary.Uvarint(lengths)
		lengths = lengths[k:]
		if length > uint64(len(data)) {
			return nil, misfit(spec, "tensor_content: string %d has %d bytes, and %d are left", i, length, len(data))
		}
		items[i], data = data[:length], data[length:]
	}
	if len(data) > 0 {
		return nil, misfit(spec, "tensor_content: %d bytes follow the last of %d strings", len(data), n)
	}
	return items, nil
}

// write copies the elements of each query to input i of its row.
func (t *tensor) write(rows [][]api.Value, i int) {
	for q := range rows {
		v := &rows[q][i]
		v.Data, v.Dims = v.Data[:0], v.Dims[:0]
		if !t.spec.Fixed() {
			v.Dims = append(v.Dims, t.dims...)
		}
		t.query(v, q*t.each)
	}
}

// query appends the elements of one query, which begin at element from.
func (t *tensor) query(v *api.Value, from int) {
	m, size, to := t.message, t.spec.DType.Size(), from+t.each
	if t.spec.DType.Variable() {
		for k := from; k < to; k++ {
			v.Data = appendItem(v.Data, last(t.items, k), len(t.dims) > 0)
		}
		return
	}
	if content := m.GetTensorContent(); len(content) > 0 {
		v.Data = append(v.Data, content[from*size:to*size]...)
		return
	}
	switch t.spec.DType {
	case api.Bool:
		v.Data = appendValues(v.Data, m.GetBoolVal(), from, to, 1, func(b bool) uint64 {
			if b {
				return 1
			}
			return 0
		})
	case api.Float16, api.BFloat16:
		v.Data = appendValues(v.Data, m.GetHalfVal(), from, to, size, integer)
	case api.Float32:
		v.Data = appendValues(v.Data, m.GetFloatVal(), from, to, size, func(f float32) uint64 { return uint64(math.Float32bits(f)) })
	case api.Float64:
		v.Data = appendValues(v.Data, m.GetDoubleVal(), from, to, size, math.Float64bits)
	case api.Int64:
		v.Data = appendValues(v.Data, m.GetInt64Val(), from, to, size, integer)
	case api.Uint32:
		v.Data = appendValues(v.Data, m.GetUint32Val(), from, to, size, integer)
	case api.Uint64:
		v.Data = appendValues(v.Data, m.GetUint64Val(), from, to, size, integer)
	default:
		v.Data = appendValues(v.Data, m.GetIntVal(), from, to, size, integer)
	}
}

func integer[T int32 | int64 | uint32 | uint64](v T) uint64 { return uint64(v) }

// appendValues appends the elements in [from, to) as bits of this size.
func appendValues[T any](dst []byte, values []T, from, to, size int, bits func(T) uint64) []byte {
	for k := from; k < to; k++ {
		dst = appendBits(dst, size, bits(last(values, k)))
	}
	return dst
}

// last returns element k, or the last one if there are fewer, or zero if there is none.
func last[T any](values []T, k int) (v T) {
	if len(values) == 0 {
		return v
	}
	return values[min(k, len(values)-1)]
}

// appendItem appends a text or bytes, with the length before it if it is an element of a tensor with a rank.
func appendItem(dst, item []byte, ranked bool) []byte {
	if ranked {
		dst = binary.LittleEndian.AppendUint32(dst, uint32(len(item)))
	}
	return append(dst, item...)
}

// Tensor makes a tensor of an output of n queries, which have it in value. Outputs of different dimensions do not fit one tensor.
func Tensor(spec *api.TensorSpec, n int, batched bool, value func(query int) *api.Value) (*pb.TensorProto, error) {
	t := &pb.TensorProto{Dtype: DType(spec.DType), TensorShape: &pb.TensorShapeProto{}}
	dims := spec.Shape
	for q := range n {
		v := value(q)
		if !spec.Fixed() && len(spec.Shape) > 0 {
			if q == 0 {
				dims = v.Dims
			} else if !sameDims(dims, v.Dims) {
				return nil, api.Errorf(api.InvalidArgument, "output %q: query 0 has shape %s and query %d %s, which one tensor cannot hold: send the queries one by one",
					spec.Name, api.ShapeString(dims), q, api.ShapeString(v.Dims))
			}
		}
		if err := spec.Check(v); err != nil {
			return nil, api.Errorf(api.Internal, "output %q: the value of query %d: %v", spec.Name, q, err)
		}
		appendTo(t, spec, v.Data)
	}
	if batched {
		t.TensorShape.Dim = append(t.TensorShape.Dim, &pb.TensorShapeProto_Dim{Size: int64(n)})
	}
	for _, d := range dims {
		t.TensorShape.Dim = append(t.TensorShape.Dim, &pb.TensorShapeProto_Dim{Size: d})
	}
	return t, nil
}

func sameDims(a, b []int64) bool {
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

// appendTo appends the elements of one query to the values of a tensor. The values are copies.
func appendTo(t *pb.TensorProto, spec *api.TensorSpec, data []byte) {
	if spec.DType.Variable() {
		if len(spec.Shape) == 0 {
			t.StringVal = append(t.StringVal, append([]byte(nil), data...))
			return
		}
		for len(data) >= 4 {
			n := 4 + int(binary.LittleEndian.Uint32(data)) // Check has judged the lengths
			t.StringVal = append(t.StringVal, append([]byte(nil), data[4:n]...))
			data = data[n:]
		}
		return
	}
	for size := spec.DType.Size(); len(data) >= size; data = data[size:] {
		switch bits := bitsAt(size, data); spec.DType {
		case api.Bool:
			t.BoolVal = append(t.BoolVal, bits != 0)
		case api.Float16, api.BFloat16:
			t.HalfVal = append(t.HalfVal, int32(bits))
		case api.Float32:
			t.FloatVal = append(t.FloatVal, math.Float32frombits(uint32(bits)))
		case api.Float64:
			t.DoubleVal = append(t.DoubleVal, math.Float64frombits(bits))
		case api.Int64:
			t.Int64Val = append(t.Int64Val, int64(bits))
		case api.Uint32:
			t.Uint32Val = append(t.Uint32Val, uint32(bits))
		case api.Uint64:
			t.Uint64Val = append(t.Uint64Val, bits)
		case api.Uint8, api.Uint16:
			t.IntVal = append(t.IntVal, int32(bits))
		default:
			t.IntVal = append(t.IntVal, int32(signed(size, data)))
		}
	}
}

// Room is about how much memory the tensor of a value takes, which may be more than its data.
func Room(spec *api.TensorSpec, v *api.Value) int {
	const header = 24 // of a slice
	switch size := spec.DType.Size(); {
	case !spec.DType.Variable():
		return len(v.Data) / size * max(size, 4)
	case len(spec.Shape) == 0:
		return header + len(v.Data)
	}
	dims := v.Dims
	if spec.Fixed() {
		dims = spec.Shape
	}
	return header*int(max(api.Elements(dims), 0)) + len(v.Data)
}
