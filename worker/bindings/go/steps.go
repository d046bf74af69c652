//go:build linux && (amd64 || arm64 || loong64 || ppc64le || riscv64)

package xebec

import (
	"context"
	"errors"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/xebec-serving/xebec/worker/wire"
)

// Sequence is one query of a model that is served with [ServeSteps], with the state that start has made for it.
//
// Its Batch has that one query. What step sets is the sequence's next output; without any, the sequence has none this time. Refuse(0, text) and
// Fail(0, text) end the sequence. Inputs are copies of its own. Everything is valid until the sequence has ended.
type Sequence[S any] struct {
	*Batch
	State S

	ending bool
}

// End ends the sequence when step returns. An output that is set is its last one.
func (q *Sequence[S]) End() { q.ending = true }

// ServeSteps serves a model that answers in streams and advances many of them in one call, as a language model does. The manifest says stream: true.
//
// start is called with one query and returns the state of its sequence. It may set the first output. step is then called again and again with all
// running sequences, at most 62 or as many as [WithConcurrency] says, which join and leave between two calls. It sets an output for each, ends those that
// are complete ([Sequence.End]), and must not keep running. A sequence whose reader is slow is left out while 16 outputs or 64 KiB wait.
//
// Both are called on one goroutine that is locked to its thread. An error of start ends its sequence, one of step all that step was called with; so do
// panics. A wrong output ends its sequence alone. The context of start ends when the sequence has ended, whatever the reason: with context.AfterFunc the model
// can free what the sequence has. A caller who has left ends it between two steps. The context of step ends when the gateway is gone.
//
// Options and the result are those of [Serve].
func ServeSteps[S any](start func(ctx context.Context, b *Batch) (S, error), step func(ctx context.Context, running []*Sequence[S]) error, options ...Option) error {
	if start == nil || step == nil {
		return errors.New("xebec: start or step is nil")
	}
	steps := func(c *config) {
		c.capabilities |= wire.CapStreams
		c.steps = &stepper[S]{start: start, step: step, wake: make(chan struct{}, 1)}
	}
	return serve(nil, append([]Option{steps}, options...))
}

// stepping is a stepper of any state.
type stepping interface {
	// join lets a stream begin before the next step. The worker's loop calls it.
	join(s *stream)
	// run steps until the context of w ends.
	run(w *worker)
}

// stepper calls step for all running sequences.
type stepper[S any] struct {
	start func(context.Context, *Batch) (S, error)
	step  func(context.Context, []*Sequence[S]) error

	wake   chan struct{}  // something may have changed: streams that join, that have room or that are not wanted
	called []*Sequence[S] // what step is called with; the model may change it

	mu      sync.Mutex
	joining []*stream
}

func (p *stepper[S]) join(s *stream) {
	s.stepped, s.room = true, p.wake
	p.mu.Lock()
	p.joining = append(p.joining, s)
	p.mu.Unlock()
	s.notify()
}

func (p *stepper[S]) run(w *worker) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true)) // as in worker.run
	var running, ready []*Sequence[S]
	for w.ctx.Err() == nil {
		p.mu.Lock()
		joining := p.joining
		p.joining = nil
		p.mu.Unlock()
		for _, s := range joining {
			if q := p.begin(s); q != nil {
				running = append(running, q)
			}
		}
		running = slices.DeleteFunc(running, (*Sequence[S]).left)
		ready = ready[:0]
		for _, q := range running {
			if !q.stream.isFull() {
				ready = append(ready, q)
			}
		}
		if len(ready) == 0 {
			select {
			case <-p.wake:
			case <-w.ctx.Done():
			}
			continue
		}
		p.advance(w, ready)
		clear(ready)
		running = slices.DeleteFunc(running, func(q *Sequence[S]) bool { return !q.predicting })
	}
}

// begin starts a sequence. It returns nil if it has ended.
func (p *stepper[S]) begin(s *stream) *Sequence[S] {
	q := &Sequence[S]{Batch: &s.batch}
	if q.left() {
		return nil
	}
	entered := time.Now()
	err := s.w.call(s.ctx, func(ctx context.Context, b *Batch) (err error) {
		q.State, err = p.start(ctx, b)
		return err
	}, &s.batch)
	s.stepDone(s.refuseIfCalleeDid(err), false, time.Since(entered))
	if !q.predicting {
		return nil
	}
	return q
}

// left ends a sequence that is not wanted any more, and reports whether it was one.
func (q *Sequence[S]) left() bool {
	s := q.stream
	if s.ctx.Err() == nil {
		return false
	}
	s.end(context.Cause(s.ctx), 0)
	return true
}

// advance calls step, and takes what it has set.
func (p *stepper[S]) advance(w *worker, ready []*Sequence[S]) {
	entered := time.Now()
	p.called = append(p.called[:0], ready...)
	err := w.call(w.ctx, func(ctx context.Context, _ *Batch) error { return p.step(ctx, p.called) }, nil)
	clear(p.called)
	share := time.Since(entered) / time.Duration(len(ready))
	for _, q := range ready {
		q.stream.stepDone(err, q.ending, share)
	}
}

// stepDone takes what start or step has set, and ends the sequence if it is to end.
func (s *stream) stepDone(err error, ending bool, work time.Duration) {
	b := &s.batch
	if err != nil || ending || len(b.refused) > 0 || b.fault != nil {
		s.end(err, work)
		return
	}
	touched := b.touched
	var o output
	if touched {
		if o, err = s.takeOutput(); err != nil {
			s.end(err, work)
			return
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.work += work
	if touched {
		s.push(o)
		s.flush()
	}
}
