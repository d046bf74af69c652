package cache

import (
	"bytes"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/xebec-serving/xebec/api"
)

// one returns a list of one value, for an input or an output.
func one(s string) []api.Value { return []api.Value{{Data: []byte(s)}} }

// testWaiter is a waiter that records its owner's calls.
type testWaiter struct {
	Waiter
	calls []string
}

func newTestWaiter() *testWaiter {
	a := &testWaiter{}
	a.Owner = a
	return a
}

func (a *testWaiter) Filled(w *Waiter) {
	a.calls = append(a.calls, fmt.Sprintf("filled %s %v", w.Outputs[0].Data, w.Confidence))
}

func (a *testWaiter) Failed(_ *Waiter, code api.Code) {
	a.calls = append(a.calls, "failed "+code.String())
}

func (a *testWaiter) request(m *Model, salt string, inputs []api.Value) Outcome {
	return m.Request(m.Key([]byte(salt), inputs), []byte(salt), inputs, &a.Waiter)
}

// put fills an input that is not there.
func put(t *testing.T, m *Model, in, out string) {
	t.Helper()
	a := newTestWaiter()
	if o := a.request(m, "", one(in)); o != Lead {
		t.Fatalf("%s: got %v", in, o)
	}
	a.Fill(one(out), math.NaN())
}

// got requests an input, and fails the flight if the request leads.
func got(m *Model, in string) string {
	a := newTestWaiter()
	o := a.request(m, "", one(in))
	switch o {
	case Hit:
		return string(a.Outputs[0].Data)
	case Lead:
		a.Fail(api.Cancelled)
	case Wait:
		a.Cancel()
	}
	return "-" + o.String()
}

func small(t *testing.T) *Cache {
	c := newCache(64<<10, 1, 1)
	t.Cleanup(func() { c.check(t) })
	return c
}

