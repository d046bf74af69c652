package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/xebec-serving/xebec/containers"
	"github.com/xebec-serving/xebec/containers/internal/procfs"
)

// Resource is what is limited, by the name of the kernel's controller.
type Resource string

// The resources.
const (
	Memory Resource = "memory"
	PIDs   Resource = "pids"
	CPU    Resource = "cpu"
)

var resources = []Resource{Memory, PIDs, CPU}

const (
	// leaf is the gateway's own cgroup in version 2, which requires it to move out of the groups' parent. A group's
	// name ends in a number, so they do not collide.
	leaf = "gateway"
	// together holds all groups in version 2, where the gateway is in a cgroup beside it.
	together = "replicas"
	// moveTries bounds how often the gateway's processes are moved: some may have forked meanwhile.
	moveTries = 16
)

// hierarchy is where groups are made for some of the resources: in groups, which is base or in it. base is inside the
// gateway's own cgroup.
type hierarchy struct {
	unified           bool
	own, base, groups string
	resources         []Resource
	// leavable: a thread that has entered a group can return to own. Version 1 only.
	leavable bool
}

// Manager makes groups in the gateway's own cgroup. Its methods are safe for concurrent use.
type Manager struct {
	files files
	locks locks
	root  string // of files, for callers that open them directly
	pid   int
	// bound is the memory of all groups together; 0: there is none.
	bound int64

	hierarchies []hierarchy
	reasons     map[Resource]error // why a resource has no hierarchy

	mu sync.Mutex
	// held are the locks of the bases.
	held map[string]lock
	// shared counts the groups that share the weight of their common directory.
	shared map[string]int
}

// Open finds out where groups can be made and for which resources, and makes the directory for them; Able reports the
// result. It removes what gateways that have ended have left there. Root is "/"; otherwise /proc and /sys are looked up
// below it. With a bound, which is in bytes, all groups together have no more memory than that, and every group is bounded
// by it; 0: none.
func Open(root string, bound int64) *Manager {
	return open(host(root), host(root), root, os.Getpid(), bound)
}

func open(f files, l locks, root string, pid int, bound int64) *Manager {
	m := &Manager{files: f, locks: l, root: root, pid: pid, bound: bound, reasons: map[Resource]error{}, held: map[string]lock{}, shared: map[string]int{}}
	mounts, err := f.read("/proc/self/mountinfo")
	var membership []byte
	if err == nil {
		membership, err = f.read("/proc/self/cgroup")
	}
	if err != nil {
		for _, r := range resources {
			m.reasons[r] = fmt.Errorf("cgroups cannot be found: %w", err)
		}
		return m
	}
	m.find(procfs.ParseMounts(mounts), procfs.ParseMembership(membership))
	kept := m.hierarchies[:0]
	for _, h := range m.hierarchies {
		m.removeLeft(&h)
		if m.prepare(&h); len(h.resources) > 0 {
			kept = append(kept, h)
		}
	}
	m.hierarchies = kept
	return m
}

// find groups the resources by the directory in which their groups will be.
func (m *Manager) find(mounts []procfs.Mount, paths map[string]string) {
	for _, r := range resources {
		dir, isUnified, err := findOwn(mounts, paths, r)
		if err != nil {
			m.reasons[r] = err
			continue
		}
		if isUnified {
			dir = outOfLeaf(dir)
		}
		i := slices.IndexFunc(m.hierarchies, func(h hierarchy) bool { return h.own == dir })
		if i < 0 {
			i = len(m.hierarchies)
			device, err := m.locks.device(dir)
			if err != nil {
				m.reasons[r] = refusal(dir, isUnified, err)
				continue
			}
			base := path.Join(dir, baseName(m.pid, device))
			h := hierarchy{unified: isUnified, own: dir, base: base, groups: base}
			if isUnified {
				h.groups = path.Join(base, together)
			}
			m.hierarchies = append(m.hierarchies, h)
		}
		m.hierarchies[i].resources = append(m.hierarchies[i].resources, r)
	}
}

// weigh gives the gateway's leaf the weight of as many replicas as there are processors, so that its threads together
// have no less than if each was beside one replica. Not every kernel has the file.
func (m *Manager) weigh(h *hierarchy) {
	weight := strconv.Itoa(min(maxWeight, normalWeight*runtime.NumCPU()))
	_ = m.files.write(path.Join(h.base, leaf, "cpu.weight"), weight)
}

