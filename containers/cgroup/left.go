package cgroup

import (
	"errors"
	"io/fs"
	"path"
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

// removeLeft removes what ended gateways have left in a cgroup, and kills what still runs there. It touches nothing of a
// gateway that it cannot prove to have ended: the proof is the lock of its directory. It waits for only one
// group that does not go away, not for each: the next gateway tries again.
func (m *Manager) removeLeft(h *hierarchy) {
	here, err := m.locks.device(h.own)
	if err != nil {
		return
	}
	wait := true
	names, _ := m.files.list(h.own)
	for _, name := range names {
		n, ok := parseName(name)
		dir := path.Join(h.own, name)
		if !ok || !n.isLocked || n.device != here || dir == h.base {
			continue
		}
		l, err := m.locks.lock(dir, true)
		if err != nil {
			continue
		}
		if n.isGroup {
			wait = m.removeGroup(dir, wait)
		} else {
			wait = m.removeBase(dir, wait)
		}
		_ = l.Close()
	}
}

// removeBase removes the directory of an ended gateway. It returns wait, or false if a group did not go away.
func (m *Manager) removeBase(base string, wait bool) bool {
	groups, _ := m.files.list(base)
	inside, _ := m.files.list(path.Join(base, together))
	for _, group := range inside {
		groups = append(groups, path.Join(together, group))
	}
	for _, group := range groups {
		if group == leaf || group == together { // processes in the leaf were not started by the gateway as a replica
			continue
		}
		wait = m.removeGroup(path.Join(base, group), wait)
	}
	_ = m.files.rmdir(path.Join(base, together))
	_ = m.files.rmdir(path.Join(base, leaf))
	_ = m.files.rmdir(base)
	return wait
}

// removeGroup kills what is left in a group and removes it. It returns wait, or false if the group did not go away.
func (m *Manager) removeGroup(dir string, wait bool) bool {
	Places{{Dir: path.Join(m.root, dir)}}.Kill()
	if !wait {
		_ = m.removeTree(dir, nested)
		return false
	}
	return m.remove(dir) == nil
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
