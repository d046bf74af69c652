package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/inferlog"
)

const (
	// replayTimeout is how long an answer is waited for; latency objectives are far below it, but for those of batch jobs.
	replayTimeout = 2 * time.Minute
	// hopelessAfter is how many queries may fail before any is answered, until the replay gives up.
	hopelessAfter = 20
	// lateAfter is how late queries may be sent before people are told.
	lateAfter = time.Second
	// maxDueMicros is a century: longer waits would not fit a time.Duration.
	maxDueMicros = 100 * 365.25 * 86400e6
	inferHeader  = "Inference-Header-Content-Length"
)

// replay sends a log again.
type replay struct {
	c     *cli
	o     *replayOptions
	ctx   context.Context
	abort context.CancelCauseFunc
	jobs  chan job
	pace  pace
	late  time.Duration // the longest that a query was sent after it was due
	only  string        // the function whose queries go to --to or --model

	mu     sync.Mutex
	window window
	report replayReport
	then   latencies
	now    latencies
	inARow int // failures, while nothing was answered
}

// job is a query that is sent, or with a verdict feedback on one that has been answered.
type job struct {
	q *remembered
	// function is the one that is asked, empty where a model is.
	function string
	path     string
	body     []byte
	header   http.Header
	// jsonBytes is the part of the body that is JSON where a model is asked, 0 where a function is.
	jsonBytes  int
	tookMicros int64
	verdict    []byte
}

// pace says when the next query is due.
type pace struct {
	perSecond, speed float64
	original         bool
	sent             int
	first            int64
}

// due is how long after the start the next query, which came atMicros, is to be sent.
func (p *pace) due(atMicros int64) time.Duration {
	defer func() { p.sent++ }()
	switch {
	case p.original:
		if p.sent == 0 {
			p.first = atMicros
		}
		micros := max(float64(atMicros)-float64(p.first), 0) / p.speed
		return time.Duration(min(micros, maxDueMicros) * float64(time.Microsecond))
	case p.perSecond > 0:
		return time.Duration(min(float64(p.sent)/p.perSecond*1e6, maxDueMicros) * float64(time.Microsecond))
	}
	return 0
}

// replay sends the log at paths, prints what came of it, and fails if that is not as it should be.
func (c *cli) replay(ctx context.Context, paths []string, o *replayOptions) error {
	if _, err := baseURL("--server", c.server); err != nil {
		return err
	}
	if t, ok := c.http.Transport.(*http.Transport); ok {
		t.MaxIdleConnsPerHost = o.concurrency
	}
	run, abort := context.WithCancelCause(ctx)
	defer abort(nil)
	r := &replay{
		c: c, o: o, ctx: run, abort: abort, jobs: make(chan job),
		pace: pace{perSecond: o.perSecond, speed: o.speed, original: o.rate == "original"},
	}
	r.report.start()
	var workers sync.WaitGroup
	for range o.concurrency {
		workers.Go(func() {
			for j := range r.jobs {
				if run.Err() == nil {
					r.do(j)
				}
			}
		})
	}
	stopProgress := r.showProgress()
	started := time.Now()
	l := logReader{o: o, seen: map[string]bool{}}
	sum, err := l.read(paths, func(e *inferlog.Entry) error { return r.entry(e, started) })
	close(r.jobs)
	workers.Wait()
	r.report.Seconds = time.Since(started).Seconds()
	stopProgress()
	if cause := context.Cause(run); cause != nil {
		if errors.Is(cause, context.Canceled) && r.report.Queries > 0 { // interrupted: what is known is worth seeing
			r.finish()
			_ = c.showReplay(&r.report, sum, o)
		}
		return cause
	}
	if err != nil {
		return err
	}
	c.noteDamage(sum)
	if r.report.Queries+r.report.Unsent == 0 {
		return l.nothing(sum)
	}
	if r.late > lateAfter {
		fmt.Fprintf(c.err, "queries were sent up to %s later than --rate asks for: a larger --concurrency may help, or the gateway is at its limit\n",
			r.late.Round(time.Millisecond))
	}
	if r.window.forgotten > 0 && r.report.Unjoined > 0 {
		fmt.Fprintf(c.err, "%d feedbacks came too long after their queries, or belong to queries that were not sent\n", r.report.Unjoined)
	}
	r.finish()
	if err := c.showReplay(&r.report, sum, o); err != nil {
		return err
	}
	return r.report.verdict(o)
}

