package memory

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/xebec-serving/xebec/api"
)

const (
	// defaultStreams is how many streams are evaluated at once unless the model says otherwise.
	defaultStreams = 16
	// maxAhead is how many outputs a model may be ahead of the reader of its stream.
	maxAhead = 16
)

// ErrUnwanted is what [Outputs.Send] returns when no further output is wanted.
var ErrUnwanted = errors.New("no further output of this stream is wanted")

// Outputs takes the outputs of a stream.
type Outputs struct {
	r *replica
	j *job
}

// flow is the state of a stream. The replica's mu guards it.
type flow struct {
	ahead    []output
	opened   bool // the first output was delivered
	turn     bool // the reader wants outputs
	unwanted bool // no further output is wanted
	over     bool // the replica or the stream has ended
	returned bool // the model's function has returned
	queued   bool // report is about to look at it
	bad      error
	large    bool
	stop     chan struct{} // closed when unwanted or over
	silence  *time.Timer   // ends a replica that is silent in its turn
}

// output is one output that waits for its reader. It is the transport's copy.
type output struct {
	row  []api.Value
	sure float64
}

func newFlow() *flow { return &flow{stop: make(chan struct{})} }

// Unwanted is closed when no further output is wanted.
func (o *Outputs) Unwanted() <-chan struct{} { return o.j.flow.stop }

// Send sends the next output, with a confidence if the model has them. It blocks while the model is far ahead of the
// reader, and fails if the output contradicts the signature or no further output is wanted.
func (o *Outputs) Send(confidence float64, row ...api.Value) error {
	r, f := o.r, o.j.flow
	bad := checkRow(r.exp.Signature, row)
	copied := output{sure: confidence}
	for _, v := range row {
		copied.row = append(copied.row, api.Value{Data: bytes.Clone(v.Data), Dims: slices.Clone(v.Dims)})
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case f.unwanted || f.over || r.why != "":
		return ErrUnwanted
	case f.bad != nil:
		return f.bad
	case bad != nil:
		f.bad = fmt.Errorf("an output of the stream %w", bad)
		return f.bad
	case rowBytes(row) > r.t.cfg.MaxBatchBytes:
		f.bad, f.large = fmt.Errorf("an output of the stream is larger than %d bytes", r.t.cfg.MaxBatchBytes), true
		return f.bad
	}
	f.ahead = append(f.ahead, copied)
	r.lookLocked(o.j)
	for len(f.ahead) >= maxAhead && !f.unwanted && !f.over && r.why == "" {
		r.changed.Wait()
	}
	return nil
}

// stream calls the model for one query.
func (r *replica) stream(j *job) {
	j.err = guarded(func() error { return r.model.Stream(j.shown, &Outputs{r, j}) })
	j.workNanos = int64(r.t.cfg.Now() - j.began)
	var exit Exit
	if errors.As(j.err, &exit) {
		r.crash(exit)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	j.flow.returned = true
	r.lookLocked(j)
}

// lookLocked lets report look at a stream that has something for its reader.
func (r *replica) lookLocked(j *job) {
	f := j.flow
	switch {
	case r.why != "" || f.over || f.queued:
		return
	case f.unwanted && !f.returned:
		return
	case !f.unwanted && (f.opened && !f.turn || len(f.ahead) == 0 && !f.returned):
		return
	}
	f.queued = true
	r.inbox = append(r.inbox, func() { r.advance(j) })
	r.changed.Broadcast()
}

// advance delivers what a stream has for its reader: the first output, further ones, or the end.
func (r *replica) advance(j *job) {
	f, q := j.flow, j.batch.Queries[0]
	seen := r.t.cfg.Now()
	r.mu.Lock()
	f.queued = false
	if f.unwanted && !f.returned { // cancelled since report was to look at it
		r.mu.Unlock()
		return
	}
	take := f.ahead
	if !f.opened {
		take = take[:min(len(take), 1)]
	}
	f.ahead = f.ahead[len(take):]
	first := !f.opened && len(take) > 0
	end := f.unwanted || len(take) == 0
	f.opened, f.turn = f.opened || first, false
	f.quietLocked()
	if end {
		f.closeLocked()
	}
	r.changed.Broadcast()
	r.mu.Unlock()
	switch {
	case end:
		r.endStream(j, seen)
	case first:
		r.copyRow(q, take[0].row, take[0].sure)
		if q.Stream != nil {
			q.Stream.Open(source{r, j})
		} else {
			source{r, j}.Cancel()
		}
		r.exp.Events.FirstOutput(r.self, j.batch.ID, max(int64(seen-j.began), 1))
	default:
		for _, o := range take {
			q.Stream.Take(o.row, r.confidence(o.sure))
		}
		if r.exp.Streamed != nil {
			r.exp.Streamed(len(take))
		}
		if !q.Stream.Full() {
			source{r, j}.Resume()
		}
	}
}

func (r *replica) endStream(j *job, seen api.Nanos) {
	f, q := j.flow, j.batch.Queries[0]
	res := api.BatchResult{ID: j.batch.ID, WorkNanos: j.workNanos, EvalNanos: int64(seen - j.began)}
	switch why := j.shown.Refused; {
	case f.unwanted && !f.opened:
		res.Code = api.Cancelled
	case f.unwanted:
		res.Withdrawn = true
	case f.large:
		res.Code, res.Detail = api.TooLarge, f.bad.Error()
	case f.bad != nil:
		res.Code, res.Detail = api.BadOutput, f.bad.Error()
	case j.err != nil:
		res.Code, res.Detail = api.ModelError, j.err.Error()
	case len(why) > 0 && why[0].Code != api.OK:
		res.Detail = refuse(q, why[0])
	case !f.opened:
		res.Code, res.Detail = api.BadOutput, "the stream has ended without an output"
	}
	r.finish(j, &res)
}

// closeLocked ends a stream: its model and its reader see that no further output is wanted.
func (f *flow) closeLocked() {
	f.quietLocked()
	if !f.over && !f.unwanted {
		close(f.stop)
	}
	f.over = true
}

// quietLocked stops the timer of a replica that is silent.
func (f *flow) quietLocked() {
	if f.silence != nil {
		f.silence.Stop()
		f.silence = nil
	}
}

// source is where the outputs of one stream come from.
type source struct {
	r *replica
	j *job
}

// Resume implements [api.Source].
func (s source) Resume() {
	r, f := s.r, s.j.flow
	r.mu.Lock()
	defer r.mu.Unlock()
	if f.over || f.unwanted || f.turn {
		return
	}
	f.turn = true
	r.watchLocked(f)
	r.lookLocked(s.j)
}

// Cancel implements [api.Source].
func (s source) Cancel() {
	r, f := s.r, s.j.flow
	r.mu.Lock()
	defer r.mu.Unlock()
	if f.over || f.unwanted {
		return
	}
	f.unwanted, f.ahead = true, nil
	close(f.stop)
	r.watchLocked(f)
	r.changed.Broadcast()
	r.lookLocked(s.j)
}

// watchLocked ends the replica if the stream has nothing to say for too long.
func (r *replica) watchLocked(f *flow) {
	if f.silence == nil && r.why == "" {
		idle := cmp.Or(r.exp.StreamIdle, api.DefaultStreamIdle)
		f.silence = time.AfterFunc(idle, func() {
			r.mu.Lock()
			r.silent = r.why == ""
			r.mu.Unlock()
			r.Kill(fmt.Sprintf("a stream had no further output for %v (stream_idle)", idle))
		})
	}
}
