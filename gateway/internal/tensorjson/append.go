package tensorjson

import (
	"encoding/binary"
	"math"
	"strconv"
	"unicode/utf8"

	"github.com/xebec-serving/xebec/api"
)

// maxEmptyRows bounds the brackets written for a tensor without elements. Its dimensions may claim any number of empty
// rows without a byte of data.
const maxEmptyRows = 1024

// AppendValue appends one query's value of a tensor as JSON: rank 0 as a scalar, otherwise arrays nested like its
// dimensions. Floats have the fewest digits that read back as the same number of their type; NaN and the infinities,
// which JSON lacks, are null. BYTES are {"b64": "…"}. A tensor without elements and with more than 1,024 empty rows
// is []. A value whose data contradicts its spec is null.
func AppendValue(dst []byte, spec api.TensorSpec, v api.Value) []byte {
	return Form{}.AppendValue(dst, spec, v)
}

// Form is how values are written where a dialect differs. The zero Form is AppendValue's.
type Form struct {
	// NonFinite: NaN and the infinities are the tokens NaN, Infinity and -Infinity, which are not JSON. [Reader.NonFinite] reads them.
	NonFinite bool
	// Text: elements of BYTES that are UTF-8 are strings.
	Text bool
}

// AppendValue appends one query's value of a tensor in this form.
func (f Form) AppendValue(dst []byte, spec api.TensorSpec, v api.Value) []byte {
	w, ok := newWriter(spec, v)
	if !ok {
		return append(dst, "null"...)
	}
	w.form = f
	return w.level(dst, 0)
}

// AppendElement appends one numeric element as JSON. data is little-endian, as in a value's data.
func AppendElement(dst []byte, dtype api.DType, data []byte) []byte {
	switch dtype {
	case api.Bool:
		return strconv.AppendBool(dst, data[0] != 0)
	case api.Uint8:
		return strconv.AppendUint(dst, uint64(data[0]), 10)
	case api.Uint16:
		return strconv.AppendUint(dst, uint64(binary.LittleEndian.Uint16(data)), 10)
	case api.Uint32:
		return strconv.AppendUint(dst, uint64(binary.LittleEndian.Uint32(data)), 10)
	case api.Uint64:
		return strconv.AppendUint(dst, binary.LittleEndian.Uint64(data), 10)
	case api.Int8:
		return strconv.AppendInt(dst, int64(int8(data[0])), 10)
	case api.Int16:
		return strconv.AppendInt(dst, int64(int16(binary.LittleEndian.Uint16(data))), 10)
	case api.Int32:
		return strconv.AppendInt(dst, int64(int32(binary.LittleEndian.Uint32(data))), 10)
	case api.Int64:
		return strconv.AppendInt(dst, int64(binary.LittleEndian.Uint64(data)), 10)
	case api.Float16:
		return appendFloat16(dst, binary.LittleEndian.Uint16(data))
	case api.BFloat16:
		return appendBFloat16(dst, binary.LittleEndian.Uint16(data))
	case api.Float32:
		return appendFloat(dst, float64(math.Float32frombits(binary.LittleEndian.Uint32(data))), 32)
	case api.Float64:
		return appendFloat(dst, math.Float64frombits(binary.LittleEndian.Uint64(data)), 64)
	}
	return append(dst, "null"...)
}

// writer writes a value's data as JSON.
type writer struct {
	dtype api.DType
	dims  []int64
	data  []byte
	// size is the size of an element in bytes, 0 for BYTES.
	size int
	// empty means that there are no elements.
	empty bool
	form  Form
}

func newWriter(spec api.TensorSpec, v api.Value) (w writer, ok bool) {
	w = writer{dtype: spec.DType, dims: spec.Shape, data: v.Data, size: spec.DType.Size()}
	if !spec.Fixed() && len(spec.Shape) > 0 {
		w.dims = v.Dims
	}
	n := api.Elements(w.dims)
	if n < 0 || len(w.dims) != len(spec.Shape) || !spec.DType.Valid() {
		return w, false
	}
	if spec.DType.Variable() {
		ok = len(w.dims) == 0 || checkElements(v.Data, n)
	} else {
		ok = int64(len(v.Data)) == n*int64(w.size)
	}
	if w.empty = n == 0; w.empty {
		rows := int64(1)
		for i, d := range w.dims {
			if rows *= d; rows == 0 {
				w.dims = w.dims[:i+1] // JSON cannot show the levels below the empty one
				break
			}
			if rows > maxEmptyRows {
				w.dims = w.dims[i+1 : i+1]
				break
			}
		}
	}
	return w, ok
}