func TestHitReturnsWhatWasFilled(t *testing.T) {
	m := small(t).Model()
	in := []api.Value{{Data: []byte("abc"), Dims: []int64{3}}, {Data: bytes.Repeat([]byte{7}, 1000)}, {Dims: []int64{0, 4}}}
	out := []api.Value{{Data: bytes.Repeat([]byte{9}, 300), Dims: []int64{2, 150}}, {Data: []byte{}}}
	a := newTestWaiter()
	if o := a.request(m, "salt", in); o != Lead {
		t.Fatalf("got %v", o)
	}
	a.Fill(out, 0.25)
	a.Outputs = []api.Value{{Data: make([]byte, 400)}, {Data: []byte("old"), Dims: []int64{1}}, {Data: []byte("more")}}
	buffer := &a.Outputs[0].Data[0]
	if o := a.request(m, "salt", in); o != Hit || !equalValues(a.Outputs, out) || a.Confidence != 0.25 {
		t.Fatalf("got %v: %v, %v", o, a.Outputs, a.Confidence)
	}
	if &a.Outputs[0].Data[0] != buffer {
		t.Error("the caller's buffer was not used")
	}
	b := newTestWaiter()
	if !m.Fetch(m.Key([]byte("salt"), in), []byte("salt"), in, &b.Waiter) || !equalValues(b.Outputs, out) {
		t.Errorf("Fetch found %v", b.Outputs)
	}
	if got, want := m.Stats(), (ModelStats{Hits: 1, Misses: 1}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// TestKeep: a prediction without a leader is kept, unless there is an entry already.
func TestKeep(t *testing.T) {
	c := small(t)
	m := c.Model()
	keep := func(in, out string) { m.Add(m.Key(nil, one(in)), nil, one(in), one(out), math.NaN()) }
	keep("a", "first")
	keep("a", "second")
	if g := got(m, "a"); g != "first" {
		t.Errorf("a is %q, want first", g)
	}
	leader, follower := newTestWaiter(), newTestWaiter()
	if a, b := leader.request(m, "", one("b")), follower.request(m, "", one("b")); a != Lead || b != Wait {
		t.Fatalf("got %v and %v", a, b)
	}
	keep("b", "kept")
	leader.Fill(one("filled"), math.NaN())
	if len(follower.calls) != 1 || got(m, "b") != "filled" {
		t.Errorf("the follower was called with %v, and %q is kept", follower.calls, got(m, "b"))
	}
	keep("c", strings.Repeat("x", 64<<10))
	if g := got(m, "c"); g != "-lead" {
		t.Errorf("an entry that is too large was kept: %.20q", g)
	}
	m.Drop()
	keep("d", "after the drop")
	if st := c.Stats(); st.Pending != 0 || st.Entries != 0 {
		t.Errorf("left over: %+v", st)
	}
}

func TestMissingConfidenceStaysNaN(t *testing.T) {
	m := small(t).Model()
	put(t, m, "in", "out")
	a := newTestWaiter()
	if o := a.request(m, "", one("in")); o != Hit || !math.IsNaN(a.Confidence) {
		t.Errorf("got %v with confidence %v", o, a.Confidence)
	}
}

// TestCollisionNeverAnswers: all inputs have the same key, and still no query gets another's prediction.
func TestCollisionNeverAnswers(t *testing.T) {
	c := small(t)
	c.testRekey = func(Key) Key { return Key{} }
	m, other := c.Model(), c.Model()
	put(t, m, "in", "out")
	for _, v := range []struct {
		name, salt string
		in         []api.Value
	}{
		{"other bytes", "", one("im")},
		{"fewer bytes", "", one("i")},
		{"more bytes", "", one("in ")},
		{"other salt", "s", one("in")},
		{"bytes moved into the salt", "i", one("n")},
		{"dimensions", "", []api.Value{{Data: []byte("in"), Dims: []int64{2}}}},
		{"two values", "", []api.Value{{Data: []byte("i")}, {Data: []byte("n")}}},
		{"an extra empty value", "", []api.Value{{Data: []byte("in")}, {}}},
		{"nothing", "", nil},
	} {
		a := newTestWaiter()
		before := c.Stats().Collisions
		if o := a.request(m, v.salt, v.in); o != Bypass {
			t.Errorf("%s: got %v %v", v.name, o, a.Outputs)
		}
		if m.Fetch(Key{}, []byte(v.salt), v.in, &a.Waiter) {
			t.Errorf("%s: fetched %v", v.name, a.Outputs)
		}
		if n := c.Stats().Collisions - before; n != 2 {
			t.Errorf("%s: %d collisions counted", v.name, n)
		}
	}
	if got := got(other, "in"); got != "-lead" {
		t.Errorf("another model got %s", got)
	}
	put(t, other, "in", "its own")
	if a, b := got(m, "in"), got(other, "in"); a != "out" || b != "its own" {
		t.Errorf("got %s and %s", a, b)
	}
	// A query does not wait for a flight of another input either.
	m3 := c.Model()
	leader, a := newTestWaiter(), newTestWaiter()
	leader.request(m3, "", one("first"))
	if o := a.request(m3, "", one("second")); o != Bypass {
		t.Errorf("beside a flight with the same key: %v", o)
	}
	leader.Fail(api.Cancelled)
}

func TestWaitersAreCalledOnce(t *testing.T) {
	for _, c := range []struct {
		name string
		end  func(*testWaiter)
		want string
		then string
	}{
		{"filled", func(a *testWaiter) { a.Fill(one("out"), 0.5) }, "filled out 0.5", "out"},
		{"failed", func(a *testWaiter) { a.Fail(api.ReplicaLost) }, "failed replica_lost", "-lead"},
		{"too large to keep", func(a *testWaiter) { a.Fill(one(strings.Repeat("x", 1<<20)), 1) }, "filled " + strings.Repeat("x", 1<<20) + " 1", "-lead"},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := small(t).Model()
			leader := newTestWaiter()
			leader.request(m, "", one("in"))
			var waiters []*testWaiter
			for range 5 {
				a := newTestWaiter()
				if o := a.request(m, "", one("in")); o != Wait {
					t.Fatalf("got %v", o)
				}
				waiters = append(waiters, a)
			}
			for _, i := range []int{0, 2, 4} { // first, middle, last
				if !waiters[i].Cancel() {
					t.Errorf("waiter %d could not cancel", i)
				}
			}
			if leader.Cancel() {
				t.Error("the leader could cancel its flight")
			}
			c.end(leader)
			for i, a := range waiters {
				if i%2 == 0 && len(a.calls) != 0 || i%2 == 1 && (len(a.calls) != 1 || a.calls[0] != c.want) {
					t.Errorf("waiter %d was called with %.40q", i, a.calls)
				}
				if a.Cancel() {
					t.Errorf("waiter %d could cancel afterwards", i)
				}
			}
			if len(leader.calls) != 0 {
				t.Errorf("the leader was called with %q", leader.calls)
			}
			if got := got(m, "in"); got != c.then {
				t.Errorf("afterwards: got %s, want %s", got, c.then)
			}
		})
	}
}

