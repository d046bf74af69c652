package local

import (
	"fmt"
	"math"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/worker/wire"
)

// streams is what a replica needs whose model answers in streams (section 4.1 of the protocol). Fields are guarded by the replica's mu, but for
// taken, which belongs to the goroutine that handles the worker's messages.
type streams struct {
	idle   time.Duration // the longest silence of the worker in its turn
	timer  *time.Timer   // looks for silent streams; nil before the first one
	silent bool          // the replica was ended because a stream was silent
	taken  []api.Value   // one output on its way to the stream
}

// source is where the outputs of one stream come from: a batch of a replica.
type source struct {
	r     *Replica
	batch uint64 // the scheduler's number
}

// find returns the stream's entry in the table, or nil. The caller holds the lock.
func (s *source) find() *entry {
	for i := range s.r.table {
		if e := &s.r.table[i]; e.kind == wire.KindPredict && e.batch.ID == s.batch {
			return e
		}
	}
	return nil
}

// Resume implements [api.Source].
func (s *source) Resume() {
	r := s.r
	r.mu.Lock()
	switch e := s.find(); {
	case e == nil:
	case e.state == stateOpen:
		r.resumeOrWaitLocked(e)
	case e.state == stateCopyingOut:
		e.wanted = true
	}
	r.mu.Unlock()
}

// Cancel implements [api.Source].
func (s *source) Cancel() {
	r := s.r
	r.mu.Lock()
	defer r.mu.Unlock()
	e := s.find()
	if e == nil || e.unwanted {
		return
	}
	e.unwanted = true
	switch e.state {
	case stateOpen:
		r.resumeOrWaitLocked(e)
	case stateSent, stateGranted:
		r.cancelLocked(e)
	}
}

// cancelLocked tells the worker, whose turn it is, that the rest of a stream is not wanted.
func (r *Replica) cancelLocked(e *entry) {
	m := wire.Cancel{Batch: e.id}
	r.frames = m.Append(r.frames[:0])
	r.writeLocked(r.frames, nil)
}

// sentLocked tells a stream where it can be withdrawn, before its query is sent.
func (r *Replica) sentLocked(e *entry) {
	if s, ok := e.batch.Queries[0].Stream.(api.Withdrawable); ok {
		e.unwanted = !s.Sent(&source{r, e.batch.ID})
	}
}

// resumeOrWaitLocked gives the turn back to the worker, or lets the stream wait until segments have room. Streams that want to go on do not
// overtake batches that wait.
func (r *Replica) resumeOrWaitLocked(e *entry) {
	if r.next == nil && !r.growing && !r.waitingLocked(r.table) && r.resumeLocked(e) {
		return
	}
	e.state = stateResumed
	r.growLocked()
}

// resumeLocked sends GRANT for a stream in the gateway's turn, or DISCARD if the rest is not wanted. It reports false, and changes nothing, if there
// is no room for the outputs.
func (r *Replica) resumeLocked(e *entry) bool {
	if e.unwanted {
		e.gen = r.gen
		r.putLocked(e, wire.KindDiscard, 0)
		e.sent, e.overdue = r.hub.cfg.Now(), false
		return true
	}
	out, ok := r.gen.out.Alloc(r.grantBytes(e))
	if !ok {
		return false
	}
	e.gen, e.out, e.need = r.gen, out, 0
	r.putLocked(e, wire.KindGrant, 0)
	return true
}

// streamError says what is wrong with a response to a stream, or "".
func streamError(e *entry, resp *wire.Response) string {
	most := uint32(wire.MaxStreamOutputs)
	if !e.flows {
		most = 1
	}
	switch {
	case e.state == stateDiscard && (resp.Status == wire.StatusMore || resp.Status == wire.StatusNeedMore):
		return fmt.Sprintf("%v after DISCARD", resp.Status)
	case resp.Status == wire.StatusMore && resp.Count == 0:
		return "MORE without an output"
	case (resp.Status == wire.StatusMore || resp.Status == wire.StatusOK) && resp.Count > most:
		return fmt.Sprintf("%d outputs at once, expected at most %d", resp.Count, most)
	case resp.Status == wire.StatusNeedMore && (e.state != stateSent || resp.Need <= e.out.Cap):
		return "NEED_MORE out of place"
	case resp.Flags&wire.FlagStatuses != 0 && (resp.Status != wire.StatusOK || resp.Count != 1):
		return "a status in the middle of a stream"
	}
	return ""
}

