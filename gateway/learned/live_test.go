package learned

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/xebec-serving/xebec/gateway/selection"
)

// until waits for a condition that a goroutine of the table establishes.
func until(t testing.TB, what string, holds func() bool) {
	t.Helper()
	look, late := time.NewTicker(time.Millisecond), time.After(30*time.Second)
	defer look.Stop()
	for !holds() {
		select {
		case <-look.C:
		case <-late:
			t.Fatalf("timed out waiting until %s", what)
		}
	}
}

func closeTable(t testing.TB, table *Table) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := table.Close(ctx); err != nil {
		t.Error(err)
	}
}

// While a call to the store hangs, queries and feedback go on. Otherwise this test would not end.
func TestHangingStoreBlocksNothing(t *testing.T) {
	c := newFakeServer().connect()
	gate := make(chan struct{})
	c.gate = gate
	table := New(Config{Store: c, Flush: time.Millisecond, Contexts: 8})
	f := table.Declare("f", tally{}, []string{"a", "b"})
	for i := range 1000 {
		context := fmt.Sprint(i % 20)
		ask(f, context)
		loss(f, context, i%2, 0.5)
		f.Combine([]byte(context), &selection.Combination{Selected: selection.All(2), Answers: []selection.Answer{{Candidate: 0}}})
		f.Gains(make([]float64, 2))
		f.Report(3)
		if i%100 == 0 {
			f = table.Declare("f", tally{}, [][]string{{"a", "b"}, {"b", "a"}}[i/100%2])
		}
	}
	s := table.Stats()
	if s.Pending != 21 || s.LastSuccess != (time.Time{}) {
		t.Fatalf("got %+v: want twenty contexts and the global state pending, and no finished call", s)
	}
	c.set(func(c *fakeStore) { c.gate = nil })
	close(gate)
	until(t, "everything is written", func() bool { return table.Stats().Pending == 0 })
	if got := c.field(key("f", ""), "a/0") + c.field(key("f", ""), "b/0"); got != 1000 {
		t.Errorf("the store has %g losses: want 1000", got)
	}
	closeTable(t, table)
}

// Real goroutines, two gateways, evicted contexts, new declarations and a faulty store: every loss is counted once.
func TestGatewaysConvergeLive(t *testing.T) {
	server := newFakeServer()
	var stores [2]*fakeStore
	var tables [2]*Table
	for i := range tables {
		stores[i] = server.connect()
		tables[i] = newTable(Config{Store: stores[i], Contexts: 16, Flush: time.Millisecond, Refresh: time.Millisecond})
		tables[i].writer.minBackoff, tables[i].writer.maxBackoff = time.Millisecond, 5*time.Millisecond
		go tables[i].run()
	}
	const workers, rounds, contexts = 4, 500, 40
	layouts := [][]string{{"a", "b"}, {"b", "a"}}
	var all sync.WaitGroup
	var more atomic.Int64 // losses in addition to the workers'
	for g, table := range tables {
		table.Declare("f", tally{}, layouts[0])
		for w := range workers {
			all.Go(func() {
				for i := range rounds {
					// Usually the newest declaration, sometimes one that is replaced while in use.
					f := table.Declare("f", tally{}, layouts[(i/50)%2])
					context := fmt.Sprint((i*7 + w) % contexts)
					ask(f, context)
					loss(f, context, i%2, 0.5)
				}
			})
		}
		all.Go(func() {
			for i := range 20 {
				stores[g].set(func(c *fakeStore) { c.loseReply, c.applyHalf = i%2 == 0, i%2 == 1 })
				until(t, "the fault has happened", func() bool {
					loss(table.Declare("f", tally{}, layouts[0]), "0", 0, 0.5)
					more.Add(1)
					c := stores[g]
					c.mu.Lock()
					defer c.mu.Unlock()
					return !c.loseReply && !c.applyHalf
				})
			}
		})
	}
	all.Wait()
	for i, table := range tables {
		until(t, "everything is written", func() bool { return table.Stats().Pending == 0 })
		if s := table.Stats(); s.Contexts > 16 || s.Lost != 0 || s.Evicted == 0 || s.Errors != 20 {
			t.Errorf("got %+v: want at most 16 contexts, others evicted, nothing lost, and each fault counted", s)
		}
		closeTable(t, tables[i])
	}
	losses := float64(2*workers*rounds + more.Load())
	if got := server.field(key("f", ""), "a/0") + server.field(key("f", ""), "b/0"); got != losses {
		t.Errorf("the global state has %g losses, want %g", got, losses)
	}
	sum := 0.0
	for i := range contexts {
		for _, name := range []string{"a/0", "b/0"} {
			if v := server.field(key("f", fmt.Sprint(i)), name); !math.IsNaN(v) {
				sum += v
			}
		}
	}
	if sum != losses {
		t.Errorf("the contexts have %g losses, want %g", sum, losses)
	}
}

