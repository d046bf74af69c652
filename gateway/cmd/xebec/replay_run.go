package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/xebec-serving/xebec/gateway/inferlog"
	"github.com/xebec-serving/xebec/gateway/internal/numerals"
	"github.com/xebec-serving/xebec/gateway/internal/terminal"
	"github.com/xebec-serving/xebec/gateway/replay"
)

// tolerableLateness is how late queries may be sent before a note says so.
const tolerableLateness = time.Second

// replay sends the log at paths, prints the report, and fails if the answers are not as they should be.
func (c *cli) replay(ctx context.Context, paths []string, o *replayOptions) error {
	if _, err := baseURL("--server", c.server); err != nil {
		return err
	}
	if t, ok := c.http.Transport.(*http.Transport); ok {
		t.MaxIdleConnsPerHost = o.Concurrency
	}
	run := replay.New(o.Options, func(ctx context.Context, path string, header http.Header, body []byte) (*replay.Response, error) {
		res, text, err := c.ask(ctx, path, body, header)
		return &replay.Response{StatusCode: res.code, Status: res.text, Header: res.header, Body: text}, err
	})
	stopProgress := c.replayProgress(run)
	result, err := run.Run(ctx, paths)
	stopProgress()
	if errors.Is(err, context.Canceled) {
		if result.Queries > 0 { // interrupted: what was counted is worth seeing
			_ = c.showReplay(&result.Report, o)
		}
		return err
	}
	if err != nil {
		return c.replayError(err, result.Log)
	}
	c.noteDamage(result.Log)
	if result.Late > tolerableLateness {
		fmt.Fprintf(c.err, "queries were sent up to %s later than --rate asks for: try a larger --concurrency, unless the gateway is at its limit\n",
			result.Late.Round(time.Millisecond))
	}
	if result.Forgotten > 0 && result.Unjoined > 0 {
		fmt.Fprintf(c.err, "%d feedbacks came too long after their queries, or belong to queries that were not sent\n", result.Unjoined)
	}
	if err := c.showReplay(&result.Report, o); err != nil {
		return err
	}
	return o.judge(&result.Report)
}

// replayError adds to an error of package replay what the user can do about it.
func (c *cli) replayError(err error, log inferlog.Summary) error {
	var ambiguous *replay.AmbiguousError
	var unexpected *replay.UnexpectedAnswerError
	var empty *replay.EmptyError
	switch {
	case errors.As(err, &ambiguous):
		return usagef("%w: choose one with --function", err)
	case errors.As(err, &unexpected):
		return c.notAGateway(unexpected.Status)
	case errors.As(err, &empty):
		c.noteDamage(log)
		if known := emptyLog(log); known != nil {
			return known
		}
		return fmt.Errorf("%w; see --function, --since and --until", err)
	}
	return err
}

// emptyLog says why a log has no queries at all, and returns nil if it has some.
func emptyLog(log inferlog.Summary) error {
	switch {
	case log.Files == 0:
		return errors.New("there are no files of an inference log: expected the directory that was given to `xebec serve --inference-log DIR`")
	case log.Queries == 0:
		return errors.New("the log has no queries: has a function declared log: {sample: ...}, and was it called since?")
	}
	return nil
}

// noteDamage says which parts of the log could not be read.
func (c *cli) noteDamage(log inferlog.Summary) {
	if log.Damaged > 0 {
		were := "were"
		if log.Damaged == 1 {
			were = "was"
		}
		fmt.Fprintf(c.err, "%s of the log could not be read and %s left out; the first: %s\n", numerals.Count(log.Damaged, "part"), were, log.Notes[0])
	}
}

