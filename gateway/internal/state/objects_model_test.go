package state

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/xebec-serving/xebec/gateway/internal/state/redistest"
)

// objectsModel has what a store of objects should have.
type objectsModel struct {
	revision uint64
	objects  map[ObjectKey]Object
	made     map[[16]byte]uint64
	events   []Event // oldest first
	limit    int
}

func (m *objectsModel) commit(c *Commit) (uint64, bool) {
	if r, found := m.made[c.ID]; found {
		return r, true
	}
	if c.Base != m.revision {
		return 0, false
	}
	m.revision++
	for _, k := range c.Delete {
		delete(m.objects, k)
	}
	for _, o := range c.Put {
		o.Revision = m.revision
		m.objects[o.ObjectKey] = o
	}
	for _, e := range c.Events {
		e.Revision = m.revision
		e.At = e.At.UTC()
		m.events = append(m.events, e)
	}
	m.events = m.events[max(0, len(m.events)-m.limit):]
	m.made[c.ID] = m.revision
	return m.revision, true
}

func (m *objectsModel) all() []Object {
	var all []Object
	for _, o := range m.objects {
		all = append(all, o)
	}
	sortObjects(all)
	return all
}

// A follower keeps a copy of the store by polling for changes, as a gateway does.
type follower struct {
	since   uint64
	objects map[ObjectKey]Object
}

func (f *follower) follow(s Objects) error {
	c, err := s.Changes(context.Background(), f.since)
	if err != nil {
		return err
	}
	if c.Complete {
		f.objects = map[ObjectKey]Object{}
	}
	for _, o := range c.Objects {
		if o.Data == nil {
			delete(f.objects, o.ObjectKey)
		} else {
			f.objects[o.ObjectKey] = o
		}
	}
	f.since = c.Revision
	return nil
}

// Random commits, including stale ones and retries, have the same effect as on a map, and followers that poll now and then see it. The limits on
// remembered deletions and events are low.
func TestObjectsBehaveLikeAMap(t *testing.T) {
	eachPlace(t, func(t *testing.T, p place) {
		store := p.open()
		small := objectLimits{objects: MaxObjects, events: 7, historyBytes: MaxHistoryBytes, tombstones: 3, commits: 1 << 20, page: 2}
		*limitsOf(store) = small
		rapid.Check(t, func(rt *rapid.T) {
			m := &objectsModel{objects: map[ObjectKey]Object{}, made: map[[16]byte]uint64{}, limit: small.events}
			followers := []*follower{{}, {}, {}}
			var sent []*Commit
			// The store is reused from the previous run and emptied first.
			c, err := store.Changes(context.Background(), 0)
			if err != nil {
				rt.Fatal(err)
			}
			clear := &Commit{ID: randomID(), Base: c.Revision}
			for _, o := range c.Objects {
				clear.Delete = append(clear.Delete, o.ObjectKey)
			}
			for range small.events {
				clear.Events = append(clear.Events, event("clear", ""))
			}
			m.revision = c.Revision
			m.commit(clear)
			if r, err := store.Commit(context.Background(), clear); r != m.revision || err != nil {
				rt.Fatalf("revision %d, %v: want %d", r, err, m.revision)
			}
			send := func(rt *rapid.T, c *Commit) {
				want, ok := m.commit(c)
				got, err := store.Commit(context.Background(), c)
				if ok && (err != nil || got != want) {
					rt.Fatalf("a commit makes revision %d, %v: want %d", got, err, want)
				}
				if !ok && !errors.As(err, new(*StaleError)) {
					rt.Fatalf("a stale commit makes revision %d, %v", got, err)
				}
			}
			rt.Repeat(map[string]func(*rapid.T){
				"commit": func(rt *rapid.T) {
					c := &Commit{ID: randomID(), Base: m.revision - uint64(rapid.SampledFrom([]int{0, 0, 0, 0, 1}).Draw(rt, "behind"))}
					for i := range 6 {
						k := ObjectKey{[]string{"Model", "Traffic"}[i%2], fmt.Sprint("o", i/2)}
						switch rapid.SampledFrom([]string{"", "", "put", "delete"}).Draw(rt, "what") {
						case "put":
							c.Put = append(c.Put, Object{ObjectKey: k, Data: []byte(rapid.StringN(1, 5, 20).Draw(rt, "data"))})
						case "delete":
							c.Delete = append(c.Delete, k)
						}
					}
					for range rapid.IntRange(0, 3).Draw(rt, "events") {
						c.Events = append(c.Events, event(rapid.SampledFrom([]string{"a", "ab", "b"}).Draw(rt, "subject"), fmt.Sprint(m.revision)))
					}
					sent = append(sent, c)
					send(rt, c)
				},
				"again": func(rt *rapid.T) {
					if len(sent) > 0 {
						send(rt, rapid.SampledFrom(sent).Draw(rt, "old"))
					}
				},
				"follow": func(rt *rapid.T) {
					f := rapid.SampledFrom(followers).Draw(rt, "follower")
					if err := f.follow(store); err != nil {
						rt.Fatal(err)
					}
					if diff := cmp.Diff(m.objects, f.objects); diff != "" || f.since != m.revision {
						rt.Fatalf("a follower is at revision %d, want %d:\n%s", f.since, m.revision, diff)
					}
				},
				"open": func(*rapid.T) {
					store.Close()
					store = p.open()
					*limitsOf(store) = small
				},
				"": func(rt *rapid.T) {
					got, err := store.Changes(context.Background(), 0)
					if err != nil {
						rt.Fatal(err)
					}
					if diff := cmp.Diff(Changes{m.revision, true, m.all()}, got); diff != "" {
						rt.Fatal(diff)
					}
					for _, subject := range []string{"", "a", "ab", "clear"} {
						var want []Event
						for _, e := range slices.Backward(m.events) {
							if subject == "" || e.Subject == subject {
								want = append(want, e)
							}
						}
						got, err := store.History(context.Background(), subject, 100)
						if err != nil {
							rt.Fatal(err)
						}
						if diff := cmp.Diff(want, got); diff != "" {
							rt.Fatalf("history of %q:\n%s", subject, diff)
						}
					}
				},
			})
		})
	})
}

