package local

import (
	"encoding/binary"
	"fmt"
	"math"
	"strings"
	"sync/atomic"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/worker"
	"github.com/xebec-serving/xebec/worker/wire"
)

const (
	// maxFeedbackWaiting bounds the feedback batches that wait at one replica. Sixteen outlast a pause of the model.
	// More would only be older by the time they are learned.
	maxFeedbackWaiting = 16 //xebec:limit batches of labels that wait at a replica; the oldest is dropped
	// A side request waits for a moment without predictions, but not longer than feedbackPatience times the duration of
	// the previous one or feedbackPatienceNanos, whichever is more. Under a load without such moments feedback takes at
	// most a tenth of the worker's time and interrupts predictions at most twenty times a second.
	feedbackPatience      = 9
	feedbackPatienceNanos = 50e6
	// DefaultFeedbackTimeout is how long a worker may take for one side request.
	DefaultFeedbackTimeout = 60 * time.Second
)

// sideQueue is the state of a replica's side requests. A replica whose worker takes none has no sideQueue and pays
// nothing.
type sideQueue struct {
	labelled *wire.Schema
	timeout  time.Duration
	waiting  atomic.Int32 // read without the lock after each prediction

	// Replica.mu guards the rest.
	queue    [maxFeedbackWaiting]sideRequest // a ring of n elements, starting at first
	first, n int
	accuracy sideRequest // waits too; kind 0 if there is none
	closed   bool        // the worker is leaving or gone: no more requests

	// The current side request. It has an entry in the replica's table, as predictions have.
	current   sideRequest
	id        uint64    // its number on the wire, 0 until it is pushed
	startedAt api.Nanos // when it was pushed, or when the last prediction in front of it was answered
	overdueAt api.Nanos // when it was first found overdue; 0 if it was not
	values    labelledValues
	timer     *time.Timer

	endedAt   api.Nanos // when the previous one was answered
	tookNanos int64     // how long that one took
	counts    worker.FeedbackCounts
}

// sideRequest is a FEEDBACK or an ACCURACY request.
type sideRequest struct {
	kind       wire.Kind // 0 if there is none
	batch      *api.Batch
	labels     [][]byte
	size       uint64 // of its input block
	at         api.Nanos
	onFeedback func(api.Code, string)
	onAccuracy func(float64, api.Code, string)
}

// end calls the requester's callback. The caller does not hold the replica's lock.
func (j *sideRequest) end(value float64, code api.Code, detail string) {
	switch j.kind {
	case wire.KindFeedback:
		j.onFeedback(code, detail)
	case wire.KindAccuracy:
		j.onAccuracy(value, code, detail)
	}
}

// labelledValues presents a feedback batch to the codec: inputs, contexts if the worker wants them, labels.
type labelledValues struct {
	inputValues
	labels  [][]byte
	section int // index of the labels' section
	label   api.Value
}

func (v *labelledValues) At(i, s int) *api.Value {
	if s == v.section {
		v.label.Data = v.labels[i]
		return &v.label
	}
	return v.inputValues.At(i, s)
}

func (a *sideQueue) view(v *labelledValues, r *Replica, j *sideRequest) {
	v.queries, v.extras, v.labels, v.section = j.batch.Queries, extras{inputs: r.values.inputs, mode: r.mode & wire.ModeContexts}, j.labels, a.labelled.Sections()-1
}

func newSideQueue(e worker.Expectation, capabilities uint32, inputs []api.TensorSpec) *sideQueue {
	if capabilities&(wire.CapFeedback|wire.CapAccuracy) == 0 {
		return nil
	}
	a := &sideQueue{timeout: e.FeedbackTimeout, labelled: wire.NewSchema(append(inputs[:len(inputs):len(inputs)], wire.BytesSection))}
	if a.timeout <= 0 {
		a.timeout = DefaultFeedbackTimeout
	}
	return a
}