// judge fails if nothing was answered, or if --max-difference is exceeded.
func (o *replayOptions) judge(p *replay.Report) error {
	switch {
	case p.Queries > 0 && p.Failed == p.Queries:
		return fmt.Errorf("none of %s was answered", numerals.Count(p.Queries, "query"))
	case !o.checkDifference:
		return nil
	case p.Compared() == 0:
		return errors.New("no query of the log has an output to compare, so --max-difference cannot be checked")
	case p.Difference > o.maxDifference:
		return fmt.Errorf("%s of the answers differ from the log: --max-difference allows %s", numerals.Percent(p.Difference), numerals.Percent(o.maxDifference))
	}
	return nil
}

// printLog writes the log, or the cases in it, as lines of JSON.
func (c *cli) printLog(ctx context.Context, paths []string, o *replayOptions) error {
	write := replay.Print
	if o.cases {
		write = replay.PrintCases
	}
	printed, err := write(ctx, c.out, paths, o.Filter)
	if err != nil {
		return c.replayError(err, printed.Log)
	}
	c.noteDamage(printed.Log)
	if !o.cases {
		return nil
	}
	if printed.Inexact > 0 {
		fmt.Fprintf(c.err, "%s left out: numbers that JSON does not have\n", numerals.Count(printed.Inexact, "query"))
	}
	if printed.Forgotten > 0 {
		fmt.Fprintf(c.err, "labels that came too long after their queries were not joined: %s forgotten before\n", numerals.Count(printed.Forgotten, "query"))
	}
	if printed.Cases == 0 {
		return fmt.Errorf("none of %s has a label: a case is a query whose right output is known from feedback", numerals.Count(printed.Queries, "query"))
	}
	fmt.Fprintf(c.err, "%d of %d queries have a label\n", printed.Cases, printed.Queries)
	return nil
}

func (c *cli) showReplay(p *replay.Report, o *replayOptions) error {
	if o.format != formatTable {
		return c.printJSON(o.format, p)
	}
	w := tabwriter.NewWriter(c.out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "queries\t%d\n", p.Queries)
	if p.Unsent > 0 {
		fmt.Fprintf(w, "not sent\t%d, with numbers that JSON does not have\n", p.Unsent)
	}
	if o.Compare {
		fmt.Fprintf(w, "same output\t%d\n", p.Same)
		fmt.Fprintf(w, "different\t%d\t%s of those with an output in the log\n", p.Different+p.Lost, numerals.Percent(p.Difference))
		for _, n := range []struct {
			what  string
			count int
		}{{"no output any more", p.Lost}, {"an output only now", p.Gained}, {"no output, then or now", p.Neither}} {
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
		fmt.Fprintf(w, "accuracy\t%s now, %s in the log\tof %s\n", numerals.Percent(a.Now), numerals.Percent(a.Then), numerals.Count(a.Labels, "label"))
	}
	fmt.Fprintf(w, "p50\t%s ms now, %s ms in the log\n", numerals.Short(p.Latency.Now.P50), numerals.Short(p.Latency.Then.P50))
	fmt.Fprintf(w, "p99\t%s ms now, %s ms in the log\n", numerals.Short(p.Latency.Now.P99), numerals.Short(p.Latency.Then.P99))
	for _, status := range slices.Sorted(maps.Keys(p.Feedback)) {
		fmt.Fprintf(w, "feedback %s\t%d\n", status, p.Feedback[status])
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, e := range p.Examples {
		fmt.Fprintf(c.out, "query %d: %s now, %s in the log\n", e.QueryID, e.Now, e.Then)
	}
	return nil
}

// replayProgress shows the counts once a second if stderr is a terminal. The caller stops it.
func (c *cli) replayProgress(run *replay.Replay) (stop func()) {
	if !terminal.Is(c.err) {
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
				fmt.Fprint(c.err, "\r\x1b[K")
				return
			case <-tick.C:
				queries, different, failed := run.Progress()
				fmt.Fprintf(c.err, "\r\x1b[K%s, %d different, %d failed", numerals.Count(queries, "query"), different, failed)
			}
		}
	})
	return func() {
		close(done)
		wg.Wait()
	}
}
