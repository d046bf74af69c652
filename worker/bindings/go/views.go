//go:build linux && (amd64 || arm64 || loong64 || ppc64le || riscv64)

package xebec

import (
	"unsafe"

	"github.com/xebec-serving/xebec/api"
)

// Element is a Go type for the elements of a tensor. A bool tensor is viewed as uint8 (0 or 1), a float16 or bfloat16 one as
// uint16 (its bits; package api converts).
type Element interface {
	uint8 | uint16 | uint32 | uint64 | int8 | int16 | int32 | int64 | float32 | float64
}

// fits reports whether elements of type d can be viewed as T.
func fits[T Element](d api.DType) bool {
	var zero T
	switch any(zero).(type) {
	case uint8:
		return d == api.Uint8 || d == api.Bool
	case uint16:
		return d == api.Uint16 || d == api.Float16 || d == api.BFloat16
	case uint32:
		return d == api.Uint32
	case uint64:
		return d == api.Uint64
	case int8:
		return d == api.Int8
	case int16:
		return d == api.Int16
	case int32:
		return d == api.Int32
	case int64:
		return d == api.Int64
	case float32:
		return d == api.Float32
	case float64:
		return d == api.Float64
	}
	return false
}

// view returns data as elements. Sections begin at multiples of 64 and items at multiples of 8, so data are always
// aligned.
func view[T Element](data []byte) []T {
	var zero T
	if len(data) == 0 {
		return nil
	}
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(data))), len(data)/int(unsafe.Sizeof(zero)))
}

func checkElement[T Element](what string, spec *api.TensorSpec) {
	if !fits[T](spec.DType) {
		var zero T
		misused("%s %q is %v: it cannot be viewed as %T", what, spec.Name, spec, zero)
	}
}

// Input returns an input of fixed shape for all queries: a read-only array of shape (Len(), *shape), row-major. It
// panics if the input's size varies between queries: see [Item].
func Input[T Element](b *Batch, name string) []T {
	checkElement[T]("input", &b.w.sig.Inputs[b.input(name)])
	return view[T](b.InputRaw(name))
}

// Item returns an input of query i, row-major, and its dimensions. Both are read-only. It works for every numeric
// input.
func Item[T Element](b *Batch, name string, i int) (data []T, dims []int64) {
	s := b.input(name)
	checkElement[T]("input", &b.w.sig.Inputs[s])
	return view[T](b.item(i, s)), b.Dims(name, i)
}

// Output returns an output of fixed shape for all queries, to be filled: an array of shape (Len(), *shape), row-major,
// in the gateway's memory. It is zeroed at first; further calls return the same array. It panics if the output's size
// varies between queries: see [SetItem].
func Output[T Element](b *Batch, name string) []T {
	checkElement[T]("output", &b.w.sig.Outputs[b.output(name)])
	return view[T](b.OutputRaw(name))
}

// SetItem sets an output of query i to a copy of data, with these dimensions if the signature leaves them open. It
// works for every numeric output.
func SetItem[T Element](b *Batch, name string, i int, data []T, dims ...int64) {
	checkElement[T]("output", &b.w.sig.Outputs[b.output(name)])
	var zero T
	copy(view[T](b.Reserve(name, i, len(data)*int(unsafe.Sizeof(zero)), dims...)), data)
}
