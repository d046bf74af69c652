package snapshot

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// fill writes files, by name. A name that ends with a slash is a directory, a content that begins with "-> " makes a link, and one that
// begins with "#!" is executable.
func fill(t *testing.T, dir string, files map[string]string) string {
	t.Helper()
	for name, content := range files {
		at := filepath.Join(dir, name)
		if strings.HasSuffix(name, "/") {
			must(t, os.MkdirAll(at, 0o755))
			continue
		}
		must(t, os.MkdirAll(filepath.Dir(at), 0o755))
		if target, ok := strings.CutPrefix(content, "-> "); ok {
			must(t, os.Symlink(target, at))
			continue
		}
		mode := os.FileMode(0o644)
		if strings.HasPrefix(content, "#!") {
			mode = 0o755
		}
		must(t, os.WriteFile(at, []byte(content), mode))
	}
	return dir
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// tempDir is t.TempDir for directories that may hold read-only ones.
func tempDir(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "d")
	must(t, os.Mkdir(dir, 0o755))
	t.Cleanup(func() { _ = removeAll(dir) })
	return dir
}

func scan(t *testing.T, dir string, exclude ...string) *Tree {
	t.Helper()
	tree, err := Scan(t.Context(), dir, Options{Exclude: exclude})
	must(t, err)
	return tree
}

func TestDigestIsOfTheFilesThatBelong(t *testing.T) {
	files := map[string]string{"model.py": "x = 1", "run.sh": "#!/bin/sh", "w/a.bin": "weights", "empty/": "", "w/same": "-> a.bin", "up/l": "-> ../model.py"}
	first := scan(t, fill(t, t.TempDir(), files))
	if err := CheckDigest(first.Digest); err != nil {
		t.Error(err)
	}
	// The digest is part of declarations that are stored: it must not change by accident.
	if want := "sha256:47e887fdce4fa6e7c62e15d4bc4d233ef42250946d2adb2982d865d94dba1e2a"; first.Digest != want {
		t.Errorf("the digest is %s: expected %s", first.Digest, want)
	}
	more := map[string]string{
		"xebec.yaml": "kind: Model", ".git/HEAD": "ref", "w/__pycache__/a.pyc": "b", ".venv/bin/python": "-> /usr/bin/python3", "env/pyvenv.cfg": "home = /usr", "env/bin/python": "-> /usr/bin/python3",
		"node_modules/x/y.js": "z", ".xebecignore": "# notes\n*.log\n/notes/\ndata/**/*.tmp\n", "train.log": "l", "w/deep/x.log": "l", "notes/a": "n", "secret": "s",
	}
	dir := fill(t, fill(t, t.TempDir(), files), more)
	must(t, os.Remove(filepath.Join(dir, "w/deep/x.log")))
	must(t, os.Remove(filepath.Join(dir, "w/deep")))
	if got := scan(t, dir, "secret"); got.Digest != first.Digest {
		t.Errorf("what does not belong counts: %s", Diff(first, got))
	}
	must(t, os.Chtimes(filepath.Join(dir, "model.py"), time.Unix(1, 0), time.Unix(1, 0)))
	must(t, os.Chmod(filepath.Join(dir, "model.py"), 0o600))
	if got := scan(t, dir, filepath.Join(dir, "secret")); got.Digest != first.Digest {
		t.Errorf("times and permissions count: %s", Diff(first, got))
	}
	link := filepath.Join(t.TempDir(), "link")
	must(t, os.Symlink(dir, link))
	if got := scan(t, link, "secret"); got.Digest != first.Digest {
		t.Errorf("the directory may be a link: %s", Diff(first, got))
	}
	steps := []struct {
		change func() error
		want   string
	}{
		{func() error { return os.WriteFile(filepath.Join(dir, "model.py"), []byte("x = 2"), 0o600) }, "model.py changed"},
		{func() error { return os.Chmod(filepath.Join(dir, "w/a.bin"), 0o755) }, "model.py, w/a.bin changed"},
		{func() error { return os.Remove(filepath.Join(dir, "run.sh")) }, "model.py, w/a.bin changed; run.sh removed"},
		{func() error { return os.Mkdir(filepath.Join(dir, "a new one\n"), 0o755) }, `model.py, w/a.bin changed; "a new one\n" added; run.sh removed`},
	}
	for _, s := range steps {
		must(t, s.change())
		if got := Diff(first, scan(t, dir, "secret")).String(); got != s.want {
			t.Errorf("the difference is %q: expected %q", got, s.want)
		}
	}
}

