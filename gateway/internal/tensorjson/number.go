package tensorjson

import (
	"encoding/binary"
	"math"
	"math/bits"
	"strconv"
	"unsafe"

	"github.com/xebec-serving/xebec/api"
)

// Flags of a scanned number.
const (
	negative  uint8 = 1 << iota
	tooLong         // more significant digits than the 19 that fit a uint64: w is not valid
	malformed       // not a JSON number
)

// maxDigits is how many decimal digits always fit into a uint64.
const maxDigits = 19

// maxExponent stops accumulating an exponent's digits: far beyond every type, far below an overflow.
const maxExponent = 1 << 20

var pow10Int = [9]uint64{1, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8}

// load8 reads eight bytes at i, with zeros, which are not digits, for bytes beyond the end.
func load8(b []byte, i int) uint64 {
	if len(b)-i >= 8 {
		return binary.LittleEndian.Uint64(b[i:])
	}
	return loadTail(b, i)
}

//go:noinline
func loadTail(b []byte, i int) uint64 {
	var v uint64
	for k := len(b) - 1; k >= i; k-- {
		v = v<<8 | uint64(b[k])
	}
	return v
}

// nonDigits sets the top bit of each of the eight bytes of x that is not a digit, where x is the text XOR "00000000",
// so that digits are 0 to 9. A carry of the addition can only affect bytes after a marked one, so the first mark is
// right.
func nonDigits(x uint64) uint64 { return ((x + lsb*0x76) | x) & msb }

// eightDigits returns the number that eight digits represent: pairs, then fours, then all eight, with one
// multiplication in each step (Lemire, "Number Parsing at a Gigabyte per Second", 2021, section 6).
func eightDigits(x uint64) uint64 {
	const mask = 0x000000ff000000ff
	x = x*10 + x>>8
	return ((x&mask)*(100+1000000<<32) + ((x>>16)&mask)*(1+10000<<32)) >> 32
}

// digits reads the digits at b[i], eight at a time, and appends them to w.
func digits(b []byte, i int, w uint64) (uint64, int) {
	for {
		x := load8(b, i) ^ lsb*'0'
		marks := nonDigits(x)
		if marks == 0 {
			w = w*1e8 + eightDigits(x)
			i += 8
			continue
		}
		n := bits.TrailingZeros64(marks) >> 3
		// Shift the digits up, with leading zeros.
		return w*pow10Int[n&7] + eightDigits(x<<uint(64-8*n)), i + n
	}
}

// scan reads a JSON number at b[i], eight digits at a time. Its value is ±w × 10^exp unless flags has tooLong or
// malformed; next is the offset after it.
func scan(b []byte, i int) (w uint64, exp, next int, flags uint8) {
	start := i
	if i < len(b) && b[i] == '-' {
		flags = negative
		i++
	}
	first := i
	w, i = digits(b, i, 0)
	count := i - first
	if count == 0 || count > 1 && b[first] == '0' {
		return 0, 0, start, malformed
	}
	if i < len(b) && b[i] == '.' {
		i++
		point := i
		w, i = digits(b, i, w)
		if i == point {
			return 0, 0, start, malformed
		}
		exp = point - i
		count += i - point
	}
	if count > maxDigits && significant(b[first:i]) > maxDigits {
		flags |= tooLong
	}
	if i < len(b) && b[i]|0x20 == 'e' {
		e, end := scanExponent(b, i+1)
		if end < 0 {
			return 0, 0, start, malformed
		}
		exp += e
		i = end
	}
	return w, exp, i, flags
}

// significant counts the digits without leading zeros: 0.00392156862745098 has fifteen.
func significant(text []byte) int {
	i, n := 0, len(text)
	for i < len(text) && (text[i] == '0' || text[i] == '.') {
		i++
	}
	n -= i
	for _, c := range text[i:] {
		if c == '.' {
			return n - 1
		}
	}
	return n
}

// scanExponent reads what follows the 'e'; end is -1 if it is malformed.
func scanExponent(b []byte, i int) (e, end int) {
	minus := false
	if i < len(b) && (b[i] == '-' || b[i] == '+') {
		minus = b[i] == '-'
		i++
	}
	first := i
	for i < len(b) && b[i]-'0' <= 9 {
		if e < maxExponent {
			e = e*10 + int(b[i]-'0')
		}
		i++
	}
	if i == first {
		return 0, -1
	}
	if minus {
		e = -e
	}
	return e, i
}

// float64 represents every integer up to exactInt, and every power of ten up to 10^exactPow, exactly.
const (
	exactInt = 1 << 53
	exactPow = 22
)

var pow10Float = [32]float64{ // the length is a power of two, so that a masked index needs no bounds check
	1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22,
}

