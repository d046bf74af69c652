package process

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/xebec-serving/xebec/containers/cgroup"
)

// A replica that loads beside serving ones should use only the time that they leave over. Linux has two priorities for
// that, and which of them counts depends on the host. A thread has a niceness, which is weighed against that of other
// threads in the same scheduling group. With autogroups (sched(7): the default of many kernels), for processes outside
// of every CPU cgroup, a session is such a group. A worker is a session of its own, so its niceness means nothing to
// another worker, and what counts is the niceness of its group in /proc/PID/autogroup. The reaper sets both, and later
// undoes both.
//
// How soon a loading thread leaves its processor when a serving one wakes counts more than its share. The kernel preempts it at
// once only if it has the policy SCHED_IDLE, and only in favour of threads of the same group; otherwise the serving thread waits
// until a time slice is over. So the reaper uses SCHED_IDLE where sessions are no groups: in a container, and below most service
// managers. Where they are, it does not help across groups, and the reaper uses the highest niceness alone. Where replicas have cgroups, these do the same for all of a replica at once (cgroup.Group.SetQuiet).
//
// In a measurement two workers kept two processors 70 % busy. A third one that imported
// scikit-learn raised their P99 by half and more, unless its group was lowered; then the import took half as long
// again. Beside two workers that never pause the import took 55 s instead of 2 s, and 14 s at niceness 10. SCHED_IDLE
// and idle groups get less still. This is why package containers limits how long a replica is quiet.
//
// Lowering needs no permission; raising a thread again does. Threads that cannot be raised are not lowered. (Any
// process may raise a group to zero, but without CAP_SYS_ADMIN the kernel accepts only one such change in a tenth of a
// second on the whole host.)

const (
	// lowest is the niceness of the lowest priority.
	lowest = 19
	// A raise is done when raiseSettled passes in a row have found no low thread: one that is being created while its
	// creator is raised may be missed once. The pauses between passes grow from raiseFirst to raiseMax; all of
	// raisePasses take about three seconds.
	raiseSettled = 2
	raisePasses  = 32
	raiseFirst   = time.Millisecond
	raiseMax     = 128 * time.Millisecond
)

// niceness returns the niceness of a thread of this process; 0 means the calling one.
func niceness(tid int) (int, error) {
	kernel, err := unix.Getpriority(unix.PRIO_PROCESS, tid) // the kernel returns 20 - niceness, so that no result is negative
	return 20 - kernel, err
}

// probePriority records this process's own niceness, tests whether a lowered thread can be raised, and if so creates
// the thread that starts quiet workers.
func (r *reaper) probePriority() {
	var err error
	if r.nice, err = niceness(0); err == nil {
		err = tryRaise(r.nice)
	}
	if err == nil && r.nice < lowest {
		r.idle = !sessionsGrouped() && tryIdle(r.nice) == nil
		r.quietly, r.quietTID, err = quietThread(r.idle)
	}
	r.cannotRaise = err
}

// sessionsGrouped is a variable for the tests of both kinds of machines.
var sessionsGrouped = func() bool { return cgroup.SessionsGrouped("/") }

// setPolicy sets the policy and the niceness of a thread; 0 means the calling one.
func setPolicy(tid, policy, nice int) error {
	return unix.SchedSetAttr(tid, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: uint32(policy), Nice: int32(nice)}, 0)
}

// isIdle reports whether a thread has the policy SCHED_IDLE.
func isIdle(tid int) bool {
	attr, err := unix.SchedGetAttr(tid, 0)
	return err == nil && attr.Policy == unix.SCHED_IDLE
}

// lowerThread gives a thread the lowest priority.
func (r *reaper) lowerThread(tid int) {
	_ = unix.Setpriority(unix.PRIO_PROCESS, tid, lowest)
	if r.idle {
		_ = setPolicy(tid, unix.SCHED_IDLE, lowest)
	}
}

// quietThread creates a thread of the lowest priority that runs the functions it receives. A worker inherits from the
// thread that forked it; if it were lowered afterwards, it might have created a thread meanwhile. Like the other thread
// that forks (see runReaper), it lives as long as the process.
func quietThread(idle bool) (run chan<- func(), tid int, err error) {
	work, result := make(chan func()), make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		tid = unix.Gettid()
		err := unix.Setpriority(unix.PRIO_PROCESS, unix.Gettid(), lowest)
		if err == nil && idle {
			err = setPolicy(0, unix.SCHED_IDLE, lowest)
		}
		if err == nil {
			err = unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) // see becomeReaper
		}
		result <- err
		for err == nil {
			(<-work)()
		}
	}()
	err = <-result
	return work, tid, err
}

