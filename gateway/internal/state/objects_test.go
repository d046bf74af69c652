package state

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// The guarantees of both kinds of store for objects. Each case gets an empty place.

func randomID() (id [16]byte) {
	rand.Read(id[:])
	return id
}

func object(kind, name, data string) Object {
	return Object{ObjectKey: ObjectKey{kind, name}, Data: []byte(data)}
}

func objectKey(name string) ObjectKey { return ObjectKey{"Model", name} }

func event(subject, data string) Event {
	return Event{At: time.Unix(1700000000, 123456789), Subject: subject, Data: []byte(data)}
}

func commit(t testing.TB, s Objects, c Commit) uint64 {
	t.Helper()
	if c.ID == [16]byte{} {
		c.ID = randomID()
	}
	revision, err := s.Commit(short(t), &c)
	if err != nil {
		t.Fatal(err)
	}
	return revision
}

func changes(t testing.TB, s Objects, since uint64) Changes {
	t.Helper()
	c, err := s.Changes(short(t), since)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func history(t testing.TB, s Objects, subject string, limit int) []Event {
	t.Helper()
	events, err := s.History(short(t), subject, limit)
	if err != nil {
		t.Fatal(err)
	}
	return events
}

// show formats changes as a line: the revision, "all" if they are complete, and each object with its revision.
func show(c Changes) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d", c.Revision)
	if c.Complete {
		b.WriteString(" all")
	}
	for _, o := range c.Objects {
		data := "deleted"
		if o.Data != nil {
			data = string(o.Data)
		}
		fmt.Fprintf(&b, " %s/%s@%d=%s", o.Kind, o.Name, o.Revision, data)
	}
	return b.String()
}

func wantChanges(t testing.TB, s Objects, since uint64, want string) {
	t.Helper()
	if got := show(changes(t, s, since)); got != want {
		t.Errorf("changes since %d:\ngot  %.2000s\nwant %.2000s", since, got, want)
	}
}

func subjects(events []Event) string {
	var texts []string
	for _, e := range events {
		texts = append(texts, fmt.Sprintf("%d:%s:%s", e.Revision, e.Subject, e.Data))
	}
	return strings.Join(texts, " ")
}

// limitsOf returns the limits of a store, which a test may lower before it uses the store.
func limitsOf(b Backend) *objectLimits {
	switch s := b.(type) {
	case *fileStore:
		return &s.limits
	case *redisStore:
		return &s.limits
	}
	panic("an unknown store")
}

func TestChangesFollowCommits(t *testing.T) {
	eachPlace(t, func(t *testing.T, p place) {
		s := p.open()
		wantChanges(t, s, 0, "0 all")
		wantChanges(t, s, 3, "0 all")
		if r := commit(t, s, Commit{Put: []Object{object("Traffic", "a", "t"), object("Model", "b@1", "x"), object("Model", "a@1", "y")}}); r != 1 {
			t.Errorf("the first commit makes revision %d, want 1", r)
		}
		wantChanges(t, s, 0, "1 all Model/a@1@1=y Model/b@1@1=x Traffic/a@1=t")
		wantChanges(t, s, 1, "1")
		commit(t, s, Commit{Base: 1, Put: []Object{object("Model", "a@1", "z")}, Delete: []ObjectKey{{"Model", "b@1"}, {"Model", "never"}}})
		wantChanges(t, s, 0, "2 all Model/a@1@2=z Traffic/a@1=t")
		wantChanges(t, s, 1, "2 Model/a@1@2=z Model/b@1@2=deleted")
		commit(t, s, Commit{Base: 2, Put: []Object{object("Model", "b@1", "again")}})
		wantChanges(t, s, 1, "3 Model/a@1@2=z Model/b@1@3=again")
		wantChanges(t, s, 2, "3 Model/b@1@3=again")
		commit(t, s, Commit{Base: 3}) // changes only the revision
		wantChanges(t, s, 3, "4")
		wantChanges(t, s, 4, "4")
		wantChanges(t, s, 5, "4 all Model/a@1@2=z Model/b@1@3=again Traffic/a@1=t")
		wantChanges(t, s, math.MaxUint64, "4 all Model/a@1@2=z Model/b@1@3=again Traffic/a@1=t")
		s.Close()
		s = p.open()
		wantChanges(t, s, 0, "4 all Model/a@1@2=z Model/b@1@3=again Traffic/a@1=t")
		wantChanges(t, s, 4, "4")
		if r := commit(t, s, Commit{Base: 4, Delete: []ObjectKey{{"Model", "a@1"}, {"Model", "b@1"}, {"Traffic", "a"}}}); r != 5 {
			t.Errorf("a commit after reopening makes revision %d, want 5", r)
		}
		wantChanges(t, s, 4, "5 Model/a@1@5=deleted Model/b@1@5=deleted Traffic/a@5=deleted")
		wantChanges(t, s, 0, "5 all")
	})
}

