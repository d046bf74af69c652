package oipwire

import (
	"encoding/binary"

	"github.com/xebec-serving/xebec/api"
)

// The types of fields on the wire.
const (
	typeVarint = 0
	typeFixed8 = 1
	typeBytes  = 2
	typeFixed4 = 5
)

// field is one field of a message. Only the member that belongs to its type is set.
type field struct {
	number int
	wire   int
	varint uint64 // also the bits of fixed-size fields
	bytes  []byte
}

// next takes the first field off a message. ok is false if the message is malformed there.
func next(m []byte) (f field, rest []byte, ok bool) {
	tag, m, ok := varint(m)
	if !ok || tag>>3 == 0 || tag>>3 > 1<<29-1 {
		return f, nil, false
	}
	f.number, f.wire = int(tag>>3), int(tag&7)
	switch f.wire {
	case typeVarint:
		f.varint, m, ok = varint(m)
		return f, m, ok
	case typeBytes:
		var size uint64
		if size, m, ok = varint(m); !ok || size > uint64(len(m)) {
			return f, nil, false
		}
		f.bytes = m[:size:size]
		return f, m[size:], true
	case typeFixed8:
		if len(m) < 8 {
			return f, nil, false
		}
		f.varint = binary.LittleEndian.Uint64(m)
		return f, m[8:], true
	case typeFixed4:
		if len(m) < 4 {
			return f, nil, false
		}
		f.varint = uint64(binary.LittleEndian.Uint32(m))
		return f, m[4:], true
	}
	return f, nil, false
}

// varint takes a number of variable length off a message.
func varint(m []byte) (v uint64, rest []byte, ok bool) {
	if len(m) > 0 && m[0] < 0x80 {
		return uint64(m[0]), m[1:], true
	}
	v, n := binary.Uvarint(m)
	if n <= 0 {
		return 0, nil, false
	}
	return v, m[n:], true
}

func malformed(where string) error {
	return api.Errorf(api.InvalidArgument, "%s: the message is truncated or is no protocol buffer", where)
}

// is refuses a field whose type on the wire is another one.
func (f *field) is(wire int, where, name string) error {
	if f.wire != wire {
		return api.Errorf(api.InvalidArgument, "%s.%s: the field has the wire type %d: expected %d", where, name, f.wire, wire)
	}
	return nil
}

func appendTag(dst []byte, number, wire int) []byte {
	return binary.AppendUvarint(dst, uint64(number)<<3|uint64(wire))
}

func appendBytes[T string | []byte](dst []byte, number int, v T) []byte {
	dst = appendTag(dst, number, typeBytes)
	dst = binary.AppendUvarint(dst, uint64(len(v)))
	return append(dst, v...)
}

// varintSize is the length of v on the wire.
func varintSize(v uint64) int {
	n := 1
	for v >= 0x80 {
		v >>= 7
		n++
	}
	return n
}
