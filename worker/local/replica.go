package local

import (
	"cmp"
	"fmt"
	"math"
	"math/bits"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/api/busypoll"
	"github.com/xebec-serving/xebec/shm"
	"github.com/xebec-serving/xebec/worker"
	"github.com/xebec-serving/xebec/worker/wire"
	"golang.org/x/sys/unix"
)

// Replica is one connected worker. It implements [worker.Replica] and [worker.Learner].
type Replica struct {
	hub   *Hub
	exp   worker.Expectation
	info  worker.Info
	major uint16 // the protocol's version
	mode  uint32
	// concurrency is how many batches the worker evaluates at once.
	concurrency int

	inputs *wire.Schema
	// outputs has a schema for each combination of flags of a response.
	outputs  [4]*wire.Schema
	streams  streams
	idle     idle
	lines    lines
	fixedOut bool

	// mu guards what Send, the reader and Kill share. It is never held while payloads of new batches are copied or
	// events are delivered.
	mu            sync.Mutex
	fd            int // -1 after it was closed
	gen           *generation
	next          *generation // sent, READY not received yet
	growing       bool        // a goroutine is making larger segments
	slotted       bool        // inputs may be received in slots
	slotWant      uint64      // bytes of slots that the next segment should have; 0: as many as this one
	askers        []asker     // inputs that wait for a slot, the first one first
	slotAsked     uint64      // their bytes
	ending        bool        // DRAIN was sent, or LEAVING received: the worker gets no segments that no batch needs
	table         []entry     // outstanding batches: at most depth predictions and one side request
	lastID        uint64      // number of the last batch that was pushed
	maxIn, maxOut uint64      // the largest input and grant that ever waited for room
	outGuess      float64     // expected output bytes per query, for ragged outputs
	endReason     string      // why Kill or a violation ended it; "" while it runs
	violated      bool
	frames        []byte // buffer for frames to write

	// rmu is held by the goroutine that handles the worker's messages: the poller, then finish.
	rmu     sync.Mutex
	parser  *wire.Parser
	parked  bool
	busy    busypoll.Estimator // when to expect the next response
	leaving bool               // LEAVING was received
	dead    bool
	reader  wire.Reader
	result  api.BatchResult // passed to Done

	values inputValues // Send's view of its batch
	depth  int         // how many predictions may be outstanding
	side   *sideQueue  // nil if the worker takes no side requests

	batches, queries, inPlace atomic.Uint64
	rung, received            atomic.Uint64 // bells

	lastError atomic.Pointer[string]
}

// entry is one outstanding batch in the gateway's own table. Responses are checked against it.
type entry struct {
	kind  wire.Kind  // PREDICT, or the kind of the current side request
	batch *api.Batch // nil for ACCURACY
	// deadline is that of the batch's first query, before Send has ordered them.
	deadline api.Nanos
	id       uint64 // its number on the wire; 0 until it is pushed
	count    int
	gen      *generation // the segments that hold its blocks; nil while it waits for larger ones
	in, out  shm.Block
	putAt    uint64    // the producer's count after its descriptor was pushed
	sent     api.Nanos // when its descriptor was pushed, or when the worker could begin it if it waited behind others
	behind   bool      // the worker had as many batches as it evaluates at once
	state    entryState
	flows    bool   // a stream whose first output was reported
	wanted   bool   // Resume was called while a message of the stream was being handled
	unwanted bool   // the rest of the stream, or all of it, is not wanted
	overdue  bool   // the worker had been silent for too long when the stream was last looked at
	need     uint64 // capacity that NEED_MORE asked for, or input bytes that found no room
}

type entryState uint8

const (
	stateFree       entryState = iota
	stateCopying               // blocks are allocated; Send or startSide is writing the payload
	stateSent                  // the worker has it
	stateWaiting               // not sent yet: waits for larger segments
	stateNeedsMore             // answered NEED_MORE; waits for larger segments before the GRANT
	stateGranted               // GRANT was sent
	stateDiscard               // DISCARD was sent: no segment can hold its outputs
	stateCopyingOut            // its answer is being copied out
	stateOpen                  // a stream in the gateway's turn: the worker has no block of it
	stateResumed               // a stream in the gateway's turn that waits for room before its GRANT or DISCARD
)

