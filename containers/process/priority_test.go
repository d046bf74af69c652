package process

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/xebec-serving/xebec/containers"
)

// quietly returns a quiet launch of one of the modes.
func quietly(replica uint64, mode string, out *output) containers.Launch {
	l := launch(replica, mode, out)
	l.Quiet = true
	return l
}

// raise raises an instance.
func raise(t *testing.T, in containers.Instance) error {
	t.Helper()
	raiser, ok := in.(containers.Raiser)
	if !ok {
		t.Fatal("an instance of this package does not implement containers.Raiser")
	}
	return raiser.Raise()
}

// own returns this process's niceness, which is that of everything that is not quiet.
func own(t *testing.T) int {
	t.Helper()
	n, err := niceness(0)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// expected returns the niceness of quiet processes: lowest, or this process's own if that cannot be undone.
func expected(t *testing.T, r *Runtime) int {
	t.Helper()
	if err := r.QuietUnsupported(); err != nil {
		t.Logf("this process cannot start quiet launches, so the test expects its own niceness: %v", err)
		return own(t)
	}
	return lowest
}

func checkNice(t *testing.T, what string, pid, want int) {
	t.Helper()
	all := threads(pid)
	if len(all) == 0 {
		t.Errorf("%s: process %d has no threads", what, pid)
	}
	for _, th := range all {
		if th.nice != want {
			t.Errorf("%s: thread %d of process %d has niceness %d, expected %d", what, th.pid, pid, th.nice, want)
		}
	}
}

// groupNice returns the niceness of the process's scheduling group. It returns false on hosts without groups, and for
// processes in this process's own group.
func groupNice(pid int) (nice int, ok bool) {
	line, err := os.ReadFile(autogroupPath(strconv.Itoa(pid)))
	ours, err2 := os.ReadFile(autogroupPath("self"))
	if err != nil || err2 != nil || len(line) == 0 || bytes.Equal(groupName(line), groupName(ours)) {
		return 0, false
	}
	_, text, _ := strings.Cut(string(line), "nice ")
	nice, err = strconv.Atoi(strings.TrimSpace(text))
	return nice, err == nil
}

func checkGroup(t *testing.T, what string, pid, want int) {
	t.Helper()
	if nice, ok := groupNice(pid); ok && nice != want {
		t.Errorf("%s: the session of process %d has niceness %d, expected %d", what, pid, nice, want)
	}
}

// A quiet worker is quiet with its threads, its children and processes that have left its group. Raised, all of them
// have the gateway's priority.
func TestQuietFamily(t *testing.T) {
	r := newRuntime(t)
	low := expected(t, r)
	out := newOutput()
	in := start(t, r, quietly(1, "family", out))
	all := append(family(t, out.until(t, "ready")), watch(t, "worker", in.PID()))
	if len(all) != 4 {
		t.Fatalf("%d processes, expected 4", len(all))
	}
	for _, w := range all {
		checkNice(t, "quiet "+w.name, w.pid, low)
	}
	checkGroup(t, "quiet", in.PID(), lowest)
	if err := raise(t, in); err != nil {
		t.Fatal(err)
	}
	for _, w := range all {
		checkNice(t, "raised "+w.name, w.pid, own(t))
	}
	checkGroup(t, "raised", in.PID(), 0)
	if err := raise(t, in); err != nil {
		t.Errorf("raised again: %v", err)
	}
}

// Where sessions are no scheduling groups, quiet workers have the policy SCHED_IDLE, too, until they are raised. The policy of a worker that is not quiet is not changed.
func TestQuietIdle(t *testing.T) {
	t.Setenv(assumeUngroupedEnv, "1")
	r := newRuntime(t)
	low := expected(t, r)
	policies := func(what string, pid int, idle bool) {
		t.Helper()
		all := threads(pid)
		if len(all) == 0 {
			t.Errorf("%s: process %d has no threads", what, pid)
		}
		for _, th := range all {
			if got := isIdle(th.pid); got != idle && own(t) < lowest {
				t.Errorf("%s: thread %d of process %d has the policy SCHED_IDLE: %v, expected %v", what, th.pid, pid, got, idle)
			}
		}
	}
	out := newOutput()
	in := start(t, r, quietly(1, "family", out))
	all := append(family(t, out.until(t, "ready")), watch(t, "worker", in.PID()))
	for _, w := range all {
		checkNice(t, "quiet "+w.name, w.pid, low)
		policies("quiet "+w.name, w.pid, low == lowest)
	}
	other := newOutput()
	beside := start(t, r, launch(2, "sleep", other))
	other.until(t, "ready")
	policies("not quiet", beside.PID(), false)
	if err := raise(t, in); err != nil {
		t.Fatal(err)
	}
	for _, w := range all {
		checkNice(t, "raised "+w.name, w.pid, own(t))
		policies("raised "+w.name, w.pid, false)
	}

	out = newOutput()
	in = start(t, r, quietly(3, "threads", out))
	out.until(t, "ready")
	if err := raise(t, in); err != nil {
		t.Fatal(err)
	}
	for range 100 {
		checkNice(t, "raised", in.PID(), own(t))
		policies("raised", in.PID(), false)
	}
}

// An instance says how much processor time it has got, and whether it could use more.
func TestProgress(t *testing.T) {
	r := newRuntime(t)
	out := newOutput()
	busy := start(t, r, shell(t, `echo ready; while :; do :; done`, out)).(containers.Progresser)
	out.until(t, "ready")
	until(t, "it gets no processor time", func() bool {
		ran, runnable, ok := busy.Progress()
		return ok && runnable && ran >= 50*time.Millisecond
	})
	out = newOutput()
	in := start(t, r, launch(2, "sleep", out))
	out.until(t, "ready")
	until(t, "it does not sleep", func() bool {
		_, runnable, ok := in.(containers.Progresser).Progress()
		return ok && !runnable
	})
	if err := in.Signal(false); err != nil {
		t.Fatal(err)
	}
	waitExit(t, in)
	if _, _, ok := in.(containers.Progresser).Progress(); ok {
		t.Error("progress of a process that has ended")
	}
}

func TestNotQuiet(t *testing.T) {
	r := newRuntime(t)
	out := newOutput()
	in := start(t, r, launch(1, "sleep", out))
	out.until(t, "ready")
	checkNice(t, "not quiet", in.PID(), own(t))
	checkGroup(t, "not quiet", in.PID(), 0)
	if err := raise(t, in); err != nil {
		t.Error(err)
	}
	low := 0
	for _, th := range threads(reaperOf(t, r)) {
		if th.nice != own(t) {
			low++
		}
	}
	if low > 1 {
		t.Errorf("%d threads of the reaper are low, expected the one that starts quiet workers", low)
	}
	checkNice(t, "this process", os.Getpid(), own(t))
}

// actThreads creates threads from threads, in chains: each inherits from the thread that created it.
func actThreads() {
	for i := range 4 {
		go chain(i)
	}
	fmt.Println("ready")
	select {}
}

func chain(i int) {
	runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
	go chain(i)
	for range 100 {
		unix.Gettid()
	}
}

// Threads that are created while the worker is raised are raised too.
func TestRaiseBesideNewThreads(t *testing.T) {
	r := newRuntime(t)
	out := newOutput()
	in := start(t, r, quietly(1, "threads", out))
	out.until(t, "ready")
	if err := raise(t, in); err != nil {
		t.Fatal(err)
	}
	for range 100 {
		checkNice(t, "raised", in.PID(), own(t))
	}
}

// A worker that ends while it is quiet, or while it is being raised, does not make the raise fail, and its reaper
// continues.
func TestQuietAndGone(t *testing.T) {
	r := newRuntime(t)
	low := expected(t, r)
	for i := range 20 {
		out := newOutput()
		in := start(t, r, quietly(uint64(i), "sleep", out))
		out.until(t, "ready")
		checkNice(t, "quiet", in.PID(), low)
		raised := make(chan error, 1)
		if i%2 == 0 {
			go func() { raised <- in.(containers.Raiser).Raise() }()
		}
		if err := unix.Kill(in.PID(), unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
		if exit := waitExit(t, in); exit.Signal != int(syscall.SIGKILL) {
			t.Errorf("exit %+v", exit)
		}
		if i%2 != 0 {
			raised <- raise(t, in)
		}
		if err := <-raised; err != nil {
			t.Errorf("raise after the exit: %v", err)
		}
	}
	noZombies(t, reaperOf(t, r))
	// The reaper closes the descriptors of ended workers.
	fds, err := os.ReadDir(filepath.Join("/proc", strconv.Itoa(reaperOf(t, r)), "fd"))
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range fds {
		if target, err := os.Readlink(filepath.Join("/proc", strconv.Itoa(reaperOf(t, r)), "fd", fd.Name())); err == nil && strings.HasSuffix(target, "/autogroup") {
			t.Errorf("the reaper still has %s open", target)
		}
	}
}

func TestRaiseWithItsReaperKilled(t *testing.T) {
	r := newRuntime(t)
	out := newOutput()
	in := start(t, r, quietly(1, "sleep", out))
	out.until(t, "ready")
	if err := unix.Kill(reaperOf(t, r), unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	waitExit(t, in)
	if err := raise(t, in); err != nil {
		t.Errorf("raise after the reaper's end: %v", err)
	}
}

// A Set raises a replica that is to answer when it is marked as ready.
func TestSupervisedQuiet(t *testing.T) {
	r := newRuntime(t)
	low := expected(t, r)
	events := make(chan containers.Event, 100)
	var answers atomic.Bool
	set, err := containers.NewSet(containers.Config{
		Runtime: r, Dir: "/", Command: []string{"/bin/sh", "-c", "echo up; sleep 1000 & wait"},
		Quiet: func() bool { return !answers.Load() }, Event: func(ev containers.Event) { events <- ev },
	})
	if err != nil {
		t.Fatal(err)
	}
	defer set.Close(t.Context())
	if err := set.SetCount(1); err != nil {
		t.Fatal(err)
	}
	ev := next(t, events, containers.Started)
	waitLine(t, set, "up")
	checkNice(t, "not ready", ev.PID, low)
	answers.Store(true)
	set.MarkReady(ev.Replica)
	waitRaised(t, set)
	checkNice(t, "ready", ev.PID, own(t))
	checkGroup(t, "ready", ev.PID, 0)
	if err := set.SetCount(0); err != nil {
		t.Fatal(err)
	}
	next(t, events, containers.Exited)
}

// waitRaised waits until the set's only replica is no longer quiet.
func waitRaised(t *testing.T, set *containers.Set) {
	t.Helper()
	for set.Status()[0].Quiet {
		if t.Context().Err() != nil {
			t.Fatal("the replica was not raised")
		}
		runtime.Gosched()
	}
}

// actUnprivileged gives up the permission to raise.
func actUnprivileged() {
	runtime.LockOSThread() // capabilities and priorities belong to a thread, and exec takes those of the calling one
	if err := unix.Setpriority(unix.PRIO_PROCESS, 0, 0); err != nil && !errors.Is(err, unix.EACCES) {
		fatal(err) // a test that itself has the lowest priority would have nothing to lower
	}
	if err := unix.Setrlimit(unix.RLIMIT_NICE, &unix.Rlimit{}); err != nil {
		fatal(err)
	}
	for _, capability := range []uintptr{unix.CAP_SYS_NICE, unix.CAP_SYS_ADMIN} {
		_ = unix.Prctl(unix.PR_CAPBSET_DROP, capability, 0, 0, 0) // without the permission to drop it, the capability is absent already
	}
	env := slices.DeleteFunc(os.Environ(), func(e string) bool { return strings.HasPrefix(e, modeEnv+"=") })
	fatal(syscall.Exec("/proc/self/exe", os.Args, append(env, modeEnv+"=quiet gateway")))
}

// actQuietGateway supervises a quiet replica, marks it as ready, and prints the results.
func actQuietGateway() {
	r, err := New(Config{})
	if err != nil {
		fatal(err)
	}
	r.delays.hurry = time.Hour
	if err := r.QuietUnsupported(); err != nil {
		fmt.Println("loud:", err)
	}
	nice, err := niceness(0)
	if err != nil {
		fatal(err)
	}
	fmt.Println("own:", nice)
	events := make(chan containers.Event, 100)
	var answers atomic.Bool
	set, err := containers.NewSet(containers.Config{
		Runtime: r, Dir: "/", Command: []string{"/bin/sleep", "1000"},
		Quiet: func() bool { return !answers.Load() }, Event: func(ev containers.Event) { events <- ev },
	})
	if err != nil {
		fatal(err)
	}
	if err := set.SetCount(1); err != nil {
		fatal(err)
	}
	ev := <-events
	report := func(what string) {
		nice := -1
		for _, th := range threads(ev.PID) {
			nice = max(nice, th.nice)
		}
		group, _ := groupNice(ev.PID)
		fmt.Println(what+":", nice, group)
	}
	report("loading")
	answers.Store(true)
	set.MarkReady(ev.Replica)
	for set.Status()[0].Quiet && len(events) == 0 {
		runtime.Gosched()
	}
	report("ready")
	if len(events) > 0 {
		ev := <-events
		fmt.Println("event:", ev.Kind == containers.NotRaised, ev.Reason)
	}
	if err := set.Close(context.Background()); err != nil {
		fatal(err)
	}
	if err := r.Close(); err != nil {
		fatal(err)
	}
}

// unprivileged runs a gateway without the permission to raise, and returns what it printed, by the first word of each
// line.
func unprivileged(t *testing.T, env ...string) map[string]string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), self())
	cmd.Env = append(append(os.Environ(), modeEnv+"=unprivileged"), env...)
	cmd.Stderr = os.Stderr
	text, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	said := map[string]string{}
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		said[name] = value
	}
	return said
}

