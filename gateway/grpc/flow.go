package grpc

import (
	"sync"

	"github.com/xebec-serving/xebec/api"
)

// flowBytes is how much of a stream may wait for its client before the worker has to.
const flowBytes = 256 << 10 //xebec:limit outputs of a stream that wait for a gRPC client

// flow takes the outputs of a model that streams, after the first one, and keeps them rendered until the call's goroutine sends them.
type flow struct {
	render func(outputs []api.Value, confidence float64) (message any, bytes int)
	wake   chan struct{} // capacity 1

	mu     sync.Mutex
	from   api.Source // nil until the query is sent
	parts  []any      // messages
	bytes  int
	full   bool // the worker waits
	left   bool // the client
	ended  bool
	code   api.Code
	detail string
}

func newFlow(render func(outputs []api.Value, confidence float64) (message any, bytes int)) *flow {
	return &flow{render: render, wake: make(chan struct{}, 1)}
}

// Sent implements [api.Withdrawable].
func (f *flow) Sent(from api.Source) (wanted bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.from = from
	return !f.left
}

// Open implements [api.Stream].
func (f *flow) Open(from api.Source) {
	f.mu.Lock()
	f.from = from
	left := f.left
	f.mu.Unlock()
	if left {
		from.Cancel()
	}
}

// Take implements [api.Stream].
func (f *flow) Take(outputs []api.Value, confidence float64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.left {
		return
	}
	part, bytes := f.render(outputs, confidence)
	f.parts = append(f.parts, part)
	f.bytes += bytes
}

// Full implements [api.Stream].
func (f *flow) Full() bool {
	f.mu.Lock()
	f.full = f.left || f.bytes >= flowBytes
	full := f.full
	f.mu.Unlock()
	f.signal()
	return full
}

// Cancelled implements [api.Stream].
func (f *flow) Cancelled() { f.leave() }

// End implements [api.Stream].
func (f *flow) End(code api.Code, detail string) {
	f.mu.Lock()
	f.ended, f.code, f.detail = true, code, detail
	f.mu.Unlock()
	f.signal()
}

func (f *flow) signal() {
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// leave says that what comes is not taken any more.
func (f *flow) leave() {
	f.mu.Lock()
	f.left, f.parts, f.bytes = true, nil, 0
	from := f.from
	f.mu.Unlock()
	if from != nil {
		from.Cancel()
	}
	f.signal()
}

// begin asks for further outputs, after the first one was sent.
func (f *flow) begin() {
	f.mu.Lock()
	from := f.from
	f.mu.Unlock()
	if from != nil {
		from.Resume()
	}
}

// next waits for further outputs. With ended there are none after these, and failure says why if the stream has broken off. It returns false if done is
// closed first.
func (f *flow) next(done <-chan struct{}) (parts []any, ended bool, failed *failure, ok bool) {
	for {
		f.mu.Lock()
		parts, f.parts, f.bytes = f.parts, nil, 0
		full, from := f.full, f.from
		f.full = false
		if ended = f.ended; ended && f.code != api.OK {
			failed = &failure{code: f.code, message: f.code.Reason()}
			if f.code == api.InvalidInput && f.detail != "" {
				failed.message = f.detail
			}
		}
		f.mu.Unlock()
		if full && !ended {
			from.Resume()
		}
		if len(parts) > 0 || ended {
			return parts, ended, failed, true
		}
		select {
		case <-f.wake:
		case <-done:
			return nil, false, nil, false
		}
	}
}
