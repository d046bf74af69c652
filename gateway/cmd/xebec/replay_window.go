package main

import (
	"github.com/xebec-serving/xebec/gateway/inferlog"
)

// What is remembered of queries until the feedback on them is met, further on in the log. The oldest are forgotten first.
const (
	maxRemembered      = 1 << 16
	maxRememberedBytes = 64 << 20
)

// remembered is a query of the log on its way to its answer and its feedback.
type remembered struct {
	id     uint64 // in the log
	schema *inferlog.Schema
	// input and then are JSON: what was asked, for cases only, and what was answered; then is nil where nothing was.
	input, then []byte
	// label is what is known to be right, nil where nothing is.
	label []byte

	done  bool   // the new answer is there:
	now   []byte // nil where there is none
	newID uint64
	// verdicts are feedback that waits for newID.
	verdicts [][]byte

	bytes int
}

// window is what is remembered, by the id that the log has.
type window struct {
	byID  map[uint64]*remembered
	queue []*remembered // the oldest first, from head on
	head  int
	bytes int
	// forgotten counts queries that had to make room.
	forgotten int
}

func (w *window) put(q *remembered) {
	if w.byID == nil {
		w.byID = map[uint64]*remembered{}
	}
	q.bytes = len(q.input) + len(q.then) + 256
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
		w.queue = append([]*remembered(nil), w.queue[w.head:]...)
		w.head = 0
	}
}

// grow accounts for the new answer to a query that is remembered.
func (w *window) grow(q *remembered, n int) {
	if w.byID[q.id] == q {
		q.bytes += n
		w.bytes += n
	}
}
