package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/xebec-serving/xebec/gateway/inferlog"
)

const (
	// maxReplayExamples bounds the differences that are shown one by one, maxReplayFailures the kinds of failures.
	maxReplayExamples = 5
	maxReplayFailures = 20
	// maxExampleBytes is how much of an output is shown.
	maxExampleBytes = 60
)

// replayReport is what came of a replay.
type replayReport struct {
	// Queries is how many were sent and have come to an end, Unsent how many could not be: they have numbers that JSON lacks.
	Queries int `json:"queries"`
	Unsent  int `json:"unsent"`
	// Same and Different are those with an output then and now; Lost those with one then, and an error or a default output now; Gained the
	// other way round; Neither those without one at both times.
	Same      int `json:"same"`
	Different int `json:"different"`
	Lost      int `json:"lost"`
	Gained    int `json:"gained"`
	Neither   int `json:"neither"`
	// Difference is (Different + Lost) / (Same + Different + Lost); 0 when nothing could be compared.
	Difference float64 `json:"difference"`
	// Defaults and Failed are how many have a default output, or an error, now; Failures says which errors.
	Defaults int              `json:"defaults"`
	Failed   int              `json:"failed"`
	Failures []*replayFailure `json:"failures,omitempty"`
	Accuracy *replayAccuracy  `json:"accuracy,omitempty"`
	Latency  replayLatency    `json:"latency_ms"`
	// Feedback counts what became of feedback that was sent, by status; Unjoined is feedback in the log whose query was not sent.
	Feedback map[string]int  `json:"feedback,omitempty"`
	Unjoined int             `json:"unjoined_feedback"`
	Seconds  float64         `json:"seconds"`
	Examples []replayExample `json:"examples,omitempty"`
	// Damaged is how many parts of the log could not be read.
	Damaged int `json:"damaged"`
}

// replayFailure is queries that ended in one error.
type replayFailure struct {
	Code  string `json:"code"`
	Count int    `json:"count"`
	// Example is what was said to the first of them.
	Example string `json:"example"`
}

// replayAccuracy is which part of the queries that a label is known of was answered with it.
type replayAccuracy struct {
	Labels    int     `json:"labels"`
	Then      float64 `json:"then"`
	Now       float64 `json:"now"`
	thenRight int
	nowRight  int
}

// replayLatency has quantiles: then as the gateway measured them, now as they were seen from here, with the network.
type replayLatency struct {
	Then replayQuantiles `json:"then"`
	Now  replayQuantiles `json:"now"`
}

type replayQuantiles struct {
	P50 float64 `json:"p50"`
	P99 float64 `json:"p99"`
}

// replayExample is a query whose output differs.
type replayExample struct {
	QueryID uint64 `json:"query_id"`
	Then    string `json:"then"`
	Now     string `json:"now"`
}

func (p *replayReport) start() { p.Feedback = map[string]int{} }

// take counts an answer, or that there is none. The caller holds the mutex.
func (r *replay) take(j *job, a *replayAnswer, err error, took time.Duration) {
	p, q := &r.report, j.q
	p.Queries++
	r.then.add(j.tookMicros)
	q.done, q.newID = true, a.QueryID
	switch {
	case err != nil:
		p.fail("no answer", err.Error())
		if r.inARow++; r.answered() == 0 && (p.Queries == 1 || r.inARow >= hopelessAfter) {
			r.abort(err) // it would not get better
		}
	case a.Output == nil:
		r.now.add(took.Microseconds())
		p.fail(a.Code, a.Cause)
		if r.inARow++; r.answered() == 0 && r.inARow >= hopelessAfter {
			r.abort(fmt.Errorf("none of the first %d queries was answered: %s (%s)", p.Queries, a.Cause, a.Code))
		}
	case a.Default:
		r.now.add(took.Microseconds())
		p.Defaults++
	default:
		r.now.add(took.Microseconds())
		q.now = a.Output
		r.window.grow(q, len(q.now))
	}
	if r.o.compare {
		r.compareOutputs(q)
		if q.label != nil {
			r.judge(q)
		}
	}
}

// answered is how many queries got an output, if only a default.
func (r *replay) answered() int { return r.report.Queries - r.report.Failed }

func (r *replay) compareOutputs(q *remembered) {
	p := &r.report
	switch {
	case q.then == nil && q.now == nil:
		p.Neither++
	case q.then == nil:
		p.Gained++
	case q.now == nil:
		p.Lost++
	case sameOutput(q.schema.Outputs, q.then, q.now, r.o.tolerance):
		p.Same++
	default:
		p.Different++
		if len(p.Examples) < maxReplayExamples {
			p.Examples = append(p.Examples, replayExample{QueryID: q.id, Then: clipText(q.then), Now: clipText(q.now)})
		}
	}
}

func clipText(b []byte) string {
	if len(b) <= maxExampleBytes {
		return string(b)
	}
	return strings.ToValidUTF8(string(b[:maxExampleBytes]), "") + "…"
}

// judge compares both answers with the label; no answer is a wrong one. The caller holds the mutex.
func (r *replay) judge(q *remembered) {
	if r.report.Accuracy == nil {
		r.report.Accuracy = &replayAccuracy{}
	}
	a := r.report.Accuracy
	a.Labels++
	if q.then != nil && sameOutput(q.schema.Outputs, q.label, q.then, r.o.tolerance) {
		a.thenRight++
	}
	if q.now != nil && sameOutput(q.schema.Outputs, q.label, q.now, r.o.tolerance) {
		a.nowRight++
	}
}

