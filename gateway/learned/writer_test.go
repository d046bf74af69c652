package learned

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/xebec-serving/xebec/gateway/internal/state"
)

func key(function, context string) state.Key {
	return state.Key{Function: function, Policy: "tally", Context: context}
}

func TestWrittenBehind(t *testing.T) {
	c := newFakeServer().connect()
	table := newManualTable(Config{Store: c})
	f := table.Declare("f", tally{}, []string{"a", "b"})
	table.advance(0) // the store's state is read first
	loss(f, "ann", 0, 0.25)
	loss(f, "ann", 0, 0.25)
	table.advance(DefaultSharedFlush / 2)
	if c.merges != 0 || table.Stats().Pending != 2 {
		t.Fatalf("%d merges before the flush, %+v: want none, and the context and the global state pending", c.merges, table.Stats())
	}
	table.advance(DefaultSharedFlush)
	if s := table.Stats(); c.merges != 1 || s.Pending != 0 || s.Flushes != 1 || s.Unavailable || s.LastError != "" {
		t.Fatalf("%d merges, %+v: want one for both states, and nothing pending", c.merges, s)
	}
	for _, context := range []string{"", "ann"} {
		near(t, "weights in the store", []float64{c.field(key("f", context), "a/2"), c.field(key("f", context), "b/2")}, 0.5, 1)
	}
	// The store has everything: from now on only the row with new learning is sent.
	c.sent = 0
	loss(f, "ann", 1, 0.25)
	table.advance(DefaultSharedFlush)
	near(t, "ann", weights(f, "ann"), 0.5, 0.75)
	if want := 2 * (slotWeight + 1); c.sent != want {
		t.Errorf("%d numbers were sent, want %d: a row of each of two states", c.sent, want)
	}
	// With no queries there are no calls to the store but a rare one.
	table.advance(time.Second)
	before := c.loads + c.merges
	if wake := table.step(table.clock); wake.Before(table.clock().Add(idleRefresh*DefaultRefresh/2)) || c.loads+c.merges != before {
		t.Errorf("idle, the writer wants to wake at %v and has made %d calls: want after 5 s, none", wake, c.loads+c.merges-before)
	}
}

func TestFeedbackThatCancelsOutIsNotSent(t *testing.T) {
	c := newFakeServer().connect()
	table := newManualTable(Config{Store: c, Contexts: 1})
	f := table.Declare("f", tally{}, []string{"a"})
	ask(f, "ann")
	table.advance(0)
	s := &(*f.states.shards.Load())[0]
	for _, d := range []float64{1, -1} {
		s.mu.Lock()
		f.states.learn(s, s.newest, []float64{0, 0, d})
		s.mu.Unlock()
	}
	ask(f, "bob") // ann is evicted, and kept for her unsent deltas
	table.advance(DefaultSharedFlush)
	if st := table.Stats(); c.merges != 0 || st.Pending != 0 || s.count != 1 {
		t.Errorf("%d merges, %+v, %d entries: want none, nothing pending, and only bob's entry", c.merges, st, s.count)
	}
}

func TestNewContextIsLoadedInBackground(t *testing.T) {
	server := newFakeServer()
	server.put(key("f", "ann"), "a", 4, 3, -2)
	server.put(key("f", "ann"), "b", 4, 1, 0)
	c := server.connect()
	table := newManualTable(Config{Store: c})
	f := table.Declare("f", tally{}, []string{"a", "b"})

	// She starts at once from the function's state, and learns.
	loss(f, "ann", 1, 0.5)
	near(t, "before the store has answered", weights(f, "ann"), 1, 0.5)
	table.advance(0)
	near(t, "the store's state plus what was learned meanwhile", weights(f, "ann"), -2, -0.5)
	if c.merges != 0 {
		t.Error("something was written before the flush was due")
	}
	table.advance(DefaultSharedFlush)
	near(t, "after the flush", weights(f, "ann"), -2, -0.5)
	near(t, "the store", []float64{c.field(key("f", "ann"), "a/2"), c.field(key("f", "ann"), "b/2")}, -2, -0.5)
}

