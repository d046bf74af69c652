package local

import (
	"fmt"
	"math/bits"
	"sync/atomic"

	"github.com/xebec-serving/xebec/shm"
	"github.com/xebec-serving/xebec/worker/wire"
)

const (
	// ringEntries bounds the batches outstanding at one replica; depth is 2 or a little more.
	ringEntries = 64
	// firstSegmentMin and firstSegmentMax bound the segments that a replica starts with: pages are prefaulted at about
	// 1.6 µs each, so 8 MiB cost 3 ms, and what is not enough grows when it is needed.
	firstSegmentMin = 1 << 20
	firstSegmentMax = 8 << 20
	// minGrant leaves room for an error's text where outputs are small.
	minGrant = 4096
)

// generation is one pair of segments with everything that the gateway keeps about it. Its memory is unmapped when the last
// user has let go: the replica itself, and whoever is copying at that moment.
type generation struct {
	number   uint32
	a, b     *shm.Segment
	producer *shm.Producer
	consumer *shm.Consumer
	in, out  *shm.Slab
	refs     atomic.Int32
}

type sizes struct{ a, b uint64 }

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
	off := shm.SlabOffset(ringEntries)
	g := &generation{number: number, a: a, b: b, producer: shm.NewProducer(a, b), consumer: shm.NewConsumer(a, b),
		in: shm.NewSlab(off, uint64(len(a.Bytes()))-off), out: shm.NewSlab(off, uint64(len(b.Bytes()))-off)}
	g.refs.Store(1)
	return g, nil
}

func (g *generation) frame(dst []byte) []byte {
	m := wire.Segments{Generation: g.number, Entries: ringEntries, SizeA: uint64(len(g.a.Bytes())), SizeB: uint64(len(g.b.Bytes()))}
	return m.Append(dst)
}

// closeFDs closes the descriptors: the mappings keep the memory, and nobody can be sent it again.
func (g *generation) closeFDs() {
	g.a.CloseFD()
	g.b.CloseFD()
}

func (g *generation) acquire() { g.refs.Add(1) }

// release lets go of one use; the last one frees the memory.
func (g *generation) release() {
	if g.refs.Add(-1) == 0 {
		g.a.Close()
		g.b.Close()
	}
}

// roundSegment rounds up to a power of two: segments grow by doubling, so that growth stays rare.
func roundSegment(n uint64) uint64 {
	if n <= firstSegmentMin {
		return firstSegmentMin
	}
	return 1 << bits.Len64(n-1)
}
