package process

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/xebec-serving/xebec/containers/cgroup"
)

const (
	// reaperName is the reaper's argv[0], and its name in ps. reaperEnv must be set too, so that no process becomes a
	// reaper by accident.
	reaperName = "xebec-reaper"
	reaperEnv  = "XEBEC_REAPER"
	// reaperFD is the reaper's end of the socket.
	reaperFD = 3
	// graceMillis is the time between SIGTERM and SIGKILL when the gateway is gone. A worker notices by the hang-up of
	// its own socket; its answers are no longer needed.
	graceMillis = 1000
	// sweepMillis is how often the reaper looks again for processes to kill: children of killed processes become its
	// own.
	sweepMillis = 10
	// strayPasses bounds the passes over a dead replica's strays that fork as fast as they are killed. What is left
	// ends with the gateway.
	strayPasses = 16
)

// armed says that the program can become a reaper: MaybeReaper has been called.
var armed atomic.Bool

// MaybeReaper turns the process into a reaper, or into the launcher of an isolated replica, and never returns, if a
// [Runtime] or its reaper started it as one. Otherwise it does
// nothing. A program that uses a Runtime calls it before anything else: first in main, and first in TestMain. [New]
// returns an error in a program that has not.
func MaybeReaper() {
	armed.Store(true)
	if len(os.Args) != 1 || os.Getenv(reaperEnv) == "" {
		return
	}
	run := runReaper
	switch os.Args[0] {
	case reaperName:
	case launcherName:
		run = runLauncher
	default:
		return
	}
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// reaper is the process that starts the workers, waits for them, and outlives the gateway just long enough to end them.
type reaper struct {
	null int // /dev/null, the workers' stdin
	// nice is this process's own niceness, which is the gateway's. cannotRaise says why a lowered thread could not be
	// raised.
	nice        int
	cannotRaise error
	// noNamespaces says why replicas get no namespaces, nil if they do. It is found out by the first that should.
	noNamespaces error
	// oom is this process's own adjustment of the OOM score, which is the gateway's.
	oom      int
	quietly  chan<- func() // the thread that starts quiet workers; nil: none is quiet
	quietTID int
	// idle: quiet workers have the policy SCHED_IDLE, too.
	idle bool

	// mu is held over fork and over reap, so that no process in the tables can have been reaped and its pid reused.
	mu       sync.Mutex
	byID     map[uint64]*worker
	byPID    map[int]*worker
	launched uint64
	ending   bool
	// more is signalled when launched or ending changes.
	more *sync.Cond
	// empty is closed when the gateway is gone and no child is left.
	empty chan struct{}
}

type worker struct {
	id     uint64
	pid    int // of the first process, its group and its session
	marker string
	// low: it was started at the lowest priority. autogroup is a descriptor of /proc/PID/autogroup while that is
	// lowered, else -1.
	low       bool
	autogroup int
	groups    cgroup.Places

	// lead leads its process group and session. It is pid, unless pid is a launcher; 0 until that has reported. first
	// identifies it where it is another one's child: its launcher reaps it, and then any process of the machine may get
	// its pid. It is zero if it had ended when it was looked at.
	lead  int
	first stat
	// quiet: it is to be lowered when its launcher has reported.
	quiet bool
	// forked are the processes that a zygote in a pid namespace has forked, by their pids in there; nil for others. They
	// are inside: children of its launcher, which reports their ends.
	forked map[int]*worker
	inside bool
	// followed is closed when its launcher's messages have been read; nil without one. status is what the launcher has
	// reported of the replica's end, and is read afterwards.
	followed chan struct{}
	status   *uint32
}

// runReaper is the reaper's main. It returns when the gateway is gone and nothing is left below this process. The
// thread it runs on starts all workers except quiet ones (see quietThread) and lives as long as the process, so that
// PDEATHSIG means "when the reaper dies": the kernel sends it when the *thread* that forked ends.
func runReaper() error {
	runtime.LockOSThread()
	r := &reaper{byID: map[uint64]*worker{}, byPID: map[int]*worker{}, empty: make(chan struct{})}
	r.more = sync.NewCond(&r.mu)
	if err := r.becomeReaper(); err != nil {
		return fmt.Errorf("reaper: %w", err)
	}
	go r.reapAll()
	if err := r.send(r.hello()); err != nil {
		return fmt.Errorf("reaper: hello: %w", err)
	}
	err := r.serve()
	r.finish()
	if errors.Is(err, io.EOF) || errors.Is(err, unix.ECONNRESET) {
		return nil
	}
	return fmt.Errorf("reaper: %w", err)
}

// becomeReaper sets what the workers inherit and what they depend on.
func (r *reaper) becomeReaper() error {
	// Only the end of the gateway may end the reaper. Signals of a terminal or a service manager to all processes must
	// not end it before the workers. (The workers would inherit ignored signals; they do not inherit handlers.)
	signal.Notify(make(chan os.Signal, 1), unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGQUIT, unix.SIGUSR1, unix.SIGUSR2)
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("become a subreaper: %w", err)
	}
	// For this thread and all processes that it forks: no set-user-id program gives a worker more permissions than the
	// gateway has.
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("set no_new_privs: %w", err)
	}
	// It holds the environments of all launches.
	if err := Conceal(); err != nil {
		return err
	}
	var err error
	if r.oom, err = oomAdj("self"); err != nil {
		return fmt.Errorf("read its own OOM score: %w", err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}); err != nil { // a worker's core dump would hold clients' data
		return fmt.Errorf("disable core dumps: %w", err)
	}
	setName(reaperName)
	if r.null, err = unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0); err != nil {
		return fmt.Errorf("open /dev/null: %w", err)
	}
	r.probePriority()
	return closeOnExec()
}

