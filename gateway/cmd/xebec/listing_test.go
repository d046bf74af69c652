package main

import (
	"io"
	"testing"
)

// get -w prints a row again when it changes, in the columns of before; ages and counts alone are no change.
func TestWatchedRows(t *testing.T) {
	w := &watcher{}
	for _, step := range []struct{ rows, want string }{
		{"m\t1\tloading\t1s\nmodel\t10\tavailable\t9s\n", "NAME    VERSION   PHASE       AGE\nm       1         loading     1s\nmodel   10        available   9s\n"},
		{"m\t1\tloading\t2s\nmodel\t10\tavailable\t10s\n", ""},
		{"m\t1\tavailable\t3s\nmodel\t10\tavailable\t11s\n", "m       1         available   3s\n"},
		{"m\t1\tavailable\t4s\nm\t2\tloading\t0s\n", "m       2         loading     0s\nmodel   10        gone\n"},
		{"", "m       1         gone\nm       2         gone\n"},
		{"m\t1\tdeclared\t0s\n", "m       1         declared    0s\n"},
	} {
		l := &listing{head: "NAME\tVERSION\tPHASE\tAGE", write: func(out io.Writer) { _, _ = io.WriteString(out, step.rows) }}
		if got := w.changed(l); got != step.want {
			t.Errorf("of\n%s it prints\n%sexpected\n%s", step.rows, got, step.want)
		}
	}
}
