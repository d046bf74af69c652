package declarations

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/control/versions"
	"github.com/xebec-serving/xebec/gateway/internal/state"
)

const one = "1"

// mended is the model with another program, which is fixed.
var mended = strings.Replace(model, "model.py", "mended.py", 1)

// storedMarks are the names of the marks that the store has.
func storedMarks(t *testing.T, store state.Backend) (names []string) {
	t.Helper()
	all, err := store.Changes(context.Background(), 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range all.Objects {
		if o.Kind == kindUnserved {
			names = append(names, o.Name)
		}
	}
	return names
}

// A version that has never served gets another program under its name, and the answer says so. Its old deployment goes.
func TestAVersionThatHasNeverServedIsReplaced(t *testing.T) {
	b := begun(t, Config{Store: newStore(t)})
	b.mustApply(model + fn)
	changes, err := b.Apply(context.Background(), decoded(t, mended), false)
	if err != nil || len(changes) != 1 || changes[0].Action != api.Updated || changes[0].Note != replacedNote {
		t.Fatalf("%+v, %v", changes, err)
	}
	if got := b.spec(one).Run.Command[1]; got != "mended.py" {
		t.Errorf("it runs %s", got)
	}
	events, err := b.History(context.Background(), "m", 1)
	if err != nil || len(events) != 1 || !strings.HasPrefix(events[0].Detail, replacedNote+": run.command: ") {
		t.Errorf("the history says %+v, %v", events, err)
	}
	if changes, err = b.Apply(context.Background(), decoded(t, mended), false); err != nil || changes[0].Action != api.Unchanged {
		t.Errorf("again: %+v, %v", changes, err)
	}
}

// A version that served once is never replaced, also when it does not start any more.
func TestAVersionThatHasServedIsNotReplaced(t *testing.T) {
	b := begun(t, Config{})
	b.mustApply(model)
	b.hasServed("m")
	if err := b.apply(mended); code(err) != api.Conflict || !strings.Contains(err.Error(), "another run: a version never changes once it has served") {
		t.Errorf("it is replaced: %v", err)
	}
	if err := b.apply(strings.Replace(model, "[4]", "[5]", 1)); code(err) != api.Conflict || !strings.Contains(err.Error(), "other inputs") {
		t.Errorf("it is replaced: %v", err)
	}
}

// note stores the mark of a version as a failure does, and waits until it is stored.
func (b *bench) note(id api.ModelID) {
	b.t.Helper()
	_, err := b.change(context.Background(), false, func(*versions.State) (*edit, error) {
		e := &edit{unserved: []api.ModelID{id}}
		e.install = func(*versions.State) error { b.unserved[id] = true; return nil }
		return e, nil
	})
	if err != nil {
		b.t.Fatal(err)
	}
}

// What is known of a version outlives the gateway only as a mark.
func TestTheMarkOutlivesTheGateway(t *testing.T) {
	for name, failed := range map[string]bool{"it failed": true, "nothing is known": false} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "state.db")
			b := begun(t, Config{Store: fileStore(t, path)})
			b.mustApply(model)
			if failed {
				b.note(api.ModelID{Name: "m", Version: one})
			}
			b.stop()
			b = begun(t, Config{Store: fileStore(t, path)})
			err := b.apply(mended)
			if failed && err != nil || !failed && code(err) != api.Conflict {
				t.Fatalf("after a restart: %v", err)
			}
			if !failed {
				return
			}
			if _, err := b.Delete(context.Background(), api.KindModel, api.ModelID{Name: "m"}); err != nil {
				t.Fatal(err)
			}
			if marks := storedMarks(t, b.cfg.Store); len(marks) != 0 {
				t.Errorf("the store has marks of what was deleted: %v", marks)
			}
		})
	}
}

// Where gateways share a store, a version is replaced only while the store has its mark: it may have served elsewhere.
func TestOtherGatewaysMayHaveServedAVersion(t *testing.T) {
	store := newStore(t)
	store.shared = true
	b := begun(t, Config{Store: store})
	b.mustApply(model)
	if err := b.apply(mended); code(err) != api.Conflict {
		t.Fatalf("a version without a mark is replaced: %v", err)
	}
	id := api.ModelID{Name: "m", Version: one}
	commit := func(c state.Commit) { // another gateway's
		t.Helper()
		all, err := store.Changes(context.Background(), 0)
		if err != nil {
			t.Fatal(err)
		}
		c.Base = all.Revision
		c.ID[0] = byte(all.Revision)
		c.ID[1] = 1
		if _, err := store.Commit(context.Background(), &c); err != nil {
			t.Fatal(err)
		}
		if err := b.resync(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	commit(state.Commit{Put: []state.Object{unservedMark(id)}})
	if err := b.apply(mended); err != nil {
		t.Fatalf("a version with a mark is not replaced: %v", err)
	}
	commit(state.Commit{Delete: []state.ObjectKey{unservedKey(id)}})
	if err := b.apply(model); code(err) != api.Conflict {
		t.Errorf("a version that has served elsewhere is replaced: %v", err)
	}
}

// A mark that the store does not take is stored when it takes changes again.
func TestMarksAreStoredLater(t *testing.T) {
	store := newStore(t)
	var background sync.WaitGroup
	b := begun(t, Config{Store: store, Background: func(work func()) { background.Go(work) }})
	t.Cleanup(background.Wait)
	b.mustApply(model)
	id := api.ModelID{Name: "m", Version: one}
	b.note(id)
	store.fail(errors.New("full"))
	b.hasServed("m")
	b.NoteUnserved(id)
	background.Wait()
	if marks := storedMarks(t, store); len(marks) != 1 {
		t.Fatalf("marks: %v", marks)
	}
	store.set(func() { store.commit = nil })
	if err := b.resync(context.Background()); err != nil {
		t.Fatal(err)
	}
	background.Wait()
	if marks := storedMarks(t, store); len(marks) != 0 {
		t.Errorf("the mark of a version that has served stays: %v", marks)
	}
}

// At a start, --config has the files of a version that has never served: they take its place.
func TestConfigReplacesAVersionThatHasNeverServed(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(t.TempDir(), "state.db")
	b := begun(t, Config{Store: fileStore(t, path)})
	b.mustApply(model)
	b.note(api.ModelID{Name: "m", Version: one})
	b.stop()
	if err := os.WriteFile(filepath.Join(dir, "m.yaml"), []byte(mended), 0o600); err != nil {
		t.Fatal(err)
	}
	set, _, err := Load([]string{dir})
	if err != nil {
		t.Fatal(err)
	}
	b = newBench(t, Config{Store: fileStore(t, path)})
	if err := b.Begin(context.Background(), set); err != nil {
		t.Fatal(err)
	}
	if got := b.spec(one).Run.Command[1]; got != "mended.py" {
		t.Errorf("it runs %s", got)
	}
}