func newReplica(h *Hub, e worker.Expectation, hello wire.Hello, c *net.UnixConn) *Replica {
	if e.Depth < 1 {
		e.Depth = 1
	}
	mode := uint32(0)
	if hello.Capabilities&wire.CapRing != 0 {
		mode |= wire.ModeRing
	}
	specs := append([]api.TensorSpec(nil), e.Signature.Inputs...)
	if hello.Capabilities&wire.CapContexts != 0 {
		mode |= wire.ModeContexts
		specs = append(specs, api.TensorSpec{Name: "context", DType: api.Bytes})
	}
	if hello.Major >= 2 {
		mode |= hello.Capabilities & (wire.ModeParameters | wire.ModeCalls | wire.ModeStreams)
		if e.Lines != nil {
			mode |= hello.Capabilities & wire.ModeLines
		}
	}
	concurrency := int(min(max(hello.Concurrency, 1), ringEntries-2))
	queue, depth := newSideQueue(e, hello.Capabilities, specs), min(e.Depth+concurrency-1, ringEntries)
	if mode&wire.ModeStreams != 0 {
		depth = concurrency // a stream behind another one would wait for a time that is not known
	}
	entries := depth
	if mode&wire.ModeParameters != 0 {
		specs = append(slices.Clip(specs), named(wire.BytesSection, "parameters"))
	}
	if mode&wire.ModeCalls != 0 {
		specs = append(slices.Clip(specs), named(wire.BytesSection, "call"))
	}
	if queue != nil {
		depth = min(depth, ringEntries-1)
		entries = depth + 1
	}
	r := &Replica{hub: h, exp: e, major: min(hello.Major, wire.Major), mode: mode, concurrency: concurrency, fd: -1, inputs: wire.NewSchema(specs),
		table: make([]entry, 0, entries), depth: depth, side: queue, outGuess: firstOutGuess}
	for flags := range uint32(len(r.outputs)) {
		outs := slices.Clip(e.Signature.Outputs)
		if flags&wire.FlagConfidences != 0 {
			outs = append(outs, named(wire.ConfidenceSection, "confidence"))
		}
		if flags&wire.FlagStatuses != 0 {
			outs = append(outs, named(wire.StatusSection, "status"), named(wire.BytesSection, "text of a status"))
		}
		r.outputs[flags] = wire.NewSchema(outs)
	}
	_, r.fixedOut = r.outputs[0].FixedSize(1)
	r.values.extras = extras{inputs: len(e.Signature.Inputs), mode: mode}
	r.streams.idle = cmp.Or(e.StreamIdle, api.DefaultStreamIdle)
	r.slotted = r.inputs.CanPlace()
	r.busy = r.estimator()
	has := func(capability uint32) bool { return hello.Capabilities&capability != 0 }
	r.info = worker.Info{ID: e.Replica, Binding: hello.Binding, Capabilities: worker.Capabilities{
		Feedback: has(wire.CapFeedback), Accuracy: has(wire.CapAccuracy), Contexts: has(wire.CapContexts), Streams: mode&wire.ModeStreams != 0, Confidences: has(wire.CapConfidences)}, Concurrency: concurrency}
	if raw, err := c.SyscallConn(); err == nil {
		raw.Control(func(fd uintptr) {
			if cred, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
				r.info.PID = int(cred.Pid)
			}
		})
	}
	return r
}

func named(spec api.TensorSpec, name string) api.TensorSpec {
	spec.Name = name
	return spec
}

// Info implements [worker.Replica]. PID is what the kernel reports for the socket; 0 if it reports nothing.
func (r *Replica) Info() worker.Info { return r.info }

// Ring reports whether descriptors travel through the rings, rather than as frames on the socket.
func (r *Replica) Ring() bool { return r.mode&wire.ModeRing != 0 }

