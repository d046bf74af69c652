package replay

import "testing"

// The window is bounded in queries and in bytes, and the newest query always stays.
func TestWindow(t *testing.T) {
	var w window
	for id := range uint64(maxRemembered + 100) {
		w.put(&query{id: id})
	}
	if len(w.byID) != maxRemembered || w.forgotten != 100 || w.byID[99] != nil || w.byID[100] == nil {
		t.Errorf("%d remembered, %d forgotten", len(w.byID), w.forgotten)
	}
	for id := range uint64(maxRemembered * 3) {
		w.put(&query{id: 1e9 + id})
	}
	if len(w.byID) != maxRemembered || len(w.queue) > 2*maxRemembered+2 {
		t.Errorf("%d remembered, a queue of %d", len(w.byID), len(w.queue))
	}
	big := query{id: 7, logged: make([]byte, maxRememberedBytes)}
	w.put(&big)
	if len(w.byID) != 1 || w.byID[7] != &big {
		t.Errorf("%d remembered beside the one that takes all bytes", len(w.byID)-1)
	}
	w.put(&query{id: 8})
	w.grow(w.byID[8], 1000)
	if len(w.byID) != 1 || w.bytes != queryBytes+1000 {
		t.Errorf("%d remembered, %d bytes", len(w.byID), w.bytes)
	}
}

// If an id is in the log twice, evicting the first query leaves the second.
func TestWindowWithOneIDTwice(t *testing.T) {
	var w window
	first, second := &query{id: 1}, &query{id: 1}
	w.put(first)
	w.put(second)
	for id := range uint64(maxRemembered - 1) {
		w.put(&query{id: 10 + id})
	}
	if w.byID[1] != second {
		t.Error("the second query was forgotten with the first")
	}
}
