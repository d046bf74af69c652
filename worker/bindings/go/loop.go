//go:build linux && (amd64 || arm64 || loong64 || ppc64le || riscv64)

package xebec

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/api/busypoll"
	"github.com/xebec-serving/xebec/shm"
	"github.com/xebec-serving/xebec/worker/wire"
)

// worker is the state of one connection. The loop owns everything but the fields under mu and answers.
//
// Its states are connected (HELLO sent), welcomed, ready (a generation is mapped) and draining. handleFrame says in
// which states each frame is legal. Any other frame is a mistake of the gateway, and Serve returns an error.
type worker struct {
	config
	predict  func(context.Context, *Batch) error
	conn     *socket
	ctx      context.Context
	cancel   context.CancelCauseFunc
	finished chan struct{} // closed when the loop has ended

	welcomed bool
	mode     uint32
	sig      api.Signature
	inputs   *wire.Schema // of PREDICT
	labelled *wire.Schema // of FEEDBACK
	outputs  *wire.Schema
	refusing *wire.Schema // outputs with a status for each query; nil in version 1
	calling  *lines       // nil: LINES has not come

	gen   generation
	last  uint64 // number of the last batch that was begun
	batch Batch
	busy  busypoll.Estimator // when to expect the next request
	began time.Time          // what busy's times count from

	lanes   lanes
	running sync.WaitGroup // goroutines that run the model's code beside the loop

	// answers is locked in workers that are shared: see lockAnswers. It guards the ring of responses, a change of gen,
	// and what follows.
	answers  sync.Mutex
	draining bool
	kept     map[uint64]*keptOutput
	streams  map[uint64]*stream
	open     int    // requests that the loop has handed on and that are not answered, streams included
	failure  error  // what ended the connection, if another goroutine has met it
	frame    []byte // buffer for a RESPONSE frame, without rings

	mu      sync.Mutex
	leaving leaveState
	reason  string
}

// leaveState is the progress of a request to leave. LEAVING is legal only after SEGMENTS.
type leaveState uint8

const (
	leaveNotRequested leaveState = iota // before SEGMENTS, not requested
	leaveRequested                      // before SEGMENTS, requested
	leaveAllowed                        // after SEGMENTS, not requested
	leaveSent                           // sent, or no longer needed
)

// generation is a mapped pair of segments.
type generation struct {
	number   uint32
	a, b     *shm.Segment
	slabB    uint64 // where B's slab begins
	entries  uint64
	consumer *shm.Consumer
	producer *shm.Producer
}

func (g *generation) close() error {
	if g.a == nil {
		return nil
	}
	err := errors.Join(g.a.Close(), g.b.Close())
	*g = generation{number: g.number}
	return err
}

// keptOutput is an answer that did not fit its grant, kept until GRANT or DISCARD.
type keptOutput struct {
	block    []byte
	response wire.Response
}

// loop runs until the connection ends or the gateway has drained the worker.
//
// It follows section 3.1 of the protocol with one shortcut. Reading the socket empty before declaring sleep (step 1)
// keeps unread bells from piling up, and the read that ends a sleep takes that sleep's bell. So step 1 is needed only
// after a sleep that was called off because the ring had a request after all. If a bell still comes late, for example
// because a frame ended the sleep, it ends the next sleep for nothing. No wake-up is lost, because the loop looks at
// the ring after every read.
func (w *worker) loop() error {
	hello := wire.Hello{Major: wire.Major, Capabilities: w.capabilities, Token: w.launch.Token, Model: w.launch.Model,
		Version: w.launch.Version, Binding: "xebec-go/" + Version, Signature: w.signature, Concurrency: uint16(w.concurrency)}
	if err := w.conn.send(hello.Append(nil)); err != nil {
		return w.findRefusal(err)
	}
	unread := false
	for {
		if err := w.takeRequests(); err != nil {
			return w.ended(err)
		}
		if w.drained() {
			return nil
		}
		if unread {
			unread = false
			if err := w.read(unix.MSG_DONTWAIT); err != nil {
				return w.ended(err)
			}
			continue // the frames may have been DRAIN or SEGMENTS
		}
		if found, err := w.spin(); err != nil {
			return w.ended(err)
		} else if found {
			continue
		}
		consumer := w.gen.consumer
		if consumer != nil && !consumer.PrepareSleep() {
			unread = true
			continue
		}
		err := w.conn.recv(0)
		if consumer != nil {
			consumer.Wake()
		}
		if err == nil {
			err = w.handleFrames()
		}
		if err != nil {
			return w.ended(err)
		}
	}
}

// spin looks for a request before the loop sleeps, while one is likely to come soon. It reports whether there is
// something. Until then this side counts as awake, and the gateway rings no bell.
func (w *worker) spin() (found bool, err error) {
	if !w.busy.On() || w.gen.a == nil {
		return false, nil
	}
	now := w.now()
	for until := w.busy.Idle(now); now < until; now = w.now() {
		if consumer := w.gen.consumer; consumer != nil {
			found = consumer.Ready()
		} else if err := w.conn.recv(unix.MSG_DONTWAIT); err != unix.EAGAIN {
			if err == nil {
				err = w.handleFrames()
			}
			return true, err
		}
		if found {
			return true, nil
		}
	}
	return false, nil
}

