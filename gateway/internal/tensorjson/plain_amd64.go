package tensorjson

import "golang.org/x/sys/cpu"

// hasVectors reports whether the processor has the instructions of plainVectors. Only tests change it.
var hasVectors = cpu.X86.HasAVX2 && cpu.X86.HasBMI1

// shuffles has a row for each pair of a number's length, up to 15, and its sign: the index is twice the length, and one more with a sign. digits moves
// the digits of d.ddd to the end of sixteen bytes, without the point and the sign, and puts zeros before them. If there are no digits on one side of
// the point, it moves the point, which is no digit. about is that of a plain number at 0.
//
//nolint:unused // by plain_amd64.s
var shuffles = func() (rows [32]struct {
	digits [16]byte
	about  uint64
	_      uint64
}) {
	const zero = 0x80
	for i := range rows {
		length, minus := i/2, i%2
		row := &rows[i]
		point := minus + 1
		places := length - point - 1
		for at := range row.digits {
			from := length - len(row.digits) + at
			switch {
			case places < 1:
				row.digits[at] = byte(point)
			case from > point:
				row.digits[at] = byte(from)
			case from == point:
				row.digits[at] = byte(minus)
			default:
				row.digits[at] = zero
			}
		}
		row.about = uint64(minus)<<placesBits | uint64(max(places, 0))
	}
	return rows
}()

// longTails has a row for each number of places from 13 to 18: a mask of the digits after the point among the last sixteen bytes, and what the digit
// before the point and the first two after it count beside those.
//
//nolint:unused // by plain_amd64.s
var longTails = func() (rows [6]struct {
	mask               [16]byte
	whole, tenth, next uint64
	places             uint64
	_                  [2]uint64
}) {
	for i := range rows {
		row, places := &rows[i], 13+i
		in := min(places, len(row.mask))
		for at := len(row.mask) - in; at < len(row.mask); at++ {
			row.mask[at] = 0xff
		}
		power := pow10Int[8] * pow10Int[in-8] // of the last sixteen bytes
		row.whole, row.places = power*pow10Int[places-in], uint64(places)
		if places > in {
			row.tenth = power * pow10Int[places-in-1]
		}
		if places > in+1 {
			row.next = power
		}
	}
	return rows
}()

// plainVectors is plains for numbers of one digit, a point and up to 18 more digits, that a comma follows. It stops before any other, and within 34
// bytes of the end of b. It skips one space before a number. Results are as of plains.
//
//go:noescape
func plainVectors(b []byte, i int, out []plain) (n, next int)
