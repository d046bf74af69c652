package process

import (
	"os"

	"golang.org/x/sys/unix"
)

// stepAdopt is the failed step of a process that could not be adopted.
const stepAdopt = "parent"

// adopt turns a process that a zygote forked into a worker and then releases it: until it reads a byte from its
// descriptor it does nothing. It is a child of this process already, because the process that forked it has ended.
func (r *reaper) adopt(q request, release int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.adoptable(q) {
		r.answer(failure(q.ID, stepAdopt, unix.ESRCH)) // it ends with the descriptor
		return
	}
	if step, err := r.confine(q.PID, q); err != nil {
		_ = unix.Kill(-q.PID, unix.SIGKILL)
		r.answer(failure(q.ID, step, err))
		return
	}
	w := &worker{id: q.ID, pid: q.PID, marker: q.Marker, autogroup: -1, groups: q.Groups}
	if q.Quiet {
		if r.quietly != nil {
			// It has one thread, and threads that it creates inherit from that.
			_ = unix.Setpriority(unix.PRIO_PROCESS, w.pid, lowest)
		}
		r.lower(w)
	}
	r.byID[w.id], r.byPID[w.pid] = w, w
	r.answer(reply{Op: opStarted, ID: q.ID, PID: w.pid, Quiet: w.low || w.autogroup >= 0})
	_, _ = unix.Write(release, []byte{1}) // if it has ended meanwhile, reap notices
}

// adoptable reports whether the process is what the zygote claims, which is not trusted: a living child of this process
// that is no worker yet, leads its group and its session, and has this launch's marker. The caller holds r.mu, so the
// pid cannot be reused.
func (r *reaper) adoptable(q request) bool {
	st, ok := readStat(q.PID)
	if !ok || st.zombie || st.ppid != os.Getpid() || st.pgrp != q.PID || r.byPID[q.PID] != nil {
		return false
	}
	session, err := unix.Getsid(q.PID)
	return err == nil && session == q.PID && marked(q.PID, q.Marker+"\x00")
}
