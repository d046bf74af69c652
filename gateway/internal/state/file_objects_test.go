package state

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	bolt "go.etcd.io/bbolt"
)

// oldFile unpacks a file that a program of format 1 wrote: three states, each with one update of fields a/weight, 1 + i, and b/weight,
// 2 + 0.5.
func oldFile(t *testing.T) string {
	t.Helper()
	packed, err := os.Open("testdata/format1.db.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer packed.Close()
	unpacked, err := gzip.NewReader(packed)
	if err != nil {
		t.Fatal(err)
	}
	content, err := io.ReadAll(unpacked)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "state.db")
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// edit changes the file of a closed store directly.
func edit(t *testing.T, path string, change func(tx *bolt.Tx) error) {
	t.Helper()
	db, err := bolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if err := db.Update(change); err != nil {
		t.Fatal(err)
	}
}

func TestFileOfFormat1IsConverted(t *testing.T) {
	path := oldFile(t)
	for range 2 { // the first time from format 1, then from 2
		s := mustOpen(t, path)
		for i, k := range []Key{{"digits", "exp3", ""}, {"digits", "exp3", "ann"}, {"cats", "ucb", ""}} {
			wantTotals(t, load(t, s, k), Total{"a/weight", 1 + float64(i)}, Total{"b/weight", 2.5})
		}
		c := changes(t, s, 0)
		commit(t, s, Commit{Base: c.Revision, Put: []Object{object("Model", "a", "1")}, Events: []Event{event("a", "1")}})
		wantChanges(t, s, 0, fmt.Sprintf("%d all Model/a@%d=1", c.Revision+1, c.Revision+1))
		s.Close()
	}
	edit(t, path, func(tx *bolt.Tx) error {
		if got := string(tx.Bucket(metaBucket).Get(formatKey)); got != "2" {
			t.Errorf("the file has format %q, want 2", got)
		}
		return nil
	})
}

// A step that fails leaves the file in its old format.
func TestFailedConversionLeavesTheFileUnchanged(t *testing.T) {
	path := oldFile(t)
	edit(t, path, func(tx *bolt.Tx) error {
		_, err := tx.CreateBucket(commitsBucket) // the last bucket that the step makes
		return err
	})
	_, err := OpenFile(path)
	wantError(t, err, path, `cannot be converted from format "1" to "2"`, "is unchanged")
	edit(t, path, func(tx *bolt.Tx) error {
		if got := string(tx.Bucket(metaBucket).Get(formatKey)); got != "1" || tx.Bucket(objectsBucket) != nil {
			t.Errorf("the file has format %q, and a bucket of objects: %v", got, tx.Bucket(objectsBucket) != nil)
		}
		return tx.DeleteBucket(commitsBucket)
	})
	wantTotals(t, load(t, mustOpen(t, path), Key{"cats", "ucb", ""}), Total{"a/weight", 3}, Total{"b/weight", 2.5})
}

// Records that were changed, moved, lost or added are refused with an error that names the record.
func TestTamperedObjects(t *testing.T) {
	flip := func(bucket, key []byte) func(tx *bolt.Tx) error {
		return func(tx *bolt.Tx) error {
			value := bytes.Clone(tx.Bucket(bucket).Get(key))
			value[len(value)/2] ^= 1
			return tx.Bucket(bucket).Put(key, value)
		}
	}
	a, b := fileObjectKey(ObjectKey{"Model", "a"}), fileObjectKey(ObjectKey{"Model", "b"})
	type failing int
	const opening, changing, committing, telling failing = 1, 2, 4, 8
	for _, c := range []struct {
		name   string
		spoil  func(tx *bolt.Tx) error
		want   string
		broken failing
	}{
		{"an object", flip(objectsBucket, a), `"Model/a": its checksum is wrong`, changing},
		{"an object under another key", func(tx *bolt.Tx) error {
			return tx.Bucket(objectsBucket).Put(b, tx.Bucket(objectsBucket).Get(a))
		}, `"Model/b": its checksum is wrong`, changing},
		{"a lost object", func(tx *bolt.Tx) error { return tx.Bucket(objectsBucket).Delete(a) }, "it has 1 objects, expected 2", changing},
		{"an object more", func(tx *bolt.Tx) error {
			key := []byte("Model/c")
			return tx.Bucket(objectsBucket).Put(key, encodeObject(key, 1, []byte("1")))
		}, "it has 3 objects, expected 2", changing},
		{"an object of no kind", func(tx *bolt.Tx) error {
			key := []byte("no slash")
			return tx.Bucket(objectsBucket).Put(key, encodeObject(key, 1, []byte("1")))
		}, "letters and digits", changing},
		{"an object without data", func(tx *bolt.Tx) error { return tx.Bucket(objectsBucket).Put(a, encodeObject(a, 1, nil)) }, "expected 9 to", changing},
		{"a short object", func(tx *bolt.Tx) error { return tx.Bucket(objectsBucket).Put(a, []byte("abc")) }, "3 bytes", changing},
		{"the head", flip(metaBucket, headKey), "the record of its revision: its checksum is wrong", opening},
		{"no head", func(tx *bolt.Tx) error { return tx.Bucket(metaBucket).Delete(headKey) }, "the record of its revision", opening},
		{"a short head", func(tx *bolt.Tx) error { return tx.Bucket(metaBucket).Put(headKey, seal([]byte("x"), 0, headKey)) }, "expected 40", opening},
		{"no bucket", func(tx *bolt.Tx) error { return tx.DeleteBucket(subjectsBucket) }, `no bucket "subjects"`, opening},
		{"a commit", flip(commitsBucket, numberKey(1)), "the record of a commit: its checksum is wrong", committing},
		{"a commit of no revision", func(tx *bolt.Tx) error {
			return tx.Bucket(commitsBucket).Put([]byte("x"), seal(nil, 0, []byte("x")))
		}, "its key has 1 bytes", committing},
		{"an event", flip(historyBucket, numberKey(1)), "event 1: its checksum is wrong", telling},
		{"a lost event", func(tx *bolt.Tx) error { return tx.Bucket(historyBucket).Delete(numberKey(1)) }, "event 1", telling},
		{"an event of another subject", func(tx *bolt.Tx) error {
			e := event("b", "")
			return tx.Bucket(historyBucket).Put(numberKey(1), encodeEvent(numberKey(1), 1, &e))
		}, `its subject is "b"`, telling},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "state.db")
			s := mustOpen(t, path)
			commit(t, s, Commit{Put: []Object{object("Model", "a", "123"), object("Model", "b", "456")}, Events: []Event{event("a", "x")}})
			s.Close()
			edit(t, path, c.spoil)
			s, err := OpenFile(path)
			if (err != nil) != (c.broken&opening != 0) {
				t.Fatalf("opening: %v", err)
			}
			if err != nil {
				wantError(t, err, path+" is damaged", "restore it from a copy", c.want)
				return
			}
			defer s.Close()
			_, changesErr := s.Changes(short(t), 0)
			_, historyErr := s.History(short(t), "a", 10)
			_, commitErr := s.Commit(short(t), &Commit{ID: randomID(), Base: 1})
			for which, err := range map[failing]error{changing: changesErr, telling: historyErr, committing: commitErr} {
				if c.broken&which == 0 && err != nil {
					t.Errorf("%v: want no error", err)
				} else if c.broken&which != 0 {
					wantError(t, err, path+" is damaged", "restore it from a copy", c.want)
				}
			}
		})
	}
}

