package state

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestNotes(t *testing.T) {
	eachPlace(t, func(t *testing.T, p place) {
		s := p.open()
		put := func(series string, keep int, notes ...Note) {
			t.Helper()
			if err := s.PutNotes(short(t), series, notes, keep); err != nil {
				t.Fatal(err)
			}
		}
		want := func(series string, want ...Note) {
			t.Helper()
			got, err := s.ReadNotes(short(t), series)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got, cmp.Transformer("empty", func(n []Note) []Note { return append([]Note{}, n...) })); diff != "" {
				t.Fatalf("series %q (-want +got):\n%s", series, diff)
			}
		}
		want("a")
		put("a", 10, Note{"2", []byte("two")}, Note{"1", []byte("one")})
		put("a:b*", 10, Note{"2", []byte("\x00other")})
		want("a", Note{"1", []byte("one")}, Note{"2", []byte("two")})
		put("a", 10, Note{"1", []byte("uno")}, Note{"2", nil}, Note{"3", []byte("three")})
		want("a", Note{"1", []byte("uno")}, Note{"3", []byte("three")})
		put("a", 2, Note{"4", []byte("four")}, Note{"5", []byte("five")})
		want("a", Note{"4", []byte("four")}, Note{"5", []byte("five")})
		if !p.shared {
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
		}
		s = p.open()
		want("a", Note{"4", []byte("four")}, Note{"5", []byte("five")})
		if err := s.DropNotes(short(t), "a"); err != nil {
			t.Fatal(err)
		}
		want("a")
		want("a:b*", Note{"2", []byte("\x00other")})
		put(SeriesOf("f"), 10, Note{"1", []byte("one")})
		put(SeriesOf("g"), 10, Note{"1", []byte("one")})
		if err := s.Forget(short(t), "f"); err != nil {
			t.Fatal(err)
		}
		want(SeriesOf("f"))
		want(SeriesOf("g"), Note{"1", []byte("one")})
		if c, err := s.Changes(short(t), 0); err != nil || c.Revision != 0 || len(c.Objects) != 0 {
			t.Fatalf("notes are not objects: %+v, %v", c, err)
		}
	})
}

func TestNotesAreBounded(t *testing.T) {
	eachPlace(t, func(t *testing.T, p place) {
		s := p.open()
		for what, call := range map[string]func() error{
			"no series":   func() error { return s.PutNotes(short(t), "", nil, 1) },
			"no name":     func() error { return s.PutNotes(short(t), "a", []Note{{"", []byte("x")}}, 1) },
			"long name":   func() error { return s.PutNotes(short(t), "a", []Note{{strings.Repeat("x", 513), []byte("x")}}, 1) },
			"large":       func() error { return s.PutNotes(short(t), "a", []Note{{"x", make([]byte, MaxNoteBytes+1)}}, 1) },
			"keep none":   func() error { return s.PutNotes(short(t), "a", nil, 0) },
			"keep all":    func() error { return s.PutNotes(short(t), "a", nil, MaxNotes+1) },
			"read none":   func() error { _, err := s.ReadNotes(short(t), ""); return err },
			"drop none":   func() error { return s.DropNotes(short(t), "") },
			"cancelled":   func() error { return s.PutNotes(cancelled(), "a", []Note{{"x", []byte("x")}}, 1) },
			"read, ended": func() error { _, err := s.ReadNotes(cancelled(), "a"); return err },
		} {
			if call() == nil {
				t.Errorf("%s: expected an error", what)
			}
		}
	})
}

func cancelled() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// More contexts than a page, contexts of any bytes, and neighbours whose names begin alike.
func TestEachContext(t *testing.T) {
	eachPlace(t, func(t *testing.T, p place) {
		s := p.open()
		var want []string
		var updates []Update
		add := func(k Key) { updates = append(updates, Update{k, []Field{{"m/0", 1, 0}}, 1}) }
		for i := range contextsPage + 3 {
			want = append(want, fmt.Sprintf("user-%d", i))
		}
		want = append(want, "\x00", "a:b", "ä", "*", "\xff\xfe")
		for _, c := range want {
			add(Key{"f", "exp3", c})
		}
		for _, other := range []Key{{"f", "exp3", ""}, {"f", "exp", "3:x"}, {"f", "exp33", "y"}, {"ff", "exp3", "z"}, {"f:exp3", "exp3", "w"}} {
			add(other)
		}
		if _, err := s.Merge(short(t), updates); err != nil {
			t.Fatal(err)
		}
		var got []string
		err := s.EachContext(short(t), "f", "exp3", func(contexts []string) error {
			if _, err := s.Merge(short(t), []Update{{Key{"f", "exp3", contexts[0]}, []Field{{"m/0", 1, 1}}, 2}}); err != nil {
				return err // the caller may write meanwhile
			}
			got = append(got, contexts...)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		slices.Sort(want)
		slices.Sort(got)
		if diff := cmp.Diff(want, slices.Compact(got)); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		ended := fmt.Errorf("enough")
		if err := s.EachContext(short(t), "f", "exp3", func([]string) error { return ended }); err != ended {
			t.Errorf("the caller's error: got %v", err)
		}
		if err := s.EachContext(short(t), "absent", "exp3", func([]string) error { return ended }); err != nil {
			t.Errorf("a function without states: %v", err)
		}
	})
}
