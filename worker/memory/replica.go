package memory

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/worker"
)

const (
	binding = "xebec-memory/1"
	// defaultFeedbackTimeout is the same as package local's.
	defaultFeedbackTimeout = 60 * time.Second
	// maxCallsWaiting bounds the batches of labels that wait at a replica.
	maxCallsWaiting = 16
	// maxPredictions is how many predictions in a row may be evaluated while a Learner call waits.
	maxPredictions = 10
)

// replica is one worker. serve calls the model, on a goroutine for each call, and report delivers events. The methods of
// worker.Replica only queue work for them.
type replica struct {
	t     *Transport
	exp   worker.Expectation
	model Model
	info  worker.Info
	self  worker.Replica // passed to events

	concurrency, depth int

	reported chan struct{} // closed after Gone
	calling  sync.WaitGroup

	mu      sync.Mutex
	changed sync.Cond // signals a change of any field below
	table   []*job    // predictions that are not reported done, oldest first
	calls   []*call   // Learner calls that wait
	current *call     // the Learner call that the model is executing
	running int       // predictions that the model is executing
	passed  int       // predictions begun while a call waited
	inbox   []func()  // events for report to deliver
	left    bool      // Leaving was queued
	drained bool      // Drain was called
	why     string    // why it ended; "" while it runs
	silent  bool      // it was ended because a stream was silent
	fault   error     // what Worker.Wait returns
	counts  worker.Stats
}

// job is an outstanding prediction.
type job struct {
	batch *api.Batch // the caller's; only report touches it
	shown *Batch     // the model's copy
	begun bool
	began api.Nanos

	err       error
	workNanos int64

	flow *flow // nil if the model answers in single outputs
}

// call is an unfinished Learner call.
type call struct {
	shown *Batch // labels; nil for the question for the accuracy
	done  func(value float64, code api.Code, detail string)
	timer *time.Timer
}

// learner is a replica whose model learns or knows its accuracy.
type learner struct{ *replica }

var _ worker.Learner = learner{}

func newReplica(t *Transport, e worker.Expectation, m Model) *replica {
	e.Depth = max(e.Depth, 1)
	if e.FeedbackTimeout <= 0 {
		e.FeedbackTimeout = defaultFeedbackTimeout
	}
	r := &replica{t: t, exp: e, model: m, reported: make(chan struct{})}
	r.changed.L = &r.mu
	r.concurrency = max(m.Concurrency, 1)
	r.depth = e.Depth + r.concurrency - 1
	if m.Stream != nil {
		if m.Concurrency == 0 {
			r.concurrency = defaultStreams
		}
		r.depth = r.concurrency
	}
	r.info = worker.Info{ID: e.Replica, Binding: binding, Concurrency: r.concurrency, Capabilities: worker.Capabilities{
		Feedback: m.Feedback != nil, Accuracy: m.Accuracy != nil, Contexts: m.Contexts, Streams: m.Stream != nil, Confidences: m.Confidences}}
	r.self = r
	if m.Feedback != nil || m.Accuracy != nil {
		r.self = learner{r}
	}
	return r
}

// Info implements [worker.Replica].
func (r *replica) Info() worker.Info { return r.info }

// Stats implements [worker.Replica].
func (r *replica) Stats() worker.Stats {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.counts
}

// Send implements [worker.Replica].
func (r *replica) Send(b *api.Batch) error {
	j := &job{batch: b, shown: r.show(b.Queries, b.Pad)}
	if r.model.Stream != nil {
		j.flow = newFlow()
		if s, ok := b.Queries[0].Stream.(api.Withdrawable); ok && !s.Sent(source{r, j}) {
			j.flow.unwanted = true
			close(j.flow.stop)
		}
	}
	if n := inputBytes(j.shown); n > r.t.cfg.MaxBatchBytes {
		return api.Errorf(api.TooLarge, "a batch of %d queries takes %d bytes: the limit is %d", len(b.Queries), n, r.t.cfg.MaxBatchBytes)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.why != "":
		return api.Errorf(api.Unavailable, "the replica is gone")
	case len(r.table) >= r.depth:
		return api.Errorf(api.Unavailable, "%d batches are outstanding already", len(r.table))
	}
	r.table = append(r.table, j)
	r.changed.Broadcast()
	return nil
}

