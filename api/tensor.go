package api

import (
	"encoding/binary"
	"fmt"
	"math"
	"strings"
)

// DType is the element type of a tensor. The numbers are those of the worker protocol (api/spec/worker.md) and never change.
type DType uint8

// The element types. YAML uses numpy's names ("float32"), the Open Inference Protocol its own ("FP32").
const (
	InvalidDType DType = 0
	Bool         DType = 1
	Uint8        DType = 2
	Uint16       DType = 3
	Uint32       DType = 4
	Uint64       DType = 5
	Int8         DType = 6
	Int16        DType = 7
	Int32        DType = 8
	Int64        DType = 9
	Float16      DType = 10
	Float32      DType = 11
	Float64      DType = 12
	Bytes        DType = 13
	// String is text: BYTES that are valid UTF-8. The Open Inference Protocol has no name of its own for it.
	String DType = 14
	// BFloat16 is the upper half of a Float32: its range, with 8 bits of precision.
	BFloat16 DType = 15
)

// MaxRank is the largest number of dimensions of one query's tensor. numpy stops at 64; no model known to us exceeds 8.
const MaxRank = 16 //xebec:limit dimensions of one query's tensor

type dtypeInfo struct {
	numpy, oip string
	size       int
}

var dtypes = [...]dtypeInfo{
	Bool: {"bool", "BOOL", 1}, Uint8: {"uint8", "UINT8", 1}, Uint16: {"uint16", "UINT16", 2}, Uint32: {"uint32", "UINT32", 4},
	Uint64: {"uint64", "UINT64", 8}, Int8: {"int8", "INT8", 1}, Int16: {"int16", "INT16", 2}, Int32: {"int32", "INT32", 4},
	Int64: {"int64", "INT64", 8}, Float16: {"float16", "FP16", 2}, Float32: {"float32", "FP32", 4}, Float64: {"float64", "FP64", 8},
	Bytes: {"bytes", "BYTES", 0}, String: {"string", "BYTES", 0}, BFloat16: {"bfloat16", "BF16", 2},
}

// Valid reports whether d is one of the element types.
func (d DType) Valid() bool { return d > InvalidDType && int(d) < len(dtypes) }

// Variable reports whether elements vary in size: those of Bytes and String. Both are laid out alike.
func (d DType) Variable() bool { return d == Bytes || d == String }

// Float reports whether elements are floating-point numbers.
func (d DType) Float() bool { return d == Float16 || d == BFloat16 || d == Float32 || d == Float64 }

// Size is the number of bytes of one element. It is 0 for a [DType.Variable] type, and for an invalid one.
func (d DType) Size() int {
	if !d.Valid() {
		return 0
	}
	return dtypes[d].size
}

// String is numpy's name of the type, which YAML and messages use.
func (d DType) String() string {
	if !d.Valid() {
		return fmt.Sprintf("dtype(%d)", uint8(d))
	}
	return dtypes[d].numpy
}

// OIP is the Open Inference Protocol's name of the type.
func (d DType) OIP() string {
	if !d.Valid() {
		return ""
	}
	return dtypes[d].oip
}

// ParseDType reads numpy's name of a type. "str" means "string".
func ParseDType(s string) (DType, error) {
	if s == "str" {
		return String, nil
	}
	for d := Bool; d.Valid(); d++ {
		if dtypes[d].numpy == s {
			return d, nil
		}
	}
	if near, ok := otherDTypeNames[strings.ToLower(s)]; ok {
		return InvalidDType, fmt.Errorf("unknown dtype %q: did you mean %q?", s, near)
	}
	if d, ok := ParseOIPDType(strings.ToUpper(s)); ok {
		return InvalidDType, fmt.Errorf("unknown dtype %q: did you mean %q?", s, d)
	}
	return InvalidDType, fmt.Errorf("unknown dtype %q: expected one of %s", s, dtypeNames())
}

// otherDTypeNames are names of types in Python, C, SQL and pandas, with what they mean here. Beside them there are the
// Open Inference Protocol's.
var otherDTypeNames = map[string]string{
	"half": "float16", "float": "float32", "single": "float32", "double": "float64",
	"int": "int64", "integer": "int64", "long": "int64", "short": "int16", "byte": "uint8", "boolean": "bool",
	"text": "string", "utf8": "string", "varchar": "string", "object": "string", "binary": "bytes", "blob": "bytes", "image": "bytes",
}

