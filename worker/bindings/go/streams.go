//go:build linux && (amd64 || arm64 || loong64 || ppc64le || riscv64)

package xebec

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/worker/wire"
)

// ErrUnwanted ends the context of a stream of which no further output is wanted: its caller has left, or takes a single output.
var ErrUnwanted = errors.New("xebec: no further output of this stream is wanted")

// maxAhead and maxAheadBytes bound how far predict may be ahead of the reader of its stream: Send blocks while either is reached.
const (
	maxAhead      = 16       //xebec:limit outputs that a model in Go is ahead of the reader of its stream
	maxAheadBytes = 64 << 10 //xebec:limit bytes of such outputs
)

// stream is one query whose outputs are sent one after the other (section 4.1 of the protocol). predict runs on a goroutine of its own and never
// touches shared memory: it reads a copy of the inputs, and what it sends is laid out in private memory. Whichever of the two makes an answer
// possible sends it: predict with an output, or the loop with the turn to answer. So every block of the segments is used under mu, in the worker's
// turn.
type stream struct {
	w       *worker
	batch   Batch
	ctx     context.Context
	stop    context.CancelCauseFunc
	entered time.Time     // when the code of the model was entered last
	room    chan struct{} // wakes Send, or the stepper, when there may be room or no output is wanted
	stepped bool          // a stepper runs the model's code, not a goroutine of the stream's own

	mu       sync.Mutex
	turn     wire.Request // the request to answer, if mine
	mine     bool         // the turn is the worker's
	out      []byte       // the output block of turn
	begun    bool         // the first output was sent
	unwanted bool         // CANCEL or DISCARD has come
	ending   *ending      // set when predict has returned
	ahead    []output
	bytes    int         // of ahead
	kept     *keptOutput // answered NEED_MORE, and waits for its GRANT
	work     time.Duration
}

// output is one output of a stream, laid out as a block of count 1.
type output struct {
	block  []byte
	values wire.Reader
}

// ending is how predict has ended a stream.
type ending struct {
	status  wire.Status
	text    string // for operators, if status is an error
	refusal []byte // the block with the status of the query, if predict has refused it
}

// beginStream answers a PREDICT by a stream.
func (w *worker) beginStream(r *wire.Request, in, out []byte) error {
	if r.Count != 1 {
		return fmt.Errorf("xebec: the gateway sent batch %d with %d queries, expected 1 for a stream", r.Batch, r.Count)
	}
	s := &stream{w: w, turn: *r, mine: true, out: out, room: make(chan struct{}, 1)}
	b := &s.batch
	b.w, b.stream = w, s
	// predict may read the inputs for as long as the stream lasts, but their block is the gateway's after the first output.
	if err := b.begin(w.inputs, r, bytes.Clone(in)); err != nil {
		return err
	}
	if err := s.beginOutput(); err != nil {
		return fmt.Errorf("xebec: batch %d: %w", r.Batch, err)
	}
	b.predicting = true
	s.ctx, s.stop = context.WithCancelCause(w.ctx)
	w.answers.Lock()
	tooMany := len(w.streams) >= w.concurrency
	if !tooMany {
		w.streams[r.Batch] = s
		w.open++
	}
	w.answers.Unlock()
	if tooMany {
		s.stop(nil)
		return fmt.Errorf("xebec: the gateway sent batch %d while %d streams are open, more than this worker evaluates at once", r.Batch, w.concurrency)
	}
	if w.steps != nil {
		w.steps.join(s)
	} else {
		w.running.Go(s.run)
	}
	return nil
}

func (w *worker) findStream(batch uint64) *stream {
	if !w.streaming {
		return nil
	}
	w.answers.Lock()
	defer w.answers.Unlock()
	return w.streams[batch]
}

// beginOutput makes the batch ready for the next output.
func (s *stream) beginOutput() error {
	b := &s.batch
	b.touched = false
	if err := b.out.Begin(s.w.outputs, nil, 1); err != nil {
		return err
	}
	if s.w.capabilities&wire.CapConfidences != 0 {
		b.fillConfidences()
	}
	return nil
}

func (s *stream) run() {
	s.entered = time.Now()
	err := s.w.call(s.ctx, s.w.predict, &s.batch)
	s.end(s.refuseIfCalleeDid(err), time.Since(s.entered))
}

// refuseIfCalleeDid refuses the query if a callee has refused what it led to, and returns any other error.
func (s *stream) refuseIfCalleeDid(err error) error {
	if text, ok := refuses(err); ok {
		s.batch.Refuse(0, text)
		return nil
	}
	return err
}

