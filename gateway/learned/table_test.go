package learned

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/xebec-serving/xebec/gateway/selection"
)

func TestContextsLearnForThemselves(t *testing.T) {
	table := New(Config{})
	f := table.Declare("f", tally{}, []string{"a", "b"})
	loss(f, "ann", 0, 0.5)
	near(t, "ann", weights(f, "ann"), 0.5, 1)
	near(t, "global", weights(f, ""), 0.5, 1)

	// Bob is new: he starts from the function's state.
	if got := ask(f, "bob"); got != selection.Set(0).With(1) {
		t.Errorf("bob is asked %b: expected the second candidate, which the function prefers", got)
	}
	near(t, "bob", weights(f, "bob"), 0.5, 1)

	// Until something is learned about him he follows the function.
	loss(f, "", 1, 0.75)
	if got := ask(f, "bob"); got != selection.Set(0).With(0) {
		t.Errorf("bob is asked %b: expected the first candidate, which the function now prefers", got)
	}
	near(t, "ann, who has her own state", weights(f, "ann"), 0.5, 1)

	// From then on he has a state of his own.
	loss(f, "bob", 0, 0.4)
	near(t, "bob", weights(f, "bob"), 0.1, 0.25)
	loss(f, "", 1, 0.1)
	ask(f, "bob")
	near(t, "bob", weights(f, "bob"), 0.1, 0.25)

	near(t, "counts", f.states.layout.state(peek(f, "bob")).Row(0)[:2], 1, 0.4)
	if s := table.Stats(); s.Contexts != 2 || s.Pending != 0 {
		t.Errorf("got %+v, want two contexts and nothing pending without a store", s)
	}
}

func TestCombineSeesTheContextsState(t *testing.T) {
	f := New(Config{}).Declare("f", tally{}, []string{"a", "b"})
	loss(f, "ann", 0, 0.5)
	loss(f, "", 1, 0.9)
	for context, want := range map[string]int{"ann": 1, "": 0} {
		c := selection.Combination{Selected: selection.All(2), Answers: []selection.Answer{{Candidate: 0}, {Candidate: 1}}}
		f.Combine([]byte(context), &c)
		if c.Winner != want {
			t.Errorf("context %q: candidate %d wins, want %d", context, c.Winner, want)
		}
		if c.State.V != nil {
			t.Errorf("context %q: the state is still there after the call", context)
		}
	}
}

func TestGainsAndShares(t *testing.T) {
	f := New(Config{}).Declare("f", tally{}, []string{"a", "b"})
	loss(f, "ann", 0, 0.5)
	dst := make([]float64, 2)
	f.Gains(dst)
	near(t, "gains", dst, 0.5, 1)
	f.Shares(dst)
	near(t, "shares", dst, 1.0/3, 2.0/3)
}

func TestLeastRecentlyUsedContextIsEvicted(t *testing.T) {
	table := New(Config{Contexts: 3})
	f := table.Declare("f", tally{}, []string{"a"})
	for _, c := range []string{"1", "2", "3", "1", "4"} { // 2 is the least recently used when 4 arrives
		loss(f, c, 0, 0.25)
	}
	for c, want := range map[string]bool{"1": true, "2": false, "3": true, "4": true} {
		if got := peek(f, c) != nil; got != want {
			t.Errorf("context %s is in memory: %v, want %v", c, got, want)
		}
	}
	near(t, "1, seen twice", weights(f, "1"), 0.5)
	if s := table.Stats(); s.Contexts != 3 || s.Evicted != 1 {
		t.Errorf("got %+v, want 3 contexts and 1 eviction", s)
	}
	if r := f.Report(2); len(r.Contexts) != 2 || r.Contexts[0].Context != "4" || r.Contexts[1].Context != "1" || r.InMemory != 3 {
		t.Errorf("got %+v, want contexts 4 and 1 out of three", r)
	}
}

