package node

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

// machine is a file system with the relevant files of /proc, /sys and /dev.
func machine(files ...string) fstest.MapFS {
	root := fstest.MapFS{"proc/meminfo": {Data: []byte("MemTotal:       65536000 kB\nMemFree: 1 kB\n")}}
	for i := 0; i < len(files); i += 2 {
		root[files[i]] = &fstest.MapFile{Data: []byte(files[i+1])}
	}
	return root
}

const (
	mountV2     = "25 1 0:22 / /proc rw - proc proc rw\n30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
	mountCPU    = "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
	mountMemory = "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
)

func TestDetect(t *testing.T) {
	const gib, mib = int64(1) << 30, int64(1) << 20
	whole := 65536000*1024 - 4*gib
	for _, tc := range []struct {
		name   string
		root   fstest.MapFS
		cpus   int
		millis int64
		bytes  int64
		from   []string
	}{
		{"no control groups", machine(), 8, 8000, whole, []string{"8 cores (8 processors)", "MemTotal, 64000 MiB, less 4096"}},
		{"version 2, no limits", machine("proc/self/cgroup", "0::/user.slice/x\n", "proc/self/mountinfo", mountV2,
			"sys/fs/cgroup/user.slice/x/cpu.max", "max 100000\n", "sys/fs/cgroup/user.slice/x/memory.max", "max\n"),
			8, 8000, whole, []string{"8 processors", "MemTotal"}},
		{"version 2, in a container", machine("proc/self/cgroup", "0::/\n", "proc/self/mountinfo", mountV2,
			"sys/fs/cgroup/cpu.max", "150000 100000\n", "sys/fs/cgroup/memory.max", "2147483648\n", "sys/fs/cgroup/memory.high", "max\n"),
			8, 1500, 2*gib - 256*mib, []string{"1.5 cores (quota in /sys/fs/cgroup/cpu.max)", "1792 MiB of memory (limit in /sys/fs/cgroup/memory.max, 2048 MiB, less 256"}},
		{"version 2, limits above bind more", machine("proc/self/cgroup", "0::/a.slice/b.service/c\n", "proc/self/mountinfo", mountV2,
			"sys/fs/cgroup/a.slice/cpu.max", "200000 100000\n", "sys/fs/cgroup/a.slice/b.service/cpu.max", "400000 100000\n",
			"sys/fs/cgroup/a.slice/b.service/memory.max", "17179869184\n", "sys/fs/cgroup/a.slice/memory.high", "8589934592\n"),
			8, 2000, 7 * gib, []string{"/sys/fs/cgroup/a.slice/cpu.max", "/sys/fs/cgroup/a.slice/memory.high"}},
		{"version 2, the group is not visible", machine("proc/self/cgroup", "0::/../other\n", "proc/self/mountinfo", mountV2,
			"sys/fs/cgroup/memory.max", "8589934592\n", "sys/fs/cgroup/other/memory.max", "1073741824\n"),
			8, 8000, 7 * gib, []string{"/sys/fs/cgroup/memory.max"}},
		{"version 1", machine("proc/self/cgroup", "9:name=systemd:/\n4:memory:/a/b\n1:cpuacct,cpu:/c\n", "proc/self/mountinfo", mountCPU+mountMemory,
			"sys/fs/cgroup/cpu,cpuacct/c/cpu.cfs_quota_us", "50000\n", "sys/fs/cgroup/cpu,cpuacct/c/cpu.cfs_period_us", "100000\n",
			"sys/fs/cgroup/memory/a/b/memory.limit_in_bytes", "9223372036854771712\n", "sys/fs/cgroup/memory/a/memory.limit_in_bytes", "536870912\n"),
			8, 500, 256 * mib, []string{"/sys/fs/cgroup/cpu,cpuacct/c/cpu.cfs_quota_us", "/sys/fs/cgroup/memory/a/memory.limit_in_bytes"}},
		{"version 1, without limits", machine("proc/self/cgroup", "4:memory:/\n1:cpu:/\n", "proc/self/mountinfo", mountCPU+mountMemory,
			"sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n", "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"),
			8, 8000, whole, []string{"8 processors", "MemTotal"}},
		{"version 1, a container's part of the hierarchy", machine("proc/self/cgroup", "4:memory:/docker/abc/sub\n", "proc/self/mountinfo",
			strings.Replace(mountMemory, "0:32 / ", "0:32 /docker/abc ", 1),
			"sys/fs/cgroup/memory/sub/memory.limit_in_bytes", "8589934592\n", "sys/fs/cgroup/memory/docker/abc/sub/memory.limit_in_bytes", "1\n"),
			8, 8000, 7 * gib, []string{"/sys/fs/cgroup/memory/sub/memory.limit_in_bytes"}},
		{"both versions", machine("proc/self/cgroup", "4:memory:/m\n0::/u\n", "proc/self/mountinfo",
			mountMemory+"41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n",
			"sys/fs/cgroup/memory/m/memory.limit_in_bytes", "8589934592\n", "sys/fs/cgroup/unified/u/cpu.max", "300000 100000\n"),
			8, 3000, 7 * gib, []string{"/sys/fs/cgroup/unified/u/cpu.max", "/sys/fs/cgroup/memory/m/memory.limit_in_bytes"}},
		{"a quota beyond the processors", machine("proc/self/cgroup", "0::/\n", "proc/self/mountinfo", mountV2, "sys/fs/cgroup/cpu.max", "1600000 100000\n"),
			4, 4000, whole, []string{"4 processors"}},
		{"a limit beyond the memory", machine("proc/self/cgroup", "0::/\n", "proc/self/mountinfo", mountV2, "sys/fs/cgroup/memory.max", "1099511627776\n"),
			4, 4000, whole, []string{"MemTotal"}},
		{"a mount point with a blank", machine("proc/self/cgroup", "0::/\n", "proc/self/mountinfo", strings.Replace(mountV2, "/sys/fs/cgroup ", `/my\040groups `, 1),
			"my groups/memory.max", "8589934592\n"), 4, 4000, 7 * gib, []string{"/my groups/memory.max"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b, err := detect(tc.root, tc.cpus, "", false)
			if err != nil || b.CPUMillis != tc.millis || b.MemoryBytes != tc.bytes || b.GPUs != nil {
				t.Errorf("%+v, %v; expected %d millis and %d bytes", b, err, tc.millis, tc.bytes)
			}
			for _, from := range tc.from {
				if !strings.Contains(b.From, from) {
					t.Errorf("From is %q; expected it to contain %q", b.From, from)
				}
			}
		})
	}
}

