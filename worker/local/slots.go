package local

import (
	"cmp"
	"math/bits"
	"slices"
	"sync"
	"unsafe"

	"github.com/xebec-serving/xebec/api"
)

const (
	// DefaultSlotBytes bounds the part of a request segment in which inputs are received. What finds no room there is copied.
	DefaultSlotBytes = 64 << 20 //xebec:limit memory of a replica in which large inputs are received without a copy, or an eighth of `--body-memory` if that is less
	// maxSlots bounds them by number, since they are searched one after the other.
	maxSlots = 256 //xebec:limit large inputs that a replica's segment receives at a time
	// minSlots: where there can be fewer, an input does not wait for one, since the next batches may need more than there are.
	minSlots = 32 //xebec:limit large inputs for which a replica must have memory before further ones wait unread
	// maxAskers bounds those that wait.
	maxAskers = 1024 //xebec:limit large inputs that wait unread at a replica
)

// slot is a part of a request segment that receives one input. The mapping lives as long as the slot, also if the replica ends.
type slot struct {
	replica *Replica
	gen     *generation
	at      span
}

var slotPool = sync.Pool{New: func() any { return new(slot) }}

// Reserve implements [worker.Reserver]. If the segment has too little room, it grows, at the next boundary between batches if there are any.
func (r *Replica) Reserve(n int, give func(api.Slot) bool) (_ api.Slot, waits bool) {
	if n <= 0 {
		return nil, false
	}
	need, largest := slotSize(n), r.hub.slotBytes()
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.slotted || r.fd < 0 || r.endReason != "" || r.ending || need > largest {
		return nil, false
	}
	if len(r.askers) == 0 { // otherwise it would overtake them
		if s := r.slotLocked(n); s != nil {
			return s, false
		}
	}
	r.wantSlotsLocked(need)
	if give == nil || need > largest/minSlots || len(r.askers) == maxAskers {
		return nil, false
	}
	r.askers = append(r.askers, asker{n, give})
	r.slotAsked += need
	return nil, true
}

func slotSize(n int) uint64 { return (uint64(n) + slotAlign - 1) &^ (slotAlign - 1) }

// slotLocked returns a slot of the current segment, nil without room.
func (r *Replica) slotLocked(n int) *slot {
	at, ok := r.gen.slots.alloc(slotSize(n))
	if !ok {
		return nil
	}
	r.gen.acquire()
	s := slotPool.Get().(*slot)
	s.replica, s.gen, s.at = r, r.gen, span{at, uint64(n)}
	return s
}

// wantSlotsLocked makes the segment grow if it has less room than the inputs need that wait, and one more of so many bytes. What lies in slots of
// the old segment is copied, so a segment that has some for everyone does not grow while much lies there.
func (r *Replica) wantSlotsLocked(need uint64) {
	have, used := r.gen.size.slots, r.gen.slots.used()
	want := min(used+r.slotAsked+need, r.hub.slotBytes())
	if want <= have || r.next != nil || r.growing || r.ending || used > firstSlotBytes && have >= minSlots*need {
		return
	}
	r.slotWant = max(r.slotWant, want)
	r.growLocked()
}

// asker is an input that waits for a slot.
type asker struct {
	n    int
	give func(api.Slot) bool
}

// giveSlots gives slots to the inputs that wait, in the order in which they came. While larger segments are made it gives none: what lies in the
// current one would have to be copied. The caller does not hold the lock.
func (r *Replica) giveSlots() {
	for {
		r.mu.Lock()
		if len(r.askers) == 0 || r.growing || r.next != nil {
			r.mu.Unlock()
			return
		}
		a := r.askers[0]
		s := r.slotLocked(a.n)
		if s != nil {
			r.askers = slices.Delete(r.askers, 0, 1)
			r.slotAsked -= slotSize(a.n)
		}
		r.mu.Unlock()
		if s == nil {
			return
		}
		if !a.give(s) {
			s.free()
		}
	}
}

// giveNone tells those that wait that they get no slot.
func giveNone(askers []asker) {
	for _, a := range askers {
		a.give(nil)
	}
}

func (r *Replica) takeAskersLocked() []asker {
	all := r.askers
	r.askers, r.slotAsked = nil, 0
	return all
}

