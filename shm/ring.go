//go:build linux && (amd64 || arm64 || loong64 || ppc64le || riscv64)

package shm

import (
	"errors"
	"fmt"
	"sync/atomic"
)

// The doorbell needs an ordering that release and acquire do not give: a store must be visible before a later load of
// another word is done (store-load). By the Go memory model every operation of sync/atomic is sequentially consistent,
// on amd64 through XCHG and on arm64 through STLR and LDAR, which keep their mutual order. So the atomic store of tail
// in Push and the atomic load of sleep in ShouldRing have between them the full fence that the specification requires,
// and so have the store of sleep and the load of tail in PrepareSleep. Do not replace any of them by a plain access for
// speed.

// ErrCursor means that the peer's tail moved backwards or shows more descriptors than there can be. It is a protocol
// violation: the peer is broken or hostile, and the ring must not be used any more.
var ErrCursor = errors.New("shm: the peer's tail is impossible")

// Producer puts descriptors into this side's ring.
type Producer struct {
	own       *Segment
	ring      []Descriptor
	mask      uint64
	tail      *atomic.Uint64 // written by this side, read by the peer
	peerHead  *atomic.Uint64
	peerSleep *atomic.Uint32
	rung      uint32 // the last odd value of peerSleep that was rung for; 0 before the first
	_         [64]byte
}

// NewProducer returns the Producer of a fresh pair of segments: own is the one that this side writes, peer the other
// one. Each side has one Producer for a pair, and its cursor starts at 0. It panics if the two are not a pair.
func NewProducer(own, peer *Segment) *Producer {
	mustPair(own, peer)
	return &Producer{
		own:       own,
		ring:      own.ring(),
		mask:      uint64(own.entries - 1),
		tail:      own.word64(offTail),
		peerHead:  peer.word64(offHead),
		peerSleep: peer.word32(offSleep),
	}
}

// Push copies d into the ring and shows it to the peer, together with everything that was written to the segment
// before. It never blocks and does not check for room: the caller keeps at most Entries descriptors unanswered.
func (p *Producer) Push(d *Descriptor) {
	n := p.own.pushed.Load()
	p.ring[n&p.mask] = *d
	// The private count goes first: a reader that sees an effect of this push in the peer's segment must find it
	// counted here.
	p.own.pushed.Store(n + 1)
	p.tail.Store(n + 1)
}

// ShouldRing reports whether the peer sleeps, or is about to, and has not been rung for yet. If so, it records the sleep
// as rung for, and the caller must send a bell. Call it once after each run of pushes.
//
// It would miss a peer that sleeps 2³¹ times in a row unseen and is then checked at exactly the value last rung for.
// That takes hours of nothing but sleeping and waking, and then a chance of one in 2³¹.
func (p *Producer) ShouldRing() bool {
	sleep := p.peerSleep.Load() // the full fence before it: see the top of this file
	if sleep&1 == 0 || sleep == p.rung {
		return false
	}
	p.rung = sleep
	return true
}

// Pushed returns how many descriptors have been pushed. It may be called from any goroutine.
func (p *Producer) Pushed() uint64 { return p.own.pushed.Load() }

// PeerHead returns how many of them the peer claims to have taken, limited to the range from 0 to Pushed. It is a hint:
// a hostile peer may claim anything. It may be called from any goroutine.
func (p *Producer) PeerHead() uint64 {
	head := p.peerHead.Load()
	return min(head, p.own.pushed.Load())
}

// Consumer takes descriptors out of the peer's ring. It also stores this side's sleep counter.
type Consumer struct {
	own      *Segment
	ring     []Descriptor
	mask     uint64
	peerTail *atomic.Uint64
	ownHead  *atomic.Uint64 // written by this side, read by the peer
	ownSleep *atomic.Uint32 // written by this side, read by the peer

	// Private state, which every decision uses.
	head   uint64 // how many were taken
	tail   uint64 // the largest tail that the peer has shown; at least head
	sleep  uint32 // what ownSleep holds; odd while asleep
	broken error  // set once an impossible tail was seen
	_      [64]byte
}

