package local

import (
	"encoding/binary"
	"fmt"
	"math"
	"strings"
	"unicode/utf8"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/shm"
	"github.com/xebec-serving/xebec/worker/wire"
	"golang.org/x/sys/unix"
)

const (
	// maxDetailBytes bounds a worker's error text.
	maxDetailBytes = 8 << 10 //xebec:limit a worker's error text
	// maxCallerText bounds what a model says to the caller of a query that it refuses.
	maxCallerText = 1 << 10 //xebec:limit a model's words to the caller of an input that it refuses
	// maxIdleBytes bounds what one wake-up reads without completing a frame. An honest worker has at most part of a
	// frame and a bell or two in flight. A worker that floods its socket would keep the poller from other replicas.
	maxIdleBytes = 2 * (wire.HeaderBytes + wire.MaxPayload)
)

// process handles everything that the worker has sent, in the order of section 3.1: read the socket until it is empty,
// take the responses from the ring, perhaps spin for more, declare sleep, look once more. If sleep is called off it starts again at the
// socket: a bell may have been sent for that sleep, and unread bells would pile up. It reports whether the connection
// has ended.
func (r *Replica) process() (ended bool) {
	r.rmu.Lock()
	defer r.rmu.Unlock()
	if r.dead {
		return true
	}
	ring := r.mode&wire.ModeRing != 0
	if ring && r.parked {
		r.gen.consumer.Wake()
		r.parked = false
	}
	for !r.dead {
		eof := r.readSocket()
		r.received.Store(r.parser.Bells())
		if ring && !r.dead {
			r.takeRing(r.gen)
			for i := 0; i < maxSpins && !eof && !r.dead && r.spin(); i++ {
				r.takeRing(r.gen)
			}
		}
		if eof {
			r.dead = true
		}
		if r.dead || !ring {
			break
		}
		if r.gen.consumer.PrepareSleep() {
			r.parked = true
			break
		}
	}
	return r.dead
}

// readSocket reads what is available and handles its frames. It reports the end of the stream.
func (r *Replica) readSocket() (eof bool) {
	r.takeFrames() // the handshake may have read beyond READY
	idle := 0
	for !r.dead {
		space := r.parser.Space()
		n, err := receive(r.fd, space)
		if err == unix.EINTR {
			continue
		}
		if err == unix.EAGAIN {
			return false
		}
		if err != nil || n == 0 {
			return true
		}
		r.parser.Advance(n)
		if idle += n; r.takeFrames() {
			idle = 0
		}
		if idle > maxIdleBytes {
			r.violation("%d bytes arrived without a complete frame", idle)
		}
		// A short read means that the stream was empty, or that its end or a message with descriptors follows. A
		// level-triggered poller fires again for those. An edge-triggered one does not, so the socket must be read
		// until it is empty.
		if n < len(space) && r.hub.cfg.Poller == NetpollPoller {
			return false
		}
	}
	return false
}

// takeFrames handles every complete frame that was read, and reports whether there was one.
func (r *Replica) takeFrames() (some bool) {
	for !r.dead {
		typ, payload, ok, err := r.parser.Next()
		if err != nil {
			r.violation("%v", err)
		}
		if !ok || err != nil {
			return some
		}
		some = true
		r.frame(typ, payload)
	}
	return some
}

func (r *Replica) frame(typ wire.Type, payload []byte) {
	switch typ {
	case wire.TypeReady:
		var m wire.Ready
		r.mu.Lock()
		waiting := r.next
		r.mu.Unlock()
		if err := m.Decode(payload); err != nil || waiting == nil || m.Generation != waiting.number {
			r.violation("READY for a generation that was not sent")
			return
		}
		r.adopt(waiting)
	case wire.TypeLeaving:
		var m wire.Leaving
		if err := m.Decode(payload); err != nil {
			r.violation("%v", err)
			return
		}
		if r.leaving {
			r.violation("LEAVING twice")
			return
		}
		r.leaving = true
		r.mu.Lock()
		r.ending = true
		r.closeSideLocked()
		r.mu.Unlock()
		r.exp.Events.Leaving(r, printable([]byte(m.Reason)))
	case wire.TypeResponse:
		if r.mode&wire.ModeRing != 0 || len(payload) != shm.DescriptorBytes {
			r.violation("unexpected RESPONSE")
			return
		}
		r.answer((*[64]byte)(payload))
	default:
		r.violation("unexpected frame type 0x%02x", uint8(typ))
	}
}