// Feedback implements [worker.Learner]. Up to 16 batches wait. When the queue is full, the oldest batch is dropped,
// because newer labels say more about the current distribution.
func (r *Replica) Feedback(b *api.Batch, labels [][]byte, done func(code api.Code, detail string)) {
	j := sideRequest{kind: wire.KindFeedback, batch: b, labels: labels, onFeedback: done}
	switch {
	case !r.info.Capabilities.Feedback:
		done(api.Unsupported, "the worker takes no feedback")
		return
	case len(labels) == 0 || len(labels) != len(b.Queries):
		done(api.InvalidArgument, fmt.Sprintf("%d labels for %d queries: expected one for each, and at least one", len(labels), len(b.Queries)))
		return
	}
	var v labelledValues
	r.side.view(&v, r, &j)
	if j.size = r.side.labelled.Size(&v); !r.hub.fitsSegment(j.size) {
		done(api.TooLarge, fmt.Sprintf("a feedback batch of %d queries takes %d bytes: at most %d fit a segment", len(b.Queries), j.size, r.hub.cfg.MaxSegmentBytes))
		return
	}
	r.enqueueSide(j)
}

// Accuracy implements [worker.Learner].
func (r *Replica) Accuracy(done func(value float64, code api.Code, detail string)) {
	if !r.info.Capabilities.Accuracy {
		done(math.NaN(), api.Unsupported, "the worker does not know its accuracy")
		return
	}
	r.enqueueSide(sideRequest{kind: wire.KindAccuracy, onAccuracy: done})
}

// enqueueSide queues a side request and sends the next one if it is due.
func (r *Replica) enqueueSide(j sideRequest) {
	a := r.side
	j.at = r.hub.cfg.Now()
	var refused sideRequest
	code := api.Overloaded
	r.mu.Lock()
	switch {
	case r.fd < 0 || r.endReason != "" || a.closed:
		refused, code = j, api.ReplicaLost
	case j.kind == wire.KindAccuracy && (a.accuracy.kind != 0 || a.current.kind == wire.KindAccuracy):
		refused = j
	case j.kind == wire.KindAccuracy:
		a.accuracy = j
		a.waiting.Add(1)
	default:
		if a.n == len(a.queue) {
			refused = a.pop()
			a.counts.Dropped++
		}
		a.queue[(a.first+a.n)%len(a.queue)] = j
		a.n++
		a.waiting.Add(1)
	}
	r.mu.Unlock()
	refused.end(math.NaN(), code, "")
	r.sendSide()
}

// pop removes the feedback batch that has waited longest.
func (a *sideQueue) pop() sideRequest {
	j := a.queue[a.first]
	a.queue[a.first] = sideRequest{}
	a.first = (a.first + 1) % len(a.queue)
	a.n--
	a.waiting.Add(-1)
	return j
}

// take removes the next request. The question for the accuracy comes first: there is at most one, it is rare, and it is
// short.
func (a *sideQueue) take() sideRequest {
	if j := a.accuracy; j.kind != 0 {
		a.accuracy = sideRequest{}
		a.waiting.Add(-1)
		return j
	}
	return a.pop()
}

// sendSide sends the next side request if it is due. It is called whenever that can change: when one is queued, when
// the worker has answered, and when room became free. The caller does not hold the lock.
func (r *Replica) sendSide() {
	for r.side != nil && r.side.waiting.Load() > 0 && r.startSide() {
	}
}

// sideDueLocked reports whether a side request may be sent: no batch waits for larger segments, and the worker has no
// prediction or the request has waited long enough.
func (r *Replica) sideDueLocked() bool {
	a := r.side
	if a.n == 0 && a.accuracy.kind == 0 || a.current.kind != 0 || a.closed || r.fd < 0 || r.endReason != "" || r.next != nil || r.growing {
		return false
	}
	if r.waitingLocked(r.table) {
		return false
	}
	if len(r.table) == 0 {
		return true
	}
	since := a.accuracy.at
	if a.accuracy.kind == 0 || a.n > 0 && a.queue[a.first].at < since {
		since = a.queue[a.first].at
	}
	return int64(r.hub.cfg.Now()-max(since, a.endedAt)) >= max(feedbackPatience*a.tookNanos, feedbackPatienceNanos)
}