// show copies queries for the model.
func (r *replica) show(queries []*api.Query, pad int) *Batch {
	b := &Batch{Signature: r.exp.Signature}
	for i := range len(queries) + pad {
		q := queries[min(i, len(queries)-1)]
		row := make([]api.Value, len(q.Inputs))
		for s, v := range q.Inputs {
			row[s] = api.Value{Data: bytes.Clone(v.Data), Dims: slices.Clone(v.Dims)}
		}
		b.Inputs = append(b.Inputs, row)
		if r.model.Contexts {
			b.Contexts = append(b.Contexts, bytes.Clone(q.Context))
		}
		if r.model.Parameters {
			parameters := bytes.Clone(q.Parameters)
			if len(parameters) == 0 {
				parameters = []byte("{}")
			}
			b.Parameters = append(b.Parameters, parameters)
		}
		if r.model.Calls {
			c := Call{Deadline: q.Deadline}
			if q.Call != nil {
				c.Set(q.Call)
			}
			b.Calls = append(b.Calls, c)
		}
	}
	return b
}

func inputBytes(b *Batch) (n int) {
	for _, row := range b.Inputs {
		n += rowBytes(row)
	}
	for _, c := range b.Contexts {
		n += len(c)
	}
	for _, p := range b.Parameters {
		n += len(p)
	}
	for _, l := range b.Labels {
		n += len(l)
	}
	return n
}

// Drain implements [worker.Replica].
func (r *replica) Drain() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.drained = true
	r.changed.Broadcast()
}

// Kill implements [worker.Replica].
func (r *replica) Kill(reason string) { r.end(reason, errors.New("the gateway is gone")) }

// crash ends the worker as if its process had died.
func (r *replica) crash(fault error) { r.end("the worker closed its connection", fault) }

func (r *replica) end(reason string, fault error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.why == "" {
		r.why, r.fault = reason, fault
		r.changed.Broadcast()
	}
}

// leave queues Leaving, once.
func (r *replica) leave(reason string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.left && r.why == "" {
		r.left = true
		r.inbox = append(r.inbox, func() { r.exp.Events.Leaving(r.self, reason) })
		r.changed.Broadcast()
	}
}

// Feedback implements [worker.Learner].
func (r learner) Feedback(b *api.Batch, labels [][]byte, done func(code api.Code, detail string)) {
	c := &call{shown: r.show(b.Queries, 0), done: func(_ float64, code api.Code, detail string) { done(code, detail) }}
	for _, label := range labels {
		c.shown.Labels = append(c.shown.Labels, bytes.Clone(label))
	}
	switch {
	case r.model.Feedback == nil:
		done(api.Unsupported, "the model does not learn")
	case len(labels) == 0 || len(labels) != len(b.Queries):
		done(api.InvalidArgument, fmt.Sprintf("%d labels for %d queries: expected one for each, and at least one", len(labels), len(b.Queries)))
	case inputBytes(c.shown) > r.t.cfg.MaxBatchBytes:
		done(api.TooLarge, fmt.Sprintf("the labels of %d queries take more than %d bytes", len(b.Queries), r.t.cfg.MaxBatchBytes))
	default:
		r.offer(c)
	}
}

// Accuracy implements [worker.Learner].
func (r learner) Accuracy(done func(value float64, code api.Code, detail string)) {
	if r.model.Accuracy == nil {
		done(math.NaN(), api.Unsupported, "the model does not know its accuracy")
		return
	}
	r.offer(&call{done: done})
}

// offer queues a call, and ends the call that finds no room.
func (r *replica) offer(c *call) {
	refused, code := (*call)(nil), api.Overloaded
	asking := func(c *call) bool { return c != nil && c.shown == nil }
	r.mu.Lock()
	switch {
	case r.why != "" || r.drained || r.left:
		refused, code = c, api.ReplicaLost
	case asking(c) && (asking(r.current) || slices.ContainsFunc(r.calls, asking)):
		refused = c
	default:
		r.calls = append(r.calls, c)
		if labels := slices.DeleteFunc(slices.Clone(r.calls), asking); len(labels) > maxCallsWaiting {
			refused = labels[0]
			r.calls = slices.DeleteFunc(r.calls, func(c *call) bool { return c == refused })
			r.counts.Feedback.Dropped++
		}
		r.changed.Broadcast()
	}
	r.mu.Unlock()
	if refused != nil {
		refused.done(math.NaN(), code, "")
	}
}

