package process

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/xebec-serving/xebec/containers"
)

// A process may move files between directories that it may write to: installers of packages and caches of libraries do.
// The kernel treats links like renames, and ln, unlike mv, does not copy where it is refused.
func TestIsolatedMovesFiles(t *testing.T) {
	// /tmp is another one for the process, so the directory of its own is elsewhere: in that of the package.
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	own, err := os.MkdirTemp(dir, "xebec-test-moves-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(own) })
	out := newOutput()
	for name, dir := range map[string]string{"in /tmp": "/tmp", "in a directory of its own": own} {
		l := shell(t, `cd "`+dir+`" && mkdir from to && echo hello > from/file && ln from/file to/file && cat to/file`, out)
		l.Isolation = containers.Isolation{}
		l.Writable = []string{own}
		if exit := waitExit(t, start(t, newRuntime(t), l)); exit.Code != 0 {
			t.Errorf("%s: %v: %q", name, exit, out.all())
		}
	}
}

// An argument that names a part of a directory that may be written to does not make that part read-only.
func TestIsolatedWritesWhatItNames(t *testing.T) {
	own := t.TempDir() // below /tmp, which is another one for the process
	dir := filepath.Join(own, "cache")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	out := newOutput()
	l := shell(t, `echo hello > "$1/file"`, out, dir)
	l.Isolation = containers.Isolation{}
	l.Writable = []string{own}
	if exit := waitExit(t, start(t, newRuntime(t), l)); exit.Code != 0 {
		t.Errorf("%v: %q", exit, out.all())
	}
	if text, err := os.ReadFile(filepath.Join(dir, "file")); string(text) != "hello\n" {
		t.Errorf("it wrote %q: %v", text, err)
	}
}
