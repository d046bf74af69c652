package cache

import (
	"bytes"
	"encoding/binary"
	"slices"

	"github.com/xebec-serving/xebec/api"
)

// valueBytes is the length of the header before a value's dimensions: its two lengths.
const valueBytes = 8

// encodedBytes returns the length of values in a body.
func encodedBytes(values []api.Value) int {
	n := 0
	for i := range values {
		n += valueBytes + 8*len(values[i].Dims) + len(values[i].Data)
	}
	return n
}

// cursor reads or writes the body of a chain in sequence.
type cursor struct {
	pool *pool
	part []byte // the rest of the current block
	next uint32 // the following block
}

// begin returns a cursor at the start of an entry's body.
func (p *pool) begin(e *head) cursor { return cursor{p, e.body[:], e.next} }

// resume returns a cursor n bytes into a body. last is the block that holds byte n-1, or the first block if n is 0.
func (p *pool) resume(first, last uint32, n int) cursor {
	if first == last {
		e := p.at(first)
		return cursor{p, e.body[n:], e.next}
	}
	t := p.tailAt(last)
	return cursor{p, t.body[n-headBody-(blocksFor(n)-2)*tailBody:], t.next}
}

func (c *cursor) advance() {
	t := c.pool.tailAt(c.next)
	c.part, c.next = t.body[:], t.next
}

func (c *cursor) write(b []byte) {
	for {
		n := copy(c.part, b)
		c.part, b = c.part[n:], b[n:]
		if len(b) == 0 {
			return
		}
		c.advance()
	}
}

func (c *cursor) read(b []byte) {
	for {
		n := copy(b, c.part)
		c.part, b = c.part[n:], b[n:]
		if len(b) == 0 {
			return
		}
		c.advance()
	}
}

// equal reports whether the next bytes are b, and moves past them if so.
func (c *cursor) equal(b []byte) bool {
	for {
		n := min(len(b), len(c.part))
		if !bytes.Equal(b[:n], c.part[:n]) {
			return false
		}
		c.part, b = c.part[n:], b[n:]
		if len(b) == 0 {
			return true
		}
		c.advance()
	}
}

func lengths(v *api.Value) (b [valueBytes]byte) {
	binary.LittleEndian.PutUint32(b[:], uint32(len(v.Data)))
	binary.LittleEndian.PutUint32(b[4:], uint32(len(v.Dims)))
	return b
}

func (c *cursor) writeValues(values []api.Value) {
	for i := range values {
		v := &values[i]
		b := lengths(v)
		if n := valueBytes + len(v.Data); len(v.Dims) == 0 && n <= len(c.part) { // most are small
			copy(c.part, b[:])
			copy(c.part[valueBytes:n], v.Data)
			c.part = c.part[n:]
			continue
		}
		c.write(b[:])
		for _, dim := range v.Dims {
			binary.LittleEndian.PutUint64(b[:], uint64(dim))
			c.write(b[:])
		}
		c.write(v.Data)
	}
}

func (c *cursor) equalValues(values []api.Value) bool {
	for i := range values {
		v := &values[i]
		b := lengths(v)
		if !c.equal(b[:]) {
			return false
		}
		for _, dim := range v.Dims {
			binary.LittleEndian.PutUint64(b[:], uint64(dim))
			if !c.equal(b[:]) {
				return false
			}
		}
		if !c.equal(v.Data) {
			return false
		}
	}
	return true
}

// readValues reads n values into dst and reuses its buffers.
func (c *cursor) readValues(dst []api.Value, n int) []api.Value {
	dst = resize(dst, n)
	var b [valueBytes]byte
	for i := range dst {
		v := &dst[i]
		c.read(b[:])
		data, dims := int(binary.LittleEndian.Uint32(b[:])), int(binary.LittleEndian.Uint32(b[4:]))
		v.Dims = slices.Grow(v.Dims[:0], dims)[:dims]
		for j := range v.Dims {
			c.read(b[:])
			v.Dims[j] = int64(binary.LittleEndian.Uint64(b[:]))
		}
		v.Data = slices.Grow(v.Data[:0], data)[:data]
		c.read(v.Data)
	}
	return dst
}

// copyValues copies values into dst and reuses its buffers.
func copyValues(dst, values []api.Value) []api.Value {
	dst = resize(dst, len(values))
	for i := range dst {
		dst[i].Data = append(dst[i].Data[:0], values[i].Data...)
		dst[i].Dims = append(dst[i].Dims[:0], values[i].Dims...)
	}
	return dst
}

// resize sets the length of dst to n. Elements between its length and its capacity keep their buffers.
func resize(dst []api.Value, n int) []api.Value {
	if n <= cap(dst) {
		return dst[:n]
	}
	return slices.Grow(dst[:cap(dst)], n-cap(dst))[:n]
}
