package containers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"unicode/utf8"

	"pgregory.net/rapid"
)

func texts(lines []Line) []string {
	var all []string
	for _, l := range lines {
		all = append(all, l.Text)
	}
	return all
}

func TestLineWriter(t *testing.T) {
	long := strings.Repeat("x", maxLineBytes)
	for _, tc := range []struct {
		name   string
		writes []string
		want   []string
	}{
		{"lines", []string{"one\ntwo\n"}, []string{"one", "two"}},
		{"in pieces", []string{"o", "ne\nt", "wo", "\n"}, []string{"one", "two"}},
		{"without an end", []string{"one\ntwo"}, []string{"one", "two"}},
		{"empty lines", []string{"\n\n"}, []string{"", ""}},
		{"nothing", []string{""}, nil},
		{"Windows ends", []string{"one\r", "\ntwo\r\n"}, []string{"one", "two"}},
		{"a progress bar", []string{" 10%\r 20%", "\r100%\ndone\n"}, []string{"100%", "done"}},
		{"a progress bar that ends in a return", []string{" 10%\r 20%\r"}, []string{" 20%"}},
		{"as long as may be", []string{long, "\nnext\n"}, []string{long, "next"}},
		{"too long", []string{long + "y", strings.Repeat("z", 100000), "\nnext\n"}, []string{long, "next"}},
		{"too long, then restarted", []string{long + "yyy\rshort\n"}, []string{"short"}},
		{"not UTF-8", []string{"a\xffb\n"}, []string{"a\uFFFDb"}},
		{"a cut inside a character", []string{long[1:] + "é\n"}, []string{long[1:]}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			logs := NewLogs()
			w := logs.Writer(7, Stderr)
			for _, p := range tc.writes {
				if n, err := w.Write([]byte(p)); n != len(p) || err != nil {
					t.Fatalf("Write of %d bytes: %d, %v", len(p), n, err)
				}
			}
			w.Close()
			lines := logs.Tail(100)
			if got := texts(lines); !slices.Equal(got, tc.want) {
				t.Errorf("lines %.80q, expected %.80q", got, tc.want)
			}
			for i, l := range lines {
				if l.Seq != uint64(i+1) || l.Replica != 7 || l.Stream != Stderr || l.At.IsZero() {
					t.Errorf("line %+v: wrong stamp", l)
				}
				if wantCut := strings.HasPrefix(tc.name, "too long") && len(l.Text) == maxLineBytes; l.Cut != wantCut && tc.name != "a cut inside a character" {
					t.Errorf("line %d: cut %v, expected %v", i, l.Cut, wantCut)
				}
			}
		})
	}
}

func FuzzLineWriter(f *testing.F) {
	f.Add([]byte("one\ntwo\r\nthree\rfour"), uint8(3))
	f.Add([]byte("\xff\xfe\n\r\r\n"), uint8(1))
	f.Add([]byte(strings.Repeat("\xff", maxLineBytes+3)), uint8(200))
	f.Fuzz(func(t *testing.T, p []byte, piece uint8) {
		logs, whole := NewLogs(), NewLogs()
		w := logs.Writer(1, Stdout)
		for chunk := range slices.Chunk(p, int(piece)+1) {
			w.Write(chunk)
		}
		w.Close()
		v := whole.Writer(1, Stdout)
		v.Write(p)
		v.Close()
		lines := logs.Tail(maxLogLines)
		if !slices.Equal(texts(lines), texts(whole.Tail(maxLogLines))) {
			t.Error("the lines depend on how the output was cut into writes")
		}
		for _, l := range lines {
			if len(l.Text) > maxLineBytes || !utf8.ValidString(l.Text) || strings.ContainsAny(l.Text, "\n\r") {
				t.Errorf("line %q", l.Text)
			}
		}
	})
}

