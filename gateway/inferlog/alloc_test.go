//go:build !race

package inferlog

import (
	"runtime"
	"testing"
	"time"
)

// Logging a query allocates nothing, including the flush of its block.
func TestAddAllocatesNothing(t *testing.T) {
	l := mustOpen(t, Config{Dir: t.TempDir(), BlockBytes: 16 << 10, Flush: time.Hour, FileBytes: 1 << 30, MaxBytes: 8 << 30})
	s := l.Function("digits", digitsIn, digitsOut, 1)
	r, f := query(7), &Feedback{ID: 7, Kind: FeedbackLabel, Label: []byte("7")}
	for range 10_000 {
		s.Add(r) // every block gets its memory, and the file is created
	}
	mustFlush(t, l)
	written := l.Stats().WrittenBytes
	if n := testing.AllocsPerRun(20_000, func() {
		if s.Sampled(r.ID) {
			s.Add(r)
			s.Feedback(f)
		}
		runtime.Gosched() // AllocsPerRun leaves one processor, which the writer also needs
	}); n != 0 {
		t.Errorf("%v allocations for each query", n)
	}
	if l.Stats().WrittenBytes == written {
		t.Error("no record was written during the test")
	}
}
