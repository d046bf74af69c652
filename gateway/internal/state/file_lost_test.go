package state

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"
)

// ways in which a file leaves its path, and what the error then says. Moving the original file back undoes each of them.
var ways = []struct {
	what, says string
	do         func(path string) (moved string, err error)
}{
	{"moved away", "was removed or moved away", func(path string) (string, error) { return path + ".away", os.Rename(path, path+".away") }},
	{"replaced by a copy", "was replaced by another file", func(path string) (string, error) {
		data, err := os.ReadFile(path)
		if err != nil {
			return "", err
		}
		if err := os.WriteFile(path+".copy", data, 0o600); err != nil {
			return "", err
		}
		if err := os.Rename(path, path+".away"); err != nil {
			return "", err
		}
		return path + ".away", os.Rename(path+".copy", path)
	}},
	{"gone with its folder", "was removed or moved away", func(path string) (string, error) {
		away := filepath.Dir(path) + ".away"
		return filepath.Join(away, filepath.Base(path)), os.Rename(filepath.Dir(path), away)
	}},
}

// While the path has another file or none, changes are refused with an error that says what to do. Reads still work, and once the file is
// back, changes do too.
func TestFileNotAtItsPathRefusesChanges(t *testing.T) {
	for _, way := range ways {
		t.Run(way.what, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "data", "state.db")
			if err := os.Mkdir(filepath.Dir(path), 0o700); err != nil {
				t.Fatal(err)
			}
			s := mustOpen(t, path).(*fileStore)
			k := Key{"f", "exp3", ""}
			put := Object{ObjectKey: ObjectKey{Kind: "Model", Name: "m@1"}, Data: []byte("{}")}
			base := commit(t, s, Commit{ID: randomID(), Put: []Object{put}})
			merge(t, s, add(k, 1, 1))
			moved, err := way.do(path)
			if err != nil {
				t.Fatal(err)
			}

			again := Commit{ID: randomID(), Base: base, Put: []Object{{ObjectKey: ObjectKey{Kind: "Model", Name: "m@2"}, Data: []byte("{}")}}}
			_, err = s.Commit(short(t), &again)
			wantError(t, err, path, way.says, "restart the gateway", "xebec export")
			var unknown *UnknownError
			if errors.As(err, &unknown) {
				t.Errorf("the error is %v: want another one than UnknownError, because nothing was written", err)
			}
			_, err = s.Merge(short(t), []Update{add(k, 2, 1)})
			wantError(t, err, path, way.says)
			wantError(t, s.Forget(short(t), "f"), path, way.says)
			wantError(t, s.CheckPath(), path, way.says)
			wantTotals(t, load(t, s, k), Total{"n", 1})
			if c, err := s.Changes(short(t), 0); err != nil || len(c.Objects) != 1 || c.Revision != base {
				t.Errorf("the content from before is %+v, %v", c, err)
			}

			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.Rename(moved, path); err != nil {
				t.Fatal(err)
			}
			if err := s.CheckPath(); err != nil {
				t.Errorf("after the file was moved back: %v", err)
			}
			commit(t, s, again)
			wantTotals(t, merge(t, s, add(k, 2, 1))[0], Total{"n", 2})
		})
	}
}

// A file that leaves its path during a commit may or may not have the change. The caller gets an UnknownError, and a retry resolves it.
func TestFileLeavesItsPathDuringACommit(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	s := mustOpen(t, path).(*fileStore)
	base := commit(t, s, Commit{ID: randomID()})
	c := Commit{ID: randomID(), Base: base}
	_, err := s.commit(&c, func(tx *bolt.Tx, c *Commit) (uint64, []ObjectKey, bool, error) {
		if err := os.Rename(path, path+".away"); err != nil {
			t.Error(err)
		}
		return s.stage(tx, c)
	})
	var unknown *UnknownError
	if !errors.As(err, &unknown) {
		t.Fatalf("the error is %v: want an UnknownError", err)
	}
	_, err = s.Commit(short(t), &c)
	wantError(t, err, path, "was removed or moved away")
	if err := os.Rename(path+".away", path); err != nil {
		t.Fatal(err)
	}
	if revision := commit(t, s, c); revision != base+1 {
		t.Errorf("the retried commit makes revision %d, want %d", revision, base+1)
	}
}

// An update of a state is not acknowledged either, and a retry counts once.
func TestFileLeavesItsPathDuringAnUpdate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	s := mustOpen(t, path).(*fileStore)
	u := add(Key{"f", "exp3", ""}, 1, 1)
	err := s.updateHeld(func(tx *bolt.Tx) error {
		if err := os.Rename(path, path+".away"); err != nil {
			return err
		}
		_, _, err := s.mergeOne(tx, s.writer, &u)
		return err
	})
	wantError(t, err, path, "was removed or moved away")
	if err := os.Rename(path+".away", path); err != nil {
		t.Fatal(err)
	}
	wantTotals(t, merge(t, s, u)[0], Total{"n", 1})
}

// A file that is truncated while it is open is a problem that CheckPath finds without reading it. Reads and changes fail with a sentence,
// and nothing of what Go says about the fault.
func TestFileIsTruncatedWhileItIsOpen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	s := mustOpen(t, path).(*fileStore)
	put := Object{ObjectKey: ObjectKey{Kind: "Model", Name: "m@1"}, Data: []byte("{}")}
	base := commit(t, s, Commit{ID: randomID(), Put: []Object{put}, Events: []Event{{At: time.Unix(1, 0), Subject: "m", Data: []byte("{}")}}})
	if err := s.CheckPath(); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, 8192); err != nil {
		t.Fatal(err)
	}
	wantError(t, s.CheckPath(), path, "was truncated to 8192 of", "restore it from a copy")
	_, history := s.History(short(t), "", 10)
	_, change := s.Commit(short(t), &Commit{ID: randomID(), Base: base, Put: []Object{put}})
	_, merged := s.Merge(short(t), []Update{add(Key{"f", "exp3", ""}, 1, 1)})
	for _, err := range []error{history, change, merged, s.CheckPath()} {
		wantError(t, err, path, "restore it from a copy")
		if strings.Contains(err.Error(), "runtime error") || strings.Contains(err.Error(), "nil pointer") {
			t.Errorf("the error is %v", err)
		}
	}
}