func TestContextsAreBounded(t *testing.T) {
	const bound = 200 // several shards
	table := New(Config{Contexts: bound})
	f := table.Declare("f", tally{}, []string{"a", "b", "c"})
	for i := range 5 * bound {
		loss(f, strings.Repeat("x", i%MaxContextBytes)+fmt.Sprint(i), i%3, 0.5)
		if n := table.Stats().Contexts; n > bound {
			t.Fatalf("%d contexts in memory after %d: expected at most %d", n, i, bound)
		}
	}
	resident, entries := 0, 0
	for i := range *f.states.shards.Load() {
		s := &(*f.states.shards.Load())[i]
		resident += s.resident
		entries += len(s.entries)
	}
	if s := table.Stats(); int64(resident) != s.Contexts || entries > bound || s.Evicted < 4*bound-bound {
		t.Errorf("%d resident, %d entries, %+v: expected at most %d of each, equal to the metric", resident, entries, s, bound)
	}
}

func TestUnusualContexts(t *testing.T) {
	table := New(Config{})
	f := table.Declare("f", tally{}, []string{"a"})
	long := strings.Repeat("y", MaxContextBytes+1)
	loss(f, long, 0, 0.5)
	near(t, "global", weights(f, ""), 0.5)
	if peek(f, long) != nil || table.Stats().Contexts != 0 {
		t.Error("a context that is too long has a state of its own")
	}
	for _, c := range []string{"\x00", "\x00\x00", "\xff\xfe", long[:MaxContextBytes], long[:129], long[:128]} {
		loss(f, c, 0, 0.25)
		near(t, fmt.Sprintf("%q", c), f.states.layout.state(peek(f, c)).Row(0)[:1], 1)
	}
}

func TestStickyNumber(t *testing.T) {
	number := func(table *Table, function, context string) (uint64, bool) {
		var q selection.Query
		q.Allowed, q.Sticky = selection.All(1), 7
		f := table.Declare(function, tally{silent: true}, []string{"a"})
		f.Select([]byte(context), &q, new(selection.Selection))
		return q.Sticky, q.HasContext
	}
	one, other := New(Config{}), New(Config{})
	a, has := number(one, "f", "ann")
	if b, _ := number(other, "f", "ann"); a != b || !has {
		t.Errorf("two gateways give ann %x and %x: expected the same number", a, b)
	}
	if b, _ := number(one, "g", "ann"); a == b {
		t.Error("two functions give a context the same number")
	}
	if b, _ := number(one, "f", "bob"); a == b {
		t.Error("two contexts have the same number")
	}
	if b, has := number(one, "f", ""); b != 0 || has {
		t.Errorf("without a context: got %x, %v, want 0, false", b, has)
	}
}

func TestNonLearningPolicyKeepsNothing(t *testing.T) {
	table := newManualTable(Config{Store: newFakeServer().connect()})
	f := table.Declare("f", tally{silent: true}, []string{"a", "b"})
	for i := range 100 {
		ask(f, fmt.Sprint(i))
		loss(f, fmt.Sprint(i), 0, 1)
	}
	near(t, "global", weights(f, ""), 1, 1)
	table.advance(DefaultRefresh)
	if s := table.Stats(); s.Contexts != 0 || s.Loads != 0 || s.Flushes != 0 {
		t.Errorf("got %+v, want no contexts and no store calls", s)
	}
}

func TestNonFiniteDeltaIsRejected(t *testing.T) {
	table := New(Config{})
	f := table.Declare("f", tally{}, []string{"a", "b"})
	fb := selection.Feedback{Selected: selection.All(1), P: []float64{0, 1}, Losses: []float64{1, math.NaN()}} // 1/0
	f.Observe([]byte("ann"), &fb)
	near(t, "global", peek(f, ""), 0, 0, 1, 0, 0, 1)
	near(t, "ann", peek(f, "ann"), 0, 0, 1, 0, 0, 1)
	if s := table.Stats(); s.Rejected != 2 {
		t.Errorf("%d rejected, want 2: one for the context and one for the global state", s.Rejected)
	}
}

