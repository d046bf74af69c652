package tensorjson

import (
	"encoding/binary"
	"math/bits"
)

// plain is a number of a common form: up to eight digits, or up to seven before a point and more after it, no exponent, nineteen digits in total. A
// zero before the point does not count. The value is ±w / 10^places.
type plain struct {
	w uint64
	// about has the number of places in its lowest five bits, one bit for the sign above them, and above that the number's offset in the text.
	about uint64
}

const (
	placesBits = 5
	offsetBit  = placesBits + 1
)

// places is at most maxDigits; the mask tells the compiler that it is less than 32.
func (p plain) places() uint64 { return p.about & (1<<placesBits - 1) }
func (p plain) minus() bool    { return p.about>>placesBits&1 != 0 }
func (p plain) offset() int    { return int(p.about >> offsetBit) }

// sign is the sign bit of a float64.
func (p plain) sign() uint64 { return p.about << (63 - placesBits) & (1 << 63) }

const (
	// plainRun is how many numbers are read at a time: enough to make the call cheap, and few enough to stay in the first-level cache.
	plainRun = 32
	// plainAhead is how much text plains needs, so that it need not check for the end. It reads eight bytes at offsets of up to 31.
	plainAhead = 40
)

// window is the text from the beginning of a number on.
type window [plainAhead]byte

// word returns the eight bytes at i, which is at most 32.
func (t *window) word(i int) uint64 { return binary.LittleEndian.Uint64(t[i:]) }

// digits is word for bytes that should be digits: as "00000000" XOR the text, so that digits are 0 to 9.
func (t *window) digits(i int) uint64 { return t.word(i) ^ lsb*'0' }

// first drops all but the first n digits, and shifts those up, so that zeros precede them. n is from 1 to 8.
func first(n int, digits uint64) uint64 { return digits << (uint(-8*n) & 63) }

// ends marks, by its top bit, each of eight bytes that cannot continue a plain number: one below '-', such as a comma, or one from 0x40 to 0x7f, such as
// ']'. A byte of 0x80 and above may be marked and may borrow from the bytes after it; it is no digit and no end, so what precedes it is no plain number.
func ends(text uint64) uint64 {
	return (lsb*(0x7f+'-') - text | text<<1) & msb
}

// plains reads numbers, as long as they are plain, and the commas between them. It returns how many it has put into out, and the offset after the last
// one; there it found a comma or a closing bracket. The time to read a tensor is spent here.
func plains(b []byte, i int, out []plain) (n, next int) {
	if !hasVectors {
		return plainWords(b, i, out)
	}
	next = i
	for {
		k, at := plainVectors(b, i, out[n:])
		if k > 0 {
			n, next, i = n+k, at, at+1
		}
		// After a run of the common form, one number of another form; where there are no such runs, it does not pay to come back.
		few := out[n:]
		if k >= 4 && len(few) > 0 {
			few = few[:1]
		}
		m, at := plainWords(b, i, few)
		if m > 0 {
			n, next, i = n+m, at, at+1
		}
		if m < len(few) || n == len(out) || b[next] != ',' {
			return n, next
		}
	}
}

// plainWords is plains with words of eight bytes, for all forms and processors.
//
// It looks for the end of a number first, so that the processor can begin with the next number while it still works on the digits: only the operations
// that find the end follow one another from number to number, so there are few of them. There is no branch for the sign, and as few as possible for the
// number of digits: these vary from number to number, so that the processor would often guess wrong.
func plainWords(b []byte, i int, out []plain) (n, next int) {
	next = i
	for n < len(out) && len(b)-i >= plainAhead {
		t := (*window)(b[i : i+plainAhead : i+plainAhead])
		if t[0] <= ' ' {
			if !isSpace(t[0]) {
				break
			}
			i++
			continue
		}
		var end int
		if marks := ends(t.word(0)); marks != 0 {
			end = bits.TrailingZeros64(marks) >> 3
		} else if marks := ends(t.word(8)); marks != 0 {
			end = 8 + bits.TrailingZeros64(marks)>>3
		} else if marks := ends(t.word(16)); marks != 0 {
			end = 16 + bits.TrailingZeros64(marks)>>3
		} else {
			break
		}
		about := uint64(i) << offsetBit
		i += end
		minus := 0
		if t[0] == '-' {
			minus = 1
		}
		head := t.digits(minus)
		w, places := head&0xff, end-minus-len("0.")
		if w <= 9 && head&0xff00 == ('.'^'0')<<8 {
			// One digit and a point, as in most tensors.
			x := t.digits(minus + 2)
			if uint(places-1) < 8 {
				x = first(places, x)
				if nonDigits(x) != 0 {
					break
				}
				w = w*pow10Int[places] + eightDigits(x)
			} else {
				if places < 9 || places > maxDigits || places == maxDigits && w > 0 {
					break
				}
				more := min(places-8, 8)
				y := first(more, t.digits(minus+10))
				bad := nonDigits(x) | nonDigits(y)
				w = (w*1e8+eightDigits(x))*pow10Int[more] + eightDigits(y)
				if more = places - 16; more > 0 {
					z := first(more, t.digits(minus+18))
					bad |= nonDigits(z)
					w = w*pow10Int[more&7] + eightDigits(z)
				}
				if bad != 0 {
					break
				}
			}
		} else if x := first(places+2, head); uint(places+1) < 8 && nonDigits(x) == 0 {
			if w == 0 && places > -1 {
				break // a leading zero
			}
			w, places = eightDigits(x), 0
		} else if w, places = wholeAndPlaces(t, minus, end); places < 0 {
			break
		}
		c := t[end]
		if c != ',' && c != ']' {
			break
		}
		out[n] = plain{w, about | uint64(minus)<<placesBits | uint64(places)}
		n++
		next = i
		if c == ']' {
			break
		}
		i++
	}
	return n, next
}

// wholeAndPlaces reads the text t[i:end] if it is two to seven digits, a point and more digits. If it is not, places is -1.
func wholeAndPlaces(t *window, i, end int) (w uint64, places int) {
	head := t.digits(i & 1)
	point := head ^ lsb*('.'^'0')
	whole := bits.TrailingZeros64((point-lsb)&^point&msb) >> 3
	if whole < 2 || whole > 7 || head&0xff == 0 {
		return 0, -1
	}
	places = end - i - whole - 1
	if places < 1 || whole+places > maxDigits {
		return 0, -1
	}
	x := first(whole, head)
	bad := nonDigits(x)
	w = eightDigits(x)
	for at, left := i+whole+1, places; left > 0; at, left = at+8, left-8 {
		n := min(left, 8)
		x = first(n, t.digits(at&31))
		bad |= nonDigits(x)
		w = w*pow10Int[n] + eightDigits(x)
	}
	if bad != 0 {
		return 0, -1
	}
	return w, places
}

// plains reads the next numbers, at most limit, if they are plain. It moves on only with the caller, to next.
func (r *Reader) plains(limit int) (found []plain, next int) {
	out := r.plain[:min(plainRun, limit)]
	if len(r.body)-r.pos >= plainAhead {
		n, next := plains(r.body, r.pos, out)
		return out[:n], next
	}
	// The end of the text is near: read a copy with zeros behind it.
	k := copy(r.tail[:], r.body[r.pos:])
	clear(r.tail[k:])
	n, next := plains(r.tail[:], 0, out)
	for i := range out[:n] {
		out[i].about += uint64(r.pos) << offsetBit
	}
	return out[:n], r.pos + next
}
