package declarations

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/api/manifest"
	"github.com/xebec-serving/xebec/gateway/internal/state"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

// Programs that read JSON numbers as float64 can tell the gateway's own count from the next one.
func TestTheFirstCount(t *testing.T) {
	for _, year := range []int{2026, 2254} {
		if n := firstCount(time.Date(year, 12, 31, 0, 0, 0, 0, time.UTC)); n >= 1<<53 || n < 1<<50 {
			t.Errorf("in %d it begins at %d", year, n)
		}
	}
}

// Without a store the ledger counts the changes; with one it has the store's revisions.
func TestTheLedgerMarksWhatAnEditChanges(t *testing.T) {
	rules := manifest.Set{Traffic: []api.TrafficSpec{{Model: "m"}}}
	key := keysOf(&rules)[0]
	var own, stored ledger
	own.init(false, time.Unix(1, 0))
	first := own.mark(&edit{put: rules}, 0)
	second := own.mark(&edit{put: rules}, 0)
	if first != 1e6+1 || second != first+1 || own.of(key) != second {
		t.Errorf("revisions %d and %d, then %d", first, second, own.of(key))
	}
	if n := own.mark(&edit{}, 0); n != 0 || own.of(key) != second {
		t.Errorf("an edit without changes is marked %d", n)
	}
	if own.mark(&edit{drop: []state.ObjectKey{key}}, 0); own.of(key) != 0 {
		t.Errorf("a deleted object is at revision %d", own.of(key))
	}
	stored.init(true, time.Unix(1, 0))
	if n := stored.mark(&edit{put: rules}, 7); n != 7 || stored.of(key) != 7 || stored.storeRevision() != 7 {
		t.Errorf("the store's revision 7 is marked %d", n)
	}
}

// Objects that a store has lost are known until they are stored again.
func TestTheLedgerKnowsWhatTheStoreHasLost(t *testing.T) {
	early, late := state.ObjectKey{Kind: "Model", Name: "m@1"}, state.ObjectKey{Kind: "Model", Name: "m@2"}
	var l ledger
	l.init(true, time.Now())
	l.take(early, 3)
	l.take(late, 5)
	l.setStoreRevision(5)
	if was, lost := l.loseAfter(4); was != 5 || lost != 1 || l.isLost(early) || !slices.Equal(l.lostObjects(), []state.ObjectKey{late}) {
		t.Errorf("after a store went back from %d to 4, %d objects are lost: %v", was, lost, l.lostObjects())
	}
	if l.restored(); l.isLost(late) {
		t.Error("an object is lost that was stored again")
	}
}

// A store that does not answer is not taken for a conflict.
func TestARevisionWhileTheStoreIsAway(t *testing.T) {
	at := func(revision uint64) api.ObjectRevision {
		return api.ObjectRevision{Kind: api.KindTraffic, Name: "m", Revision: revision}
	}
	store := newStore(t)
	b := begun(t, Config{Store: store})
	b.mustApply(model, ruleOfM)
	store.fail(errors.New("gone"))
	revision := b.Revision(api.KindTraffic, "m")
	if err := b.apply(ruleOfM+"\nlabels: {a: \"1\"}", at(revision)); code(err) != api.Unavailable {
		t.Errorf("got %v", err)
	}
	if now := b.Revision(api.KindTraffic, "m"); now != revision {
		t.Errorf("a change that was not stored made revision %d of %d", now, revision)
	}
	// The same holds for a store that has not been read since the start: unknown is not undeclared.
	away := newStore(t)
	away.away, away.shared = true, true
	unread := begun(t, Config{Store: away})
	if err := unread.apply(ruleOfM, at(7)); code(err) != api.Unavailable {
		t.Errorf("got %v", err)
	}
}

// While the store has not been read an export fails, since it would lack what is there, and no name is said to be undeclared.
func TestNothingIsSaidOfAStoreThatWasNotRead(t *testing.T) {
	store := newStore(t)
	store.away, store.shared = true, true
	b := begun(t, Config{Store: store})
	ctx := context.Background()
	if set, err := b.Export(ctx); code(err) != api.Unavailable || set != nil || !strings.Contains(err.Error(), "has not been read yet") {
		t.Errorf("the export is %v, %v", set, err)
	}
	if _, err := b.Traffic(ctx, "m"); code(err) != api.Unavailable || !strings.Contains(err.Error(), `model "m" is not known yet: `) {
		t.Errorf("the traffic of a model in the store: %v", err)
	}
	store.set(func() { store.away = false })
	if err := b.resync(ctx); err != nil {
		t.Fatal(err)
	}
	if set, err := b.Export(ctx); err != nil || set.Len() != 0 {
		t.Errorf("the export of an empty store is %v, %v", set, err)
	}
	if _, err := b.Traffic(ctx, "m"); code(err) != api.NotFound {
		t.Errorf("the traffic of a model that is not declared: %v", err)
	}
}