// Send sends what predict has set as the next output of the stream, and makes b ready for the one after it. It blocks while predict is so far
// ahead of its reader that there is no room. It returns an error if the output contradicts the signature, and when no further output is wanted:
// predict then returns, with any error.
//
// Send may be called in predict only, on its goroutine, by a model that is served with [WithStreams].
func (b *Batch) Send() error {
	if b.stream == nil || b.stream.stepped || !b.predicting {
		misused("Send needs Serve(…, WithStreams()) and can be called in predict only")
	}
	return b.stream.send()
}

func (s *stream) send() error {
	if s.ctx.Err() != nil {
		return context.Cause(s.ctx)
	}
	o, err := s.takeOutput()
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.work += time.Since(s.entered)
	s.push(o)
	s.flush()
	for full := s.full(); full; full = s.full() {
		s.mu.Unlock()
		select {
		case <-s.room:
		case <-s.ctx.Done():
		}
		s.mu.Lock()
		if s.ctx.Err() != nil {
			break
		}
	}
	s.mu.Unlock()
	s.entered = time.Now()
	if s.ctx.Err() != nil {
		return context.Cause(s.ctx)
	}
	return nil
}

// takeOutput returns the output that predict has set. After an error the stream ends in BAD_OUTPUT.
func (s *stream) takeOutput() (o output, err error) {
	b := &s.batch
	if b.fault != nil {
		return o, b.fault
	}
	_, o.block, b.fault = b.out.Finish()
	if b.fault == nil {
		b.fault = s.w.check(&o.values, o.block, 1)
	}
	if b.fault == nil {
		b.fault = s.beginOutput()
	}
	return o, b.fault
}