func TestStaleCommitChangesNothing(t *testing.T) {
	eachPlace(t, func(t *testing.T, p place) {
		s := p.open()
		commit(t, s, Commit{Put: []Object{object("Model", "a", "1")}, Events: []Event{event("a", "1")}})
		commit(t, s, Commit{Base: 1, Put: []Object{object("Model", "b", "1")}})
		for _, base := range []uint64{0, 1, 3, math.MaxUint64} {
			_, err := s.Commit(short(t), &Commit{ID: randomID(), Base: base, Put: []Object{object("Model", "a", "2")},
				Delete: []ObjectKey{objectKey("b")}, Events: []Event{event("a", "2")}})
			var stale *StaleError
			if !errors.As(err, &stale) || *stale != (StaleError{base, 2}) {
				t.Errorf("a commit for revision %d: %v, want a StaleError of it and 2", base, err)
			}
			wantError(t, err, s.Name(), "try again")
		}
		wantChanges(t, s, 0, "2 all Model/a@1=1 Model/b@2=1")
		if got := subjects(history(t, s, "", 10)); got != "1:a:1" {
			t.Errorf("the history is %s", got)
		}
	})
}

func TestRetriedCommitIsAppliedOnce(t *testing.T) {
	eachPlace(t, func(t *testing.T, p place) {
		s := p.open()
		first := Commit{ID: randomID(), Put: []Object{object("Model", "a", "1")}, Events: []Event{event("a", "1")}}
		const promised = 1024
		for i := range uint64(promised + 1) {
			if r, err := s.Commit(short(t), &first); r != 1 || err != nil {
				t.Fatalf("a retry of the first commit after %d others makes revision %d, %v: want 1", i, r, err)
			}
			if i < promised {
				commit(t, s, Commit{Base: i + 1, Put: []Object{object("Model", "b", fmt.Sprint(i))}})
			}
		}
		wantChanges(t, s, 0, "1025 all Model/a@1=1 Model/b@1025=1023")
		if got := subjects(history(t, s, "", 10)); got != "1:a:1" {
			t.Errorf("the history is %s", got)
		}
		s.Close()
		s = p.open()
		if r := commit(t, s, first); r != 1 {
			t.Errorf("a retry of the first commit after reopening makes revision %d, want 1", r)
		}
		// The number of remembered IDs is bounded: a commit with a forgotten ID is stale.
		limitsOf(s).commits = 3
		for i := range uint64(4) {
			commit(t, s, Commit{Base: 1025 + i})
		}
		if _, err := s.Commit(short(t), &first); !errors.As(err, new(*StaleError)) {
			t.Errorf("a forgotten commit: %v, want a StaleError", err)
		}
	})
}

func TestObjectsOfAnyNameAndData(t *testing.T) {
	eachPlace(t, func(t *testing.T, p place) {
		s := p.open()
		names := []string{"a", "a/b", "a:b", "a b", "\x00", "\r\n$3\r\n", "ünï", "%41", "*", strings.Repeat("\xff", maxObjectNameBytes), "A", "a\x00"}
		want := Changes{Revision: 1, Complete: true}
		for _, kind := range []string{"M", "Model", "Model2", strings.Repeat("K", maxKindBytes)} {
			for i, name := range names {
				want.Objects = append(want.Objects, Object{ObjectKey{kind, name}, 1, []byte{byte(i), 0, 0xff, '\n'}})
			}
		}
		commit(t, s, Commit{Put: want.Objects})
		sortObjects(want.Objects)
		if diff := cmp.Diff(want, changes(t, s, 0)); diff != "" {
			t.Error(diff)
		}
	})
}