// now is the time for busy.
func (w *worker) now() api.Nanos { return api.Nanos(time.Since(w.began)) }

// read reads what the socket has and handles it.
func (w *worker) read(flags int) error {
	if err := w.conn.recv(flags); err == unix.EAGAIN {
		return nil
	} else if err != nil {
		return err
	}
	return w.handleFrames()
}

// findRefusal looks for REFUSED behind a connection that has failed, because it says why.
func (w *worker) findRefusal(err error) error {
	if !errors.Is(err, ErrGatewayGone) {
		return err
	}
	for {
		for {
			t, payload, ok, perr := w.conn.parser.Next()
			if !ok || perr != nil {
				break
			}
			if t == wire.TypeRefused {
				return refused(payload)
			}
		}
		if w.conn.recv(unix.MSG_DONTWAIT) != nil {
			return err
		}
	}
}

func refused(payload []byte) error {
	var m wire.Refused
	if err := m.Decode(payload); err != nil {
		return fmt.Errorf("xebec: the gateway refused this worker: %w", err)
	}
	return &RefusedError{Code: m.Code, Text: m.Text}
}

func (w *worker) handleFrames() error {
	for {
		t, payload, ok, err := w.conn.parser.Next()
		if err != nil {
			return fmt.Errorf("xebec: from the gateway: %w", err)
		}
		if !ok {
			return nil
		}
		if err := w.handleFrame(t, payload); err != nil {
			return err
		}
	}
}

func (w *worker) handleFrame(t wire.Type, payload []byte) error {
	switch {
	case t == wire.TypeRefused:
		return refused(payload)
	case t == wire.TypeWelcome && !w.welcomed:
		return w.onWelcome(payload)
	case t == wire.TypeLines && w.mode&wire.ModeLines != 0 && w.calling == nil && w.gen.a == nil:
		return w.onLines(payload)
	case t == wire.TypeSegments && w.welcomed && !w.draining:
		return w.onSegments(payload)
	case t == wire.TypeDrain && w.welcomed:
		w.lockAnswers()
		w.draining = true
		w.unlockAnswers()
		w.mu.Lock()
		w.leaving = leaveSent
		w.mu.Unlock()
		return wire.DecodeDrain(payload)
	case t == wire.TypeCancel && w.streaming && w.gen.a != nil:
		var m wire.Cancel
		if err := m.Decode(payload); err != nil {
			return fmt.Errorf("xebec: from the gateway: %w", err)
		}
		if err := w.takeRequests(); err != nil { // the request may still be there
			return err
		}
		if s := w.findStream(m.Batch); s != nil {
			return s.discard(nil)
		}
		return nil // it has ended meanwhile
	case t == wire.TypeRequest && w.gen.a != nil && w.mode&wire.ModeRing == 0:
		var r wire.Request
		if err := r.Decode(payload); err != nil {
			return fmt.Errorf("xebec: from the gateway: %w", err)
		}
		return w.handle(&r)
	}
	return fmt.Errorf("xebec: the gateway sent %v, which is not legal here", t)
}

func (w *worker) onWelcome(payload []byte) error {
	var m wire.Welcome
	if err := m.Decode(payload); err != nil {
		return fmt.Errorf("xebec: from the gateway: %w", err)
	}
	switch {
	case m.Major < 1 || m.Major > wire.Major:
		return fmt.Errorf("xebec: the gateway uses version %d of the protocol, this binding 1 to %d: use the binding of the gateway's release", m.Major, wire.Major)
	case m.Model != w.launch.Model || m.Version != w.launch.Version:
		return fmt.Errorf("xebec: the gateway wants %s@%s, this worker was started for %s@%s", m.Model, m.Version, w.launch.Model, w.launch.Version)
	}
	switch {
	case m.Mode&wire.ModeRing != 0 && w.capabilities&wire.CapRing == 0:
		return errors.New("xebec: the gateway chose rings, but this worker declared none")
	case m.Mode&wire.ModeLines != 0 && w.openLines == nil:
		return errors.New("xebec: the gateway chose calls of functions, but this worker declared none")
	case m.Mode&wire.ModeStreams != 0 && !w.streaming:
		return errors.New("xebec: the gateway chose streams, but this worker declared none")
	case m.Mode&wire.ModeStreams == 0 && w.streaming:
		return errors.New("xebec: this model answers in streams, for which the gateway is too old: it needs version 2 of the worker protocol")
	}
	w.welcomed, w.mode, w.sig = true, m.Mode, m.Signature
	in := slices.Clone(w.sig.Inputs)
	if w.mode&wire.ModeContexts != 0 {
		in = append(in, wire.BytesSection)
	}
	w.labelled = wire.NewSchema(append(slices.Clip(in), wire.BytesSection))
	for _, mode := range [...]uint32{wire.ModeParameters, wire.ModeCalls} {
		if w.mode&mode != 0 {
			in = append(in, wire.BytesSection)
		}
	}
	w.inputs = wire.NewSchema(in)
	out := slices.Clone(w.sig.Outputs)
	if w.capabilities&wire.CapConfidences != 0 {
		out = append(out, wire.ConfidenceSection)
	}
	w.outputs = wire.NewSchema(out)
	if w.refusing = nil; m.Major >= 2 {
		w.refusing = wire.NewSchema(append(slices.Clip(out), wire.StatusSection, wire.BytesSection))
	}
	if w.load != nil {
		return w.load(&w.sig)
	}
	return nil
}