// check opens a block of outputs that was built here. It finds what the gateway would find, such as a string that is not UTF-8, before it would have
// to end the worker for it.
func (w *worker) check(r *wire.Reader, block []byte, count int) error {
	if err := w.outputs.Open(r, block, count); err != nil {
		return err
	}
	for s := range w.sig.Outputs {
		for i := range count {
			if _, _, err := r.Item(i, s, nil); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *stream) push(o output) {
	if s.unwanted {
		return
	}
	s.ahead = append(s.ahead, o)
	s.bytes += len(o.block)
}

// notify wakes what waits for the stream.
func (s *stream) notify() {
	select {
	case s.room <- struct{}{}:
	default: // it has not seen the last wake-up yet
	}
}

func (s *stream) isFull() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.full()
}

func (s *stream) full() bool {
	return !s.unwanted && (len(s.ahead) >= maxAhead || s.bytes >= maxAheadBytes)
}

// end records how predict has returned, after some more work. What it has set and not sent is the last output.
func (s *stream) end(err error, work time.Duration) {
	defer s.stop(nil)
	b := &s.batch
	var last *output
	if err == nil && b.touched && len(b.refused) == 0 {
		if o, fault := s.takeOutput(); fault == nil {
			last = &o
		}
	}
	e := &ending{status: wire.StatusOK}
	switch fault := b.end(); {
	case fault != nil: // Send has returned it, so err is probably the same
		e.status, e.text = wire.StatusBadOutput, fault.Error()
	case err != nil:
		e.status, e.text = wire.StatusModelError, err.Error()
	case len(b.refused) > 0:
		if e.refusal, err = s.refusal(); err != nil {
			e.status, e.text = wire.StatusBadOutput, err.Error()
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.work += work
	if last != nil {
		s.push(*last)
	}
	s.ending = e
	s.flush()
}

// refusal lays out the status of a query that predict has refused.
func (s *stream) refusal() ([]byte, error) {
	if err := s.beginOutput(); err != nil {
		return nil, err
	}
	block, err := s.w.layOutRefused(&s.batch, nil, 1)
	return block, err
}

// grant gives the turn back to the worker.
func (s *stream) grant(r *wire.Request, out []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mine {
		return fmt.Errorf("xebec: the gateway sent GRANT for batch %d, whose turn is the worker's", r.Batch)
	}
	s.turn, s.out, s.mine = *r, out, true
	if kept := s.kept; kept != nil {
		if len(out) < len(kept.block) {
			return fmt.Errorf("xebec: the gateway granted batch %d %d bytes, but it needs %d", r.Batch, len(out), len(kept.block))
		}
		s.kept = nil
		copy(out, kept.block)
		s.work = time.Duration(kept.response.WorkNanos)
		s.reply(kept.response.Status, kept.response.Count, kept.response.Flags, len(kept.block))
		return nil
	}
	s.flush()
	return nil
}

// discard ends a stream whose rest is not wanted. r is the DISCARD, or nil for CANCEL.
func (s *stream) discard(r *wire.Request) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r != nil {
		if s.mine {
			return fmt.Errorf("xebec: the gateway sent DISCARD for batch %d, whose turn is the worker's", r.Batch)
		}
		s.turn, s.out, s.mine, s.kept = *r, nil, true, nil
	}
	s.unwanted = true
	clear(s.ahead)
	s.ahead, s.bytes = s.ahead[:0], 0
	s.stop(ErrUnwanted)
	s.notify()
	s.flush()
	return nil
}

// flush answers if it is the worker's turn and there is something to say. A stream that is not wanted ends when predict has returned: until then it
// is one of those that the worker evaluates.
func (s *stream) flush() {
	switch {
	case !s.mine:
	case s.unwanted && s.ending != nil:
		s.reply(wire.StatusOK, 0, 0, 0)
	case s.unwanted:
	case len(s.ahead) > 0:
		s.sendAhead()
	case s.ending != nil:
		s.finish()
	}
}

// sendAhead sends the outputs that are ready: the first one alone, later as many as there are.
func (s *stream) sendAhead() {
	n := min(len(s.ahead), wire.MaxStreamOutputs)
	if !s.begun {
		n = 1
	}
	status := wire.StatusMore
	if e := s.ending; e != nil && e.status == wire.StatusOK && e.refusal == nil && n == len(s.ahead) {
		status = wire.StatusOK
	}
	block := s.ahead[0].block
	if n > 1 {
		v := outputValues{outputs: s.ahead[:n]}
		block = make([]byte, s.w.outputs.Size(&v))
		if _, err := s.w.outputs.Write(block, &v); err != nil {
			panic(err) // each of them was checked
		}
	}
	for _, o := range s.ahead[:n] {
		s.bytes -= len(o.block)
	}
	left := copy(s.ahead, s.ahead[n:])
	clear(s.ahead[left:])
	s.ahead, s.begun = s.ahead[:left], true
	flags := uint32(0)
	if s.w.capabilities&wire.CapConfidences != 0 {
		flags = wire.FlagConfidences
	}
	s.sendBlock(status, uint32(n), flags, block)
	s.notify()
}

// outputValues presents several outputs as one batch.
type outputValues struct {
	outputs []output
	value   api.Value
}

func (v *outputValues) Len() int { return len(v.outputs) }

func (v *outputValues) At(i, s int) *api.Value {
	data, dims, err := v.outputs[i].values.Item(0, s, v.value.Dims[:0])
	if err != nil {
		panic(err) // it was checked
	}
	v.value = api.Value{Data: data, Dims: dims}
	return &v.value
}

// sendBlock answers with a block, or keeps it and answers NEED_MORE.
func (s *stream) sendBlock(status wire.Status, count, flags uint32, block []byte) {
	if len(block) <= len(s.out) {
		s.reply(status, count, flags, copy(s.out, block))
		return
	}
	s.kept = &keptOutput{block: block, response: wire.Response{Status: status, Count: count, Flags: flags, WorkNanos: uint64(s.work)}}
	s.respond(&wire.Response{Status: wire.StatusNeedMore, Count: count, Need: uint64(len(block))})
}

// finish sends how predict has ended the stream.
func (s *stream) finish() {
	e := s.ending
	if e.refusal == nil {
		s.reply(e.status, 0, 0, copy(s.out, wire.CutText(strings.ToValidUTF8(e.text, "�"), len(s.out))))
		return
	}
	flags := wire.FlagStatuses
	if s.w.capabilities&wire.CapConfidences != 0 {
		flags |= wire.FlagConfidences
	}
	s.sendBlock(wire.StatusOK, 1, flags, e.refusal)
}

// reply answers, and forgets the stream unless it goes on.
func (s *stream) reply(status wire.Status, count, flags uint32, length int) {
	last := status != wire.StatusMore
	if last {
		s.w.answers.Lock()
		delete(s.w.streams, s.turn.Batch) // before the gateway can send the next one
		s.w.answers.Unlock()
	}
	s.respond(&wire.Response{Status: status, Count: count, Flags: flags, OutLen: uint64(length)})
	if last {
		s.w.answered()
	}
}

// respond gives the turn to the gateway.
func (s *stream) respond(res *wire.Response) {
	res.Batch, res.Generation, res.Kind, res.OutOff = s.turn.Batch, s.turn.Generation, wire.KindPredict, s.turn.OutOff
	res.WorkNanos = uint64(s.work)
	s.work, s.mine, s.out = 0, false, nil
	if err := s.w.respond(res); err != nil {
		s.w.broken(err)
	}
}
