package cgroup

import (
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/xebec-serving/xebec/containers/internal/procfs"
)

const (
	version1Mounts = `31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct
35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
39 31 0:36 / /sys/fs/cgroup/pids rw,relatime - cgroup cgroup rw,pids
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
`
	version1Paths  = "8:pids:/\n4:memory:/system.slice/xebec.service\n1:cpu,cpuacct:/system.slice\n0::/system.slice\n"
	version2Mounts = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
)

func TestFindOwn(t *testing.T) {
	for _, tc := range []struct {
		name, mounts, paths string
		resource            Resource
		dir                 string
		unified             bool
		err                 string
	}{
		{"version 1", version1Mounts, version1Paths, Memory, "/sys/fs/cgroup/memory/system.slice/xebec.service", false, ""},
		{"in the first cgroup", version1Mounts, version1Paths, PIDs, "/sys/fs/cgroup/pids", false, ""},
		{"two controllers in one", version1Mounts, version1Paths, CPU, "/sys/fs/cgroup/cpu,cpuacct/system.slice", false, ""},
		{"version 2", version2Mounts, "0::/system.slice/xebec.service\n", Memory, "/sys/fs/cgroup/system.slice/xebec.service", true, ""},
		{"colons", version2Mounts, "0::/a:b/c\n", CPU, "/sys/fs/cgroup/a:b/c", true, ""},
		{"controllers not mounted as version 1 are in version 2", "41 31 0:38 / /cg2 rw - cgroup2 none rw\n35 31 0:32 / /cg/memory rw - cgroup cgroup rw,memory\n",
			"4:memory:/m\n0::/u\n", PIDs, "/cg2/u", true, ""},
		{"a container without a namespace of its own", "35 31 0:32 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n", "4:memory:/docker/abc\n",
			Memory, "/sys/fs/cgroup/memory", false, ""},
		{"below the root of the mount", "35 31 0:32 /docker/abc /m rw - cgroup cgroup rw,memory\n", "4:memory:/docker/abc/x\n", Memory, "/m/x", false, ""},
		{"a name that begins the same", "35 31 0:32 /docker/abc /m rw - cgroup cgroup rw,memory\n", "4:memory:/docker/abcd\n", Memory, "", false, "another part of the hierarchy"},
		{"another mount shows it", "35 31 0:32 /x /m rw - cgroup cgroup rw,memory\n36 31 0:32 / /n rw - cgroup cgroup rw,memory\n", "4:memory:/y\n", Memory, "/n/y", false, ""},
		{"outside of the namespace", version2Mounts, "0::/../other\n", Memory, "", false, "--cgroupns=private"},
		{"a space", `30 23 0:26 / /my\040cgroups rw - cgroup2 cgroup2 rw` + "\n", "0::/x\n", Memory, "/my cgroups/x", true, ""},
		{"nothing is mounted", "31 23 0:28 / / rw - ext4 /dev/vda rw\n", "0::/\n", Memory, "", false, "mount cgroup2"},
		{"only others are", "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n", "4:memory:/\n", PIDs, "", false, "controller pids is mounted"},
		{"no membership", version2Mounts, "", Memory, "", false, "is not visible"},
		{"malformed files", "- -\n1 2 3 - cgroup2\n\n::\n", "x\n:::\n1:memory:relative\n", Memory, "", false, "is mounted"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir, isUnified, err := findOwn(procfs.ParseMounts([]byte(tc.mounts)), procfs.ParseMembership([]byte(tc.paths)), tc.resource)
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) {
					t.Errorf("%q and error %v: expected an error with %q", dir, err, tc.err)
				}
				return
			}
			if err != nil || dir != tc.dir || isUnified != tc.unified {
				t.Errorf("%q, version 2 %v, error %v: expected %q, %v", dir, isUnified, err, tc.dir, tc.unified)
			}
		})
	}
}

func TestParseProc(t *testing.T) {
	if pids := parsePIDs([]byte("12\n0\nx\n-3\n7")); !slices.Equal(pids, []int{12, 0, 7}) {
		t.Errorf("pids %v", pids)
	}
	events := []byte("low 0\noom 3\noom_kill 2\nbroken\nmax x\n")
	if oom, kills, none := parseCount(events, "oom"), parseCount(events, "oom_kill"), parseCount(events, "max"); oom != 3 || kills != 2 || none != 0 {
		t.Errorf("counts %d, %d and %d: expected 3, 2 and 0", oom, kills, none)
	}
}

func TestParseName(t *testing.T) {
	type parsed struct {
		name dirName
		ok   bool
	}
	for name, want := range map[string]parsed{
		"xebec-12-345-26":   {dirName{device: 26, isLocked: true}, true},
		"xebec-12-345":      {dirName{}, true},
		"xebec-12-345-0":    {dirName{isLocked: true}, true},
		"xebec-12-345-26-7": {dirName{device: 26, isLocked: true, isGroup: true}, true},
		"xebec-12":          {}, "xebec-12-": {}, "xebec--345": {}, "xebec-0-1": {}, "xebec--1-1": {}, "xebec-1-2-3-4-5": {}, "xebec-1-2-": {}, "xebec-1-2-3-": {}, "xebec-x-1": {}, "xebec-test-12": {}, "user.slice": {}, "": {},
	} {
		if n, ok := parseName(name); (parsed{n, ok}) != want {
			t.Errorf("%q: %+v, %v: expected %+v", name, n, ok, want)
		}
	}
	if n, ok := parseName(baseName(12, 26)); n != (dirName{device: 26, isLocked: true}) || !ok {
		t.Errorf("%q: %+v, %v", baseName(12, 26), n, ok)
	}
}

// For any content of /proc, the cgroup found is inside a mount.
func FuzzFindOwn(f *testing.F) {
	f.Add([]byte(version1Mounts), []byte(version1Paths))
	f.Add([]byte(version2Mounts), []byte("0::/../x\n"))
	f.Add([]byte(`30 23 0:26 /a\040b /c\011d rw - cgroup2 cgroup2 rw`), []byte("0::/a b/c/..\n"))
	f.Fuzz(func(t *testing.T, mountinfo, membership []byte) {
		mounts, paths := procfs.ParseMounts(mountinfo), procfs.ParseMembership(membership)
		for _, r := range resources {
			dir, _, err := findOwn(mounts, paths, r)
			if err == nil && !slices.ContainsFunc(mounts, func(m procfs.Mount) bool {
				point := path.Clean(m.Point)
				return dir == point || strings.HasPrefix(dir, strings.TrimSuffix(point, "/")+"/")
			}) {
				t.Errorf("%q is below no mount of %+v", dir, mounts)
			}
		}
	})
}
