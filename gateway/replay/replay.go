package replay

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/inferlog"
)

const (
	// answerTimeout is how long a query may take. Latency objectives are far below it, except for those of batch jobs.
	answerTimeout = 2 * time.Minute
	// giveUpAfter is how many queries may fail before the first output, until the replay gives up.
	giveUpAfter = 20
	// maxDueMicros is a century: a longer time would not fit into a time.Duration.
	maxDueMicros = 100 * 365.25 * 86400e6
	// contextHeader has the context of a query whose body has no place for it.
	contextHeader = "Xebec-Context"
)

// A Sender posts one request to a gateway's function port and reads the whole answer, whatever its status. An error
// means that there was no answer.
type Sender func(ctx context.Context, path string, header http.Header, body []byte) (*Response, error)

// Response is the answer to a request. Status is the code with its text, such as "404 Not Found".
type Response struct {
	StatusCode int
	Status     string
	Header     http.Header
	Body       []byte
}

// Options say what is sent where, and how fast.
type Options struct {
	Filter
	// To is the function to send to; "" means the function that the query came to.
	To string
	// Model, unless it is zero, is the model version to send to, past all functions.
	Model api.ModelID
	Pace  Pace
	// Concurrency is the largest number of requests in flight, at least 1.
	Concurrency int
	// Feedback sends the feedback in the log too.
	Feedback bool
	// Compare compares outputs. Floating-point numbers may differ by Tolerance, absolutely or as a fraction of the
	// logged number.
	Compare   bool
	Tolerance float64
}

// Pace says when queries are sent. The zero value sends each as soon as a worker is free.
type Pace struct {
	// PerSecond, if it is not 0, is the rate.
	PerSecond float64
	// Original keeps the intervals of the log, Speed times faster; Speed must be more than 0.
	Original bool
	Speed    float64
}

// Result is a report with what else a user wants to know.
type Result struct {
	Report
	// Log is what was read.
	Log inferlog.Summary
	// Late is by how much the latest query missed the pace.
	Late time.Duration
	// Forgotten queries were evicted from memory: feedback that came later than that could not be joined.
	Forgotten int
}

// AmbiguousError means that queries of two functions would go to one function or model.
type AmbiguousError struct{ Functions [2]string }

func (e *AmbiguousError) Error() string {
	return fmt.Sprintf("the log has queries of the functions %s and %s, and they would all go to one place", e.Functions[0], e.Functions[1])
}

// UnexpectedAnswerError is an answer that a function port would not give.
type UnexpectedAnswerError struct{ Status string }

func (e *UnexpectedAnswerError) Error() string {
	return fmt.Sprintf("the answer is not that of a function port (%s)", e.Status)
}

// Replay sends a log once.
type Replay struct {
	options Options
	send    Sender
	ctx     context.Context
	abort   context.CancelCauseFunc
	jobs    chan job

	// These are used by the goroutine that reads the log.
	sent        int
	firstMicros int64         // when the first query came
	late        time.Duration // the most that a query was sent after it was due
	source      string        // the function whose queries go to Options.To or Options.Model

	mu       sync.Mutex
	window   window
	report   Report
	then     latencies
	now      latencies
	failures int // since the last output
}

// New returns a replay that has not begun. Run may be called once.
func New(o Options, send Sender) *Replay {
	o.Concurrency = max(o.Concurrency, 1)
	return &Replay{options: o, send: send, jobs: make(chan job), report: Report{Feedback: map[string]int{}}}
}

// Progress can be called while Run is running.
func (r *Replay) Progress() (queries, different, failed int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.report.Queries, r.report.Different, r.report.Failed
}

// Run sends the selected queries of the log at paths, which are files and directories. When it fails, the result has
// what was counted up to then. The error is an [EmptyError] if no query was selected, and an [AmbiguousError] if
// queries of several functions were.
func (r *Replay) Run(ctx context.Context, paths []string) (*Result, error) {
	r.ctx, r.abort = context.WithCancelCause(ctx)
	defer r.abort(nil)
	var workers sync.WaitGroup
	for range r.options.Concurrency {
		workers.Go(func() {
			for j := range r.jobs {
				if r.ctx.Err() == nil {
					r.do(j)
				}
			}
		})
	}
	started := time.Now()
	log := reader{filter: &r.options.Filter}
	sum, err := log.read(paths, func(e *inferlog.Entry) error { return r.entry(e, started) })
	close(r.jobs)
	workers.Wait()
	r.report.Seconds, r.report.Damaged = time.Since(started).Seconds(), sum.Damaged
	r.finish()
	result := &Result{Report: r.report, Log: sum, Late: r.late, Forgotten: r.window.forgotten}
	if cause := context.Cause(r.ctx); cause != nil {
		return result, cause
	}
	if err == nil && r.report.Queries+r.report.Unsent == 0 {
		err = log.empty(sum)
	}
	return result, err
}

