package learned

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/xebec-serving/xebec/gateway/internal/state/redistest"
	"github.com/xebec-serving/xebec/gateway/selection"
)

func exportOf(t *testing.T, table *Table, which Which) *Export {
	t.Helper()
	e, err := table.Export(context.Background(), "f", which)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func editBy(t *testing.T, table *Table, e Edit) {
	t.Helper()
	if _, err := table.Replace(context.Background(), "f", e); err != nil {
		t.Fatal(err)
	}
}

// The value of a policy is exported and imported with the global state, also into other candidates' order, and comes back from the store.
func TestExportAndImportOfAValue(t *testing.T) {
	for _, merges := range []bool{false, true} {
		for _, where := range []string{"memory", "file"} {
			t.Run(fmt.Sprintf("merges=%v/%s", merges, where), func(t *testing.T) {
				from := New(Config{})
				f := from.Declare("f", journal{merges: merges}, []string{"a", "b"})
				right(f, 0, 3)
				right(f, 1, 5)
				loss(f, "ann", 0, 0.5)
				e := exportOf(t, from, Which{All: true})
				if e.Value == nil || exportOf(t, from, Which{Context: "ann"}).Value != nil {
					t.Fatalf("the value is %x: expected one in the export of the global state and none in that of a context", e.Value)
				}

				cfg := Config{}
				path := filepath.Join(t.TempDir(), "state")
				if where == "file" {
					cfg.Store = openStore(t, path)
				}
				table := New(cfg)
				g := table.Declare("f", journal{merges: merges}, []string{"b", "a"})
				right(g, 0, 7) // it is replaced
				rows := func(s Saved) Saved { s.Rows = [][]float64{s.Rows[1], s.Rows[0]}; return s }
				editBy(t, table, Edit{States: []Saved{rows(e.States[0])}, Value: e.Value})
				wantCounts(t, g, 5, 3)
				if where == "file" {
					closeTable(t, table)
					cfg.Store.Close()
					table = New(Config{Store: openStore(t, path)})
					g = table.Declare("f", journal{merges: merges}, []string{"b", "a"})
				}
				exportOf(t, table, Which{}) // reads the value first
				wantCounts(t, g, 5, 3)
				g = table.Declare("f", journal{merges: merges}, []string{"a", "b"})
				if again := exportOf(t, table, Which{}); !bytes.Equal(e.Value, again.Value) {
					t.Errorf("after the import the value is %x, want %x", again.Value, e.Value)
				}
				right(g, 0, 1)
				wantCounts(t, g, 4, 5)
				editBy(t, table, Edit{States: []Saved{{}}})
				wantCounts(t, g, 0, 0)
				closeTable(t, table)
				closeTable(t, from)
			})
		}
	}
}

// An import before the value was read replaces what the store has, and what another gateway learns meanwhile is added to a value that merges.
func TestImportOfAValueOfTwoGateways(t *testing.T) {
	server := redistest.Start(t, redistest.Config{})
	a := openTable(t, openStore(t, server.URL()))
	f := a.Declare("f", journal{merges: true}, []string{"a", "b"})
	right(f, 0, 2)
	e := exportOf(t, a, Which{})
	right(f, 1, 4)
	exportOf(t, a, Which{}) // it is written

	b := openTable(t, openStore(t, server.URL()))
	g := b.Declare("f", journal{merges: true}, []string{"a", "b"})
	editBy(t, b, Edit{States: e.States, Value: e.Value})
	wantCounts(t, g, 2, 0)
	until(t, "the other gateway follows", func() bool { got := counted(f); return got[0] == 2 && got[1] == 0 })
	right(f, 1, 3)
	until(t, "both know", func() bool { return counted(g)[1] == 3 })
	closeTable(t, a)
	closeTable(t, b)
}

// Only the gateway with the lease changes a value that does not merge.
func TestImportWhereTheLeaseIsNot(t *testing.T) {
	server := redistest.Start(t, redistest.Config{})
	a := openTable(t, openStore(t, server.URL()))
	f := a.Declare("f", journal{}, []string{"a"})
	loadedValue(t, f)
	right(f, 0, 2)
	e := exportOf(t, a, Which{})
	b := openTable(t, openStore(t, server.URL()))
	g := b.Declare("f", journal{}, []string{"a"})
	if got := exportOf(t, b, Which{}); !bytes.Equal(got.Value, e.Value) {
		t.Errorf("the other gateway exports %x, want %x", got.Value, e.Value)
	}
	for what, edit := range map[string]Edit{"import": {States: e.States, Value: e.Value}, "reset": {States: []Saved{{}}}} {
		if _, err := b.Replace(context.Background(), "f", edit); !errors.Is(err, ErrElsewhere) {
			t.Errorf("%s: %v", what, err)
		}
	}
	wantCounts(t, g, 2)
	closeTable(t, a)
	closeTable(t, b)
}

func TestValuesThatDoNotFit(t *testing.T) {
	table := New(Config{})
	f := table.Declare("f", journal{}, []string{"a", "b"})
	right(f, 0, 1)
	e := exportOf(t, table, Which{})
	table.Declare("none", tally{}, []string{"a", "b"})
	other := New(Config{})
	other.Declare("f", journal{}, []string{"a", "c"})
	foreign := exportOf(t, other, Which{}).Value
	for _, c := range []struct {
		function, want string
		edit           Edit
	}{
		{"none", "keeps none", Edit{States: e.States, Value: e.Value}},
		{"f", "the value that policy journal keeps beside it is missing", Edit{States: e.States}},
		{"f", "it belongs to the global state, which is missing", Edit{States: []Saved{{"ann", e.States[0].Rows}}, Value: e.Value}},
		{"f", "it belongs to the global state, which is missing", Edit{States: []Saved{{}}, Value: e.Value}},
		{"f", "expected at most 1048576", Edit{States: e.States, Value: make([]byte, selection.MaxValueBytes+1)}},
		{"f", "does not begin with the names", Edit{States: e.States, Value: []byte{0xff}}},
		{"f", "it is too short", Edit{States: e.States, Value: e.Value[:len(e.Value)-1]}},
		{"f", `it is of ["a" "c"], expected ["a" "b"]`, Edit{States: e.States, Value: foreign}},
	} {
		if err := table.Fits(c.function, c.edit); !errors.Is(err, ErrNotFitting) || !strings.Contains(fmt.Sprint(err), c.want) {
			t.Errorf("got %v\nwant %s", err, c.want)
		}
	}
	if err := table.Fits("f", Edit{States: []Saved{{"ann", e.States[0].Rows}}}); err != nil {
		t.Errorf("a context alone: %v", err)
	}
	if diff := cmp.Diff(e, exportOf(t, table, Which{})); diff != "" {
		t.Errorf("what did not fit has changed something (-want +got):\n%s", diff)
	}
}

// FuzzValue gives values that a client might import to the policies that have one. What is taken can be encoded again, to the same.
func FuzzValue(f *testing.F) {
	policies := map[string]selection.Policy{}
	for name, params := range map[string]map[string]any{"linucb": {"features": 2.0}, "stacking": {"classes": 3.0}} {
		p, err := selection.New(name, params, []string{"a", "b"})
		if err != nil {
			f.Fatal(err)
		}
		policies[name] = p
		table := New(Config{})
		table.Declare("f", p, []string{"a", "b"})
		e, err := table.Export(context.Background(), "f", Which{})
		if err != nil {
			f.Fatal(err)
		}
		f.Add(name, e.Value)
	}
	f.Fuzz(func(t *testing.T, name string, data []byte) {
		p := policies[name]
		if p == nil {
			return
		}
		table := New(Config{})
		table.Declare("f", p, []string{"a", "b"})
		states := exportOf(t, table, Which{}).States
		edit := Edit{States: states, Value: data}
		if table.Fits("f", edit) != nil {
			return
		}
		editBy(t, table, edit)
		first := exportOf(t, table, Which{}).Value
		editBy(t, table, Edit{States: states, Value: first})
		if again := exportOf(t, table, Which{}).Value; !bytes.Equal(first, again) {
			t.Errorf("%x comes back as %x", first, again)
		}
	})
}