func TestRefusedCommits(t *testing.T) {
	long := strings.Repeat("x", MaxObjectBytes+1)
	var many []Object
	for i := range MaxCommitBytes/MaxObjectBytes + 1 {
		many = append(many, object("Model", fmt.Sprint(i), long[1:]))
	}
	cases := []struct {
		name    string
		c       Commit
		want    string
		tooMany bool
	}{
		{"no kind", Commit{Put: []Object{object("", "a", "1")}}, "letters and digits", false},
		{"a kind with a slash", Commit{Put: []Object{object("Mod/el", "a", "1")}}, "letters and digits", false},
		{"a long kind", Commit{Put: []Object{object(strings.Repeat("K", maxKindBytes+1), "a", "1")}}, "letters and digits", false},
		{"no name", Commit{Delete: []ObjectKey{{"Model", ""}}}, "has no name", false},
		{"a long name", Commit{Put: []Object{object("Model", long[:maxObjectNameBytes+1], "1")}}, "513 bytes", false},
		{"no data", Commit{Put: []Object{object("Model", "a", "")}}, "has no data", false},
		{"twice", Commit{Put: []Object{object("Model", "a", "1")}, Delete: []ObjectKey{objectKey("a")}}, "appears twice", false},
		{"a large object", Commit{Put: []Object{object("Model", "a", long)}}, "1048577 bytes", true},
		{"a large commit", Commit{Put: many}, "split it", true},
		{"many objects", Commit{Put: make([]Object, MaxObjects+1)}, "131073 objects", true},
		{"many events", Commit{Events: make([]Event, MaxEvents+1)}, "100001 events", true},
		{"a large event", Commit{Events: []Event{event("a", long)}}, "1048577 bytes", true},
		{"an event without a subject", Commit{Events: []Event{event("", "1")}}, "subject has 0 bytes", false},
		{"an event of a long name", Commit{Events: []Event{event(long[:maxObjectNameBytes+1], "1")}}, "subject has 513 bytes", false},
		{"an event without a time", Commit{Events: []Event{{Subject: "a"}}}, "expected a time", false},
	}
	eachPlace(t, func(t *testing.T, p place) {
		s := p.open()
		for _, c := range cases {
			c.c.ID = randomID()
			_, err := s.Commit(short(t), &c.c)
			wantError(t, err, c.want, s.Name(), "nothing was changed")
			if errors.Is(err, ErrTooMany) != c.tooMany {
				t.Errorf("%s: %v: wraps ErrTooMany: want %v", c.name, err, c.tooMany)
			}
		}
		_, err := s.Commit(short(t), &Commit{Put: []Object{object("Model", "a", "1")}})
		wantError(t, err, "no ID")
		wantChanges(t, s, 0, "0 all")
	})
}

// The largest possible commit can be written and read.
func TestLargestCommit(t *testing.T) {
	eachPlace(t, func(t *testing.T, p place) {
		s := p.open()
		c := Commit{}
		for i := range 63 {
			data := make([]byte, MaxObjectBytes)
			rand.Read(data)
			c.Put = append(c.Put, Object{ObjectKey{"Model", fmt.Sprintf("%02d", i)}, 1, data})
		}
		c.Events = []Event{event("a", strings.Repeat("e", MaxObjectBytes/2)), event("b", strings.Repeat("f", MaxObjectBytes/4))}
		commit(t, s, c)
		got := changes(t, s, 0)
		if len(got.Objects) != len(c.Put) {
			t.Fatalf("got %d objects, want %d", len(got.Objects), len(c.Put))
		}
		for i := range got.Objects {
			if !bytes.Equal(got.Objects[i].Data, c.Put[i].Data) {
				t.Errorf("object %d has different bytes", i)
			}
		}
		if got := history(t, s, "", 10); len(got) != 2 || len(got[1].Data) != MaxObjectBytes/2 {
			t.Errorf("got %d events, want 2", len(got))
		}
	})
}

func TestNumberOfObjectsIsBounded(t *testing.T) {
	eachPlace(t, func(t *testing.T, p place) {
		s := p.open()
		limitsOf(s).objects = 3
		commit(t, s, Commit{Put: []Object{object("Model", "a", "1"), object("Model", "b", "1"), object("Model", "c", "1")}})
		commit(t, s, Commit{Base: 1, Put: []Object{object("Model", "a", "2")}})
		commit(t, s, Commit{Base: 2, Put: []Object{object("Model", "d", "1")}, Delete: []ObjectKey{objectKey("c")}})
		_, err := s.Commit(short(t), &Commit{ID: randomID(), Base: 3, Put: []Object{object("Model", "a", "3"), object("Model", "e", "1")}})
		wantError(t, err, "4 objects, and at most 3 are allowed", s.Name())
		if !errors.Is(err, ErrTooMany) {
			t.Errorf("%v does not wrap ErrTooMany", err)
		}
		const want = "3 all Model/a@2=2 Model/b@1=1 Model/d@3=1"
		wantChanges(t, s, 0, want)
		// A store that already has more objects than the limit may keep or reduce their number, but not add any.
		limitsOf(s).objects = 1
		commit(t, s, Commit{Base: 3, Put: []Object{object("Model", "b", "2")}})
		commit(t, s, Commit{Base: 4, Put: []Object{object("Model", "e", "1")}, Delete: []ObjectKey{objectKey("a"), objectKey("b")}})
		wantChanges(t, s, 0, "5 all Model/d@3=1 Model/e@5=1")
	})
}

