package replay

import (
	"bufio"
	"context"
	"io"

	"github.com/xebec-serving/xebec/gateway/inferlog"
)

// Printed counts what was written.
type Printed struct {
	Log inferlog.Summary
	// Queries were selected. Cases have a label; only PrintCases counts them.
	Queries, Cases int
	// Inexact queries are left out of cases because they have numbers that JSON does not have.
	Inexact int
	// Forgotten queries were evicted from the window: a label that came later than that was not joined.
	Forgotten int
}

// Print writes the selected queries, and the feedback about them, as lines of JSON. The error is an [EmptyError] if no
// query is selected.
func Print(ctx context.Context, w io.Writer, paths []string, f Filter) (Printed, error) {
	p := printer{}
	return p.print(ctx, w, paths, &f, func(dst []byte, e *inferlog.Entry) []byte {
		if f.selectsSome() && !p.isSelected(e) {
			return dst
		}
		return append(e.JSON(dst), '\n')
	})
}

// PrintCases writes a line {"input", "label"} for each selected query that feedback gives the right output of. The
// error is an [EmptyError] if no query is selected.
func PrintCases(ctx context.Context, w io.Writer, paths []string, f Filter) (Printed, error) {
	p := printer{}
	return p.print(ctx, w, paths, &f, p.appendCase)
}

// printer joins queries with the feedback on them.
type printer struct {
	window window
	out    Printed
}

func (p *printer) print(ctx context.Context, w io.Writer, paths []string, f *Filter, appendLine func([]byte, *inferlog.Entry) []byte) (Printed, error) {
	out := bufio.NewWriter(w)
	r := reader{filter: f}
	var line []byte
	var err error
	p.out.Log, err = r.read(paths, func(e *inferlog.Entry) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		line = appendLine(line[:0], e)
		_, err := out.Write(line)
		return err
	})
	if err == nil {
		err = out.Flush()
	}
	p.out.Queries, p.out.Forgotten = r.queries, p.window.forgotten
	if err == nil && r.queries == 0 {
		err = r.empty(p.out.Log)
	}
	return p.out, err
}

// isSelected reports whether an entry is a query, or feedback on a query that was printed.
func (p *printer) isSelected(e *inferlog.Entry) bool {
	if e.Kind == inferlog.KindQuery {
		p.window.put(&query{id: e.Record.ID, schema: e.Schema})
		return true
	}
	return p.window.find(e) != nil
}

// appendCase appends a line if an entry completes a case.
func (p *printer) appendCase(dst []byte, e *inferlog.Entry) []byte {
	if e.Kind == inferlog.KindQuery {
		q := newQuery(e)
		var exact bool
		if q.input, exact = e.AppendInput(nil); !exact {
			p.out.Inexact++
			return dst
		}
		p.window.put(q)
		return dst
	}
	q := p.window.find(e)
	if q == nil {
		return dst
	}
	label := labelOf(&e.Feedback, q.logged)
	if label == nil {
		return dst
	}
	delete(p.window.byID, e.Feedback.ID) // a query is one case at most
	p.out.Cases++
	dst = append(dst, `{"input":`...)
	dst = append(dst, q.input...)
	dst = append(dst, ',')
	known := inferlog.Feedback{Kind: inferlog.FeedbackLabel, Label: label}
	dst = known.AppendVerdict(dst)
	return append(dst, '}', '\n')
}