func (w *worker) onLines(payload []byte) error {
	if err := wire.DecodeLines(payload); err != nil {
		return fmt.Errorf("xebec: from the gateway: %w", err)
	}
	fd, err := w.conn.takeLines()
	if err == nil {
		w.calling, err = w.openLines(fd)
	}
	return err
}

func (w *worker) onSegments(payload []byte) error {
	var m wire.Segments
	if err := m.Decode(payload); err != nil {
		return fmt.Errorf("xebec: from the gateway: %w", err)
	}
	fdA, fdB, err := w.conn.takePair()
	if err != nil {
		return err
	}
	defer unix.Close(fdA)
	defer unix.Close(fdB)
	if m.Generation <= w.gen.number {
		return fmt.Errorf("xebec: the gateway sent segments of generation %d after generation %d", m.Generation, w.gen.number)
	}
	if err := w.changeGeneration(&m, fdA, fdB); err != nil {
		return err
	}
	ready := wire.Ready{Generation: m.Generation}
	if err := w.conn.send(ready.Append(nil)); err != nil {
		return err
	}
	return w.allowLeave()
}

// changeGeneration maps new segments. No view of the old ones is left: predict has returned or runs on copies, and
// answers that wait for a GRANT are in private memory. Only a lane that has just answered may still look whether to ring
// for it, and it holds the lock meanwhile.
func (w *worker) changeGeneration(m *wire.Segments, fdA, fdB int) error {
	w.lockAnswers()
	defer w.unlockAnswers()
	if err := w.gen.close(); err != nil {
		return err
	}
	if err := w.gen.open(m, fdA, fdB, w.mode&wire.ModeRing != 0); err != nil {
		return fmt.Errorf("xebec: map generation %d: %w", m.Generation, err)
	}
	return nil
}

func (g *generation) open(m *wire.Segments, fdA, fdB int, ring bool) error {
	entries := int(m.Entries)
	a, err := shm.Open(fdA, shm.RoleA, m.Generation, entries, m.SizeA)
	if err != nil {
		return err
	}
	b, err := shm.Open(fdB, shm.RoleB, m.Generation, entries, m.SizeB)
	if err != nil {
		return errors.Join(err, a.Close())
	}
	*g = generation{number: m.Generation, a: a, b: b, slabB: shm.SlabOffset(entries), entries: uint64(entries)}
	if ring {
		g.consumer, g.producer = shm.NewConsumer(b, a), shm.NewProducer(b, a)
	}
	return nil
}

// leave sends LEAVING, now or as soon as it is legal. Any goroutine may call it.
func (w *worker) leave(reason string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch w.leaving {
	case leaveNotRequested:
		w.leaving, w.reason = leaveRequested, reason
	case leaveAllowed:
		w.leaving = leaveSent
		m := wire.Leaving{Reason: reason}
		_ = w.conn.send(m.Append(nil)) // the loop notices a broken connection itself
	}
}

// allowLeave is called after SEGMENTS, from when on LEAVING is legal.
func (w *worker) allowLeave() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch w.leaving {
	case leaveNotRequested:
		w.leaving = leaveAllowed
	case leaveRequested:
		w.leaving = leaveSent
		m := wire.Leaving{Reason: w.reason}
		return w.conn.send(m.Append(nil))
	}
	return nil
}

// takeRequests handles requests from the ring until it is empty.
func (w *worker) takeRequests() error {
	if w.gen.consumer == nil {
		return nil
	}
	var d shm.Descriptor
	for {
		some, err := w.gen.consumer.Pop(&d, w.gen.entries)
		if err != nil || !some {
			return err
		}
		var r wire.Request
		if err := r.Get((*[wire.DescriptorBytes]byte)(&d)); err != nil {
			return fmt.Errorf("xebec: from the gateway: %w", err)
		}
		if err := w.handle(&r); err != nil {
			return err
		}
	}
}

// respond sends one response, through the ring or the socket.
func (w *worker) respond(r *wire.Response) error {
	w.lockAnswers()
	defer w.unlockAnswers()
	if w.gen.producer == nil {
		w.frame = r.Append(w.frame[:0])
		return w.conn.send(w.frame)
	}
	var d shm.Descriptor
	r.Put((*[wire.DescriptorBytes]byte)(&d))
	w.gen.producer.Push(&d)
	if w.gen.producer.ShouldRing() {
		return w.conn.send(bell)
	}
	return nil
}
