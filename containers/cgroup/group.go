package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/xebec-serving/xebec/containers"
)

const (
	// periodMicros is the period of processor time limits, the kernel's default. A limit of 1500 thousandths is 150 ms
	// of processor time in each 100 ms.
	periodMicros = 100_000
	// minQuotaMicros is the least quota that the kernel accepts.
	minQuotaMicros = 1_000
	// chargeBytes is the most that the kernel charges to a cgroup of version 1 at once (64 pages). A cgroup closer than
	// that to its limit has reached it.
	chargeBytes = 64 * 4096
	// nameBytes bounds the readable part of a group's name.
	nameBytes = 64
	// normalShares is the default weight of a cgroup of version 1, normalWeight of version 2. The quiet ones have the
	// ratio of a thread of niceness 19 to one of niceness 0: 15 to 1024.
	normalShares, quietShares = 1024, 15
	normalWeight, quietWeight = 100, 1
	maxShares, maxWeight      = 262_144, 10_000
)

// created numbers the groups of this process.
var created atomic.Uint64

// Group is a replica's cgroup. It has one directory in each hierarchy that limits it.
type Group struct {
	manager       *Manager
	limits        containers.Limits
	oomsBefore    int // see Events.OverBound
	parts         []part
	places        Places
	sharesCounted bool
	yields        bool // see CreateYielding
	removed       sync.Once
}

// part is a group's directory in one hierarchy.
type part struct {
	hierarchy hierarchy
	dir       string
	// beside is the lock of a directory that is beside the gateway instead of below the directory of all groups; nil for others.
	beside lock
}

// Create makes a group with those limits of CPUMillis, MemoryBytes and PIDs that can be enforced. Limits of 0, and
// those for which [Manager.Unsupported] returns an error, are left out. A group without a limit of memory has the bound of all
// groups. Name is for operators who look at cgroups; a number makes it unique. The error says what could not be set; then nothing is left of the group.
func (m *Manager) Create(name string, limits containers.Limits) (*Group, error) {
	return m.create(name, limits, false)
}

// CreateYielding makes a group for which [Group.SetQuiet] has an effect although it has no limit of processor time, if the
// controller can be used.
func (m *Manager) CreateYielding(name string, limits containers.Limits) (*Group, error) {
	return m.create(name, limits, true)
}

func (m *Manager) create(name string, limits containers.Limits, yields bool) (*Group, error) {
	g := &Group{manager: m, limits: limits, yields: yields}
	number := strconv.FormatUint(created.Add(1), 10)
	own := label(name) + "-" + number
	for _, h := range m.hierarchies {
		limited := false
		for _, r := range h.resources {
			limited = limited || g.limited(r)
		}
		if !limited {
			continue
		}
		p := part{hierarchy: h, dir: path.Join(h.groups, own)}
		var err error
		if yields && !h.unified && slices.Equal(h.resources, []Resource{CPU}) {
			p.dir = h.base + "-" + number
			p.beside, err = m.holdDir(p.dir)
		} else if err = m.remake(&h); err == nil {
			err = m.files.mkdir(p.dir)
		}
		if err != nil {
			g.Remove()
			return nil, fmt.Errorf("make the replica's cgroup: %w", refusal(h.groups, h.unified, err))
		}
		g.parts = append(g.parts, p)
		if err := g.limit(p); err != nil {
			g.Remove()
			return nil, err
		}
		place := Place{Dir: filepath.Join(m.root, p.dir), Unified: h.unified}
		if h.leavable {
			place.Home = filepath.Join(m.root, h.own)
		}
		g.places = append(g.places, place)
	}
	g.sharesCounted = true
	g.updateShares(1)
	for _, p := range g.parts {
		if p.hierarchy.unified && slices.Contains(p.hierarchy.resources, Memory) {
			g.oomsBefore = m.ooms(p.hierarchy)
		}
	}
	return g, nil
}

// remake makes the directories that groups are made in, if another Manager of this process has removed them.
func (m *Manager) remake(h *hierarchy) error {
	err := m.files.mkdir(h.groups)
	exists := errors.Is(err, fs.ErrExist)
	if exists && m.isHeld(h) {
		return nil
	}
	if err == nil || exists || errors.Is(err, fs.ErrNotExist) {
		err = m.makeParents(h)
	}
	if exists { // the other one has done the rest
		return err
	}
	for _, r := range h.resources {
		if err == nil {
			err = m.delegate(h, r)
		}
		if err == nil && r == Memory {
			err = m.boundAll(h)
		}
	}
	return err
}

