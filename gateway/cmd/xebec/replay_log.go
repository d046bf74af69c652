package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/xebec-serving/xebec/gateway/inferlog"
)

// maxSeenFunctions bounds the names that are remembered for a message.
const maxSeenFunctions = 20

// logReader reads what the options ask for of a log.
type logReader struct {
	o *replayOptions
	// seen are the functions that the log has queries of, first and last when they came: to say why nothing was found.
	seen        map[string]bool
	first, last int64
	queries     int // that were handed on
}

// read hands on the queries that are asked for, and all feedback of the functions.
func (l *logReader) read(paths []string, each func(*inferlog.Entry) error) (inferlog.Summary, error) {
	return inferlog.Read(paths, func(e *inferlog.Entry) error {
		if e.Kind == inferlog.KindQuery {
			at := e.Record.AtMicros
			if len(l.seen) == 0 || at < l.first {
				l.first = at
			}
			l.last = max(l.last, at)
			if len(l.seen) < maxSeenFunctions {
				l.seen[e.Schema.Function] = true
			}
			if at < l.o.since || at >= l.o.until {
				return nil
			}
		}
		if l.o.function != "" && e.Schema.Function != l.o.function {
			return nil
		}
		if e.Kind == inferlog.KindQuery {
			if l.o.limit > 0 && l.queries == l.o.limit {
				return nil
			}
			l.queries++
		}
		return each(e)
	})
}

// nothing says why no query was found.
func (l *logReader) nothing(sum inferlog.Summary) error {
	switch {
	case sum.Files == 0:
		return errors.New("there are no files of an inference log: expected the directory that `xebec serve --inference-log DIR` was given")
	case sum.Queries == 0:
		return errors.New("the log has no queries: has a function declared log: {sample: ...}, and was it called since?")
	}
	at := func(micros int64) string { return time.UnixMicro(micros).UTC().Format(time.RFC3339) }
	return fmt.Errorf("no query of the log is asked for: it has %d, of function %s, from %s to %s; see --function, --since and --until", sum.Queries,
		strings.Join(slices.Sorted(maps.Keys(l.seen)), ", "), at(l.first), at(l.last))
}

// printLog writes the log, or the cases in it, as lines of JSON.
func (c *cli) printLog(ctx context.Context, paths []string, o *replayOptions) error {
	out := bufio.NewWriter(c.out)
	l := logReader{o: o, seen: map[string]bool{}}
	p := printer{w: &window{}}
	var line []byte
	sum, err := l.read(paths, func(e *inferlog.Entry) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		switch {
		case o.cases:
			line = p.appendCase(line[:0], e)
		case !o.selects() || p.selected(e):
			line = append(e.JSON(line[:0]), '\n')
		default:
			line = line[:0]
		}
		_, err := out.Write(line)
		return err
	})
	if err == nil {
		err = out.Flush()
	}
	if err != nil {
		return err
	}
	c.noteDamage(sum)
	if l.queries == 0 {
		return l.nothing(sum)
	}
	if !o.cases {
		return nil
	}
	if p.inexact > 0 {
		fmt.Fprintf(c.err, "%d queries were left out: they have numbers that JSON does not have\n", p.inexact)
	}
	if p.w.forgotten > 0 {
		fmt.Fprintf(c.err, "labels that came more than %d queries, or %d MiB of them, after their own were not joined\n", maxRemembered, maxRememberedBytes>>20)
	}
	if p.cases == 0 {
		return fmt.Errorf("none of %d queries has a label: a case is a query that feedback said the right output of", l.queries)
	}
	fmt.Fprintf(c.err, "%d of %d queries have a label\n", p.cases, l.queries)
	return nil
}

// selects reports whether the options leave out queries of a function.
func (o *replayOptions) selects() bool { return o.limit > 0 || o.sinceText != "" || o.untilTxt != "" }

// printer joins queries with the feedback on them.
type printer struct {
	w       *window
	cases   int
	inexact int
}

// selected reports whether an entry is a query, or the feedback on one that was.
func (p *printer) selected(e *inferlog.Entry) bool {
	if e.Kind == inferlog.KindQuery {
		p.w.put(&remembered{id: e.Record.ID, schema: e.Schema})
		return true
	}
	q := p.w.byID[e.Feedback.ID]
	return q != nil && q.schema.Function == e.Schema.Function
}

// appendCase appends a line when an entry completes a case, else nothing.
func (p *printer) appendCase(dst []byte, e *inferlog.Entry) []byte {
	if e.Kind == inferlog.KindQuery {
		q := &remembered{id: e.Record.ID, schema: e.Schema}
		var exact bool
		if q.input, exact = e.AppendInput(nil); !exact {
			p.inexact++
			return dst
		}
		if len(e.Record.Outputs) > 0 && !e.Record.Default {
			q.then = e.AppendOutput(nil)
		}
		p.w.put(q)
		return dst
	}
	f := &e.Feedback
	q := p.w.byID[f.ID]
	if q == nil || q.schema.Function != e.Schema.Function {
		return dst
	}
	label := labelOf(f, q.then)
	if label == nil {
		return dst
	}
	delete(p.w.byID, f.ID) // one case a query
	p.cases++
	dst = append(dst, `{"input":`...)
	dst = append(dst, q.input...)
	dst = append(dst, ',')
	told := inferlog.Feedback{Kind: inferlog.FeedbackLabel, Label: label}
	dst = told.AppendVerdict(dst)
	return append(dst, '}', '\n')
}