// toFloat64 rounds a scanned number to the nearest float64, ties to even, like strconv.ParseFloat(text, 64). ok is
// false if it is beyond float64. With up to 53 bits and a small exponent both operands are exact, and the operation
// rounds only once (Clinger, "How to Read Floating Point Numbers Accurately", 1990). With up to 19 digits the
// Eisel-Lemire product nearly always decides. The rest is left to strconv.
func toFloat64(w uint64, exp int, flags uint8, text []byte) (f float64, ok bool) {
	if flags&tooLong == 0 {
		switch {
		case w <= exactInt && exp <= 0 && exp >= -exactPow:
			f, ok = float64(w)/pow10Float[-exp], true
		case w <= exactInt && exp > 0 && exp <= exactPow:
			f, ok = float64(w)*pow10Float[exp], true
		case w == 0:
			ok = true
		case exp >= minPow10 && exp <= maxPow10:
			f = eiselLemire(w, exp)
			ok = f >= 0
		}
		if ok {
			if flags&negative != 0 {
				f = -f
			}
			return f, true
		}
	}
	f, err := strconv.ParseFloat(asString(text), 64)
	return f, err == nil
}

// asString lends text to strconv, which does not retain it (its errors copy it).
func asString(text []byte) string { return unsafe.String(unsafe.SliceData(text), len(text)) }

// eiselLemire returns w × 10^exp rounded to the nearest float64, or -1 if 128 bits of the power do not decide. w must
// not be 0. (Lemire, "Number Parsing at a Gigabyte per Second", 2021; rounding and its guards as in Nigel Tao's "The
// Eisel-Lemire ParseNumberF64 Algorithm", 2020.) Within the table's exponents there are no subnormals and no
// infinities.
func eiselLemire(w uint64, exp int) float64 {
	shift := bits.LeadingZeros64(w)
	w <<= uint(shift)
	// 217706 / 2^16 approximates log2(10) closely enough for every exponent of float64.
	exp2 := uint64(217706*exp>>16+64+1023) - uint64(shift)
	p := &pow10[exp-minPow10]
	hi, lo := bits.Mul64(w, p[0])
	if hi&0x1ff == 0x1ff && lo+w < w {
		// The low half of the power could carry into the bits that round: include it.
		hi2, lo2 := bits.Mul64(w, p[1])
		sum, carry := bits.Add64(lo, hi2, 0)
		hi += carry
		if hi&0x1ff == 0x1ff && sum+1 == 0 && lo2+w < w {
			return -1
		}
		lo = sum
	}
	top := hi >> 63
	man := hi >> (top + 9) // 54 bits: one more than float64 has
	exp2 -= 1 ^ top
	if lo == 0 && hi&0x1ff == 0 && man&3 == 1 {
		return -1 // possibly a tie
	}
	man = (man + man&1) >> 1
	if man>>53 != 0 {
		man >>= 1
		exp2++
	}
	return math.Float64frombits(exp2<<52 | man&(1<<52-1))
}

// nearTie32 reports whether d is so close to a tie between two float32s that a number for which d is an approximation, off by at most two units in d's
// last place, may be on the other side of it. The low 29 bits of a tie are a one followed by zeros; within four units of it, twice as many as needed,
// counts as near. Otherwise d and the number round to the same float32. d is 0 or in the range of normal float32s, without the largest binade: ties
// elsewhere lie elsewhere or round to infinity.
func nearTie32(d float64) bool {
	const tieBits, tie, margin = 1<<29 - 1, 1 << 28, 4
	return math.Float64bits(d)&tieBits-(tie-margin) <= 2*margin
}

// narrow rounds a number to float32, given an approximation d that is off by at most two units in d's last place. sure is false if d does not determine
// the result.
func narrow(d float64) (f float32, sure bool) {
	const lowest, binades = 1023 - 126, 253
	u := math.Float64bits(d)
	return float32(d), !nearTie32(d) && (u>>52&0x7ff-lowest < binades || u<<1 == 0)
}

// toFloat32 rounds a scanned number to float32 like strconv.ParseFloat(text, 32).
func toFloat32(w uint64, exp int, flags uint8, text []byte) (f float32, ok bool) {
	if d, ok := toFloat64(w, exp, flags, text); ok {
		if f, sure := narrow(d); sure {
			return f, true
		}
	}
	d, err := strconv.ParseFloat(asString(text), 32)
	return float32(d), err == nil
}

// toFloat16 rounds a scanned number to the nearest half, ties to even. Only a float64 that is itself a tie between two
// halves can mislead. In that case, comparing the digits decides whether the number is exactly the tie or on which side
// it lies.
func toFloat16(w uint64, exp int, flags uint8, text []byte) (h uint16, ok bool) {
	d, ok := toFloat64(w, exp, flags, text)
	if !ok {
		return 0, false
	}
	if tie16(d) && !(exp == 0 && flags&tooLong == 0 && w <= exactInt) {
		switch compareDecimal(text, d, 25) {
		case -1:
			d = math.Nextafter(d, 0)
		case +1:
			d = math.Nextafter(d, math.Copysign(math.Inf(1), d))
		}
	}
	h = api.Float64ToFloat16(d)
	return h, h&0x7fff < 0x7c00
}

