package snapshot

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestUploadedFilesAreThoseOfTheDirectory(t *testing.T) {
	source := fill(t, t.TempDir(), map[string]string{
		"model.py": "one", "w/run": "#!/bin/sh", "w/l": "-> run", "e/": "", "big": strings.Repeat("b", 100_000), ".venv/x": "x", "xebec.yaml": "kind: Model", "secret": "s", IgnoreFile: "*.log\n", "a.log": "l",
	})
	var stream bytes.Buffer
	o := Options{Exclude: []string{"secret"}}
	sent, err := Pack(t.Context(), source, o, &stream)
	must(t, err)
	store := open(t, tempDir(t), 1<<20)
	id, err := store.Begin()
	must(t, err)
	at := int64(0)
	for part := make([]byte, 10_000); ; {
		n, _ := io.ReadFull(&stream, part) // the last one is shorter
		if n == 0 {
			break
		}
		if at, err = store.Append(id, at, part[:n]); err != nil {
			t.Fatal(err)
		}
		if _, err := store.Append(id, at+1, part); err == nil {
			t.Fatal("a part after a gap was taken")
		}
	}
	tree, err := store.Finish(t.Context(), id)
	must(t, err)
	here, err := Scan(t.Context(), source, o)
	must(t, err)
	if tree.Digest != here.Digest || sent.Digest != here.Digest {
		t.Errorf("the digests are %s, %s and %s: %s", tree.Digest, sent.Digest, here.Digest, Diff(here, tree))
	}
	if _, err := store.Dir(t.Context(), tree.Digest); err != nil {
		t.Error(err)
	}
	if _, err := store.Append(id, at, nil); !errors.Is(err, ErrNoUpload) {
		t.Errorf("an upload that has ended takes a part: %v", err)
	}
	if left, _ := filepath.Glob(filepath.Join(store.cfg.Dir, ".new-*")); len(left) > 0 {
		t.Errorf("%v is left", left)
	}
}

// archive makes a tar stream of headers, whose files have as many bytes as they say, or fewer.
func archive(t *testing.T, headers ...tar.Header) *bytes.Buffer {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, h := range headers {
		must(t, w.WriteHeader(&h))
		_, _ = io.CopyN(w, zeros{}, min(h.Size, 1<<16))
	}
	_ = w.Close() // a file may be shorter than it says
	return &out
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

func TestHostileArchivesAreRefused(t *testing.T) {
	outside := t.TempDir()
	file := func(name string, size int64) tar.Header {
		return tar.Header{Typeflag: tar.TypeReg, Name: name, Size: size, Mode: 0o644}
	}
	link := func(name, target string) tar.Header {
		return tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: target}
	}
	for name, c := range map[string]struct {
		stream *bytes.Buffer
		want   string
	}{
		"an absolute name":        {archive(t, file(outside+"/x", 1)), "below the directory"},
		"a name that leads out":   {archive(t, file("../x", 1)), "below the directory"},
		"a name out and in":       {archive(t, file("a/../../x", 1)), "below the directory"},
		"the directory itself":    {archive(t, file(".", 1)), "below the directory"},
		"a deep name":             {archive(t, file(strings.Repeat("d/", MaxDepth+1)+"x", 1)), "levels deep"},
		"a link outside":          {archive(t, link("l", outside), file("l/x", 1)), "lies outside"},
		"a link upwards":          {archive(t, link("l", ".."), file("l/x", 1)), "lies outside"},
		"a file twice":            {archive(t, file("x", 1), file("x", 1)), "twice"},
		"a file over a link":      {archive(t, file("x", 1), link("l", "x"), file("l", 1)), "twice"},
		"a file in a file":        {archive(t, file("x", 1), file("x/y", 1)), `"x/y"`},
		"a device":                {archive(t, tar.Header{Typeflag: tar.TypeChar, Name: "d"}), "has the type"},
		"a pipe":                  {archive(t, tar.Header{Typeflag: tar.TypeFifo, Name: "d"}), "has the type"},
		"a hard link":             {archive(t, file("x", 1), tar.Header{Typeflag: tar.TypeLink, Name: "d", Linkname: "x"}), "has the type"},
		"more than the limit":     {archive(t, file("x", 600), file("y", 600)), "larger than the limit"},
		"a size that is not true": {archive(t, file("x", 1<<40)), "larger than the limit"},
		"a stream that is cut":    {bytes.NewBuffer(archive(t, file("x", 900)).Bytes()[:700]), "unexpected EOF"},
		"no tar":                  {bytes.NewBufferString(strings.Repeat("x", 2048)), "cannot be read"},
		"a bad ignore file":       {archive(t, file(IgnoreFile, 100), file("x", 1)), ""},
	} {
		t.Run(name, func(t *testing.T) {
			store := open(t, tempDir(t), 1000)
			_, err := store.Take(t.Context(), c.stream)
			if c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("the error is %v: expected one about %q", err, c.want)
			}
			if err != nil && strings.Contains(err.Error(), store.cfg.Dir) {
				t.Errorf("the error tells where the store lies: %v", err)
			}
			if left, _ := filepath.Glob(filepath.Join(store.cfg.Dir, ".new-*")); len(left) > 0 {
				t.Errorf("%v is left", left)
			}
			if found, _ := os.ReadDir(outside); len(found) > 0 {
				t.Errorf("%v was written outside", found)
			}
		})
	}
}