// retry requests again as soon as its flight fails.
type retry struct {
	Waiter
	model *Model
	now   Outcome
	calls int
}

func (*retry) Filled(*Waiter) {}
func (r *retry) Failed(w *Waiter, _ api.Code) {
	r.calls++
	r.now = r.model.Request(r.model.Key(nil, one("in")), nil, one("in"), w)
}

// TestWaitersShareWhatIsLarge: a hundred clients that wait for one large prediction do not take a hundred times its memory.
func TestWaitersShareWhatIsLarge(t *testing.T) {
	c := New(1 << 20)
	m := c.Model()
	for _, size := range []int{sharedFrom / 2, sharedFrom} {
		in := one(fmt.Sprint("input", size))
		lead, a, b := newTestWaiter(), newTestWaiter(), newTestWaiter()
		lead.request(m, "", in)
		for _, w := range []*testWaiter{a, b} {
			if o := w.request(m, "", in); o != Wait {
				t.Fatalf("%d bytes: got %v, want Wait", size, o)
			}
		}
		out := one(strings.Repeat("x", size))
		lead.Fill(out, 1)
		clear(out[0].Data) // the leader's buffer is its own again
		for _, w := range []*testWaiter{a, b} {
			if got := w.Outputs[0].Data; len(got) != size || got[0] != 'x' || got[size-1] != 'x' {
				t.Errorf("%d bytes: a waiter has %d bytes that begin with %q", size, len(got), got[:min(len(got), 4)])
			}
			if want := size >= sharedFrom; w.Shared != want {
				t.Errorf("%d bytes: shared %v, want %v", size, w.Shared, want)
			}
		}
		if same := &a.Outputs[0].Data[0] == &b.Outputs[0].Data[0]; same != a.Shared {
			t.Errorf("%d bytes: the same memory %v, shared %v", size, same, a.Shared)
		}
	}
}

func TestOneWaiterLeadsAfterFailure(t *testing.T) {
	m := small(t).Model()
	leader := newTestWaiter()
	leader.request(m, "", one("in"))
	var rs []*retry
	for range 3 {
		r := &retry{model: m}
		r.Owner = r
		m.Request(m.Key(nil, one("in")), nil, one("in"), &r.Waiter)
		rs = append(rs, r)
	}
	leader.Fail(api.ReplicaLost)
	if rs[0].now != Lead || rs[1].now != Wait || rs[2].now != Wait {
		t.Fatalf("got %v, %v, %v", rs[0].now, rs[1].now, rs[2].now)
	}
	rs[0].Fill(one("out"), 1)
	for i, r := range rs {
		if r.calls != 1 || i > 0 && string(r.Outputs[0].Data) != "out" {
			t.Errorf("waiter %d failed %d times, has %v", i, r.calls, r.Outputs)
		}
	}
}

