package cache

import (
	"slices"

	"github.com/xebec-serving/xebec/api"
)

// Owner is called when a waiter's wait has ended. Both methods are called without a lock, on the goroutine that called
// Fill or Fail, and may call the cache. The owner then owns the waiter again.
type Owner interface {
	// Filled means that the outputs are in w.Outputs and the model's own confidence in w.Confidence.
	Filled(w *Waiter)
	// Failed means that there is no prediction, and nothing is kept. An owner with time left may call Request again.
	Failed(w *Waiter, code api.Code)
}

// Waiter is one query of one model version at the cache. It is a field of the pooled query, so it needs no allocation.
// It may be reused when it is idle: after Hit or Bypass, after Fill or Fail, after its Owner was called, or after
// Cancel returned true. The zero Waiter with an Owner is ready for use.
type Waiter struct {
	// Owner is called after a Wait. The caller sets it once.
	Owner Owner
	// Outputs and Confidence (NaN if the model states none) are set by a Hit and before Filled. The buffers of Outputs
	// belong to the caller and are reused, unless Shared. The cache does not touch a leader's buffers.
	Outputs []api.Value
	// Shared, set before Filled, says that other waiters have the same memory in Outputs: it is read only, and not reused.
	Shared     bool
	Confidence float64
	// Detail is passed on by Fail, and set before Failed.
	Detail string
	// Until is when the caller wants the prediction. A query that wants it more than 5 ms before the leader does not
	// wait for it, because the leader's evaluation may give way to more urgent ones.
	Until api.Nanos

	model *Model
	shard *shard
	// The shard's lock protects the remaining fields.
	state       waiterState
	flight      uint32
	older, next *Waiter // other waiters of the same flight
}

// waiterState is what a waiter is doing.
type waiterState uint8

const (
	idle waiterState = iota
	leading
	following
)

// sharedFrom is from how many bytes on the waiters of one flight share one copy of the prediction. Many may wait for the same one, and as many
// copies at once could be more memory than there is.
const sharedFrom = 1 << 20

// Fill ends the flight that w leads with a prediction. Each waiter gets a copy, of a large one a common copy, and the prediction is kept, unless
// the model was dropped meanwhile or the outputs are too large. The caller keeps ownership of outputs. Fill may come
// arbitrarily late.
func (w *Waiter) Fill(outputs []api.Value, confidence float64) {
	s := w.shard
	s.mu.Lock()
	w.mustLead()
	f, e := s.endFlight(w)
	if w.model.dropped.Load() || !s.keep(f, e, outputs, confidence, w.model.cache.maxEntryBytes) {
		s.remove(f.entry, e, false)
	}
	s.mu.Unlock()
	var common []api.Value
	if f.first != nil && encodedBytes(outputs) >= sharedFrom {
		common = copyValues(nil, outputs)
	}
	for x := f.first; x != nil; {
		next := x.next
		x.older, x.next = nil, nil
		x.Confidence = confidence
		if x.Shared = common != nil; x.Shared {
			x.Outputs = slices.Clone(common)
		} else {
			x.Outputs = copyValues(x.Outputs, outputs)
		}
		x.Owner.Filled(x)
		x = next
	}
}

// Fail ends the flight that w leads without a prediction. Nothing is kept, and each waiter's owner is called with the
// code.
func (w *Waiter) Fail(code api.Code) {
	s := w.shard
	s.mu.Lock()
	w.mustLead()
	f, e := s.endFlight(w)
	s.remove(f.entry, e, false)
	s.mu.Unlock()
	for x := f.first; x != nil; {
		next := x.next
		x.older, x.next = nil, nil
		x.Detail = w.Detail
		x.Owner.Failed(x, code)
		x = next
	}
}

// Cancel stops waiting. If it returns true, w is idle and its owner will not be called. If it returns false, w does not
// wait: its owner has been or is being called, or it never waited.
func (w *Waiter) Cancel() bool {
	s := w.shard
	if s == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if w.state != following {
		return false
	}
	f := &s.flights[w.flight-1]
	if w.older != nil {
		w.older.next = w.next
	} else {
		f.first = w.next
	}
	if w.next != nil {
		w.next.older = w.older
	} else {
		f.newest = w.older
	}
	w.older, w.next, w.state = nil, nil, idle
	return true
}

// addFollower appends w to the waiters of flight number i.
func (s *shard) addFollower(i uint32, w *Waiter) {
	f := &s.flights[i-1]
	w.shard, w.flight, w.state = s, i, following
	w.older, w.next = f.newest, nil
	if f.newest != nil {
		f.newest.next = w
	} else {
		f.first = w
	}
	f.newest = w
}

// mustLead panics, with the lock released, if a flight is ended twice: that would fill another entry.
func (w *Waiter) mustLead() {
	if w.state != leading {
		w.shard.mu.Unlock()
		panic("cache: Fill or Fail of a waiter that does not lead: call exactly one of them, once, after Request returned Lead")
	}
}
