package timer

import (
	"container/heap"
	"math/rand/v2"
	"testing"

	"github.com/xebec-serving/xebec/api"
)

// The load of both benchmarks: the number of outstanding timers, and how far away their deadlines are at most.
const (
	outstanding = 100_000
	withinNanos = 100_000_000
)

// heapOf is the baseline for the wheel: a binary heap of {at, ptr} in which each timer knows its place, so that it can
// be stopped.
type heapOf []heapEntry

type heapEntry struct {
	at api.Nanos
	t  *heapTimer
}

type heapTimer struct{ place int }

func (h heapOf) Len() int           { return len(h) }
func (h heapOf) Less(i, j int) bool { return h[i].at < h[j].at }
func (h heapOf) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].t.place, h[j].t.place = i, j
}
func (h *heapOf) Push(x any) { panic("not used: it would allocate") }
func (h *heapOf) Pop() any   { panic("not used: it would allocate") }

func (h *heapOf) set(t *heapTimer, at api.Nanos) {
	t.place = len(*h)
	*h = append(*h, heapEntry{at, t})
	heap.Fix(h, t.place)
}

func (h *heapOf) stop(t *heapTimer) {
	i, last := t.place, len(*h)-1
	h.Swap(i, last)
	(*h)[last] = heapEntry{}
	*h = (*h)[:last]
	if i < last {
		heap.Fix(h, i)
	}
}

// BenchmarkWheel and BenchmarkHeap: "stop" is the case of a query that is answered in time: the oldest timer is stopped
// and set again for a new query, while time passes. "expire" lets every timer expire and sets it again.
func BenchmarkWheel(b *testing.B) {
	b.Run("stop", func(b *testing.B) {
		w, timers := New[int](0), make([]Timer[int], outstanding)
		for i := range timers {
			w.Set(&timers[i], api.Nanos(rand.Int64N(withinNanos)))
		}
		i, now := 0, api.Nanos(0)
		b.ReportAllocs()
		for b.Loop() {
			t := &timers[i]
			if i++; i == len(timers) {
				i = 0
			}
			w.Stop(t)
			w.Set(t, now+1+api.Nanos(rand.Int64N(withinNanos)))
			now++ // too slow for any to expire: "expire" covers that
		}
	})
	b.Run("expire", func(b *testing.B) {
		w, timers := New[int](0), make([]Timer[int], outstanding)
		for i := range timers {
			w.Set(&timers[i], api.Nanos(rand.Int64N(withinNanos)))
		}
		now := api.Nanos(0)
		b.ReportAllocs()
		for b.Loop() {
			t := w.Pop()
			for t == nil {
				now = w.Next()
				w.Advance(now)
				t = w.Pop()
			}
			w.Set(t, now+1+api.Nanos(rand.Int64N(withinNanos)))
		}
	})
}

func BenchmarkHeap(b *testing.B) {
	b.Run("stop", func(b *testing.B) {
		h, timers := make(heapOf, 0, outstanding), make([]heapTimer, outstanding)
		for i := range timers {
			h.set(&timers[i], api.Nanos(rand.Int64N(withinNanos)))
		}
		i, now := 0, api.Nanos(0)
		b.ReportAllocs()
		for b.Loop() {
			t := &timers[i]
			if i++; i == len(timers) {
				i = 0
			}
			h.stop(t)
			h.set(t, now+1+api.Nanos(rand.Int64N(withinNanos)))
			now++
		}
	})
	b.Run("expire", func(b *testing.B) {
		h, timers := make(heapOf, 0, outstanding), make([]heapTimer, outstanding)
		for i := range timers {
			h.set(&timers[i], api.Nanos(rand.Int64N(withinNanos)))
		}
		b.ReportAllocs()
		for b.Loop() {
			first := h[0]
			h.stop(first.t)
			h.set(first.t, first.at+1+api.Nanos(rand.Int64N(withinNanos)))
		}
	})
}
