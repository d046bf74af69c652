package replay

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

const (
	// maxExamples bounds the differing outputs in a report, maxFailures the kinds of failures.
	maxExamples = 5
	maxFailures = 20
	// maxExampleBytes is how much of an output an example shows.
	maxExampleBytes = 60
)

// Report is the outcome of a replay.
type Report struct {
	// Queries were sent and have an outcome. Unsent could not be sent: they have numbers that JSON does not have.
	Queries int `json:"queries"`
	Unsent  int `json:"unsent"`
	// Same and Different had an output then and have one now. Lost had one, and now get an error or a default; Gained
	// are the opposite. Neither had none at both times.
	Same      int `json:"same"`
	Different int `json:"different"`
	Lost      int `json:"lost"`
	Gained    int `json:"gained"`
	Neither   int `json:"neither"`
	// Difference is (Different + Lost) / (Same + Different + Lost), 0 if nothing could be compared.
	Difference float64 `json:"difference"`
	// Defaults and Failed got a default or an error now. Failures lists the errors, the most frequent first.
	Defaults int        `json:"defaults"`
	Failed   int        `json:"failed"`
	Failures []*Failure `json:"failures,omitempty"`
	Accuracy *Accuracy  `json:"accuracy,omitempty"`
	Latency  Latency    `json:"latency_ms"`
	// Feedback counts the feedback that was sent, by the status of the answer. Unjoined counts feedback in the log
	// whose query was not sent, or was forgotten.
	Feedback map[string]int `json:"feedback,omitempty"`
	Unjoined int            `json:"unjoined_feedback"`
	Seconds  float64        `json:"seconds"`
	Examples []Example      `json:"examples,omitempty"`
	// Damaged is the number of parts of the log that could not be read.
	Damaged int `json:"damaged"`
}

// Compared is the number of queries whose logged output could be compared with the new answer.
func (p *Report) Compared() int { return p.Same + p.Different + p.Lost }

// Failure is the queries that ended with the same code.
type Failure struct {
	Code  string `json:"code"`
	Count int    `json:"count"`
	// Example is the message of the first of them.
	Example string `json:"example"`
}

// Accuracy is the fraction of the queries with a known label whose output was the label, in the log and now.
type Accuracy struct {
	Labels    int     `json:"labels"`
	Then      float64 `json:"then"`
	Now       float64 `json:"now"`
	thenRight int
	nowRight  int
}

// Latency has quantiles: Then as the gateway measured them, Now as the sender sees them, with the network.
type Latency struct {
	Then Quantiles `json:"then"`
	Now  Quantiles `json:"now"`
}

// Quantiles are in milliseconds.
type Quantiles struct {
	P50 float64 `json:"p50"`
	P99 float64 `json:"p99"`
}

// Example is a query whose outputs differ.
type Example struct {
	QueryID uint64 `json:"query_id"`
	Then    string `json:"then"`
	Now     string `json:"now"`
}

// count adds the outcome of a query: an answer, or the error of sending it. The caller holds the mutex.
func (r *Replay) count(j *job, a *answer, err error, took time.Duration) {
	p, q := &r.report, j.query
	p.Queries++
	r.then.add(j.tookMicros)
	q.answered, q.newID = true, a.QueryID
	if err == nil {
		r.now.add(took.Microseconds())
	}
	switch {
	case err != nil:
		p.fail("no answer", err.Error())
		if r.failures++; r.outputs() == 0 && (p.Queries == 1 || r.failures >= giveUpAfter) {
			r.abort(err)
		}
	case a.Output == nil:
		p.fail(a.Code, a.Cause)
		if r.failures++; r.outputs() == 0 && r.failures >= giveUpAfter {
			r.abort(fmt.Errorf("none of the first %d queries was answered: %s (%s)", p.Queries, a.Cause, a.Code))
		}
	case a.Default:
		p.Defaults++
	default:
		q.output = a.Output
		r.window.grow(q, len(q.output))
	}
	if r.options.Compare {
		r.compare(q)
		if q.label != nil {
			r.judge(q)
		}
	}
}

// outputs is the number of queries that got an output. A default is one.
func (r *Replay) outputs() int { return r.report.Queries - r.report.Failed }

func (r *Replay) compare(q *query) {
	p := &r.report
	switch {
	case q.logged == nil && q.output == nil:
		p.Neither++
	case q.logged == nil:
		p.Gained++
	case q.output == nil:
		p.Lost++
	case r.same(q, q.logged, q.output):
		p.Same++
	default:
		p.Different++
		if len(p.Examples) < maxExamples {
			p.Examples = append(p.Examples, Example{QueryID: q.id, Then: clip(q.logged), Now: clip(q.output)})
		}
	}
}

func (r *Replay) same(q *query, a, b []byte) bool {
	return sameOutput(q.schema.Outputs, a, b, r.options.Tolerance)
}

func clip(b []byte) string {
	if len(b) <= maxExampleBytes {
		return string(b)
	}
	return strings.ToValidUTF8(string(b[:maxExampleBytes]), "") + "…"
}

// judge compares both answers with the label. No answer is a wrong one. The caller holds the mutex.
func (r *Replay) judge(q *query) {
	if r.report.Accuracy == nil {
		r.report.Accuracy = &Accuracy{}
	}
	a := r.report.Accuracy
	a.Labels++
	if q.logged != nil && isLabel(q.schema.Outputs, q.label, q.logged, r.options.Tolerance) {
		a.thenRight++
	}
	if q.output != nil && isLabel(q.schema.Outputs, q.label, q.output, r.options.Tolerance) {
		a.nowRight++
	}
}

func (p *Report) fail(code, example string) {
	p.Failed++
	for _, f := range p.Failures {
		if f.Code == code {
			f.Count++
			return
		}
	}
	if len(p.Failures) == maxFailures {
		p.Failures[maxFailures-1].Count++
		return
	}
	if len(p.Failures) == maxFailures-1 {
		code = "other"
	}
	p.Failures = append(p.Failures, &Failure{Code: code, Count: 1, Example: example})
}

// finish computes what follows from the counts.
func (r *Replay) finish() {
	p := &r.report
	if n := p.Compared(); n > 0 {
		p.Difference = float64(p.Different+p.Lost) / float64(n)
	}
	if a := p.Accuracy; a != nil {
		a.Then, a.Now = float64(a.thenRight)/float64(a.Labels), float64(a.nowRight)/float64(a.Labels)
	}
	p.Latency.Then = Quantiles{r.then.quantileMillis(0.5), r.then.quantileMillis(0.99)}
	p.Latency.Now = Quantiles{r.now.quantileMillis(0.5), r.now.quantileMillis(0.99)}
	slices.SortFunc(p.Failures, func(a, b *Failure) int { return cmp.Compare(b.Count, a.Count) })
}