func TestUploadsAreBounded(t *testing.T) {
	store := open(t, tempDir(t), 1000)
	var ids []string
	for range maxUploads {
		id, err := store.Begin()
		must(t, err)
		ids = append(ids, id)
	}
	if _, err := store.Begin(); !errors.Is(err, ErrTooManyUploads) {
		t.Errorf("one more upload has begun: %v", err)
	}
	store.uploads[ids[0]].last = time.Now().Add(-2 * uploadIdle)
	if _, err := store.Begin(); err != nil {
		t.Errorf("an upload that rests keeps others out: %v", err)
	}
	if _, err := store.Append(ids[0], 0, []byte("x")); !errors.Is(err, ErrNoUpload) {
		t.Errorf("its next part was taken: %v", err)
	}
	store.uploads[ids[1]].size = 1 << 40
	if _, err := store.Append(ids[1], 1<<40, []byte("x")); err == nil {
		t.Error("more than the limit was taken")
	}
	for _, s := range []*Store{open(t, "", 1000), open(t, tempDir(t), -1)} {
		if _, err := s.Begin(); err == nil {
			t.Error("a store that keeps nothing takes an upload")
		}
	}
}

func FuzzTake(f *testing.F) {
	f.Add([]byte("x"))
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	_ = w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "a/b", Size: 1})
	_, _ = w.Write([]byte("b"))
	_ = w.Close()
	f.Add(out.Bytes())
	f.Fuzz(func(t *testing.T, stream []byte) {
		store := open(t, tempDir(t), 1<<16)
		if tree, err := store.Take(t.Context(), bytes.NewReader(stream)); err == nil {
			if _, err := store.Dir(t.Context(), tree.Digest); err != nil {
				t.Error(err)
			}
		}
	})
}

// A part for which there is no room ends its upload, which would keep what room there is.
func TestAnUploadEndsWhenTheDiskIsFull(t *testing.T) {
	s := open(t, t.TempDir(), 1<<20)
	id, err := s.Begin()
	must(t, err)
	part := s.uploads[id].file.Name()
	must(t, s.uploads[id].file.Close())
	must(t, os.Remove(part))
	must(t, os.Symlink("/dev/full", part)) // a link, because the end of the upload removes it
	s.uploads[id].file, err = os.OpenFile(part, os.O_WRONLY, 0)
	must(t, err)
	if _, err := s.Append(id, 0, []byte("some")); !errors.Is(err, ErrNoRoom) {
		t.Errorf("the error is %v", err)
	}
	if _, err := s.Append(id, 0, []byte("some")); !errors.Is(err, ErrNoUpload) {
		t.Errorf("after that the error is %v", err)
	}
	if _, err := os.Lstat(part); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the part is there: %v", err)
	}
}