// NewConsumer returns the Consumer of a fresh pair of segments: own is the one that this side writes, peer the other
// one. Each side has one Consumer for a pair; it starts at 0 and awake. It panics if the two are not a pair.
func NewConsumer(own, peer *Segment) *Consumer {
	mustPair(own, peer)
	return &Consumer{
		own:      own,
		ring:     peer.ring(),
		mask:     uint64(peer.entries - 1),
		peerTail: peer.word64(offTail),
		ownHead:  own.word64(offHead),
		ownSleep: own.word32(offSleep),
	}
}

// Pop copies the next descriptor to d and reports whether there was one. outstanding is the largest number of
// descriptors that can be in the ring by the caller's own count: for the gateway the requests that are not answered
// yet, for a worker the entries of the ring, which are the bound in any case. If the peer's tail moved backwards or
// shows more, the error wraps ErrCursor, d is not written, and every later call returns the same error.
//
// Pop reads the peer's tail when the descriptors of the last read are used up. So it may report an impossible tail some
// calls after it was written, but before it takes anything because of it.
func (c *Consumer) Pop(d *Descriptor, outstanding uint64) (bool, error) {
	if c.tail == c.head || c.broken != nil {
		c.look()
		if c.broken != nil {
			return false, c.broken
		}
		if c.tail == c.head {
			return false, nil
		}
	}
	if shown, limit := c.tail-c.head, min(outstanding, c.mask+1); shown > limit {
		c.broken = fmt.Errorf("%w: it shows %d descriptors where at most %d can be", ErrCursor, shown, limit)
		return false, c.broken
	}
	*d = c.ring[c.head&c.mask] // the only read of this entry
	c.head++
	c.ownHead.Store(c.head)
	return true, nil
}

// look reads the peer's tail into c.tail. A tail that was seen stays seen: a peer that takes it back between two reads
// is caught, and cannot keep this side busy with a ring that is empty in one read and not in the next.
func (c *Consumer) look() {
	tail := c.peerTail.Load()
	// This load is only needed for its order. The peer answered a request that a goroutine of this process pushed, and
	// the path from there to here leads through another process. Together with the store in Push it tells the Go memory
	// model and the race detector that the push happened before the pop.
	c.own.pushed.Load()
	if tail < c.tail && c.broken == nil {
		c.broken = fmt.Errorf("%w: it moved backwards, from %d to %d", ErrCursor, c.tail, tail)
		return
	}
	c.tail = max(c.tail, tail)
}

// Ready reports whether Pop would return something, perhaps an error. It is for a side that spins.
func (c *Consumer) Ready() bool {
	if c.tail == c.head && c.broken == nil {
		c.look()
	}
	return c.tail != c.head || c.broken != nil
}

// PrepareSleep stores "asleep" and checks the ring once more. True: the ring is empty, and from now on the peer rings;
// the caller must block until its socket is readable and then call Wake. False: there is something to Pop, perhaps an
// error, and this side counts as awake. Before the call the ring must be empty and the socket read until it would
// block; the package documentation says why.
func (c *Consumer) PrepareSleep() (parked bool) {
	c.sleep = (c.sleep + 1) | 1
	c.ownSleep.Store(c.sleep)
	c.look() // the full fence before it: see the top of this file
	if c.tail == c.head && c.broken == nil {
		return true
	}
	c.Wake()
	return false
}

// Wake stores that this side is awake again. It does nothing if the side did not sleep.
func (c *Consumer) Wake() {
	if c.sleep&1 == 0 {
		return
	}
	c.sleep++
	c.ownSleep.Store(c.sleep)
}

// mustPair panics unless the two segments are the A and the B of one generation: anything else is an error of the
// program, not of the peer.
func mustPair(own, peer *Segment) {
	if own.role == peer.role || own.generation != peer.generation || own.entries != peer.entries {
		panic(fmt.Sprintf("shm: segments %v (generation %d, %d entries) and %v (generation %d, %d entries) are not a pair",
			own.role, own.generation, own.entries, peer.role, peer.generation, peer.entries))
	}
}