func TestEvictedContextLivesInTheStore(t *testing.T) {
	c := newFakeServer().connect()
	table := newManualTable(Config{Store: c, Contexts: 2, Refresh: -1})
	f := table.Declare("f", tally{}, []string{"a"})
	for i := range 10 {
		loss(f, fmt.Sprint(i), 0, float64(i)/100) // starts from what the function has learned from the others
	}
	if s := table.Stats(); s.Contexts != 2 || s.Evicted != 8 || s.Pending != 11 {
		t.Fatalf("got %+v: want 2 in memory, and all ten and the global state pending", s)
	}
	// A context that returns before it is written has lost nothing.
	ask(f, "3")
	near(t, "3", weights(f, "3"), 1-0.06)
	table.advance(DefaultSharedFlush)
	if s := &(*f.states.shards.Load())[0]; s.count != 2 || s.ledgerLen != 0 {
		t.Fatalf("%d entries and %d ledgers are left after the flush: want 2, 0", s.count, s.ledgerLen)
	}
	ask(f, "7")
	table.advance(0)
	near(t, "7, from the store", weights(f, "7"), 1-0.28)
	if table.Stats().Pending != 0 {
		t.Error("reading makes a state pending")
	}
}

func TestStoreIsAway(t *testing.T) {
	c := newFakeServer().connect()
	table := newManualTable(Config{Store: c, MaxPending: 4})
	f := table.Declare("f", tally{}, []string{"a"})
	for i := range 8 {
		ask(f, fmt.Sprint(i))
	}
	table.advance(0)
	c.away = true
	for i := range 8 {
		loss(f, fmt.Sprint(i), 0, 0.5)
		loss(f, fmt.Sprint(i), 0, 0.5)
	}
	merges := c.merges
	table.advance(time.Minute)
	s := table.Stats()
	if s.Pending != 4 || s.Lost != 10 || !s.Unavailable || !strings.Contains(s.LastError, "away") || s.Errors == 0 {
		t.Errorf("got %+v: want three contexts and the global state pending, ten deltas of five other contexts lost, and the error", s)
	}
	if tries := c.merges - merges; tries < 12 || tries > 25 {
		t.Errorf("the store was called %d times in a minute: want a backoff of up to 5 s", tries)
	}
	near(t, "7, which learns in memory", weights(f, "7"), -7)
	c.away = false
	table.advance(maxBackoff)
	if s := table.Stats(); s.Pending != 0 || s.Unavailable {
		t.Errorf("got %+v: want nothing pending when the store is back", s)
	}
	near(t, "0, in the store", []float64{c.field(key("f", "0"), "a/2")}, 0)
	near(t, "global, in the store", []float64{c.field(key("f", ""), "a/2")}, 1-16*0.5)
	// There is room again.
	loss(f, "7", 0, 0.5)
	table.advance(DefaultSharedFlush)
	if s := table.Stats(); s.Lost != 10 || s.Pending != 0 {
		t.Errorf("got %+v: want nothing more lost", s)
	}
}

func TestLostReplyCountsOnce(t *testing.T) {
	for _, fault := range []string{"reply lost", "half applied"} {
		t.Run(fault, func(t *testing.T) {
			c := newFakeServer().connect()
			table := newManualTable(Config{Store: c, Refresh: time.Millisecond})
			f := table.Declare("f", tally{}, []string{"a"})
			table.advance(0)
			loss(f, "ann", 0, 0.5)
			c.loseReply, c.applyHalf = fault == "reply lost", fault == "half applied"
			table.advance(DefaultSharedFlush)
			if s := table.Stats(); s.Errors != 1 || s.Pending != 2 {
				t.Fatalf("got %+v: want an error, and both states pending", s)
			}
			loss(f, "ann", 0, 0.25) // collects behind the update in flight
			near(t, "meanwhile", weights(f, "ann"), 0.25)
			table.advance(time.Second)
			for _, context := range []string{"", "ann"} {
				near(t, "here", weights(f, context), 0.25)
				near(t, "in the store", []float64{c.field(key("f", context), "a/0"), c.field(key("f", context), "a/2")}, 2, 0.25)
			}
			if s := table.Stats(); s.Pending != 0 {
				t.Errorf("got %+v: want nothing pending", s)
			}
		})
	}
}