func TestDrop(t *testing.T) {
	c := small(t)
	m, other := c.Model(), c.Model()
	for i := range 50 {
		put(t, m, fmt.Sprint("in ", i), "old")
		put(t, other, fmt.Sprint("in ", i), "other")
	}
	leader, waiter := newTestWaiter(), newTestWaiter()
	leader.request(m, "", one("late"))
	waiter.request(m, "", one("late"))
	m.Drop()
	if st := c.Stats(); st.Entries != 50 || st.Pending != 1 {
		t.Errorf("after the drop: %+v", st)
	}
	if got := got(m, "in 1"); got != "-bypass" {
		t.Errorf("a dropped model: got %s", got)
	}
	if a := newTestWaiter(); m.Fetch(m.Key(nil, one("in 1")), nil, one("in 1"), &a.Waiter) {
		t.Error("Fetch found an entry of a dropped model")
	}
	leader.Fill(one("out"), 1)
	if len(waiter.calls) != 1 || waiter.calls[0] != "filled out 1" {
		t.Errorf("the waiter of a dropped model was called with %q", waiter.calls)
	}
	if st := c.Stats(); st.Entries != 50 || st.Pending != 0 {
		t.Errorf("after the last flight: %+v", st)
	}
	m.Drop() // of a model that was dropped already: no effect
	fresh := c.Model()
	if got := got(fresh, "in 1"); got != "-lead" {
		t.Errorf("a model that was made after it: %s", got)
	}
	if got := got(other, "in 1"); got != "other" {
		t.Errorf("another model: %s", got)
	}
}

