package wire

import (
	"encoding/binary"
	"fmt"
	"slices"
	"unicode/utf8"

	"github.com/xebec-serving/xebec/api"
)

// Reader reads a block that another process wrote and may be rewriting. The zero value is ready for [Schema.Open],
// which fills it. A Reader that is used again does not allocate once it has grown to the traffic. It holds the block
// until the next Open.
//
// All tables are private copies, checked once. The data are not copied. A caller that relies on their content must copy
// them first, above all the lengths inside BYTES items with a rank: see [Reader.AppendItem] and [Reader.CheckItem].
type Reader struct {
	schema  *Schema
	block   []byte
	count   int
	extents []extent // of the sections
	entries []extent // of the items of all ragged sections, in the order of the sections, count per section
	dims    []int64  // of the same items
	first   []int    // index of a section's first entry
	dimAt   []int    // index of a section's first dimension
}

type extent struct{ off, length uint64 }

// Open checks the tables of a block of count queries. If it fails, r returns nothing.
//
// It checks the bounds of every section and item, and that they do not claim more bytes together than there are:
// otherwise a block with overlapping items would make its reader copy many times what was written.
func (sc *Schema) Open(r *Reader, block []byte, count int) error {
	r.schema, r.block, r.count = sc, nil, 0
	if sc.err != nil {
		return sc.err
	}
	if count < 0 || uint64(len(block)) < sc.tableBytes {
		return fmt.Errorf("%w: %d bytes for %d queries, the section table alone takes %d", ErrBlock, len(block), count, sc.tableBytes)
	}
	r.extents = appendExtents(r.extents[:0], block, len(sc.sections))
	r.entries, r.dims = r.entries[:0], r.dims[:0]
	r.first, r.dimAt = r.first[:0], r.dimAt[:0]
	unclaimed := uint64(len(block)) - sc.tableBytes
	for s := range sc.sections {
		sec, x := &sc.sections[s], r.extents[s]
		if x.off%BlockAlign != 0 || x.off < sc.tableBytes || x.off > uint64(len(block)) || x.length > uint64(len(block))-x.off {
			return fmt.Errorf("%w: %s: offset %d and length %d do not lie in a block of %d bytes, or are not aligned", ErrBlock, sec.name(s), x.off, x.length, len(block))
		}
		if x.length > unclaimed {
			return fmt.Errorf("%w: %s overlaps another section", ErrBlock, sec.name(s))
		}
		unclaimed -= x.length
		r.first, r.dimAt = append(r.first, len(r.entries)), append(r.dimAt, len(r.dims))
		if sec.fixed {
			if want := mulSat(uint64(count), sec.item); x.length != want {
				return fmt.Errorf("%w: %s has %d bytes, expected %d: %d of %v", ErrBlock, sec.name(s), x.length, want, count, sec.spec)
			}
			continue
		}
		if err := r.openRagged(sec, s, block[x.off:x.off+x.length], count); err != nil {
			return err
		}
	}
	r.block, r.count = block, count
	return nil
}

func (r *Reader) openRagged(sec *section, s int, data []byte, count int) error {
	tables := mulSat(uint64(count), sec.entry)
	if tables > uint64(len(data)) {
		return fmt.Errorf("%w: %s has %d bytes, the tables of %d items alone take %d", ErrBlock, sec.name(s), len(data), count, tables)
	}
	// Copy before checking: the peer may change the tables meanwhile. Their size is bounded above.
	rank := len(sec.spec.Shape)
	r.entries = appendExtents(r.entries, data, count)
	r.dims = slices.Grow(r.dims, count*rank)
	for d := data[count*extentBytes : tables]; len(d) > 0; d = d[8:] {
		r.dims = append(r.dims, getDim(d))
	}
	entries, dims := r.entries[r.first[s]:], r.dims[r.dimAt[s]:]
	unclaimed := uint64(len(data)) - tables
	for i, x := range entries {
		if x.off%itemAlign != 0 || x.off < tables || x.off > uint64(len(data)) || x.length > uint64(len(data))-x.off {
			return fmt.Errorf("%w: %s of query %d: offset %d and length %d do not lie in a section of %d bytes, or are not aligned", ErrBlock, sec.name(s), i, x.off, x.length, len(data))
		}
		if x.length > unclaimed {
			return fmt.Errorf("%w: %s of query %d overlaps another item", ErrBlock, sec.name(s), i)
		}
		unclaimed -= x.length
		if err := sec.checkDims(x.length, dims[i*rank:(i+1)*rank]); err != nil {
			return fmt.Errorf("%w: %s of query %d: %w", ErrBlock, sec.name(s), i, err)
		}
	}
	return nil
}

