package cgroup

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
)

// folder makes a directory with empty files.
func folder(t *testing.T, names ...string) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range names {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// The way a process is forked depends on the kernel; the calls of start show which was used.
func TestFork(t *testing.T) {
	home, gone := folder(t, "tasks"), filepath.Join(t.TempDir(), "gone")
	for _, tc := range []struct {
		name    string
		places  Places
		answers []error // results of start
		direct  []bool  // whether start got a directory
		entered bool    // whether the thread entered the group and returned
		err     error
	}{
		{"no group", nil, []error{nil}, []bool{false}, false, nil},
		{"version 2", Places{{Dir: folder(t), Unified: true}}, []error{nil}, []bool{true}, false, nil},
		{"an old kernel", Places{{Dir: folder(t), Unified: true}}, []error{syscall.ENOSYS, nil}, []bool{true, false}, false, nil},
		{"a sandbox", Places{{Dir: folder(t), Unified: true}}, []error{syscall.EPERM, nil}, []bool{true, false}, false, nil},
		{"no such program", Places{{Dir: folder(t), Unified: true}}, []error{syscall.ENOENT}, []bool{true}, false, syscall.ENOENT},
		{"a group that is gone", Places{{Dir: gone, Unified: true}}, []error{nil}, []bool{false}, false, nil},
		{"version 1", Places{{Dir: folder(t, "tasks"), Home: home}}, []error{nil}, []bool{false}, true, nil},
		{"version 1, no such program", Places{{Dir: folder(t, "tasks"), Home: home}}, []error{syscall.ENOENT}, []bool{false}, true, syscall.ENOENT},
		{"threads stay where they are", Places{{Dir: folder(t, "tasks")}}, []error{nil}, []bool{false}, false, nil},
		{"no way in", Places{{Dir: gone, Home: home}}, []error{nil}, []bool{false}, false, nil},
		{"no way out", Places{{Dir: folder(t, "tasks"), Home: gone}}, []error{nil}, []bool{false}, true, ErrStuck},
		{"both versions", Places{{Dir: folder(t, "tasks"), Home: home}, {Dir: folder(t), Unified: true}}, []error{nil}, []bool{true}, true, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if err := os.Truncate(filepath.Join(home, "tasks"), 0); err != nil {
				t.Fatal(err)
			}
			var direct []bool
			pid, err := tc.places.Fork(func(dir int) (int, error) {
				direct = append(direct, dir >= 0)
				return 42, tc.answers[len(direct)-1]
			})
			if !errors.Is(err, tc.err) || pid != 42 || !slices.Equal(direct, tc.direct) {
				t.Errorf("pid %d, error %v, directories given %v: expected %v and %v", pid, err, direct, tc.err, tc.direct)
			}
			entered := false
			for _, p := range tc.places {
				b, _ := os.ReadFile(filepath.Join(p.Dir, "tasks"))
				entered = entered || string(b) == "0"
			}
			back, _ := os.ReadFile(filepath.Join(home, "tasks"))
			if entered != tc.entered || (string(back) == "0") != (tc.entered && tc.err != ErrStuck) {
				t.Errorf("entered %v, back %q", entered, back)
			}
		})
	}
}

func TestAdd(t *testing.T) {
	one, two := folder(t, "cgroup.procs"), folder(t, "cgroup.procs")
	if err := (Places{{Dir: one}, {Dir: two, Unified: true}}).Add(42); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{one, two} {
		if got := value(t, dir, "cgroup.procs"); got != "42" {
			t.Errorf("%q in %s", got, dir)
		}
	}
}

// If the kernel can kill a group at once, Kill uses that.
func TestKillAtOnce(t *testing.T) {
	dir := folder(t, "cgroup.kill")
	Places{{Dir: dir, Unified: true}}.Kill()
	if got := value(t, dir, "cgroup.kill"); got != "1" {
		t.Errorf("cgroup.kill holds %q", got)
	}
}