// setName sets the name of the calling thread, for ps.
func setName(name string) {
	if b, err := unix.BytePtrFromString(name); err == nil {
		_ = unix.Prctl(unix.PR_SET_NAME, uintptr(unsafe.Pointer(b)), 0, 0, 0)
	}
}

// hello says that the reaper runs, and if no replica can be quiet, why.
func (r *reaper) hello() reply {
	if r.cannotRaise != nil {
		p := failure(0, "undo a lowered CPU priority", r.cannotRaise)
		p.Op, p.PID = opHello, os.Getpid()
		return p
	}
	return reply{Op: opHello, PID: os.Getpid()}
}

// closeOnExec marks every descriptor above stderr, including those that the gateway inherited.
func closeOnExec() error {
	dir, err := os.Open("/proc/self/fd")
	if err != nil {
		return fmt.Errorf("list open descriptors: %w", err)
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return fmt.Errorf("list open descriptors: %w", err)
	}
	for _, name := range names {
		var fd int
		if _, err := fmt.Sscan(name, &fd); err == nil && fd > 2 {
			unix.CloseOnExec(fd)
		}
	}
	return nil
}

// serve handles the gateway's requests until it hangs up.
func (r *reaper) serve() error {
	for {
		q, fds, err := r.receive()
		if err != nil {
			return err
		}
		if err = r.check(q, len(fds)); err == nil {
			switch q.Op {
			case opLaunch:
				r.launch(q, fds)
			case opAdopt:
				r.adopt(q, fds[0])
			case opSignal:
				r.signal(q)
			case opRaise:
				r.raise(q.ID)
			case opLower:
				r.lowerAgain(q.ID)
			}
		}
		closeAll(fds)
		if err != nil {
			return err
		}
	}
}