// Stats implements [worker.Replica].
func (r *Replica) Stats() worker.Stats {
	st := worker.Stats{Batches: r.batches.Load(), Queries: r.queries.Load(), InPlace: r.inPlace.Load()}
	if s := r.lastError.Load(); s != nil {
		st.LastError = *s
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.gen != nil {
		st.SegmentBytes = r.gen.size.a + r.gen.size.b
	}
	if r.side != nil {
		st.Feedback = r.side.counts
	}
	return st
}

func (r *Replica) firstSizes() sizes {
	hint := max(r.exp.BatchHint, 1)
	perIn := uint64(256)
	if n, ok := r.inputs.FixedSize(hint); ok {
		perIn = n / uint64(hint)
	}
	perOut := uint64(64)
	if n, ok := r.outputs[0].FixedSize(hint); ok {
		perOut = n / uint64(hint)
	}
	first := func(per uint64) uint64 {
		n := roundSegment(shm.SlabOffset(ringEntries) + per*uint64(hint)*uint64(r.depth)*5/4)
		return min(max(n, firstSegmentMin), firstSegmentMax, r.hub.cfg.MaxSegmentBytes)
	}
	return sizes{a: first(perIn), b: first(perOut)}
}

// inputValues presents a batch's inputs, contexts and padding to the codec.
type inputValues struct {
	queries []*api.Query
	pad     int
	extras
	places []uint64 // where in the segment the inputs lie, 0: elsewhere; of a batch with inputs in slots
	block  uint64   // where the batch's block begins
}

func (v *inputValues) Len() int { return len(v.queries) + v.pad }

func (v *inputValues) At(i, s int) *api.Value {
	q := v.queries[min(i, len(v.queries)-1)]
	if s >= v.inputs {
		return v.extra(q, s-v.inputs)
	}
	return &q.Inputs[s]
}

// Place is where the input of query i lies in the block, or 0.
func (v *inputValues) Place(i int) uint64 {
	if at := v.places[i]; at != 0 {
		return at - v.block
	}
	return 0
}

// Send implements [worker.Replica]. It refuses as TooLarge what no segment can ever hold.
func (r *Replica) Send(b *api.Batch) error {
	r.values.queries, r.values.pad, r.values.now = b.Queries, b.Pad, r.hub.cfg.Now()
	size := r.inputs.Size(&r.values)
	if !r.hub.fitsSegment(size) {
		return api.Errorf(api.TooLarge, "a batch of %d queries takes %d bytes: at most %d fit a segment", len(b.Queries), size, r.hub.cfg.MaxSegmentBytes)
	}
	count := r.values.Len()
	if n, fixed := r.outputs[wire.FlagConfidences].FixedSize(count); fixed && !r.hub.fitsSegment(n) {
		return api.Errorf(api.TooLarge, "the outputs of a batch of %d queries take %d bytes: at most %d fit a segment", len(b.Queries), n, r.hub.cfg.MaxSegmentBytes)
	}

	r.mu.Lock()
	if r.fd < 0 || r.endReason != "" {
		r.mu.Unlock()
		return api.Errorf(api.Unavailable, "the replica is gone")
	}
	n := len(r.table)
	if r.side != nil && r.side.current.kind != 0 {
		n--
	}
	if n == r.depth {
		r.mu.Unlock()
		return api.Errorf(api.Unavailable, "%d batches are outstanding already", n)
	}
	r.table = append(r.table, entry{kind: wire.KindPredict, batch: b, deadline: b.Queries[0].Deadline, count: count, state: stateWaiting, need: size})
	e := &r.table[len(r.table)-1]
	if r.exp.Streams {
		r.sentLocked(e)
	}
	placed, room := r.locateLocked(b), size
	if placed {
		room = r.inputs.SizePlaced(&r.values)
	}
	if r.next != nil || r.growing || r.slotWant > 0 || r.waitingLocked(r.table[:len(r.table)-1]) || !r.placeLocked(e, room) {
		r.growLocked()
		r.mu.Unlock()
		return nil
	}
	g, in := e.gen, e.in
	g.acquire()
	r.mu.Unlock()

	dst := g.a.Bytes()[in.Off : in.Off+room]
	var err error
	if r.values.block = in.Off; placed {
		size, err = r.inputs.WritePlaced(dst, &r.values)
		for _, at := range r.values.places {
			if at != 0 {
				r.inPlace.Add(1)
			}
		}
	} else {
		_, err = r.inputs.Write(dst, &r.values)
	}
	g.release()

	r.mu.Lock()
	e = r.copyingEntry(b)
	switch {
	case e == nil: // the worker ended meanwhile; Gone reports the batch
		err = nil
	case err != nil:
		r.freeLocked(e)
		r.removeLocked(e)
		r.growLocked() // others may wait for this one's room
		r.mu.Unlock()
		r.sendSide()
		return api.Errorf(api.Internal, "write batch: %w", err)
	default:
		r.putLocked(e, wire.KindPredict, size)
	}
	r.mu.Unlock()
	return err
}

// copyingEntry returns the entry of a prediction whose payload was just written, nil if it is no longer in the table.
func (r *Replica) copyingEntry(b *api.Batch) *entry {
	for i := range r.table {
		if e := &r.table[i]; e.batch == b && e.state == stateCopying && e.kind == wire.KindPredict {
			return e
		}
	}
	return nil
}

// waitingLocked reports whether one of these batches waits for larger segments. Later batches must not overtake it
// forever.
func (r *Replica) waitingLocked(table []entry) bool {
	for i := range table {
		if s := table[i].state; s == stateWaiting || s == stateNeedsMore || s == stateResumed {
			return true
		}
	}
	return false
}

// placeLocked allocates room for a batch in both slabs. If there is none, it reports false and changes nothing.
func (r *Replica) placeLocked(e *entry, size uint64) bool {
	var in shm.Block
	if size > 0 { // ACCURACY has no input
		var ok bool
		if in, ok = r.gen.in.Alloc(roundBlock(size)); !ok {
			in, ok = r.gen.in.Alloc(size)
		}
		if !ok {
			return false
		}
	}
	out, ok := r.gen.out.Alloc(r.grantBytes(e))
	if !ok {
		if size > 0 {
			r.gen.in.Free(in)
		}
		return false
	}
	e.gen, e.in, e.out, e.state = r.gen, in, out, stateCopying
	return true
}

// roundBlockFrom is the size from which input blocks are rounded up to powers of two.
const roundBlockFrom = 256 << 10

// roundBlock rounds a large block up, so that batches of similar sizes reuse the same few blocks, which are then in the
// CPU's cache. Copying into memory that was not touched lately costs several times as much.
func roundBlock(size uint64) uint64 {
	if size < roundBlockFrom {
		return size
	}
	return 1 << bits.Len64(size-1)
}

// grantBytes is the initial grant for a batch's outputs.
func (r *Replica) grantBytes(e *entry) uint64 {
	if e.kind != wire.KindPredict {
		return minGrant
	}
	n, fixed := r.outputs[wire.FlagConfidences].FixedSize(e.count)
	if !fixed {
		n = uint64(float64(e.count)*(r.outGuess+64)) + 1024
		n = min(n, r.hub.cfg.MaxSegmentBytes/4)
		if r.mode&wire.ModeStreams != 0 {
			// A stream that is silent keeps its grant. The grants of all places take a quarter of the segment, so that larger outputs of others have
			// room (NEED_MORE): segments do not grow before each stream in the worker's turn has answered.
			n = min(n, uint64(len(r.gen.b.Bytes()))/4/uint64(r.depth))
		}
	}
	return max(n, minGrant)
}

// putLocked sends the entry's request to the worker.
func (r *Replica) putLocked(e *entry, kind wire.Kind, inLen uint64) {
	now := r.hub.cfg.Now()
	if e.id == 0 {
		// The protocol numbers all requests, side requests included. Without these, the number is the batch's own.
		r.lastID++
		if kind == wire.KindPredict {
			r.lastID = max(r.lastID, e.batch.ID)
		}
		e.id = r.lastID
	}
	req := wire.Request{Batch: e.id, Generation: e.gen.number, Kind: kind, Count: uint32(e.count), OutOff: e.out.Off, OutCap: e.out.Cap}
	switch kind {
	case wire.KindPredict:
		req.InOff, req.InLen = e.in.Off, inLen
		if e.deadline > now && e.deadline != api.Never {
			req.BudgetMicros = uint32(min(int64(e.deadline-now)/1000, 1<<32-1))
		}
		r.beginLocked(e, now)
	case wire.KindFeedback, wire.KindAccuracy:
		req.InOff, req.InLen = e.in.Off, inLen
		r.beginLocked(e, now)
		r.watchSideLocked(e)
	case wire.KindGrant:
		if e.state = stateGranted; e.flows && e.need == 0 { // otherwise the worker has kept outputs for it
			e.state, e.sent, e.overdue = stateSent, now, false
		}
	case wire.KindDiscard:
		req.Count, req.OutOff, req.OutCap = 0, 0, 0
		e.state = stateDiscard
	}
	if r.mode&wire.ModeRing == 0 {
		r.frames = req.Append(r.frames[:0])
		e.putAt = r.gen.producer.Pushed()
		r.writeLocked(r.frames, nil)
		if e.unwanted && kind == wire.KindPredict {
			r.cancelLocked(e)
		}
		return
	}
	var d shm.Descriptor
	req.Put((*[64]byte)(&d))
	e.gen.producer.Push(&d)
	e.putAt = e.gen.producer.Pushed()
	if e.gen.producer.ShouldRing() {
		r.rung.Add(1)
		r.writeLocked(bell, nil)
	}
	if e.unwanted && kind == wire.KindPredict {
		r.cancelLocked(e)
	}
}

// beginLocked notes that the worker has the batch, and whether it can begin it at once.
func (r *Replica) beginLocked(e *entry, now api.Nanos) {
	begun := 0
	for i := range r.table {
		if e := &r.table[i]; e.state == stateSent && !e.behind {
			begun++
		}
	}
	e.state, e.sent, e.behind = stateSent, now, begun >= r.concurrency
}

// beginNextLocked notes that the worker can begin the oldest batch that waited behind others.
func (r *Replica) beginNextLocked(now api.Nanos) {
	for i := range r.table {
		if e := &r.table[i]; e.state == stateSent && e.behind {
			e.behind, e.sent = false, now
			return
		}
	}
}

var bell = []byte{byte(wire.TypeBell)}

// writeLocked sends a whole frame. If the socket has no room it ends the worker: at most a few hundred bytes are in
// flight, so the worker has stopped reading.
func (r *Replica) writeLocked(p, rights []byte) {
	if r.fd < 0 {
		return
	}
	var n int
	var err error
	if rights == nil {
		n, err = send(r.fd, p)
	} else {
		n, err = unix.SendmsgN(r.fd, p, rights, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
	}
	if err == nil && n == len(p) || err == unix.EPIPE || err == unix.ECONNRESET {
		return // the reader notices a broken pipe and handles it
	}
	r.killLocked("the worker does not read its socket", true)
}

// send writes without blocking and without notifying the Go scheduler: the call takes less time than handing over the
// P.
func send(fd int, p []byte) (int, error) {
	n, _, errno := unix.RawSyscall6(unix.SYS_SENDTO, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)), unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}

// receive reads what is available, in the same way as send. 0 bytes without an error mean the end of the stream. The
// kernel drops descriptors that come with the bytes.
func receive(fd int, p []byte) (int, error) {
	n, _, errno := unix.RawSyscall6(unix.SYS_RECVFROM, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)), unix.MSG_DONTWAIT, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}