// What a function knows after its candidates change. Before, its candidates had the given weights and counts.
func TestDeclareCarriesOver(t *testing.T) {
	type row struct {
		ref           string
		count, weight float64
	}
	for _, c := range []struct {
		story         string
		before, after []row
	}{
		{"no change", []row{{"a", 1, 0.5}, {"b", 2, 0.25}}, []row{{"a", 1, 0.5}, {"b", 2, 0.25}}},
		{"the order changes: rows go with their candidates", []row{{"a", 1, 0.5}, {"b", 2, 0.25}, {"c", 0, 1}}, []row{{"c", 0, 1}, {"a", 1, 0.5}, {"b", 2, 0.25}}},
		{"a candidate is removed: the others keep their rows", []row{{"a", 1, 0.5}, {"b", 2, 0.25}}, []row{{"b", 2, 0.25}}},
		{"a candidate joins: at the mean, without a count", []row{{"a", 1, 0.5}, {"b", 2, 0.25}}, []row{{"a", 1, 0.5}, {"new", 0, 0.375}, {"b", 2, 0.25}}},
		{"two join: each at the mean of the existing ones", []row{{"a", 1, 0.5}, {"b", 2, 0.25}}, []row{{"new", 0, 0.375}, {"newer", 0, 0.375}, {"a", 1, 0.5}, {"b", 2, 0.25}}},
		{"a new version inherits", []row{{"m@1", 3, 0.5}, {"b", 2, 0.25}}, []row{{"m@2", 3, 0.5}, {"b", 2, 0.25}}},
		{"a pinned version inherits from the unpinned model", []row{{"m", 3, 0.5}, {"b", 2, 0.25}}, []row{{"m@2", 3, 0.5}, {"b", 2, 0.25}}},
		{"a version beside its predecessor does not inherit: the predecessor keeps its row", []row{{"m@1", 3, 0.5}, {"b", 2, 0.25}}, []row{{"m@1", 3, 0.5}, {"m@2", 0, 0.375}, {"b", 2, 0.25}}},
		{"of two removed versions, the later one is inherited", []row{{"m@10", 3, 0.5}, {"m@9", 2, 0.25}}, []row{{"m@11", 3, 0.5}}},
		{"two heirs of one version", []row{{"m@1", 3, 0.5}, {"b", 2, 0.25}}, []row{{"m@2", 3, 0.5}, {"m@3", 3, 0.5}, {"b", 2, 0.25}}},
		{"a model whose name shares a prefix inherits nothing", []row{{"m@1", 3, 0.5}, {"b", 2, 0.25}}, []row{{"mm@2", 0, 0.25}, {"b", 2, 0.25}}},
		{"all candidates are replaced: nothing is known", []row{{"a", 1, 0.5}, {"b", 2, 0.25}}, []row{{"x", 0, 1}, {"y", 0, 1}}},
	} {
		t.Run(c.story, func(t *testing.T) {
			f := New(Config{})
			var before, after []string
			for _, r := range c.before {
				before = append(before, r.ref)
			}
			for _, r := range c.after {
				after = append(after, r.ref)
			}
			old := f.Declare("f", tally{}, before)
			for i, r := range c.before {
				for n := r.count; n > 0; n-- {
					loss(old, "ann", i, (1-r.weight)/r.count)
				}
			}
			now := f.Declare("f", tally{}, after)
			if now.Policy() != (tally{}) || !slices.Equal(now.Candidates(), after) {
				t.Fatalf("got %v, %v", now.Policy(), now.Candidates())
			}
			for _, context := range []string{"", "ann"} {
				s := now.states.layout.state(peek(now, context))
				for i, r := range c.after {
					near(t, fmt.Sprintf("%q, %s", context, r.ref), []float64{s.Row(i)[selection.SlotCount], s.Row(i)[slotWeight]}, r.count, r.weight)
				}
			}
		})
	}
}

