package state

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func put(name string, base uint64, id byte) *Commit {
	return &Commit{ID: [16]byte{id}, Base: base, Put: []Object{{ObjectKey: ObjectKey{"Model", name}, Data: []byte("{}")}}}
}

func addTo(t *testing.T, s Learned, delta float64, seq uint64) float64 {
	t.Helper()
	totals, err := s.Merge(short(t), []Update{{Key: Key{"f", "p", ""}, Fields: []Field{{"n", 0, delta}}, Seq: seq}})
	if err != nil {
		t.Fatal(err)
	}
	return totals[0][0].Value
}

func owned(t *testing.T, path string) *Handover {
	t.Helper()
	h, err := OwnFile(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Close() })
	return h
}

func names(t *testing.T, o Objects) (all []string) {
	t.Helper()
	c, err := o.Changes(short(t), 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, object := range c.Objects {
		all = append(all, object.Name)
	}
	return all
}

// A copy that its maker has removed, because the handover was called off, is not replaced by an empty one.
func TestHandoverOfARemovedCopy(t *testing.T) {
	dir := t.TempDir()
	owned(t, filepath.Join(dir, "state.db"))
	copied := filepath.Join(dir, "copy.db")
	if h, err := AwaitFile(filepath.Join(dir, "state.db"), copied); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a handover began with %v, %v: expected that there is no copy", h, err)
	}
	if _, err := os.Stat(copied); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("there is a copy now: %v", err)
	}
}

// A file of another user is named with what to do: a gateway that ran once as root leaves one.
func TestFileOfAnotherUser(t *testing.T) {
	err := (&fileStore{path: "/data/state.db"}).explain(fs.ErrPermission)
	if want := fmt.Sprintf("/data/state.db: this gateway runs as user %d: start it as the file's owner, or give it the file: chown %[1]d", os.Geteuid()); !errors.Is(err, fs.ErrPermission) || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("%v, expected %q", err, want)
	}
}

// A disk without room for the copy is named as such.
func TestCopyToAFullDisk(t *testing.T) {
	if err := owned(t, filepath.Join(t.TempDir(), "state.db")).Copy("/dev/full"); err == nil || !strings.Contains(err.Error(), "the disk is full: free some space") {
		t.Errorf("the copy failed with %v", err)
	}
}

// A file goes from one gateway to the next: what was declared and learned in the old one, before and after the copy, is there, and so
// is what the new one has declared in the copy. The old one's last learning goes through the new one.
func TestHandover(t *testing.T) {
	path, copied := filepath.Join(t.TempDir(), "state.db"), filepath.Join(t.TempDir(), "copy.db")
	old := owned(t, path)
	if _, err := old.Commit(short(t), put("a", 0, 1)); err != nil {
		t.Fatal(err)
	}
	if err := old.Copy(copied); err != nil {
		t.Fatal(err)
	}
	next, err := AwaitFile(path, copied)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { next.Close() })
	if revision, err := next.Commit(short(t), put("b", 1, 2)); err != nil || revision != 2 {
		t.Fatalf("a commit in the copy returned %d, %v", revision, err)
	}
	addTo(t, old, 3, 1) // after the copy was made
	if err := next.Take(short(t)); err == nil {
		t.Fatal("the file was taken while the old gateway held it")
	}
	if got := names(t, next); len(got) != 2 {
		t.Fatalf("after a failed attempt the copy has %v", got)
	}

	waits := make(chan float64)
	go func() { waits <- addTo(t, next, 4, 1) }()
	if err := old.Release(); err != nil {
		t.Fatal(err)
	}
	if _, err := old.Commit(short(t), put("c", 1, 3)); !errors.Is(err, errElsewhere) {
		t.Errorf("a commit without the file returned %v", err)
	}
	if err := next.Take(short(t)); err != nil {
		t.Fatal(err)
	}
	if got := <-waits; got != 7 {
		t.Errorf("the call that waited for the file got the sum %v, want 7", got)
	}
	if got := names(t, next); len(got) != 2 {
		t.Errorf("the file has %v, want a and b", got)
	}
	old.PassOn(next.Guest())
	if got := addTo(t, old, 5, 2); got != 12 {
		t.Errorf("the old gateway's last learning makes %v, want 12", got)
	}
	if err := old.Close(); err != nil {
		t.Error(err)
	}
	if got := addTo(t, next, 1, 2); got != 13 {
		t.Errorf("the sum is %v, want 13", got)
	}
}

// A gateway that has released the file takes it back when the new one has failed, and calls that came meanwhile are answered.
func TestHandoverTakenBack(t *testing.T) {
	old := owned(t, filepath.Join(t.TempDir(), "state.db"))
	addTo(t, old, 1, 1)
	if err := old.Release(); err != nil {
		t.Fatal(err)
	}
	waits := make(chan float64)
	go func() { waits <- addTo(t, old, 2, 2) }()
	if err := old.Take(short(t)); err != nil {
		t.Fatal(err)
	}
	if got := <-waits; got != 3 {
		t.Errorf("the sum is %v, want 3", got)
	}
	if _, err := old.Commit(short(t), put("a", 0, 1)); err != nil {
		t.Error(err)
	}
}

// A call that waits for the file ends with its context, and with the store.
func TestHandoverWaitEnds(t *testing.T) {
	old := owned(t, filepath.Join(t.TempDir(), "state.db"))
	if err := old.Release(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	load := func(ctx context.Context) { _, err := old.Load(ctx, []Key{{"f", "p", ""}}); ended <- err }
	go load(ctx)
	cancel()
	if err := <-ended; err == nil {
		t.Error("a load without a store returned no error")
	}
	go load(short(t))
	if err := old.Close(); err != nil {
		t.Error(err)
	}
	if err := <-ended; err == nil {
		t.Error("a load of a closed store returned no error")
	}
}