// answerStream handles a response to a stream, whose generation and block are already checked. The caller holds the lock; answerStream releases
// it.
func (r *Replica) answerStream(e *entry, resp *wire.Response, seen api.Nanos) {
	if bad := streamError(e, resp); bad != "" {
		r.mu.Unlock()
		r.violation("%s", bad)
		return
	}
	if r.side != nil && resp.Batch < r.side.id {
		r.side.startedAt = seen
	}
	if resp.Status == wire.StatusNeedMore {
		r.needMoreLocked(e, resp.Need)
		r.mu.Unlock()
		return
	}
	state, g, out, batch, flows, unwanted, from := e.state, e.gen, e.out, e.batch, e.flows, e.unwanted, e.sent
	e.state = stateCopyingOut
	r.mu.Unlock()

	q := batch.Queries[0]
	block := g.b.Bytes()[out.Off : out.Off+resp.OutLen]
	code, detail := api.OK, ""
	switch {
	case unwanted && flows: // whatever it is
	case unwanted && resp.Status != wire.StatusMore:
		code = api.Cancelled // its caller has left
	case state == stateDiscard:
		code, detail = api.TooLarge, "an output of the stream is larger than a segment may be"
	case resp.Status == wire.StatusBadOutput:
		code, detail = api.BadOutput, printable(block)
	case resp.Status == wire.StatusModelError:
		code, detail = api.ModelError, printable(block)
	case resp.Status == wire.StatusUnsupported:
		code, detail = api.ModelError, "the worker does not support predict"
	case flows:
		code, detail = r.takeOutputs(q, block, resp)
	case resp.Count == 0:
		code, detail = api.BadOutput, "the stream has ended without an output: a model with stream: true yields at least one, which may be empty"
	default:
		code, detail = r.copyOut(batch, block, 1, resp.Flags)
	}
	if detail != "" {
		said := detail
		r.lastError.Store(&said)
	}
	if resp.Status != wire.StatusMore {
		r.endStream(resp.Batch, &api.BatchResult{ID: batch.ID, Code: code, EvalNanos: int64(seen - from), WorkNanos: int64(min(resp.WorkNanos, math.MaxInt64)), Detail: detail, Withdrawn: unwanted && flows})
		return
	}
	if code != api.OK { // the worker is still in the middle of a stream that the gateway cannot read
		r.violation("a stream that cannot be read: %s", detail)
		return
	}

	full := q.Stream == nil || flows && q.Stream.Full()
	r.mu.Lock()
	e = r.find(resp.Batch)
	r.freeLocked(e)
	e.in.Cap, e.out.Cap = 0, 0
	if !r.fixedOut && resp.OutLen > 0 {
		r.outGuess = max(float64(resp.OutLen)*1.1, r.outGuess*0.98)
	}
	wanted := e.wanted
	e.state, e.flows, e.wanted, e.need = stateOpen, true, false, 0
	if q.Stream == nil {
		e.unwanted = true
	}
	r.watchStreamsLocked()
	if e.unwanted || flows && !full || wanted {
		r.resumeOrWaitLocked(e)
	}
	r.growLocked() // others may wait for its room
	r.mu.Unlock()
	if !flows {
		if q.Stream != nil {
			q.Stream.Open(&source{r, batch.ID})
		}
		r.exp.Events.FirstOutput(r, batch.ID, max(int64(seen-from), 1))
	}
	r.sendSide()
}

