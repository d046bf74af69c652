package http

import (
	"context"
	"math"
	"math/bits"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/xebec-serving/xebec/api"
)

const (
	smallestBody = 10 // 1 KiB, as a power of two
	// largestPooled is the largest size, as a power of two, that lies in Go's heap. Larger bodies have mappings of their own:
	// their memory returns to the system without a collection, and does not let the heap grow to twice its size.
	largestPooled = 16
	// bodyIdle is how long a mapping stays resident after its last use.
	bodyIdle = 2 * time.Second //xebec:limit how long memory of large bodies is kept after use
)

// Bodies is the memory for requests' bodies of all connections of all ports, and its budget. Large answers have half as much beside it.
type Bodies struct {
	limit  int64
	used   atomic.Int64
	passed atomic.Int64 // bytes of mapped bodies, ever
	turns  turns
	unread unread
	// placeWait is placeWait, except in tests.
	placeWait api.Nanos
	pools     [largestPooled + 1]sync.Pool

	mu    sync.Mutex
	free  [64][]*body // mapped, by power of two; the last used stand last
	dirty int64       // resident bytes of free
}

// body is the memory of one body. Its holder owns it until put.
type body struct {
	bytes    []byte // what has come; its capacity is the memory
	class    int
	reserved int64
	slot     api.Slot  // where bytes lies; nil: memory of its own
	owner    *Bodies   // with a slot
	idle     time.Time // when it was put back
	resident int       // bytes that are in memory while it is free
}

// answerShare makes bodies and answers three eighths of the memory, with the default budget of bodies. Beside them the cache and the heap must
// find room, and segments as large as the answers that have passed them.
const answerShare = 2 //xebec:limit memory for answers that are not read: half of `--body-memory`

// NewBodies makes a budget of so many bytes for bodies, and one of half as many for answers; 0: any number.
func NewBodies(limitBytes int64) *Bodies {
	return &Bodies{limit: limitBytes, unread: unread{limit: limitBytes / answerShare}, turns: turns{wait: roomWait}, placeWait: placeWait}
}

// Reserve takes n bytes of the budget, or reports that it has none left.
func (b *Bodies) Reserve(n int) bool {
	for {
		used := b.used.Load()
		if b.limit > 0 && used+int64(n) > b.limit {
			return false
		}
		if b.used.CompareAndSwap(used, used+int64(n)) {
			return true
		}
	}
}

// Return gives n bytes back to the budget, to bodies that wait for them.
func (b *Bodies) Return(n int) {
	b.used.Add(-int64(n))
	b.admit()
}

// Used returns how many bytes are reserved.
func (b *Bodies) Used() int64 { return b.used.Load() }

// Waiting returns how many bodies wait for room.
func (b *Bodies) Waiting() int { return int(b.turns.waiting.Load()) }

// room returns how many bytes of the budget are left.
func (b *Bodies) room() int64 {
	if b.limit <= 0 {
		return math.MaxInt64
	}
	return b.limit - b.used.Load()
}

// take returns memory for n bytes, or nil without room in the budget.
func (b *Bodies) take(n int) *body {
	if !b.Reserve(n) {
		return nil
	}
	return b.memory(n)
}

// memory returns memory for n bytes that are reserved. If the system has none, it returns nil and gives the room back.
func (b *Bodies) memory(n int) *body {
	class := max(smallestBody, bits.Len(uint(n-1)))
	var m *body
	if class <= largestPooled {
		if m, _ = b.pools[class].Get().(*body); m == nil {
			m = &body{bytes: make([]byte, 0, 1<<class), class: class}
		}
	} else {
		b.passed.Add(int64(n))
		if m = b.mapped(class); m == nil {
			b.Return(n)
			return nil
		}
	}
	m.reserved = int64(n)
	return m
}

func (b *Bodies) mapped(class int) *body {
	b.mu.Lock()
	var m *body
	if n := len(b.free[class]); n > 0 {
		m = b.free[class][n-1]
		b.free[class] = b.free[class][:n-1]
		b.dirty -= int64(m.resident)
	}
	for i := 0; i < len(b.free) && b.limit > 0 && b.used.Load()+b.dirty > b.limit; i++ { // a body has room that others have just left
		b.release(b.free[i], time.Time{})
	}
	b.mu.Unlock()
	if m != nil {
		return m
	}
	// Only pages that a body touches become resident, so rounding up costs addresses, not memory. A huge page would.
	p, err := unix.Mmap(-1, 0, 1<<class, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_NORESERVE)
	if err != nil {
		return nil
	}
	_ = unix.Madvise(p, unix.MADV_NOHUGEPAGE) // kernels without huge pages refuse
	return &body{bytes: p[:0], class: class}
}

// grow returns memory for n bytes with what has come so far, or nil without room; then m is still the caller's.
func (b *Bodies) grow(m *body, n int) *body {
	larger := b.take(n)
	if larger != nil && m != nil {
		larger.bytes = append(larger.bytes, m.bytes...)
		b.put(m)
	}
	return larger
}

// put takes memory back. The caller keeps nothing of it.
func (b *Bodies) put(m *body) {
	if m.reserved > 0 { // otherwise a call has the room until it is answered
		defer b.Return(int(m.reserved))
	}
	if m.slot != nil {
		m.freeSlot()
		return
	}
	touched := len(m.bytes)
	m.bytes = m.bytes[:0]
	if m.class <= largestPooled {
		b.pools[m.class].Put(m)
		return
	}
	m.idle, m.resident = time.Now(), max(m.resident, touched)
	b.mu.Lock()
	b.dirty += int64(m.resident)
	b.free[m.class] = append(b.free[m.class], m)
	b.mu.Unlock()
}

// abandon gives the room of m back, and not the memory, which may still be read.
func (b *Bodies) abandon(m *body) { b.Return(int(m.reserved)) }

// trim gives the pages of mappings back that have not been used since then. The addresses stay, at most as many as bodies were
// held at a time: a goroutine that reads a body it has returned sees zeros, and does not end the process.
func (b *Bodies) trim(before time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for class := range b.free {
		b.release(b.free[class], before)
	}
}

// release gives the pages of those mappings back that have not been used since then, or of all if the time is zero. Its caller
// holds the lock.
func (b *Bodies) release(free []*body, before time.Time) {
	for _, m := range free {
		if m.resident > 0 && (before.IsZero() || m.idle.Before(before)) {
			_ = unix.Madvise(m.bytes[:cap(m.bytes)], unix.MADV_DONTNEED) // it cannot fail on such a mapping
			b.dirty -= int64(m.resident)
			m.resident = 0
		}
	}
}

// Run gives memory back to the system until ctx is done. After a burst of large bodies it calls released once, if not nil: buffers
// of the network below keep as much as the bodies had, in the heap.
func (b *Bodies) Run(ctx context.Context, released func()) {
	const burst = 16 << 20 // less is not worth a collection
	t := time.NewTicker(bodyIdle / 2)
	defer t.Stop()
	var seen, last int64
	for {
		select {
		case now := <-t.C:
			b.trim(now.Add(-bodyIdle))
			passed := b.passed.Load()
			if quiet := passed == last; quiet && passed-seen >= burst && released != nil {
				released()
				seen = passed
			}
			last = passed
		case <-ctx.Done():
			b.trim(time.Now())
			return
		}
	}
}

// Hold takes n bytes that are held already, though the budget may have none left.
func (b *Bodies) Hold(n int) { b.used.Add(int64(n)) }

// Full reports whether the budget has nothing left.
func (b *Bodies) Full() bool { return b.limit > 0 && b.used.Load() >= b.limit }
