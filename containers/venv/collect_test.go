package venv

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// An environment that no model's directory asks for is removed once no launch has used it for the time given; one that is asked for stays, and one that
// was removed is built again when it is needed.
func TestCollect(t *testing.T) {
	models, store := data(t), data(t)
	one, other := filepath.Join(models, "one"), filepath.Join(models, "other")
	for _, dir := range []string{one, other} {
		wheel(t, dir, "greeting", "word = '"+filepath.Base(dir)+"'\n")
		write(t, filepath.Join(dir, "requirements.txt"), "./greeting-1.0-py3-none-any.whl\n")
	}
	r, _ := newRuntime(t, store)
	const program = "import greeting; print(greeting.word)"
	greet := func(dir string) {
		t.Helper()
		if out, err := run(t, r, dir, program); err != nil || !strings.HasSuffix(out, filepath.Base(dir)+"\n") {
			t.Fatalf("%s: %q, %v", dir, out, err)
		}
	}
	greet(one)
	greet(other)
	left := filepath.Join(store, "environments", "00", "tmp") // of a build that was killed
	if err := os.MkdirAll(left, 0o755); err != nil {
		t.Fatal(err)
	}
	kept := func() (n int) {
		t.Helper()
		entries, err := os.ReadDir(filepath.Join(store, "environments"))
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if e.IsDir() {
				n++
			}
		}
		if len(entries) > 2*n {
			t.Errorf("there are files without an environment: %v", entries)
		}
		return n
	}
	collect := func(want int, before time.Time, dirs ...string) {
		t.Helper()
		if n, err := r.Collect(t.Context(), dirs, before); err != nil || n != want {
			t.Errorf("%d were removed, want %d: %v", n, want, err)
		}
	}
	later := time.Now().Add(time.Hour)
	collect(0, time.Now().Add(-time.Hour), one)
	if n := kept(); n != 3 {
		t.Fatalf("what was used just now is gone: %d are left", n)
	}
	collect(2, later, one, filepath.Join(models, "nowhere"))
	if n := kept(); n != 1 {
		t.Errorf("%d are left of one that is asked for", n)
	}
	greet(one)
	greet(other)
	write(t, filepath.Join(one, "requirements.txt"), "-r nowhere.txt\n") // what cannot be built keeps nothing
	collect(1, later, one, other)
	greet(other)
}
