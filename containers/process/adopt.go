package process

import (
	"os"

	"golang.org/x/sys/unix"
)

// stepAdopt is what failed when a process could not be adopted.
const stepAdopt = "parent"

// adopt makes a process that a zygote has forked a worker like any other, and then lets it go on: until a byte comes through its
// descriptor it does nothing. It is a child of this process's already, because the one that forked it has ended.
func (r *reaper) adopt(q request, goOn int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.adoptable(q) {
		r.answer(failure(q.ID, stepAdopt, unix.ESRCH)) // it ends with the descriptor
		return
	}
	if step, err := confine(q.PID, q); err != nil {
		_ = unix.Kill(-q.PID, unix.SIGKILL)
		r.answer(failure(q.ID, step, err))
		return
	}
	w := &worker{id: q.ID, pid: q.PID, marker: q.Marker, autogroup: -1, groups: q.Groups}
	if q.Quiet {
		if r.quietly != nil {
			// It has one thread, and those that it makes inherit from that.
			_ = unix.Setpriority(unix.PRIO_PROCESS, w.pid, lowest)
		}
		r.hush(w)
	}
	r.byID[w.id], r.byPID[w.pid] = w, w
	r.answer(reply{Op: opStarted, ID: q.ID, PID: w.pid, Quiet: w.low || w.autogroup >= 0})
	_, _ = unix.Write(goOn, []byte{1}) // if it has ended meanwhile, that is seen elsewhere
}

// adoptable reports whether the process is what the gateway was told by the zygote, which is not to be believed: a living child, nobody
// else's, with a group and a session of its own, and marked as this launch. The caller holds r.mu, so the number stays its own.
func (r *reaper) adoptable(q request) bool {
	st, ok := readStat(q.PID)
	if !ok || st.zombie || st.ppid != os.Getpid() || st.pgrp != q.PID || r.byPID[q.PID] != nil {
		return false
	}
	session, err := unix.Getsid(q.PID)
	return err == nil && session == q.PID && marked(q.PID, q.Marker+"\x00")
}
