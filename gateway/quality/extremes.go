package quality

import (
	"bytes"
	"encoding/binary"
	"math"
	"slices"

	"github.com/xebec-serving/xebec/api"
)

// Limits of extreme inputs.
const (
	// MaxExtremes is the most extremes: validation should take seconds.
	MaxExtremes = 256 //xebec:limit extreme inputs of a version
	// longBytes is the size of a long input with an open size.
	longBytes = 1 << 20
	// maxExtremeBytes bounds the inputs of one extreme, because larger requests are refused by default.
	// maxExtremesBytes bounds all of them together.
	maxExtremeBytes  = 64 << 20  //xebec:limit one extreme input
	maxExtremesBytes = 256 << 20 //xebec:limit all extreme inputs of a version
)

// Extreme is an input at a limit of a signature.
type Extreme struct {
	// Name describes the extreme: "NaN", or "image: NaN" if the other inputs are zeros.
	Name string
	// Inputs may share memory with other extremes and must not be modified.
	Inputs []api.Value
}

// fill is the content of an extreme tensor.
type fill uint8

const (
	zeros fill = iota
	largest
	lowest
	denormal
	infinity
	minusInfinity
	notANumber
	notABool
	longText
	brokenText
	nulText
	fills
)

var fillNames = [fills]string{
	"zeros and empty strings", "largest", "lowest", "denormal", "Inf", "-Inf", "NaN",
	"neither true nor false", "long strings", "invalid UTF-8", "NUL characters",
}

// extent is the size of the open dimensions of an extreme tensor.
type extent uint8

const (
	ones extent = iota
	none
	longFirst
	longLast
	extents
)

var extentNames = [extents]string{"size 1", "size 0", "large", "large in the last open dimension"}

// Extremes returns inputs at the limits of what a signature lets a caller send: numbers, strings, and sizes of open
// dimensions, first for all inputs at once, then for each while the others are zeros. Every one fits the signature.
// There are none if the inputs of fixed size exceed 64 MiB, and fewer if all together would exceed 256 MiB.
func Extremes(sig api.Signature) []Extreme {
	g := &generator{sig: sig, left: maxExtremesBytes}
	// rawBody means that the body can be the input's bytes, which the gateway does not check.
	rawBody := len(sig.Inputs) == 1 && openDims(sig.Inputs[0].Shape) <= 1
	for which := -1; which < len(sig.Inputs); which++ {
		if which >= 0 && len(sig.Inputs) == 1 {
			break
		}
		for f := range fills {
			if (which < 0 || f != zeros) && (f != notABool || rawBody) {
				g.add(which, f, ones)
			}
		}
		for e := none; e < extents; e++ {
			g.add(which, zeros, e)
		}
	}
	return g.list
}

type generator struct {
	sig  api.Signature
	list []Extreme
	left int64
}

// add makes one input extreme, or all if which < 0, and the others zeros. It adds nothing if that changes no input.
func (g *generator) add(which int, f fill, e extent) {
	if len(g.list) == MaxExtremes {
		return
	}
	x := Extreme{Name: fillNames[f], Inputs: make([]api.Value, len(g.sig.Inputs))}
	if e != ones {
		x.Name = extentNames[e]
	}
	if which >= 0 {
		x.Name = g.sig.Inputs[which].Name + ": " + x.Name
	}
	var size int64
	differs := f == zeros && e == ones
	for i := range g.sig.Inputs {
		spec := &g.sig.Inputs[i]
		of, ext := zeros, ones
		if (which < 0 || i == which) && applies(spec, f, e) {
			of, ext, differs = f, e, true
		}
		dims := dimsOf(spec, ext)
		if api.Elements(dims) < 0 {
			return // a dimension of 0 can hide an impossible shape when it is declared; no caller can send it
		}
		if size += bytesOf(spec, dims, of); size > maxExtremeBytes || size > g.left {
			return
		}
		x.Inputs[i] = valueOf(spec, dims, of)
	}
	if differs {
		g.list = append(g.list, x)
		g.left -= size
	}
}

// openDims returns the number of open dimensions.
func openDims(shape []int64) (n int) {
	for _, d := range shape {
		if d < 0 {
			n++
		}
	}
	return n
}

// applies reports whether a tensor can be extreme in this way, and then differs from zeros of size 1.
func applies(spec *api.TensorSpec, f fill, e extent) bool {
	n := openDims(spec.Shape)
	switch {
	case e == longLast:
		return n > 1 && longSize(spec) > 1
	case e == longFirst:
		return n > 0 && longSize(spec) > 1
	case e == none:
		return n > 0
	case f == zeros:
		return true
	case api.Elements(dimsOf(spec, ones)) == 0:
		return false
	case f == brokenText:
		return spec.DType == api.Bytes // no string reaches a model
	case f >= longText:
		return spec.DType.Variable()
	}
	return pattern(spec.DType, f) != nil
}

