package cgroup

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// locks tells the directories of gateways that live from those of gateways that have ended: each holds a shared lock
// of its own directory, and a sweep needs the exclusive one. The kernel releases the lock of a process that ends, however
// it ends. Unlike a pid, a lock means the same in every pid, time and cgroup namespace.
type locks interface {
	// lock takes a lock of a directory without waiting. The error is EWOULDBLOCK if another one has a lock that excludes
	// this, and fs.ErrNotExist if the directory is gone.
	lock(dir string, exclusive bool) (lock, error)
	// device returns the number of the file system that shows a directory. Locks are visible to each other if it is the
	// same, and perhaps not otherwise.
	device(dir string) (uint64, error)
}

type lock interface {
	io.Closer
	// holds reports whether the directory is still the one that was locked.
	holds() bool
}

// hostLock is a flock(2) of a directory.
type hostLock struct{ *os.File }

func (h host) lock(dir string, exclusive bool) (lock, error) {
	f, err := os.OpenFile(h.at(dir), os.O_RDONLY|syscall.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	how := syscall.LOCK_SH
	if exclusive {
		how = syscall.LOCK_EX
	}
	if err := syscall.Flock(int(f.Fd()), how|syscall.LOCK_NB); err != nil {
		f.Close()
		return nil, &os.PathError{Op: "flock", Path: h.at(dir), Err: err}
	}
	l := hostLock{f}
	if !l.holds() { // it was removed meanwhile
		f.Close()
		return nil, &os.PathError{Op: "flock", Path: h.at(dir), Err: fs.ErrNotExist}
	}
	return l, nil
}

func (l hostLock) holds() bool {
	locked, err := l.Stat()
	now, err2 := os.Stat(l.Name())
	return err == nil && err2 == nil && os.SameFile(locked, now)
}

func (h host) device(dir string) (uint64, error) {
	var st syscall.Stat_t
	if err := syscall.Stat(h.at(dir), &st); err != nil {
		return 0, &os.PathError{Op: "stat", Path: h.at(dir), Err: err}
	}
	return st.Dev, nil
}

// life is a random number for this process. Two gateways may have the same pid, and have begun at the same time.
var life = func() string {
	var b [4]byte
	rand.Read(b[:]) // never fails since Go 1.24
	return strconv.FormatUint(uint64(binary.LittleEndian.Uint32(b[:])), 10)
}()

// prefix begins the name of a gateway's directory: "xebec-<pid>-<life>-<device>". The pid is for operators. A group beside
// the gateway has a number after that.
const prefix = "xebec-"

func baseName(pid int, device uint64) string {
	return prefix + strconv.Itoa(pid) + "-" + life + "-" + strconv.FormatUint(device, 10)
}

// dirName is the parsed name of a gateway's directory, or of a group beside the gateway.
type dirName struct {
	device uint64
	// isLocked: its gateway holds a lock of it. Earlier programs left the device out, and held none.
	isLocked bool
	isGroup  bool
}

func parseName(name string) (n dirName, ok bool) {
	rest, ok := strings.CutPrefix(name, prefix)
	fields := strings.Split(rest, "-")
	if !ok || len(fields) < 2 || len(fields) > 4 {
		return dirName{}, false
	}
	var numbers [4]uint64
	for i, field := range fields {
		n, err := strconv.ParseUint(field, 10, 64)
		if err != nil || i == 0 && n == 0 {
			return dirName{}, false
		}
		numbers[i] = n
	}
	return dirName{device: numbers[2], isLocked: len(fields) > 2, isGroup: len(fields) == 4}, true
}

// hold makes a hierarchy's base, if it does not exist, and locks it.
func (m *Manager) hold(h *hierarchy) error {
	l, err := m.holdDir(h.base)
	if err != nil {
		return err
	}
	m.release(h)
	m.mu.Lock()
	m.held[h.base] = l
	m.mu.Unlock()
	return nil
}

// holdDir makes a directory, if it does not exist, and locks it. It waits for a sweep that is removing it: one sees it
// without its lock for a moment.
func (m *Manager) holdDir(dir string) (lock, error) {
	late := time.NewTimer(2 * removeWait)
	defer late.Stop()
	again := time.NewTicker(removeEvery)
	defer again.Stop()
	for {
		if err := m.mkdir(dir); err != nil {
			return nil, err
		}
		l, err := m.locks.lock(dir, false)
		if err == nil {
			return l, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("lock %s, so that no other gateway removes it: %w", path.Base(dir), err)
		}
		select {
		case <-again.C:
		case <-late.C:
			return nil, fmt.Errorf("lock %s, so that no other gateway removes it: another process holds its lock: %w", path.Base(dir), err)
		}
	}
}

// isHeld reports whether the lock of a hierarchy's base is this Manager's.
func (m *Manager) isHeld(h *hierarchy) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	l := m.held[h.base]
	return l != nil && l.holds()
}

func (m *Manager) release(h *hierarchy) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if l := m.held[h.base]; l != nil {
		_ = l.Close()
		delete(m.held, h.base)
	}
}