// An old event that cannot be read does not block new ones.
func TestTamperedEventIsDroppedInTurn(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	s := mustOpen(t, path)
	commit(t, s, Commit{Events: []Event{event("a", "1"), event("a", "2")}})
	s.Close()
	edit(t, path, func(tx *bolt.Tx) error { return tx.Bucket(historyBucket).Put(numberKey(1), []byte("nonsense")) })
	s = mustOpen(t, path)
	limitsOf(s).events = 2
	commit(t, s, Commit{Base: 1, Events: []Event{event("a", "3")}})
	for _, subject := range []string{"", "a"} {
		if got := subjects(history(t, s, subject, 10)); got != "2:a:3 1:a:2" {
			t.Errorf("the history of %q is %s", subject, got)
		}
	}
}

// Whichever bit of the file is flipped, Changes returns the state after one of the commits, or an error that names the file. Later
// commits and reads either work or fail in the same way.
func TestFlippedBitsOfAFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	s := mustOpen(t, path)
	states := map[string]bool{show(changes(t, s, 0)): true}
	data := strings.Repeat("what is declared ", 20)
	for i := range 20 {
		c := Commit{Base: uint64(i)}
		for j := range 20 {
			c.Put = append(c.Put, object("Model", fmt.Sprint(i*10+j), fmt.Sprint(data, i, j)))
		}
		c.Delete = []ObjectKey{objectKey(fmt.Sprint(i*10 - 5))}
		c.Events = []Event{event("a", "1"), event("b", data)}
		commit(t, s, c)
		states[show(changes(t, s, 0))] = true
	}
	s.Close()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	random := rand.New(rand.NewPCG(1, 2))
	const page = 4096
	right, wrong := 0, 0
	for i := 0; i < len(content); i += page {
		// Each byte of the page's header, some in its first entries, and some of the rest.
		for place := range 16 + 16 + 8 {
			at := i + place
			switch {
			case place >= 32:
				at = i + random.IntN(page)
			case place >= 16:
				at = i + 16 + random.IntN(128)
			}
			spoiled := bytes.Clone(content)
			spoiled[at] ^= 1 << random.IntN(8)
			if err := os.WriteFile(path, spoiled, 0o600); err != nil {
				t.Fatal(err)
			}
			if useObjects(t, path, states) {
				right++
			} else {
				wrong++
			}
		}
	}
	if right == 0 || wrong == 0 {
		t.Errorf("%d files could be read and %d could not: the test needs both kinds", right, wrong)
	}
}