// TestDetectWithoutMemory checks that unknown values are 0, with an error, and the others are set.
func TestDetectWithoutMemory(t *testing.T) {
	for name, root := range map[string]fstest.MapFS{"no file": {}, "no line": {"proc/meminfo": {Data: []byte("MemFree: 1 kB\n")}}} {
		b, err := detect(root, 3, "", false)
		if err == nil || b.CPUMillis != 3000 || b.MemoryBytes != 0 || strings.Contains(b.From, "memory") {
			t.Errorf("%s: %+v, %v", name, b, err)
		}
	}
	root := machine("proc/self/cgroup", "0::/\n", "proc/self/mountinfo", mountV2, "sys/fs/cgroup/memory.max", "1073741824\n")
	delete(root, "proc/meminfo")
	if b, err := detect(root, 3, "", false); err != nil || b.MemoryBytes != 768<<20 {
		t.Errorf("with a limit and no meminfo: %+v, %v", b, err)
	}
	delete(root, "proc/self/mountinfo")
	if b, err := detect(root, 3, "", false); err == nil || !strings.Contains(err.Error(), "mounted") {
		t.Errorf("without mountinfo: %+v, %v", b, err)
	}
}

func TestGPUs(t *testing.T) {
	two := machine("dev/nvidia0", "", "dev/nvidia1", "", "dev/nvidiactl", "", "dev/nvidia-uvm", "", "dev/nvidia-caps/x", "", "dev/null", "", "dev/nvidia", "")
	for _, tc := range []struct {
		name       string
		root       fstest.MapFS
		visible    string
		restricted bool
		want       string
	}{
		{"none", machine("dev/null", ""), "", false, "[]"},
		{"two", two, "", false, "[0 1]"},
		{"one of a larger machine's", machine("dev/nvidia3", ""), "", false, "[0]"},
		{"the second", two, "1", true, "[1]"},
		{"in another order", two, "1, 0", true, "[1 0]"},
		{"hidden", two, "", true, "[]"},
		{"hidden too", two, "-1", true, "[]"},
		{"up to the first wrong one", two, "0,7,1", true, "[0]"},
		{"twice", two, "0,0", true, "[0]"},
		{"not by number", two, "GPU-8932f937", true, "[]"},
	} {
		b, err := detect(tc.root, 1, tc.visible, tc.restricted)
		if got := fmt.Sprint(b.GPUs); err != nil || got != tc.want {
			t.Errorf("%s: %s, %v; expected %s", tc.name, got, err, tc.want)
		}
		if strings.Contains(b.From, "GPU") == (tc.name == "none") {
			t.Errorf("%s: unexpected From %q", tc.name, b.From)
		}
	}
	many := machine()
	for i := range 200 {
		many[fmt.Sprintf("dev/nvidia%d", i)] = &fstest.MapFile{}
	}
	if b, _ := detect(many, 1, "", false); len(b.GPUs) != maxGPUs || !slices.IsSorted(b.GPUs) {
		t.Errorf("%d GPUs of 200: %v", len(b.GPUs), b.GPUs)
	}
}

