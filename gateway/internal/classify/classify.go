package classify

import (
	"cmp"
	"encoding/binary"
	"math"
	"slices"
	"strconv"

	"github.com/xebec-serving/xebec/api"
)

// Classifier keeps its memory between calls. One goroutine at a time may use it.
type Classifier struct{ order []int32 }

// MaxClasses bounds what a request may ask for: models with more classes are rare, and their order costs time.
const MaxClasses = 1 << 16 //xebec:limit `classification` of a requested output

// MaxElements bounds the elements that are put in order for one output of a request. The goroutine that does it also has others' answers to write.
const MaxElements = 1 << 20 //xebec:limit elements of an output with `classification`, of all queries of a request together

// Supports reports whether tensors of the type have classes.
func Supports(d api.DType) bool { return d.Valid() && d != api.Bool && !d.Variable() }

// Top returns the indexes of the k largest elements of data, or of all if there are fewer, the largest first. Of equal elements the first one comes
// first, and NaN comes last. The result is valid until the next call.
func (c *Classifier) Top(d api.DType, data []byte, k int) []int32 {
	size := d.Size()
	if !Supports(d) || k <= 0 {
		return nil
	}
	n := len(data) / size
	c.order = slices.Grow(c.order[:0], n)
	for i := range n {
		c.order = append(c.order, int32(i))
	}
	slices.SortStableFunc(c.order, func(a, b int32) int { return compare(d, data[int(b)*size:], data[int(a)*size:]) })
	return c.order[:min(k, n)]
}

// compare compares two elements as numbers; NaN is less than any other.
func compare(d api.DType, a, b []byte) int {
	switch d {
	case api.Uint64: // not exact as float64
		return cmp.Compare(binary.LittleEndian.Uint64(a), binary.LittleEndian.Uint64(b))
	case api.Int64:
		return cmp.Compare(int64(binary.LittleEndian.Uint64(a)), int64(binary.LittleEndian.Uint64(b)))
	}
	return cmp.Compare(value(d, a), value(d, b))
}

// value is an element of any other type.
func value(d api.DType, b []byte) float64 {
	switch d {
	case api.Int8:
		return float64(int8(b[0]))
	case api.Uint8:
		return float64(b[0])
	case api.Int16:
		return float64(int16(binary.LittleEndian.Uint16(b)))
	case api.Uint16:
		return float64(binary.LittleEndian.Uint16(b))
	case api.Int32:
		return float64(int32(binary.LittleEndian.Uint32(b)))
	case api.Uint32:
		return float64(binary.LittleEndian.Uint32(b))
	case api.Float16:
		return float64(api.Float16ToFloat32(binary.LittleEndian.Uint16(b)))
	case api.BFloat16:
		return float64(api.BFloat16ToFloat32(binary.LittleEndian.Uint16(b)))
	case api.Float32:
		return float64(math.Float32frombits(binary.LittleEndian.Uint32(b)))
	}
	return math.Float64frombits(binary.LittleEndian.Uint64(b))
}

// Append appends element i in the form value:index, which Triton's clients split.
func Append(dst []byte, d api.DType, data []byte, i int32) []byte {
	b := data[int(i)*d.Size():]
	switch d {
	case api.Uint64:
		dst = strconv.AppendUint(dst, binary.LittleEndian.Uint64(b), 10)
	case api.Int64:
		dst = strconv.AppendInt(dst, int64(binary.LittleEndian.Uint64(b)), 10)
	case api.Float64:
		dst = strconv.AppendFloat(dst, value(d, b), 'f', -1, 64)
	default:
		dst = strconv.AppendFloat(dst, value(d, b), 'f', -1, 32)
	}
	return strconv.AppendInt(append(dst, ':'), int64(i), 10)
}