// serve is the worker. It calls the model until the replica has ended and returns how the worker ends.
func (r *replica) serve() error {
	defer r.calling.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	for {
		j, c := r.nextLocked()
		switch {
		case r.why != "":
			return r.fault
		case j != nil:
			j.begun, j.began = true, r.t.cfg.Now()
			r.running++
			r.calling.Go(func() {
				r.evaluate(j)
				r.mu.Lock()
				defer r.mu.Unlock()
				r.running--
				r.changed.Broadcast()
			})
		case c != nil:
			r.current = c
			c.timer = time.AfterFunc(r.exp.FeedbackTimeout, func() { r.Kill(fmt.Sprintf("the model has not come back from feedback for %v", r.exp.FeedbackTimeout)) })
			r.calling.Go(func() { r.learn(c) })
		case r.drained && len(r.table) == 0 && r.current == nil:
			r.why = "the worker closed its connection"
			r.changed.Broadcast()
			return nil
		default:
			r.changed.Wait()
		}
	}
}

// nextLocked chooses what the model does next. Without concurrency it does one thing at a time.
func (r *replica) nextLocked() (j *job, c *call) {
	alone := r.concurrency == 1
	if r.running < r.concurrency && !(alone && r.current != nil) {
		for _, waiting := range r.table {
			if !waiting.begun {
				j = waiting
				break
			}
		}
	}
	quiet := r.left || r.drained
	if len(r.calls) > 0 && r.current == nil && !(alone && r.running > 0) && !quiet && (j == nil || r.passed >= maxPredictions) {
		c, r.calls, r.passed = r.calls[0], r.calls[1:], 0
		return nil, c
	}
	if j != nil && len(r.calls) > 0 {
		r.passed++
	}
	return j, nil
}

// evaluate calls the model for a batch.
func (r *replica) evaluate(j *job) {
	n := len(j.shown.Inputs)
	j.shown.Outputs, j.shown.Confidences, j.shown.Refused = make([][]api.Value, n), make([]float64, n), make([]Refusal, n)
	for i := range n {
		j.shown.Confidences[i] = math.NaN()
	}
	if j.flow != nil {
		r.stream(j)
		return
	}
	r.predict(j)
}

// predict evaluates a batch and queues its answer.
func (r *replica) predict(j *job) {
	j.err = guarded(func() error { return r.model.Predict(j.shown) })
	j.workNanos = int64(r.t.cfg.Now() - j.began)
	r.answered(j.err, func() { r.deliver(j) })
}

