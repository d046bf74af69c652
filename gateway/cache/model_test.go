package cache

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"testing"

	"github.com/xebec-serving/xebec/api"
	"pgregory.net/rapid"
)

// check verifies the invariants of a shard's data structures.
func (s *shard) check() error {
	seen := make([]bool, s.capacity+1)
	walk := func(first uint32) (n int, err error) {
		for i := first; i != 0; i = s.at(i).next {
			if seen[i] {
				return n, fmt.Errorf("block %d is in two chains", i)
			}
			seen[i] = true
			n++
		}
		return n, nil
	}
	used, pending, pendingBlocks, entries := 0, 0, 0, 0
	checkEntry := func(i uint32, e *head) error {
		n, err := walk(i)
		if err != nil {
			return err
		}
		if n != e.blocks() {
			return fmt.Errorf("entry %d has %d blocks, want %d", i, n, e.blocks())
		}
		used += n
		if e.flight == 0 {
			entries++
			return nil
		}
		pending++
		pendingBlocks += n
		if f := s.flights[e.flight-1]; f.entry != i || e.in == noQueue || s.at(f.last).next != 0 {
			return fmt.Errorf("pending entry %d: flight %+v, queue %d", i, f, e.in)
		}
		return nil
	}
	for bucket := range s.buckets {
		var err error
		s.each(bucket, func(i uint32, e *head) {
			if at, tag := s.place(hash(e.key, e.model)); at != &s.buckets[bucket] || tag&s.blockMask != 0 {
				err = errors.Join(err, fmt.Errorf("entry %d is in the wrong bucket %d", i, bucket))
			}
			if found, _ := s.find(e.key, e.model); found != i {
				err = errors.Join(err, fmt.Errorf("entry %d is in bucket %d, and found is %d", i, bucket, found))
			}
			err = errors.Join(err, checkEntry(i, e))
		})
		if b := &s.buckets[bucket]; b.more != 0 {
			for _, ref := range b.refs {
				if ref&s.blockMask == 0 {
					err = errors.Join(err, fmt.Errorf("bucket %d has a chain and a place without an entry", bucket))
				}
			}
		}
		if err != nil {
			return err
		}
	}
	queued := 0
	for name := probation; name < queueNames; name++ {
		q, n, older := s.queues[name], 0, uint32(0)
		for i := q.oldest; i != 0; i = s.at(i).newer {
			e := s.at(i)
			if e.in != name || e.older != older || e.flight != 0 {
				return fmt.Errorf("entry %d in queue %d: %+v", i, name, e)
			}
			queued++
			n += e.blocks()
			older = i
		}
		if q.newest != older || q.blocks != n {
			return fmt.Errorf("queue %d: %+v, found %d blocks up to entry %d", name, q, n, older)
		}
	}
	free, err := walk(s.free)
	if err != nil {
		return err
	}
	switch {
	case used != s.used || used+free != int(s.fresh)-1 || s.used > s.capacity:
		return fmt.Errorf("%d blocks in entries, %d free, %d fresh, %d counted as used, %d at most", used, free, s.fresh, s.used, s.capacity)
	case queued != entries || uint64(entries) != s.counts.entries:
		return fmt.Errorf("%d entries in the index, %d in queues, %d counted", entries, queued, s.counts.entries)
	case pending != s.inFlight || pendingBlocks != s.inFlightBlocks || pending > s.maxInFlight || pendingBlocks > s.maxInFlightBlocks:
		return fmt.Errorf("%d pending of %d blocks, counted %d of %d", pending, pendingBlocks, s.inFlight, s.inFlightBlocks)
	}
	return nil
}

func (c *Cache) check(t interface{ Fatal(...any) }) {
	for i := range c.shards {
		s := &c.shards[i]
		s.mu.Lock()
		err := s.check()
		s.mu.Unlock()
		if err != nil {
			t.Fatal(err)
		}
	}
}

// query is one query of a test.
type query struct {
	Waiter
	serial  int
	input   string
	outcome Outcome
	calls   []string
	outputs []api.Value // when the owner was called
}

