package local

import (
	"time"

	"golang.org/x/sys/unix"
)

// DefaultShrinkAfter is long beside a pause between two bursts: growing again touches every page.
const DefaultShrinkAfter = 30 * time.Second //xebec:limit time without a batch after which a replica's grown segments become small again

// idle is what a replica needs to notice that it has nothing to do. Fields are guarded by the replica's mu.
type idle struct {
	timer   *time.Timer // nil while the segments are as small as at first
	batches uint64      // that the worker had answered when the timer was set
}

// grownLocked reports whether the segments are larger than at first. Workers of version 1 keep theirs.
func (r *Replica) grownLocked() bool {
	first := r.firstSizes()
	return r.major >= 2 && (r.gen.size.a > first.a || r.gen.size.b > first.b)
}

// watchIdleLocked begins to look whether grown segments are still needed.
func (r *Replica) watchIdleLocked() {
	i := &r.idle
	if i.timer != nil || !r.grownLocked() {
		return
	}
	i.batches = r.batches.Load()
	i.timer = time.AfterFunc(r.hub.cfg.ShrinkAfter, r.lookIdle)
}

// lookIdle shrinks the segments of a replica that has had nothing to do since the timer was set, or sets it again.
func (r *Replica) lookIdle() {
	r.mu.Lock()
	defer r.mu.Unlock()
	i := &r.idle
	switch {
	case r.fd < 0 || r.endReason != "" || r.ending || i.timer == nil:
	case r.busyLocked() || r.next != nil || r.growing || r.batches.Load() != i.batches:
		i.batches = r.batches.Load()
		i.timer.Reset(r.hub.cfg.ShrinkAfter)
	default:
		i.timer = nil
		r.growing = true // no other goroutine makes segments meanwhile
		r.hub.wg.Add(1)
		go r.shrink(r.gen.number+1, r.firstSizes())
	}
}

// busyLocked reports whether a batch is outstanding, or an input is received in the segment.
func (r *Replica) busyLocked() bool { return len(r.table) > 0 || len(r.gen.slots.spans) > 0 }

// shrink makes segments of the first sizes and sends them, unless a batch has come meanwhile. Batches that come until the worker has
// mapped them wait, and may make them grow again.
func (r *Replica) shrink(number uint32, sz sizes) {
	defer r.hub.wg.Done()
	g, err := newGeneration(number, sz)
	defer r.giveSlots() // where the segments have not shrunk after all
	r.mu.Lock()
	defer r.mu.Unlock()
	r.growing = false
	switch {
	case err != nil: // it goes on with what it has
		r.growLocked()
	case r.fd < 0 || r.endReason != "" || r.ending || r.busyLocked():
		g.closeFDs()
		g.release()
		r.growLocked() // a batch may have asked for larger segments
		if r.fd >= 0 && !r.ending {
			r.watchIdleLocked()
		}
	default:
		r.maxIn, r.maxOut, r.outGuess, r.slotWant = 0, 0, firstOutGuess, 0
		r.next = g
		r.frames = g.frame(r.frames[:0])
		r.writeLocked(r.frames, unix.UnixRights(g.a.FD(), g.b.FD()))
	}
}