func TestPredictingGatewayFollows(t *testing.T) {
	server := newFakeServer()
	writes, reads := newManualTable(Config{Store: server.connect()}), newManualTable(Config{Store: server.connect()})
	f, g := writes.Declare("f", tally{}, []string{"a", "b"}), reads.Declare("f", tally{}, []string{"a", "b"})
	ask(g, "ann")
	reads.advance(0)
	loss(f, "ann", 0, 0.5)
	writes.advance(DefaultSharedFlush)
	near(t, "before the refresh", weights(g, "ann"), 1, 1)
	ask(g, "ann")
	reads.advance(DefaultRefresh)
	near(t, "after it", weights(g, "ann"), 0.5, 1)
	near(t, "the global state", weights(g, ""), 0.5, 1)
	if s := reads.Stats(); s.Refreshes != 2 {
		t.Errorf("%d states were refreshed, want 2", s.Refreshes)
	}
	// A function that is not asked follows more slowly.
	loss(f, "ann", 0, 0.25)
	writes.advance(DefaultSharedFlush)
	reads.advance(DefaultRefresh)
	near(t, "not asked", peek(g, "")[:2], 1, 0.5)
	reads.advance(idleRefresh * DefaultRefresh)
	near(t, "not asked for long", peek(g, "")[:2], 2, 0.75)
	// A file has no other writer: it is not read again.
	c := newFakeServer().connect()
	c.shared = false
	alone := newManualTable(Config{Store: c, Refresh: time.Millisecond})
	h := alone.Declare("f", tally{}, []string{"a"})
	alone.advance(0)
	before := c.loads
	ask(h, "")
	alone.advance(time.Second)
	if c.loads != before {
		t.Error("a store that is not shared was read again")
	}
}

func TestStoreThatLostItsDataIsRefilled(t *testing.T) {
	c := newFakeServer().connect()
	table := newManualTable(Config{Store: c})
	f := table.Declare("f", tally{}, []string{"a", "b"})
	table.advance(0)
	loss(f, "", 0, 0.5)
	loss(f, "", 1, 0.25)
	table.advance(DefaultSharedFlush)
	clear(c.states)
	for range 2 { // the first answer shows what is missing, the second update writes it
		loss(f, "", 0, 0.125)
		table.advance(DefaultSharedFlush)
	}
	near(t, "here", weights(f, ""), 0.25, 0.75)
	near(t, "in the store", []float64{c.field(key("f", ""), "a/2"), c.field(key("f", ""), "b/2")}, 0.25, 0.75)
}

func TestForget(t *testing.T) {
	c := newFakeServer().connect()
	table := newManualTable(Config{Store: c})
	f := table.Declare("f", tally{}, []string{"a"})
	loss(f, "ann", 0, 0.5)
	table.advance(DefaultSharedFlush)
	loss(f, "ann", 0, 0.25)
	c.loseReply = true
	table.advance(DefaultSharedFlush) // an update is in flight when the function is deleted
	c.away = true
	table.Forget("f")
	// A function of that name that is declared while the store is down must not find the old one's state.
	f = table.Declare("f", tally{}, []string{"a"})
	loss(f, "ann", 0, 0.125)
	table.advance(time.Second)
	near(t, "while the store is away", weights(f, "ann"), 0.875)
	if s := table.Stats(); s.Pending != 2 || s.Contexts != 1 {
		t.Errorf("got %+v: want the two new states pending", s)
	}
	c.away = false
	table.advance(maxBackoff)
	table.advance(time.Second)
	near(t, "when it is back", weights(f, "ann"), 0.875)
	near(t, "in the store", []float64{c.field(key("f", "ann"), "a/2")}, 0.875)
	if len(c.forgotten) != 1 {
		t.Errorf("the store was told to forget %v, want f once", c.forgotten)
	}
}

// A single refused state is kept in memory, does not block others, and is written when the refusal ends.
func TestRefusedState(t *testing.T) {
	for _, refused := range []string{"5", ""} {
		t.Run("context "+refused, func(t *testing.T) {
			server := newFakeServer()
			for i := range 9 {
				server.put(key("f", fmt.Sprint(i)), "a", 0, 0, float64(-i))
			}
			c := server.connect()
			c.refuse = func(k state.Key) bool { return k == key("f", refused) }
			table := newManualTable(Config{Store: c})
			f := table.Declare("f", tally{}, []string{"a"})
			for i := range 9 {
				loss(f, fmt.Sprint(i), 0, 0.5)
			}
			before := weights(f, refused)
			table.advance(DefaultSharedFlush)
			for i := range 9 {
				if context := fmt.Sprint(i); context != refused {
					near(t, context, []float64{c.field(key("f", context), "a/2")}, float64(-i)-0.5)
				}
			}
			near(t, "the refused state, here", weights(f, refused), before...)
			if s := table.Stats(); s.Pending != 0 || s.Lost != 1 || s.Refused != 2 || s.Errors != 0 || s.Unavailable || !strings.Contains(s.LastError, "something else lies there") {
				t.Errorf("got %+v: want nothing pending, one delta lost, and two refusals: of a read and of a write", s)
			}
			delete(server.states, key("f", refused))
			c.refuse = nil
			loss(f, refused, 0, 0.25)
			table.advance(DefaultSharedFlush)
			near(t, "when the refusal has ended", []float64{c.field(key("f", refused), "a/2")}, before[0]-0.25)
		})
	}
}

