package scheduler

import (
	"cmp"
	"slices"
	"testing"

	"github.com/xebec-serving/xebec/api"
	"pgregory.net/rapid"
)

// TestQueueAgainstSortedSlice compares the heap with a sorted slice.
func TestQueueAgainstSortedSlice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var q queue
		var sorted []entry
		seq := uint64(0)
		t.Repeat(map[string]func(*rapid.T){
			"push": func(t *rapid.T) {
				seq++
				e := entry{api.Nanos(rapid.IntRange(0, 20).Draw(t, "at")), seq, &Item{seq: seq}}
				q.push(e.at, e.it)
				sorted = append(sorted, e)
				slices.SortFunc(sorted, func(a, b entry) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.seq, b.seq)) })
			},
			"pop": func(t *rapid.T) {
				if len(sorted) == 0 {
					t.Skip()
				}
				if it := q.pop(); it != sorted[0].it {
					t.Fatalf("popped %d, want %d", it.seq, sorted[0].seq)
				}
				sorted = sorted[1:]
			},
			"remove": func(t *rapid.T) {
				if len(sorted) == 0 {
					t.Skip()
				}
				i := rapid.IntRange(0, len(sorted)-1).Draw(t, "index")
				at := q.find(sorted[i].at, sorted[i].it)
				if at < 0 || q.heap[at].it != sorted[i].it {
					t.Fatalf("item %d is not found", sorted[i].seq)
				}
				q.removeAt(at)
				sorted = slices.Delete(sorted, i, i+1)
			},
			"": func(t *rapid.T) {
				first := api.Never
				if len(sorted) > 0 {
					first = sorted[0].at
				}
				if q.len() != len(sorted) || q.first() != first {
					t.Fatalf("%d items from %d, want %d from %d", q.len(), q.first(), len(sorted), first)
				}
				if q.find(5, &Item{seq: seq + 1}) >= 0 {
					t.Fatal("find found an item that was never pushed")
				}
				at := api.Nanos(rapid.IntRange(-1, 21).Draw(t, "at"))
				limit := rapid.IntRange(0, 20).Draw(t, "limit")
				n := 0
				for _, e := range sorted {
					if e.at <= at {
						n++
					}
				}
				if got := q.ahead(at, limit); got != n && (n <= limit || got <= limit) {
					t.Fatalf("%d due at %d, counted %d up to %d", n, at, got, limit)
				}
			},
		})
	})
}
