package state

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"
)

// The guarantees of both kinds of store. Each case gets an empty place.

var someKey = Key{"digits", "exp3", ""}

func TestFirstUpdateStartsAtBase(t *testing.T) {
	eachPlace(t, func(t *testing.T, p place) {
		s := p.open()
		wantTotals(t, load(t, s, someKey))
		got := merge(t, s, Update{someKey, []Field{{"b/weight", 2, 0.5}, {"a/weight", -1, 0}}, 1})
		wantTotals(t, got[0], Total{"a/weight", -1}, Total{"b/weight", 2.5})
		got = merge(t, s, Update{someKey, []Field{{"b/weight", 100, 0.25}, {"c/weight", 7, 1}}, 2})
		want := []Total{{"a/weight", -1}, {"b/weight", 2.75}, {"c/weight", 8}}
		wantTotals(t, got[0], want...)
		wantTotals(t, load(t, s, someKey), want...)
	})
}

func TestNumbersComeBackExactly(t *testing.T) {
	numbers := []float64{0, 0.1, 1.0 / 3, -1e-300, 5e-324, math.MaxFloat64, -math.MaxFloat64, math.Nextafter(1, 2), 1 << 53, 123456789.123456789, math.Pi * 1e200}
	eachPlace(t, func(t *testing.T, p place) {
		s := p.open()
		u := Update{Key: someKey, Seq: 1}
		var want []Total
		for i, x := range numbers {
			name := fmt.Sprintf("%02d", i)
			u.Fields = append(u.Fields, Field{name, x, 0})
			want = append(want, Total{name, x})
		}
		wantTotals(t, merge(t, s, u)[0], want...)
		u.Seq = 2
		for i, x := range numbers {
			u.Fields[i].Delta = -x / 3
			want[i].Value = x + -x/3
		}
		wantTotals(t, merge(t, s, u)[0], want...)
		wantTotals(t, load(t, s, someKey), want...)
	})
}

func TestSameSequenceNumberCountsOnce(t *testing.T) {
	eachPlace(t, func(t *testing.T, p place) {
		s := p.open()
		for _, step := range []struct {
			seq  uint64
			want float64
		}{{1, 1}, {1, 1}, {2, 2}, {1, 2}, {9, 3}, {8, 3}, {10, 4}, {1 << 60, 5}, {1<<60 + 1, 6}, {1 << 60, 6}, {math.MaxUint64, 7}, {math.MaxUint64 - 1, 7}} {
			wantTotals(t, merge(t, s, add(someKey, step.seq, 1))[0], Total{"n", step.want})
		}
		// Sequence numbers are per state.
		wantTotals(t, merge(t, s, add(Key{"digits", "exp3", "ann"}, 1, 1))[0], Total{"n", 1})
	})
}

func TestOpenedAgainIsAnotherWriter(t *testing.T) {
	eachPlace(t, func(t *testing.T, p place) {
		s := p.open()
		merge(t, s, add(someKey, 5, 1))
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		s = p.open()
		wantTotals(t, load(t, s, someKey), Total{"n", 1})
		wantTotals(t, merge(t, s, add(someKey, 1, 1))[0], Total{"n", 2})
	})
}

func TestResultsFollowTheOrderOfUpdates(t *testing.T) {
	eachPlace(t, func(t *testing.T, p place) {
		s := p.open()
		const n = 2*redisPipeline + 3
		var updates []Update
		var keys []Key
		for i := range n {
			keys = append(keys, Key{"f", "exp3", fmt.Sprint(i)})
			updates = append(updates, add(keys[i], 1, float64(i)))
		}
		// The same state twice in one call: each result is the state after its own update.
		updates = append(updates, add(keys[3], 2, 0.5), add(keys[3], 3, 0.5))
		got := merge(t, s, updates...)
		for i := range n {
			wantTotals(t, got[i], Total{"n", float64(i)})
		}
		wantTotals(t, got[n], Total{"n", 3.5})
		wantTotals(t, got[n+1], Total{"n", 4})
		loaded, err := s.Load(short(t), append(keys, Key{"f", "exp3", "missing"}))
		if err != nil {
			t.Fatal(err)
		}
		for i := range n {
			if i != 3 {
				wantTotals(t, loaded[i], Total{"n", float64(i)})
			}
		}
		wantTotals(t, loaded[n])
		if got := merge(t, s); len(got) != 0 {
			t.Fatalf("Merge of nothing returned %v", got)
		}
		if got, err := s.Load(short(t), nil); len(got) != 0 || err != nil {
			t.Fatalf("Load of nothing returned %v, %v", got, err)
		}
	})
}

