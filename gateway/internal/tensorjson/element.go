package tensorjson

import (
	"encoding/binary"
	"math"

	"github.com/xebec-serving/xebec/api"
)

// run reads at least one and at most limit elements and the commas between them, and stops before the next comma or
// bracket. base is the index of the first element, for messages. lengthPrefixed writes a length before each element of
// BYTES.
func (r *Reader) run(dst []byte, dtype api.DType, lengthPrefixed bool, limit, base int) ([]byte, int, error) {
	if !lengthPrefixed && !dtype.Variable() {
		return r.numbers(dst, dtype, limit, base)
	}
	var err error
	for n := 0; ; {
		if lengthPrefixed {
			at := len(dst)
			dst = append(dst, 0, 0, 0, 0)
			r.PushIndex(base + n)
			if dst, err = r.appendVariable(dst, dtype); err != nil {
				return dst, n, err
			}
			r.Pop()
			binary.LittleEndian.PutUint32(dst[at:], uint32(len(dst)-at-4))
		} else if dst, err = r.scalar(dst, dtype, base+n+1); err != nil {
			return dst, n, err
		}
		n++
		switch r.Peek() {
		case ',':
			if n == limit {
				return dst, n, nil
			}
			r.pos++
			if r.Peek() == ']' {
				r.PushIndex(base + n)
				return dst, n, r.Expected(valueAfterComma)
			}
		case ']':
			return dst, n, nil
		default:
			return dst, n, r.Expected("',' or ']'")
		}
	}
}

// numbers is run for types that are not text. It reads plain numbers many at a time, and leaves every other form, and every error, to scalar.
func (r *Reader) numbers(dst []byte, dtype api.DType, limit, base int) (_ []byte, n int, err error) {
	for {
		found, next := r.plains(limit - n)
		k := len(found)
		switch {
		case k == 0:
			dst, err = r.scalar(dst, dtype, base+n+1)
			k, next = 1, r.pos
		case dtype == api.Float32:
			dst, err = r.float32s(dst, found, base+n)
		case dtype == api.Float64:
			dst, err = r.float64s(dst, found, base+n)
		case dtype.Float():
			dst, err = r.scalars(dst, found, dtype, base+n)
		default:
			dst, err = r.integers(dst, found, dtype, base+n)
		}
		if err != nil {
			return dst, n, err
		}
		n += k
		r.pos = next
		if more, err := r.nextComma(n == limit); err != nil || !more {
			return dst, n, err
		}
	}
}

// scalars reads plain numbers one by one. They are the elements base to base+len(list)-1.
func (r *Reader) scalars(dst []byte, list []plain, dtype api.DType, base int) (_ []byte, err error) {
	for i, p := range list {
		r.pos = p.offset()
		if dst, err = r.scalar(dst, dtype, base+i+1); err != nil {
			break
		}
	}
	return dst, err
}

// float32s converts plain numbers, the elements from base on.
func (r *Reader) float32s(dst []byte, list []plain, base int) (_ []byte, err error) {
	for i, p := range list {
		// Converting w and dividing each have an error of half a unit in the last place, together less than two.
		d := float64(p.w) / pow10Float[p.places()]
		if nearTie32(d) {
			if dst, err = r.scalars(dst, list[i:i+1], api.Float32, base+i); err != nil {
				break
			}
			continue
		}
		dst = binary.LittleEndian.AppendUint32(dst, math.Float32bits(float32(d))|uint32(p.sign()>>32))
	}
	return dst, err
}

// float64s converts plain numbers, the elements from base on.
func (r *Reader) float64s(dst []byte, list []plain, base int) (_ []byte, err error) {
	for i, p := range list {
		var f float64
		if p.w <= exactInt {
			f = float64(p.w) / pow10Float[p.places()] // as in toFloat64
		} else if f = eiselLemire(p.w, -int(p.places())); f < 0 {
			if dst, err = r.scalars(dst, list[i:i+1], api.Float64, base+i); err != nil {
				break
			}
			continue
		}
		dst = binary.LittleEndian.AppendUint64(dst, math.Float64bits(f)|p.sign())
	}
	return dst, err
}

// integers converts plain numbers, the elements from base on. It leaves numbers with a point, the least negative ones and those out of range to scalar.
func (r *Reader) integers(dst []byte, list []plain, dtype api.DType, base int) (_ []byte, err error) {
	limit, signed := intLimit(dtype)
	size := dtype.Size()
	for i, p := range list {
		mag := p.w
		if p.places() > 0 || mag > limit || p.minus() && !signed {
			if dst, err = r.scalars(dst, list[i:i+1], dtype, base+i); err != nil {
				break
			}
			continue
		}
		if p.minus() {
			mag = -mag
		}
		dst = appendInteger(dst, mag, size)
	}
	return dst, err
}

// appendInteger appends the lowest bytes of v, as many as size.
func appendInteger(dst []byte, v uint64, size int) []byte {
	switch size {
	case 1:
		return append(dst, byte(v))
	case 2:
		return binary.LittleEndian.AppendUint16(dst, uint16(v))
	case 4:
		return binary.LittleEndian.AppendUint32(dst, uint32(v))
	}
	return binary.LittleEndian.AppendUint64(dst, v)
}