// useObjects opens a file and uses it, and reports whether it could be read.
func useObjects(t *testing.T, path string, states map[string]bool) bool {
	t.Helper()
	s, err := OpenFile(path)
	if err != nil {
		wantError(t, err, path)
		return false
	}
	defer s.Close()
	c, err := s.Changes(context.Background(), 0)
	if err != nil {
		wantError(t, err, "damaged")
	} else if !states[show(c)] {
		t.Errorf("the store at revision %d has %d objects that no commit has made", c.Revision, len(c.Objects))
	}
	if _, err := s.History(context.Background(), "", MaxEvents); err != nil {
		wantError(t, err, "damaged")
	}
	next := Commit{ID: randomID(), Base: c.Revision, Put: []Object{object("New", "n", "1")}, Events: []Event{event("a", "1")}}
	if _, err := s.Commit(context.Background(), &next); err != nil {
		wantError(t, err, path)
	} else if after, err := s.Changes(context.Background(), 0); err != nil {
		wantError(t, err, "damaged")
	} else {
		got := strings.TrimSuffix(show(after), fmt.Sprintf(" New/n@%d=1", after.Revision))
		want, _ := strings.CutPrefix(show(c), fmt.Sprint(c.Revision))
		if got != fmt.Sprint(after.Revision)+want {
			t.Errorf("after a commit the store at revision %d does not have the objects from before and the new one, but %d others", after.Revision, len(after.Objects))
		}
	}
	return err == nil
}

// hasCommit tells a commit that was made from one that was not.
func TestFileFindsItsCommits(t *testing.T) {
	s := mustOpen(t, filepath.Join(t.TempDir(), "state.db")).(*fileStore)
	id := randomID()
	commit(t, s, Commit{ID: id})
	if !s.hasCommit(id) || s.hasCommit(randomID()) {
		t.Errorf("the commit is found: %v, another one: %v", s.hasCommit(id), s.hasCommit(randomID()))
	}
}

// On a full disk commits fail with an error that says so. Acknowledged commits remain, and with free space commits work again.
func TestFullDisk(t *testing.T) {
	for _, what := range []string{"limit", "disk"} {
		cmd := child(t, what, t.TempDir())
		if what == "disk" {
			// The child mounts a disk of its own in namespaces of its own.
			cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
			if id := os.Geteuid(); id != 0 {
				cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
				cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: id, Size: 1}}
			}
		}
		out, err := cmd.CombinedOutput()
		if what == "disk" && (errors.Is(err, syscall.EPERM) || strings.Contains(string(out), errMount)) {
			t.Logf("no small disk can be mounted here; only the limit on file sizes is tested: %v %s", err, out)
		} else if err != nil {
			t.Errorf("%s: %v\n%s", what, err, out)
		}
	}
}

const errMount = "mounting a small disk"

func fullByDisk(dir string) error {
	if err := syscall.Mount("none", dir, "tmpfs", 0, "size=400k"); err != nil {
		return fmt.Errorf("%s: %w", errMount, err)
	}
	return fillUp(dir, "the disk is full: free some space", func() error { return syscall.Mount("none", dir, "tmpfs", syscall.MS_REMOUNT, "size=100m") })
}

func fullByLimit(dir string) error {
	// The signal would kill the program at the limit. If it is ignored, the write returns an error instead.
	signal.Ignore(syscall.SIGXFSZ)
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		return err
	}
	small := syscall.Rlimit{Cur: 400 << 10, Max: limit.Max}
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &small); err != nil {
		return err
	}
	return fillUp(dir, "the file has reached the limit on file sizes", func() error { return syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit) })
}