// job is a query to send, or, if it has a verdict, feedback on a query that has been answered.
type job struct {
	query *query
	// function is where it goes; "" if it goes to a model.
	function string
	path     string
	header   http.Header
	body     []byte
	// jsonBytes is the size of the JSON in the body of a request to a model; 0 if it goes to a function.
	jsonBytes  int
	tookMicros int64 // in the log
	verdict    []byte
}

// entry handles the entries of the log in their order.
func (r *Replay) entry(e *inferlog.Entry, started time.Time) error {
	if err := context.Cause(r.ctx); err != nil {
		return err
	}
	if e.Kind == inferlog.KindFeedback {
		return r.feedback(e)
	}
	j, err := r.newJob(e)
	if err != nil {
		return err
	}
	if j.body == nil {
		r.mu.Lock()
		r.report.Unsent++
		r.mu.Unlock()
		return nil
	}
	paced := r.options.Pace.Original || r.options.Pace.PerSecond > 0
	due := r.due(e.Record.AtMicros)
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
	r.window.put(j.query)
	r.mu.Unlock()
	err = r.submit(j)
	if paced {
		r.late = max(r.late, time.Since(started)-due)
	}
	return err
}

// due is when the next query, which came atMicros, is to be sent, since the start.
func (r *Replay) due(atMicros int64) time.Duration {
	defer func() { r.sent++ }()
	switch p := &r.options.Pace; {
	case p.Original:
		if r.sent == 0 {
			r.firstMicros = atMicros
		}
		micros := max(float64(atMicros)-float64(r.firstMicros), 0) / p.Speed
		return time.Duration(min(micros, maxDueMicros) * float64(time.Microsecond))
	case p.PerSecond > 0:
		return time.Duration(min(float64(r.sent)/p.PerSecond*1e6, maxDueMicros) * float64(time.Microsecond))
	}
	return 0
}

// submit passes a job to a worker as soon as one is free.
func (r *Replay) submit(j job) error {
	select {
	case r.jobs <- j:
		return nil
	case <-r.ctx.Done():
		return context.Cause(r.ctx)
	}
}

// newQuery copies from an entry what outlives it.
func newQuery(e *inferlog.Entry) *query {
	q := &query{id: e.Record.ID, schema: e.Schema}
	if len(e.Record.Outputs) > 0 && !e.Record.Default {
		q.logged = e.AppendOutput(nil)
	}
	return q
}

// newJob makes the request for a query. The job has no body if the query cannot be sent.
func (r *Replay) newJob(e *inferlog.Entry) (job, error) {
	f, rec := e.Schema.Function, &e.Record
	if r.options.To != "" || r.options.Model != (api.ModelID{}) {
		if r.source == "" {
			r.source = f
		}
		if r.source != f {
			return job{}, &AmbiguousError{[2]string{r.source, f}}
		}
	}
	j := job{query: newQuery(e), header: http.Header{}, tookMicros: rec.TookMicros}
	if m := r.options.Model; m != (api.ModelID{}) {
		j.path = "/v2/models/" + m.Name
		if m.Version != "" {
			j.path += "/versions/" + m.Version
		}
		j.path += "/infer"
		j.body, j.jsonBytes = appendInfer(nil, e.Schema, rec.Inputs)
		j.header.Set("Content-Type", "application/octet-stream")
		j.header.Set(inferHeader, strconv.Itoa(j.jsonBytes))
		return j, nil
	}
	if r.options.To != "" {
		f = r.options.To
	}
	j.function, j.path = f, "/"+f+"/predict"
	input, exact := e.AppendInput([]byte(`{"input":`))
	if exact {
		j.header.Set("Content-Type", "application/json")
		input, err := appendContext(input, rec.Context)
		j.body = append(input, '}')
		return j, err
	}
	if fitsRawBody(e) {
		j.header.Set("Content-Type", "application/octet-stream")
		if len(rec.Context) > 0 {
			j.header.Set(contextHeader, string(rec.Context))
		}
		j.body = bytes.Clone(rec.Inputs[0].Data)
	}
	return j, nil
}

// appendContext appends the member "context" unless the context is empty.
func appendContext(dst, context []byte) ([]byte, error) {
	if len(context) == 0 {
		return dst, nil
	}
	text, err := json.Marshal(string(context))
	if err != nil {
		return nil, err
	}
	return append(append(dst, `,"context":`...), text...), nil
}

