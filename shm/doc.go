// Package shm is the memory that a gateway and a worker on the same host share: segments, descriptor rings with a
// doorbell, and the slabs that payloads lie in. It implements section 3 of api/spec/worker.md, which is normative; where
// code and page differ, one of them is a defect. The package knows nothing of models, batches or sockets.
//
// # The picture
//
// A generation is a pair of segments, and each has one writer for its whole life. The gateway writes A, the worker
// writes B; a side's ring, its cursors and its sleep counter lie in the segment that it writes, so that no word of shared
// memory ever has two writers and the kernel can forbid the worker to write what the gateway relies on.
//
//	          A, written by the gateway          B, written by the worker
//	control   identity  tail  head  sleep        identity  tail  head  sleep
//	ring      requests ───────────────────▶      ◀─────────────────── responses
//	slab      input blocks                       output blocks
//
// [Create] makes a segment and [Open] maps one that came as a file descriptor. [NewProducer] and [NewConsumer] take the
// segments as (own, peer): own is the one that this side writes. So the gateway has NewProducer(a, b) and
// NewConsumer(a, b), the worker NewProducer(b, a) and NewConsumer(b, a). A [Slab] says which bytes of a segment are free;
// the gateway keeps one for A and one for B, and the worker none.
//
// # What is promised
//
//   - A segment that [Create] returns has all its memory and the seals of its role: nobody can shrink or grow it, and
//     nobody but the gateway's own mapping can ever write A. It has no name in any file system and is gone when the last
//     process that maps it or holds its descriptor is gone, however it went.
//   - No wake-up is lost by two sides that follow the order below. doorbell.pml is that order as a model; model.sh checks
//     it, and checks that the model's two wrong variants do fail.
//   - [Producer.Push], [Producer.MustRing], [Consumer.Pop], [Slab.Alloc] and [Slab.Free] allocate nothing in steady state
//     and never block.
//   - Whatever the peer writes, the worst outcome is [ErrCursor]. A cursor of the peer is judged before it is used, a
//     descriptor is copied once, and every decision rests on the copy and on private memory. What a descriptor says is
//     the caller's to judge, from that copy.
//
// # What is never done
//
// The package never blocks, spins, starts a goroutine, reads a clock or touches a socket: who parks, where, and what
// else a wake may mean is the caller's business. It never trusts the peer's head (see [Producer.PeerHead]) and never asks
// whether a ring is full: the gateway keeps at most as many requests outstanding as a ring has entries, and with one
// response for each request neither ring can overflow. It never unmaps a segment by itself: a garbage collector cannot
// see who still reads mapped memory.
//
// # The duties of a caller
//
// To send: write the block, [Producer.Push] the descriptor, and when a run of them is in, ask [Producer.MustRing] once and
// write one bell on the socket if it says so.
//
// To receive, in this order and no other:
//
//	for {
//		for { ok, err := c.Pop(&d, outstanding); … }   // until the ring is empty
//		read the socket until it would block           // 1
//		if !c.PrepareSleep() { continue }              // 2 to 4: say asleep, fence, look again
//		wait until the socket is readable              // 5
//		c.Wake()
//	}
//
// Steps 1 and 2 must not change places. A bell that is read after "asleep" was said may be the only one for that sleep:
// its reader would then wait for a second one that never comes.
//
// Every "asleep" has a reading of the socket before it, also when the last one found something in the ring and did not
// sleep; else bells pile up unread until the peer can write no more.
//
// A new generation starts with both sides awake. A side that parks must have said so in the newest one: whoever changes
// to new segments calls PrepareSleep of their Consumer before it blocks again, or nobody will ring for it.
//
// A Producer, a Consumer and a Slab each have one user at a time; only [Producer.Pushed] and [Producer.PeerHead] may be called
// from anywhere. What a goroutine did before it pushed a request happens before whatever another goroutine of the same
// process does after it popped the response: the hand-over goes through the peer's process, where neither the Go memory
// model nor the race detector can see it, so the package makes it a second time in memory of its own.
//
// [Segment.Close] unmaps. After it any access through [Segment.Bytes], a Producer or a Consumer is a fault that ends the process,
// so a caller closes only when nobody can be inside.
//
// # Where it runs
//
// Linux 5.1 or newer (F_SEAL_FUTURE_WRITE) on 64-bit little-endian processors: the page's integers are little-endian and
// are read in place. The build constraint of segment.go lists the processors.
//
// # Where to read next
//
// api/spec/worker.md for the bytes and the order, segment.go for how a segment comes to be, ring.go for the cursors and
// the doorbell, slab.go for the allocator, doorbell.pml for the proof.
package shm
