package query

import (
	"reflect"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/scheduler"
	"github.com/zeebo/xxh3"
)

// The states of member.course. A member leaves courseOpen once, so that it is never withdrawn from a lane that it has
// left.
const (
	courseOpen      uint32 = iota
	courseCancelled        // its caller has left
	courseMoved            // it was handed over to another version
)

// HandOver moves queries that wait for a version without replicas to the version that answers now for the same name. A
// query moves at most once and keeps its deadline. These stay: queries of requests that name the version or a label, of
// functions whose policy chooses for each query, and those for which the name means the version still.
//
// Requests that use an earlier table may hand in more. So call it after the table was replaced, and again after Quiesce.
func (p *Path) HandOver(from *Model) {
	turn := p.readers.enter() // the other versions stay in the table until all have arrived there
	defer p.readers.leave(turn)
	from.Lane.GiveBack(func(it *scheduler.Item) bool {
		m, ok := it.Owner.(*member)
		if !ok || m.model != from {
			return false
		}
		next, _ := m.successor()
		return next != nil && m.course.CompareAndSwap(courseOpen, courseMoved)
	})
}

// successor returns the version that answers for the member's now, and its sub-queue. It is nil if the member must stay.
func (m *member) successor() (next *Model, queue int32) {
	r := m.query.request
	if m.shadow || r.unlisted || r.versioned || !r.submitted.Load() {
		return nil, 0
	}
	t := r.path.table.Load()
	if fn := r.fn; fn == nil {
		if next = t.Models[m.model.ID.Name]; next != nil {
			queue = next.Direct
		}
	} else {
		now := t.Functions[fn.Name]
		if fn.Selects || now == nil || now.Selects || r.forced.Has(m.candidate) || m.candidate >= len(now.Candidates) {
			return nil, 0
		}
		next, queue = now.Candidates[m.candidate].Model, now.Candidates[m.candidate].Queue
	}
	switch from := m.model; {
	case next == nil || next == from || next.ID.Name != from.ID.Name || next.Closed.Load() || next.Streams != from.Streams:
		return nil, 0
	case !reflect.DeepEqual(next.Signature, from.Signature): // the inputs would not fit
		return nil, 0
	}
	return next, queue
}

// move makes the member one of another version, whose lane or cache it has yet to ask.
func (m *member) move(next *Model, queue int32) {
	r := m.query.request
	m.model, m.Function, m.arm = next, queue, nil
	m.contextual, m.unvetted = next.Contextual.Load(), false
	if m.Sticky = 0; len(r.context) > 0 && next.Sticky.Load() {
		m.Sticky = max(1, xxh3.Hash(r.context))
	}
	r.moved.Store(next) // all queries of the request ask the same version
}

// TakeBack is called by the lane that the member leaves. Queries that wait for its prediction follow.
func (m *member) TakeBack(*scheduler.Item) {
	leads := m.leads
	m.leads = false
	if next, queue := m.successor(); next != nil { // else it goes back to where it was
		m.move(next, queue)
	}
	if leads {
		m.wait.Detail = ""
		m.wait.Fail(api.Cancelled)
	}
	m.submit()
}

// follow moves a member whose leader was handed over.
func (m *member) follow() {
	p := m.query.request.path
	turn := p.readers.enter()
	defer p.readers.leave(turn)
	if next, queue := m.successor(); next != nil && m.model.Ready.Load() == 0 && m.course.CompareAndSwap(courseOpen, courseMoved) {
		m.move(next, queue)
	}
}