// find returns the entry with this number on the wire. Numbers start at 1, so entries that are not pushed yet are never
// found.
func (r *Replica) find(id uint64) *entry {
	for i := range r.table {
		if r.table[i].id == id {
			return &r.table[i]
		}
	}
	return nil
}

func (r *Replica) freeLocked(e *entry) {
	if e.gen == nil {
		return
	}
	if e.in.Cap > 0 { // a GRANT in newer segments has no input block there
		e.gen.in.Free(e.in)
	}
	if e.out.Cap > 0 {
		e.gen.out.Free(e.out)
	}
	e.gen = nil
}

// removeLocked keeps the order of the other entries: Begun and the order of waiting batches rely on it.
func (r *Replica) removeLocked(e *entry) {
	for i := range r.table {
		if &r.table[i] == e {
			copy(r.table[i:], r.table[i+1:])
			r.table[len(r.table)-1] = entry{}
			r.table = r.table[:len(r.table)-1]
			return
		}
	}
}

// Kill implements [worker.Replica].
func (r *Replica) Kill(reason string) {
	r.mu.Lock()
	r.killLocked(reason, false)
	r.mu.Unlock()
}

func (r *Replica) killLocked(reason string, violated bool) {
	if r.endReason == "" {
		r.endReason, r.violated = reason, violated
	}
	if r.fd >= 0 {
		unix.Shutdown(r.fd, unix.SHUT_RDWR) // the poller sees the hang-up and calls finish
	}
}