func TestForgottenDeletionsGiveCompleteChanges(t *testing.T) {
	eachPlace(t, func(t *testing.T, p place) {
		s := p.open()
		limitsOf(s).tombstones = 2
		var put []Object
		for _, name := range []string{"a", "b", "c", "d", "e"} {
			put = append(put, object("Model", name, "1"))
		}
		commit(t, s, Commit{Put: put})
		commit(t, s, Commit{Base: 1, Delete: []ObjectKey{objectKey("a")}})
		commit(t, s, Commit{Base: 2, Delete: []ObjectKey{objectKey("b")}})
		wantChanges(t, s, 1, "3 Model/a@2=deleted Model/b@3=deleted")
		commit(t, s, Commit{Base: 3, Delete: []ObjectKey{objectKey("c")}})
		wantChanges(t, s, 1, "4 all Model/d@1=1 Model/e@1=1")
		wantChanges(t, s, 4, "4")
		commit(t, s, Commit{Base: 4, Delete: []ObjectKey{objectKey("d")}})
		wantChanges(t, s, 4, "5 Model/d@5=deleted")
	})
}

func TestHistory(t *testing.T) {
	eachPlace(t, func(t *testing.T, p place) {
		s := p.open()
		if got := history(t, s, "", 10); len(got) != 0 {
			t.Errorf("an empty store has the history %v", got)
		}
		commit(t, s, Commit{Events: []Event{event("a", "1"), event("b", "2"), event("a", "3")}})
		commit(t, s, Commit{Base: 1, Events: []Event{event("ab", "4"), event("a:", ""), event("a\x00\n %3A", "6\nx"), event("a", "7")}})
		for _, c := range []struct {
			subject string
			limit   int
			want    string
		}{
			{"", 100, "2:a:7 2:a\x00\n %3A:6\nx 2:a:: 2:ab:4 1:a:3 1:b:2 1:a:1"},
			{"", 2, "2:a:7 2:a\x00\n %3A:6\nx"},
			{"", 0, ""},
			{"", -1, ""},
			{"a", 100, "2:a:7 1:a:3 1:a:1"},
			{"a", 2, "2:a:7 1:a:3"},
			{"b", 100, "1:b:2"},
			{"ab", 100, "2:ab:4"},
			{"a:", 100, "2:a::"},
			{"a\x00\n %3A", 100, "2:a\x00\n %3A:6\nx"},
			{"missing", 100, ""},
			{"zz", 100, ""},
			{strings.Repeat("x", maxObjectNameBytes), 100, ""},
		} {
			if got := subjects(history(t, s, c.subject, c.limit)); got != c.want {
				t.Errorf("the last %d of %q:\ngot  %q\nwant %q", c.limit, c.subject, got, c.want)
			}
		}
		at := time.Date(2262, 4, 11, 23, 47, 16, 854775807, time.UTC) // the latest possible time
		before := time.Date(1950, 1, 1, 0, 0, 0, 1, time.FixedZone("far", 3600))
		commit(t, s, Commit{Base: 2, Events: []Event{{Subject: "t", At: at}, {Subject: "t", At: before, Revision: 77}}})
		got := history(t, s, "t", 2)
		if !got[0].At.Equal(before) || !got[1].At.Equal(at) || got[0].At.Location() != time.UTC || got[0].Revision != 3 {
			t.Errorf("got %v, want %v and %v", got, before, at)
		}
	})
}