// raceWriters lets several writers increment the same number, each starting over when another was faster. Every accepted commit counts once, and
// every other commit is stale.
func raceWriters(t *testing.T, stores []Backend) {
	const each = 40
	var group sync.WaitGroup
	for _, s := range stores {
		group.Go(func() {
			for made := 0; made < each; {
				c, err := s.Changes(context.Background(), 0)
				if err != nil {
					t.Error(err)
					return
				}
				n := 0
				if len(c.Objects) > 0 {
					fmt.Sscan(string(c.Objects[0].Data), &n)
				}
				next := Commit{ID: randomID(), Base: c.Revision, Put: []Object{object("Count", "n", fmt.Sprint(n+1))}, Events: []Event{event("n", fmt.Sprint(n+1))}}
				switch _, err := s.Commit(context.Background(), &next); {
				case err == nil:
					made++
				case !errors.As(err, new(*StaleError)):
					t.Error(err)
					return
				}
			}
		})
	}
	group.Wait()
	total := each * len(stores)
	wantChanges(t, stores[0], 0, fmt.Sprintf("%d all Count/n@%d=%d", total, total, total))
	events := history(t, stores[0], "n", MaxEvents)
	if len(events) != total {
		t.Fatalf("the history has %d events, want %d", len(events), total)
	}
	for i, e := range events {
		if string(e.Data) != fmt.Sprint(total-i) || e.Revision != uint64(total-i) {
			t.Fatalf("event %d from the end is %s of revision %d", i, e.Data, e.Revision)
		}
	}
}

func TestRacingWritersOfAFile(t *testing.T) {
	s := mustOpen(t, t.TempDir()+"/state.db")
	raceWriters(t, []Backend{s, s, s})
}

func TestRacingWritersOfARedis(t *testing.T) {
	server := redistest.Start(t, redistest.Config{})
	raceWriters(t, []Backend{mustOpen(t, server.URL()), mustOpen(t, server.URL()), mustOpen(t, server.URL())})
}