// startSide sends one side request. It reports whether to try the next one, because this one failed.
func (r *Replica) startSide() (again bool) {
	a := r.side
	r.mu.Lock()
	if !r.sideDueLocked() {
		r.mu.Unlock()
		return false
	}
	a.current = a.take()
	j := a.current
	r.table = append(r.table, entry{kind: j.kind, batch: j.batch, count: len(j.labels), state: stateWaiting, need: j.size})
	e := &r.table[len(r.table)-1]
	if !r.placeLocked(e, j.size) {
		r.growLocked()
		r.mu.Unlock()
		return false
	}
	if j.size == 0 {
		r.putLocked(e, j.kind, 0)
		r.mu.Unlock()
		return false
	}
	g, in := e.gen, e.in
	a.view(&a.values, r, &j)
	g.acquire()
	r.mu.Unlock()

	_, err := a.labelled.Write(g.a.Bytes()[in.Off:in.Off+j.size], &a.values)
	g.release()

	r.mu.Lock()
	e = r.findSide()
	switch {
	case e == nil: // the worker ended meanwhile, and finish left the callback to us
		r.mu.Unlock()
		j.end(math.NaN(), api.ReplicaLost, "")
		return false
	case a.closed: // closed since it was placed
		r.finishSideLocked(e)
		r.mu.Unlock()
		j.end(math.NaN(), api.ReplicaLost, "")
		return false
	case err == nil:
		r.putLocked(e, j.kind, j.size)
		r.mu.Unlock()
		return false
	}
	r.finishSideLocked(e)
	a.counts.Failed++
	r.mu.Unlock()
	detail := "feedback: " + err.Error()
	r.lastError.Store(&detail)
	j.end(math.NaN(), api.Internal, detail)
	return true
}

// findSide returns the entry of the current side request.
func (r *Replica) findSide() *entry {
	for i := range r.table {
		if r.table[i].kind != wire.KindPredict {
			return &r.table[i]
		}
	}
	return nil
}

// watchSideLocked starts the timer of a side request that was just pushed.
func (r *Replica) watchSideLocked(e *entry) {
	a := r.side
	a.id, a.startedAt, a.overdueAt = e.id, e.sent, 0
	if a.timer == nil {
		a.timer = time.AfterFunc(a.timeout, r.sideOverdue)
		return
	}
	a.timer.Reset(a.timeout)
}

// overdueRecheck is how long a side request must stay overdue, after it was first found so, before the worker is ended.
const overdueRecheck = 100 * time.Millisecond

// sideOverdue ends a worker that takes too long for a side request. While predictions are in front of it, its time does
// not run: the scheduler watches over those.
func (r *Replica) sideOverdue() {
	r.mu.Lock()
	defer r.mu.Unlock()
	a := r.side
	if a.id == 0 || r.fd < 0 {
		return
	}
	left := a.timeout - time.Duration(r.hub.cfg.Now()-a.startedAt)
	for i := range r.table {
		if e := &r.table[i]; e.state == stateSent && e.id < a.id {
			left = a.timeout
		}
	}
	if left > 0 {
		a.overdueAt = 0
		a.timer.Reset(left)
		return
	}
	// After a pause of the whole gateway this timer may fire before the ring is read, and the answer may be there.
	now := r.hub.cfg.Now()
	if a.overdueAt == 0 {
		a.overdueAt = now
	}
	if again := overdueRecheck - time.Duration(now-a.overdueAt); again > 0 {
		a.timer.Reset(again)
		return
	}
	r.killLocked(fmt.Sprintf("no answer to %v for %v", a.current.kind, a.timeout), false)
}

// finishSideLocked removes the current side request from the table and returns it.
func (r *Replica) finishSideLocked(e *entry) sideRequest {
	a := r.side
	j := a.current
	a.current, a.id = sideRequest{}, 0
	if a.timer != nil {
		a.timer.Stop()
	}
	r.freeLocked(e)
	r.removeLocked(e)
	r.growLocked() // predictions may wait for its room
	return j
}