func (q *query) Filled(w *Waiter) {
	q.calls, q.outputs = append(q.calls, "filled"), clone(w.Outputs)
}

func (q *query) Failed(_ *Waiter, code api.Code) { q.calls = append(q.calls, "failed "+code.String()) }

func clone(values []api.Value) []api.Value {
	out := make([]api.Value, len(values))
	for i, v := range values {
		out[i] = api.Value{Data: bytes.Clone(v.Data), Dims: slices.Clone(v.Dims)}
	}
	return out
}

func equalValues(a, b []api.Value) bool {
	return slices.EqualFunc(a, b, func(a, b api.Value) bool { return bytes.Equal(a.Data, b.Data) && slices.Equal(a.Dims, b.Dims) })
}

// machine drives a small cache and a map side by side.
type machine struct {
	cache   *Cache
	models  []*Model
	known   map[string][]api.Value // last filled outputs, by model and input
	flights map[string]*query      // leaders, by model and input
	waits   map[*query]*query      // from a waiting query to its leader
	leads   []*query
	serial  int
}

func values(t *rapid.T, label string, most int) []api.Value {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) api.Value {
		n := rapid.SampledFrom([]int{0, 1, 8, 50, 64, 65, 124, 188, 189, 500, 1500}).Draw(t, "bytes")
		v := api.Value{Data: bytes.Repeat([]byte{rapid.Byte().Draw(t, "fill")}, n)}
		v.Dims = rapid.SliceOfN(rapid.Int64Range(0, 3), 0, 3).Draw(t, "dims")
		return v
	}), 0, most).Draw(t, label)
}

// TestAgainstAMap: for any sequence of requests, fills, failures, cancels and drops, a hit has what was filled for its
// input, each waiter's owner is called once, no input is evaluated twice at the same time, and the memory adds up.
func TestAgainstAMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &machine{known: map[string][]api.Value{}, flights: map[string]*query{}, waits: map[*query]*query{}}
		m.cache = newCache(rapid.SampledFrom([]int64{6 << 10, 20 << 10, 200 << 10}).Draw(t, "bytes"), rapid.SampledFrom([]int{1, 4}).Draw(t, "shards"), 1)
		collide := rapid.SampledFrom([]uint64{math.MaxUint64, 0, 1}).Draw(t, "key bits")
		m.cache.testRekey = func(k Key) Key { return Key{k.Hi & collide, k.Lo & collide} }
		for range 3 {
			m.models = append(m.models, m.cache.Model())
		}
		inputs := make([][]api.Value, 20)
		for i := range inputs {
			inputs[i] = values(t, "inputs", 3)
		}
		t.Repeat(map[string]func(*rapid.T){
			"": func(t *rapid.T) {
				m.cache.check(t)
				st := m.cache.Stats()
				if st.Bytes > st.MaxBytes || st.HeldBytes > st.MaxBytes {
					t.Fatalf("stats: %+v", st)
				}
			},
			"serve": func(t *rapid.T) { // a query that is answered at once, as most are
				leads := len(m.leads)
				m.request(t, rapid.IntRange(0, len(m.models)-1).Draw(t, "model"), rapid.SampledFrom(inputs).Draw(t, "input"), nil)
				if len(m.leads) > leads {
					q := m.leads[leads]
					m.leads = m.leads[:leads]
					m.end(t, q, true, values(t, "outputs", 2))
				}
			},
			"request": func(t *rapid.T) {
				m.request(t, rapid.IntRange(0, len(m.models)-1).Draw(t, "model"), rapid.SampledFrom(inputs).Draw(t, "input"), []byte(rapid.SampledFrom([]string{"", "", "salt"}).Draw(t, "salt")))
			},
			"fill": func(t *rapid.T) {
				if q := m.pickLead(t); q != nil {
					m.end(t, q, true, values(t, "outputs", 2))
				}
			},
			"fail": func(t *rapid.T) {
				if q := m.pickLead(t); q != nil {
					m.end(t, q, false, nil)
				}
			},
			"cancel": func(t *rapid.T) {
				if len(m.waits) == 0 {
					return
				}
				waits := slices.SortedFunc(maps.Keys(m.waits), func(a, b *query) int { return a.serial - b.serial })
				q := rapid.SampledFrom(waits).Draw(t, "waiter")
				if !q.Cancel() || q.Cancel() {
					t.Fatal("Cancel of a waiter must succeed exactly once")
				}
				delete(m.waits, q)
			},
			"drop": func(t *rapid.T) {
				if rapid.IntRange(0, 3).Draw(t, "really") != 0 {
					return
				}
				i := rapid.IntRange(0, len(m.models)-1).Draw(t, "model")
				m.drop(t, i)
			},
		})
	})
}