// ooms is how often the groups of a hierarchy of version 2 together have run out of memory.
func (m *Manager) ooms(h hierarchy) int {
	b, err := m.files.read(path.Join(h.groups, "memory.events.local"))
	if err != nil { // before Linux 5.2; it includes those of the groups
		b, _ = m.files.read(path.Join(h.groups, "memory.events"))
	}
	return parseCount(b, "oom")
}

// limited reports whether the group controls a resource: by a limit of its own, by the bound of all, or because it yields.
func (g *Group) limited(r Resource) bool {
	return hasLimit(g.limits, r) || r == Memory && g.manager.bound > 0 || r == CPU && g.yields
}

// hasLimit reports whether there is a limit for a resource.
func hasLimit(l containers.Limits, r Resource) bool {
	switch r {
	case Memory:
		return l.MemoryBytes > 0
	case PIDs:
		return l.PIDs > 0
	default:
		return l.CPUMillis > 0
	}
}

// label makes a name suitable for a directory.
func label(name string) string {
	safe := strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' || r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z' || strings.ContainsRune("@_-", r) {
			return r
		}
		return '_'
	}, name)
	if safe == "" {
		return "replica"
	}
	return safe[:min(len(safe), nameBytes)]
}

// setting is a value for a file of a cgroup. optional: not every kernel has the file, depending on version and
// configuration.
type setting struct {
	file, value string
	optional    bool
}

// limit sets the limits of one part.
func (g *Group) limit(p part) error {
	for _, r := range p.hierarchy.resources {
		all := settings(g.limits, r, p.hierarchy)
		switch {
		case !g.limited(r):
			continue
		case !hasLimit(g.limits, r): // it has the bound of all, or only yields
			all = slices.DeleteFunc(all, func(s setting) bool { return s.file != wholeGroup })
		}
		for _, s := range all {
			err := g.manager.files.write(path.Join(p.dir, s.file), s.value)
			switch {
			case err == nil || s.optional && errors.Is(err, fs.ErrNotExist):
			case errors.Is(err, syscall.EINVAL) && s.file == "cpu.cfs_quota_us":
				// Version 1 refuses a quota above that of a parent cgroup. The parent's quota binds the replica anyway.
			default:
				return fmt.Errorf("set limits.%s of a replica to %s in %s: %w", r, s.value, path.Join(p.dir, s.file), err)
			}
		}
	}
	return nil
}

// wholeGroup is the file that says that the kernel kills all processes of a group, or none.
const wholeGroup = "memory.oom.group"

func settings(l containers.Limits, r Resource, h hierarchy) []setting {
	memory, pids := strconv.FormatInt(l.MemoryBytes, 10), strconv.Itoa(l.PIDs)
	quota := strconv.FormatInt(max(minQuotaMicros, l.CPUMillis*periodMicros/1000), 10)
	period := strconv.Itoa(periodMicros)
	switch {
	case r == Memory && h.unified:
		// Swap would let a replica grow and make it slow. If one process of a replica is killed, kill all: half a
		// replica is useless.
		return []setting{{"memory.max", memory, false}, {"memory.swap.max", "0", true}, {wholeGroup, "1", true}}
	case r == Memory:
		// Without swap accounting there is no limit for both together; then tell the kernel to swap last.
		return []setting{{"memory.limit_in_bytes", memory, false}, {"memory.memsw.limit_in_bytes", memory, true}, {"memory.swappiness", "0", true}}
	case r == PIDs && h.leavable:
		return []setting{{"pids.max", strconv.Itoa(l.PIDs + 1), false}} // until Started: the forking thread counts too
	case r == PIDs:
		return []setting{{"pids.max", pids, false}}
	case h.unified:
		return []setting{{"cpu.max", quota + " " + period, false}}
	default:
		return []setting{{"cpu.cfs_period_us", period, false}, {"cpu.cfs_quota_us", quota, false}}
	}
}

// Places returns where the group's processes are put.
func (g *Group) Places() Places { return g.places }

// Started must be called when the first process is in the group and the thread that forked it has left.
func (g *Group) Started() {
	for _, p := range g.parts {
		for _, r := range p.hierarchy.resources {
			if r != PIDs || !p.hierarchy.leavable || !hasLimit(g.limits, r) {
				continue
			}
			// It fails if the replica has ended. One process too many would do no harm.
			_ = g.manager.files.write(path.Join(p.dir, "pids.max"), strconv.Itoa(g.limits.PIDs))
		}
	}
}