// check returns what is wrong with a request and the descriptors that came with it.
func (r *reaper) check(q request, fds int) error {
	switch q.Op {
	case opLaunch:
		if fds != 2 && fds != 3 {
			return fmt.Errorf("launch %d came with %d descriptors: expected 2 or 3", q.ID, fds)
		}
	case opAdopt:
		if fds != 1 {
			return fmt.Errorf("adoption %d came with %d descriptors: expected 1", q.ID, fds)
		}
	default:
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.byID[q.ID] != nil {
		return fmt.Errorf("there is a launch %d already", q.ID)
	}
	return nil
}

func (r *reaper) launch(q request, fds []int) {
	if q.Sandbox != nil {
		r.isolate(q, fds)
		return
	}
	argv, env := toStrings(q.Argv), toStrings(q.Env)
	files := []uintptr{uintptr(r.null)}
	for _, fd := range fds {
		files = append(files, uintptr(fd))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	pid, err := r.fork(string(q.Path), argv, &syscall.ProcAttr{
		Dir: string(q.Dir), Env: env, Files: files,
		Sys: &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL},
	}, q)
	if err != nil {
		r.answer(failure(q.ID, "exec", err))
		return
	}
	// From here on there is a child to wait for, whatever is reported about it.
	r.launched++
	r.more.Signal()
	if step, err := r.confine(pid, q); err != nil {
		_ = unix.Kill(-pid, unix.SIGKILL)
		r.answer(failure(q.ID, step, err))
		return
	}
	w := &worker{id: q.ID, pid: pid, lead: pid, marker: q.Marker, autogroup: -1, groups: q.Groups}
	if q.Quiet {
		r.lower(w)
	}
	r.byID[w.id], r.byPID[w.pid] = w, w
	r.answer(reply{Op: opStarted, ID: q.ID, PID: pid, Quiet: w.low || w.autogroup >= 0})
}

// confine raises the OOM score of a process that has just been started, puts it into its launch's cgroup, if it has one
// and is not there yet, and sets the per-process limits. They apply from its next system call on, before it has had time to allocate anything.
func (r *reaper) confine(pid int, q request) (step string, err error) {
	offerToOOM(pid, r.oom)
	if err := q.Groups.Add(pid); err != nil {
		return "cgroup", err
	}
	if err := setLimits(pid, q); err != nil {
		return "limits of a process", err
	}
	return "", nil
}

func (r *reaper) signal(q request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	w := r.byID[q.ID]
	switch {
	case w == nil: // gone; the reply is on its way
	case q.Kill:
		r.enliven(w)
		w.kill()
	case w.lead == 0: // it has not begun: there is nothing to finish
		w.kill()
	case w.reapedByLauncher():
		signalExactly(w.first, unix.SIGTERM)
	default:
		_ = unix.Kill(w.lead, unix.SIGTERM)
	}
}

// reapedByLauncher reports whether the first process is not this process's child, so that its pid may be reused at any
// time.
func (w *worker) reapedByLauncher() bool { return w.inside || w.lead != w.pid }

// kill kills a worker, its process group and everything in its cgroup, if it has one. The caller holds r.mu. No process
// that has got a pid of the worker meanwhile is killed.
func (w *worker) kill() {
	switch {
	case w.inside: // a launcher kills the rest of its group before it reaps it
		signalExactly(w.first, unix.SIGKILL)
	case w.forked != nil && w.lead != 0: // the same; what a zygote has forked outlives it
		signalExactly(w.first, unix.SIGKILL)
		return
	default: // a launcher is the first process of a pid namespace: all others in there end with it
		_ = unix.Kill(-w.pid, unix.SIGKILL)
	}
	w.groups.Kill()
}

// reapAll is the only place that waits for children: workers, and orphans of processes that ended before their
// children.
func (r *reaper) reapAll() {
	for {
		r.mu.Lock()
		seen := r.launched
		r.mu.Unlock()
		pid, err := peekDead()
		if err == nil {
			r.reap(pid)
			continue
		}
		// There is no child, and so no descendant; only a launch can change that.
		r.mu.Lock()
		for r.launched == seen && !r.ending {
			r.more.Wait()
		}
		over := r.ending && r.launched == seen
		r.mu.Unlock()
		if over {
			close(r.empty)
			return
		}
	}
}

// siginfoChild is siginfo_t as waitid fills it (sigaction(2)). The empty array gives pid the alignment of the union it
// is in.
type siginfoChild struct {
	signo, errno, code int32
	_                  [0]uintptr
	pid, uid, status   int32
	_                  [128]byte // at least what the kernel writes
}

// cldExited is the code of a child that has exited; with others status is a signal.
const cldExited = 1

// peekDead waits for a child that has ended and leaves it unreaped, so that its pid, group and session stay taken. The
// error is ECHILD.
func peekDead() (int, error) {
	info, err := peek(unix.P_ALL, 0)
	return int(info.pid), err
}

func peek(which, pid int) (siginfoChild, error) {
	for {
		var info siginfoChild
		err := unix.Waitid(which, pid, (*unix.Siginfo)(unsafe.Pointer(&info)), unix.WEXITED|unix.WNOWAIT, nil)
		if err != unix.EINTR {
			return info, err
		}
	}
}

// reap reaps a child. For a worker it first kills the rest of its group and the strays that left it.
func (r *reaper) reap(pid int) {
	r.mu.Lock()
	w := r.byPID[pid]
	r.mu.Unlock()
	if w != nil && w.followed != nil {
		<-w.followed // its launcher has ended, and its socket with it
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if w != nil {
		w.kill()
		killStrays(w.marker)
	}
	var status unix.WaitStatus
	got, err := unix.Wait4(pid, &status, unix.WNOHANG, nil)
	if err != nil || got != pid || w == nil {
		return // the child of a failed exec, which ForkExec has waited for itself, or an orphan
	}
	delete(r.byID, w.id)
	delete(r.byPID, pid)
	w.closeAutogroup()
	for inside := range w.forked { // they have ended with their launcher
		r.ended(w, inside, uint32(unix.SIGKILL))
	}
	if w.id == 0 { // it has been answered
		return
	}
	if w.status != nil {
		status = unix.WaitStatus(*w.status)
	}
	r.answer(reply{Op: opExited, ID: w.id, PID: pid, Status: uint32(status)})
}

// ended answers the end of a process that a zygote's launcher has reaped. The caller holds r.mu.
func (r *reaper) ended(zygote *worker, inside int, status uint32) {
	w := zygote.forked[inside]
	if w == nil {
		return // an orphan, or a fork that was not adopted
	}
	delete(zygote.forked, inside)
	delete(r.byID, w.id)
	w.groups.Kill()
	killStrays(w.marker)
	w.closeAutogroup()
	r.answer(reply{Op: opExited, ID: w.id, PID: w.pid, Status: status})
}

// killStrays kills what a dead worker has left behind outside its group, by the marker in the environment. It repeats
// until it finds no new process, because they may have forked meanwhile.
func killStrays(marker string) {
	killed := map[stat]bool{} // by pid and start: dying processes stay visible for a while
	for range strayPasses {
		found := false
		for _, st := range descendants(os.Getpid(), processes()) {
			st.ppid, st.pgrp, st.nice, st.runnable, st.ticks = 0, 0, 0, false, 0 // fields that can change meanwhile
			if !st.zombie && !killed[st] && marked(st.pid, marker+"\x00") {
				killed[st], found = true, true
				signalExactly(st, unix.SIGKILL)
			}
		}
		if !found {
			return
		}
	}
}

// finish ends everything below this process and returns when nothing is left.
func (r *reaper) finish() {
	r.mu.Lock()
	r.ending = true
	r.more.Signal()
	var groups cgroup.Places
	for _, w := range r.byID {
		groups = append(groups, w.groups...)
		r.enliven(w)
	}
	r.mu.Unlock()
	defer groups.Remove() // otherwise it waits for the next gateway
	signalBelow(unix.SIGTERM)

	grace := time.NewTimer(graceMillis * time.Millisecond)
	defer grace.Stop()
	select {
	case <-r.empty:
		return
	case <-grace.C:
	}
	again := time.NewTicker(sweepMillis * time.Millisecond)
	defer again.Stop()
	for {
		r.mu.Lock()
		for _, w := range r.byPID {
			w.kill()
		}
		r.mu.Unlock()
		signalBelow(unix.SIGKILL)
		select {
		case <-r.empty:
			return
		case <-again.C:
		}
	}
}

func signalBelow(sig unix.Signal) {
	for _, st := range descendants(os.Getpid(), processes()) {
		if !st.zombie {
			signalExactly(st, sig)
		}
	}
}

func failure(id uint64, step string, err error) reply {
	p := reply{Op: opFailed, ID: id, Step: step}
	var errno syscall.Errno
	if errors.As(err, &errno) {
		p.Errno = int(errno)
	}
	return p
}

func toStrings(bs [][]byte) []string {
	s := make([]string, len(bs))
	for i, b := range bs {
		s[i] = string(b)
	}
	return s
}