// outOfLeaf is the cgroup in which a gateway has its own directory, for a process in the leaf of that directory: another Manager of
// this process has moved it there, or the gateway that has started this one.
func outOfLeaf(dir string) string {
	if path.Base(dir) != leaf {
		return dir
	}
	if _, ok := parseName(path.Base(path.Dir(dir))); !ok {
		return dir
	}
	return path.Dir(path.Dir(dir))
}

// prepare makes a hierarchy's base, and drops the resources that cannot be limited there.
func (m *Manager) prepare(h *hierarchy) {
	if err := m.makeParents(h); err != nil {
		for _, r := range h.resources {
			m.reasons[r] = refusal(h.own, h.unified, err)
		}
		h.resources = nil
		return
	}
	if h.unified {
		defer m.weigh(h)
	}
	h.leavable = !h.unified && m.files.write(path.Join(h.own, "tasks"), "") == nil
	able := h.resources[:0]
	for _, r := range h.resources {
		err := m.delegate(h, r)
		if file := settings(containers.Limits{}, r, *h)[0].file; err == nil && m.files.write(path.Join(h.groups, file), "") != nil {
			err = fmt.Errorf("this kernel's cgroups have no %s: it was built without it, or it is disabled on the kernel's command line", file)
		}
		if err == nil && r == Memory {
			err = m.boundAll(h)
		}
		if err != nil {
			m.reasons[r] = err
		} else {
			able = append(able, r)
		}
	}
	if h.resources = able; len(able) == 0 {
		m.removeParents(h)
	}
}

// makeParents makes the directories that groups are made in, and holds the lock of the base.
func (m *Manager) makeParents(h *hierarchy) error {
	err := m.hold(h)
	if err == nil && h.groups != h.base {
		err = m.mkdir(h.groups)
	}
	return err
}

// removeParents removes them. It fails if another Manager of this process, or the gateway itself, is in there.
func (m *Manager) removeParents(h *hierarchy) {
	if h.groups != h.base {
		_ = m.files.rmdir(h.groups)
	}
	_ = m.files.rmdir(h.base)
	m.release(h)
}

// boundAll bounds the memory of all groups together.
func (m *Manager) boundAll(h *hierarchy) error {
	if m.bound <= 0 {
		return nil
	}
	bytes := strconv.FormatInt(m.bound, 10)
	all := []setting{{"memory.max", bytes, false}, {"memory.swap.max", "0", true}}
	if !h.unified { // a group inherits that its parent's limit binds it, and the swappiness
		all = []setting{{"memory.use_hierarchy", "1", true}, {"memory.limit_in_bytes", bytes, false}, {"memory.swappiness", "0", true}}
	}
	for _, s := range all {
		file := path.Join(h.groups, s.file)
		if err := m.files.write(file, s.value); err != nil && !(s.optional && errors.Is(err, fs.ErrNotExist)) {
			return fmt.Errorf("the memory of all replicas together cannot be bounded: write %s to %s: %w", s.value, file, err)
		}
	}
	return nil
}

func (m *Manager) mkdir(dir string) error {
	if err := m.files.mkdir(dir); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

// ownUnit says what to do if other programs use the gateway's cgroup.
const ownUnit = "start the gateway in a cgroup of its own: as a systemd service with Delegate=yes, or by systemd-run --user --scope -p Delegate=yes"

// refusal explains why no cgroup can be made in dir.
func refusal(dir string, isUnified bool, err error) error {
	switch {
	case errors.Is(err, fs.ErrPermission) && !isUnified:
		return fmt.Errorf("the gateway may not make cgroups in %s: run it as root, or in a cgroup of this hierarchy (version 1) that belongs to its user with the files tasks and cgroup.procs", dir)
	case errors.Is(err, syscall.EROFS):
		return fmt.Errorf("%s is mounted read-only: in a container, set the limit of the container itself, or give it a writable cgroup file system", dir)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("the gateway may not make cgroups in %s: %s", dir, ownUnit)
	case errors.Is(err, syscall.EAGAIN):
		return fmt.Errorf("%s may have no more cgroups below it: raise its cgroup.max.descendants and cgroup.max.depth", dir)
	default:
		return fmt.Errorf("no cgroup can be made in %s: %w", dir, err)
	}
}

// delegate enables a controller for the groups: own must have it and enable it for base, and so on down to the
// groups. In version 1 every cgroup has the controllers of its hierarchy.
func (m *Manager) delegate(h *hierarchy, r Resource) error {
	if !h.unified {
		return nil
	}
	has, err := m.has(h.own, "cgroup.controllers", r)
	if err != nil {
		return refusal(h.own, h.unified, err)
	}
	if !has {
		return fmt.Errorf("the controller %s is not enabled for the gateway's cgroup %s: %s", r, h.own, ownUnit)
	}
	err = m.enable(h.own, r)
	if errors.Is(err, syscall.EBUSY) { // only the root cgroup may have both processes and limited children
		if err := m.moveToLeaf(h); err != nil {
			return err
		}
		err = m.enable(h.own, r)
	}
	if err == nil {
		err = m.enable(h.base, r)
	}
	if err == nil {
		err = m.enable(h.groups, r)
	}
	if errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("the gateway may not change %s/cgroup.subtree_control: %s", h.own, ownUnit)
	}
	if err != nil {
		return fmt.Errorf("the controller %s cannot be enabled in %s: %w", r, h.own, err)
	}
	return nil
}

