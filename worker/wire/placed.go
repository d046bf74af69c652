package wire

import "fmt"

// PlacedValues is a batch whose block has one section, and of which some items lie behind the rest of the block already.
type PlacedValues interface {
	Values
	// Place returns where the item of query i lies, in bytes from the start of the block, or 0 if it is to be written.
	Place(i int) uint64
}

// CanPlace reports whether a block may have placed items: it has one section.
func (sc *Schema) CanPlace() bool { return sc.err == nil && len(sc.sections) == 1 }

// FixedItem is the size of an item of the only section if that is fixed, or 0. Placed items of a fixed section must all be placed, one
// behind the other in the order of their queries, the first at a multiple of BlockAlign. Those of a ragged section may lie anywhere at
// multiples of 8, in any order.
func (sc *Schema) FixedItem() uint64 {
	if !sc.sections[0].fixed {
		return 0
	}
	return sc.sections[0].item
}

// SizePlaced is the number of bytes that WritePlaced needs. The schema must satisfy CanPlace.
func (sc *Schema) SizePlaced(v PlacedValues) uint64 {
	pos := sc.tableBytes
	sec := &sc.sections[0]
	if sec.fixed {
		return pos
	}
	count := v.Len()
	pos = addSat(pos, mulSat(uint64(count), sec.entry))
	for i := range count {
		if v.Place(i) == 0 {
			pos = addSat(alignUp(pos, itemAlign), uint64(len(v.At(i, 0).Data)))
		}
	}
	return pos
}

// WritePlaced writes the tables of a block, and the items that are not placed, to dst, the start of the block. It returns the length of
// the block, up to the end of its last item. The schema must satisfy CanPlace.
func (sc *Schema) WritePlaced(dst []byte, v PlacedValues) (length uint64, err error) {
	if uint64(len(dst)) < sc.tableBytes {
		return 0, errNoRoom(len(dst))
	}
	clear(dst[:sc.tableBytes])
	sec, start := &sc.sections[0], sc.tableBytes
	if sec.fixed {
		start = v.Place(0)
		length, err = sec.checkPlaced(v)
	} else {
		length, err = sec.writePlaced(dst[start:], start, v)
	}
	if err != nil {
		return 0, err
	}
	putExtent(dst, start, length)
	return start + length, nil
}

func (sec *section) checkPlaced(v PlacedValues) (length uint64, err error) {
	first := v.Place(0)
	if first%BlockAlign != 0 {
		return 0, fmt.Errorf("%w: %s begins at byte %d, expected a multiple of %d", ErrBlock, sec.name(0), first, BlockAlign)
	}
	for i := range v.Len() {
		if n, at := uint64(len(v.At(i, 0).Data)), v.Place(i); n != sec.item || at != first+length {
			return 0, fmt.Errorf("%w: %s of query %d lies at byte %d and has %d bytes, expected byte %d and %d bytes", ErrBlock, sec.name(0), i, at, n, first+length, sec.item)
		}
		length += sec.item
	}
	return length, nil
}

func (sec *section) writePlaced(dst []byte, at uint64, v PlacedValues) (length uint64, err error) {
	count, rank := v.Len(), len(sec.spec.Shape)
	pos := mulSat(uint64(count), sec.entry)
	if pos > uint64(len(dst)) {
		return 0, errNoRoom(len(dst))
	}
	entries, dims := dst, dst[count*extentBytes:pos]
	for i := range count {
		value := v.At(i, 0)
		if err := sec.check(value.Data, value.Dims); err != nil {
			return 0, fmt.Errorf("%w: %s of query %d: %w", ErrBlock, sec.name(0), i, err)
		}
		n, start := uint64(len(value.Data)), v.Place(i)
		if start != 0 {
			start -= at
		} else {
			start = alignUp(pos, itemAlign)
			if start > uint64(len(dst)) || n > uint64(len(dst))-start {
				return 0, errNoRoom(len(dst))
			}
			clear(dst[pos:start])
			pos = start + uint64(copy(dst[start:], value.Data))
		}
		putExtent(entries[i*extentBytes:], start, n)
		putDims(dims[8*rank*i:], value.Dims)
		length = max(length, start+n)
	}
	return max(length, pos), nil
}