// Without the permission to raise threads none is lowered, and the reason is reported. A session's group may be lowered
// anyway, because raising it needs no permission.
func TestQuietWithoutPermission(t *testing.T) {
	said := unprivileged(t)
	if !strings.Contains(said["loud"], "CAP_SYS_NICE") || !strings.Contains(said["loud"], "LimitNICE") {
		t.Errorf("it printed %q: expected the missing permissions", said["loud"])
	}
	if nice, _, _ := strings.Cut(said["loading"], " "); nice != said["own"] || nice == "" {
		t.Errorf("niceness %q while loading, expected the gateway's own, %s", nice, said["own"])
	}
	if want := said["own"] + " 0"; said["ready"] != want {
		t.Errorf("niceness %q when ready, expected %s", said["ready"], want)
	}
	if said["event"] != "" {
		t.Errorf("event %s: expected none", said["event"])
	}
}

// A replica whose raise fails unexpectedly is reported.
func TestRaiseFails(t *testing.T) {
	said := unprivileged(t, assumeRaiseEnv+"=1")
	if nice, _, _ := strings.Cut(said["loading"], " "); nice != strconv.Itoa(lowest) {
		t.Errorf("niceness %q while loading, expected %d", nice, lowest)
	}
	if !strings.HasPrefix(said["event"], "true it was started quietly") || !strings.Contains(said["event"], "raise the CPU priority of process") {
		t.Errorf("event %q: expected NotRaised with the reason", said["event"])
	}
}

// A worker that only has to end is lowered, whether or not it was quiet before.
func TestLower(t *testing.T) {
	r := newRuntime(t)
	out := newOutput()
	in := start(t, r, launch(1, "sleep", out))
	out.until(t, "ready")
	in.(containers.Lowerer).Lower()
	start(t, r, launch(2, "sleep", newOutput())) // the reaper takes requests in order, and answers this one
	b, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(in.PID()), "stat"))
	if err != nil {
		t.Fatal(err)
	}
	if st, ok := parseStat(b); !ok || st.nice != lowest {
		t.Errorf("the first thread has niceness %d, expected %d", st.nice, lowest)
	}
	checkGroup(t, "lowered", in.PID(), lowest)
}
