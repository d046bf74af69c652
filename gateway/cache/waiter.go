package cache

import "github.com/xebec-serving/xebec/api"

// Owner is told what became of its waiters. Both are called without any lock, on the goroutine that called Fill or Fail, and may
// call the cache. Whoever is called owns the waiter again.
type Owner interface {
	// Filled: the outputs are in w.Outputs, what the model said of them in w.Confidence.
	Filled(w *Waiter)
	// Failed: there is no prediction, and nothing is kept. Who still has time may Request again.
	Failed(w *Waiter, code api.Code)
}

// Waiter is one query of one model version at the cache. It is a field of whatever is pooled with the query, so that nothing is
// allocated for it, and may be used again as soon as it is idle: after Hit and Bypass, after Fill or Fail, after its Owner was
// called, or after Cancel returned true. The zero Waiter with an Owner is ready.
type Waiter struct {
	// Owner is called when the waiter has waited. The caller sets it once.
	Owner Owner
	// Outputs and Confidence (NaN where the model says nothing) are set by a Hit and before Filled. The buffers of
	// Outputs are the caller's and are used again; those of a leader are not touched.
	Outputs    []api.Value
	Confidence float64
	// Until is when the caller wants the prediction. Who wants it more than 5 ms sooner than the one that leads does not wait
	// behind it: the leader's evaluation may have to give way to more urgent ones.
	Until api.Nanos

	model *Model
	shard *shard
	// The rest is protected by the shard's lock.
	state       waiterState
	flight      uint32
	older, next *Waiter // who waits for the same
}

// waiting says what a waiter does.
type waiterState uint8

const (
	idle waiterState = iota
	leading
	following
)

// Fill ends the flight that w leads: the prediction is there. Whoever waits for it gets a copy, and it is kept, unless the model
// was dropped meanwhile or the outputs are too large. The outputs stay the caller's. It may come as late as it likes.
func (w *Waiter) Fill(outputs []api.Value, confidence float64) {
	s := w.shard
	s.mu.Lock()
	w.mustLead()
	f, e := s.endFlight(w)
	if w.model.dropped.Load() || !s.keep(f, e, outputs, confidence, w.model.cache.maxEntryBytes) {
		s.remove(f.entry, e)
	}
	s.mu.Unlock()
	for x := f.first; x != nil; {
		next := x.next
		x.older, x.next = nil, nil
		x.Outputs, x.Confidence = copyValues(x.Outputs, outputs), confidence
		x.Owner.Filled(x)
		x = next
	}
}

// Fail ends the flight that w leads: there will be no prediction, for this reason. Nothing is kept, and whoever waits is told.
func (w *Waiter) Fail(code api.Code) {
	s := w.shard
	s.mu.Lock()
	w.mustLead()
	f, e := s.endFlight(w)
	s.remove(f.entry, e)
	s.mu.Unlock()
	for x := f.first; x != nil; {
		next := x.next
		x.older, x.next = nil, nil
		x.Owner.Failed(x, code)
		x = next
	}
}

// Cancel stops waiting. If it returns true, w is idle and its owner will not be called; if false, w does not wait: its owner has
// been or is being called, or it never waited.
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

// follow puts w behind those who wait for flight number i.
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

// mustLead stops the program, with the lock released, when a flight is ended twice: someone else's entry would be filled.
func (w *Waiter) mustLead() {
	if w.state != leading {
		w.shard.mu.Unlock()
		panic("cache: Fill or Fail of a waiter that does not lead: call exactly one of them, once, after Request returned Lead")
	}
}
