package shm

import (
	"fmt"
	"math/bits"
)

// Block is a run of bytes of a segment: Off bytes from the segment's start, Cap bytes long.
type Block struct{ Off, Cap uint64 }

// Size classes: 64, 128, 192 and 256 bytes, then four to a power of two: 320, 384, 448, 512, 640, 768, 896, 1,024,
// 1,280 … Four is the usual trade-off. Beyond 256 bytes a block is at most a quarter larger than requested, and batches
// of one model that vary by a few queries mostly share a class, whose blocks are warm. With 64 bytes as the smallest
// step every class keeps the alignment.
const (
	classesPerDoubling = 4
	// numClasses covers a region of MaxBytes, whose class is 99.
	numClasses = 100
)

// Slab tracks which bytes of a region of a segment are free. It never touches the region: all its state is in private
// memory, where no peer can write.
//
// It keeps one free list for each size class, last in, first out, so that Alloc returns the most recently used block,
// which is still in the processor's cache. Blocks are carved from the front of the region as needed. A carved block
// keeps its size until everything is free again; then the slab forgets all blocks and starts over. So fragmentation is
// temporary: an Alloc that fails while blocks are in use succeeds at the latest when all of them are back, if the
// region can hold it at all. A caller that stops sending until there is room therefore cannot get stuck.
//
// A Slab has one user at a time.
type Slab struct {
	offset uint64 // start of the region
	end    uint64 // end of the region
	carved uint64 // start of the memory that has not been handed out since the last restart
	inUse  uint64 // bytes in blocks handed out

	free     [numClasses][]Block // list i: size(i) <= Cap < size(i+1)
	nonEmpty [2]uint64           // bit i: free[i] has blocks
}

// NewSlab returns a slab over the bytes from offset to offset + sizeBytes of a segment. For the whole slab of a segment
// s that is NewSlab(SlabOffset(entries), s.Size()-SlabOffset(entries)). It panics if offset is not a multiple of
// BlockAlign or the region is larger than a segment can be.
func NewSlab(offset, sizeBytes uint64) *Slab {
	if offset%BlockAlign != 0 || offset > MaxBytes || sizeBytes > MaxBytes {
		panic(fmt.Sprintf("shm: a slab of %d bytes at offset %d: expected an offset that is a multiple of %d, and at most %d bytes",
			sizeBytes, offset, BlockAlign, uint64(MaxBytes)))
	}
	return &Slab{offset: offset, end: offset + sizeBytes&^(BlockAlign-1), carved: offset}
}

// Alloc takes a block of at least n bytes whose offset is a multiple of 64. It returns false if there is none now. The
// caller owns the block until it calls Free, exactly once.
//
// It tries, in this order: a free block of the class or up to one doubling above it, because a warm block that is too
// large is cheaper than cold memory; fresh memory; any larger block.
func (s *Slab) Alloc(n uint64) (Block, bool) {
	if n > s.end-s.offset {
		return Block{}, false
	}
	need := units(n)
	class := classAbove(need)
	found := s.firstNonEmpty(class)
	if found > class+classesPerDoubling {
		if b, ok := s.carve(need*BlockAlign, classUnits(class)*BlockAlign); ok {
			s.inUse += b.Cap
			return b, true
		}
	}
	if found == numClasses {
		return Block{}, false
	}
	b := s.pop(found)
	s.inUse += b.Cap
	return b, true
}

// Free gives a block back. It panics if the block cannot belong to this slab. It does not always detect a block that is
// freed twice.
func (s *Slab) Free(b Block) {
	// This avoids Off+Cap, which could overflow.
	if b.Off%BlockAlign != 0 || b.Cap%BlockAlign != 0 || b.Cap == 0 ||
		b.Off < s.offset || b.Off > s.carved || b.Cap > s.carved-b.Off || b.Cap > s.inUse {
		panic(fmt.Sprintf("shm: free of block {offset %d, capacity %d}, which is not in use in the slab [%d, %d) with %d bytes in use",
			b.Off, b.Cap, s.offset, s.end, s.inUse))
	}
	s.inUse -= b.Cap
	if s.inUse == 0 {
		s.restart()
		return
	}
	class := classBelow(b.Cap / BlockAlign)
	s.free[class] = append(s.free[class], b)
	s.nonEmpty[class/64] |= 1 << (class % 64)
}

// InUse returns the number of bytes in blocks handed out.
func (s *Slab) InUse() uint64 { return s.inUse }

// restart forgets every block. The lists keep their memory, so that steady state does not allocate.
func (s *Slab) restart() {
	for w := range s.nonEmpty {
		for ; s.nonEmpty[w] != 0; s.nonEmpty[w] &= s.nonEmpty[w] - 1 {
			class := w*64 + bits.TrailingZeros64(s.nonEmpty[w])
			s.free[class] = s.free[class][:0]
		}
	}
	s.carved = s.offset
}

// carve cuts a block of wantBytes from the front of the fresh memory. At the end of the region, if wantBytes no longer
// fit but needBytes do, the block is all that is left.
func (s *Slab) carve(needBytes, wantBytes uint64) (Block, bool) {
	left := s.end - s.carved
	if needBytes > left {
		return Block{}, false
	}
	b := Block{Off: s.carved, Cap: min(wantBytes, left)}
	s.carved += b.Cap
	return b, true
}

func (s *Slab) pop(class int) Block {
	list := s.free[class]
	b := list[len(list)-1]
	list = list[:len(list)-1]
	s.free[class] = list
	if len(list) == 0 {
		s.nonEmpty[class/64] &^= 1 << (class % 64)
	}
	return b
}

// firstNonEmpty returns the first class from class on that has a free block, or numClasses.
func (s *Slab) firstNonEmpty(class int) int {
	w := class / 64
	if rest := s.nonEmpty[w] >> (class % 64); rest != 0 {
		return class + bits.TrailingZeros64(rest)
	}
	for w++; w < len(s.nonEmpty); w++ {
		if s.nonEmpty[w] != 0 {
			return w*64 + bits.TrailingZeros64(s.nonEmpty[w])
		}
	}
	return numClasses
}

// units returns the number of BlockAlign units that hold n bytes, at least one.
func units(n uint64) uint64 {
	if n == 0 {
		return 1
	}
	return (n-1)/BlockAlign + 1
}

// classUnits returns the size of a class in units of BlockAlign. Classes 0 to 3 are 1 to 4 units; the four classes of
// each further doubling are 5, 6, 7 and 8 units, times a power of two.
func classUnits(class int) uint64 {
	if class < classesPerDoubling {
		return uint64(class) + 1
	}
	return uint64(class%classesPerDoubling+classesPerDoubling+1) << (class/classesPerDoubling - 1)
}

// classAbove returns the smallest class of at least u units, u ≥ 1. Example: u = 9; u−1 = 8 = 100₀₂ has four bits, of
// which the upper three, 100₂ = 4, name the class within its doubling and one is rounded away: class 8, of 5 << 1 = 10
// units.
func classAbove(u uint64) int {
	u--
	if u < classesPerDoubling {
		return int(u)
	}
	shift := bits.Len64(u) - 3
	return classesPerDoubling*(shift+1) + int(u>>shift) - classesPerDoubling
}

// classBelow returns the largest class of at most u units, u ≥ 1.
func classBelow(u uint64) int {
	class := classAbove(u)
	if classUnits(class) > u {
		class--
	}
	return class
}