// The ring always holds the last lines, within both bounds.
func TestLogsAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		logs := NewLogs()
		var model []string // everything that was added
		f := logs.Follow(-1)
		var followed uint64
		for range rapid.IntRange(1, 8).Draw(t, "rounds") {
			for range rapid.IntRange(0, 700).Draw(t, "lines") {
				text := strings.Repeat("x", rapid.SampledFrom([]int{0, 1, 50, 3000, maxLineBytes}).Draw(t, "length"))
				logs.Add(1, Stdout, text)
				model = append(model, text)
			}
			kept := logs.Tail(len(model) + 1)
			if want := model[len(model)-len(kept):]; !slices.Equal(texts(kept), want) {
				t.Fatal("the log does not hold the last lines")
			}
			size := 0
			for _, l := range kept {
				size += len(l.Text)
			}
			if len(kept) > maxLogLines || size > maxLogBytes || size != logs.bytes {
				t.Fatalf("%d lines of %d bytes, counted as %d", len(kept), size, logs.bytes)
			}
			if len(kept) < min(len(model), maxLogBytes/maxLineBytes-1) {
				t.Fatalf("only %d of %d lines are kept", len(kept), len(model))
			}
			if rapid.Bool().Draw(t, "follow") && followed < uint64(len(model)) {
				lines, lost, err := f.Next(context.Background())
				if err != nil || lines[0].Seq != followed+lost+1 || lines[len(lines)-1].Seq != uint64(len(model)) {
					t.Fatalf("followed lines %d to %d, lost %d, %v; expected %d to %d", lines[0].Seq, lines[len(lines)-1].Seq, lost, err, followed+1, len(model))
				}
				followed = uint64(len(model))
			}
		}
	})
}

func TestFollow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logs := NewLogs()
		for i := range 5 {
			logs.Add(1, Stdout, fmt.Sprint(i))
		}
		f := logs.Follow(2)
		next := func() ([]string, uint64, error) {
			lines, lost, err := f.Next(t.Context())
			return texts(lines), lost, err
		}
		if got, lost, err := next(); !slices.Equal(got, []string{"3", "4"}) || lost != 0 || err != nil {
			t.Errorf("first: %q, %d, %v", got, lost, err)
		}

		type result struct {
			lines []string
			lost  uint64
			err   error
		}
		results := make(chan result)
		wait := func() {
			go func() {
				lines, lost, err := next()
				results <- result{lines, lost, err}
			}()
			synctest.Wait() // it blocks in Next
		}
		wait()
		logs.Add(2, Stderr, "five")
		if r := <-results; !slices.Equal(r.lines, []string{"five"}) || r.lost != 0 || r.err != nil {
			t.Errorf("second: %+v", r)
		}

		for i := range maxLogLines + 7 {
			logs.Add(1, Stdout, fmt.Sprint(i))
		}
		if got, lost, err := next(); len(got) != maxLogLines || got[0] != "7" || lost != 7 || err != nil {
			t.Errorf("a slow follower: %d lines from %q, %d lost, %v; expected %d from 7, 7 lost", len(got), got[0], lost, err, maxLogLines)
		}

		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, _, err := f.Next(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("cancelled: %v", err)
		}

		wait()
		logs.Close()
		if r := <-results; r.err != io.EOF {
			t.Errorf("closed: %+v, expected EOF", r)
		}
		logs.Add(1, Stdout, "late")
		if _, _, err := next(); err != io.EOF {
			t.Errorf("after Close: %v, expected EOF", err)
		}
	})
}

func TestTailOf(t *testing.T) {
	logs := NewLogs()
	for i := range 10 {
		logs.Add(uint64(1+i%2), Stdout, fmt.Sprint(i))
	}
	if got := texts(logs.TailOf(2, 3)); !slices.Equal(got, []string{"5", "7", "9"}) {
		t.Errorf("lines %q", got)
	}
	if got := logs.Tail(0); got != nil {
		t.Errorf("no lines wanted, got %v", got)
	}
}