// answerSide handles the response to a side request, whose generation, count and block are already checked. The caller
// holds the lock; answerSide releases it.
func (r *Replica) answerSide(e *entry, resp *wire.Response, seen api.Nanos) {
	a := r.side
	noBlock := e.kind == wire.KindFeedback && resp.Status == wire.StatusOK || resp.Status == wire.StatusUnsupported
	if resp.Status == wire.StatusNeedMore || resp.Flags != 0 || noBlock && resp.OutLen != 0 {
		kind := e.kind
		r.mu.Unlock()
		r.violation("response to %v must not have outputs: status %v, flags 0x%x, %d bytes", kind, resp.Status, resp.Flags, resp.OutLen)
		return
	}
	kind, g, out := e.kind, e.gen, e.out
	e.state = stateCopyingOut
	r.beginNextLocked(seen)
	a.endedAt, a.tookNanos = seen, int64(seen-a.startedAt)
	r.mu.Unlock()

	block := g.b.Bytes()[out.Off : out.Off+resp.OutLen]
	code, value, detail := api.OK, math.NaN(), ""
	switch {
	case resp.Status == wire.StatusOK && kind == wire.KindAccuracy:
		if value, detail = r.readAccuracy(block); detail != "" {
			code = api.BadOutput
		}
	case resp.Status == wire.StatusModelError:
		code, detail = api.ModelError, printable(block)
	case resp.Status == wire.StatusBadOutput:
		code, detail = api.BadOutput, printable(block)
	case resp.Status == wire.StatusUnsupported:
		code, detail = api.ModelError, "the worker does not support what it declared"
	}
	if code != api.OK {
		detail = strings.ToLower(kind.String()) + ": " + detail
		r.lastError.Store(&detail)
	}

	r.mu.Lock()
	j := r.finishSideLocked(r.findSide())
	switch {
	case kind == wire.KindAccuracy:
	case code == api.OK:
		a.counts.Batches++
		a.counts.Labels += uint64(len(j.labels))
	default:
		a.counts.Failed++
	}
	r.mu.Unlock()
	j.end(value, code, detail)
	r.sendSide()
}

// accuracySchema describes the block that answers ACCURACY: one f64.
var accuracySchema = wire.NewSchema([]api.TensorSpec{{DType: api.Float64}})

// readAccuracy reads the answer to ACCURACY, or says what is wrong with it.
func (r *Replica) readAccuracy(block []byte) (value float64, wrong string) {
	if err := accuracySchema.Open(&r.reader, block, 1); err != nil {
		return math.NaN(), "the worker's output block is invalid: " + err.Error()
	}
	data, _, err := r.reader.Item(0, 0, nil)
	if err != nil {
		return math.NaN(), "the worker's output block is invalid: " + err.Error()
	}
	value = math.Float64frombits(binary.LittleEndian.Uint64(data))
	if !(value >= 0 && value <= 1) {
		return math.NaN(), fmt.Sprintf("%v, expected a number from 0 to 1", value)
	}
	return value, ""
}

// closeSideLocked refuses further side requests, because the worker is leaving or gone. Requests that wait end when it
// is gone.
func (r *Replica) closeSideLocked() {
	if r.side != nil {
		r.side.closed = true
	}
}

// dropSideLocked returns the requests that wait, and the one that the worker had. A request whose payload is being
// written is left to startSide, which still reads it.
func (r *Replica) dropSideLocked() (lost []sideRequest) {
	a := r.side
	if a == nil {
		return nil
	}
	if a.timer != nil {
		a.timer.Stop()
	}
	if e := r.findSide(); e != nil && e.state != stateCopying {
		lost = append(lost, a.current)
	}
	for a.n > 0 || a.accuracy.kind != 0 {
		lost = append(lost, a.take())
	}
	a.current, a.id = sideRequest{}, 0
	return lost
}