// entry takes one entry of the log, in its order.
func (r *replay) entry(e *inferlog.Entry, started time.Time) error {
	if err := context.Cause(r.ctx); err != nil {
		return err
	}
	if e.Kind == inferlog.KindFeedback {
		return r.feedback(e)
	}
	j, err := r.job(e)
	if err != nil {
		return err
	}
	if j.body == nil {
		return nil
	}
	paced := r.pace.original || r.pace.perSecond > 0
	due := r.pace.due(e.Record.AtMicros)
	if wait := due - time.Since(started); wait > 0 && paced {
		t := time.NewTimer(wait)
		defer t.Stop()
		select {
		case <-t.C:
		case <-r.ctx.Done():
			return context.Cause(r.ctx)
		}
	}
	r.mu.Lock()
	r.window.put(j.q)
	r.mu.Unlock()
	err = r.hand(j)
	if paced {
		r.late = max(r.late, time.Since(started)-due)
	}
	return err
}

// hand gives a job to a worker, when one is free.
func (r *replay) hand(j job) error {
	select {
	case r.jobs <- j:
		return nil
	case <-r.ctx.Done():
		return context.Cause(r.ctx)
	}
}

// job makes the request for a query. One without a body cannot be made.
func (r *replay) job(e *inferlog.Entry) (job, error) {
	f, rec := e.Schema.Function, &e.Record
	if r.o.to != "" || r.o.model != "" {
		if r.only == "" {
			r.only = f
		}
		if r.only != f {
			return job{}, usagef("the log has queries of the functions %s and %s: say with --function which of them are to be sent", r.only, f)
		}
	}
	j := job{q: &remembered{id: rec.ID, schema: e.Schema}, header: http.Header{}, tookMicros: rec.TookMicros}
	if len(rec.Outputs) > 0 && !rec.Default {
		j.q.then = e.AppendOutput(nil)
	}
	if r.o.model != "" {
		j.path = "/v2/models/" + r.o.target.Name
		if r.o.target.Version != "" {
			j.path += "/versions/" + r.o.target.Version
		}
		j.path += "/infer"
		j.body, j.jsonBytes = appendInfer(nil, e.Schema, rec.Inputs)
		j.header.Set("Content-Type", "application/octet-stream")
		j.header.Set(inferHeader, strconv.Itoa(j.jsonBytes))
		return j, nil
	}
	if r.o.to != "" {
		f = r.o.to
	}
	j.function, j.path = f, "/"+f+"/predict"
	input, exact := e.AppendInput([]byte(`{"input":`))
	if exact {
		j.header.Set("Content-Type", "application/json")
		if len(rec.Context) > 0 {
			text, err := json.Marshal(string(rec.Context))
			if err != nil {
				return job{}, err
			}
			input = append(append(input, `,"context":`...), text...)
		}
		j.body = append(input, '}')
		return j, nil
	}
	if !rawFits(e) { // numbers that JSON lacks
		r.mu.Lock()
		r.report.Unsent++
		r.mu.Unlock()
		return j, nil
	}
	j.header.Set("Content-Type", "application/octet-stream")
	if len(rec.Context) > 0 {
		j.header.Set(contextHeader, string(rec.Context))
	}
	j.body = bytes.Clone(rec.Inputs[0].Data)
	return j, nil
}

// rawFits reports whether a query can be sent as a raw body, which holds every number: it is one tensor of one open dimension at most, and
// its context can stand in a header.
func rawFits(e *inferlog.Entry) bool {
	if len(e.Schema.Inputs) != 1 || len(e.Record.Inputs[0].Data) == 0 {
		return false
	}
	open := 0
	for _, d := range e.Schema.Inputs[0].Shape {
		if d < 0 {
			open++
		}
	}
	for _, b := range e.Record.Context {
		if b < 0x20 || b == 0x7f {
			return false
		}
	}
	return open <= 1
}

// do sends a job and takes in what comes back.
func (r *replay) do(j job) {
	if j.verdict != nil {
		r.sendFeedback(j.q, j.function, j.verdict)
		return
	}
	ctx, cancel := context.WithTimeout(r.ctx, replayTimeout)
	defer cancel()
	sent := time.Now()
	a, err := r.ask(ctx, &j)
	took := time.Since(sent)
	if err != nil && r.ctx.Err() != nil {
		return
	}
	r.mu.Lock()
	r.take(&j, &a, err, took)
	verdicts := j.q.verdicts
	j.q.verdicts = nil
	r.mu.Unlock()
	for _, v := range verdicts {
		r.sendFeedback(j.q, j.function, v)
	}
}

