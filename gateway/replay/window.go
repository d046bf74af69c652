package replay

import (
	"github.com/xebec-serving/xebec/gateway/inferlog"
)

// Bounds of what is remembered for feedback that comes later in the log.
const (
	maxRemembered      = 1 << 16
	maxRememberedBytes = 64 << 20
	// queryBytes is what a remembered query takes beside its JSON.
	queryBytes = 256
)

// query is a query of the log between its logged answer, its new answer and its feedback.
type query struct {
	id     uint64 // in the log
	schema *inferlog.Schema
	// input and logged are JSON: the input, which only cases need, and the logged output, nil if there was none.
	input, logged []byte
	// label is the output that is known to be right, nil if none is.
	label []byte

	answered bool   // the next two are set
	output   []byte // of the new answer, nil if it has none
	newID    uint64
	// verdicts are feedback that waits for newID.
	verdicts [][]byte

	bytes int
}

// window holds the newest queries by their id in the log.
type window struct {
	byID  map[uint64]*query
	queue []*query // oldest first, from head on
	head  int
	bytes int
	// forgotten counts the queries that were evicted.
	forgotten int
}

func (w *window) put(q *query) {
	if w.byID == nil {
		w.byID = map[uint64]*query{}
	}
	q.bytes = len(q.input) + len(q.logged) + queryBytes
	w.byID[q.id] = q
	w.queue = append(w.queue, q)
	w.bytes += q.bytes
	for len(w.queue)-w.head > 1 && (len(w.queue)-w.head > maxRemembered || w.bytes > maxRememberedBytes) {
		old := w.queue[w.head]
		w.queue[w.head] = nil
		w.head++
		w.bytes -= old.bytes
		w.forgotten++
		if w.byID[old.id] == old {
			delete(w.byID, old.id)
		}
	}
	if w.head > maxRemembered {
		w.queue = append([]*query(nil), w.queue[w.head:]...)
		w.head = 0
	}
}

// find returns the query that feedback is about, nil if it is not in the window.
func (w *window) find(e *inferlog.Entry) *query {
	if q := w.byID[e.Feedback.ID]; q != nil && q.schema.Function == e.Schema.Function {
		return q
	}
	return nil
}

// grow adds n bytes to the account of a query, unless it was evicted.
func (w *window) grow(q *query, n int) {
	if w.byID[q.id] == q {
		q.bytes += n
		w.bytes += n
	}
}
