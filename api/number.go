package api

import (
	"encoding/binary"
	"math"
)

// Number reads the first element of a tensor's data. d is a type of fixed size, and b has at least that many bytes.
func (d DType) Number(b []byte) float64 {
	le := binary.LittleEndian
	switch d {
	case Bool, Uint8:
		return float64(b[0])
	case Uint16:
		return float64(le.Uint16(b))
	case Uint32:
		return float64(le.Uint32(b))
	case Uint64:
		return float64(le.Uint64(b))
	case Int8:
		return float64(int8(b[0]))
	case Int16:
		return float64(int16(le.Uint16(b)))
	case Int32:
		return float64(int32(le.Uint32(b)))
	case Int64:
		return float64(int64(le.Uint64(b)))
	case Float16:
		return float64(Float16ToFloat32(le.Uint16(b)))
	case BFloat16:
		return float64(BFloat16ToFloat32(le.Uint16(b)))
	case Float32:
		return float64(math.Float32frombits(le.Uint32(b)))
	default:
		return math.Float64frombits(le.Uint64(b))
	}
}

// AppendNumbers appends elements of d, a type of fixed size. Integers are rounded and clamped to the type's range.
func (d DType) AppendNumbers(dst []byte, values []float64) []byte {
	le := binary.LittleEndian
	for _, v := range values {
		switch d {
		case Float16:
			dst = le.AppendUint16(dst, Float64ToFloat16(v))
		case BFloat16:
			dst = le.AppendUint16(dst, Float64ToBFloat16(v))
		case Float32:
			dst = le.AppendUint32(dst, math.Float32bits(float32(v)))
		case Float64:
			dst = le.AppendUint64(dst, math.Float64bits(v))
		default:
			dst = appendInteger(dst, d, math.RoundToEven(v))
		}
	}
	return dst
}

func appendInteger(dst []byte, d DType, v float64) []byte {
	bits := 8 * d.Size()
	var low, high float64
	switch d {
	case Bool:
		high = 1
	case Uint8, Uint16, Uint32, Uint64:
		high = math.Ldexp(1, bits) - 1
	default:
		low, high = -math.Ldexp(1, bits-1), math.Ldexp(1, bits-1)-1
	}
	if math.IsNaN(v) {
		v = 0
	}
	var u uint64
	switch {
	case v <= low && low < 0:
		u = uint64(1) << (bits - 1)
	case v <= low:
		u = 0
	case v >= high && low < 0:
		u = uint64(1)<<(bits-1) - 1
	case v >= high && d == Bool:
		u = 1
	case v >= high:
		u = ^uint64(0) >> (64 - bits)
	case v < 0:
		u = uint64(int64(v))
	default:
		u = uint64(v)
	}
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], u)
	return append(dst, b[:d.Size()]...)
}
