package api

import (
	"encoding/binary"
	"fmt"
)

// Number is an element type of a numeric tensor, except bool and float16.
type Number interface {
	~int8 | ~int16 | ~int32 | ~int64 | ~uint8 | ~uint16 | ~uint32 | ~uint64 | ~float32 | ~float64
}

// Numbers returns the value of a tensor with the elements x in row-major order. T must match the tensor's element type.
// If the tensor's shape has a -1, the caller sets Dims.
func Numbers[T Number](x ...T) Value {
	data, err := binary.Append(make([]byte, 0, len(x)*binary.Size(T(0))), binary.LittleEndian, x)
	if err != nil {
		panic(err) // every Number has a fixed size
	}
	return Value{Data: data}
}

// NumbersOf returns the elements of a numeric tensor's value in row-major order. It fails if the data is not a whole
// number of elements of T's size.
func NumbersOf[T Number](v Value) ([]T, error) {
	size := binary.Size(T(0))
	if len(v.Data)%size != 0 {
		return nil, fmt.Errorf("%d bytes are not a number of elements of %d bytes", len(v.Data), size)
	}
	x := make([]T, len(v.Data)/size)
	_, err := binary.Decode(v.Data, binary.LittleEndian, x)
	return x, err
}