// fork starts a worker in its cgroup, on the quiet thread if it is to be quiet and can be.
func (r *reaper) fork(path string, argv []string, attr *syscall.ProcAttr, q request) (pid int, err error) {
	start := func() {
		pid, err = q.Groups.Fork(func(dir int) (int, error) {
			attr.Sys.UseCgroupFD, attr.Sys.CgroupFD = dir >= 0, dir
			return syscall.ForkExec(path, argv, attr)
		})
		if q.Quiet && err == nil {
			q.Groups.Yield() // a launcher works for a while before the gateway can say so
		}
	}
	if !q.Quiet || r.quietly == nil {
		start()
	} else {
		done := make(chan struct{})
		r.quietly <- func() {
			start()
			close(done)
		}
		r.hurry(done)
	}
	if errors.Is(err, cgroup.ErrStuck) { // a reaper that starts workers in the wrong cgroups is worse than none
		fmt.Fprintln(os.Stderr, "reaper:", err)
		os.Exit(1)
	}
	return pid, err
}

// forkSoon is how long a fork on the quiet thread may take before it gets full priority.
const forkSoon = 100 * time.Millisecond

// hurry waits for the fork under way on the quiet thread. Everything else that the reaper does waits for it, too, and beside threads
// that never pause this thread and the process that is about to be hardly get a processor. So both are raised for the rest of
// the fork. The caller holds r.mu.
func (r *reaper) hurry(done <-chan struct{}) {
	late := time.NewTicker(forkSoon)
	defer late.Stop()
	for raised := false; ; raised = true {
		select {
		case <-done:
			if raised {
				r.lowerThread(r.quietTID)
			}
			return
		case <-late.C:
		}
		forked, _ := childrenOfThread(filepath.Join("/proc/self/task", strconv.Itoa(r.quietTID)))
		for _, tid := range append(forked, r.quietTID) {
			if r.byPID[tid] != nil { // an earlier launch
				continue
			}
			if r.idle {
				_ = setPolicy(tid, unix.SCHED_NORMAL, r.nice)
			}
			_ = unix.Setpriority(unix.PRIO_PROCESS, tid, r.nice)
		}
	}
}

// tryRaise lowers a thread of its own and raises it to nice again. A worker has this process's permissions and limits
// unless it gives some up itself. It is a variable for the test of a raise that fails.
var tryRaise = func(nice int) error {
	result := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine, whatever its niceness is then
		err := unix.Setpriority(unix.PRIO_PROCESS, unix.Gettid(), lowest)
		if err == nil {
			err = unix.Setpriority(unix.PRIO_PROCESS, unix.Gettid(), nice)
		}
		result <- err
	}()
	return <-result
}

// tryIdle gives a thread of its own the policy SCHED_IDLE and the usual one again.
func tryIdle(nice int) error {
	result := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked, as in tryRaise
		err := setPolicy(0, unix.SCHED_IDLE, lowest)
		if err == nil {
			err = setPolicy(0, unix.SCHED_NORMAL, nice)
		}
		result <- err
	}()
	return <-result
}

// lower records that a worker is low, and lowers its scheduling group. The caller holds r.mu.
func (r *reaper) lower(w *worker) {
	w.low = r.quietly != nil
	w.autogroup = lowerAutogroup(w.lead)
}

// lowerAgain lowers a worker that only has to end, until it is raised or killed. The first thread of each of its processes is lowered, which is the one that takes a
// program apart.
func (r *reaper) lowerAgain(id uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	w := r.byID[id]
	if w == nil || w.lead == 0 {
		return
	}
	_ = unix.Setpriority(unix.PRIO_PGRP, w.lead, lowest)
	w.closeAutogroup()
	w.autogroup = lowerAutogroup(w.lead)
	w.low = true
}

// enliven gives a worker that is to be killed the time that its end takes, as far as that is permitted. The caller holds r.mu.
func (r *reaper) enliven(w *worker) {
	w.groups.Wake()
	lead := cmp.Or(w.lead, w.pid)
	if w.low || w.quiet {
		_ = unix.Setpriority(unix.PRIO_PGRP, lead, r.nice)
	}
	if w.autogroup >= 0 {
		_, _ = unix.Write(w.autogroup, []byte("0"))
		w.closeAutogroup()
	}
}

