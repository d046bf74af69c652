package workertest

import (
	"slices"
	"sync"
	"time"

	"github.com/xebec-serving/xebec/api"
)

// Reader is a query's stream, read by a test. Only the test's goroutine calls its exported methods that api.Stream does not have.
type Reader struct {
	tb TB

	full bool

	mu      sync.Mutex
	changed chan struct{} // closed and replaced at each change
	sent    api.Source
	from    api.Source
	left    bool // before the query is sent
	asked   int  // how often Full was called: after each message but the last
	took    []string
	sure    []float64
}

// NewReader returns a Reader that has no room after a message until it is resumed, if it is full.
func NewReader(tb TB, full bool) *Reader {
	return &Reader{tb: tb, full: full, changed: make(chan struct{})}
}

func (r *Reader) change(note func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	note()
	close(r.changed)
	r.changed = make(chan struct{})
}

// Leave says that the caller is gone before the query is sent.
func (r *Reader) Leave() { r.change(func() { r.left = true }) }

// Sent implements api.Withdrawable.
func (r *Reader) Sent(from api.Source) (wanted bool) {
	r.change(func() { r.sent, wanted = from, !r.left })
	return wanted
}

// Withdrawal waits until the query is sent, and returns where it can be withdrawn.
func (r *Reader) Withdrawal() (from api.Source) {
	r.tb.Helper()
	r.wait("a stream to be sent", func() bool { from = r.sent; return from != nil })
	return from
}

// Open implements api.Stream.
func (r *Reader) Open(from api.Source) {
	r.change(func() {
		if r.from != nil {
			r.tb.Errorf("a stream was opened twice")
		}
		r.from = from
	})
}

// Take implements api.Stream.
func (r *Reader) Take(outputs []api.Value, confidence float64) {
	r.change(func() {
		if r.from == nil {
			r.tb.Errorf("a stream has an output before it was opened")
		}
		r.took, r.sure = append(r.took, string(outputs[0].Data)), append(r.sure, confidence)
	})
}

// Full implements api.Stream.
func (r *Reader) Full() bool {
	r.change(func() { r.asked++ })
	return r.full
}

// Message waits until n messages after the first one were taken, of which none is the last, and returns their outputs.
func (r *Reader) Message(n int) []string {
	r.tb.Helper()
	r.wait("a message of a stream", func() bool { return r.asked >= n })
	return r.Took()
}

// Cancelled implements api.Stream. The scheduler calls it, which this package does without.
func (r *Reader) Cancelled() {}

// End implements api.Stream, as Cancelled.
func (r *Reader) End(api.Code, string) {}

// wait blocks until cond holds.
func (r *Reader) wait(what string, cond func() bool) {
	r.tb.Helper()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for {
		r.mu.Lock()
		ok, changed := cond(), r.changed
		r.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-changed:
		case <-timer.C:
			r.tb.Fatalf("waiting for %s: nothing for %v", what, patience)
		}
	}
}

// Source waits until the stream is open.
func (r *Reader) Source() (from api.Source) {
	r.tb.Helper()
	r.wait("the first output of a stream", func() bool { from = r.from; return from != nil })
	return from
}

// Wait waits for n outputs after the first one, and returns them.
func (r *Reader) Wait(n int) (took []string) {
	r.tb.Helper()
	r.wait("outputs of a stream", func() bool { took = r.took; return len(took) >= n })
	return took[:n]
}

// Took returns the outputs so far, without the first one.
func (r *Reader) Took() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.took
}

// Want compares all outputs of a stream that has ended, the first one among them.
func (r *Reader) Want(b *api.Batch, texts ...string) {
	r.tb.Helper()
	got := append([]string{string(b.Queries[0].Outputs[0].Data)}, r.Took()...)
	if !slices.Equal(got, texts) {
		r.tb.Errorf("batch %d: the stream has %d outputs, which end with %q, expected %d, which end with %q", b.ID, len(got), ending(got), len(texts), ending(texts))
	}
}

// ending is the last few outputs, cut.
func ending(texts []string) (last []string) {
	for _, text := range texts[max(len(texts)-3, 0):] {
		last = append(last, text[:min(len(text), 30)])
	}
	return last
}

// SendStream sends one text whose outputs r takes; nil for a caller that takes one output.
func (s *Session) SendStream(r *Reader, text string) *api.Batch {
	s.TB.Helper()
	b := s.NewBatch(Texts(text)...)
	if r != nil {
		b.Queries[0].Stream = r
	}
	if err := s.TrySend(b); err != nil {
		s.TB.Fatalf("send a stream: %v", err)
	}
	return b
}