func TestTooLarge(t *testing.T) {
	c := small(t)
	m := c.Model()
	fits := c.maxEntryBytes - valueBytes
	for _, v := range []struct {
		name string
		in   []api.Value
		want Outcome
	}{
		{"the largest that fits", one(strings.Repeat("x", fits)), Lead},
		{"one byte more", one(strings.Repeat("x", fits+1)), Bypass},
		{"too many values", make([]api.Value, maxValues+1), Bypass},
	} {
		a := newTestWaiter()
		if o := a.request(m, "", v.in); o != v.want {
			t.Errorf("%s: got %v, want %v", v.name, o, v.want)
		} else if o == Lead {
			a.Fail(api.Cancelled)
		}
		if m.Fetch(m.Key(nil, v.in), nil, v.in, &a.Waiter) {
			t.Errorf("%s: fetched", v.name)
		}
	}
	if got, want := m.Stats(), (ModelStats{Misses: 1, Bypassed: 2}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	// An output is not kept if it has too many values or makes the entry too large.
	for i, out := range [][]api.Value{make([]api.Value, maxValues+1), one("xx")} {
		a := newTestWaiter()
		in := one(strings.Repeat("y", fits-1))
		if o := a.request(m, "", in); o != Lead {
			t.Fatalf("got %v", o)
		}
		a.Fill(out, 1)
		if m.Fetch(m.Key(nil, in), nil, in, &a.Waiter) {
			t.Errorf("output %d was kept, although too large", i)
		}
	}
}

func TestFlightsAreBounded(t *testing.T) {
	c := small(t)
	m := c.Model()
	s := &c.shards[0]
	var flights []*testWaiter
	for i := range s.maxInFlight {
		a := newTestWaiter()
		if o := a.request(m, "", one(fmt.Sprint(i))); o != Lead {
			t.Fatalf("flight %d: %v", i, o)
		}
		flights = append(flights, a)
	}
	if got := got(m, "one more"); got != "-bypass" {
		t.Errorf("one flight more than allowed: %s", got)
	}
	if got := got(m, "0"); got != "-wait" {
		t.Errorf("waiting for a flight: %s", got)
	}
	for _, a := range flights {
		a.Fail(api.Cancelled)
	}
	large := strings.Repeat("x", c.maxEntryBytes-valueBytes)
	for i := range 3 {
		a := newTestWaiter()
		o := a.request(m, "", one(fmt.Sprint(i)+large[1:]))
		if want := []Outcome{Lead, Lead, Bypass}[i]; o != want {
			t.Errorf("flight %d, of a quarter of the shard: %v, want %v", i, o, want)
		}
		if o == Lead {
			defer a.Fail(api.Cancelled)
		}
	}
}

func TestCacheWithoutRoomKeepsNothing(t *testing.T) {
	for _, n := range []int64{-1, 0, 1, 300, 700} {
		c := New(n)
		m := c.Model()
		for _, in := range [][]api.Value{nil, one(""), one("in")} {
			a := newTestWaiter()
			if o := a.request(m, "", in); o != Bypass {
				t.Errorf("%d bytes: got %v", n, o)
			}
			if m.Fetch(Key{}, nil, in, &a.Waiter) {
				t.Errorf("%d bytes: fetched", n)
			}
		}
		m.Drop()
		if st := c.Stats(); st != (Stats{}) {
			t.Errorf("%d bytes: %+v", n, st)
		}
	}
}

// TestMemoryBound: for any sizes, neither the kept bytes nor the allocated memory exceed the bound, and little of it is
// wasted.
func TestMemoryBound(t *testing.T) {
	for _, maxBytes := range []int64{10 << 10, 100_000, 1 << 20, 3 << 20} {
		c := newCache(maxBytes, 1, 1)
		m := c.Model()
		for i := range 10_000 {
			n := []int{0, 30, 300, 2000}[i*7%4]
			put(t, m, fmt.Sprint(i, strings.Repeat("x", min(n, c.maxEntryBytes/2))), "out")
			if st := c.Stats(); st.Bytes > maxBytes || st.HeldBytes > maxBytes || st.MaxBytes > maxBytes {
				t.Fatalf("%d bytes, entry %d: %+v", maxBytes, i, st)
			}
		}
		c.check(t)
		st := c.Stats()
		if st.Evicted == 0 || st.Bytes < maxBytes*8/10 || st.HeldBytes < maxBytes*9/10 {
			t.Errorf("%d bytes, at the end: %+v", maxBytes, st)
		}
	}
}

// TestOneBucket: entries that have the same bucket and tag are told apart, also those for which the bucket has no reference left.
func TestOneBucket(t *testing.T) {
	c := small(t)
	c.testRekey = func(k Key) Key { return Key{Hi: 1, Lo: k.Lo} }
	a, b := c.Model(), c.Model()
	const each = 3 * bucketRefs
	for i := range each {
		put(t, a, fmt.Sprint(i), fmt.Sprint("a", i))
		put(t, b, fmt.Sprint(i), fmt.Sprint("b", i))
	}
	found := func(m *Model, name string) {
		t.Helper()
		for i := range each {
			if got, want := got(m, fmt.Sprint(i)), fmt.Sprint(name, i); got != want {
				t.Errorf("%d is %q, want %q", i, got, want)
			}
		}
	}
	found(a, "a")
	found(b, "b")
	c.check(t)
	a.Drop()
	found(b, "b")
	if st := c.Stats(); st.Entries != each || st.Collisions != 0 {
		t.Errorf("after the drop of one model of two: %+v", st)
	}
}

// TestChainEnds: entries for which the bucket had no reference left take the places of those that go, so that look-ups do not read them.
func TestChainEnds(t *testing.T) {
	c := small(t)
	c.testRekey = func(k Key) Key { return Key{Hi: k.Hi & 0xffffffff, Lo: k.Lo} }
	m := c.Model()
	var leaders []*testWaiter
	for i := range bucketRefs {
		a := newTestWaiter()
		if o := a.request(m, "", one(fmt.Sprint("pending ", i))); o != Lead {
			t.Fatal(o)
		}
		leaders = append(leaders, a)
	}
	const chained = 2 * bucketRefs
	for i := range chained {
		put(t, m, fmt.Sprint(i), fmt.Sprint("out ", i))
	}
	c.check(t)
	for _, a := range leaders {
		a.Fail(api.Cancelled)
		c.check(t)
	}
	for i := range chained {
		if got, want := got(m, fmt.Sprint(i)), fmt.Sprint("out ", i); got != want {
			t.Errorf("%d is %q, want %q", i, got, want)
		}
	}
	m.Drop()
	if st := c.Stats(); st.Entries != 0 || st.Pending != 0 {
		t.Errorf("after the drop: %+v", st)
	}
}

func TestShardsAndSizes(t *testing.T) {
	for _, mebibytes := range []int64{1, 4, 32, 64, 256, 4096} {
		c := New(mebibytes << 20)
		st := c.Stats()
		if n := len(c.shards); n < 1 || n > maxShards || n&(n-1) != 0 || n > 1 && st.MaxBytes/int64(n) < minShardBytes-shardBytes-blockBytes {
			t.Errorf("%d MiB in %d shards", mebibytes, n)
		}
		if st.MaxBytes > mebibytes<<20 || st.MaxBytes < mebibytes<<20*99/100 {
			t.Errorf("%d MiB became %d bytes", mebibytes, st.MaxBytes)
		}
		if st.HeldBytes > st.MaxBytes/15 {
			t.Errorf("%d MiB: an empty cache holds %d bytes", mebibytes, st.HeldBytes)
		}
		m := c.Model()
		put(t, m, "in", "out")
		if got := got(m, "in"); got != "out" {
			t.Errorf("%d MiB: got %s", mebibytes, got)
		}
	}
	if c := New(64 << 20); c.maxEntryBytes < 600<<10 {
		t.Errorf("a picture of 600 KiB does not fit: entries are limited to %d bytes", c.maxEntryBytes)
	}
}

func TestMisusePanics(t *testing.T) {
	m := small(t).Model()
	done := newTestWaiter()
	done.request(m, "", one("in"))
	done.Fill(one("out"), 1)
	leader := newTestWaiter()
	leader.request(m, "", one("other"))
	for name, misuse := range map[string]func(){
		"Fill twice":            func() { done.Fill(one("out"), 1) },
		"Fail after Fill":       func() { done.Fail(api.Cancelled) },
		"Request while leading": func() { leader.request(m, "", one("third")) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			misuse()
		}()
	}
	leader.Fail(api.Cancelled)
	if newTestWaiter().Cancel() {
		t.Error("an unused waiter could cancel")
	}
}

// TestHandStepsAreBounded: if every entry was used, an eviction passes over maxHandSteps entries and evicts the next
// one.
func TestHandStepsAreBounded(t *testing.T) {
	c := small(t)
	m := c.Model()
	s := &c.shards[0]
	n := s.capacity
	if n < 3*maxHandSteps {
		t.Fatalf("the shard has only %d blocks", n)
	}
	for i := range n {
		put(t, m, fmt.Sprint(i), "out")
	}
	for range maxUses {
		for i := range n {
			if got := got(m, fmt.Sprint(i)); got != "out" {
				t.Fatalf("%d: %s", i, got)
			}
		}
	}
	put(t, m, "one more", "out")
	if got := s.queues[protected].blocks; got != maxHandSteps {
		t.Errorf("the hand passed over %d entries, want %d", got, maxHandSteps)
	}
	if st := c.Stats(); st.Evicted != 1 || st.Entries != n {
		t.Errorf("%+v", st)
	}
	if a, b := got(m, fmt.Sprint(maxHandSteps)), got(m, fmt.Sprint(maxHandSteps+1)); a == "out" || b != "out" {
		t.Errorf("the evicted entry: got %q; the next one: got %q", a, b)
	}
}

func TestSerialsAreNotReused(t *testing.T) {
	c := small(t)
	c.serials.Store(math.MaxUint32)
	defer func() {
		if recover() == nil {
			t.Error("a serial was reused")
		}
	}()
	c.Model()
}

func TestOutcomesHaveNames(t *testing.T) {
	if got := fmt.Sprint(Bypass, Hit, Lead, Wait, Outcome(9)); got != "bypass hit lead wait outcome(9)" {
		t.Error(got)
	}
}
