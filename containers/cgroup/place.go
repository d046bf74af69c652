package cgroup

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
)

// Place is a group's directory in one hierarchy, with what is needed to start the group's first process.
type Place struct {
	Dir string `json:"dir"`
	// Unified: it is of version 2.
	Unified bool `json:"unified,omitempty"`
	// Home is the cgroup that a thread returns to after it has entered Dir to fork; empty where threads do not enter.
	Home string `json:"home,omitempty"`
}

// Places are the directories of one group; each of its processes is in all of them.
type Places []Place

const (
	// killPasses bounds the passes over processes that fork as fast as they are killed. After forkPasses of them they
	// can no longer fork, if the kernel limits the number of processes.
	killPasses = 32
	forkPasses = 4
	// procsBytes bounds what is read of a list of processes.
	procsBytes = 1 << 20
)

// ErrStuck is in Fork's error if the calling thread could not leave the group: processes that it forks later would be
// in the group.
var ErrStuck = errors.New("a thread could not leave a replica's cgroup")

// Fork calls start on the calling thread, which must be locked, so that the process that start forks is in the group
// from its first instruction. With version 2, start gets a descriptor of the group's directory for
// [syscall.SysProcAttr].CgroupFD. Otherwise it gets -1, and the thread is in the group meanwhile, if version 1 allows
// it. If neither is possible the process stays in this process's cgroup: call Add for it.
func (ps Places) Fork(start func(dir int) (pid int, err error)) (pid int, err error) {
	dir := -1
	var entered Places
	for _, p := range ps {
		switch {
		case p.Unified && dir < 0:
			f, err := os.OpenFile(p.Dir, syscall.O_DIRECTORY, 0)
			if err != nil {
				continue
			}
			defer f.Close()
			dir = int(f.Fd())
		case p.Home != "" && write(filepath.Join(p.Dir, "tasks"), "0") == nil: // 0 is the writing thread
			entered = append(entered, p)
		}
	}
	pid, err = start(dir)
	if dir >= 0 && (err == syscall.ENOSYS || err == syscall.EINVAL || err == syscall.EPERM || err == syscall.EACCES) {
		pid, err = start(-1) // a kernel before 5.7, or a sandbox without clone3
	}
	for _, p := range entered {
		if back := write(filepath.Join(p.Home, "tasks"), "0"); back != nil {
			return pid, fmt.Errorf("%w: %w", ErrStuck, back)
		}
	}
	return pid, err
}

// Yield makes the group quiet, as [Group.SetQuiet] does, where the kernel has cpu.idle. It is for a process that has just started the
// group's first one: no earlier, because a thread that enters the group to fork would yield, too.
func (ps Places) Yield() {
	for _, p := range ps {
		_ = write(filepath.Join(p.Dir, "cpu.idle"), "1") // there is none without the controller
	}
}

// Wake undoes Yield.
func (ps Places) Wake() {
	for _, p := range ps {
		_ = write(filepath.Join(p.Dir, "cpu.idle"), "0")
	}
}

// Add puts a process into the group, with all its threads, unless it is there. Its children stay where they are. A process
// that has ended is no error. Moving a process takes about ten milliseconds, because the kernel waits until no process forks.
func (ps Places) Add(pid int) error {
	for _, p := range ps {
		if slices.Contains(p.pids(), pid) {
			continue
		}
		if err := write(filepath.Join(p.Dir, "cgroup.procs"), strconv.Itoa(pid)); err != nil && !errors.Is(err, syscall.ESRCH) {
			return err
		}
	}
	return nil
}

// Doors opens the files through which a process with one thread enters the places of version 1 by itself: it writes "0" to each.
// That takes microseconds, and the right to do so is the opener's. The caller closes them. A place without a door needs Add.
func (ps Places) Doors() (fds []int) {
	for _, p := range ps {
		if p.Unified {
			continue
		}
		if fd, err := syscall.Open(filepath.Join(p.Dir, "tasks"), syscall.O_WRONLY|syscall.O_CLOEXEC, 0); err == nil {
			fds = append(fds, fd)
		}
	}
	return fds
}

// Kill sends SIGKILL to every process in the group, including those that are being forked meanwhile.
func (ps Places) Kill() {
	for _, p := range ps {
		if p.Unified && write(filepath.Join(p.Dir, "cgroup.kill"), "1") == nil { // since Linux 5.14
			return // a process in one place is in all
		}
	}
	for _, p := range ps {
		p.killListed(ps)
	}
}

// killListed kills the listed processes until no new ones appear.
func (p Place) killListed(all Places) {
	killed := map[int]bool{}
	for pass := range killPasses {
		if pass == forkPasses {
			for _, q := range all {
				_ = write(filepath.Join(q.Dir, "pids.max"), "0")
			}
		}
		more := false
		processes := map[int]*os.Process{}
		for _, pid := range p.pids() {
			// Processes of other namespaces are listed as 0 and cannot be killed.
			if pid == 0 {
				continue
			}
			if proc, err := os.FindProcess(pid); err == nil {
				processes[pid] = proc
			}
		}
		// A process that is still listed after its handle was opened is in the group, and its pid was not reused.
		for _, pid := range p.pids() {
			if proc := processes[pid]; proc != nil {
				more = more || !killed[pid]
				killed[pid] = true
				_ = proc.Kill()
			} else {
				more = more || pid > 0 // it was created in between
			}
		}
		for _, proc := range processes {
			_ = proc.Release()
		}
		if !more {
			return
		}
	}
}

func (p Place) pids() []int {
	f, err := os.Open(filepath.Join(p.Dir, "cgroup.procs"))
	if err != nil {
		return nil
	}
	defer f.Close()
	b, _ := io.ReadAll(io.LimitReader(f, procsBytes))
	return parsePIDs(b)
}

// Remove removes the group's directories if they are empty, and the parents if no other group is there. It is for a
// process that outlives the gateway.
func (ps Places) Remove() {
	for _, p := range ps {
		all := filepath.Dir(p.Dir)
		_ = syscall.Rmdir(p.Dir)
		if n, ok := parseName(filepath.Base(p.Dir)); ok && n.isGroup {
			continue // it was beside the gateway
		}
		_ = syscall.Rmdir(all)
		if filepath.Base(all) == together {
			_ = syscall.Rmdir(filepath.Dir(all))
		}
	}
}

func write(path, s string) error { return host("/").write(path, s) }