// toBFloat16 is toFloat16 for bfloat16.
func toBFloat16(w uint64, exp int, flags uint8, text []byte) (h uint16, ok bool) {
	d, ok := toFloat64(w, exp, flags, text)
	if !ok {
		return 0, false
	}
	if f := float32(d); float64(f) == d && math.Float32bits(f)&0xffff == 0x8000 && !(exp == 0 && flags&tooLong == 0 && w <= exactInt) {
		switch compareDecimal(text, d, 134) { // the least tie is 2^-134
		case -1:
			d = math.Nextafter(d, 0)
		case +1:
			d = math.Nextafter(d, math.Copysign(math.Inf(1), d))
		}
	}
	h = api.Float64ToBFloat16(d)
	return h, h&0x7fff < 0x7f80
}

// tie16 reports whether d is exactly midway between two neighbouring halves.
func tie16(d float64) bool {
	abs := math.Abs(d)
	unit := 0x1p-24 // unit of the subnormals
	if abs >= 0x1p-14 {
		_, e := math.Frexp(abs)
		unit = math.Ldexp(1, e-11)
	}
	n := abs / unit // exact: unit is a power of two
	return n-math.Floor(n) == 0.5
}

// compareDecimal compares |text| with |d|, which has so many decimals at most: a tie between halves has 25, and one between bfloat16 134. They have
// at most 39 digits before the point.
func compareDecimal(text []byte, d float64, decimals int) int {
	var buf [176]byte
	exact := decimal(strconv.AppendFloat(buf[:0], math.Abs(d), 'f', decimals, 64))
	given := decimal(text)
	if given.point != exact.point {
		if given.point < exact.point {
			return -1
		}
		return 1
	}
	for {
		g, e := given.next(), exact.next()
		switch {
		case g < e:
			return -1
		case g > e:
			return 1
		case given.done() && exact.done():
			return 0
		}
	}
}

// digitReader returns the significant digits of a number's text one by one. The value is 0.d1d2d3… × 10^point.
type digitReader struct {
	text  []byte
	point int
}

func decimal(text []byte) digitReader {
	i := 0
	if text[0] == '-' {
		i++
	}
	point, fraction, leading := 0, false, true
	first, end := i, len(text)
	for ; i < len(text); i++ {
		c := text[i]
		if c == '.' {
			fraction = true
			continue
		}
		if c|0x20 == 'e' {
			e, _ := scanExponent(text, i+1)
			point += e
			end = i
			break
		}
		if leading && c == '0' {
			first = i + 1
			if fraction {
				point--
			}
			continue
		}
		leading = false
		if !fraction {
			point++
		}
	}
	return digitReader{text: text[min(first, end):end], point: point}
}

func (d *digitReader) next() byte {
	if len(d.text) > 0 && d.text[0] == '.' {
		d.text = d.text[1:]
	}
	if len(d.text) == 0 {
		return '0'
	}
	c := d.text[0]
	d.text = d.text[1:]
	return c
}

func (d *digitReader) done() bool { return len(d.text) == 0 }

// status is the result of reading an integer.
type status uint8

const (
	numOK status = iota
	numSyntax
	numFraction
	numRange
)

// integer reads an integral number at b[i] and returns sign, magnitude and the offset after it. 1.0 and 1e2 are
// integral.
func integer(b []byte, i int) (minus bool, mag uint64, next int, st status) {
	if len(b)-i >= 16 { // the most common form: up to seven digits, and eight readable bytes
		k := 0
		if b[i] == '-' {
			k = 1
		}
		first := i + k
		x := binary.LittleEndian.Uint64(b[first:]) ^ lsb*'0'
		n := bits.TrailingZeros64(nonDigits(x)) >> 3
		if n > 0 && n < 8 && (n == 1 || b[first] != '0') && b[first+n] != '.' && b[first+n]|0x20 != 'e' {
			return k == 1, eightDigits(x << uint(64-8*n)), first + n, numOK
		}
	}
	w, exp, next, flags := scan(b, i)
	switch {
	case flags&malformed != 0:
		return false, 0, i, numSyntax
	case exp == 0 && flags&tooLong == 0:
		return flags&negative != 0, w, next, numOK
	}
	mag, st = integral(b[i:next])
	return flags&negative != 0, mag, next, st
}

// integral returns the magnitude of a number's text, digit by digit.
func integral(text []byte) (mag uint64, st status) {
	d := decimal(text)
	for len(d.text) > 0 && (d.text[len(d.text)-1] == '0' || d.text[len(d.text)-1] == '.') {
		d.text = d.text[:len(d.text)-1] // trailing zeros do not change the position of the point
	}
	switch {
	case len(d.text) == 0:
		return 0, numOK
	case d.point > 20: // a uint64 has at most twenty digits
		return 0, numRange
	}
	for k := 0; k < d.point; k++ {
		hi, lo := bits.Mul64(mag, 10)
		sum, carry := bits.Add64(lo, uint64(d.next()-'0'), 0)
		if hi != 0 || carry != 0 {
			return 0, numRange
		}
		mag = sum
	}
	if !d.done() {
		return 0, numFraction
	}
	return mag, numOK
}