// TestDetectHere checks that Detect finds something on this machine.
func TestDetectHere(t *testing.T) {
	b, err := Detect()
	if err != nil || b.CPUMillis < 1 || b.MemoryBytes < 1<<20 || b.From == "" {
		t.Errorf("%+v, %v", b, err)
	}
}

func TestParseLimits(t *testing.T) {
	for text, want := range map[string]int64{
		"100000 100000\n": 1000, "50000 100000": 500, "max 100000": 0, "-1 100000": 0, "0 100000": 0, "1 0": 0, "1": 0, "": 0, "a b": 0,
		"1 1000000": 1, "9223372036854775807 1": 0,
	} {
		if got := parseCPUMax([]byte(text)); got != want {
			t.Errorf("cpu.max %q: %d, expected %d", text, got, want)
		}
	}
	for text, want := range map[string]int64{"4096\n": 4096, "max\n": 0, "": 0, "-1": 0, "0": 0, "9223372036854771712": 0, "9223372036854710272": 0, "99999999999999999999": 0} {
		if got := parseLimit([]byte(text)); got != want {
			t.Errorf("memory.max %q: %d, expected %d", text, got, want)
		}
	}
}

// FuzzDetect checks that a budget is valid for any content of the kernel's files.
func FuzzDetect(f *testing.F) {
	f.Fuzz(func(t *testing.T, groups, mounts, cpuMax, memoryMax, meminfo string) {
		root := machine("proc/self/cgroup", groups, "proc/self/mountinfo", mounts, "proc/meminfo", meminfo)
		for _, dir := range []string{"sys/fs/cgroup/", "sys/fs/cgroup/a/", "sys/fs/cgroup/cpu/a/", "sys/fs/cgroup/memory/a/"} {
			for name, text := range map[string]string{"cpu.max": cpuMax, "cpu.cfs_quota_us": cpuMax, "cpu.cfs_period_us": "100000", "memory.max": memoryMax, "memory.limit_in_bytes": memoryMax} {
				root[dir+name] = &fstest.MapFile{Data: []byte(text)}
			}
		}
		b, err := detect(root, 4, "", false)
		if b.CPUMillis < 1 || b.CPUMillis > 4000 || b.MemoryBytes < 0 || b.MemoryBytes == 0 && err == nil {
			t.Errorf("%+v, %v", b, err)
		}
	})
}