// ParseOIPDType reads the Open Inference Protocol's name of a type. BYTES is read as Bytes.
func ParseOIPDType(s string) (DType, bool) {
	for d := Bool; d.Valid(); d++ {
		if dtypes[d].oip == s {
			return d, true
		}
	}
	return InvalidDType, false
}

func dtypeNames() string {
	var names []string
	for d := Bool; d.Valid(); d++ {
		names = append(names, dtypes[d].numpy)
	}
	return strings.Join(names, ", ")
}

// TensorSpec declares one named input or output of a model, for one query: the batch dimension is never part of Shape.
// A dimension of -1 accepts any size.
type TensorSpec struct {
	Name  string  `json:"name"`
	DType DType   `json:"dtype"`
	Shape []int64 `json:"shape" need:"the dimensions of one query, [] for a single element"`
	// Media is the media type of the bytes, such as image/png, or a range of them for an input, such as image/*. It is for
	// [DType.Variable] types of shape []. A raw body of this type is the input, and an answer can have it. Workers do not see it.
	Media string `json:"media,omitempty"`
}

// Fixed reports whether every query's data has the same number of bytes: the type is numeric and the shape has no -1.
func (t TensorSpec) Fixed() bool {
	if t.DType.Variable() {
		return false
	}
	for _, d := range t.Shape {
		if d < 0 {
			return false
		}
	}
	return true
}

// ItemBytes is the number of bytes of one query's data if the tensor is Fixed, else 0. It does not overflow for a
// validated spec.
func (t TensorSpec) ItemBytes() int {
	if !t.Fixed() {
		return 0
	}
	n := int64(t.DType.Size())
	for _, d := range t.Shape {
		n *= d
	}
	return int(n)
}

// MaxItemBytes bounds the data of one tensor of one query. The limit of HTTP bodies is far below it.
const MaxItemBytes = 1 << 30 //xebec:limit one tensor of one query

// Elements is the product of dims, or -1 if a dimension is negative or the product exceeds [MaxItemBytes].
func Elements(dims []int64) int64 {
	n := int64(1)
	for _, d := range dims {
		if d < 0 {
			return -1
		}
		if d != 0 && n > MaxItemBytes/d {
			return -1
		}
		n *= d
	}
	return n
}

// FitsShape reports whether dims matches the declared shape: it has the same rank and is equal wherever the shape is
// not -1.
func FitsShape(shape, dims []int64) bool {
	if len(shape) != len(dims) {
		return false
	}
	for i, d := range shape {
		if dims[i] < 0 || d >= 0 && d != dims[i] {
			return false
		}
	}
	return true
}

// String is the form used in messages: "float32[64]", "bytes[]", "float32[-1, 3]".
func (t TensorSpec) String() string {
	return t.DType.String() + ShapeString(t.Shape)
}

// ShapeString formats a shape for people: "[2, 64]".
func ShapeString(dims []int64) string {
	var b strings.Builder
	b.WriteByte('[')
	for i, d := range dims {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%d", d)
	}
	b.WriteByte(']')
	return b.String()
}

// Signature declares the inputs and outputs of a model, for one query.
type Signature struct {
	Inputs  []TensorSpec
	Outputs []TensorSpec
}

// EncodedBytes is the size of the signature in the worker protocol.
func (s *Signature) EncodedBytes() int {
	const count, nameLength, dtypeAndRank, dimension = 2, 2, 2, 8
	n := 2 * count
	for _, specs := range [...][]TensorSpec{s.Inputs, s.Outputs} {
		for i := range specs {
			n += nameLength + len(specs[i].Name) + dtypeAndRank + dimension*len(specs[i].Shape)
		}
	}
	return n
}

// Value is the raw data of one tensor of one query. The package documentation describes the layout of the bytes.
type Value struct {
	Data []byte
	// Dims are the actual dimensions if the declared tensor is not Fixed and has a rank; otherwise it is empty.
	Dims []int64
}