// has reports whether a file of controllers lists one.
func (m *Manager) has(dir, file string, r Resource) (bool, error) {
	b, err := m.files.read(path.Join(dir, file))
	return slices.Contains(strings.Fields(string(b)), string(r)), err
}

func (m *Manager) enable(dir string, r Resource) error {
	if on, err := m.has(dir, "cgroup.subtree_control", r); on || err != nil {
		return err
	}
	return m.files.write(path.Join(dir, "cgroup.subtree_control"), "+"+string(r))
}

// moveToLeaf moves the gateway, with what it has started, from its own cgroup into a leaf of it, as systemd requires of
// the manager of a delegated cgroup. If other processes are in there, it moves nothing.
func (m *Manager) moveToLeaf(h *hierarchy) error {
	target := path.Join(h.base, leaf)
	for range moveTries {
		b, err := m.files.read(path.Join(h.own, "cgroup.procs"))
		if err != nil {
			return refusal(h.own, h.unified, err)
		}
		pids := parsePIDs(b)
		if len(pids) == 0 {
			return nil
		}
		if err := m.checkOnlyOurs(h.own, pids); err != nil {
			return err
		}
		if err := m.mkdir(target); err != nil {
			return refusal(h.base, h.unified, err)
		}
		for _, pid := range pids {
			err := m.files.write(path.Join(target, "cgroup.procs"), strconv.Itoa(pid))
			if err != nil && !errors.Is(err, syscall.ESRCH) { // the process has ended
				return fmt.Errorf("the gateway cannot move from %s to %s, out of the way of limited replicas: %w", h.own, target, err)
			}
		}
	}
	return fmt.Errorf("the gateway's processes in %s fork faster than they can be moved out of the way of limited replicas", h.own)
}

// checkOnlyOurs returns an error that names the processes in the gateway's own cgroup that are neither the gateway nor
// its descendants.
func (m *Manager) checkOnlyOurs(own string, pids []int) error {
	var others []string
	for _, pid := range pids {
		if !m.isDescendant(pid) {
			name, _ := m.files.read(path.Join("/proc", strconv.Itoa(pid), "comm"))
			others = append(others, strings.TrimSpace(strconv.Itoa(pid)+" "+strings.TrimSpace(string(name))))
		}
	}
	if len(others) == 0 {
		return nil
	}
	const shown = 3
	list := strings.Join(others[:min(shown, len(others))], ", ")
	if len(others) > shown {
		list += fmt.Sprintf(" and %d more", len(others)-shown)
	}
	return fmt.Errorf("the gateway's cgroup %s also holds processes that are not the gateway's (%s), and in version 2 of cgroups one with processes cannot have limited children: %s",
		own, list, ownUnit)
}

// isDescendant reports whether a process is the gateway or its descendant. One that has ended meanwhile does not matter
// and counts as one.
func (m *Manager) isDescendant(pid int) bool {
	const deep = 100
	for range deep {
		if pid == m.pid {
			return true
		}
		if pid <= 1 { // 0 is a process of another namespace
			return false
		}
		b, err := m.files.read(path.Join("/proc", strconv.Itoa(pid), "stat"))
		if err != nil {
			return true
		}
		st, ok := procfs.ParseStat(b)
		if !ok {
			return false
		}
		pid = st.Parent
	}
	return false
}

// Unsupported returns nil if a resource can be limited, or why not and what to do, as a clause without a full stop.
func (m *Manager) Unsupported(r Resource) error { return m.reasons[r] }

// Close removes the directories of the groups if they are empty. A cgroup that the gateway itself has moved to stays
// while it runs.
func (m *Manager) Close() {
	for i := range m.hierarchies {
		m.removeParents(&m.hierarchies[i])
	}
}