func TestHostileDirectoriesAreRefused(t *testing.T) {
	socket := func(dir string) error {
		l, err := net.Listen("unix", filepath.Join(dir, "s"))
		if err == nil {
			t.Cleanup(func() { l.Close() })
		}
		return err
	}
	for name, c := range map[string]struct {
		make func(dir string) error
		want string
	}{
		"an absolute link":          {func(dir string) error { return os.Symlink("/etc/passwd", filepath.Join(dir, "l")) }, "lies outside"},
		"a link upwards":            {func(dir string) error { return os.Symlink("../x", filepath.Join(dir, "l")) }, "lies outside"},
		"a link out and in again":   {func(dir string) error { return os.Symlink("../"+filepath.Base(dir)+"/f", filepath.Join(dir, "l")) }, "lies outside"},
		"a link up through another": {func(dir string) error { return os.Symlink("d/../../x", filepath.Join(dir, "l")) }, "lies outside"},
		"a pipe":                    {func(dir string) error { return syscall.Mkfifo(filepath.Join(dir, "p"), 0o644) }, "is a socket, a pipe or a device"},
		"a socket":                  {socket, "is a socket, a pipe or a device"},
		"many levels":               {func(dir string) error { return os.MkdirAll(dir+strings.Repeat("/d", MaxDepth+2), 0o755) }, "directories deep"},
		"an ignore file that is long": {func(dir string) error {
			return os.WriteFile(filepath.Join(dir, IgnoreFile), make([]byte, maxIgnoreBytes+1), 0o644)
		}, "more than"},
		"an ignore file that is none": {func(dir string) error { return os.Symlink("/etc/passwd", filepath.Join(dir, IgnoreFile)) }, IgnoreFile},
		"an exception":                {func(dir string) error { return os.WriteFile(filepath.Join(dir, IgnoreFile), []byte("a\n!b\n"), 0o644) }, "line 2"},
		"a bad pattern":               {func(dir string) error { return os.WriteFile(filepath.Join(dir, IgnoreFile), []byte("[a\n"), 0o644) }, "line 1"},
		"no directory":                {os.RemoveAll, "no such file"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			must(t, c.make(dir))
			store := open(t, tempDir(t), 1<<20)
			_, err := store.Add(t.Context(), dir, Options{})
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), dir) {
				t.Errorf("the error is %v: expected one about %q in %s", err, c.want, dir)
			}
			if left, _ := os.ReadDir(store.cfg.Dir); len(left) > 0 {
				t.Errorf("%v is left in the store", left)
			}
		})
	}
	t.Run("many files", func(t *testing.T) {
		dir := t.TempDir()
		for i := range 300 { // with names of a kilobyte each, deep below
			sub := filepath.Join(dir, strings.Repeat(strings.Repeat("n", 240)+"/", 12), strings.Repeat("m", 200), string(rune('a'+i%26))+strings.Repeat("x", i/26))
			must(t, os.MkdirAll(sub, 0o755))
		}
		scan(t, dir)
		r := &reader{ctx: t.Context(), dir: dir, names: MaxNameBytes - 100}
		if _, _, err := r.run(Options{}); err == nil || !strings.Contains(err.Error(), "directory of its own") {
			t.Errorf("the error is %v", err)
		}
	})
}

func TestCancelledScanEnds(t *testing.T) {
	dir := fill(t, t.TempDir(), map[string]string{"a": "a"})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Scan(ctx, dir, Options{}); !errors.Is(err, context.Canceled) {
		t.Errorf("the error is %v", err)
	}
}

func open(t *testing.T, dir string, limit int64) *Store {
	t.Helper()
	s, err := Open(Config{Dir: dir, LimitBytes: limit})
	must(t, err)
	return s
}

func add(t *testing.T, s *Store, dir string) Added {
	t.Helper()
	a, err := s.Add(t.Context(), dir, Options{})
	must(t, err)
	return a
}

func TestCopiesAreReadOnlyAndStayWhatTheyAre(t *testing.T) {
	source := fill(t, t.TempDir(), map[string]string{"model.py": "one", "w/run": "#!/bin/sh", "w/l": "-> run", "e/": "", "__pycache__/m.pyc": "x"})
	store := open(t, tempDir(t), 1<<20)
	a := add(t, store, source)
	if !a.Kept {
		t.Fatal("there is no copy")
	}
	dir, err := store.Dir(t.Context(), a.Digest)
	must(t, err)
	must(t, os.WriteFile(filepath.Join(source, "model.py"), []byte("two"), 0o644))
	if text, err := os.ReadFile(filepath.Join(dir, "model.py")); err != nil || string(text) != "one" {
		t.Errorf("the copy has %q, %v after an edit of the source", text, err)
	}
	for name, mode := range map[string]os.FileMode{".": 0o555, "model.py": 0o444, "w": 0o555, "w/run": 0o555, "e": 0o555} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Mode().Perm() != mode {
			t.Errorf("%s: %v, %v: expected the mode %o", name, info, err, mode)
		}
	}
	if _, err := os.Lstat(filepath.Join(dir, "__pycache__")); err == nil {
		t.Error("the copy has a __pycache__")
	}
	b := add(t, store, source)
	if got := store.Difference(a.Digest, b.Tree); got != "model.py changed" {
		t.Errorf("the difference is %q", got)
	}
	// Another process of the same directory finds both.
	again := open(t, store.cfg.Dir, 1<<20)
	for _, digest := range []string{a.Digest, b.Digest} {
		if _, err := again.Dir(t.Context(), digest); err != nil {
			t.Error(err)
		}
		if tree, err := again.Tree(digest); err != nil || tree.Digest != digest {
			t.Errorf("its files are %v, %v", tree, err)
		}
	}
	if err := again.Check(t.Context(), source, Options{}, a.Digest); err == nil || !strings.Contains(err.Error(), "model.py changed") {
		t.Errorf("an edited directory passes the check: %v", err)
	}
	must(t, again.Check(t.Context(), source, Options{}, b.Digest))
}