// A store that is too slow for large calls gets smaller ones.
func TestGroupsShrinkAndGrow(t *testing.T) {
	c := newFakeServer().connect()
	table := newManualTable(Config{Store: &narrowStore{c, 10}})
	f := table.Declare("f", tally{}, []string{"a"})
	for i := range 100 {
		loss(f, fmt.Sprint(i), 0, 0.5)
	}
	table.advance(time.Minute)
	if s := table.Stats(); s.Pending != 0 || s.Loads != 101 || s.Errors == 0 {
		t.Errorf("got %+v: want all read and written, after a few errors", s)
	}
}

// narrowStore fails calls about too many states.
type narrowStore struct {
	*fakeStore
	most int
}

func (n *narrowStore) Merge(ctx context.Context, updates []state.Update) ([][]state.Total, error) {
	if len(updates) > n.most {
		return nil, context.DeadlineExceeded
	}
	return n.fakeStore.Merge(ctx, updates)
}

func (n *narrowStore) Load(ctx context.Context, asked []state.Key) ([][]state.Total, error) {
	if len(asked) > n.most {
		return nil, context.DeadlineExceeded
	}
	return n.fakeStore.Load(ctx, asked)
}

// A context that is only in the store when a new version is declared inherits there too, and so does one that learns
// before it is read.
func TestNewVersionInheritsFromTheStore(t *testing.T) {
	server := newFakeServer()
	server.put(key("f", "ann"), "m@1", 4, 3, -2)
	server.put(key("f", "ann"), "m@0", 9, 9, -9)
	server.put(key("f", "ann"), "b", 4, 1, 0)
	c := server.connect()
	table := newManualTable(Config{Store: c})
	f := table.Declare("f", tally{}, []string{"m@2", "b", "new"})
	loss(f, "ann", 0, 0.5)
	table.advance(DefaultSharedFlush)
	near(t, "ann", weights(f, "ann"), -2.5, 0, -1) // joins at the mean of -2 and 0
	near(t, "in the store", []float64{
		c.field(key("f", "ann"), "m@2/0"), c.field(key("f", "ann"), "m@2/2"), c.field(key("f", "ann"), "new/2"), c.field(key("f", "ann"), "m@1/2"),
	}, 5, -2.5, -1, -2)

	// Rows of other models contribute nothing.
	server.put(key("f", "bob"), "x", 4, 3, -2)
	ask(f, "bob")
	table.advance(0)
	near(t, "bob", weights(f, "bob"), weights(f, "")...)
}

// Candidates change while one update is in flight and other deltas wait behind it.
func TestDeclareWhileUpdatesAreUnderWay(t *testing.T) {
	c := newFakeServer().connect()
	table := newManualTable(Config{Store: c, Contexts: 1})
	f := table.Declare("f", tally{}, []string{"m@1", "b"})
	table.advance(0)
	loss(f, "ann", 0, 0.5)
	loss(f, "ann", 1, 0.25)
	ask(f, "bob") // ann has been evicted, and is kept for her unsent deltas
	c.loseReply = true
	table.advance(DefaultSharedFlush)
	loss(f, "ann", 1, 0.125)
	near(t, "ann before", weights(f, "ann"), 0.5, 0.625)
	ask(f, "bob")

	f = table.Declare("f", tally{}, []string{"b", "m@2"})
	near(t, "ann after", weights(f, "ann"), 0.625, 0.5)
	near(t, "global after", weights(f, ""), 0.625, 0.5)
	loss(f, "ann", 1, 0.0625)
	if s := table.Stats(); s.Pending != 2 {
		t.Errorf("got %+v: want ann's and the global state pending", s)
	}
	table.advance(time.Second)
	table.advance(time.Second)
	for _, context := range []string{"", "ann"} {
		near(t, "here", weights(f, context), 0.625, 0.4375)
		near(t, "in the store", []float64{
			c.field(key("f", context), "b/0"), c.field(key("f", context), "b/2"), c.field(key("f", context), "m@2/0"), c.field(key("f", context), "m@2/2"), c.field(key("f", context), "m@1/2"),
		}, 2, 0.625, 2, 0.4375, 0.5)
	}
	if s := table.Stats(); s.Pending != 0 {
		t.Errorf("got %+v: want nothing pending", s)
	}

	// A rollback finds what the first version had learned.
	f = table.Declare("f", tally{}, []string{"b", "m@1"})
	loss(f, "ann", 0, 0.125)
	table.advance(time.Second)
	near(t, "after the rollback", weights(f, "ann"), 0.5, 0.5)
}

