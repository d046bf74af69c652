package process

import (
	"bytes"
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

// A replica that loads beside others that serve is to take the time that they leave over. Linux has two priorities for that, and which
// of them counts depends on the host. Threads have a niceness, which is weighed against that of other threads in the same
// scheduling group. With autogroups (sched(7): the default of many kernels), for processes outside of every CPU cgroup, a session
// is such a group: a worker is a session of its own, so that its niceness means nothing to another worker, and what counts is
// the niceness of its group in /proc/PID/autogroup. Both are set, and both are taken back.
//
// The niceness is the lowest that there is, and the policy stays SCHED_OTHER: that still gets a hundredth or two of a busy processor.
// SCHED_IDLE inside a lowered group got less, and across groups it has no more effect than niceness has; SCHED_BATCH changed
// nothing. Two workers that keep two processors 70 % busy were hindered by a third that imports scikit-learn (their P99 rose by half and
// more) unless its group was lowered; then the import took half as long again. Beside two that never pause it took 55 s instead of 2 s, 14 s at
// niceness 10: that is what the limit of package containers on being quiet is for.
//
// Lowering needs no right; raising a thread again needs one. What cannot be raised is not lowered. (Anyone may raise a group to
// zero, though without CAP_SYS_ADMIN the kernel takes one such change in a tenth of a second, from all of the host.)

const (
	// lowest is the highest niceness.
	lowest = 19
	// A replica is raised until raiseSettled looks in a row have found nothing left: a thread that is being made while its maker is
	// raised may be missed once. The pauses between looks grow from raiseFirst to raiseMax; all of raisePasses take some three seconds.
	raiseSettled = 2
	raisePasses  = 32
	raiseFirst   = time.Millisecond
	raiseMax     = 128 * time.Millisecond
)

// niceness is that of a thread of this process; 0 stands for the calling one.
func niceness(tid int) (int, error) {
	kernel, err := unix.Getpriority(unix.PRIO_PROCESS, tid) // 20 less the niceness, so that no result is negative
	return 20 - kernel, err
}

// seePriority notes this process's own niceness, tries whether a higher one can be taken back, and if so makes the thread that starts
// quiet workers.
func (r *reaper) seePriority() {
	var err error
	if r.nice, err = niceness(0); err == nil {
		err = tryRaise(r.nice)
	}
	if err == nil && r.nice < lowest {
		r.quietly, err = quietThread()
	}
	r.cannotRaise = err
}

// quietThread makes a thread of the lowest priority, which does what it is given. What a worker inherits it has from the thread that
// forked: lowered afterwards, it might have made a thread meanwhile. As the other thread that forks (see runReaper), it lives as
// long as the process.
func quietThread() (chan<- func(), error) {
	work, result := make(chan func()), make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		err := unix.Setpriority(unix.PRIO_PROCESS, unix.Gettid(), lowest)
		if err == nil {
			err = unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) // see becomeReaper
		}
		result <- err
		for err == nil {
			(<-work)()
		}
	}()
	return work, <-result
}

// fork starts a worker in its cgroup, on the quiet thread if it is to be quiet and can be.
func (r *reaper) fork(path string, argv []string, attr *syscall.ProcAttr, q request) (pid int, err error) {
	start := func() {
		pid, err = q.Groups.Fork(func(dir int) (int, error) {
			attr.Sys.UseCgroupFD, attr.Sys.CgroupFD = dir >= 0, dir
			return syscall.ForkExec(path, argv, attr)
		})
	}
	if !q.Quiet || r.quietly == nil {
		start()
	} else {
		done := make(chan struct{})
		r.quietly <- func() {
			start()
			close(done)
		}
		<-done
	}
	if errors.Is(err, cgroup.ErrStuck) { // a reaper that starts workers in each other's cgroups is worse than none
		fmt.Fprintln(os.Stderr, "reaper:", err)
		os.Exit(1)
	}
	return pid, err
}

// tryRaise lowers a thread of its own and raises it to nice again. A worker has the rights of this process and its limits, and
// can only lose of them what it gives up itself. A variable for the test of a raise that fails.
var tryRaise = func(nice int) error {
	result := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // for good: the thread ends with the goroutine, whatever its niceness is then
		err := unix.Setpriority(unix.PRIO_PROCESS, unix.Gettid(), lowest)
		if err == nil {
			err = unix.Setpriority(unix.PRIO_PROCESS, unix.Gettid(), nice)
		}
		result <- err
	}()
	return <-result
}

// hush notes that a worker is low, and lowers its scheduling group. The caller holds r.mu.
func (r *reaper) hush(w *worker) {
	w.low = r.quietly != nil
	w.autogroup = hushAutogroup(w.pid)
}

// hushAutogroup lowers the scheduling group of a session and returns a descriptor to raise it by, or -1 when there is none to
// lower. The descriptor stays that of this process when the number of the process has gone to another.
func hushAutogroup(pid int) int {
	fd, err := unix.Open(autogroupPath(strconv.Itoa(pid)), unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil { // a kernel without
		return -1
	}
	group := make([]byte, 64)
	n, err := unix.Read(fd, group)
	// Where autogroups have been switched off, a session is in the group that this process is in too: not to be touched.
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

// groupName is the first word of "/autogroup-123 nice 0".
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

// raise gives a worker this process's own priority, and answers when it has it. It does not wait.
func (r *reaper) raise(id uint64) {
	go func() {
		step, err, gone := r.raiseAll(id)
		if gone {
			return // the news of its exit is the answer
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

// raiseAll raises a worker's threads and its scheduling group until all are seen to be up.
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
		case err != nil && err != unix.EAGAIN: // no use in trying again
			return step, err, false
		default:
			settled = 0
		}
		pause.Reset(wait)
		wait = min(2*wait, raiseMax)
	}
	if err == nil {
		step, err = "raise the CPU priority of all threads", unix.EAGAIN // it makes them faster than they are found
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
	if w.low {
		if err := unix.Setpriority(unix.PRIO_PGRP, w.pid, r.nice); err != nil {
			return w.pid, w.marker, "raise the CPU priority", err, false
		}
	}
	if w.autogroup >= 0 {
		// Zero is what a session has that nobody has lowered, whatever the niceness of its threads.
		if _, err := unix.Write(w.autogroup, []byte("0")); err != nil {
			return w.pid, w.marker, "raise the CPU priority of the session (/proc/PID/autogroup)", err, false
		}
		w.closeAutogroup()
	}
	return w.pid, w.marker, "", nil, false
}

// lowThreads counts the threads of a worker that are still low, and raises those of its processes that have left its group.
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
			if t.nice != lowest {
				continue // what a worker has set for itself stays as it is
			}
			low++
			if !own {
				_ = unix.Setpriority(unix.PRIO_PROCESS, t.pid, r.nice)
			}
		}
	}
	return low
}

// threads lists the threads of a process, as far as they can be seen.
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