// Check reports how a value deviates from the spec, in its dimensions or in the length of its data.
func (t TensorSpec) Check(v *Value) error {
	if t.Fixed() || len(t.Shape) == 0 {
		if len(v.Dims) > 0 {
			return fmt.Errorf("the dimensions %s: expected none for %s, which declares them", ShapeString(v.Dims), t)
		}
		if t.Fixed() && len(v.Data) != t.ItemBytes() {
			return fmt.Errorf("%d bytes: expected %d for %s", len(v.Data), t.ItemBytes(), t)
		}
		return nil
	}
	n := Elements(v.Dims)
	if n < 0 || !FitsShape(t.Shape, v.Dims) {
		return fmt.Errorf("the dimensions %s: expected those of %s", ShapeString(v.Dims), t)
	}
	if !t.DType.Variable() {
		if want := n * int64(t.DType.Size()); int64(len(v.Data)) != want {
			return fmt.Errorf("%d bytes: expected %d for %s%s", len(v.Data), want, t.DType, ShapeString(v.Dims))
		}
		return nil
	}
	rest := v.Data
	for i := range n {
		if len(rest) < 4 || uint64(binary.LittleEndian.Uint32(rest)) > uint64(len(rest)-4) {
			return fmt.Errorf("the data end in element %d: expected %d elements, each led by its length in 32 bits", i, n)
		}
		rest = rest[4+binary.LittleEndian.Uint32(rest):]
	}
	if len(rest) > 0 {
		return fmt.Errorf("%d bytes behind the last of %d elements", len(rest), n)
	}
	return nil
}

// Go has no arithmetic of 16 bits. These functions convert a float16 or bfloat16 where JSON is read and written.

// BFloat16ToFloat32 widens bfloat16 bits; exact.
func BFloat16ToFloat32(h uint16) float32 { return math.Float32frombits(uint32(h) << 16) }

// Float64ToBFloat16 rounds to nearest, ties to even, as if in one step: the float32 between is rounded to odd, which keeps what the second
// rounding must know of the digits that the first one drops (Boldo and Melquiond, Emulation of a FMA and correctly rounded sums: proved
// algorithms using rounding to odd, IEEE Transactions on Computers 57(4), 2008).
func Float64ToBFloat16(f float64) uint16 {
	if math.IsNaN(f) {
		return uint16(math.Float64bits(f)>>48)&0x8000 | 0x7fc0
	}
	near := float32(f)
	bits := math.Float32bits(near)
	if wide := float64(near); wide != f && bits&1 == 0 {
		if math.Abs(wide) < math.Abs(f) {
			bits++
		} else {
			bits--
		}
	}
	return uint16((uint64(bits) + 0x7fff + uint64(bits>>16&1)) >> 16)
}

// Float16ToFloat32 widens IEEE 754 binary16 bits; exact.
func Float16ToFloat32(h uint16) float32 {
	sign := uint32(h>>15) << 31
	exp := uint32(h>>10) & 0x1f
	man := uint32(h) & 0x3ff
	switch {
	case exp == 0x1f:
		return math.Float32frombits(sign | 0x7f800000 | man<<13)
	case exp != 0:
		return math.Float32frombits(sign | (exp+112)<<23 | man<<13)
	case man == 0:
		return math.Float32frombits(sign)
	}
	f := float32(man) * (1.0 / (1 << 24)) // a subnormal counts units of 2^-24
	if sign != 0 {
		f = -f
	}
	return f
}

// Float64ToFloat16 rounds to nearest, ties to even, in one step. Going through float32 would round twice.
func Float64ToFloat16(f float64) uint16 {
	bits := math.Float64bits(f)
	sign := uint16(bits>>48) & 0x8000
	abs := math.Abs(f)
	switch {
	case math.IsNaN(f):
		return sign | 0x7e00
	case abs >= 65520: // halfway between the largest finite half and the next power of two
		return sign | 0x7c00
	case abs < 0x1p-14: // subnormal: units of 2^-24
		return sign | uint16(math.RoundToEven(abs*0x1p24))
	}
	frac, exp := math.Frexp(abs) // abs = frac * 2^exp, frac in [0.5, 1)
	man := math.RoundToEven(frac * 2048)
	return sign | (uint16(exp+14)<<10 + uint16(man) - 1024) // man is 1024..2048: a carry moves into the exponent by itself
}
