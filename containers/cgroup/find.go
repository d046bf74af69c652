package cgroup

import (
	"bytes"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/xebec-serving/xebec/containers/internal/procfs"
)

// dirOf returns the directory of a cgroup below a mount. It returns false if the mount shows another part of the
// hierarchy, or if the cgroup is outside of the process's namespace ("/../x").
func dirOf(m procfs.Mount, cgroup string) (string, bool) {
	if strings.Contains(cgroup+"/", "/../") {
		return "", false
	}
	below, ok := strings.CutPrefix(strings.TrimSuffix(cgroup, "/")+"/", strings.TrimSuffix(m.Root, "/")+"/")
	return path.Join(m.Point, below), ok
}

// findOwn returns the directory of the process's own cgroup in the hierarchy that has the controller, and whether that
// is version 2. A controller that is mounted as version 1 is not in version 2.
func findOwn(mounts []procfs.Mount, paths map[string]string, r Resource) (dir string, isUnified bool, err error) {
	key := procfs.Unified
	if slices.ContainsFunc(mounts, func(m procfs.Mount) bool { return slices.Contains(m.Controllers, string(r)) }) {
		key = string(r)
	}
	cgroup, member := paths[key]
	seen := false
	for _, m := range mounts {
		if m.Unified != (key == procfs.Unified) || !m.Unified && !slices.Contains(m.Controllers, string(r)) {
			continue
		}
		seen = true
		if dir, ok := dirOf(m, cgroup); member && ok {
			return dir, m.Unified, nil
		}
	}
	if !seen {
		return "", false, fmt.Errorf("no cgroup hierarchy with the controller %s is mounted: mount cgroup2 at /sys/fs/cgroup", r)
	}
	return "", false, fmt.Errorf("the gateway's own cgroup (%q) is not visible below /sys/fs/cgroup: the mount shows another part of the hierarchy; "+
		"in a container, give it a cgroup namespace of its own (docker run --cgroupns=private)", cgroup)
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
