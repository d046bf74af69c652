package wire

import (
	"fmt"
)

// retainBytes is how much scratch memory a Builder keeps per section between blocks, so that one answer of a gigabyte
// is not kept.
const retainBytes = 1 << 20

// Builder lays out a block whose values arrive one by one, as a worker's outputs do. It writes straight into the block
// as long as they fit. The zero value is ready for Begin. A Builder that is used again does not allocate once it has
// grown to the traffic.
//
// Fixed sections come first, whatever their order in the schema. The first ragged section follows and grows in place.
// The other ragged sections are collected in scratch memory, and Finish copies them behind it. What does not fit goes
// to scratch memory without limit; Finish then returns the whole block from there, for the protocol's NEED_MORE.
type Builder struct {
	schema   *Schema
	block    []byte
	count    int
	head     []byte // section table and fixed sections, in the block or in ownHead
	ownHead  []byte
	sections []sectionBuilder
}

type sectionBuilder struct {
	off     uint64 // offset of a fixed section in head
	written bool   // Fixed was called for a fixed section
	// buf is the part of a ragged section that is written. If direct is set it lies in the block, where its capacity is
	// the room that is left; otherwise it lies in own.
	buf, own []byte
	direct   bool
}

// Begin starts a block of count queries in block, which may be too small or empty.
func (b *Builder) Begin(sc *Schema, block []byte, count int) error {
	if sc.err != nil {
		return sc.err
	}
	b.schema, b.block, b.count = sc, block, count
	if cap(b.sections) < len(sc.sections) {
		b.sections = append(b.sections[:cap(b.sections)], make([]sectionBuilder, len(sc.sections)-cap(b.sections))...)
	}
	b.sections = b.sections[:len(sc.sections)]
	end := sc.tableBytes
	tables := uint64(0)
	for s := range sc.sections {
		sec, out := &sc.sections[s], &b.sections[s]
		*out = sectionBuilder{own: out.own}
		if sec.fixed {
			out.off = alignUp(end, BlockAlign)
			end = addSat(out.off, mulSat(uint64(count), sec.item))
		} else {
			tables = addSat(tables, mulSat(uint64(count), sec.entry))
		}
	}
	if count < 0 || end > maxBlockBytes || tables > maxBlockBytes {
		return fmt.Errorf("%w: %d queries take more than %d bytes", ErrBlock, count, uint64(maxBlockBytes))
	}
	inBlock := end <= uint64(len(block))
	if inBlock {
		b.head = block[:end:end]
	} else {
		b.ownHead = scratch(b.ownHead, int(end))
		b.head = b.ownHead
	}
	clear(b.head[:sc.tableBytes])
	b.beginRagged(inBlock)
	return nil
}

// maxBlockBytes bounds the memory that Begin allocates before anything is written. It is far above any segment.
const maxBlockBytes = 1 << 40

func (b *Builder) beginRagged(inBlock bool) {
	start := alignUp(uint64(len(b.head)), BlockAlign)
	for s := range b.schema.sections {
		sec, out := &b.schema.sections[s], &b.sections[s]
		if sec.fixed {
			continue
		}
		tables := b.count * int(sec.entry)
		if inBlock && start+uint64(tables) <= uint64(len(b.block)) {
			out.direct = true
			out.buf = b.block[start : start+uint64(tables) : len(b.block)]
		} else {
			out.own = scratch(out.own, tables)
			out.buf = out.own[:tables]
		}
		inBlock = false // only the first can grow in place
		clear(out.buf)  // offset 0 means that an item is missing: the tables lie there
	}
}

func scratch(own []byte, n int) []byte {
	if cap(own) < n || cap(own) > retainBytes {
		return make([]byte, n)
	}
	return own[:n]
}

// Fixed returns the memory of a fixed section, an array of shape (count, *shape). It is zeroed at the first call and
// must be filled before Finish. Fixed returns nil for a ragged section.
func (b *Builder) Fixed(s int) []byte {
	sec, out := &b.schema.sections[s], &b.sections[s]
	if !sec.fixed {
		return nil
	}
	end := out.off + uint64(b.count)*sec.item
	data := b.head[out.off:end:end]
	if !out.written {
		out.written = true
		clear(data) // do not leak an earlier batch's outputs
	}
	return data
}

