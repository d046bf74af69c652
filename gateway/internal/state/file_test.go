package state

import (
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	bolt "go.etcd.io/bbolt"
)

func TestFileIsHeldByOneProcess(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	first := mustOpen(t, path)
	_, err := OpenFile(path)
	wantError(t, err, path, "is held by", "one gateway at a time", "another file or a Redis server")
	merge(t, first, add(someKey, 1, 1))
	first.Close()
	wantTotals(t, load(t, mustOpen(t, path), someKey), Total{"n", 1})
}

// A gateway that was killed while it made its first store starts again: the unfinished file has another name.
func TestFileWhoseCreationWasInterrupted(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	for _, unfinished := range []string{"", "half of a page"} {
		if err := os.WriteFile(path+unfinishedSuffix, []byte(unfinished), 0o600); err != nil {
			t.Fatal(err)
		}
		s := mustOpen(t, path)
		merge(t, s, add(someKey, 1, 1))
		s.Close()
		if names, err := os.ReadDir(filepath.Dir(path)); err != nil || len(names) != 1 {
			t.Errorf("the folder has %v, %v: want the store alone", names, err)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
}

// Of programs that make the same store at the same time one gets it, and the others are told who holds it.
func TestFileMadeByTwoAtOnce(t *testing.T) {
	for range 10 {
		path := filepath.Join(t.TempDir(), "state.db")
		errs := make(chan error)
		for range 2 {
			go func() { errs <- (&fileStore{path: path}).create() }()
		}
		for range 2 {
			if err := <-errs; err != nil {
				t.Error(err)
			}
		}
		mustOpen(t, path)
		if names, err := os.ReadDir(filepath.Dir(path)); err != nil || len(names) != 1 {
			t.Errorf("the folder has %v, %v: want the store alone", names, err)
		}
	}
}

func TestFindLock(t *testing.T) {
	const table = `1: POSIX  ADVISORY  WRITE 11 fd:01:77 0 EOF
2: FLOCK  ADVISORY  READ  12 fd:01:77 0 EOF
3: FLOCK  ADVISORY  WRITE 13 fd:01:177 0 EOF
4: FLOCK  ADVISORY  WRITE 0 fd:01:77 0 EOF
5: -> FLOCK  ADVISORY  WRITE 14 fd:01:77 0 EOF
6: FLOCK  ADVISORY  WRITE 15 fd:01:77 0 EOF
7: short
`
	for inode, want := range map[uint64]int{77: 15, 177: 13, 7: 0, 1: 0} {
		if got := findLock(strings.NewReader(table), inode); got != want {
			t.Errorf("inode %d is held by %d, want %d", inode, got, want)
		}
	}
}

func TestFilesThatCannotBeOpened(t *testing.T) {
	dir := t.TempDir()
	bucket := func(name, bucket, key, value string) string {
		path := filepath.Join(dir, name)
		db, err := bolt.Open(path, 0o600, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := db.Update(func(tx *bolt.Tx) error {
			b, err := tx.CreateBucket([]byte(bucket))
			if err != nil {
				return err
			}
			return b.Put([]byte(key), []byte(value))
		}); err != nil {
			t.Fatal(err)
		}
		db.Close()
		return path
	}
	write := func(name, content string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for _, c := range []struct{ path, want string }{
		{filepath.Join(dir, "nowhere", "state.db"), "its folder does not exist"},
		{dir, "is a folder"},
		{write("text", strings.Repeat("this is no database\n", 10000)), "is damaged or not a store"},
		{write("short", "x"), "is damaged or not a store"},
		{write("emptied", ""), "is damaged or not a store"},
		{bucket("foreign", "users", "ann", "1"), "a bbolt file of another program"},
		{bucket("newer", "xebec", "format", "3"), `format "3"`},
		{bucket("strange", "xebec", "other", "1"), `format ""`},
	} {
		before, _ := os.ReadFile(c.path)
		s, err := OpenFile(c.path)
		if err == nil {
			s.Close()
		}
		wantError(t, err, c.path, c.want)
		after, _ := os.ReadFile(c.path)
		if !bytes.Equal(before, after) {
			t.Errorf("%s has been changed", c.path)
		}
	}
}

// filled makes a file of several pages and returns its path, its content and its keys. Key i has the state {n: i+1}.
func filled(t *testing.T) (string, []byte, []Key) {
	path := filepath.Join(t.TempDir(), "state.db")
	s := mustOpen(t, path)
	var keys []Key
	for i := range 300 {
		keys = append(keys, Key{fmt.Sprintf("f%d", i%3), "exp3", fmt.Sprintf("context %d", i)})
		if i%100 == 99 {
			var updates []Update
			for j := i - 99; j <= i; j++ {
				updates = append(updates, add(keys[j], 1, float64(j+1)))
			}
			merge(t, s, updates...)
		}
	}
	s.Close()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return path, content, keys
}

// useAll opens a file, uses everything in it and returns how many states are right. A state must be right, refused or missing; panics and
// faults fail the test too.
func useAll(t *testing.T, path string, keys []Key) int {
	t.Helper()
	s, err := OpenFile(path)
	if err != nil {
		wantError(t, err, path)
		return 0
	}
	defer s.Close()
	right := 0
	for i, k := range keys {
		got, err := s.Load(context.Background(), []Key{k})
		switch {
		case err != nil:
			wantError(t, err, "damaged")
		case len(got[0]) == 1 && got[0][0] == Total{"n", float64(i + 1)}:
			right++
		case len(got[0]) != 0:
			t.Errorf("%v is %v, want %d", k, got[0], i+1)
		}
	}
	updates := []Update{add(keys[0], 1, 1), add(keys[100], 1, 1), add(Key{"new", "exp3", ""}, 1, 1)}
	if _, err := s.Merge(context.Background(), updates); err != nil {
		wantError(t, err, "damaged")
	}
	for _, function := range []string{"f0", "f1", "f2", "new"} {
		if err := s.Forget(context.Background(), function); err != nil {
			wantError(t, err, path)
		}
	}
	return right
}

// A file truncated anywhere is an error, never a crash or a wrong number.
func TestCutOffFile(t *testing.T) {
	path, content, keys := filled(t)
	if right := useAll(t, path, keys); right != len(keys) {
		t.Fatalf("%d of %d states are right in the whole file", right, len(keys))
	}
	db, err := bolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	var used int64 // up to the last page in use
	db.View(func(tx *bolt.Tx) error {
		used = tx.Size()
		return nil
	})
	db.Close()
	const page = 4096
	for size := 0; size < len(content); size += page / 2 {
		if err := os.WriteFile(path, content[:size], 0o600); err != nil {
			t.Fatal(err)
		}
		if s, err := OpenFile(path); err == nil {
			s.Close()
			if 0 < size && int64(size) < used {
				t.Errorf("a file truncated at %d of %d bytes was opened", size, used)
			}
		}
		useAll(t, path, keys)
	}
}

// So is a file with pages overwritten by zeros, ones or other pages.
func TestOverwrittenPages(t *testing.T) {
	path, content, keys := filled(t)
	const page = 4096
	pages := len(content) / page
	for i := range pages {
		for _, with := range [][]byte{make([]byte, page), bytes.Repeat([]byte{0xff}, page), content[(i+1)%pages*page:][:page]} {
			spoiled := bytes.Clone(content)
			copy(spoiled[i*page:], with)
			if err := os.WriteFile(path, spoiled, 0o600); err != nil {
				t.Fatal(err)
			}
			useAll(t, path, keys)
		}
	}
}

// The checksum covers each bit of a record.
func TestFlippedBitsOfARecord(t *testing.T) {
	path, content, keys := filled(t)
	key := fileKey(keys[7])
	// The file may have older copies of a page. Find the copy that is read.
	at, found := -1, 0
	for i := 0; ; {
		j := bytes.Index(content[i:], key)
		if j < 0 {
			break
		}
		spoiled := bytes.Clone(content)
		spoiled[i+j+len(key)] ^= 1
		if err := os.WriteFile(path, spoiled, 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := OpenFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Load(short(t), keys[7:8]); err != nil {
			at, found = i+j+len(key), found+1
		}
		s.Close()
		i += j + 1
	}
	if found != 1 {
		t.Fatalf("the record was found %d times", found)
	}
	length := recordHeader + 1 + 1 + len("n") + 8 + recordSum
	for i := range length {
		spoiled := bytes.Clone(content)
		spoiled[at+i] ^= 1 << (i % 8)
		if err := os.WriteFile(path, spoiled, 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := OpenFile(path)
		if err != nil {
			t.Fatal(err)
		}
		_, err = s.Load(short(t), keys[7:9])
		wantRefused(t, err, 0, "checksum is wrong")
		_, err = s.Merge(short(t), []Update{add(keys[8], 2, 1), add(keys[7], 1, 1)})
		wantRefused(t, err, 1, "checksum is wrong")
		s.Close()
	}
}

// The encoding as a transcript: what is written, and what is not accepted.
func TestRecords(t *testing.T) {
	datadriven.RunTest(t, "testdata/records.txt", func(t *testing.T, d *datadriven.TestData) string {
		switch d.Cmd {
		case "encode":
			r := record{seq: 0x0102}
			for i := range r.writer {
				r.writer[i] = byte(i)
			}
			for line := range strings.Lines(d.Input) {
				var f Total
				if _, err := fmt.Sscanf(line, "%s %g", &f.Name, &f.Value); err != nil {
					t.Fatal(err)
				}
				r.fields = append(r.fields, f)
			}
			encoded := appendRecord(nil, []byte("key"), &r)
			decoded, err := decodeRecord([]byte("key"), encoded)
			if err != nil || decoded.writer != r.writer || decoded.seq != r.seq || fmt.Sprint(decoded.fields) != fmt.Sprint(r.fields) {
				t.Errorf("read back as %v, %v", decoded, err)
			}
			return hex.Dump(encoded)
		case "decode":
			// The input is a body without its checksum.
			var body []byte
			for line := range strings.Lines(d.Input) {
				line, _, _ = strings.Cut(line, "#")
				part, err := hex.DecodeString(strings.ReplaceAll(strings.TrimSpace(line), " ", ""))
				if err != nil {
					t.Fatal(err)
				}
				body = append(body, part...)
			}
			r, err := decodeBody(body)
			if err != nil {
				return "error: " + err.Error() + "\n"
			}
			return fmt.Sprintf("writer %x seq %d %v\n", r.writer, r.seq, r.fields)
		}
		t.Fatalf("unknown command %s", d.Cmd)
		return ""
	})
}

// Whatever decodes without an error encodes to the same bytes.
func FuzzDecodeRecord(f *testing.F) {
	for _, fields := range [][]Total{nil, {{"n", 1}}, {{"a", -0.5}, {"b", 1e300}}} {
		encoded := appendRecord(nil, nil, &record{seq: 3, fields: fields})
		f.Add(encoded[:len(encoded)-recordSum])
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		key := []byte("key")
		if r, err := decodeBody(body); err == nil {
			again := appendRecord(nil, key, &r)
			if !bytes.Equal(again[:len(again)-recordSum], body) {
				t.Fatalf("%x decodes to %v, which encodes to %x", body, r, again)
			}
			if _, err := decodeRecord(key, again); err != nil {
				t.Fatalf("%x does not decode: %v", again, err)
			}
			if _, err := decodeRecord([]byte("other"), again); err == nil {
				t.Fatal("it decodes under another key")
			}
		}
		decodeRecord(key, body)
	})
}