// An object that another program stored under the name of another one is not taken.
func TestAnObjectUnderAnotherName(t *testing.T) {
	for _, name := range []state.ObjectKey{{Kind: "Model", Name: "other@9"}, {Kind: "Traffic", Name: "m@1"}} {
		o := objectsOf(decoded(t, model))[0]
		o.ObjectKey = name
		if set, _, problems := decodeObjects([]state.Object{o}); set.Len() != 0 || len(problems) != 1 {
			t.Errorf("%d objects under the name %v, problems %v", set.Len(), name, problems)
		}
	}
}

// The detail of a change names the fields that differ, with their values.
func TestDifferencesNameTheFields(t *testing.T) {
	type spec struct {
		Max  int    `json:"max,omitempty"`
		Cost int    `json:"cost,omitempty"`
		Text string `json:"text,omitempty"`
		Deep struct {
			Min int `json:"min,omitempty"`
			Max int `json:"max,omitempty"`
		} `json:"deep,omitzero"`
	}
	deep := func(low, high int) (s spec) { s.Deep.Min, s.Deep.Max = low, high; return s }
	long := strings.Repeat("x", 200)
	for _, c := range []struct {
		old, now spec
		want     string
	}{
		{spec{Max: 2}, spec{Max: 2}, ""},
		{spec{Max: 2}, spec{Max: 3, Cost: 1}, "cost: default → 1, max: 2 → 3"},
		{spec{Max: 2, Cost: 1}, spec{Max: 2}, "cost: 1 → default"},
		{deep(1, 2), deep(1, 3), "deep.max: 2 → 3"},
		{spec{}, deep(0, 3), "deep: default → {\"max\":3}"},
		{spec{}, spec{Text: long}, "text: default → \"" + long[:79] + "…"},
	} {
		if got := differences(changedFields(c.old, c.now)); got != c.want {
			t.Errorf("from %+v to %+v: %q, expected %q", c.old, c.now, got, c.want)
		}
	}
}

// A store that loses its end while it is open is one ERROR in the log, and a problem of the source, however often it is asked.
func TestATruncatedStoreIsReported(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	store, err := state.OpenFile(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() }) // of a damaged file
	core, lines := observer.New(zap.ErrorLevel)
	b := begun(t, Config{Store: store, Log: zap.New(core)})
	b.mustApply(model)
	if err := os.Truncate(path, 8192); err != nil {
		t.Fatal(err)
	}
	if problem := b.StoreProblem(); !strings.Contains(problem, path+" was truncated to 8192 of") {
		t.Errorf("the store's problem is %q", problem)
	}
	for range 3 {
		if err := b.apply(ruleOfM); code(err) != api.Unavailable || strings.Contains(err.Error(), "runtime error") {
			t.Errorf("a change: %v", err)
		}
	}
	if all := lines.All(); len(all) != 1 || !strings.Contains(all[0].ContextMap()["problem"].(string), "restore it from a copy") {
		t.Errorf("the log has %v", all)
	}
}

// The store is away when the declarations cannot be read from it, also where nothing is learned that would be written.
func TestTheFollowerSaysThatTheStoreIsAway(t *testing.T) {
	store := newStore(t)
	store.away, store.shared = true, true
	b := begun(t, Config{Store: store})
	ctx := context.Background()
	if f := b.Following(); !f.Away || f.Errors != 1 || f.LastError == "" || f.LastErrorAt.IsZero() {
		t.Errorf("after a start without the store: %+v", f)
	}
	for _, c := range []struct {
		away   bool
		errors uint64
	}{{true, 2}, {false, 2}, {true, 3}, {true, 4}, {false, 4}} {
		store.set(func() { store.away = c.away })
		if err := b.resync(ctx); (err != nil) != c.away {
			t.Fatal(err)
		}
		if f := b.Following(); f.Away != c.away || f.Errors != c.errors {
			t.Errorf("after a call, while the store is away %v: %+v; want %d errors", c.away, f, c.errors)
		}
	}
	store.set(func() { store.away = true })
	ended, end := context.WithCancel(ctx)
	end()
	if err := b.resync(ended); err == nil || b.Following().Away {
		t.Errorf("the end of the gateway counts as an absence of the store: %v", err)
	}
}