func TestHistoryIsBounded(t *testing.T) {
	eachPlace(t, func(t *testing.T, p place) {
		s := p.open()
		limitsOf(s).events = 2500 // more than a page
		base := uint64(0)
		for range 4 {
			var events []Event
			for i := range 1000 {
				events = append(events, event([]string{"a", "b"}[i%2], fmt.Sprint(i)))
			}
			base = commit(t, s, Commit{Base: base, Events: events})
		}
		all, ofA := history(t, s, "", MaxEvents), history(t, s, "a", MaxEvents)
		if len(all) != 2500 || len(ofA) != 1250 {
			t.Fatalf("%d events are kept, and %d of one subject: want 2500 and 1250", len(all), len(ofA))
		}
		for i, e := range all {
			if want := (3999 - i) % 1000; string(e.Data) != fmt.Sprint(want) || e.Revision != uint64(4-i/1000) {
				t.Fatalf("event %d from the end is %s of revision %d, want %d", i, e.Data, e.Revision, want)
			}
		}
		if last := ofA[len(ofA)-1]; string(last.Data) != "500" || last.Revision != 2 {
			t.Errorf("the oldest event of a is %s of revision %d, want 500 of 2", last.Data, last.Revision)
		}
		// The bytes are bounded too, whatever the number of events.
		limitsOf(s).historyBytes = 10_000
		large := strings.Repeat("x", 4000)
		base = commit(t, s, Commit{Base: base, Events: []Event{event("a", large), event("b", large), event("a", large)}})
		if got := history(t, s, "", 10); len(got) != 2 || got[0].Subject != "a" || got[1].Subject != "b" {
			t.Errorf("%d large events are kept, want the last two", len(got))
		}
		commit(t, s, Commit{Base: base, Events: []Event{event("a", large+large+large)}})
		if got := history(t, s, "", 10); len(got) != 0 {
			t.Errorf("%d events are kept, want none: the last one is too large itself", len(got))
		}
		commit(t, s, Commit{Base: base + 1, Events: []Event{event("a", "small")}})
		if got := subjects(history(t, s, "a", 10)); got != "7:a:small" && got != fmt.Sprintf("%d:a:small", base+2) {
			t.Errorf("the history continues with %s", got)
		}
	})
}

// Readers see only whole commits, however many pages they read. Each commit gives all objects the same data.
func TestChangesAreASnapshot(t *testing.T) {
	eachPlace(t, func(t *testing.T, p place) {
		const objects, commits = 2*redisPage + 200, 30
		s := p.open()
		write := func(n int) Commit {
			var put []Object
			for i := range objects {
				put = append(put, object("Model", fmt.Sprint(i), fmt.Sprint(n)))
			}
			return Commit{ID: randomID(), Base: uint64(n), Put: put}
		}
		commit(t, s, write(0))
		done := make(chan struct{})
		var group sync.WaitGroup
		group.Go(func() {
			defer close(done)
			for n := range commits {
				c := write(n + 1)
				if _, err := s.Commit(context.Background(), &c); err != nil {
					t.Error(err)
					return
				}
			}
		})
		reader := s
		if p.shared {
			reader = p.open()
		}
		for since, busy := uint64(0), true; busy; {
			select {
			case <-done:
				busy = false
			default:
			}
			c, err := reader.Changes(context.Background(), since)
			if err != nil {
				t.Error(err)
				break
			}
			if n := len(c.Objects); n != objects && c.Revision != since {
				t.Errorf("%d objects, want %d", n, objects)
			}
			for _, o := range c.Objects {
				if o.Revision != c.Revision || string(o.Data) != fmt.Sprint(c.Revision-1) {
					t.Errorf("%s is %s of revision %d, in a store of revision %d", o.ObjectKey, o.Data, o.Revision, c.Revision)
					busy = false
					break
				}
			}
			since = (c.Revision - 1) * (c.Revision % 2) // alternately everything and the latest changes
		}
		group.Wait()
	})
}

func TestObjectsWhenCancelledAndClosed(t *testing.T) {
	eachPlace(t, func(t *testing.T, p place) {
		s := p.open()
		commit(t, s, Commit{Put: []Object{object("Model", "a", "1")}})
		cancelled, cancel := context.WithCancel(context.Background())
		cancel()
		check := func(ctx context.Context, part string) {
			t.Helper()
			_, commitErr := s.Commit(ctx, &Commit{ID: randomID(), Base: 1})
			_, changesErr := s.Changes(ctx, 0)
			_, newsErr := s.Changes(ctx, 1)
			_, historyErr := s.History(ctx, "", 1)
			for _, err := range []error{commitErr, changesErr, newsErr, historyErr} {
				wantError(t, err, part, s.Name())
			}
			if errors.As(commitErr, new(*UnknownError)) {
				t.Errorf("%v: want an error that says that nothing was changed", commitErr)
			}
		}
		check(cancelled, "given up")
		wantChanges(t, s, 0, "1 all Model/a@1=1")
		s.Close()
		check(context.Background(), "is closed")
	})
}
