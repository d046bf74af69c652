package process

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestReadStat(t *testing.T) {
	if st, ok := readStat(os.Getpid()); !ok || st.pid != os.Getpid() || st.ppid != os.Getppid() || st.start == 0 || st.zombie {
		t.Errorf("stat of this process: %+v, %v", st, ok)
	}
}

func TestDescendants(t *testing.T) {
	var all []stat
	for _, p := range [][2]int{{1, 0}, {5, 1}, {6, 5}, {9, 6}, {7, 5}, {8, 1}, {20, 21}, {21, 20}, {5, 9}} { // the last: a cycle
		all = append(all, stat{pid: p[0], ppid: p[1]})
	}
	for root, want := range map[int]string{5: "[6 7 9]", 1: "[5 8 6 7 9]", 9: "[5 6 7]", 20: "[21]", 99: "[]"} {
		pids := []int{}
		for _, st := range descendants(root, all) {
			pids = append(pids, st.pid)
		}
		if got := fmt.Sprint(pids); got != want {
			t.Errorf("below %d: %s, expected %s", root, got, want)
		}
	}
}

func TestResolve(t *testing.T) {
	dir, first, second := t.TempDir(), t.TempDir(), t.TempDir()
	for path, mode := range map[string]os.FileMode{
		filepath.Join(dir, "here"): 0o755, filepath.Join(dir, "both"): 0o755, filepath.Join(dir, "plain"): 0o644, filepath.Join(dir, "data"): 0o644,
		filepath.Join(dir, "sub", "below"): 0o755, filepath.Join(dir, "python", "x"): 0o644,
		filepath.Join(first, "both"): 0o755, filepath.Join(first, "twice"): 0o755, filepath.Join(second, "twice"): 0o755,
		filepath.Join(second, "plain"): 0o755, filepath.Join(second, "python"): 0o755, filepath.Join(first, "second"): 0o644, filepath.Join(second, "second"): 0o755,
	} {
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, nil, mode)); err != nil {
			t.Fatal(err)
		}
	}
	path := strings.Join([]string{"", ".", "sub", first, second}, ":") // relative entries are ignored
	for name, want := range map[string]string{
		"here":                       filepath.Join(dir, "here"),
		"both":                       filepath.Join(dir, "both"),
		"twice":                      filepath.Join(first, "twice"),
		"second":                     filepath.Join(second, "second"),
		"plain":                      filepath.Join(second, "plain"),
		"python":                     filepath.Join(second, "python"),
		"sub/below":                  filepath.Join(dir, "sub", "below"),
		"./here":                     filepath.Join(dir, "here"),
		filepath.Join(first, "both"): filepath.Join(first, "both"),
		"below":                      "not found",
		"nothing":                    "not found",
		"data":                       "not executable",
		"./twice":                    "does not exist",
		"sub":                        "not found",
		"./sub":                      "is a directory",
	} {
		got, err := resolve(dir, name, path)
		if err != nil {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%q: error %q, expected %q", name, err, want)
			}
		} else if got != want {
			t.Errorf("%q: %s, expected %s", name, got, want)
		}
	}
}

func TestInherited(t *testing.T) {
	got := Inherited([]string{"PATH=/bin", "PATHX=1", "LC_ALL=C", "LC=C", "OMP_NUM_THREADS=2", "HTTP_PROXY=http://user:pass@host", "broken", "=C:=x", "HOME="})
	if want := []string{"PATH=/bin", "LC_ALL=C", "OMP_NUM_THREADS=2", "HOME="}; !slices.Equal(got, want) {
		t.Errorf("inherited %q, expected %q", got, want)
	}
}
