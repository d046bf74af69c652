package state

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"slices"
	"strings"
)

// A record is a state in the file:
//
//	offset  bytes
//	0       1   version, 1
//	1       16  the last writer
//	17      8   the sequence number of its last update, little-endian
//	25      …   number of fields, uvarint; then for each, ordered by name without repetition:
//	            length of the name, uvarint; the name; the bits of a finite float64, 8 bytes little-endian
//	-4      4   CRC-32C of the key and of everything before, little-endian
//
// A record has exactly one encoding, and decoding accepts no other. It has a checksum because bbolt's pages have none.
type record struct {
	writer [16]byte
	seq    uint64
	fields []Total // ordered by name
}

const (
	recordVersion = 1
	recordHeader  = 1 + 16 + 8
	recordSum     = 4
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func sumOf(key, body []byte) uint32 {
	return crc32.Update(crc32.Checksum(key, castagnoli), castagnoli, body)
}

// appendRecord appends the encoding of r as the value of key.
func appendRecord(to, key []byte, r *record) []byte {
	from := len(to)
	to = append(to, recordVersion)
	to = append(to, r.writer[:]...)
	to = binary.LittleEndian.AppendUint64(to, r.seq)
	to = binary.AppendUvarint(to, uint64(len(r.fields)))
	for _, f := range r.fields {
		to = binary.AppendUvarint(to, uint64(len(f.Name)))
		to = append(to, f.Name...)
		to = binary.LittleEndian.AppendUint64(to, math.Float64bits(f.Value))
	}
	return binary.LittleEndian.AppendUint32(to, sumOf(key, to[from:]))
}

// decodeRecord decodes the value of key. A nil value is an empty record. The record shares no memory with the value, which is the file's.
func decodeRecord(key, value []byte) (record, error) {
	if value == nil {
		return record{fields: []Total{}}, nil
	}
	if len(value) < recordHeader+1+recordSum {
		return record{}, fmt.Errorf("it has %d bytes, fewer than any record", len(value))
	}
	body, sum := value[:len(value)-recordSum], binary.LittleEndian.Uint32(value[len(value)-recordSum:])
	if sumOf(key, body) != sum {
		return record{}, errors.New("its checksum is wrong")
	}
	return decodeBody(body)
}

func decodeBody(body []byte) (record, error) {
	var r record
	if len(body) < recordHeader {
		return r, errors.New("it ends in its header")
	}
	if body[0] != recordVersion {
		return r, fmt.Errorf("its version is %d: expected %d", body[0], recordVersion)
	}
	copy(r.writer[:], body[1:])
	r.seq = binary.LittleEndian.Uint64(body[17:])
	rest := body[recordHeader:]
	count, rest, err := cutUvarint(rest, maxFields)
	if err != nil {
		return r, fmt.Errorf("the number of its fields: %w", err)
	}
	r.fields = make([]Total, 0, min(count, len(rest)/10)) // a field has at least 10 bytes
	for i := range count {
		length, after, err := cutUvarint(rest, maxFieldBytes)
		if err != nil {
			return r, fmt.Errorf("the length of the name of field %d: %w", i, err)
		}
		if length == 0 || len(after) < length+8 {
			return r, fmt.Errorf("field %d has no name or is truncated", i)
		}
		f := Total{string(after[:length]), math.Float64frombits(binary.LittleEndian.Uint64(after[length:]))}
		if i > 0 && r.fields[i-1].Name >= f.Name {
			return r, fmt.Errorf("field %d is out of order", i)
		}
		if !finite(f.Value) {
			return r, fmt.Errorf("field %d is not a finite number", i)
		}
		r.fields = append(r.fields, f)
		rest = after[length+8:]
	}
	if len(rest) > 0 {
		return r, fmt.Errorf("%d bytes follow its last field", len(rest))
	}
	return r, nil
}

// cutUvarint decodes a number of at most limit, in its shortest form, from the front of b and returns the rest.
func cutUvarint(b []byte, limit int) (int, []byte, error) {
	x, n := binary.Uvarint(b)
	if n <= 0 || n > 1 && b[n-1] == 0 {
		return 0, nil, errors.New("it is not a uvarint in its shortest form")
	}
	if x > uint64(limit) {
		return 0, nil, fmt.Errorf("it is %d: expected at most %d", x, limit)
	}
	return int(x), b[n:], nil
}

// apply adds an update of writer to the record unless it was applied before. If it returns a reason, the update is refused and the record
// must not be stored.
func (r *record) apply(writer [16]byte, u *Update) (changed bool, reason string) {
	if r.writer == writer && r.seq >= u.Seq {
		return false, ""
	}
	for i := range u.Fields {
		f := &u.Fields[i]
		at, found := slices.BinarySearchFunc(r.fields, f.Name, func(t Total, name string) int { return strings.Compare(t.Name, name) })
		if !found {
			r.fields = slices.Insert(r.fields, at, Total{f.Name, f.Base})
		}
		t := &r.fields[at]
		if t.Value += f.Delta; !finite(t.Value) {
			return false, reasonOverflow(f.Name)
		}
	}
	if len(r.fields) > maxFields {
		return false, reasonTooMany(len(r.fields))
	}
	r.writer, r.seq = writer, u.Seq
	return true, ""
}