func (p *replayReport) fail(code, example string) {
	p.Failed++
	for _, f := range p.Failures {
		if f.Code == code {
			f.Count++
			return
		}
	}
	if len(p.Failures) == maxReplayFailures {
		p.Failures[maxReplayFailures-1].Count++
		return
	}
	if len(p.Failures) == maxReplayFailures-1 {
		code = "other"
	}
	p.Failures = append(p.Failures, &replayFailure{Code: code, Count: 1, Example: example})
}

// finish computes what follows from the counts.
func (r *replay) finish() {
	p := &r.report
	if compared := p.Same + p.Different + p.Lost; compared > 0 {
		p.Difference = float64(p.Different+p.Lost) / float64(compared)
	}
	if a := p.Accuracy; a != nil {
		a.Then, a.Now = float64(a.thenRight)/float64(a.Labels), float64(a.nowRight)/float64(a.Labels)
	}
	p.Latency.Then = replayQuantiles{r.then.quantile(0.5), r.then.quantile(0.99)}
	p.Latency.Now = replayQuantiles{r.now.quantile(0.5), r.now.quantile(0.99)}
	slices.SortFunc(p.Failures, func(a, b *replayFailure) int { return cmp.Compare(b.Count, a.Count) })
}

// verdict fails what was asked to be judged.
func (p *replayReport) verdict(o *replayOptions) error {
	switch {
	case p.Queries > 0 && p.Failed == p.Queries:
		return fmt.Errorf("none of %d queries was answered", p.Queries)
	case !o.checkDifference:
		return nil
	case p.Same+p.Different+p.Lost == 0:
		return fmt.Errorf("no query of the log has an output that could be compared: --max-difference says nothing of them")
	case p.Difference > o.maxDifference:
		return fmt.Errorf("%s of the answers differ from the log's: --max-difference allows %s", percent(p.Difference), percent(o.maxDifference))
	}
	return nil
}

// showReplay prints the report.
func (c *cli) showReplay(p *replayReport, sum inferlog.Summary, o *replayOptions) error {
	p.Damaged = sum.Damaged
	if o.format != formatTable {
		text, err := json.Marshal(p)
		if err != nil {
			return err
		}
		return c.print(o.format, text)
	}
	w := tabwriter.NewWriter(c.out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "queries\t%d\n", p.Queries)
	if p.Unsent > 0 {
		fmt.Fprintf(w, "not sent\t%d, with numbers that JSON does not have\n", p.Unsent)
	}
	if o.compare {
		fmt.Fprintf(w, "same output\t%d\n", p.Same)
		fmt.Fprintf(w, "different\t%d\t%s of those that had an output\n", p.Different+p.Lost, percent(p.Difference))
		for _, n := range []struct {
			what  string
			count int
		}{{"no output any more", p.Lost}, {"an output now", p.Gained}, {"none then and now", p.Neither}} {
			if n.count > 0 {
				fmt.Fprintf(w, "  %s\t%d\n", n.what, n.count)
			}
		}
	}
	if p.Defaults > 0 {
		fmt.Fprintf(w, "default output\t%d\n", p.Defaults)
	}
	if p.Failed > 0 {
		fmt.Fprintf(w, "failed\t%d\n", p.Failed)
	}
	for _, f := range p.Failures {
		fmt.Fprintf(w, "  %s\t%d\t%s\n", f.Code, f.Count, f.Example)
	}
	if a := p.Accuracy; a != nil {
		fmt.Fprintf(w, "accuracy\t%s, and %s in the log\tof %d labels\n", percent(a.Now), percent(a.Then), a.Labels)
	}
	fmt.Fprintf(w, "p50\t%s ms, and %s ms in the log\n", figure(p.Latency.Now.P50), figure(p.Latency.Then.P50))
	fmt.Fprintf(w, "p99\t%s ms, and %s ms in the log\n", figure(p.Latency.Now.P99), figure(p.Latency.Then.P99))
	for _, status := range slices.Sorted(maps.Keys(p.Feedback)) {
		fmt.Fprintf(w, "feedback %s\t%d\n", status, p.Feedback[status])
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, e := range p.Examples {
		fmt.Fprintf(c.out, "query %d: %s, and %s in the log\n", e.QueryID, e.Now, e.Then)
	}
	return nil
}

// noteDamage says what of the log could not be read.
func (c *cli) noteDamage(sum inferlog.Summary) {
	if sum.Damaged > 0 {
		fmt.Fprintf(c.err, "left out of the log, for they could not be read: %d parts, the first: %s\n", sum.Damaged, sum.Notes[0])
	}
}

// showProgress tells people once a second how far it is. The caller ends it.
func (r *replay) showProgress() (stop func()) {
	if !isTerminal(r.c.err) {
		return func() {}
	}
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for {
			select {
			case <-done:
				fmt.Fprint(r.c.err, "\r\x1b[K")
				return
			case <-tick.C:
				r.mu.Lock()
				p := &r.report
				line := fmt.Sprintf("%d queries, %d different, %d failed", p.Queries, p.Different, p.Failed)
				r.mu.Unlock()
				fmt.Fprintf(r.c.err, "\r\x1b[K%s", line)
			}
		}
	})
	return func() {
		close(done)
		wg.Wait()
	}
}
