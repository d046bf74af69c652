package scheduler

import "github.com/xebec-serving/xebec/api"

// entry is an item's place in a queue. The key is copied from the item so that sifting touches only the queue's own
// memory.
type entry struct {
	at  api.Nanos
	seq uint64
	it  *Item
}

func (e entry) before(o entry) bool {
	return e.at < o.at || e.at == o.at && e.seq < o.seq
}

// queue is a binary heap, earliest time first, ties by acceptance. Items do not know their index, because writing it
// back would touch a cold cache line at every step of a sift. Removal from the middle searches for the item.
type queue struct {
	heap []entry
	// latest is not before any time in the queue: a new item at or after it has every other item ahead.
	latest api.Nanos
}

func (q *queue) len() int { return len(q.heap) }

// first is the earliest time, Never when the queue is empty.
func (q *queue) first() api.Nanos {
	if len(q.heap) == 0 {
		return api.Never
	}
	return q.heap[0].at
}

func (q *queue) push(at api.Nanos, it *Item) {
	if len(q.heap) == 0 || at > q.latest {
		q.latest = at
	}
	q.heap = append(q.heap, entry{at, it.seq, it})
	q.up(len(q.heap) - 1)
}

func (q *queue) pop() *Item {
	it := q.heap[0].it
	q.removeAt(0)
	return it
}

func (q *queue) removeAt(i int) {
	last := len(q.heap) - 1
	moved := q.heap[last]
	q.heap[last] = entry{}
	q.heap = q.heap[:last]
	if i == last {
		return
	}
	q.heap[i] = moved
	if i > 0 && moved.before(q.heap[(i-1)/2]) {
		q.up(i)
	} else {
		q.down(i)
	}
}

func (q *queue) up(i int) {
	h := q.heap
	e := h[i]
	for i > 0 {
		parent := (i - 1) / 2
		if !e.before(h[parent]) {
			break
		}
		h[i] = h[parent]
		i = parent
	}
	h[i] = e
}

func (q *queue) down(i int) {
	h := q.heap
	e := h[i]
	for {
		child := 2*i + 1
		if child >= len(h) {
			break
		}
		if child+1 < len(h) && h[child+1].before(h[child]) {
			child++
		}
		if !h[child].before(e) {
			break
		}
		h[i] = h[child]
		i = child
	}
	h[i] = e
}

// find returns the index of it, which was pushed with the time at, or -1. It visits only the entries due before it.
func (q *queue) find(at api.Nanos, it *Item) int {
	return q.findFrom(0, entry{at, it.seq, it})
}

func (q *queue) findFrom(i int, e entry) int {
	if i >= len(q.heap) || e.before(q.heap[i]) {
		return -1
	}
	if q.heap[i].it == e.it {
		return i
	}
	if at := q.findFrom(2*i+1, e); at >= 0 {
		return at
	}
	return q.findFrom(2*i+2, e)
}

// ahead counts the items due at or before at. It stops counting beyond limit.
func (q *queue) ahead(at api.Nanos, limit int) int {
	if len(q.heap) == 0 || at < q.heap[0].at {
		return 0
	}
	if at >= q.latest {
		return len(q.heap)
	}
	return q.aheadFrom(0, at, limit)
}

func (q *queue) aheadFrom(i int, at api.Nanos, limit int) int {
	if i >= len(q.heap) || q.heap[i].at > at {
		return 0
	}
	n := 1
	if n <= limit {
		n += q.aheadFrom(2*i+1, at, limit-n)
	}
	if n <= limit {
		n += q.aheadFrom(2*i+2, at, limit-n)
	}
	return n
}