func TestDamagedCopyIsNotUsedAndMadeAgain(t *testing.T) {
	source := fill(t, t.TempDir(), map[string]string{"model.py": "one"})
	for name, damage := range map[string]func(files string) error{
		"changed": func(files string) error {
			at := filepath.Join(files, "model.py")
			return errors.Join(os.Chmod(at, 0o600), os.WriteFile(at, []byte("eno"), 0o600))
		},
		"emptied": func(files string) error { return os.Truncate(filepath.Join(files, "model.py"), 0) },
		"added": func(files string) error {
			return errors.Join(os.Chmod(files, 0o700), os.WriteFile(filepath.Join(files, "more.py"), nil, 0o600))
		},
		"removed": func(files string) error {
			return errors.Join(os.Chmod(files, 0o700), os.Remove(filepath.Join(files, "model.py")))
		},
	} {
		t.Run(name, func(t *testing.T) {
			store := open(t, tempDir(t), 1<<20)
			a := add(t, store, source)
			files, err := store.Dir(t.Context(), a.Digest)
			must(t, err)
			must(t, os.Chmod(filepath.Join(files, "model.py"), 0o600))
			must(t, damage(files))
			var not *NotKeptError
			if _, err := store.Dir(t.Context(), a.Digest); !errors.As(err, &not) {
				t.Errorf("the damaged copy is used: %v", err)
			}
			add(t, store, source)
			if _, err := store.Dir(t.Context(), a.Digest); err != nil {
				t.Errorf("it was not made again: %v", err)
			}
		})
	}
}

func TestAboveTheLimitThereIsOnlyADigest(t *testing.T) {
	source := fill(t, t.TempDir(), map[string]string{"model.py": "one", "weights": strings.Repeat("w", 1000)})
	store := open(t, tempDir(t), 1000)
	a := add(t, store, source)
	if _, err := store.Dir(t.Context(), a.Digest); a.Kept || err == nil {
		t.Error("there is a copy")
	}
	if want := scan(t, source).Digest; a.Digest != want {
		t.Errorf("the digest is %s: expected %s", a.Digest, want)
	}
	must(t, store.Check(t.Context(), source, Options{}, a.Digest))
	must(t, os.WriteFile(filepath.Join(source, "model.py"), []byte("two"), 0o644))
	var differs *DiffersError
	if err := store.Check(t.Context(), source, Options{}, a.Digest); !errors.As(err, &differs) || differs.How != "model.py changed" {
		t.Errorf("the check says %v", err)
	}
	nowhere := open(t, "", 1<<20)
	if b := add(t, nowhere, source); b.Kept || b.Digest != differs.Now {
		t.Errorf("without a directory Add returned %v", b)
	}
}

// A directory whose files were last changed long ago is not read again, also by the next process.
func TestUnchangedDirectoriesAreRemembered(t *testing.T) {
	source := fill(t, t.TempDir(), map[string]string{"model.py": "one"})
	dir := tempDir(t)
	store := open(t, dir, 1<<20)
	_, at, err := look(t.Context(), source, Options{})
	must(t, err)
	tree := scan(t, source)
	store.learn(source, Options{}, at, tree)
	if store.recall(source, Options{}, at) != "" {
		t.Error("times that are too young to be trusted are trusted")
	}
	at.newestNanos -= int64(time.Hour)
	store.learn(source, Options{}, at, tree)
	for _, s := range []*Store{store, open(t, dir, 1<<20)} {
		if got := s.recall(source, Options{}, at); got != tree.Digest {
			t.Errorf("it is remembered as %q", got)
		}
		if s.recall(source, Options{Exclude: []string{"x"}}, at) != "" {
			t.Error("what is left out does not count")
		}
	}
	kept := add(t, store, source)
	must(t, os.WriteFile(filepath.Join(source, "model.py"), []byte("two"), 0o644))
	if a := add(t, store, source); a.Digest == tree.Digest {
		t.Error("a change was not noticed")
	}
	// The digest of files that are not kept is remembered without their list, which is read again to say what differs.
	must(t, os.WriteFile(filepath.Join(source, "model.py"), []byte("three"), 0o644))
	_, at, err = look(t.Context(), source, Options{})
	must(t, err)
	at.newestNanos -= int64(time.Hour)
	store.learn(source, Options{}, at, scan(t, source))
	var differs *DiffersError
	if err := open(t, dir, 1<<20).Check(t.Context(), source, Options{}, kept.Digest); !errors.As(err, &differs) || differs.How != "model.py changed" {
		t.Errorf("the check says %v", err)
	}
}