// Item reserves n bytes for query i of a ragged section and returns them. The caller fills them before the next call of
// any method. dims are the item's dimensions, none for rank 0. If an item is written twice, the last value counts.
func (b *Builder) Item(s, i, n int, dims []int64) ([]byte, error) {
	sec, out := &b.schema.sections[s], &b.sections[s]
	switch {
	case sec.fixed:
		return nil, fmt.Errorf("%w: %s is %v: items of a fixed section are written with Fixed", ErrBlock, sec.name(s), sec.spec)
	case uint(i) >= uint(b.count):
		return nil, fmt.Errorf("%w: %s of query %d: the batch has %d queries", ErrBlock, sec.name(s), i, b.count)
	case n < 0:
		return nil, fmt.Errorf("%w: %s of query %d has %d bytes", ErrBlock, sec.name(s), i, n)
	}
	if err := sec.checkDims(uint64(n), dims); err != nil {
		return nil, fmt.Errorf("%w: %s of query %d: %w", ErrBlock, sec.name(s), i, err)
	}
	used := len(out.buf)
	start := int(alignUp(uint64(used), itemAlign))
	out.extend(start + n)
	clear(out.buf[used:start])
	putExtent(out.buf[i*extentBytes:], uint64(start), uint64(n))
	putDims(out.buf[b.count*extentBytes+i*8*len(dims):], dims)
	return out.buf[start : start+n : start+n], nil
}

func (o *sectionBuilder) extend(n int) {
	if n <= cap(o.buf) {
		o.buf = o.buf[:n]
		return
	}
	grown := o.own
	if n <= cap(grown) { // it was direct until now
		grown = grown[:n]
	} else {
		grown = make([]byte, n, max(n, 2*cap(grown)))
	}
	copy(grown, o.buf)
	o.buf, o.own, o.direct = grown, grown, false
}

// Finish completes the block. If the block fits the memory given to Begin, kept is nil. Otherwise kept is the whole
// block of length bytes, and the caller owns it. Finish fails if a value is missing or contradicts its spec.
func (b *Builder) Finish() (length uint64, kept []byte, err error) {
	end, gap := uint64(len(b.head)), b.schema.tableBytes
	inBlock := end <= uint64(len(b.block))
	for s := range b.sections {
		sec, out := &b.schema.sections[s], &b.sections[s]
		if sec.fixed {
			if !out.written {
				return 0, nil, fmt.Errorf("%w: %s was not written", ErrBlock, sec.name(s))
			}
			length := uint64(b.count) * sec.item
			clear(b.head[gap:out.off])
			putExtent(b.head[s*extentBytes:], out.off, length)
			gap = out.off + length
			continue
		}
		if err := b.complete(s); err != nil {
			return 0, nil, err
		}
		// The first ragged section begins behind the head in both cases, so offsets are the same in place and in kept.
		out.off = alignUp(end, BlockAlign)
		end = out.off + uint64(len(out.buf))
		putExtent(b.head[s*extentBytes:], out.off, uint64(len(out.buf)))
	}
	dst := b.block
	if !inBlock || end > uint64(len(b.block)) {
		kept = make([]byte, end)
		copy(kept, b.head)
		dst = kept
	}
	pos := uint64(len(b.head))
	for s := range b.sections {
		out := &b.sections[s]
		if b.schema.sections[s].fixed {
			continue
		}
		if kept == nil {
			clear(dst[pos:out.off])
		}
		if kept != nil || !out.direct {
			copy(dst[out.off:], out.buf)
		}
		pos = out.off + uint64(len(out.buf))
		if cap(out.own) > retainBytes {
			out.own, out.buf = nil, nil
		}
	}
	return end, kept, nil
}

// complete checks that every item of a ragged section was written, and checks the elements of BYTES items with a rank.
func (b *Builder) complete(s int) error {
	sec, out := &b.schema.sections[s], &b.sections[s]
	walk := sec.spec.DType.Variable() && len(sec.spec.Shape) > 0
	for i := range b.count {
		x := getExtent(out.buf[i*extentBytes:])
		if x.off == 0 {
			return fmt.Errorf("%w: %s of query %d was not written", ErrBlock, sec.name(s), i)
		}
		if !walk {
			continue
		}
		elements := int64(1)
		rank := len(sec.spec.Shape)
		for j := range rank {
			elements *= getDim(out.buf[b.count*extentBytes+8*(i*rank+j):])
		}
		if err := checkElements(out.buf[x.off:x.off+x.length], elements); err != nil {
			return fmt.Errorf("%w: %s of query %d: %w", ErrBlock, sec.name(s), i, err)
		}
	}
	return nil
}
