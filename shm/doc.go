// Package shm implements the memory that a gateway and a worker on the same host share: segments, descriptor rings with
// a doorbell, and slabs for payloads. It implements section 3 of api/spec/worker.md, which is normative; where code and
// page differ, one of them is a defect. The package knows nothing of models, batches or sockets.
//
// # The picture
//
// A generation is a pair of segments, and each has one writer for its whole life. The gateway writes A, the worker
// writes B. A side's ring, cursors and sleep counter lie in the segment that it writes. So no word of shared memory
// ever has two writers, and the kernel can prevent the worker from writing what the gateway relies on.
//
//	          A, written by the gateway          B, written by the worker
//	control   identity  tail  head  sleep        identity  tail  head  sleep
//	ring      requests ───────────────────▶      ◀─────────────────── responses
//	slab      input blocks                       output blocks
//
// [Create] makes a segment and [Open] maps one that was received as a file descriptor. [NewProducer] and [NewConsumer]
// take the segments as (own, peer): own is the one that this side writes. So the gateway calls NewProducer(a, b) and
// NewConsumer(a, b), the worker NewProducer(b, a) and NewConsumer(b, a). A [Slab] tracks which bytes of a segment are
// free. The gateway keeps one for A and one for B, the worker none.
//
// # What is promised
//
//   - A segment that [Create] returns has all its memory and the seals of its role: it can be neither shrunk nor grown,
//     and only the gateway's own mapping can ever write A. It has no name in any file system. The kernel frees it when
//     the last process that maps it or holds its descriptor has ended, however it ended.
//   - No wake-up is lost if both sides follow the order below. doorbell.pml is a model of that order. model.sh checks
//     it, and checks that the model's wrong variants fail.
//   - [Producer.Push], [Producer.ShouldRing], [Consumer.Pop], [Slab.Alloc] and [Slab.Free] allocate nothing in steady
//     state and never block.
//   - Whatever the peer writes, the worst outcome is [ErrCursor]. A cursor of the peer is checked before it is used, a
//     descriptor is copied once, and every decision uses the copy and private memory. The caller must check the content
//     of the descriptor, on that copy.
//
// # What is never done
//
// The package never blocks, spins, starts a goroutine, reads a clock or touches a socket. Where a side parks and what
// else a wake-up may mean is up to the caller. The package never trusts the peer's head (see [Producer.PeerHead]) and
// never asks whether a ring is full: the gateway keeps at most as many requests outstanding as a ring has entries, and
// with one response for each request neither ring can overflow. It never unmaps a segment by itself, because a garbage
// collector cannot see readers of mapped memory.
//
// # The duties of a caller
//
// To send, write the block and [Producer.Push] the descriptor. After a run of pushes call [Producer.ShouldRing] once and
// write one bell to the socket if it returns true.
//
// To receive, in this order and no other:
//
//	for {
//		for { ok, err := c.Pop(&d, outstanding); … }   // until the ring is empty
//		read the socket until it would block           // 1
//		if !c.PrepareSleep() { continue }              // 2 to 4: store asleep, fence, check the ring again
//		wait until the socket is readable              // 5
//		c.Wake()
//	}
//
// Steps 1 and 2 must not change places. A bell that is read after "asleep" was stored may be the only one for that
// sleep, and the reader would wait for a second one that never comes.
//
// A caller may spin before it sleeps: [Consumer.Ready] looks at the ring as often as the caller likes, also between steps 1
// and 2. A spinner counts as awake, so the peer rings no bell. When it gives up it goes through steps 2 to 5 like any other.
// To doorbell.pml, where a process may wait between any two steps, it is a consumer that takes its time.
//
// Read the socket before every "asleep", even if the previous attempt found something in the ring and did not sleep.
// Otherwise unread bells pile up until the peer cannot write any more.
//
// A new generation starts with both sides awake. A side that parks must have stored "asleep" in the newest generation:
// after a change to new segments call PrepareSleep of their Consumer before blocking again. Otherwise the peer does not
// ring.
//
// A Producer, a Consumer and a Slab each have one user at a time. Only [Producer.Pushed] and [Producer.PeerHead] may be
// called from any goroutine. What a goroutine did before it pushed a request happens before whatever another goroutine
// of the same process does after it popped the response. That hand-over goes through the peer's process, where neither
// the Go memory model nor the race detector can see it, so the package repeats it in memory of its own.
//
// [Segment.Close] unmaps. Any later access through [Segment.Bytes], a Producer or a Consumer is a fault that ends the
// process, so close a segment only when no goroutine can be using it.
//
// # Where it runs
//
// Linux 5.1 or newer (F_SEAL_FUTURE_WRITE) on 64-bit little-endian processors: the page's integers are little-endian
// and are read in place. The build constraint of segment.go lists the processors.
//
// # Where to read next
//
// api/spec/worker.md for the bytes and the order, segment.go for the creation of segments, ring.go for the cursors and
// the doorbell, slab.go for the allocator, doorbell.pml for the proof.
package shm
