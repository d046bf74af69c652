package procfs

import (
	"bytes"
	"path"
	"strconv"
	"strings"
)

// Mount is the mount point of a hierarchy of control groups.
type Mount struct {
	// Root is the group that is visible at Point. Both are absolute.
	Root, Point string
	Unified     bool     // version 2
	Controllers []string // of version 1
}

// ParseMounts parses /proc/PID/mountinfo (proc_pid_mountinfo(5)) and returns the hierarchies of control groups.
//
//	35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
func ParseMounts(text []byte) []Mount {
	var all []Mount
	for line := range bytes.Lines(text) {
		place, kind, ok := strings.Cut(string(line), " - ") // optional fields come before
		before, after := strings.Fields(place), strings.Fields(kind)
		const fieldRoot, fieldPoint, fieldType, fieldOptions = 3, 4, 0, 2
		if !ok || len(before) <= fieldPoint || len(after) <= fieldOptions {
			continue
		}
		m := Mount{Root: unescape(before[fieldRoot]), Point: unescape(before[fieldPoint])}
		if !path.IsAbs(m.Root) || !path.IsAbs(m.Point) {
			continue
		}
		switch after[fieldType] {
		case "cgroup2":
			m.Unified = true
		case "cgroup":
			m.Controllers = strings.Split(after[fieldOptions], ",")
		default:
			continue
		}
		all = append(all, m)
	}
	return all
}

// unescape undoes mountinfo's octal escapes: "\040" is a space.
func unescape(s string) string {
	var out []byte
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				out = append(out, byte(n))
				i += 3
				continue
			}
		}
		out = append(out, s[i])
	}
	return string(out)
}

// Unified is the key of version 2 in the result of ParseMembership, where it has no controllers of its own.
const Unified = ""

// ParseMembership parses /proc/PID/cgroup (cgroups(7)): the path of the process's group by controller, relative to the
// process's root of control groups.
//
//	4:memory:/system.slice/xebec.service
//	0::/system.slice/xebec.service
func ParseMembership(text []byte) map[string]string {
	paths := map[string]string{}
	for line := range bytes.Lines(text) {
		fields := strings.SplitN(strings.TrimSuffix(string(line), "\n"), ":", 3) // a path may contain colons
		if len(fields) != 3 || !path.IsAbs(fields[2]) {
			continue
		}
		for controller := range strings.SplitSeq(fields[1], ",") {
			paths[controller] = fields[2]
		}
	}
	return paths
}