// checkElements reports whether data consists of exactly n elements of BYTES, each preceded by its length.
func checkElements(data []byte, n int64) bool {
	for ; n > 0; n-- {
		if len(data) < 4 {
			return false
		}
		size := int(binary.LittleEndian.Uint32(data))
		if size > len(data)-4 {
			return false
		}
		data = data[4+size:]
	}
	return len(data) == 0
}

func (w *writer) level(dst []byte, k int) []byte {
	if k == len(w.dims) {
		if w.empty {
			return append(dst, "[]"...)
		}
		return w.element(dst)
	}
	dst = append(dst, '[')
	for i := int64(0); i < w.dims[k]; i++ {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = w.level(dst, k+1)
	}
	return append(dst, ']')
}

func (w *writer) element(dst []byte) []byte {
	if !w.dtype.Variable() {
		at := len(dst)
		dst = AppendElement(dst, w.dtype, w.data)
		if w.form.NonFinite && w.dtype.Float() && dst[at] == 'n' { // null
			dst = appendToken(dst[:at], w.dtype, w.data)
		}
		w.data = w.data[w.size:]
		return dst
	}
	item := w.data
	if len(w.dims) > 0 {
		n := 4 + binary.LittleEndian.Uint32(item)
		item, w.data = item[4:n], item[n:]
	}
	if w.dtype == api.String || w.form.Text && utf8.Valid(item) {
		return AppendString(dst, item)
	}
	return appendB64(dst, item)
}

// appendToken appends the token of a float that is not finite.
func appendToken(dst []byte, dtype api.DType, data []byte) []byte {
	var f float64
	switch dtype {
	case api.Float16:
		f = float64(api.Float16ToFloat32(binary.LittleEndian.Uint16(data)))
	case api.BFloat16:
		f = float64(api.BFloat16ToFloat32(binary.LittleEndian.Uint16(data)))
	case api.Float32:
		f = float64(math.Float32frombits(binary.LittleEndian.Uint32(data)))
	default:
		f = math.Float64frombits(binary.LittleEndian.Uint64(data))
	}
	switch {
	case math.IsInf(f, 1):
		return append(dst, "Infinity"...)
	case math.IsInf(f, -1):
		return append(dst, "-Infinity"...)
	}
	return append(dst, "NaN"...)
}

// appendFloat formats a float like ECMAScript and encoding/json: plain digits from 1e-6 to 1e21.
func appendFloat(dst []byte, f float64, bitSize int) []byte {
	exact := int64(exactInt)
	if bitSize == 32 {
		exact = 1 << 24 // above this, the shortest digits may differ from the integer's own
	}
	if n := int64(f); float64(n) == f && n > -exact && n < exact && (n != 0 || !math.Signbit(f)) {
		return strconv.AppendInt(dst, n, 10)
	}
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return append(dst, "null"...)
	}
	abs, small, large := math.Abs(f), 1e-6, 1e21
	if bitSize == 32 {
		small, large = float64(float32(1e-6)), float64(float32(1e21))
	}
	if abs == 0 || abs >= small && abs < large {
		return strconv.AppendFloat(dst, f, 'f', -1, bitSize)
	}
	start := len(dst)
	dst = strconv.AppendFloat(dst, f, 'e', -1, bitSize)
	if n := len(dst); n-start > 4 && dst[n-4] == 'e' && dst[n-3] == '-' && dst[n-2] == '0' {
		dst[n-2] = dst[n-1] // write e-09 as e-9
		dst = dst[:n-1]
	}
	return dst
}

// appendFloat16 formats a half with the fewest digits that read back as it; five are always enough.
func appendFloat16(dst []byte, h uint16) []byte {
	f := float64(api.Float16ToFloat32(h))
	if n := int64(f); float64(n) == f && n > -2048 && n < 2048 || h&0x7c00 == 0x7c00 {
		return appendFloat(dst, f, 64)
	}
	return appendShort(dst, f, h, api.Float64ToFloat16)
}

// appendBFloat16 is appendFloat16 for bfloat16; four digits are always enough.
func appendBFloat16(dst []byte, h uint16) []byte {
	f := float64(api.BFloat16ToFloat32(h))
	if n := int64(f); float64(n) == f && n > -256 && n < 256 || h&0x7f80 == 0x7f80 {
		return appendFloat(dst, f, 64)
	}
	return appendShort(dst, f, h, api.Float64ToBFloat16)
}

// appendShort formats f with the fewest digits that round to h.
func appendShort(dst []byte, f float64, h uint16, round func(float64) uint16) []byte {
	var buf [32]byte
	for digits := 0; digits < 5; digits++ {
		text := strconv.AppendFloat(buf[:0], f, 'e', digits, 64)
		g, err := strconv.ParseFloat(asString(text), 64)
		if err == nil && round(g) == h {
			return appendFloat(dst, g, 64) // the shortest form of g has these digits
		}
	}
	return appendFloat(dst, f, 64)
}