// takeRing handles every response in g's ring until it is empty or the worker has broken the protocol.
func (r *Replica) takeRing(g *generation) {
	var d shm.Descriptor
	for !r.dead {
		// Counting and popping happen under one lock. Otherwise a batch that is sent and answered in between would look
		// like one response too many.
		r.mu.Lock()
		outstanding := 0
		for i := range r.table {
			if s := r.table[i].state; s == stateSent || s == stateGranted || s == stateDiscard {
				outstanding++
			}
		}
		ok, err := g.consumer.Pop(&d, uint64(outstanding))
		r.mu.Unlock()
		if err != nil {
			r.violation("%v", err)
		}
		if !ok || err != nil {
			return
		}
		r.answer((*[64]byte)(&d))
	}
}

// answer checks one response against the table and copies its outputs out.
func (r *Replica) answer(d *[64]byte) {
	var resp wire.Response
	if err := resp.Get(d); err != nil {
		r.violation("%v", err)
		return
	}
	if resp.Flags&wire.FlagStatuses != 0 && r.major < 2 {
		r.violation("a status for each query, which version 1 does not have")
		return
	}
	flowing := r.mode&wire.ModeStreams != 0 && resp.Kind == wire.KindPredict
	if resp.Status == wire.StatusMore && !flowing {
		r.violation("MORE, which is for streams")
		return
	}
	seen := r.hub.cfg.Now()
	r.arrived(seen)
	r.mu.Lock()
	e := r.find(resp.Batch)
	if e == nil || e.state != stateSent && e.state != stateGranted && e.state != stateDiscard {
		r.mu.Unlock()
		r.violation("response to a batch that is not outstanding")
		return
	}
	wantOff, wantCap := e.out.Off, e.out.Cap
	if e.state == stateDiscard {
		wantOff, wantCap = 0, 0
	}
	if resp.Generation != e.gen.number || resp.Kind != e.kind || !flowing && int(resp.Count) != e.count && e.state != stateDiscard || resp.OutOff != wantOff || resp.OutLen > wantCap {
		r.mu.Unlock()
		r.violation("response contradicts its request")
		return
	}
	if flowing {
		r.answerStream(e, &resp, seen)
		return
	}
	if e.kind != wire.KindPredict {
		r.answerSide(e, &resp, seen)
		return
	}
	if r.side != nil && resp.Batch < r.side.id {
		r.side.startedAt = seen
	}
	if resp.Status == wire.StatusNeedMore {
		if e.state != stateSent || resp.Need <= e.out.Cap {
			r.mu.Unlock()
			r.violation("NEED_MORE out of place")
			return
		}
		e.behind = false
		r.beginNextLocked(seen)
		r.needMoreLocked(e, resp.Need)
		r.mu.Unlock()
		return
	}
	state, g, out, batch := e.state, e.gen, e.out, e.batch
	e.state = stateCopyingOut
	from := e.sent
	if e.behind = false; state == stateSent {
		r.beginNextLocked(seen)
	}
	r.mu.Unlock()

	res := &r.result
	*res = api.BatchResult{ID: batch.ID, Code: api.OK, EvalNanos: int64(seen - from), WorkNanos: int64(min(resp.WorkNanos, math.MaxInt64))}
	block := g.b.Bytes()[out.Off : out.Off+resp.OutLen]
	switch {
	case state == stateDiscard:
		res.Code, res.Detail = api.TooLarge, "the outputs of the batch are larger than a segment may be"
	case resp.Status == wire.StatusOK:
		res.Code, res.Detail = r.copyOut(batch, block, int(resp.Count), resp.Flags)
	case resp.Status == wire.StatusBadOutput:
		res.Code, res.Detail = api.BadOutput, printable(block)
	case resp.Status == wire.StatusModelError:
		res.Code, res.Detail = api.ModelError, printable(block)
	default:
		res.Code, res.Detail = api.ModelError, "the worker does not support predict"
	}
	if res.Detail != "" {
		detail := res.Detail
		r.lastError.Store(&detail)
	}

	r.mu.Lock()
	e = r.find(resp.Batch)
	if !r.fixedOut && res.Code == api.OK {
		// Follow growth at once and shrinking slowly. A grant that is too small costs a round trip; one that is too
		// large costs only room.
		r.outGuess = max(float64(resp.OutLen)/float64(e.count)*1.1, r.outGuess*0.98)
	}
	r.freeLocked(e)
	r.removeLocked(e)
	r.growLocked()
	r.mu.Unlock()
	r.batches.Add(1)
	r.queries.Add(uint64(len(batch.Queries)))
	r.exp.Events.Done(r, res)
	r.sendSide() // after Done, so that the scheduler could send another batch
}