// Bytes is the memory to fill.
func (s *slot) Bytes() []byte {
	return s.gen.a.Bytes()[s.at.off : s.at.off+s.at.size : s.at.off+s.at.size]
}

// Free gives the memory back. Neither the gateway nor the worker reads it any more: all batches that have it have ended.
func (s *slot) Free() {
	if r := s.replica; s.free() {
		r.giveSlots()
	}
}

// free reports whether inputs wait for the room.
func (s *slot) free() (asked bool) {
	r, g, at := s.replica, s.gen, s.at.off
	*s = slot{}
	slotPool.Put(s)
	r.mu.Lock()
	g.slots.free(at)
	asked = g == r.gen && len(r.askers) > 0
	r.mu.Unlock()
	g.release()
	return asked
}

// slotBytes is the largest part of a segment that may be slots. A batch that is copied must fit beside it.
func (h *Hub) slotBytes() uint64 {
	return min(h.cfg.SlotBytes, h.cfg.MaxSegmentBytes/4) &^ (slotAlign - 1)
}

// firstSlotBytes is the least that a segment has for slots, if inputs have asked for some.
const firstSlotBytes = 4 << 20 //xebec:limit smallest part of a segment in which large inputs are received

// slotRoomLocked is how many bytes of the next segment are slots, if this one has so many.
func (r *Replica) slotRoomLocked(have uint64) uint64 {
	switch {
	case !r.slotted:
		return 0
	case r.slotWant == 0:
		return have
	}
	return min(max(have, firstSlotBytes, 1<<bits.Len64(r.slotWant-1)), r.hub.slotBytes())
}

// locateLocked finds which inputs of the batch lie in slots of the current generation, and reports whether there are some that need no
// copy. It orders the queries of a fixed input by their places.
func (r *Replica) locateLocked(b *api.Batch) bool {
	v := &r.values
	v.places = v.places[:0]
	g := r.gen
	if !r.slotted || b.Pad > 0 || len(g.slots.spans) == 0 {
		return false
	}
	memory := g.a.Bytes()
	base, first, end := uintptr(unsafe.Pointer(unsafe.SliceData(memory))), g.slots.begin, g.slots.end
	placed := 0
	for _, q := range b.Queries {
		data, at := q.Inputs[0].Data, uint64(0)
		// Below base the difference wraps around, and is beyond the segment.
		if off := uint64(uintptr(unsafe.Pointer(unsafe.SliceData(data))) - base); len(data) > 0 && off >= first && off < end && off%slotAlign == 0 {
			at = off
			placed++
		}
		v.places = append(v.places, at)
	}
	item := r.inputs.FixedItem()
	switch {
	case placed == 0:
		return false
	case item == 0:
		return true
	case placed < len(b.Queries):
		return false
	}
	place := func(q *api.Query) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(q.Inputs[0].Data))) }
	slices.SortFunc(b.Queries, func(x, y *api.Query) int { return cmp.Compare(place(x), place(y)) })
	slices.Sort(v.places)
	for i, at := range v.places {
		if at != v.places[0]+uint64(i)*item {
			return false
		}
	}
	return true
}

// slotAlign is the alignment of slots: that of a block's sections.
const slotAlign = 64

// span is a run of bytes of a segment.
type span struct{ off, size uint64 }

// slotSpace tracks which bytes of a part of a segment are slots. It gives out the lowest that fit, so that those in use lie together:
// neighbours can be one section, and the memory is warm.
type slotSpace struct {
	begin, end uint64
	spans      []span // in use, by offset
}

func (s *slotSpace) alloc(size uint64) (off uint64, ok bool) {
	off = s.begin
	i := 0
	for ; i < len(s.spans) && s.spans[i].off-off < size; i++ {
		off = s.spans[i].off + s.spans[i].size
	}
	if s.end-off < size || len(s.spans) == maxSlots {
		return 0, false
	}
	s.spans = slices.Insert(s.spans, i, span{off, size})
	return off, true
}

func (s *slotSpace) free(off uint64) {
	i, found := slices.BinarySearchFunc(s.spans, off, func(x span, off uint64) int { return cmp.Compare(x.off, off) })
	if !found {
		panic("local: a slot was freed twice")
	}
	s.spans = slices.Delete(s.spans, i, i+1)
}

func (s *slotSpace) used() (bytes uint64) {
	for _, x := range s.spans {
		bytes += x.size
	}
	return bytes
}