func appendExtents(dst []extent, table []byte, n int) []extent {
	dst = slices.Grow(dst, n)
	for i := range n {
		dst = append(dst, getExtent(table[i*extentBytes:]))
	}
	return dst
}

// Len is the number of queries of the block.
func (r *Reader) Len() int { return r.count }

// Item returns the data of query i in section s, within the block, and its dimensions (none if the section is fixed or
// of rank 0) in the memory of dims. It checks the elements of a BYTES item with a rank, but the peer may change them
// later, so a copy must be checked again. AppendItem does both.
func (r *Reader) Item(i, s int, dims []int64) (data []byte, outDims []int64, err error) {
	data, outDims, err = r.item(i, s, dims)
	if err == nil {
		err = r.CheckItem(i, s, data, outDims)
	}
	return data, outDims, err
}

// AppendItem appends a copy of the item to dst and checks the copy. data is the copy alone, without dst.
func (r *Reader) AppendItem(dst []byte, i, s int, dims []int64) (out, data []byte, outDims []int64, err error) {
	data, outDims, err = r.item(i, s, dims)
	if err != nil {
		return dst, nil, outDims, err
	}
	n := len(dst)
	dst = append(dst, data...)
	data = dst[n:len(dst):len(dst)]
	return dst, data, outDims, r.CheckItem(i, s, data, outDims)
}

// CheckItem checks a copy of an item as AppendItem does, for callers that copy themselves.
func (r *Reader) CheckItem(i, s int, data []byte, dims []int64) error {
	sec := &r.schema.sections[s]
	if !sec.spec.DType.Variable() {
		return nil
	}
	if len(dims) > 0 {
		if err := checkElements(data, api.Elements(dims)); err != nil {
			return fmt.Errorf("%w: %s of query %d: %w", ErrBlock, sec.name(s), i, err)
		}
	}
	if sec.spec.DType == api.String && !validText(data, len(dims) > 0) {
		return fmt.Errorf("%w: %s of query %d is not valid UTF-8, which a string is: declare it as bytes to give anything", ErrBlock, sec.name(s), i)
	}
	return nil
}

// validText reports whether the elements of a checked string item are UTF-8.
func validText(data []byte, prefixed bool) bool {
	if !prefixed {
		return utf8.Valid(data)
	}
	for len(data) > 0 {
		n := 4 + binary.LittleEndian.Uint32(data)
		if !utf8.Valid(data[4:n]) {
			return false
		}
		data = data[n:]
	}
	return true
}

func (r *Reader) item(i, s int, dims []int64) ([]byte, []int64, error) {
	if uint(i) >= uint(r.count) || uint(s) >= uint(len(r.extents)) {
		return nil, dims[:0], fmt.Errorf("%w: no item %d of section %d: the block has %d queries and %d sections", ErrBlock, i, s, r.count, len(r.extents))
	}
	sec, x := &r.schema.sections[s], r.extents[s]
	if sec.fixed {
		x.off += uint64(i) * sec.item
		x.length = sec.item
		return r.slice(x), dims[:0], nil
	}
	entry := r.entries[r.first[s]+i]
	return r.slice(extent{x.off + entry.off, entry.length}), append(dims[:0], r.Dims(i, s)...), nil
}

// Dims returns the dimensions of query i in section s, none if the section is fixed or of rank 0. They are a private
// copy, checked by Open, valid until the next Open and not to be modified.
func (r *Reader) Dims(i, s int) []int64 {
	if uint(i) >= uint(r.count) || uint(s) >= uint(len(r.extents)) || r.schema.sections[s].fixed {
		return nil
	}
	rank := len(r.schema.sections[s].spec.Shape)
	at := r.dimAt[s] + i*rank
	return r.dims[at : at+rank : at+rank]
}

// Section returns all of section s, within the block. For a fixed tensor it is the array of shape (count, *shape).
func (r *Reader) Section(s int) []byte {
	if r.block == nil {
		return nil
	}
	return r.slice(r.extents[s])
}

func (r *Reader) slice(x extent) []byte {
	return r.block[x.off : x.off+x.length : x.off+x.length]
}
