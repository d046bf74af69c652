package server

import (
	"bytes"
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/internal/state"
)

func createdOf(t *testing.T, s *Server, name string) time.Time {
	t.Helper()
	all, err := s.Functions(context.Background(), name)
	if err != nil || len(all) != 1 {
		t.Fatalf("%s: %d functions, %v", name, len(all), err)
	}
	return all[0].Created
}

func modelCreated(t *testing.T, s *Server, version string) time.Time {
	t.Helper()
	all, err := s.Models(context.Background(), "m")
	if err != nil {
		t.Fatal(err)
	}
	for i := range all {
		if all[i].Spec.Version == version {
			return all[i].Created
		}
	}
	t.Fatalf("there is no version m@%s", version)
	return time.Time{}
}

// A version of a model was created when it was declared first, not when the gateway that serves it has read it, and each version has a time
// of its own.
func TestWhenAVersionWasCreated(t *testing.T) {
	cfg := Config{DataDir: t.TempDir()}
	before := time.Now()
	s, _, _, stop := aliveUntil(t, cfg)
	mustApply(t, s, model)
	first := modelCreated(t, s, "1")
	if first.Before(before) || first.After(time.Now()) {
		t.Errorf("m@1 was created at %v, and declared between %v and now", first, before)
	}
	mustApply(t, s, strings.Replace(model, `version: "1"`, `version: "2"`, 1))
	second := modelCreated(t, s, "2")
	if !second.After(first) {
		t.Errorf("m@2 was created at %v, and m@1 before it at %v", second, first)
	}
	stop()

	s, _, _ = alive(t, cfg)
	for version, want := range map[string]time.Time{"1": first, "2": second} {
		if now := modelCreated(t, s, version); !now.Equal(want) {
			t.Errorf("after a restart m@%s was created at %v, want %v", version, now, want)
		}
	}
}

// A function was created when it was declared first: not when it was changed, and not when the gateway that serves it has read it. Where nothing
// says when that was, there is no time.
func TestWhenAFunctionWasCreated(t *testing.T) {
	data, models := t.TempDir(), t.TempDir()
	put(t, models, "w/1", strings.Replace(model, "name: m", "name: w", 1))
	cfg := Config{DataDir: data, Models: []string{models}, ModelsEvery: 5 * time.Millisecond}
	before := time.Now()
	s, _, _, stop := aliveUntil(t, cfg)
	mustApply(t, s, model, fn)
	first := createdOf(t, s, "f")
	if first.Before(before) || first.After(time.Now()) {
		t.Errorf("f was created at %v, and declared between %v and now", first, before)
	}
	mustApply(t, s, strings.Replace(fn, "20ms", "30ms", 1))
	if now := createdOf(t, s, "f"); !now.Equal(first) {
		t.Errorf("after a change f was created at %v, want %v", now, first)
	}
	until(t, "the function of the watched directory", func() bool { all, err := s.Functions(context.Background(), "w"); return err == nil && len(all) == 1 })
	if now := createdOf(t, s, "w"); !now.IsZero() {
		t.Errorf("the function of a watched directory was created at %v: nothing says when", now)
	}
	stop()
	copyWithoutEvents(t, filepath.Join(data, "state.db"), "f", "g")

	s, _, _, stop = aliveUntil(t, cfg)
	if now := createdOf(t, s, "f"); !now.Equal(first) {
		t.Errorf("after a restart f was created at %v, want %v", now, first)
	}
	if now := createdOf(t, s, "g"); !now.IsZero() {
		t.Errorf("g was created at %v: nothing says when", now)
	}
	if _, err := s.Delete(context.Background(), api.KindFunction, api.ModelID{Name: "f"}); err != nil {
		t.Fatal(err)
	}
	mustApply(t, s, fn)
	second := createdOf(t, s, "f")
	if !second.After(first) {
		t.Errorf("declared again, f was created at %v, and before that at %v", second, first)
	}
	stop()

	s, _, _ = alive(t, cfg)
	if now := createdOf(t, s, "f"); !now.Equal(second) {
		t.Errorf("after another restart f was created at %v, want %v", now, second)
	}
}

// copyWithoutEvents declares a copy of a function in a store, as a program would that keeps no history.
func copyWithoutEvents(t *testing.T, path, from, to string) {
	t.Helper()
	store, err := state.OpenFile(path)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	all, err := store.Changes(context.Background(), 0)
	if err != nil {
		t.Fatal(err)
	}
	c := state.Commit{ID: [16]byte{1}, Base: all.Revision}
	for _, o := range all.Objects {
		if o.Kind == string(api.KindFunction) && o.Name == from {
			o.Name, o.Data = to, bytes.Replace(o.Data, []byte(`"name": "`+from+`"`), []byte(`"name": "`+to+`"`), 1)
			c.Put = append(c.Put, o)
		}
	}
	if len(c.Put) != 1 {
		t.Fatalf("the store has %d functions %s", len(c.Put), from)
	}
	if _, err := store.Commit(context.Background(), &c); err != nil {
		t.Fatal(err)
	}
}