// copyOut copies the outputs of a batch into the queries' own buffers. The worker may still write to the block, so
// lengths are copied before they are checked and nothing is read twice. With OK it returns what the model said of a query that it failed at.
func (r *Replica) copyOut(b *api.Batch, block []byte, count int, flags uint32) (api.Code, string) {
	schema, n := r.outputs[flags], len(r.exp.Signature.Outputs)
	if err := schema.Open(&r.reader, block, count); err != nil {
		return api.BadOutput, "the worker's output block is invalid: " + err.Error()
	}
	statuses := n // the index of their section
	if flags&wire.FlagConfidences != 0 {
		statuses++
	}
	failed := ""
	for i, q := range b.Queries {
		if flags&wire.FlagStatuses != 0 {
			if bad := r.copyStatus(q, i, statuses); bad != "" {
				return api.BadOutput, bad
			}
			if q.Status == api.ModelError {
				failed = q.Detail
			}
			if q.Status != api.OK {
				continue
			}
		}
		if cap(q.Outputs) < n {
			q.Outputs = make([]api.Value, n)
		}
		q.Outputs = q.Outputs[:n]
		for s := range n {
			v := &q.Outputs[s]
			data, _, dims, err := r.reader.AppendItem(v.Data[:0], i, s, v.Dims[:0])
			if err != nil {
				return api.BadOutput, "the worker's output block is invalid: " + err.Error()
			}
			v.Data, v.Dims = data, dims
		}
		q.Confidence = math.NaN()
		if flags&wire.FlagConfidences != 0 {
			var err error
			if q.Confidence, err = r.confidence(i, n); err != nil {
				return api.BadOutput, "the worker's confidences are invalid: " + err.Error()
			}
		}
	}
	return api.OK, failed
}

// confidence reads the confidence of query i. A value that is no probability counts as none: one bad confidence does not fail the batch.
func (r *Replica) confidence(i, section int) (float64, error) {
	data, _, err := r.reader.Item(i, section, nil)
	if err != nil {
		return math.NaN(), err
	}
	if sure := math.Float64frombits(binary.LittleEndian.Uint64(data)); sure >= 0 && sure <= 1 {
		return sure, nil
	}
	return math.NaN(), nil
}

// copyStatus reads how the worker ended query i, or says what is wrong with that.
func (r *Replica) copyStatus(q *api.Query, i, section int) (bad string) {
	data, _, err := r.reader.Item(i, section, nil)
	if err != nil {
		return "the worker's statuses are invalid: " + err.Error()
	}
	switch status := wire.ItemStatus(binary.LittleEndian.Uint16(data)); status {
	case wire.ItemOK:
		q.Status = api.OK
		return ""
	case wire.ItemInvalidInput:
		q.Status = api.InvalidInput
	case wire.ItemModelError:
		q.Status = api.ModelError
	default:
		return fmt.Sprintf("the worker's status of query %d is %d, expected 0 to 2", i, status)
	}
	text, _, err := r.reader.Item(i, section+1, nil)
	if err != nil {
		return "the worker's texts of statuses are invalid: " + err.Error()
	}
	if q.Status == api.InvalidInput {
		text = text[:min(len(text), maxCallerText)]
	}
	q.Detail = printable(text)
	return ""
}

// printable copies a worker's text, bounded and without control characters: it goes to logs and terminals.
func printable(text []byte) string {
	if len(text) > maxDetailBytes {
		text = text[:maxDetailBytes]
	}
	s := strings.ToValidUTF8(string(text), "\uFFFD")
	return strings.Map(func(c rune) rune {
		if c < ' ' && c != '\n' && c != '\t' || c == 0x7f || c == utf8.RuneError {
			return '\uFFFD'
		}
		return c
	}, s)
}

// needMoreLocked answers NEED_MORE: with a larger grant if there is room, with DISCARD if no segment can hold the
// outputs, otherwise once larger segments are in place.
func (r *Replica) needMoreLocked(e *entry, need uint64) {
	if !r.hub.fitsSegment(need) {
		r.putLocked(e, wire.KindDiscard, 0)
		return
	}
	e.need = need
	r.outGuess = max(r.outGuess, float64(need)/float64(e.count)*1.1)
	g := e.gen
	r.freeLocked(e) // NEED_MORE is a response, so the blocks are the gateway's again
	e.in, e.out = shm.Block{}, shm.Block{}
	if r.next == nil {
		if out, ok := g.out.Alloc(need); ok {
			e.gen, e.out = g, out
			r.putLocked(e, wire.KindGrant, 0)
			return
		}
	}
	e.state = stateNeedsMore
	r.growLocked()
}

