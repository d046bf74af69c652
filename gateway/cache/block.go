package cache

import "unsafe"

// An entry is a chain of blocks. All blocks have one size and belong to one pool for each shard, so memory is never lost to
// fragments between entries, and room that small entries leave serves large ones. What is lost is the unused end of each chain, half
// a block on the average.
const (
	blockBytes = 128
	headBody   = 64             // bytes of an entry in its first block
	tailBody   = blockBytes - 4 // and in each block after it

	slabShift = 9 // blocks are allocated 512 at a time, 64 KiB
	slabMask  = 1<<slabShift - 1
)

// head is the first block of an entry: what is known of it, and the beginning of its body. There are no Go pointers in it: blocks
// refer to each other by number, so the garbage collector never looks at an entry. Block 0 is never used and means none.
//
// The body is the salt, then each input, then each output. A value is its data's length and its number of dimensions (4 bytes
// each, little-endian), the dimensions (8 bytes each), and the data.
type head struct {
	next     uint32 // second block of the chain, or the next free one
	sameSlot uint32 // next entry in the same slot of the index
	key      Key
	// confidence is what the model said of its outputs.
	confidence float64
	// newer and older are the neighbours in the queue.
	newer, older uint32
	inputBytes   uint32 // of the body: salt and inputs
	outputBytes  uint32 // of the body: outputs
	saltBytes    uint32
	model        uint32 // the serial of the model version
	flight       uint32 // number of the flight plus 1 while the entry is pending, else 0
	inputs       uint8
	outputs      uint8
	in           queueName
	uses         uint8 // hits since the hand passed, at most maxUses
	body         [headBody]byte
}

// tail is every other block of a chain, in the memory of a head.
type tail struct {
	next uint32
	body [tailBody]byte
}

// The two kinds of block are one size, or this does not compile.
var (
	_ [blockBytes - unsafe.Sizeof(head{})]struct{}
	_ [unsafe.Sizeof(head{}) - blockBytes]struct{}
	_ [blockBytes - unsafe.Sizeof(tail{})]struct{}
	_ [unsafe.Sizeof(tail{}) - blockBytes]struct{}
)

// blocksFor is how many blocks a body of n bytes takes.
func blocksFor(n int) int {
	if n <= headBody {
		return 1
	}
	return 1 + (n-headBody+tailBody-1)/tailBody
}

// pool hands out the blocks of a shard. It grows slab by slab up to its capacity and never shrinks.
type pool struct {
	slabs    [][]head
	free     uint32 // first of the blocks that were given back
	fresh    uint32 // the lowest block that was never used
	capacity int
	used     int
}

// init gives the pool room for so many blocks, none of which is allocated yet.
func (p *pool) init(capacity int) {
	*p = pool{fresh: 1, capacity: capacity}
}

// at is block i as the first one of an entry.
func (p *pool) at(i uint32) *head { return &p.slabs[i>>slabShift][i&slabMask] }

// tailAt is block i as a later one. Both kinds start with next, hold no pointers and have the same size, so that the
// conversion is one between views of plain memory.
func (p *pool) tailAt(i uint32) *tail { return (*tail)(unsafe.Pointer(p.at(i))) }

// spare is how many blocks can be taken.
func (p *pool) spare() int { return p.capacity - p.used }

// heldBytes is the memory of the slabs.
func (p *pool) heldBytes() int64 {
	if len(p.slabs) == 0 {
		return 0
	}
	last := len(p.slabs) - 1
	return (int64(last)<<slabShift + int64(len(p.slabs[last]))) * blockBytes
}

// take returns a chain of n blocks, its first and its last. The caller has made sure that they are there.
func (p *pool) take(n int) (first, last uint32) {
	first = p.takeOne()
	last = first
	for range n - 1 {
		i := p.takeOne()
		p.at(last).next = i
		last = i
	}
	p.at(last).next = 0
	return first, last
}

func (p *pool) takeOne() uint32 {
	p.used++
	if i := p.free; i != 0 {
		p.free = p.at(i).next
		return i
	}
	i := p.fresh
	p.fresh++
	if int(i>>slabShift) == len(p.slabs) {
		blocks := min(1<<slabShift, p.capacity+1-len(p.slabs)<<slabShift)
		p.slabs = append(p.slabs, make([]head, blocks))
	}
	return i
}

// give takes back the chain of n blocks that begins with first. It will be handed out again in the same order, so that chains
// which lay side by side go on to.
func (p *pool) release(first uint32, n int) {
	last := first
	for range n - 1 {
		last = p.at(last).next
	}
	p.at(last).next = p.free
	p.free = first
	p.used -= n
}