// Drain implements [worker.Replica].
func (r *Replica) Drain() {
	r.mu.Lock()
	r.ending = true
	r.closeSideLocked()
	var lost sideRequest
	if e := r.findSide(); e != nil && e.state == stateWaiting {
		lost = r.finishSideLocked(e)
	}
	r.frames = wire.AppendDrain(r.frames[:0])
	r.writeLocked(r.frames, nil)
	r.mu.Unlock()
	lost.end(math.NaN(), api.ReplicaLost, "")
}

// violation ends the worker at its first protocol violation. The caller holds rmu.
func (r *Replica) violation(format string, args ...any) {
	r.dead = true
	text := fmt.Sprintf("protocol violation: "+format, args...)
	r.mu.Lock()
	if r.fd >= 0 {
		m := wire.Refused{Code: wire.RefusedViolation, Text: text}
		r.frames = m.Append(r.frames[:0])
		_, _ = send(r.fd, r.frames) // best effort
	}
	r.killLocked(text, true)
	r.mu.Unlock()
}

// abandon reports the end of a worker that never became ready.
func (r *Replica) abandon(reason string, violation bool) {
	r.closeLines()
	if r.gen != nil {
		r.gen.release()
	}
	r.exp.Events.Gone(r, worker.End{Reason: reason, Violation: violation})
}