// growLocked makes room for waiting batches once no other batch is with the worker: in larger segments, or in the
// current ones if these are at their bound.
func (r *Replica) growLocked() {
	if r.next != nil || r.growing || r.fd < 0 || r.endReason != "" {
		return
	}
	waiting := false
	for i := range r.table {
		e := &r.table[i]
		switch e.state {
		case stateWaiting:
			r.maxIn = max(r.maxIn, e.need)
			r.maxOut = max(r.maxOut, r.grantBytes(e))
		case stateNeedsMore, stateResumed:
			r.maxOut = max(r.maxOut, max(e.need, r.grantBytes(e)))
		case stateOpen:
			continue // the worker has no block of it
		default:
			return // in flight: segments change at batch boundaries
		}
		waiting = true
	}
	if !waiting && (r.slotWant == 0 || r.ending) {
		return
	}
	room := func(have, largest uint64) uint64 {
		// The largest batch so far times the pipeline's depth, plus a quarter for rounding to size classes.
		n := roundSegment(shm.SlabOffset(ringEntries) + largest*uint64(r.depth)*5/4)
		return min(max(n, have), r.hub.cfg.MaxSegmentBytes)
	}
	have := r.gen.size
	sz := sizes{a: room(have.a-have.slots, r.maxIn), b: room(have.b, r.maxOut), slots: r.slotRoomLocked(have.slots)}
	if sz.a += sz.slots; sz.a > r.hub.cfg.MaxSegmentBytes { // such batches need all of it
		sz.a, sz.slots, r.slotted = r.hub.cfg.MaxSegmentBytes, 0, false
	}
	r.slotWant = 0
	if sz.a-sz.slots <= have.a-have.slots && sz.slots <= have.slots && sz.b <= have.b {
		r.placeWaitingLocked(r.gen)
		return
	}
	r.growing = true
	r.hub.wg.Add(1)
	go r.grow(r.gen.number+1, sz)
}

// grow makes segments and sends them. It touches every page, which takes a second per gigabyte, so neither the lane nor
// the poller does it.
func (r *Replica) grow(number uint32, sz sizes) {
	defer r.hub.wg.Done()
	g, err := newGeneration(number, sz)
	var none []asker
	defer func() {
		giveNone(none)
		r.giveSlots() // where there is no larger segment after all
	}()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.growing = false
	switch {
	case err != nil && sz.slots > r.gen.size.slots:
		r.slotted = false // batches do without
		r.growLocked()
		none = r.takeAskersLocked()
	case err != nil:
		r.killLocked("no memory for larger segments: "+err.Error(), false)
	case r.fd < 0 || r.endReason != "" || !r.waitingLocked(r.table) && (sz.slots == r.gen.size.slots || r.ending):
		g.closeFDs()
		g.release()
	default:
		r.next = g
		r.frames = g.frame(r.frames[:0])
		r.writeLocked(r.frames, unix.UnixRights(g.a.FD(), g.b.FD()))
	}
}

// adopt makes the next generation the current one and sends the batches that waited for it.
func (r *Replica) adopt(g *generation) {
	r.mu.Lock()
	g.closeFDs()
	old := r.gen
	r.gen, r.next = g, nil
	r.placeWaitingLocked(g)
	r.wantSlotsLocked(0) // inputs that came while it grew
	r.growLocked()       // a batch that came while the segments shrank may not fit
	r.watchIdleLocked()
	r.mu.Unlock()
	old.release()
	r.giveSlots()
	r.sendSide() // one may have come meanwhile
}

// placeWaitingLocked places the batches that waited into g, oldest first, and stops at the first that does not fit.
// Payloads are copied under the lock here; this happens a few times in a replica's life.
func (r *Replica) placeWaitingLocked(g *generation) {
	for i := range r.table {
		e := &r.table[i]
		switch e.state {
		case stateResumed:
			if !r.resumeLocked(e) {
				return
			}
		case stateNeedsMore:
			out, ok := g.out.Alloc(e.need)
			if !ok && i > 0 {
				return
			}
			e.gen, e.out = g, out
			if !ok { // alone in the segment and still too large
				r.putLocked(e, wire.KindDiscard, 0)
				continue
			}
			r.putLocked(e, wire.KindGrant, 0)
		case stateWaiting:
			if !r.placeLocked(e, e.need) {
				return
			}
			if err := r.writePayloadLocked(e, g.a.Bytes()[e.in.Off:e.in.Off+e.need]); err != nil {
				r.killLocked("write batch: "+err.Error(), false)
				return
			}
			r.putLocked(e, e.kind, e.need)
		}
	}
}

// writePayloadLocked writes the payload of a batch that waited into its block.
func (r *Replica) writePayloadLocked(e *entry, dst []byte) error {
	switch e.kind {
	case wire.KindAccuracy:
		return nil
	case wire.KindFeedback:
		a := r.side
		a.view(&a.values, r, &a.current)
		_, err := a.labelled.Write(dst, &a.values)
		return err
	}
	v := inputValues{queries: e.batch.Queries, pad: e.batch.Pad, extras: extras{inputs: r.values.inputs, mode: r.mode, now: r.hub.cfg.Now()}}
	_, err := r.inputs.Write(dst, &v)
	return err
}