func TestReturningPolicyFindsItsStates(t *testing.T) {
	c := newFakeServer().connect()
	table := newManualTable(Config{Store: c})
	f := table.Declare("f", tally{}, []string{"a"})
	loss(f, "ann", 0, 0.5)
	table.advance(DefaultSharedFlush)
	f = table.Declare("f", tally{name: "other"}, []string{"a"})
	near(t, "another policy", weights(f, ""), 1)
	table.advance(0)
	near(t, "another policy, when it is read", weights(f, ""), 1)
	f = table.Declare("f", tally{}, []string{"a"})
	ask(f, "ann")
	table.advance(0)
	near(t, "the first again", weights(f, ""), 0.5)
	near(t, "and its context", weights(f, "ann"), 0.5)
}

func TestNonFiniteNumbersInTheStoreAreIgnored(t *testing.T) {
	server := newFakeServer()
	server.put(key("f", ""), "a", 4, 3, -2)
	server.states[key("f", "")]["a/2"] = server.states[key("f", "")]["a/1"] / 0.0000000 // +Inf
	table := newManualTable(Config{Store: server.connect()})
	f := table.Declare("f", tally{}, []string{"a"})
	table.advance(0)
	near(t, "global", peek(f, ""), 4, 3, 1)
}

// hookStore calls a function during the next load, once.
type hookStore struct {
	*fakeStore
	during func()
}

func (h *hookStore) Load(ctx context.Context, asked []state.Key) ([][]state.Total, error) {
	if do := h.during; do != nil {
		h.during = nil
		do()
	}
	return h.fakeStore.Load(ctx, asked)
}

// A function is deleted and declared again while the writer reads for another one. The new function must not be read
// before the store has deleted the old one's states.
func TestForgetWhileReading(t *testing.T) {
	server := newFakeServer()
	server.put(key("f", ""), "a", 4, 3, -2)
	h := &hookStore{fakeStore: server.connect()}
	table := newManualTable(Config{Store: h})
	table.Declare("g", tally{}, []string{"a"})
	var f *Function
	h.during = func() {
		table.Forget("f")
		f = table.Declare("f", tally{}, []string{"a"})
		table.takeNotes() // as if the declaration had come just before the step
	}
	table.advance(DefaultSharedFlush)
	near(t, "the new function", weights(f, ""), 1)
	loss(f, "", 0, 0.5)
	table.advance(DefaultSharedFlush)
	near(t, "the new function, in the store", []float64{server.field(key("f", ""), "a/2")}, 0.5)
}

// A context appears and learns after the writer has read and before it collects updates.
func TestNothingIsSentBeforeFirstRead(t *testing.T) {
	server := newFakeServer()
	server.put(key("f", "ann"), "m@1", 4, 3, -2)
	h := &hookStore{fakeStore: server.connect()}
	table := newManualTable(Config{Store: h})
	f := table.Declare("f", tally{}, []string{"m@2"})
	table.advance(0)
	loss(f, "bob", 0, 0.5)
	table.at = table.at.Add(time.Second)
	table.writer.flushAt = table.at // due in the step that reads for bob
	h.during = func() { loss(f, "ann", 0, 0.25) }
	table.advance(0)
	if h.merges != 1 {
		t.Fatalf("%d merges, want one, in the step that read", h.merges)
	}
	table.advance(DefaultSharedFlush)
	near(t, "ann's second version, in the store", []float64{server.field(key("f", "ann"), "m@2/0"), server.field(key("f", "ann"), "m@2/2")}, 5, -2.25)
}

// While an update is in flight, a total that is read may or may not include it.
func TestReadWhileUpdateInFlight(t *testing.T) {
	l := newLayout(tally{}, []string{"a"})
	led, value, inFlight := ledgerIn(make([]float64, 9)), []float64{0, 0, 1}, true
	led.open(value)
	led.delta[2] = -0.5
	led.startFlight()
	led.sum(value)
	h := replyTarget{value: value, ledger: led, inFlight: &inFlight}
	totals := []state.Total{{Name: "a/0", Value: 0}, {Name: "a/1", Value: 0}, {Name: "a/2", Value: 0.5}}
	if applied, _, _ := l.applyReply(h, totals, refreshed); applied || !inFlight {
		t.Error("the total was applied")
	}
	near(t, "value", value, 0, 0, 0.5)
	if applied, found, complete := l.applyReply(h, totals, merged); !applied || !found || !complete || inFlight || !led.settled() {
		t.Error("the answer was not applied")
	}
	near(t, "value", value, 0, 0, 0.5)
}