// fillUp commits until the disk is full, twice, checks the content, then makes room and commits again.
func fillUp(dir, want string, makeRoom func() error) error {
	ctx, path := context.Background(), filepath.Join(dir, "state.db")
	s, err := OpenFile(path)
	if err != nil {
		return err
	}
	acknowledged := Changes{Complete: true}
	next := func() error {
		o := object("Model", fmt.Sprintf("%06d", acknowledged.Revision), strings.Repeat("d", 10_000))
		c := &Commit{ID: randomID(), Base: acknowledged.Revision, Put: []Object{o}, Events: []Event{event("a", "1")}}
		revision, err := s.Commit(ctx, c)
		if err == nil {
			acknowledged.Revision, o.Revision = revision, revision
			acknowledged.Objects = append(acknowledged.Objects, o)
		}
		return err
	}
	check := func() error {
		c, err := s.Changes(ctx, 0)
		if err != nil {
			return err
		}
		if show(c) != show(acknowledged) {
			return fmt.Errorf("the store has revision %d with %d objects, want %d with %d", c.Revision, len(c.Objects), acknowledged.Revision, len(acknowledged.Objects))
		}
		return nil
	}
	for range 2 {
		for err = next(); err == nil && len(acknowledged.Objects) < 100; {
			err = next()
		}
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), path) {
			return fmt.Errorf("after %d commits the error is %w: want %q", len(acknowledged.Objects), err, want)
		}
		if errors.As(err, new(*UnknownError)) {
			return fmt.Errorf("%w: want an error that says that nothing was changed", err)
		}
		if err := check(); err != nil {
			return err
		}
	}
	if err := makeRoom(); err != nil {
		return err
	}
	if err := next(); err != nil {
		return fmt.Errorf("with free space: %w", err)
	}
	if err := errors.Join(check(), s.Close()); err != nil {
		return err
	}
	if s, err = OpenFile(path); err != nil {
		return err
	}
	return errors.Join(check(), s.Close())
}

// commitForever commits without end and prints each acknowledged revision.
func commitForever(path string) error {
	s, err := OpenFile(path)
	if err != nil {
		return err
	}
	for revision := uint64(0); ; {
		c := &Commit{ID: randomID(), Base: revision, Put: []Object{object("Model", fmt.Sprint(revision), "1")}}
		if revision, err = s.Commit(context.Background(), c); err != nil {
			return err
		}
		fmt.Println(revision)
	}
}

func TestKilledProcessLosesNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	cmd := child(t, "commits", path)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	last := 0
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if _, err := fmt.Sscan(lines.Text(), &last); err != nil {
			t.Fatal(err)
		}
		if last == 50 {
			cmd.Process.Kill()
		}
	}
	cmd.Wait()
	c := changes(t, mustOpen(t, path), 0)
	if int(c.Revision) < last || last < 50 || len(c.Objects) != int(c.Revision) {
		t.Errorf("the store has revision %d with %d objects, and %d commits were acknowledged", c.Revision, len(c.Objects), last)
	}
}

// Whichever bytes of a file are replaced, using it neither crashes nor hangs nor returns wrong objects. The input is a list of replacements: two
// bytes of position and one byte of content.
func FuzzDamagedFile(f *testing.F) {
	s := mustOpen(f, filepath.Join(f.TempDir(), "state.db"))
	path := s.Name()
	states := map[string]bool{show(changes(f, s, 0)): true}
	for i := range 8 {
		c := Commit{Base: uint64(i), Events: []Event{event("a", "1")}}
		for j := range 30 {
			c.Put = append(c.Put, object("Model", fmt.Sprint(i*10+j), strings.Repeat("what is declared ", 10)))
		}
		commit(f, s, c)
		states[show(changes(f, s, 0))] = true
	}
	s.Close()
	content, err := os.ReadFile(path)
	if err != nil {
		f.Fatal(err)
	}
	f.Add([]byte{0x30, 0x0f, 0xff})        // how many pages follow page 3
	f.Add([]byte{0x40, 0x08, 1, 0, 16, 0}) // the kind of a page; the magic number
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, replaced []byte) {
		spoiled := bytes.Clone(content)
		for ; len(replaced) >= 3; replaced = replaced[3:] {
			spoiled[(int(replaced[0])<<8|int(replaced[1]))%len(spoiled)] = replaced[2]
		}
		if err := os.WriteFile(path, spoiled, 0o600); err != nil {
			t.Fatal(err)
		}
		useObjects(t, path, states)
	})
}