// replayAnswer is what a new answer comes to.
type replayAnswer struct {
	QueryID uint64          `json:"query_id"`
	Output  json.RawMessage `json:"output"`
	Default bool            `json:"default"`
	Cause   string          `json:"cause"`
	Code    string          `json:"code"`
	// Reason is a default's.
	Reason string `json:"default_explanation"`
}

// ask sends a query. An error means that the gateway has not answered.
func (r *replay) ask(ctx context.Context, j *job) (a replayAnswer, err error) {
	base, err := baseURL("--server", r.c.server)
	if err != nil {
		return a, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, base+j.path, bytes.NewReader(j.body))
	if err != nil {
		return a, err
	}
	req.Header = j.header
	res, err := r.c.http.Do(req)
	if err != nil {
		return a, unreachable(r.ctx, err, "function port", "--server", r.c.server)
	}
	defer res.Body.Close()
	text, err := readAnswer(res)
	if err != nil {
		return a, err
	}
	if j.jsonBytes == 0 {
		if json.Unmarshal(text, &a) != nil || a.Output == nil && a.Cause == "" {
			return a, r.c.strange(status{res.StatusCode, res.Status})
		}
		if a.Output == nil && a.Code == "" {
			a.Code = res.Status
		}
		return a, nil
	}
	if res.StatusCode != http.StatusOK {
		var failed inferAnswer
		if json.Unmarshal(text, &failed) != nil || failed.Error == "" {
			return a, r.c.strange(status{res.StatusCode, res.Status})
		}
		return replayAnswer{Cause: failed.Error, Code: res.Status}, nil
	}
	n, _ := strconv.Atoi(res.Header.Get(inferHeader)) // 0 is said to be none
	output, err := inferOutput(text, n, j.q.schema)
	if err != nil {
		return replayAnswer{Cause: err.Error(), Code: api.BadOutput.String()}, nil
	}
	return replayAnswer{Output: output}, nil
}

// feedback joins what the log says of a query with its new answer.
func (r *replay) feedback(e *inferlog.Entry) error {
	f := &e.Feedback
	r.mu.Lock()
	q := r.window.byID[f.ID]
	if q == nil || q.schema.Function != e.Schema.Function {
		r.report.Unjoined++
		r.mu.Unlock()
		return nil
	}
	if q.label == nil && r.o.compare {
		q.label = labelOf(f, q.then)
		r.window.grow(q, len(q.label))
		if q.label != nil && q.done {
			r.judge(q)
		}
	}
	var verdict []byte
	if r.o.feedback {
		verdict = f.AppendVerdict(nil)
		if len(f.Context) > 0 {
			text, err := json.Marshal(string(f.Context))
			if err != nil {
				r.mu.Unlock()
				return err
			}
			verdict = append(append(verdict, `,"context":`...), text...)
		}
		if !q.done {
			q.verdicts = append(q.verdicts, verdict)
			verdict = nil
		}
	}
	r.mu.Unlock()
	if verdict == nil {
		return nil
	}
	function := e.Schema.Function
	if r.o.to != "" {
		function = r.o.to
	}
	return r.hand(job{q: q, function: function, verdict: verdict})
}

// labelOf is the output that feedback says is right, nil where it does not say.
func labelOf(f *inferlog.Feedback, answered []byte) []byte {
	switch {
	case f.Kind == inferlog.FeedbackLabel:
		return bytes.Clone(f.Label)
	case f.Kind == inferlog.FeedbackCorrect && f.Loss == 0:
		return answered
	}
	return nil
}

// sendFeedback sends a verdict on the new answer to q, which is there.
func (r *replay) sendFeedback(q *remembered, function string, verdict []byte) {
	r.mu.Lock()
	id := q.newID
	r.mu.Unlock()
	status := "no answer to be about"
	if id != 0 {
		ctx, cancel := context.WithTimeout(r.ctx, replayTimeout)
		defer cancel()
		text, err := r.c.feed(ctx, function, fmt.Appendf(nil, `{"query_id":%d,%s}`, id, verdict), http.Header{})
		var result feedbackResult
		switch {
		case r.ctx.Err() != nil:
			return
		case err != nil:
			status = "refused"
		case json.Unmarshal(text, &result) != nil || result.Status == "":
			status = "not understood"
		default:
			status = result.Status
		}
	}
	r.mu.Lock()
	r.report.Feedback[status]++
	r.mu.Unlock()
}