// longSize is the size of one large open dimension if the others are 1.
func longSize(spec *api.TensorSpec) int64 {
	rest := int64(spec.DType.Size())
	if spec.DType.Variable() {
		rest = 4 // the length before each element
	}
	for _, d := range spec.Shape {
		if d > longBytes/rest {
			return 1
		}
		rest *= max(1, d)
	}
	return longBytes / rest
}

func dimsOf(spec *api.TensorSpec, e extent) []int64 {
	dims := slices.Clone(spec.Shape)
	at := slices.Index(dims, -1)
	for i, d := range dims {
		if d >= 0 {
			continue
		}
		switch dims[i] = 1; e {
		case none:
			dims[i] = 0
		case longLast:
			at = i
		}
	}
	if e == longFirst || e == longLast {
		dims[at] = longSize(spec)
	}
	return dims
}

// textOf is each of n elements of BYTES.
func textOf(n int64, f fill) []byte {
	switch f {
	case longText:
		return bytes.Repeat([]byte("x"), int(max(1, longBytes/n)))
	case brokenText:
		return []byte("\xff\xc0\xaf\xed\xa0\x80\xf4\x90\x80\x80") // an invalid byte, an overlong '/', a surrogate, a code point beyond Unicode
	case nulText:
		return make([]byte, 16)
	}
	return nil
}

func bytesOf(spec *api.TensorSpec, dims []int64, f fill) int64 {
	n := api.Elements(dims)
	if !spec.DType.Variable() {
		return n * int64(spec.DType.Size())
	}
	if n == 0 {
		return 0
	}
	return n * int64(4+len(textOf(n, f)))
}

func valueOf(spec *api.TensorSpec, dims []int64, f fill) api.Value {
	var v api.Value
	if !spec.Fixed() && len(dims) > 0 {
		v.Dims = dims
	}
	n := api.Elements(dims)
	if n == 0 {
		return v
	}
	element := pattern(spec.DType, f)
	if spec.DType.Variable() {
		if element = textOf(n, f); len(dims) > 0 {
			element = append(binary.LittleEndian.AppendUint32(nil, uint32(len(element))), element...)
		}
	}
	if element == nil {
		element = make([]byte, spec.DType.Size())
	}
	v.Data = bytes.Repeat(element, int(n))
	return v
}

// pattern returns the bytes of one numeric element, or nil if the type has no such value or it is zero.
func pattern(d api.DType, f fill) []byte {
	switch d {
	case api.Float16, api.BFloat16, api.Float32, api.Float64:
		return floatPattern(d, f)
	case api.Bool:
		switch f {
		case largest:
			return []byte{1}
		case notABool:
			return []byte{0xff}
		}
	case api.Int8, api.Int16, api.Int32, api.Int64:
		p := bytes.Repeat([]byte{0xff}, d.Size())
		switch f {
		case largest:
			p[len(p)-1] = 0x7f
			return p
		case lowest:
			clear(p)
			p[len(p)-1] = 0x80
			return p
		}
	case api.Uint8, api.Uint16, api.Uint32, api.Uint64:
		if f == largest {
			return bytes.Repeat([]byte{0xff}, d.Size())
		}
	}
	return nil
}

func floatPattern(d api.DType, f fill) []byte {
	var x float64
	switch f {
	case largest, lowest:
		x = map[api.DType]float64{api.Float16: 65504, api.BFloat16: float64(api.BFloat16ToFloat32(0x7f7f)), api.Float32: math.MaxFloat32, api.Float64: math.MaxFloat64}[d]
		if f == lowest {
			x = -x
		}
	case denormal:
		x = map[api.DType]float64{api.Float16: 0x1p-24, api.BFloat16: 0x1p-133, api.Float32: math.SmallestNonzeroFloat32, api.Float64: math.SmallestNonzeroFloat64}[d]
	case infinity:
		x = math.Inf(1)
	case minusInfinity:
		x = math.Inf(-1)
	case notANumber:
		x = math.NaN()
	default:
		return nil
	}
	switch d {
	case api.Float16:
		return binary.LittleEndian.AppendUint16(nil, api.Float64ToFloat16(x))
	case api.BFloat16:
		return binary.LittleEndian.AppendUint16(nil, api.Float64ToBFloat16(x))
	case api.Float32:
		return binary.LittleEndian.AppendUint32(nil, math.Float32bits(float32(x)))
	}
	return binary.LittleEndian.AppendUint64(nil, math.Float64bits(x))
}