// takeOutputs passes the outputs of a block to the query's stream.
func (r *Replica) takeOutputs(q *api.Query, block []byte, resp *wire.Response) (api.Code, string) {
	count := int(resp.Count)
	if count == 0 {
		return api.OK, ""
	}
	n := len(r.exp.Signature.Outputs)
	if err := r.outputs[resp.Flags].Open(&r.reader, block, count); err != nil {
		return api.BadOutput, "the worker's output block is invalid: " + err.Error()
	}
	if resp.Flags&wire.FlagStatuses != 0 {
		statuses := n
		if resp.Flags&wire.FlagConfidences != 0 {
			statuses++
		}
		if bad := r.copyStatus(q, 0, statuses); bad != "" {
			return api.BadOutput, bad
		}
		if q.Status == api.ModelError {
			return api.OK, q.Detail
		}
		if q.Status != api.OK {
			return api.OK, ""
		}
	}
	s := &r.streams
	for len(s.taken) < n {
		s.taken = append(s.taken, api.Value{})
	}
	for i := range count {
		for k := range n {
			v := &s.taken[k]
			data, _, dims, err := r.reader.AppendItem(v.Data[:0], i, k, v.Dims[:0])
			if err != nil {
				return api.BadOutput, "the worker's output block is invalid: " + err.Error()
			}
			v.Data, v.Dims = data, dims
		}
		sure := math.NaN()
		if resp.Flags&wire.FlagConfidences != 0 {
			var err error
			if sure, err = r.confidence(i, n); err != nil {
				return api.BadOutput, "the worker's confidences are invalid: " + err.Error()
			}
		}
		if q.Stream != nil {
			q.Stream.Take(s.taken[:n], sure)
		}
	}
	if r.exp.Streamed != nil {
		r.exp.Streamed(count)
	}
	for k := range s.taken { // a large output does not stay
		if cap(s.taken[k].Data) > maxKeptOutput {
			s.taken[k].Data = nil
		}
	}
	return api.OK, ""
}

// maxKeptOutput is how much memory for one output of a stream stays with a replica.
const maxKeptOutput = 64 << 10

// endStream removes a stream's batch and reports it done.
func (r *Replica) endStream(id uint64, res *api.BatchResult) {
	r.mu.Lock()
	e := r.find(id)
	r.freeLocked(e)
	r.removeLocked(e)
	r.growLocked()
	r.mu.Unlock()
	r.batches.Add(1)
	r.queries.Add(1)
	r.result = *res
	r.exp.Events.Done(r, &r.result)
	r.sendSide() // after Done, so that the scheduler could send another batch
}

// streamRecheck is how long a stream must stay silent, after it was first found so, before its worker is ended: after a pause of the whole gateway
// the timer may fire before the ring is read.
const streamRecheck = 100 * time.Millisecond

// watchStreamsLocked starts the timer that looks for silent streams.
func (r *Replica) watchStreamsLocked() {
	if s := &r.streams; s.timer == nil {
		s.timer = time.AfterFunc(s.idle, r.streamsOverdue)
	}
}

// streamsOverdue ends a worker that has been silent for too long in the middle of a stream, and is called again while streams are open.
func (r *Replica) streamsOverdue() {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := &r.streams
	now, again, open := r.hub.cfg.Now(), s.idle, false
	for i := range r.table {
		e := &r.table[i]
		if !e.flows {
			continue
		}
		open = true
		if e.state != stateSent && e.state != stateGranted && e.state != stateDiscard {
			e.overdue = false
			continue
		}
		left := s.idle - time.Duration(now-e.sent)
		switch {
		case left > 0:
			e.overdue = false
			again = min(again, left)
		case !e.overdue:
			e.overdue = true
			again = min(again, streamRecheck)
		case r.fd >= 0:
			s.silent = true
			r.killLocked(fmt.Sprintf("a stream had no further output for %v (stream_idle)", s.idle), false)
		}
	}
	if !open || r.fd < 0 {
		s.timer = nil
		return
	}
	s.timer.Reset(max(again, time.Millisecond))
}
