package cgroup

import (
	"bytes"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
)

// mount is the mount point of a hierarchy of cgroups: a line of /proc/PID/mountinfo.
type mount struct {
	// root is the cgroup that is visible at point.
	root, point string
	unified     bool
	controllers []string // of version 1
}

// parseMounts parses /proc/PID/mountinfo (proc_pid_mountinfo(5)) and returns the hierarchies of cgroups.
//
//	35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
func parseMounts(b []byte) []mount {
	var all []mount
	for line := range bytes.Lines(b) {
		place, kind, ok := strings.Cut(string(line), " - ") // optional fields come before
		before, after := strings.Fields(place), strings.Fields(kind)
		const fieldRoot, fieldPoint, fieldType, fieldOptions = 3, 4, 0, 2
		if !ok || len(before) <= fieldPoint || len(after) <= fieldOptions {
			continue
		}
		m := mount{root: unescape(before[fieldRoot]), point: unescape(before[fieldPoint])}
		switch after[fieldType] {
		case "cgroup2":
			m.unified = true
		case "cgroup":
			m.controllers = strings.Split(after[fieldOptions], ",")
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

// unified is the key of version 2 in the result of parseMembership, where it has no controllers of its own.
const unified = ""

// parseMembership parses /proc/PID/cgroup (cgroups(7)): the path of the process's cgroup by controller, relative to the
// process's root of cgroups.
//
//	4:memory:/system.slice/xebec.service
//	0::/system.slice/xebec.service
func parseMembership(b []byte) map[string]string {
	paths := map[string]string{}
	for line := range bytes.Lines(b) {
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

// dirOf returns the directory of a cgroup below a mount. It returns false if the mount shows another part of the
// hierarchy, or if the cgroup is outside of the process's namespace ("/../x").
func (m mount) dirOf(cgroup string) (string, bool) {
	if strings.Contains(cgroup+"/", "/../") {
		return "", false
	}
	below, ok := strings.CutPrefix(strings.TrimSuffix(cgroup, "/")+"/", strings.TrimSuffix(m.root, "/")+"/")
	return path.Join(m.point, below), ok
}

// findOwn returns the directory of the process's own cgroup in the hierarchy that has the controller, and whether that
// is version 2. A controller that is mounted as version 1 is not in version 2.
func findOwn(mounts []mount, paths map[string]string, r Resource) (dir string, isUnified bool, err error) {
	key := unified
	if slices.ContainsFunc(mounts, func(m mount) bool { return slices.Contains(m.controllers, string(r)) }) {
		key = string(r)
	}
	cgroup, member := paths[key]
	seen := false
	for _, m := range mounts {
		if m.unified != (key == unified) || !m.unified && !slices.Contains(m.controllers, string(r)) {
			continue
		}
		seen = true
		if dir, ok := m.dirOf(cgroup); member && ok {
			return dir, m.unified, nil
		}
	}
	if !seen {
		return "", false, fmt.Errorf("no cgroup hierarchy with the controller %s is mounted: mount cgroup2 at /sys/fs/cgroup", r)
	}
	return "", false, fmt.Errorf("the gateway's own cgroup (%q) is not visible below /sys/fs/cgroup: the mount shows another part of the hierarchy; "+
		"in a container, give it a cgroup namespace of its own (docker run --cgroupns=private)", cgroup)
}

// parseStart parses when a process began, in ticks since boot, from /proc/PID/stat (proc_pid_stat(5)). The command's
// name may contain anything, so the fields are counted from its last parenthesis.
func parseStart(b []byte) (uint64, bool) {
	fields := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
	const fieldStart = 19
	if len(fields) <= fieldStart {
		return 0, false
	}
	start, err := strconv.ParseUint(string(fields[fieldStart]), 10, 64)
	return start, err == nil
}

// parseParent parses the parent's pid from /proc/PID/stat.
func parseParent(b []byte) (int, bool) {
	fields := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
	if len(fields) < 2 {
		return 0, false
	}
	parent, err := strconv.Atoi(string(fields[1]))
	return parent, err == nil
}

// parsePIDs parses cgroup.procs. Processes outside of this process's pid namespace are listed as 0, and kept.
func parsePIDs(b []byte) []int {
	var pids []int
	for line := range bytes.Lines(b) {
		if pid, err := strconv.Atoi(string(bytes.TrimSpace(line))); err == nil && pid >= 0 {
			pids = append(pids, pid)
		}
	}
	return pids
}

// parseCount returns a number from a file of "name value" lines, 0 if it is missing.
func parseCount(b []byte, name string) int {
	for line := range bytes.Lines(b) {
		fields := strings.Fields(string(line))
		if len(fields) == 2 && fields[0] == name {
			n, err := strconv.Atoi(fields[1])
			if err == nil && n > 0 {
				return n
			}
		}
	}
	return 0
}