// SetQuiet makes the group yield to everything beside it, or undoes that. A quiet group has only the time that the groups and
// threads beside it leave over, and a thread of these that wakes takes its processor at once (cpu.idle, since Linux 5.15). A
// mere low weight does not give that: the thread then waits until the time slice of the one that runs is over. On an older
// kernel the group has the least weight. A group that has no part in the controller is not changed; see [Manager.CreateYielding].
func (g *Group) SetQuiet(quiet bool) error {
	for _, p := range g.parts {
		if !slices.Contains(p.hierarchy.resources, CPU) {
			continue
		}
		idle := "0" // this restores the normal weight, too
		file, value := "cpu.shares", normalShares
		if p.hierarchy.unified {
			file, value = "cpu.weight", normalWeight
		}
		if quiet {
			idle, value = "1", quietShares
			if p.hierarchy.unified {
				value = quietWeight
			}
		}
		err := g.manager.files.write(path.Join(p.dir, "cpu.idle"), idle)
		if errors.Is(err, fs.ErrNotExist) {
			err = g.manager.files.write(path.Join(p.dir, file), strconv.Itoa(value))
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("change the CPU share of a replica: %w", err)
		}
	}
	return nil
}

// updateShares keeps the share of the directory of all groups proportional to their number, so that limited replicas
// get no less than if each was beside the gateway.
func (g *Group) updateShares(by int) {
	m := g.manager
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range g.parts {
		if p.beside != nil {
			continue
		}
		all := p.hierarchy.groups
		for _, r := range p.hierarchy.resources {
			if r != CPU {
				continue
			}
			m.shared[all] += by
			file, value := "cpu.shares", min(maxShares, normalShares*max(1, m.shared[all]))
			if p.hierarchy.unified {
				file, value = "cpu.weight", min(maxWeight, normalWeight*max(1, m.shared[all]))
			}
			_ = m.files.write(path.Join(all, file), strconv.Itoa(value))
		}
	}
}

// Events is what happened to a group.
type Events struct {
	// OOMKills is how many of its processes the kernel has killed for memory. OverLimit: the group had reached its own
	// limit. OverBound: all groups together had reached their bound. With neither the host, or a cgroup above, ran out.
	OOMKills             int
	OverLimit, OverBound bool
	// PIDsRefused is how often a process or thread was refused because there were too many.
	PIDsRefused int
}

// Events returns what has happened to the group so far. Values that cannot be read are 0.
func (g *Group) Events() Events {
	var ev Events
	read := func(dir, file string) []byte {
		b, _ := g.manager.files.read(path.Join(dir, file))
		return b
	}
	for _, p := range g.parts {
		for _, r := range p.hierarchy.resources {
			switch {
			case !g.limited(r):
			case r == Memory && p.hierarchy.unified:
				b := read(p.dir, "memory.events")
				ev.OOMKills, ev.OverLimit = parseCount(b, "oom_kill"), parseCount(b, "oom") > 0
				ev.OverBound = g.manager.bound > 0 && g.manager.ooms(p.hierarchy) > g.oomsBefore
			case r == Memory:
				ev.OOMKills = parseCount(read(p.dir, "memory.oom_control"), "oom_kill")
				// Not every kernel keeps the counts of failed charges (memory.failcnt).
				reached := func(dir string, limit int64) bool {
					peak, err := strconv.ParseInt(strings.TrimSpace(string(read(dir, "memory.max_usage_in_bytes"))), 10, 64)
					return limit > 0 && err == nil && peak > limit-chargeBytes
				}
				ev.OverLimit, ev.OverBound = reached(p.dir, g.limits.MemoryBytes), reached(p.hierarchy.groups, g.manager.bound)
			case r == PIDs:
				ev.PIDsRefused = parseCount(read(p.dir, "pids.events"), "max")
			}
		}
	}
	return ev
}

// Remove kills what is left in the group and removes it. It waits at most two seconds until its processes have ended.
// If a process hangs in the kernel the group stays, and the next gateway removes it.
func (g *Group) Remove() {
	g.removed.Do(func() {
		g.places.Kill()
		for _, p := range g.parts {
			_ = g.manager.remove(p.dir)
			if p.beside != nil {
				_ = p.beside.Close()
			}
		}
		if g.sharesCounted {
			g.updateShares(-1)
		}
	})
}