func TestFollowsLive(t *testing.T) {
	server := newFakeServer()
	a := New(Config{Store: server.connect(), Flush: time.Millisecond})
	b := New(Config{Store: server.connect(), Refresh: time.Millisecond})
	f, g := a.Declare("f", tally{}, []string{"a", "b"}), b.Declare("f", tally{}, []string{"a", "b"})
	ask(g, "ann")
	loss(f, "ann", 0, 0.5)
	until(t, "the other gateway also prefers the second candidate", func() bool { return ask(g, "ann").Has(1) && ask(g, "").Has(1) })
	a.Forget("f")
	closeTable(t, a)
	if len(server.states) != 0 {
		t.Errorf("the store still has %v", server.states)
	}
	closeTable(t, b)
}

func TestClose(t *testing.T) {
	t.Run("writes what is left", func(t *testing.T) {
		c := newFakeServer().connect()
		table := New(Config{Store: c, Flush: time.Hour})
		f := table.Declare("f", tally{}, []string{"a"})
		loss(f, "ann", 0, 0.5)
		closeTable(t, table)
		near(t, "ann, in the store", []float64{c.field(key("f", "ann"), "a/2")}, 0.5)
		loss(f, "ann", 0, 0.25) // has no effect on the store and does no harm
		near(t, "ann, here", weights(f, "ann"), 0.25)
	})
	t.Run("reports what it could not write", func(t *testing.T) {
		c := newFakeServer().connect()
		c.away = true
		table := New(Config{Store: c, Flush: time.Hour})
		loss(table.Declare("f", tally{}, []string{"a"}), "ann", 0, 0.5)
		err := table.Close(t.Context())
		if !errors.Is(err, errAway) || !strings.Contains(err.Error(), "2 states") || !strings.Contains(err.Error(), "the fake store") {
			t.Errorf("got %v: want the number of states, the store and the reason", err)
		}
	})
	t.Run("does not wait for a store that hangs", func(t *testing.T) {
		c := newFakeServer().connect()
		c.gate = make(chan struct{})
		table := New(Config{Store: c, Flush: time.Millisecond})
		loss(table.Declare("f", tally{}, []string{"a"}), "ann", 0, 0.5)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := table.Close(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v, want context.Canceled", err)
		}
	})
	t.Run("without a store", func(t *testing.T) {
		if err := New(Config{}).Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// A table whose store comes later calls nothing before Begin, and has read the store when Begin returns.
func TestStoreThatComesLater(t *testing.T) {
	server := newFakeServer()
	first := New(Config{Store: server.connect(), Flush: time.Millisecond})
	loss(first.Declare("f", tally{}, []string{"a", "b"}), "", 0, 0.5)
	closeTable(t, first)

	table := New(Config{Store: server.connect(), Flush: time.Millisecond, Later: true})
	f := table.Declare("f", tally{}, []string{"a", "b"})
	near(t, "before the store is there", weights(f, ""), 1, 1)
	if s := table.Stats(); !s.LastSuccess.IsZero() || s.Errors != 0 {
		t.Errorf("got %+v: want no call before Begin", s)
	}
	if err := table.Begin(); err != nil {
		t.Fatal(err)
	}
	near(t, "after Begin", weights(f, ""), 0.5, 1)
	closeTable(t, table)
	closeTable(t, New(Config{Store: server.connect(), Later: true})) // it never began: there is nothing to write
}

// Reread takes in what another writer has added, for the function and for every context in memory, where nothing else would.
func TestReread(t *testing.T) {
	server := newFakeServer()
	tables, functions := [2]*Table{}, [2]*Function{}
	for i := range tables {
		tables[i] = New(Config{Store: server.connect(), Flush: time.Millisecond, Refresh: -1})
		functions[i] = tables[i].Declare("f", tally{}, []string{"a", "b"})
		ask(functions[i], "ann")
		until(t, "the states are read", func() bool { return tables[i].Stats().Loads == 2 })
	}
	loss(functions[1], "ann", 0, 0.5)
	closeTable(t, tables[1])
	tables[0].Reread()
	until(t, "the states are read again", func() bool { return tables[0].Stats().Refreshes >= 2 })
	near(t, "global", weights(functions[0], ""), 0.5, 1)
	near(t, "ann", weights(functions[0], "ann"), 0.5, 1)
	closeTable(t, tables[0])
}