// Names that would collide if they were only joined.
func TestNamesDoNotCollide(t *testing.T) {
	long := strings.Repeat("\x00\xff", maxContextBytes/2)
	keys := []Key{
		{"a", "b", ""}, {"a", "b", "c"}, {"a", "b", "c:d"}, {"a", "b:c", "d"}, {"a:b", "c", "d"}, {"a:b", "c", ":d"}, {"a", "bc", ""}, {"ab", "c", ""},
		{"a%3Ab", "c", "d"}, {"a", "b", "\x00"}, {"a", "b", "\r\n$3\r\n"}, {"a", "b", "ünïcode"}, {"a", "b", long}, {"a", "b", long[1:]}, {"A", "b", ""},
		{"a", "\x01b", ""}, {"*", "b", ""}, {"a*", "b", ""}, {"a", "b", "n:n"},
	}
	eachPlace(t, func(t *testing.T, p place) {
		s := p.open()
		for i, k := range keys {
			merge(t, s, add(k, 1, float64(i+1)))
		}
		for i, k := range keys {
			wantTotals(t, load(t, s, k), Total{"n", float64(i + 1)})
		}
		// Names of fields do not collide either.
		u := Update{Key: Key{"fields", "b", ""}, Seq: 1}
		names := []string{"\x00", "1", "a", "a:b", "n:a", "w:0", "ü"}
		for _, name := range names {
			u.Fields = append(u.Fields, Field{name, 0, 1})
		}
		for i, total := range merge(t, s, u)[0] {
			if total != (Total{names[i], 1}) {
				t.Errorf("field %d is %v, want %q", i, total, names[i])
			}
		}
	})
}

func TestForgetDropsOneFunctionOnly(t *testing.T) {
	eachPlace(t, func(t *testing.T, p place) {
		s := p.open()
		var updates []Update
		for i := range 3 * redisUnlink {
			updates = append(updates, add(Key{"a", "exp3", fmt.Sprint(i)}, 1, 1))
		}
		others := []Key{{"ab", "exp3", ""}, {"a*", "exp3", ""}, {"*", "exp3", ""}, {"b", "a", "a"}}
		for _, k := range others {
			updates = append(updates, add(k, 1, 1))
		}
		merge(t, s, updates...)
		for _, function := range []string{"a", "a", "missing"} {
			if err := s.Forget(short(t), function); err != nil {
				t.Fatal(err)
			}
		}
		for i := range 3 * redisUnlink {
			wantTotals(t, load(t, s, updates[i].Key))
		}
		for _, k := range others {
			wantTotals(t, load(t, s, k), Total{"n", 1})
		}
		if err := s.Forget(short(t), "*"); err != nil {
			t.Fatal(err)
		}
		wantTotals(t, load(t, s, others[2]))
		wantTotals(t, load(t, s, others[0]), Total{"n", 1})
		// A forgotten state starts from scratch, sequence numbers included.
		wantTotals(t, merge(t, s, Update{updates[0].Key, []Field{{"n", 10, 1}}, 1})[0], Total{"n", 11})
		wantError(t, s.Forget(short(t), ""), "no function")
	})
}

func TestRefusedUpdatesChangeNothing(t *testing.T) {
	k := Key{"f", "exp3", "bad"}
	fields := func(fs ...Field) Update { return Update{k, fs, 2} }
	many := Update{Key: k, Seq: 2}
	for i := range maxFields {
		many.Fields = append(many.Fields, Field{fmt.Sprint(i), 0, 1}) // one too many, together with the existing one
	}
	for _, c := range []struct {
		name string
		bad  Update
		want string
	}{
		{"a delta that is no number", fields(Field{"n", 0, math.NaN()}), "finite"},
		{"an infinite delta", fields(Field{"x", 0, 1}, Field{"n", 0, math.Inf(1)}), "finite"},
		{"a base that is no number", fields(Field{"x", math.NaN(), 0}), "finite"},
		{"an infinite base", fields(Field{"x", math.Inf(-1), 0}), "finite"},
		{"a sum that overflows", fields(Field{"x", 1, 1}, Field{"n", 0, math.MaxFloat64}), `"n"`},
		{"a base that overflows", fields(Field{"x", math.MaxFloat64, math.MaxFloat64}), `"x"`},
		{"no sequence number", add(k, 0, 1), "sequence number is 0"},
		{"no function", add(Key{"", "exp3", ""}, 1, 1), "no function"},
		{"no policy", add(Key{"f", "", ""}, 1, 1), "no policy"},
		{"a long function", add(Key{strings.Repeat("f", maxNameBytes+1), "exp3", ""}, 1, 1), "254 bytes"},
		{"a long policy", add(Key{"f", strings.Repeat("p", maxNameBytes+1), ""}, 1, 1), "254 bytes"},
		{"a long context", add(Key{"f", "exp3", strings.Repeat("c", maxContextBytes+1)}, 1, 1), "257 bytes"},
		{"a field without a name", fields(Field{"", 0, 1}), "0 bytes"},
		{"a field with a long name", fields(Field{strings.Repeat("x", maxFieldBytes+1), 0, 1}), "513 bytes"},
		{"one field too many", many, "4097 fields"},
		{"too many in one update", Update{k, make([]Field, maxFields+1), 2}, "4097 fields"},
	} {
		t.Run(c.name, func(t *testing.T) {
			eachPlace(t, func(t *testing.T, p place) {
				s := p.open()
				merge(t, s, add(k, 1, math.MaxFloat64))
				before, after := Key{"f", "exp3", "before"}, Key{"f", "exp3", "after"}
				totals, err := s.Merge(short(t), []Update{add(before, 1, 1), c.bad, add(after, 1, 2)})
				wantRefused(t, err, 1, c.want)
				wantTotals(t, totals[0], Total{"n", 1})
				wantTotals(t, totals[2], Total{"n", 2})
				if totals[1] != nil {
					t.Errorf("the refused update returned %v", totals[1])
				}
				wantTotals(t, load(t, s, k), Total{"n", math.MaxFloat64})
				// Its sequence number is still free.
				wantTotals(t, merge(t, s, add(k, 2, -1))[0], Total{"n", math.MaxFloat64 - 1})
			})
		})
	}
}