func (m *machine) request(t *rapid.T, model int, inputs []api.Value, salt []byte) {
	m.serial++
	q := &query{serial: m.serial, input: fmt.Sprint(m.models[model].serial, string(salt), inputs)}
	q.Owner = q
	mm := m.models[model]
	k := mm.Key(salt, inputs)
	known, leader := m.known[q.input], m.flights[q.input]
	var peek Waiter
	fetched := mm.Fetch(k, salt, inputs, &peek)
	q.outcome = mm.Request(k, salt, inputs, &q.Waiter)
	if fetched != (q.outcome == Hit) {
		t.Fatalf("Fetch returned %t, Request %v", fetched, q.outcome)
	}
	switch q.outcome {
	case Hit:
		if known == nil || leader != nil || !equalValues(q.Outputs, known) || !equalValues(peek.Outputs, known) {
			t.Fatalf("%s: got %v, want %v, which was filled", q.input, q.Outputs, known)
		}
	case Lead:
		if leader != nil {
			t.Fatalf("%s is evaluated twice at the same time", q.input)
		}
		m.flights[q.input] = q
		m.leads = append(m.leads, q)
	case Wait:
		if leader == nil {
			t.Fatalf("%s waits without a flight", q.input)
		}
		m.waits[q] = leader
	case Bypass:
		if leader != nil {
			t.Fatalf("%s: bypass of a flight of the same input", q.input)
		}
	}
}

func (m *machine) pickLead(t *rapid.T) *query {
	if len(m.leads) == 0 {
		return nil
	}
	i := rapid.IntRange(0, len(m.leads)-1).Draw(t, "leader")
	q := m.leads[i]
	m.leads = slices.Delete(m.leads, i, i+1)
	return q
}

func (m *machine) end(t *rapid.T, q *query, ok bool, outputs []api.Value) {
	want := "failed model_error"
	if ok {
		want = "filled"
		q.Fill(outputs, 0.5)
		m.known[q.input] = outputs
		if outputs == nil {
			m.known[q.input] = []api.Value{}
		}
	} else {
		q.Fail(api.ModelError)
	}
	if m.flights[q.input] == q {
		delete(m.flights, q.input)
	}
	if len(q.calls) != 0 {
		t.Fatalf("the leader was called: %v", q.calls)
	}
	for w, leader := range m.waits {
		if leader != q {
			continue
		}
		if !slices.Equal(w.calls, []string{want}) || ok && (!equalValues(w.outputs, outputs) || w.Confidence != 0.5) {
			t.Fatalf("a waiter was called with %v %v, want %s %v", w.calls, w.outputs, want, outputs)
		}
		if w.Cancel() {
			t.Fatal("Cancel succeeded after the owner was called")
		}
		delete(m.waits, w)
	}
}

func (m *machine) drop(t *rapid.T, i int) {
	old := m.models[i]
	old.Drop()
	for s := range m.cache.shards {
		sh := &m.cache.shards[s]
		for bucket := range sh.buckets {
			sh.each(bucket, func(_ uint32, e *head) {
				if e.model == old.serial && e.flight == 0 {
					t.Fatal("an entry of a dropped model is left")
				}
			})
		}
	}
	var w Waiter
	if o := old.Request(Key{}, nil, nil, &w); o != Bypass {
		t.Fatalf("a dropped model: got %v", o)
	}
	m.models[i] = m.cache.Model()
}
