package state

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// A file with one damaged meta page is refused and left unchanged, whichever page and bit it is. bbolt would open it with the other page, which
// is the commit before: acknowledged changes would be lost silently.
func TestDamagedMetaPage(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	s := mustOpen(t, path)
	for i := range 3 {
		commit(t, s, Commit{Base: uint64(i), Put: []Object{object("Model", fmt.Sprint(i), "{}")}})
	}
	want := show(changes(t, s, 0))
	s.Close()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	size := int(binary.LittleEndian.Uint32(content[pageHeader+8:]))
	refusedAs := func(t *testing.T, spoiled []byte, says ...string) {
		t.Helper()
		if err := os.WriteFile(path, spoiled, 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := OpenFile(path)
		if err == nil {
			got := show(changes(t, s, 0))
			s.Close()
			t.Fatalf("the file was opened with\n%s\nand the last commit left\n%s", got, want)
		}
		wantError(t, err, append(says, path, "is damaged", "restore it from a copy", "move it away")...)
		if now, err := os.ReadFile(path); err != nil || !bytes.Equal(now, spoiled) {
			t.Errorf("the file has changed (%v)", err)
		}
	}
	for page := range 2 {
		which := fmt.Sprintf("meta page %d of 0 and 1", page)
		for _, c := range []struct {
			field     string
			at, bytes int
			says      string
		}{
			{"magic", 0, 4, "magic number"},
			{"version", 4, 4, "version"},
			{"page size", 8, 4, "checksum"},
			{"flags", 12, 4, "checksum"},
			{"root", 16, 16, "checksum"},
			{"free list", 32, 8, "checksum"},
			{"pages", 40, 8, "checksum"},
			{"transaction", 48, 8, "checksum"},
			{"sum", 56, 8, "checksum"},
		} {
			t.Run(fmt.Sprintf("page %d, %s", page, c.field), func(t *testing.T) {
				for i := range c.bytes {
					spoiled := bytes.Clone(content)
					spoiled[page*size+pageHeader+c.at+i] ^= 1 << (i % 8)
					refusedAs(t, spoiled, which, c.says)
				}
			})
		}
	}
	t.Run("both", func(t *testing.T) {
		spoiled := bytes.Clone(content)
		spoiled[pageHeader+48] ^= 1
		spoiled[size+pageHeader+48] ^= 1
		refusedAs(t, spoiled)
	})
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := show(changes(t, mustOpen(t, path), 0)); got != want {
		t.Errorf("the whole file has\n%s\nwant\n%s", got, want)
	}
}