func TestDeclareAgain(t *testing.T) {
	table := New(Config{})
	f := table.Declare("f", tally{}, []string{"a", "b"})
	if table.Declare("f", tally{}, []string{"a", "b"}) != f {
		t.Error("the same declaration makes a new Function")
	}
	loss(f, "ann", 0, 0.5)
	g := table.Declare("f", tally{Unused: 1}, []string{"a", "b"})
	if g.Policy() != (tally{Unused: 1}) {
		t.Error("the policy has its old parameter")
	}
	loss(g, "ann", 1, 0.25)
	near(t, "ann, seen by both Functions", weights(f, "ann"), 0.5, 0.75)

	h := table.Declare("f", tally{name: "other"}, []string{"a", "b"})
	near(t, "under another policy", weights(h, ""), 1, 1)
	loss(f, "ann", 0, 0.25) // of a query that was still running
	near(t, "the other policy's state is unchanged", weights(h, ""), 1, 1)
	if peek(h, "ann") != nil {
		t.Error("the context was carried into another policy")
	}
	if n := table.Stats().Contexts; n != 0 {
		t.Errorf("%d contexts are counted, want 0", n)
	}
}

// A query that started before its function was redeclared ends with the indices that it knows.
func TestOldFunctionStaysValid(t *testing.T) {
	table := New(Config{})
	old := table.Declare("f", tally{}, []string{"a", "b", "c"})
	loss(old, "ann", 0, 0.5)
	mid := table.Declare("f", tally{}, []string{"c", "b", "d"})
	now := table.Declare("f", tally{}, []string{"d", "e", "c"})

	// It sees the state from before.
	near(t, "ann, seen by the old Function", weights(old, "ann"), 0.5, 1, 1)
	if got := ask(old, "ann"); got != selection.Set(0).With(1) {
		t.Errorf("the old function asks %b, want its second candidate", got)
	}
	if got := ask(old, "new"); got != selection.Set(0).With(1) {
		t.Errorf("the old function asks %b for a new context, want its second candidate", got)
	}
	// What it observes about c counts for c, whatever its position; a and b are gone.
	loss(old, "ann", 2, 0.25)
	loss(old, "ann", 0, 0.25)
	loss(mid, "ann", 2, 0.125) // d
	near(t, "ann: d, e, c", weights(now, "ann"), 0.875, 1, 0.75)
	near(t, "global: d, e, c", weights(now, ""), 0.875, 1, 0.75)

	table.Forget("f")
	loss(old, "ann", 2, 0.25)
	near(t, "ann, after the function is gone", weights(now, "ann"), 0.875, 1, 0.75)
	if n := table.Stats().Contexts; n != 0 {
		t.Errorf("%d contexts are counted, want 0", n)
	}
	near(t, "declared again", weights(table.Declare("f", tally{}, []string{"c"}), ""), 1)
}

func TestReport(t *testing.T) {
	f := New(Config{Contexts: 10}).Declare("f", tally{}, []string{"a", "b"})
	loss(f, "ann", 0, 0.5)
	ask(f, "bob")
	r := f.Report(10)
	want := Row{Ref: "a", Share: 1.0 / 3, Weight: 1.0 / 3, Count: 1, Loss: 0.5}
	if r.Policy != "tally" || len(r.Global) != 2 || r.Global[0] != want || r.Global[1].Loss != 0 || r.InMemory != 2 || len(r.Contexts) != 2 {
		t.Fatalf("got %+v", r)
	}
	if bob, ann := r.Contexts[0], r.Contexts[1]; bob.Context != "bob" || bob.HasOwnState || ann.Context != "ann" || !ann.HasOwnState || ann.Rows[0] != want {
		t.Errorf("got %+v", r.Contexts)
	}
	if r := f.Report(0); len(r.Contexts) != 0 || r.InMemory != 2 {
		t.Errorf("got %+v, want no contexts", r)
	}
}
