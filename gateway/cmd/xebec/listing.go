package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
	"unicode/utf8"

	"github.com/xebec-serving/xebec/api/manifest"
)

// listing is what get has found.
type listing struct {
	what string // plural, for people
	head string // the names of the columns, separated by tabs
	rows int
	// write writes a line for each row, its columns separated by tabs.
	write func(io.Writer)
	// set has the declarations, nil of what is not declared; status returns the status of object i of it, for JSON.
	set    *manifest.Set
	status func(i int) any
	// plain is what is printed where nothing is declared.
	plain any
}

// show prints a listing in the format of -o.
func (c *cli) show(format string, l *listing) error {
	switch {
	case format == formatTable:
		return c.table(l.head, l.rows, l.what, l.write)
	case l.set == nil:
		return c.printJSON(format, l.plain)
	case format == formatYAML:
		if l.set.Len() == 0 {
			return nil // a stream of no documents
		}
		text, err := l.set.YAML()
		if err != nil {
			return err
		}
		_, err = c.out.Write(text)
		return err
	}
	return c.showJSON(l)
}

// showJSON prints declarations with the member status, which has what the gateway says beside the declaration.
func (c *cli) showJSON(l *listing) error {
	text, err := l.set.JSON()
	if err != nil {
		return err
	}
	var docs []json.RawMessage
	if err := json.Unmarshal(text, &docs); err != nil {
		return err
	}
	for i, doc := range docs {
		status, err := statusOf(l.status(i))
		if err != nil {
			return err
		}
		doc = bytes.TrimSuffix(bytes.TrimSpace(doc), []byte("}"))
		docs[i] = slices.Concat(doc, []byte(`,"status":`), status, []byte("}"))
	}
	return c.printJSON(formatJSON, docs)
}

// statusOf is the JSON of a status without the declaration that it repeats.
func statusOf(v any) ([]byte, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(text, &members); err != nil {
		return nil, err
	}
	delete(members, "spec")
	return json.Marshal(members)
}

// table writes aligned columns. If there are no rows it says so on stderr, so that a script reads nothing.
func (c *cli) table(head string, rows int, what string, write func(io.Writer)) error {
	if rows == 0 {
		fmt.Fprintf(c.err, "no %s\n", what)
		return nil
	}
	w := tabwriter.NewWriter(c.out, 0, 0, columnGap, ' ', 0)
	fmt.Fprintln(w, head)
	write(w)
	return w.Flush()
}

const (
	// watchPolls is how many times less often get -w asks than commands that wait: once a second.
	watchPolls = 5
	// columnGap separates the columns of a table.
	columnGap = 3
)

// These columns name what a row is about, and those change all the time: they alone are no reason to print a row again.
var (
	namingColumns   = []string{"NAME", "MODEL", "VERSION", "REPLICA"}
	volatileColumns = []string{"QUEUE", "OK", "FAILED", "DEFAULTS", "AGE", "SINCE", "CAP", "MEAN", "P99", "QUERIES"}
)

// watch prints a table, and from then on the rows that change, until ctx ends.
func (c *cli) watch(ctx context.Context, list func(context.Context) (*listing, error)) error {
	w := &watcher{}
	tick := time.NewTicker(watchPolls * c.pollEvery)
	defer tick.Stop()
	for {
		l, err := list(ctx)
		if ctx.Err() != nil && errors.Is(err, context.Canceled) {
			return nil
		}
		if err != nil {
			return err
		}
		if _, err := io.WriteString(c.out, w.changed(l)); err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// watcher knows which rows have been printed.
type watcher struct {
	head   []string
	widths []int
	shown  map[string]string // what names a row → its columns that do not change all the time
	order  []string
}

// changed returns the lines for what differs from the listing before.
func (w *watcher) changed(l *listing) string {
	var text bytes.Buffer
	l.write(&text)
	var lines [][]string
	if w.shown == nil {
		w.shown, w.head = map[string]string{}, strings.Split(l.head, "\t")
		w.widths = make([]int, len(w.head))
		lines = append(lines, w.head)
	}
	seen := map[string]bool{}
	for line := range strings.Lines(text.String()) {
		cells := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		key, lasting := w.split(cells)
		seen[key] = true
		if before, known := w.shown[key]; !known || before != lasting {
			if !known {
				w.order = append(w.order, key)
			}
			w.shown[key] = lasting
			lines = append(lines, cells)
		}
	}
	w.order = slices.DeleteFunc(w.order, func(key string) bool {
		if !seen[key] {
			delete(w.shown, key)
			lines = append(lines, append(strings.Split(key, "\t"), "gone"))
		}
		return !seen[key]
	})
	return w.align(lines)
}

// split returns what names a row, and its columns that do not change all the time.
func (w *watcher) split(cells []string) (key, lasting string) {
	var naming, rest []string
	for i, cell := range cells {
		switch {
		case slices.Contains(namingColumns, w.head[i]):
			naming = append(naming, cell)
		case !slices.Contains(volatileColumns, w.head[i]):
			rest = append(rest, cell)
		}
	}
	return strings.Join(naming, "\t"), strings.Join(rest, "\t")
}

// align writes lines in columns that are at least as wide as those before.
func (w *watcher) align(lines [][]string) string {
	for _, cells := range lines {
		for i, cell := range cells {
			w.widths[i] = max(w.widths[i], utf8.RuneCountInString(cell))
		}
	}
	var text strings.Builder
	for _, cells := range lines {
		for i, cell := range cells {
			text.WriteString(cell)
			if i < len(cells)-1 {
				text.WriteString(strings.Repeat(" ", w.widths[i]-utf8.RuneCountInString(cell)+columnGap))
			}
		}
		text.WriteByte('\n')
	}
	return text.String()
}