// lowerAutogroup lowers the scheduling group of a session and returns a descriptor to raise it by, or -1 if there is
// none to lower. The descriptor keeps referring to this process after its pid is reused.
func lowerAutogroup(pid int) int {
	fd, err := unix.Open(autogroupPath(strconv.Itoa(pid)), unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil { // the kernel has no autogroups
		return -1
	}
	group := make([]byte, 64)
	n, err := unix.Read(fd, group)
	// With autogroups switched off, a session is in the same group as this process, which must not be changed.
	own, err2 := os.ReadFile(autogroupPath("self"))
	if err == nil && err2 == nil && n > 0 && !bytes.Equal(groupName(group[:n]), groupName(own)) {
		if _, err := unix.Write(fd, []byte(strconv.Itoa(lowest))); err == nil {
			return fd
		}
	}
	_ = unix.Close(fd)
	return -1
}

func autogroupPath(pid string) string { return filepath.Join("/proc", pid, "autogroup") }

// groupName returns the first word of "/autogroup-123 nice 0".
func groupName(line []byte) []byte {
	name, _, _ := bytes.Cut(line, []byte(" "))
	return name
}

func (w *worker) closeAutogroup() {
	if w.autogroup >= 0 {
		_ = unix.Close(w.autogroup)
		w.autogroup = -1
	}
}

// raise gives a worker this process's own priority, and answers when that is done. It does not wait.
func (r *reaper) raise(id uint64) {
	go func() {
		step, err, gone := r.raiseAll(id)
		if gone {
			return // the message of its exit is the answer
		}
		p := reply{}
		if err != nil {
			p = failure(id, step, err)
		}
		p.Op, p.ID = opRaised, id
		r.mu.Lock()
		defer r.mu.Unlock()
		r.answer(p)
	}()
}

// raiseAll raises a worker's threads and its scheduling group until all are seen to be raised.
func (r *reaper) raiseAll(id uint64) (step string, err error, gone bool) {
	pause := time.NewTimer(0)
	defer pause.Stop()
	settled, wait := 0, raiseFirst
	for range raisePasses {
		<-pause.C
		var marker string
		var pid int
		if pid, marker, step, err, gone = r.raiseOnce(id); gone {
			return "", nil, true
		}
		switch {
		case err == nil && r.lowThreads(pid, marker) == 0:
			if settled++; settled == raiseSettled {
				return "", nil, false
			}
		case err != nil && err != unix.EAGAIN: // retrying does not help
			return step, err, false
		default:
			settled = 0
		}
		pause.Reset(wait)
		wait = min(2*wait, raiseMax)
	}
	if err == nil {
		step, err = "raise the CPU priority of all threads", unix.EAGAIN // it creates threads faster than they are found
	}
	return step, err, false
}

// raiseOnce raises a worker's process group and its scheduling group.
func (r *reaper) raiseOnce(id uint64) (pid int, marker, step string, err error, gone bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	w := r.byID[id]
	if w == nil {
		return 0, "", "", nil, true
	}
	if w.lead == 0 { // it has not begun: its launcher is raised, and what that starts inherits the priority
		if err := unix.Setpriority(unix.PRIO_PGRP, w.pid, r.nice); err != nil {
			return 0, "", "", nil, true // it has ended, or may be raised when it has begun
		}
		if w.quiet {
			w.low, w.quiet = r.quietly != nil, false
		}
		return w.pid, w.marker, "", nil, false
	}
	if w.low {
		err := unix.Setpriority(unix.PRIO_PGRP, w.lead, r.nice)
		if err == unix.ESRCH && (w.inside || w.lead != w.pid) { // its launcher has reaped it
			return 0, "", "", nil, true
		}
		if err != nil {
			return w.lead, w.marker, "raise the CPU priority", err, false
		}
	}
	if w.autogroup >= 0 {
		// Zero is the value of a session that was never lowered, whatever the niceness of its threads.
		if _, err := unix.Write(w.autogroup, []byte("0")); err != nil {
			return w.lead, w.marker, "raise the CPU priority of the session (/proc/PID/autogroup)", err, false
		}
		w.closeAutogroup()
	}
	return w.lead, w.marker, "", nil, false
}

// lowThreads counts the low threads of a worker, and raises those of its processes that have left its group.
func (r *reaper) lowThreads(pid int, marker string) (low int) {
	if r.quietly == nil { // none was lowered
		return 0
	}
	for _, st := range descendants(os.Getpid(), processes()) {
		own := st.pgrp == pid
		if st.zombie || !own && !marked(st.pid, marker+"\x00") {
			continue
		}
		for _, t := range threads(st.pid) {
			idle := r.idle && isIdle(t.pid)
			if t.nice != lowest && !idle {
				continue // a niceness that the worker has set itself is kept
			}
			low++
			switch {
			case idle && t.nice != lowest:
				_ = setPolicy(t.pid, unix.SCHED_NORMAL, t.nice)
			case idle:
				_ = setPolicy(t.pid, unix.SCHED_NORMAL, r.nice)
			case !own:
				_ = unix.Setpriority(unix.PRIO_PROCESS, t.pid, r.nice)
			}
		}
	}
	return low
}

// threads lists the threads of a process, as far as they are visible.
func threads(pid int) []stat {
	folder := filepath.Join("/proc", strconv.Itoa(pid), "task")
	names, err := os.ReadDir(folder)
	if err != nil {
		return nil
	}
	var all []stat
	for _, name := range names {
		b, err := os.ReadFile(filepath.Join(folder, name.Name(), "stat"))
		if err != nil {
			continue
		}
		if st, ok := parseStat(b); ok && !st.zombie {
			all = append(all, st)
		}
	}
	return all
}