// fitsRawBody reports whether a query can be sent as a raw body, which holds every number. It must have one tensor with
// at most one open dimension, and a context that fits into a header.
func fitsRawBody(e *inferlog.Entry) bool {
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

// do sends a job and counts its outcome.
func (r *Replay) do(j job) {
	if j.verdict != nil {
		r.sendFeedback(j.query, j.function, j.verdict)
		return
	}
	ctx, cancel := context.WithTimeout(r.ctx, answerTimeout)
	defer cancel()
	sent := time.Now()
	a, err := r.ask(ctx, &j)
	took := time.Since(sent)
	if err != nil && r.ctx.Err() != nil {
		return
	}
	r.mu.Lock()
	r.count(&j, &a, err, took)
	verdicts := j.query.verdicts
	j.query.verdicts = nil
	r.mu.Unlock()
	for _, v := range verdicts {
		r.sendFeedback(j.query, j.function, v)
	}
}

// answer is the part of an answer of the native API that a replay reads.
type answer struct {
	QueryID uint64          `json:"query_id"`
	Output  json.RawMessage `json:"output"`
	Default bool            `json:"default"`
	Cause   string          `json:"cause"`
	Code    string          `json:"code"`
}

// ask sends a query. An error means that a gateway did not answer.
func (r *Replay) ask(ctx context.Context, j *job) (a answer, err error) {
	res, err := r.send(ctx, j.path, j.header, j.body)
	if err != nil {
		return a, err
	}
	if j.jsonBytes == 0 {
		if json.Unmarshal(res.Body, &a) != nil || a.Output == nil && a.Cause == "" {
			return a, &UnexpectedAnswerError{res.Status}
		}
		if a.Output == nil && a.Code == "" {
			a.Code = res.Status
		}
		return a, nil
	}
	if res.StatusCode != http.StatusOK {
		var failed inferAnswer
		if json.Unmarshal(res.Body, &failed) != nil || failed.Error == "" {
			return a, &UnexpectedAnswerError{res.Status}
		}
		return answer{Cause: failed.Error, Code: res.Status}, nil
	}
	n, _ := strconv.Atoi(res.Header.Get(inferHeader)) // inferOutput reports a missing header
	output, err := inferOutput(res.Body, n, j.query.schema)
	if err != nil {
		return answer{Cause: err.Error(), Code: api.BadOutput.String()}, nil
	}
	return answer{Output: output}, nil
}

// feedback joins feedback in the log with the new answer to its query.
func (r *Replay) feedback(e *inferlog.Entry) error {
	var verdict []byte
	if r.options.Feedback {
		var err error
		if verdict, err = appendContext(e.Feedback.AppendVerdict(nil), e.Feedback.Context); err != nil {
			return err
		}
	}
	r.mu.Lock()
	q := r.window.find(e)
	if q == nil {
		r.report.Unjoined++
		r.mu.Unlock()
		return nil
	}
	if q.label == nil && r.options.Compare {
		q.label = labelOf(&e.Feedback, q.logged)
		r.window.grow(q, len(q.label))
		if q.label != nil && q.answered {
			r.judge(q)
		}
	}
	if verdict != nil && !q.answered {
		q.verdicts = append(q.verdicts, verdict)
		verdict = nil
	}
	r.mu.Unlock()
	if verdict == nil {
		return nil
	}
	function := e.Schema.Function
	if r.options.To != "" {
		function = r.options.To
	}
	return r.submit(job{query: q, function: function, verdict: verdict})
}

// labelOf is the output that feedback says is right, nil if it does not say.
func labelOf(f *inferlog.Feedback, logged []byte) []byte {
	switch {
	case f.Kind == inferlog.FeedbackLabel:
		return bytes.Clone(f.Label)
	case f.Kind == inferlog.FeedbackCorrect && f.Loss == 0:
		return logged
	}
	return nil
}

// sendFeedback sends a verdict on the new answer to q, which has arrived.
func (r *Replay) sendFeedback(q *query, function string, verdict []byte) {
	r.mu.Lock()
	id := q.newID
	r.mu.Unlock()
	status := "no answer to be about"
	if id != 0 {
		ctx, cancel := context.WithTimeout(r.ctx, answerTimeout)
		defer cancel()
		header := http.Header{"Content-Type": {"application/json"}}
		res, err := r.send(ctx, "/"+function+"/feedback", header, fmt.Appendf(nil, `{"query_id":%d,%s}`, id, verdict))
		if r.ctx.Err() != nil {
			return
		}
		status = feedbackStatus(res, err)
	}
	r.mu.Lock()
	r.report.Feedback[status]++
	r.mu.Unlock()
}

// feedbackStatus is what the gateway says it did with feedback.
func feedbackStatus(res *Response, err error) string {
	if err != nil || res.StatusCode != http.StatusOK && res.StatusCode != http.StatusAccepted || !json.Valid(res.Body) {
		return "refused"
	}
	var result struct {
		Status string `json:"status"`
	}
	if json.Unmarshal(res.Body, &result) != nil || result.Status == "" {
		return "not understood"
	}
	return result.Status
}