// answered queues an answer for report, unless the function ended the worker.
func (r *replica) answered(err error, report func()) {
	var exit Exit
	if errors.As(err, &exit) {
		r.crash(exit)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.why == "" { // otherwise it is too late, and goneLocked ends the call
		r.inbox = append(r.inbox, report)
		r.changed.Broadcast()
	}
}

// guarded calls f and turns a panic into an error.
func guarded(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	return f()
}

// learn executes one Learner call.
func (r *replica) learn(c *call) {
	value, code, detail := math.NaN(), api.OK, ""
	err := guarded(func() (err error) {
		if c.shown != nil {
			return r.model.Feedback(c.shown)
		}
		value, err = r.model.Accuracy()
		return err
	})
	c.timer.Stop()
	what := "feedback: "
	if c.shown == nil {
		what = "accuracy: "
	}
	switch {
	case err != nil:
		value, code, detail = math.NaN(), api.ModelError, what+err.Error()
	case c.shown == nil && !(value >= 0 && value <= 1):
		value, code, detail = math.NaN(), api.BadOutput, fmt.Sprintf("%s%v, expected a number from 0 to 1", what, value)
	}
	r.answered(err, func() {
		r.mu.Lock()
		r.current = nil
		r.changed.Broadcast()
		counts := &r.counts.Feedback
		switch {
		case c.shown != nil && code == api.OK:
			counts.Batches++
			counts.Labels += uint64(len(c.shown.Labels))
		case c.shown != nil:
			counts.Failed++
		}
		if detail != "" {
			r.counts.LastError = detail
		}
		r.mu.Unlock()
		c.done(value, code, detail)
	})
}

// report delivers events in order until the replica has ended.
func (r *replica) report() {
	defer close(r.reported)
	r.exp.Events.Ready(r.self)
	r.mu.Lock()
	for {
		switch {
		case len(r.inbox) > 0: // also after the end: these answers came before it
			event := r.inbox[0]
			r.inbox = r.inbox[1:]
			r.mu.Unlock()
			event()
			r.mu.Lock()
		case r.why != "":
			r.goneLocked()
			return
		default:
			r.changed.Wait()
		}
	}
}

// goneLocked ends what is left and reports Gone. It releases the lock.
func (r *replica) goneLocked() {
	lost := r.calls
	if r.current != nil {
		r.current.timer.Stop()
		lost = append([]*call{r.current}, lost...)
	}
	begun := make(map[uint64]bool, len(r.table))
	for _, j := range r.table {
		begun[j.batch.ID] = j.begun
		if j.flow != nil {
			j.flow.closeLocked()
		}
	}
	r.calls, r.current, r.table = nil, nil, nil
	reason, silent := r.why, r.silent
	r.mu.Unlock()
	r.t.mu.Lock()
	delete(r.t.live, r)
	r.t.mu.Unlock()
	for _, c := range lost {
		c.done(math.NaN(), api.ReplicaLost, "")
	}
	r.exp.Events.Gone(r.self, worker.End{Reason: reason, Silent: silent, Begun: func(batch uint64) bool { return begun[batch] }})
}

// deliver writes a batch's outputs into its queries and reports it done.
func (r *replica) deliver(j *job) {
	seen := r.t.cfg.Now()
	res := api.BatchResult{ID: j.batch.ID, WorkNanos: j.workNanos}
	switch outputs := 0; {
	case j.err != nil:
		res.Code, res.Detail = api.ModelError, j.err.Error()
	default:
		for _, row := range j.shown.Outputs {
			outputs += rowBytes(row)
		}
		if err := checkOutputs(j.shown); err != nil {
			res.Code, res.Detail = api.BadOutput, err.Error()
		} else if outputs > r.t.cfg.MaxBatchBytes {
			res.Code, res.Detail = api.TooLarge, fmt.Sprintf("the outputs of the batch are larger than %d bytes", r.t.cfg.MaxBatchBytes)
		} else {
			res.Detail = r.copyOut(j)
		}
	}
	res.EvalNanos = int64(seen - j.began)
	r.finish(j, &res)
}

// finish removes a batch and reports it done.
func (r *replica) finish(j *job, res *api.BatchResult) {
	r.mu.Lock()
	r.table = slices.DeleteFunc(r.table, func(other *job) bool { return other == j })
	r.counts.Batches++
	r.counts.Queries += uint64(len(j.batch.Queries))
	if res.Detail != "" {
		r.counts.LastError = res.Detail
	}
	r.changed.Broadcast()
	r.mu.Unlock()
	r.exp.Events.Done(r.self, res)
}

// copyOut copies outputs into the queries' own buffers. It returns what the model said of a query that it failed at, for operators.
func (r *replica) copyOut(j *job) (failed string) {
	for i, q := range j.batch.Queries {
		if i < len(j.shown.Refused) && j.shown.Refused[i].Code != api.OK {
			failed = cmp.Or(refuse(q, j.shown.Refused[i]), failed)
			continue
		}
		sure := math.NaN()
		if i < len(j.shown.Confidences) {
			sure = j.shown.Confidences[i]
		}
		r.copyRow(q, j.shown.Outputs[i], sure)
	}
	return failed
}

func (r *replica) copyRow(q *api.Query, row []api.Value, sure float64) {
	q.Outputs = slices.Grow(q.Outputs[:0], len(row))[:len(row)]
	for s, v := range row {
		q.Outputs[s] = api.Value{Data: append(q.Outputs[s].Data[:0], v.Data...), Dims: append(q.Outputs[s].Dims[:0], v.Dims...)}
	}
	q.Confidence = r.confidence(sure)
}

// confidence is a confidence if the model has them and this is one, else NaN.
func (r *replica) confidence(sure float64) float64 {
	if r.model.Confidences && sure >= 0 && sure <= 1 {
		return sure
	}
	return math.NaN()
}