func TestCollect(t *testing.T) {
	store := open(t, tempDir(t), 1<<20)
	kept := add(t, store, fill(t, t.TempDir(), map[string]string{"a": "a", "d/b": "b"}))
	gone := add(t, store, fill(t, t.TempDir(), map[string]string{"a": "b", "d/b": "b"}))
	left := filepath.Join(store.cfg.Dir, ".new-123")
	fill(t, left, map[string]string{"files/a": "half"})
	must(t, os.Chmod(filepath.Join(left, "files"), 0o555))
	keep := map[string]bool{kept.Digest: true}
	if n, err := store.Collect(keep, time.Now().Add(-time.Hour)); n != 0 || err != nil {
		t.Errorf("what was used just now is collected: %d, %v", n, err)
	}
	if n, err := store.Collect(keep, time.Now().Add(time.Hour)); n != 1 || err != nil {
		t.Errorf("%d were collected, %v", n, err)
	}
	if !store.Has(kept.Digest) || store.Has(gone.Digest) {
		t.Error("the wrong one is gone")
	}
	if found, _ := filepath.Glob(filepath.Join(store.cfg.Dir, ".new-*")); len(found) > 0 {
		t.Errorf("%v is left", found)
	}
}

// Several callers that add the same files at a time, while another collects, all get a copy.
func TestConcurrentAdds(t *testing.T) {
	source := fill(t, t.TempDir(), map[string]string{"a": "a", "d/b": "b"})
	store := open(t, tempDir(t), 1<<20)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			a, err := store.Add(context.Background(), source, Options{})
			if err != nil || !a.Kept {
				t.Errorf("Add returned %v, %v", a, err)
			}
			if _, err := store.Dir(context.Background(), a.Digest); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Go(func() { _, _ = store.Collect(nil, time.Now().Add(-time.Minute)) })
	wg.Wait()
}

func FuzzIgnore(f *testing.F) {
	f.Add("*.log\n/notes/\na/**/b\n", "a/x/y/b")
	f.Add("**/**/**", "a")
	f.Fuzz(func(t *testing.T, text, name string) {
		ig, err := ParseIgnore([]byte(text))
		if err == nil {
			ig.match(name, true)
		}
	})
}

func TestIgnorePatterns(t *testing.T) {
	for _, c := range []struct {
		pattern, name string
		dir, want     bool
	}{
		{"*.log", "a.log", false, true},
		{"*.log", "d/e/a.log", false, true},
		{"*.log", "a.log.txt", false, false},
		{"/a", "d/a", false, false},
		{"/a", "a", false, true},
		{"d/a", "d/a", false, true},
		{"d/a", "x/d/a", false, false},
		{"data/", "x/data", true, true},
		{"data/", "data", false, false},
		{"a/**/b", "a/b", false, true},
		{"a/**/b", "a/x/y/b", false, true},
		{"a/**/b", "a/x/y/c", false, false},
		{"**/a/**/a/**/a", "a/a/b/a/b", false, false},
		{"**/a/**/a/**/a", "x/a/a/b/a", false, true},
		{"[ab]?", "d/bx", false, true},
	} {
		ig, err := ParseIgnore([]byte(c.pattern + "\n"))
		must(t, err)
		if got := ig.match(c.name, c.dir); got != c.want {
			t.Errorf("%q matches %q (directory: %v): %v", c.pattern, c.name, c.dir, got)
		}
	}
}

// A full disk is named by the directory of the copies: the file that was read lies elsewhere.
func TestTheFullDiskIsThatOfTheCopies(t *testing.T) {
	for _, full := range []error{syscall.ENOSPC, syscall.EDQUOT} {
		s, err := Open(Config{Dir: t.TempDir(), LimitBytes: 1 << 20})
		if err != nil {
			t.Fatal(err)
		}
		_, err = s.make(func(string) (*Tree, error) {
			return nil, &os.PathError{Op: "write", Path: "/srv/model/weights", Err: full}
		})
		if !errors.Is(err, ErrNoRoom) || !errors.Is(err, full) || !strings.Contains(err.Error(), s.cfg.Dir) || strings.Contains(err.Error(), "/srv/model") {
			t.Errorf("the error is %v", err)
		}
	}
}
