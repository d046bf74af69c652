package local

import (
	"fmt"
	"math/bits"
	"sync/atomic"

	"github.com/xebec-serving/xebec/shm"
	"github.com/xebec-serving/xebec/worker/wire"
)

const (
	// ringEntries bounds the batches outstanding at one replica. The usual depth is 2.
	ringEntries = 64 //xebec:limit descriptors in a ring
	// firstSegmentMin and firstSegmentMax bound a replica's first segments. Prefaulting takes about 1.6 µs per page, so
	// 8 MiB take 3 ms. Segments grow when more is needed.
	firstSegmentMin = 1 << 20 //xebec:limit smallest segment
	firstSegmentMax = 8 << 20 //xebec:limit largest first segment
	// minGrant leaves room for an error's text where outputs are small.
	minGrant = 4096
	// firstOutGuess is the expected output bytes of a query before there was one, for ragged outputs.
	firstOutGuess = 256
)

// generation is one pair of segments with the gateway's state of it. Its memory is unmapped when the last reference is
// released: the replica's own, or that of a goroutine that is copying a payload.
type generation struct {
	number   uint32
	a, b     *shm.Segment
	producer *shm.Producer
	consumer *shm.Consumer
	in, out  *shm.Slab
	slots    slotSpace // behind in, in the request segment
	size     sizes
	refs     atomic.Int32
}

// sizes are those of a generation's segments. The last slots bytes of a are slots.
type sizes struct{ a, b, slots uint64 }

func newGeneration(number uint32, sz sizes) (*generation, error) {
	a, err := shm.Create(shm.RoleA, number, ringEntries, sz.a)
	if err != nil {
		return nil, fmt.Errorf("create the request segment (%d bytes): %w", sz.a, err)
	}
	b, err := shm.Create(shm.RoleB, number, ringEntries, sz.b)
	if err != nil {
		a.Close()
		return nil, fmt.Errorf("create the response segment (%d bytes): %w", sz.b, err)
	}
	sz.a, sz.b = uint64(len(a.Bytes())), uint64(len(b.Bytes())) // whole pages
	off := shm.SlabOffset(ringEntries)
	g := &generation{number: number, a: a, b: b, producer: shm.NewProducer(a, b), consumer: shm.NewConsumer(a, b), size: sz,
		in: shm.NewSlab(off, sz.a-sz.slots-off), out: shm.NewSlab(off, sz.b-off), slots: slotSpace{begin: sz.a - sz.slots, end: sz.a}}
	g.refs.Store(1)
	return g, nil
}

func (g *generation) frame(dst []byte) []byte {
	m := wire.Segments{Generation: g.number, Entries: ringEntries, SizeA: uint64(len(g.a.Bytes())), SizeB: uint64(len(g.b.Bytes()))}
	return m.Append(dst)
}

// closeFDs closes the descriptors. The mappings keep the memory alive, and the segments are sent only once.
func (g *generation) closeFDs() {
	g.a.CloseFD()
	g.b.CloseFD()
}

func (g *generation) acquire() { g.refs.Add(1) }

// release drops a reference. The last one unmaps the memory.
func (g *generation) release() {
	if g.refs.Add(-1) == 0 {
		g.a.Close()
		g.b.Close()
	}
}

// roundSegment rounds up to a power of two, or to three quarters of one: growth is rare, and not by much more than is asked for.
func roundSegment(n uint64) uint64 {
	if n <= firstSegmentMin {
		return firstSegmentMin
	}
	power := uint64(1) << bits.Len64(n-1)
	if less := power / 4 * 3; n <= less {
		return less
	}
	return power
}
