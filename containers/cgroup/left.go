package cgroup

import (
	"errors"
	"io/fs"
	"path"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	// removeWait is how long a group's processes may take to end after they have been killed; those that hang in the
	// kernel keep the group. removeEvery is the polling interval.
	removeWait  = 2 * time.Second
	removeEvery = 2 * time.Millisecond
	// nested bounds the depth at which cgroups that a replica has made inside its own are removed.
	nested = 8
)

// removeLeft removes what ended gateways have left in a cgroup, and kills what still runs there. It waits for only one
// group that does not go away, not for each: the next gateway tries again.
func (m *Manager) removeLeft(own string) {
	wait := true
	names, _ := m.files.list(own)
	for _, name := range names {
		pid, start, ok := parseName(name)
		if !ok || name == m.name {
			continue
		}
		if now, err := m.started(pid); err == nil && now == start {
			continue
		}
		groups, _ := m.files.list(path.Join(own, name))
		inside, _ := m.files.list(path.Join(own, name, together))
		for _, group := range inside {
			groups = append(groups, path.Join(together, group))
		}
		for _, group := range groups {
			if group == leaf || group == together { // processes in the leaf were not started by the gateway as a replica
				continue
			}
			dir := path.Join(own, name, group)
			Places{{Dir: path.Join(m.root, dir)}}.Kill()
			if wait {
				wait = m.remove(dir) == nil
			} else {
				_ = m.removeTree(dir, nested)
			}
		}
		_ = m.files.rmdir(path.Join(own, name, together))
		_ = m.files.rmdir(path.Join(own, name, leaf))
		_ = m.files.rmdir(path.Join(own, name))
	}
}

// parseName parses "xebec-<pid>-<start>".
func parseName(name string) (pid int, start uint64, ok bool) {
	rest, ok := strings.CutPrefix(name, prefix)
	first, second, both := strings.Cut(rest, "-")
	pid, err := strconv.Atoi(first)
	start, err2 := strconv.ParseUint(second, 10, 64)
	return pid, start, ok && both && err == nil && err2 == nil && pid > 0
}

// remove removes a cgroup and those below it, as soon as its last process has ended.
func (m *Manager) remove(dir string) error {
	late := time.NewTimer(removeWait)
	defer late.Stop()
	again := time.NewTicker(removeEvery)
	defer again.Stop()
	for {
		err := m.removeTree(dir, nested)
		if !errors.Is(err, syscall.EBUSY) {
			return err
		}
		select {
		case <-again.C:
		case <-late.C:
			return err
		}
	}
}

func (m *Manager) removeTree(dir string, depth int) error {
	err := m.files.rmdir(dir)
	switch {
	case err == nil || errors.Is(err, fs.ErrNotExist):
		return nil
	case depth == 0:
		return err
	}
	names, _ := m.files.list(dir)
	for _, name := range names {
		if err := m.removeTree(path.Join(dir, name), depth-1); err != nil {
			return err
		}
	}
	if len(names) == 0 {
		return err
	}
	return m.removeTree(dir, 0)
}
