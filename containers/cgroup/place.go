package cgroup

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

// Place is a group's directory in one hierarchy, as whoever starts the group's first process needs it.
type Place struct {
	Dir string `json:"dir"`
	// Unified: it is of version 2.
	Unified bool `json:"unified,omitempty"`
	// Home is the cgroup that a thread goes back to which has entered Dir to fork; empty where threads do not.
	Home string `json:"home,omitempty"`
}

// Places are those of one group, which has every process in each of them.
type Places []Place

const (
	// killPasses bounds the rounds against processes that fork as fast as they are killed. After forkPasses of them no more
	// can be forked, where the kernel counts processes.
	killPasses = 32
	forkPasses = 4
	// procsBytes bounds what is read of a list of processes.
	procsBytes = 1 << 20
)

// ErrStuck is in Fork's error when the calling thread could not come back from the group: what it forks later would be in there.
var ErrStuck = errors.New("a thread could not leave a replica's cgroup")

// Fork calls start on the calling thread, which must be locked, so that the process which that forks is in the group from its first
// instruction on. With version 2, start gets a descriptor of the group's directory for [syscall.SysProcAttr].CgroupFD; else it gets -1, and
// the thread is in the group meanwhile, which version 1 allows. Where neither can be done the process is where this one is: Add it.
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
		pid, err = start(-1) // a kernel before 5.7, or a sandbox that knows no clone3
	}
	for _, p := range entered {
		if back := write(filepath.Join(p.Home, "tasks"), "0"); back != nil {
			return pid, fmt.Errorf("%w: %w", ErrStuck, back)
		}
	}
	return pid, err
}

// Add puts a process into the group, with all its threads. Its children stay where they are. One that has ended is no error.
func (ps Places) Add(pid int) error {
	for _, p := range ps {
		if err := write(filepath.Join(p.Dir, "cgroup.procs"), strconv.Itoa(pid)); err != nil && !errors.Is(err, syscall.ESRCH) {
			return err
		}
	}
	return nil
}

// Kill sends SIGKILL to every process in the group, also to those that are being forked meanwhile.
func (ps Places) Kill() {
	for _, p := range ps {
		if p.Unified && write(filepath.Join(p.Dir, "cgroup.kill"), "1") == nil { // since Linux 5.14
			return // whoever is in one is in all
		}
	}
	for _, p := range ps {
		p.killListed(ps)
	}
}

// killListed kills what is listed until nothing new is.
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
			// Processes of other namespaces are listed as 0: not ours to kill.
			if pid == 0 {
				continue
			}
			if proc, err := os.FindProcess(pid); err == nil {
				processes[pid] = proc
			}
		}
		// Who is still listed now that there is a handle of the process is in the group, and no other has got its number.
		for _, pid := range p.pids() {
			if proc := processes[pid]; proc != nil {
				more = more || !killed[pid]
				killed[pid] = true
				_ = proc.Kill()
			} else {
				more = more || pid > 0 // it came between
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

// Remove removes the group's directories if nothing is in them, and those above if no other group is there. It is for who outlives the
// gateway.
func (ps Places) Remove() {
	for _, p := range ps {
		_ = syscall.Rmdir(p.Dir)
		_ = syscall.Rmdir(filepath.Dir(p.Dir))
	}
}

func write(path, s string) error { return host("/").write(path, s) }
