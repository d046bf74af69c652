package cgroup

import (
	"os"
	"path/filepath"
	"testing"
)

func TestSessionsGrouped(t *testing.T) {
	for _, tc := range []struct {
		name, mounts, paths string
		files               []string // that exist
		off                 bool
		want                bool
	}{
		{"the root of version 1", version1Mounts, "1:cpu,cpuacct:/\n", []string{"/sys/fs/cgroup/cpu,cpuacct/release_agent"}, false, true},
		{"the same, switched off", version1Mounts, "1:cpu,cpuacct:/\n", []string{"/sys/fs/cgroup/cpu,cpuacct/release_agent"}, true, false},
		{"below the root of version 1", version1Mounts, "1:cpu,cpuacct:/x\n", []string{"/sys/fs/cgroup/cpu,cpuacct/release_agent", "/sys/fs/cgroup/cpu,cpuacct/x/tasks"}, false, false},
		{"a root of a namespace of version 1", version1Mounts, "1:cpu,cpuacct:/\n", []string{"/sys/fs/cgroup/cpu,cpuacct/tasks"}, false, false},
		{"the root of version 2", version2Mounts, "0::/\n", []string{"/sys/fs/cgroup/cgroup.procs"}, false, true},
		{"a cgroup of version 2 without the controller", version2Mounts, "0::/a/b\n", []string{"/sys/fs/cgroup/cgroup.procs", "/sys/fs/cgroup/a/cgroup.procs", "/sys/fs/cgroup/a/b/cgroup.procs"}, false, true},
		{"a cgroup of version 2 with the controller", version2Mounts, "0::/a\n", []string{"/sys/fs/cgroup/cgroup.procs", "/sys/fs/cgroup/a/cgroup.procs", "/sys/fs/cgroup/a/cpu.weight"}, false, false},
		{"one above has it", version2Mounts, "0::/a/b\n", []string{"/sys/fs/cgroup/cgroup.procs", "/sys/fs/cgroup/a/cgroup.procs", "/sys/fs/cgroup/a/b/cgroup.procs", "/sys/fs/cgroup/a/cpu.weight"}, false, false},
		{"a root of a namespace of version 2", version2Mounts, "0::/\n", []string{"/sys/fs/cgroup/cgroup.procs", "/sys/fs/cgroup/cpu.weight"}, false, false},
		{"no cgroups", "", "", nil, false, true},
	} {
		root := t.TempDir()
		enabled := "1\n"
		if tc.off {
			enabled = "0\n"
		}
		files := map[string]string{"/proc/sys/kernel/sched_autogroup_enabled": enabled, "/proc/self/mountinfo": tc.mounts, "/proc/self/cgroup": tc.paths}
		for _, f := range tc.files {
			files[f] = ""
		}
		for name, text := range files {
			if err := os.MkdirAll(filepath.Dir(filepath.Join(root, name)), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if got := SessionsGrouped(root); got != tc.want {
			t.Errorf("%s: %v, expected %v", tc.name, got, tc.want)
		}
	}
	if SessionsGrouped(t.TempDir()) {
		t.Error("grouped by a kernel without autogroups")
	}
}
