package cache

import "unsafe"

// An entry is a chain of blocks. All blocks have the same size and belong to one pool for each shard, so no memory is
// lost to fragmentation between entries, and memory freed by small entries serves large ones. The unused end of each
// chain is lost, half a block on average.
const (
	blockBytes = 128
	headBody   = 64             // bytes of an entry in its first block
	tailBody   = blockBytes - 4 // bytes of an entry in each later block

	slabShift = 9 // blocks are allocated 512 at a time, 64 KiB
	slabMask  = 1<<slabShift - 1
)

// head is the first block of an entry: its metadata and the beginning of its body. It has no Go pointers: blocks refer
// to each other by number, so the garbage collector never scans an entry. Block 0 is never used and means none.
//
// The body is the salt, then each input, then each output. A value is the length of its data and its number of
// dimensions (4 bytes each, little-endian), the dimensions (8 bytes each), and the data.
type head struct {
	next       uint32 // second block of the chain, or the next free block
	sameBucket uint32 // next entry in a chain of the index
	key        Key
	// confidence is the model's own.
	confidence float64
	// newer and older are the neighbours in the queue.
	newer, older uint32
	inputBytes   uint32 // bytes of salt and inputs in the body
	outputBytes  uint32 // bytes of outputs in the body
	saltBytes    uint32
	model        uint32 // serial number of the model version
	flight       uint32 // number of the flight plus 1 while the entry is pending, else 0
	inputs       uint8
	outputs      uint8
	in           queueName // while the entry is pending: the queue that it will be in
	uses         uint8     // hits since the hand last passed, at most maxUses
	body         [headBody]byte
}

// tail is any later block of a chain, in the memory of a head.
type tail struct {
	next uint32
	body [tailBody]byte
}

// Compile-time check that both kinds of block have the same size.
var (
	_ [blockBytes - unsafe.Sizeof(head{})]struct{}
	_ [unsafe.Sizeof(head{}) - blockBytes]struct{}
	_ [blockBytes - unsafe.Sizeof(tail{})]struct{}
	_ [unsafe.Sizeof(tail{}) - blockBytes]struct{}
)

// blocksFor returns the number of blocks for a body of n bytes.
func blocksFor(n int) int {
	if n <= headBody {
		return 1
	}
	return 1 + (n-headBody+tailBody-1)/tailBody
}

// pool allocates the blocks of a shard. It grows by one slab at a time up to its capacity and never shrinks.
type pool struct {
	slabs    [][]head
	free     uint32 // first block of the free list
	fresh    uint32 // lowest block that was never used
	capacity int
	used     int
}

// init sets the pool's capacity in blocks. It allocates none.
func (p *pool) init(capacity int) {
	*p = pool{fresh: 1, capacity: capacity}
}

// at returns block i as the first block of an entry.
func (p *pool) at(i uint32) *head { return &p.slabs[i>>slabShift][i&slabMask] }

// tailAt returns block i as a later block of an entry. Both kinds start with next, hold no pointers and have the same
// size, so the conversion is safe.
func (p *pool) tailAt(i uint32) *tail { return (*tail)(unsafe.Pointer(p.at(i))) }

// spare returns how many blocks are available.
func (p *pool) spare() int { return p.capacity - p.used }

// heldBytes returns the memory of the slabs.
func (p *pool) heldBytes() int64 {
	if len(p.slabs) == 0 {
		return 0
	}
	last := len(p.slabs) - 1
	return (int64(last)<<slabShift + int64(len(p.slabs[last]))) * blockBytes
}

// take returns the first and last block of a chain of n blocks. The caller has checked that they are available.
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

// release frees the chain of n blocks that begins with first. take returns the blocks in the same order, so adjacent
// blocks of a chain stay adjacent.
func (p *pool) release(first uint32, n int) {
	last := first
	for range n - 1 {
		last = p.at(last).next
	}
	p.at(last).next = p.free
	p.free = first
	p.used -= n
}
