package learned

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func exported(t *testing.T, table *manualTable, which Which) *Export {
	t.Helper()
	e, err := table.export(context.Background(), "f", which)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func replaced(t *testing.T, table *manualTable, e Edit, want int) {
	t.Helper()
	if n, err := table.replace(context.Background(), "f", e); err != nil || n != want {
		t.Fatalf("%d states are replaced: want %d (%v)", n, want, err)
	}
}

// taught is a function with a global state and two contexts, one of which has left memory.
func taught(table *manualTable) *Function {
	f := table.Declare("f", tally{}, []string{"a", "b"})
	loss(f, "ann", 0, 0.1)
	table.advance(DefaultFileFlush)
	loss(f, "bob", 1, 1.0/3)
	loss(f, "bob", 1, 0.7)
	return f
}

// What is exported is the same wherever it comes from, and what is imported is what was exported, to the last bit.
func TestExportAndImport(t *testing.T) {
	store := newFakeServer().connect()
	for what, cfg := range map[string]Config{"memory": {}, "store": {Store: store}, "store, one context in memory": {Store: newFakeServer().connect(), Contexts: 1}} {
		t.Run(what, func(t *testing.T) {
			table := newManualTable(cfg)
			taught(table)
			all := exported(t, table, Which{All: true})
			want := []Saved{
				{"", [][]float64{{1, 0.1, 0.9}, {2, 1.0/3 + 0.7, 1 - 1.0/3 - 0.7}}},
				{"ann", [][]float64{{1, 0.1, 0.9}, {0, 0, 1}}},
				{"bob", [][]float64{{0, 0, 0.9}, {2, 1.0/3 + 0.7, 1 - 1.0/3 - 0.7}}},
			}
			if diff := cmp.Diff(want, all.States, cmpopts.EquateApprox(0, 1e-15)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(all.States[:1], exported(t, table, Which{}).States); diff != "" {
				t.Errorf("the global state (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(all.States[1:2], exported(t, table, Which{Context: "ann"}).States); diff != "" {
				t.Errorf("one context (-want +got):\n%s", diff)
			}
			if _, err := table.export(context.Background(), "f", Which{Context: "cid"}); !errors.Is(err, ErrNoContext) {
				t.Errorf("a context without a state: %v", err)
			}
			if _, err := table.export(context.Background(), "f", Which{All: true, Most: 2}); !errors.Is(err, ErrTooMany) {
				t.Errorf("three states where two are allowed: %v", err)
			}

			other := newManualTable(Config{Store: newFakeServer().connect()})
			g := other.Declare("f", tally{}, []string{"a", "b"})
			loss(g, "bob", 0, 0.3) // of what was learned here nothing is left
			loss(g, "cid", 0, 0.9)
			replaced(t, other, Edit{States: all.States, Others: true}, 4)
			got := exported(t, other, Which{All: true})
			if diff := cmp.Diff(all.States, got.States[:3]); diff != "" {
				t.Errorf("after the import (-want +got):\n%s", diff)
			}
			near(t, "cid, reset to the global state", weights(g, "cid"), all.States[0].Rows[0][2], all.States[0].Rows[1][2])
			ask(g, "ann")
			other.advance(DefaultRefresh) // it is read
			if ask(g, "ann") != ask(g, "bob")^3 {
				t.Error("ann and bob are asked the same candidate: their states differ")
			}
		})
	}
}

func TestReset(t *testing.T) {
	for what, cfg := range map[string]Config{"memory": {}, "store": {Store: newFakeServer().connect()}} {
		t.Run(what, func(t *testing.T) {
			table := newManualTable(cfg)
			f := taught(table)
			replaced(t, table, Edit{States: []Saved{{Context: "cid"}}}, 0)
			replaced(t, table, Edit{States: []Saved{{Context: "ann"}}}, 1)
			near(t, "ann, from the global state", weights(f, "ann"), 0.9, 1-1.0/3-0.7)
			near(t, "bob, unchanged", weights(f, "bob"), 0.9, 1-1.0/3-0.7)
			replaced(t, table, Edit{States: []Saved{{}}}, 1)
			near(t, "global", peek(f, ""), 0, 0, 1, 0, 0, 1)
			near(t, "bob, unchanged", peek(f, "bob"), 0, 0, 0.9, 2, 1.0/3+0.7, 1-1.0/3-0.7)
			if table.store == nil {
				replaced(t, table, Edit{States: []Saved{{}}, Others: true}, 2) // ann follows the global state
			} else {
				replaced(t, table, Edit{States: []Saved{{}}, Others: true}, 3)
			}
			near(t, "bob", peek(f, "bob"), 0, 0, 1, 0, 0, 1)
			loss(f, "bob", 0, 0.25)
			near(t, "bob learns again", weights(f, "bob"), 0.75, 1)
		})
	}
}

// A gateway that shares the store follows, and what it has learned and not yet sent is kept.
func TestResetOfTwoGateways(t *testing.T) {
	server := newFakeServer()
	a, b := newManualTable(Config{Store: server.connect()}), newManualTable(Config{Store: server.connect()})
	f, g := a.Declare("f", tally{}, []string{"a", "b"}), b.Declare("f", tally{}, []string{"a", "b"})
	for range 3 {
		loss(f, "ann", 0, 0.1)
		loss(g, "ann", 1, 0.2)
	}
	a.advance(DefaultRefresh)
	b.advance(DefaultRefresh)
	loss(g, "ann", 0, 0.5) // not sent
	replaced(t, a, Edit{States: []Saved{{}}, Others: true}, 2)
	ask(g, "ann")
	b.advance(DefaultRefresh)
	ask(f, "ann")
	a.advance(DefaultRefresh)
	for name, f := range map[string]*Function{"a": f, "b": g} {
		near(t, name+": global", peek(f, ""), 1, 0.5, 0.5, 0, 0, 1)
		near(t, name+": ann", peek(f, "ann"), 1, 0.5, 0.5, 0, 0, 1)
	}
}

// What is exported has what another gateway has written, also where the function is not asked.
func TestExportOfAnIdleGateway(t *testing.T) {
	server := newFakeServer()
	a, b := newManualTable(Config{Store: server.connect()}), newManualTable(Config{Store: server.connect()})
	f := a.Declare("f", tally{}, []string{"a", "b"})
	b.Declare("f", tally{}, []string{"a", "b"})
	b.advance(0)
	loss(f, "ann", 0, 0.25)
	a.advance(DefaultSharedFlush)
	if diff := cmp.Diff(exported(t, a, Which{All: true}), exported(t, b, Which{All: true})); diff != "" {
		t.Errorf("(-the gateway that is asked +the other one):\n%s", diff)
	}
}

// The row of a candidate that was removed is reset, too: it would be found again.
func TestResetForgetsRemovedCandidates(t *testing.T) {
	table := newManualTable(Config{Store: newFakeServer().connect()})
	taught(table)
	table.advance(DefaultFileFlush)
	table.Declare("f", tally{}, []string{"a"})
	replaced(t, table, Edit{States: []Saved{{}}, Others: true}, 3)
	again := newManualTable(Config{Store: table.store})
	f := again.Declare("f", tally{}, []string{"a", "b"})
	again.advance(DefaultFileFlush)
	near(t, "global", peek(f, ""), 0, 0, 1, 0, 0, 1)
}

func TestEditsThatDoNotFit(t *testing.T) {
	table := newManualTable(Config{})
	f := taught(table)
	row := []float64{1, 0.5, 0.5}
	for _, c := range []struct {
		want   string
		states []Saved
	}{
		{"the global state does not fit: it has 1 rows, expected one for each of 2 candidates", []Saved{{Rows: [][]float64{row}}}},
		{`the state of context "ann" does not fit: the row of b has 2 numbers, expected 3`, []Saved{{"ann", [][]float64{row, row[:2]}}}},
		{"the global state does not fit: it is given twice", []Saved{{}, {}}},
		{"the row of a has the number 1e+101", []Saved{{Rows: [][]float64{{1, 1, 1e101}, row}}}},
		{"the row of b has a negative count", []Saved{{Rows: [][]float64{row, {-1, 1, 1}}}}},
		{"the row of a has the count 1e+20, expected up to 4503599627370496", []Saved{{Rows: [][]float64{{1e20, 1, 1}, row}}}},
		{"the row of b has a sum of losses of 2.5 for a count of 2, expected at most 1 for each", []Saved{{Rows: [][]float64{row, {2, 2.5, 1}}}}},
		{"its context has 257 bytes, expected at most 256", []Saved{{Context: strings.Repeat("x", 257)}}},
	} {
		_, err := table.replace(context.Background(), "f", Edit{States: c.states})
		if !errors.Is(err, ErrNotFitting) || !strings.Contains(fmt.Sprint(err), c.want) {
			t.Errorf("got %v\nwant %s", err, c.want)
		}
	}
	near(t, "bob, unchanged", weights(f, "bob"), 0.9, 1-1.0/3-0.7)
	if _, err := table.replace(context.Background(), "g", Edit{}); !errors.Is(err, ErrNoFunction) {
		t.Errorf("an unknown function: %v", err)
	}
	table.Declare("fixed", tally{silent: true}, []string{"a"})
	if _, err := table.export(context.Background(), "fixed", Which{}); !errors.Is(err, ErrNoFunction) {
		t.Errorf("a policy that does not learn: %v", err)
	}
}

func TestEditWhileTheStoreIsAway(t *testing.T) {
	c := newFakeServer().connect()
	table := newManualTable(Config{Store: c})
	f := taught(table)
	c.set(func(c *fakeStore) { c.away = true })
	if _, err := table.replace(context.Background(), "f", Edit{States: []Saved{{}}, Others: true}); !errors.Is(err, ErrNotWritten) || !errors.Is(err, errAway) {
		t.Errorf("got %v", err)
	}
	if _, err := table.export(context.Background(), "f", Which{All: true}); !errors.Is(err, ErrNotWritten) {
		t.Errorf("got %v", err)
	}
	near(t, "bob, unchanged", weights(f, "bob"), 0.9, 1-1.0/3-0.7)
	c.set(func(c *fakeStore) { c.away = false })
	replaced(t, table, Edit{States: []Saved{{}}, Others: true}, 3)
	near(t, "bob", weights(f, "bob"), 1, 1)
	table.advance(DefaultFileFlush + maxBackoff)
	near(t, "after the flush, global", peek(f, ""), 0, 0, 1, 0, 0, 1)
}

// Many states go to the store in groups, while the table works by itself.
func TestEditsLive(t *testing.T) {
	table := New(Config{Store: newFakeServer().connect(), Contexts: 16})
	f := table.Declare("f", tally{}, []string{"a", "b"})
	const n = 2*maxEdited + 10
	for i := range n {
		loss(f, fmt.Sprint(i), i%2, 0.5)
	}
	e, err := table.Export(context.Background(), "f", Which{All: true})
	if err != nil || len(e.States) != n+1 {
		t.Fatalf("got %d states, want %d (%v)", len(e.States), n+1, err)
	}
	if got, err := table.Replace(context.Background(), "f", Edit{States: e.States, Others: true}); got != n+1 || err != nil {
		t.Errorf("%d states are replaced: %v", got, err)
	}
	after, err := table.Export(context.Background(), "f", Which{All: true})
	if diff := cmp.Diff(e, after); diff != "" || err != nil {
		t.Errorf("an import of the export changes nothing (-want +got, %v):\n%s", err, diff)
	}
	closeTable(t, table)
	if _, err := table.Export(context.Background(), "f", Which{}); !errors.Is(err, ErrNotWritten) {
		t.Errorf("after the end: %v", err)
	}
}

// A table whose store is with another process refuses in time, and does not wait for ever.
func TestEditBeforeTheStoreIsThere(t *testing.T) {
	table := New(Config{Store: newFakeServer().connect(), Later: true})
	table.Declare("f", tally{}, []string{"a"})
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := table.Replace(ctx, "f", Edit{States: []Saved{{}}}); !errors.Is(err, ErrNotWritten) || !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}
