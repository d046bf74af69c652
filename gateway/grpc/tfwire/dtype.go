package tfwire

import (
	"encoding/binary"
	"math"

	"github.com/xebec-serving/xebec/api"
	pb "github.com/xebec-serving/xebec/api/tensorflowpb"
)

// dtypes are TensorFlow's types of ours. Text and bytes are one type there.
var dtypes = map[api.DType]pb.DataType{
	api.Bool: pb.DataType_DT_BOOL, api.Uint8: pb.DataType_DT_UINT8, api.Uint16: pb.DataType_DT_UINT16, api.Uint32: pb.DataType_DT_UINT32, api.Uint64: pb.DataType_DT_UINT64,
	api.Int8: pb.DataType_DT_INT8, api.Int16: pb.DataType_DT_INT16, api.Int32: pb.DataType_DT_INT32, api.Int64: pb.DataType_DT_INT64,
	api.Float16: pb.DataType_DT_HALF, api.BFloat16: pb.DataType_DT_BFLOAT16, api.Float32: pb.DataType_DT_FLOAT, api.Float64: pb.DataType_DT_DOUBLE,
	api.Bytes: pb.DataType_DT_STRING, api.String: pb.DataType_DT_STRING,
}

// DType is TensorFlow's type of ours.
func DType(d api.DType) pb.DataType { return dtypes[d] }

// ranges are the integers of the types whose values TensorFlow sends as int32.
var ranges = map[api.DType][2]int64{
	api.Int8: {math.MinInt8, math.MaxInt8}, api.Uint8: {0, math.MaxUint8}, api.Int16: {math.MinInt16, math.MaxInt16}, api.Uint16: {0, math.MaxUint16},
	api.Int32: {math.MinInt32, math.MaxInt32}, api.Uint32: {0, math.MaxUint32}, api.Int64: {math.MinInt64, math.MaxInt64}, api.Bool: {0, 1},
	api.Uint64: {0, math.MaxInt64},
}

// fits reports whether an integer is one of the type's.
func fits(d api.DType, v int64) bool {
	r := ranges[d]
	return v >= r[0] && v <= r[1]
}

// appendBits appends the low bytes of an element.
func appendBits(dst []byte, size int, bits uint64) []byte {
	switch size {
	case 1:
		return append(dst, byte(bits))
	case 2:
		return binary.LittleEndian.AppendUint16(dst, uint16(bits))
	case 4:
		return binary.LittleEndian.AppendUint32(dst, uint32(bits))
	}
	return binary.LittleEndian.AppendUint64(dst, bits)
}

// appendFloat appends a float of any of our types of floats, rounded to the nearest.
func appendFloat(dst []byte, d api.DType, f float64) []byte {
	switch d {
	case api.Float16:
		return binary.LittleEndian.AppendUint16(dst, api.Float64ToFloat16(f))
	case api.BFloat16:
		return binary.LittleEndian.AppendUint16(dst, api.Float64ToBFloat16(f))
	case api.Float32:
		return binary.LittleEndian.AppendUint32(dst, math.Float32bits(float32(f)))
	}
	return binary.LittleEndian.AppendUint64(dst, math.Float64bits(f))
}

// bitsAt is an element as it lies.
func bitsAt(size int, data []byte) uint64 {
	switch size {
	case 1:
		return uint64(data[0])
	case 2:
		return uint64(binary.LittleEndian.Uint16(data))
	case 4:
		return uint64(binary.LittleEndian.Uint32(data))
	}
	return binary.LittleEndian.Uint64(data)
}

// signed extends the sign of an element.
func signed(size int, data []byte) int64 {
	shift := 64 - 8*size
	return int64(bitsAt(size, data)<<shift) >> shift
}

// Number is an element of a type of numbers.
func Number(d api.DType, data []byte) float64 {
	bits := bitsAt(d.Size(), data)
	switch d {
	case api.Float16:
		return float64(api.Float16ToFloat32(uint16(bits)))
	case api.BFloat16:
		return float64(api.BFloat16ToFloat32(uint16(bits)))
	case api.Float32:
		return float64(math.Float32frombits(uint32(bits)))
	case api.Float64:
		return math.Float64frombits(bits)
	case api.Int8, api.Int16, api.Int32, api.Int64:
		return float64(signed(d.Size(), data))
	}
	return float64(bits)
}