func TestLoadRefusesImpossibleKeys(t *testing.T) {
	eachPlace(t, func(t *testing.T, p place) {
		s := p.open()
		merge(t, s, add(someKey, 1, 1))
		totals, err := s.Load(short(t), []Key{someKey, {"", "", ""}})
		wantRefused(t, err, 1, "no function")
		wantTotals(t, totals[0], Total{"n", 1})
		if totals[1] != nil {
			t.Errorf("the refused key returned %v", totals[1])
		}
	})
}

func TestLargestState(t *testing.T) {
	eachPlace(t, func(t *testing.T, p place) {
		s := p.open()
		u := Update{Key: someKey, Seq: 1}
		for i := range maxFields {
			u.Fields = append(u.Fields, Field{fmt.Sprintf("%0*d", maxFieldBytes, i), 0.25, float64(i)})
		}
		for round := range 2 {
			u.Seq++
			got := merge(t, s, u)[0]
			if len(got) != maxFields {
				t.Fatalf("got %d fields, want %d", len(got), maxFields)
			}
			for i, total := range got {
				if want := 0.25 + float64(i*(round+1)); total.Value != want || total.Name != u.Fields[i].Name {
					t.Fatalf("field %d is %v, want %v", i, total.Value, want)
				}
			}
		}
		if got := load(t, s, someKey); len(got) != maxFields {
			t.Fatalf("loaded %d fields, want %d", len(got), maxFields)
		}
	})
}

// An update without fields reads what other writers have added.
func TestUpdateWithoutFieldsReturnsTheState(t *testing.T) {
	eachPlace(t, func(t *testing.T, p place) {
		s := p.open()
		wantTotals(t, merge(t, s, Update{Key: someKey, Seq: 1})[0])
		wantTotals(t, load(t, s, someKey))
		merge(t, s, add(someKey, 2, 3))
		wantTotals(t, merge(t, s, Update{Key: someKey, Seq: 3})[0], Total{"n", 3})
	})
}

// Readers see only whole updates while a writer writes.
func TestLoadBesideMerge(t *testing.T) {
	eachPlace(t, func(t *testing.T, p place) {
		s := p.open()
		const rounds, readers = 100, 3
		update := func(seq uint64) Update { return Update{someKey, []Field{{"x", 0, 1}, {"y", 0, -1}}, seq} }
		merge(t, s, update(1))
		done := make(chan struct{})
		var group sync.WaitGroup
		for range readers {
			group.Go(func() {
				last := 0.0
				for {
					got, err := s.Load(context.Background(), []Key{someKey})
					if err != nil {
						t.Error(err)
						return
					}
					x, y := got[0][0].Value, got[0][1].Value
					if x != -y || x < last {
						t.Errorf("x is %v and y %v, after x was %v", x, y, last)
						return
					}
					last = x
					select {
					case <-done:
						return
					default:
					}
				}
			})
		}
		for i := range rounds {
			merge(t, s, update(uint64(i+2)))
		}
		close(done)
		group.Wait()
		wantTotals(t, load(t, s, someKey), Total{"x", rounds + 1}, Total{"y", -rounds - 1})
	})
}

