package cgroup

import (
	"bytes"
	"path"

	"github.com/xebec-serving/xebec/containers/internal/procfs"
)

// SessionsGrouped reports whether the scheduler of this process groups its threads by session (autogroups, sched(7)). It does
// so only for processes in the root of the hierarchy that has processor time. Root is "/"; otherwise /proc and /sys are looked up
// below it.
func SessionsGrouped(root string) bool { return sessionsGrouped(host(root)) }

func sessionsGrouped(f files) bool {
	if on, err := f.read("/proc/sys/kernel/sched_autogroup_enabled"); err != nil || !bytes.Equal(bytes.TrimSpace(on), []byte("1")) {
		return false
	}
	mounts, err := f.read("/proc/self/mountinfo")
	if err != nil {
		return true
	}
	membership, err := f.read("/proc/self/cgroup")
	if err != nil {
		return true
	}
	all := procfs.ParseMounts(mounts)
	dir, isUnified, err := findOwn(all, procfs.ParseMembership(membership), CPU)
	if err != nil { // no hierarchy, or a part that is not visible
		return true
	}
	has := func(dir, file string) bool {
		_, err := f.read(path.Join(dir, file))
		return err == nil
	}
	if !isUnified {
		return has(dir, "release_agent") // only the root has it, whatever the namespace calls it
	}
	for ; ; dir = path.Dir(dir) {
		if has(dir, "cpu.weight") { // the root has none, and neither has a cgroup without the controller
			return false
		}
		if dir == "/" || has(dir, "cgroup.procs") && !has(path.Dir(dir), "cgroup.procs") {
			return true
		}
	}
}