// nextComma consumes the comma after an element. more is false, and nothing is consumed, at a bracket, or at a comma if
// the run is full.
func (r *Reader) nextComma(full bool) (more bool, err error) {
	c := byte(0)
	if r.pos < len(r.body) {
		c = r.body[r.pos]
	}
	if c <= ' ' {
		c = r.Peek()
	}
	switch {
	case c == ',' && !full:
		r.pos++
		return true, nil
	case c == ',' || c == ']':
		return false, nil
	}
	return false, r.Expected("',' or ']'")
}

// scalar reads one element. place is 0 for a tensor of rank 0, otherwise the element's index in the array plus one.
func (r *Reader) scalar(dst []byte, dtype api.DType, place int) ([]byte, error) {
	c := r.Peek()
	switch dtype {
	case api.Float32, api.Float64, api.Float16, api.BFloat16:
		return r.float(dst, dtype, place)
	case api.Bytes, api.String:
		if place > 0 { // a batch of rank 0: elements without lengths
			r.PushIndex(place - 1)
			defer r.Pop()
		}
		return r.appendVariable(dst, dtype)
	case api.Bool:
		if c == 't' || c == 'f' {
			v, err := r.Bool()
			if v {
				return append(dst, 1), err
			}
			return append(dst, 0), err
		}
	}
	minus, mag, next, st := integer(r.body, r.pos)
	if st == numSyntax {
		return dst, r.notNumber(dtype, place)
	}
	if st == numFraction {
		return dst, r.errorAt(place, "expected an integer for %s, found %s", dtype, clip(r.body[r.pos:next]))
	}
	limit, signed := intLimit(dtype)
	switch {
	case signed && minus && mag <= limit+1, minus && mag == 0:
		mag = -mag
	case minus, mag > limit, st == numRange:
		st = numRange
	}
	if st == numRange {
		return dst, r.outOfRange(next, dtype, place)
	}
	r.pos = next
	size := dtype.Size()
	if size == 0 {
		return dst, api.Errorf(api.Internal, "no such element type: %s", dtype)
	}
	return appendInteger(dst, mag, size), nil
}

// intLimit returns the largest value of an integer type. BOOL accepts 0 and 1.
func intLimit(d api.DType) (limit uint64, signed bool) {
	switch d {
	case api.Bool:
		return 1, false
	case api.Int8, api.Int16, api.Int32, api.Int64:
		return 1<<(8*d.Size()-1) - 1, true
	}
	return math.MaxUint64 >> (64 - 8*d.Size()), false
}

func (r *Reader) float(dst []byte, dtype api.DType, place int) ([]byte, error) {
	w, exp, next, flags := scan(r.body, r.pos)
	text := r.body[r.pos:next]
	var f64 float64
	var f32 float32
	var f16 uint16
	var ok bool
	switch {
	case flags&malformed != 0:
		if f64, ok = r.token(); !ok {
			return dst, r.notNumber(dtype, place)
		}
		if f32, f16 = float32(f64), api.Float64ToFloat16(f64); dtype == api.BFloat16 {
			f16 = api.Float64ToBFloat16(f64)
		}
		next = r.pos
	case dtype == api.Float64:
		f64, ok = toFloat64(w, exp, flags, text)
	case dtype == api.Float32:
		f32, ok = toFloat32(w, exp, flags, text)
	case dtype == api.BFloat16:
		f16, ok = toBFloat16(w, exp, flags, text)
	default:
		f16, ok = toFloat16(w, exp, flags, text)
	}
	if !ok {
		return dst, r.outOfRange(next, dtype, place)
	}
	r.pos = next
	switch dtype {
	case api.Float64:
		return binary.LittleEndian.AppendUint64(dst, math.Float64bits(f64)), nil
	case api.Float32:
		return binary.LittleEndian.AppendUint32(dst, math.Float32bits(f32)), nil
	}
	return binary.LittleEndian.AppendUint16(dst, f16), nil
}

// missing is the NaN without a payload, which other languages have too.
var missing = math.Float64frombits(0x7ff8000000000000)

// token reads null, which is NaN: a missing value. It reads NaN, Infinity or -Infinity if the dialect permits them.
func (r *Reader) token() (float64, bool) {
	if hasPrefix(r.body, r.pos, "null") {
		r.pos += len("null")
		return missing, true
	}
	if !r.NonFinite {
		return 0, false
	}
	for _, t := range nonFinite {
		if hasPrefix(r.body, r.pos, t.text) {
			r.pos += len(t.text)
			return t.value, true
		}
	}
	return 0, false
}

var nonFinite = []struct {
	text  string
	value float64
}{{"NaN", math.NaN()}, {"Infinity", math.Inf(1)}, {"-Infinity", math.Inf(-1)}}

// errorAt returns an error at an element; place is as in scalar.
func (r *Reader) errorAt(place int, format string, args ...any) error {
	if place > 0 {
		r.PushIndex(place - 1)
	}
	return r.Errorf(format, args...)
}

func (r *Reader) notNumber(dtype api.DType, place int) error {
	for _, t := range nonFinite {
		if hasPrefix(r.body, r.pos, t.text) {
			return r.errorAt(place, "expected %s, found %s, which is not JSON", oneOf(dtype), t.text)
		}
	}
	what := oneOf(dtype)
	if place > 1 && r.Peek() == ']' {
		what = valueAfterComma
	}
	return r.errorAt(place, "expected %s, found %s", what, r.found())
}

func (r *Reader) outOfRange(next int, dtype api.DType, place int) error {
	return r.errorAt(place, "%s is out of range for %s", clip(r.body[r.pos:next]), dtype)
}
