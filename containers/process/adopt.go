package process

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

// stepAdopt is the failed step of a process that could not be adopted.
const stepAdopt = "parent"

// adopt turns a process that a zygote forked into a worker and then releases it: until it reads a byte from its
// descriptor it does nothing. It is a child of this process already, because the process that forked it has ended.
func (r *reaper) adopt(q request, release int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	parent, inside := os.Getpid(), q.PID
	zygote := r.byID[q.Zygote]
	if zygote != nil && zygote.forked != nil { // it reports pids of its own namespace
		parent, q.PID = zygote.pid, childOf(zygote.pid, inside)
	}
	st, ok := r.adoptable(q, parent)
	if !ok {
		r.answer(failure(q.ID, stepAdopt, unix.ESRCH)) // it ends with the descriptor
		return
	}
	if step, err := r.confine(q.PID, q); err != nil {
		signalExactly(st, unix.SIGKILL) // it has no children yet
		r.answer(failure(q.ID, step, err))
		return
	}
	w := &worker{id: q.ID, pid: q.PID, lead: q.PID, first: st, marker: q.Marker, autogroup: -1, groups: q.Groups}
	if q.Quiet {
		q.Groups.Yield()
		if r.quietly != nil {
			// It has one thread, and threads that it creates inherit from that.
			r.lowerThread(w.pid)
		}
		r.lower(w)
	}
	r.byID[w.id] = w
	if zygote != nil && zygote.forked != nil {
		w.inside = true
		zygote.forked[inside] = w
	} else {
		r.byPID[w.pid] = w
	}
	r.answer(reply{Op: opStarted, ID: q.ID, PID: w.pid, Quiet: w.low || w.autogroup >= 0})
	_, _ = unix.Write(release, []byte{1}) // if it has ended meanwhile, reap notices
}

// adoptable reports whether the process is what the zygote claims, which is not trusted: a living child of this process,
// or of its zygote's launcher, that is no worker yet, leads its group and its session, and has this launch's marker. The caller holds r.mu, so the
// pid of a child of this process cannot be reused; the stat identifies that of another one.
func (r *reaper) adoptable(q request, parent int) (stat, bool) {
	st, ok := readStat(q.PID)
	if !ok || st.zombie || st.ppid != parent || st.pgrp != q.PID || r.byPID[q.PID] != nil {
		return stat{}, false
	}
	session, err := unix.Getsid(q.PID)
	return st, err == nil && session == q.PID && marked(q.PID, q.Marker+"\x00")
}

// childOf returns the pid of the child of parent whose pid in its own namespace is inside; 0 if there is none.
func childOf(parent, inside int) int {
	for _, pid := range childrenOf(parent) {
		if innermost(pid) == inside {
			return pid
		}
	}
	return 0
}

// childrenOf lists a process's children. The kernel has lists (CONFIG_PROC_CHILDREN), which are shorter than that of all
// processes; newer children come later.
func childrenOf(parent int) (pids []int) {
	folder := filepath.Join("/proc", strconv.Itoa(parent), "task")
	names, err := os.ReadDir(folder)
	if err != nil {
		return nil
	}
	for _, name := range names {
		children, err := childrenOfThread(filepath.Join(folder, name.Name()))
		if err != nil { // not in this kernel
			pids = nil
			for _, st := range processes() {
				if st.ppid == parent {
					pids = append(pids, st.pid)
				}
			}
			return pids
		}
		pids = append(pids, children...)
	}
	slices.Reverse(pids)
	return pids
}

func childrenOfThread(folder string) (pids []int, err error) {
	b, err := os.ReadFile(filepath.Join(folder, "children"))
	for _, field := range bytes.Fields(b) {
		if pid, err := strconv.Atoi(string(field)); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids, err
}

// innermost returns a process's pid in its own pid namespace, which comes last in the line NSpid of its status.
func innermost(pid int) int {
	b, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "status"))
	if err != nil {
		return 0
	}
	for line := range bytes.Lines(b) {
		if fields := bytes.Fields(line); len(fields) > 1 && string(fields[0]) == "NSpid:" {
			n, _ := strconv.Atoi(string(fields[len(fields)-1]))
			return n
		}
	}
	return 0
}