func TestCancelledAndClosed(t *testing.T) {
	eachPlace(t, func(t *testing.T, p place) {
		s := p.open()
		merge(t, s, add(someKey, 1, 1))
		cancelled, cancel := context.WithCancel(context.Background())
		cancel()
		check := func(ctx context.Context, cause error, part string) {
			t.Helper()
			_, mergeErr := s.Merge(ctx, []Update{add(someKey, 2, 1)})
			_, loadErr := s.Load(ctx, []Key{someKey})
			for _, err := range []error{mergeErr, loadErr, s.Forget(ctx, "digits")} {
				wantError(t, err, part, s.Name())
				if cause != nil && !errors.Is(err, cause) {
					t.Errorf("%v does not wrap %v", err, cause)
				}
			}
		}
		check(cancelled, context.Canceled, "given up")
		wantTotals(t, load(t, s, someKey), Total{"n", 1})
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		check(context.Background(), nil, "is closed")
	})
}

func TestShared(t *testing.T) {
	eachPlace(t, func(t *testing.T, p place) {
		if got := p.open().Shared(); got != p.shared {
			t.Errorf("Shared is %v, want %v", got, p.shared)
		}
	})
}

// Random calls, including retries of old ones, Forget and reopening, have the same effect as on a map.
func TestStoreIsASumOfUpdates(t *testing.T) {
	eachPlace(t, func(t *testing.T, p place) {
		functions := 0 // each run has functions of its own
		store := p.open()
		rapid.Check(t, func(rt *rapid.T) {
			functions++
			var keys []Key
			for _, f := range []string{"a", "b"} {
				for _, context := range []string{"", "c"} {
					keys = append(keys, Key{fmt.Sprintf("%s%d", f, functions), "exp3", context})
				}
			}
			model := newModel()
			var history [][]Update
			rt.Repeat(map[string]func(*rapid.T){
				"merge": func(rt *rapid.T) {
					var updates []Update
					for range rapid.IntRange(1, 5).Draw(rt, "updates") {
						k := rapid.SampledFrom(keys).Draw(rt, "key")
						u := Update{Key: k, Seq: model.next(k)}
						for range rapid.IntRange(0, 3).Draw(rt, "fields") {
							u.Fields = append(u.Fields, Field{rapid.SampledFrom([]string{"x", "y", "z"}).Draw(rt, "name"),
								rapid.Float64Range(-10, 10).Draw(rt, "base"), rapid.Float64Range(-10, 10).Draw(rt, "delta")})
						}
						updates = append(updates, u)
					}
					history = append(history, updates)
					model.check(rt, store, updates)
				},
				"again": func(rt *rapid.T) {
					if len(history) > 0 {
						model.check(rt, store, rapid.SampledFrom(history).Draw(rt, "old"))
					}
				},
				"forget": func(rt *rapid.T) {
					k := rapid.SampledFrom(keys).Draw(rt, "key")
					if err := store.Forget(context.Background(), k.Function); err != nil {
						rt.Fatal(err)
					}
					model.forget(k.Function)
					history = nil // a retry after Forget would count again
				},
				"open": func(*rapid.T) {
					store.Close()
					store = p.open()
					model.applied, history = map[Key]uint64{}, nil
				},
				"": func(rt *rapid.T) {
					got, err := store.Load(context.Background(), keys)
					if err != nil {
						rt.Fatal(err)
					}
					for i, k := range keys {
						model.compare(rt, k, got[i])
					}
				},
			})
		})
	})
}

// model has what a store should have.
type model struct {
	states  map[Key]map[string]float64
	applied map[Key]uint64 // last Seq of this writer
	seqs    map[Key]uint64 // last Seq handed out
}

func newModel() *model {
	return &model{map[Key]map[string]float64{}, map[Key]uint64{}, map[Key]uint64{}}
}

func (m *model) next(k Key) uint64 {
	m.seqs[k]++
	return m.seqs[k]
}

func (m *model) forget(function string) {
	for k := range m.seqs {
		if k.Function == function {
			delete(m.states, k)
			delete(m.applied, k)
		}
	}
}

// check merges updates and compares each result with the model after that update.
func (m *model) check(t *rapid.T, s Store, updates []Update) {
	got, err := s.Merge(context.Background(), updates)
	if err != nil {
		t.Fatal(err)
	}
	for i, u := range updates {
		if u.Seq > m.applied[u.Key] {
			m.applied[u.Key] = u.Seq
			if m.states[u.Key] == nil {
				m.states[u.Key] = map[string]float64{}
			}
			for _, f := range u.Fields {
				old, found := m.states[u.Key][f.Name]
				if !found {
					old = f.Base
				}
				m.states[u.Key][f.Name] = old + f.Delta
			}
		}
		m.compare(t, u.Key, got[i])
	}
}

func (m *model) compare(t *rapid.T, k Key, got []Total) {
	want := m.states[k]
	if len(got) != len(want) {
		t.Fatalf("%v is %v, want %v", k, got, want)
	}
	for i, total := range got {
		if x, found := want[total.Name]; !found || x != total.Value || i > 0 && got[i-1].Name >= total.Name {
			t.Fatalf("%v is %v, want %v", k, got, want)
		}
	}
}
