package process

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/containers"
	"github.com/xebec-serving/xebec/containers/cgroup"
)

// These tests run with whatever the machine allows. Where this process cannot make cgroups, they check what the Runtime
// says it does instead.

// eat allocates more and more memory, up to 1 GiB. If no limit stops it, it ends with code 0.
const eat = `rm -f pipe; mkfifo pipe; head -c 2147483648 /dev/zero >pipe & exec tail -c 1073741824 pipe >/dev/null`

// able reports whether a resource can be limited here.
func able(r *Runtime, resource cgroup.Resource) bool { return r.cgroups().Unsupported(resource) == nil }

// groupDirs returns the directories of an instance's cgroup.
func groupDirs(in containers.Instance) []string {
	var dirs []string
	for _, p := range in.(*instance).places() {
		dirs = append(dirs, p.Dir)
	}
	return dirs
}

func checkRemoved(t *testing.T, dirs []string) {
	t.Helper()
	for _, dir := range dirs {
		if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s after the end of its replica: %v", dir, err)
		}
	}
}

// file reads a file of an instance's cgroup, from whichever hierarchy has it.
func file(t *testing.T, in containers.Instance, name string) string {
	t.Helper()
	for _, dir := range groupDirs(in) {
		if b, err := os.ReadFile(filepath.Join(dir, name)); err == nil {
			return string(b)
		}
	}
	return ""
}

// until waits for a condition that another process establishes.
func until(t *testing.T, what string, condition func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	again := time.NewTicker(sweepMillis * time.Millisecond)
	defer again.Stop()
	for !condition() {
		select {
		case <-again.C:
		case <-ctx.Done():
			t.Fatalf("timeout: %s", what)
		}
	}
}

// A replica that exceeds its memory limit is killed and its exit says why. Its neighbour with the same limit is not
// affected.
func TestMemoryLimit(t *testing.T) {
	r := newRuntime(t)
	limits := containers.Limits{MemoryBytes: 64 << 20}
	out := newOutput()
	neighbour := shell(t, `trap 'exit 7' TERM; echo ready; while :; do sleep 0.01; done`, out)
	neighbour.Limits = limits
	beside := start(t, r, neighbour)
	out.until(t, "ready")

	eater := shell(t, eat, newOutput())
	eater.Limits = limits
	in := start(t, r, eater)
	dirs := groupDirs(in)
	exit := waitExit(t, in)
	sentences := r.Unenforced(limits)
	if able(r, cgroup.Memory) {
		want := "ended by SIGKILL: it took more than its memory limit of 64MiB (limits.memory); raise it, or find out what the model holds"
		if exit.Signal != int(syscall.SIGKILL) || exit.Reason != want || len(sentences) != 0 || len(dirs) == 0 {
			t.Errorf("exit %+v in %q, unenforced %q: expected %q", exit, dirs, sentences, want)
		}
	} else if exit.Signal != 0 || exit.Code != 1 || exit.Reason != "" || len(sentences) != 1 || !strings.Contains(sentences[0], "64MiB") {
		t.Errorf("exit %+v, unenforced %q: expected the program's own code 1", exit, sentences)
	}
	checkRemoved(t, dirs)

	dirs = groupDirs(beside)
	if err := beside.Signal(true); err != nil {
		t.Fatal(err)
	}
	if exit := waitExit(t, beside); exit.Code != 7 || exit.Reason != "" {
		t.Errorf("the neighbour: exit %+v, expected its own code 7", exit)
	}
	checkRemoved(t, dirs)
}

// If a child process of the replica was killed for memory, the replica's exit says so too.
func TestMemoryLimitOfAChild(t *testing.T) {
	r := newRuntime(t)
	l := shell(t, `sh -c "$1"; exit 5`, newOutput(), eat)
	l.Limits = containers.Limits{MemoryBytes: 64 << 20}
	in := start(t, r, l)
	together := slices.ContainsFunc(in.(*instance).places(), func(p cgroup.Place) bool { return p.Unified })
	exit := waitExit(t, in)
	switch {
	case !able(r, cgroup.Memory):
		if exit.String() != "exited with code 5" {
			t.Errorf("exit %v", exit)
		}
	case together: // with version 2 all its processes are killed
		if !strings.HasPrefix(exit.Reason, "ended by SIGKILL: it took more than its memory limit of 64MiB") {
			t.Errorf("exit %v", exit)
		}
	case exit.Code != 5 || !strings.HasPrefix(exit.Reason, "exited with code 5, after the kernel had killed 1 of its processes for memory: its limit is 64MiB"):
		t.Errorf("exit %+v", exit)
	}
}

// hoard allocates without end and never gives anything back; other replicas keep what they have. Its memory is that of a child of
// its first process, in a session of its own.
const hoard = `setsid sh -c 'head -c 2147483648 /dev/zero | tail -c 2147483648 >/dev/null' & wait; exit 9`

// Without limits of their own replicas are bounded together. The one that takes more is ended, its exit says so, and its neighbours
// are not affected. Where there are no cgroups, each says that it lacks this layer and why, and a strict one does not start.
func TestMemoryOfAll(t *testing.T) {
	const bound = 96 << 20
	r, err := New(Config{MemoryBytes: bound})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	out := newOutput()
	neighbour := shell(t, `trap 'exit 7' TERM; echo ready; while :; do sleep 0.01; done`, out)
	neighbour.Isolation = containers.Isolation{}
	beside := start(t, r, neighbour)
	out.until(t, "ready")
	layers, missing := beside.(containers.IsolationReporter).Isolation()
	if why := r.cgroups().Unsupported(cgroup.Memory); why != nil {
		want := "Its memory is not bounded (no memory cgroup): " + why.Error() + "."
		if slices.Contains(layers, layerMemory) || !slices.ContainsFunc(missing, func(m string) bool { return strings.HasPrefix(m, want) }) {
			t.Errorf("layers %q, missing %q: expected %q", layers, missing, want)
		}
		return
	}
	if !slices.Contains(layers, layerMemory) {
		t.Errorf("layers %q, missing %q: expected %s", layers, missing, layerMemory)
	}
	eater := shell(t, hoard, newOutput())
	eater.Isolation = containers.Isolation{}
	in := start(t, r, eater)
	dirs := groupDirs(in)
	exit := waitExit(t, in)
	if exit.Cause != containers.OutOfMemory || !strings.Contains(exit.Reason, "all replicas together took more than 96 MiB") || !strings.Contains(exit.Reason, "limits.memory") {
		t.Errorf("exit %+v: expected that it is blamed on the bound of all", exit)
	}
	checkRemoved(t, dirs)
	limited := shell(t, eat, newOutput())
	limited.Limits.MemoryBytes = 32 << 20
	if exit := waitExit(t, start(t, r, limited)); !strings.Contains(exit.Reason, "its memory limit of 32MiB (limits.memory)") {
		t.Errorf("exit %+v: expected its own limit", exit)
	}
	if err := beside.Signal(true); err != nil {
		t.Fatal(err)
	}
	if exit := waitExit(t, beside); exit.Code != 7 || exit.Reason != "" {
		t.Errorf("the neighbour: exit %+v, expected its own code 7", exit)
	}
}

// Without cgroups a replica starts, and says what it lacks; a strict one does not.
func TestMemoryOfAllWithoutCgroups(t *testing.T) {
	r, err := New(Config{MemoryBytes: 1 << 30})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	r.root = t.TempDir()
	const want = "Its memory is not bounded (no memory cgroup): cgroups cannot be found: "
	l := shell(t, `exit 3`, newOutput())
	l.Isolation = containers.Isolation{}
	in := start(t, r, l)
	if _, missing := in.(containers.IsolationReporter).Isolation(); !slices.ContainsFunc(missing, func(m string) bool { return strings.HasPrefix(m, want) }) {
		t.Errorf("missing %q: expected %q", missing, want)
	}
	if exit := waitExit(t, in); exit.Code != 3 {
		t.Errorf("exit %+v", exit)
	}
	l.Isolation.Level = containers.IsolateStrict
	var permanent *containers.LaunchError
	if in, err := r.Start(t.Context(), l); !errors.As(err, &permanent) || !strings.Contains(err.Error(), want) {
		t.Errorf("a strict replica: %v, error %v: expected to be refused with %q", in, err, want)
	}
}

// A replica with limits that is killed by its owner, or by any process, was not killed for memory.
func TestOtherKills(t *testing.T) {
	r := newRuntime(t)
	for replica, kill := range []func(containers.Instance) error{
		func(in containers.Instance) error { return in.Signal(false) },
		func(in containers.Instance) error { return unix.Kill(in.PID(), unix.SIGKILL) },
	} {
		out := newOutput()
		l := shell(t, `echo ready; exec sleep 1000`, out)
		l.Limits = containers.Limits{MemoryBytes: 64 << 20, PIDs: 20, CPUMillis: 1000}
		in := start(t, r, l)
		out.until(t, "ready")
		if err := kill(in); err != nil {
			t.Fatal(err)
		}
		if exit := waitExit(t, in); exit.Signal != int(syscall.SIGKILL) || exit.Reason != "" {
			t.Errorf("kill %d: exit %+v, expected no reason beside the signal", replica, exit)
		}
	}
}

// A fork bomb whose processes are in sessions of their own, without the launch's marker in their environment: it stops
// at its limit, does not disturb others, and no process of it is left.
func TestForkBomb(t *testing.T) {
	const limit, most = 40, 150 // most protects the machine if there is no limit
	r := newRuntime(t)
	out := newOutput()
	bomb := shell(t, `(i=0; while [ $i -lt $1 ]; do env -i setsid sleep 1000 & i=$((i+1)); done; exit 1) 2>/dev/null; echo full; exec sleep 1000`, out, strconv.Itoa(most))
	bomb.Limits = containers.Limits{PIDs: limit}
	in := start(t, r, bomb)
	out.until(t, "full")
	reaper := reaperOf(t, r)
	all := descendants(reaper, processes())
	if !able(r, cgroup.PIDs) {
		if len(all) <= limit || len(r.Unenforced(bomb.Limits)) != 1 {
			t.Errorf("%d processes, unenforced %q: expected one sentence about the limit", len(all), r.Unenforced(bomb.Limits))
		}
		return // the strays end with the Runtime
	}
	if len(all) < limit/2 || len(all) > limit {
		t.Errorf("%d processes, expected up to %d", len(all), limit)
	}
	if max := strings.TrimSpace(file(t, in, "pids.max")); max != strconv.Itoa(limit) || in.(*instance).group.Events().PIDsRefused == 0 {
		t.Errorf("limit %s, events %+v", max, in.(*instance).group.Events())
	}
	// Another replica can still fork meanwhile.
	other := shell(t, `for i in 1 2 3 4 5 6 7 8; do sleep 0.001 & done; wait; exit 3`, newOutput())
	other.Limits = bomb.Limits
	if exit := waitExit(t, start(t, r, other)); exit.Code != 3 || exit.Reason != "" {
		t.Errorf("another replica: exit %+v, expected code 3", exit)
	}
	var watches []watched
	for _, st := range all {
		watches = append(watches, watch(t, "part of the bomb", st.pid))
	}
	dirs := groupDirs(in)
	if err := in.Signal(false); err != nil {
		t.Fatal(err)
	}
	waitExit(t, in)
	waitGone(t, watches...)
	checkRemoved(t, dirs)
	noZombies(t, reaper)
}

// A replica that ends because it could not fork says why, and its strays are killed with it.
func TestForkRefused(t *testing.T) {
	r := newRuntime(t)
	l := shell(t, `i=0; while [ $i -lt 60 ]; do env -i setsid sleep 1000 & i=$((i+1)); done; exit 4`, newOutput())
	l.Limits = containers.Limits{PIDs: 30}
	exit := waitExit(t, start(t, r, l))
	if !able(r, cgroup.PIDs) {
		if exit.Code != 4 {
			t.Errorf("exit %+v", exit)
		}
		return
	}
	if exit.Code != 2 || !strings.Contains(exit.Reason, "new processes or threads had been refused") || !strings.Contains(exit.Reason, "30 (limits.pids)") {
		t.Errorf("exit %+v: expected the shell's code 2, and the limit", exit)
	}
	noZombies(t, reaperOf(t, r))
}

// A limit of processor time is enforced: the kernel counts how often it throttled the replica. A quiet replica has the
// least share until it is raised.
func TestCPULimit(t *testing.T) {
	r := newRuntime(t)
	out := newOutput()
	l := shell(t, `echo ready; while :; do :; done`, out)
	l.Limits = containers.Limits{CPUMillis: 100}
	l.Quiet = true
	in := start(t, r, l)
	out.until(t, "ready")
	if !able(r, cgroup.CPU) {
		if sentences := r.Unenforced(l.Limits); len(sentences) != 1 || !strings.HasPrefix(sentences[0], "limits.cpu (0.1) is not enforced") {
			t.Errorf("unenforced %q", sentences)
		}
		return
	}
	checkShare(t, in, true)
	if err := raise(t, in); err != nil {
		t.Fatal(err)
	}
	checkShare(t, in, false)
	until(t, "the replica is not throttled", func() bool {
		for line := range strings.Lines(file(t, in, "cpu.stat")) {
			if n, ok := strings.CutPrefix(strings.TrimSpace(line), "nr_throttled "); ok && n != "0" {
				return true
			}
		}
		return false
	})
}

// checkShare checks whether a replica's cgroup yields to what is beside it.
func checkShare(t *testing.T, in containers.Instance, quiet bool) {
	t.Helper()
	low, normal := "15", "1024"
	if in.(*instance).places()[0].Unified {
		low, normal = "1", "100"
	}
	got, want := strings.TrimSpace(file(t, in, "cpu.shares")+file(t, in, "cpu.weight")), normal
	idle := file(t, in, "cpu.idle") // since Linux 5.15
	switch {
	case quiet && idle == "":
		want = low
	case quiet:
		got, want = strings.TrimSpace(idle), "1"
	case idle != "" && strings.TrimSpace(idle) != "0":
		t.Errorf("quiet %v: cpu.idle is %s", quiet, idle)
	}
	if got != want {
		t.Errorf("quiet %v: %s, expected %s", quiet, got, want)
	}
}

// Where groups are made anyway, a replica that loads is in one that yields, with all that it starts, however it was started. Raised or killed
// it does not yield.
func TestQuietGroup(t *testing.T) {
	r, err := New(Config{MemoryBytes: 1 << 40})
	if err != nil {
		t.Fatal(err)
	}
	r.delays.hurry, r.delays.lowEnd = time.Hour, time.Hour
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	for _, isolation := range []containers.Isolation{plain, {}} {
		out := newOutput()
		l := shell(t, `sleep 1000 & echo $!; echo ready; wait`, out)
		l.Quiet, l.Isolation = true, isolation
		in := start(t, r, l)
		out.until(t, "ready")
		if !able(r, cgroup.CPU) {
			if in.(*instance).yields {
				t.Error("it yields without the controller")
			}
			continue
		}
		checkShare(t, in, true)
		for _, p := range in.(*instance).places() {
			b, err := os.ReadFile(filepath.Join(p.Dir, "cgroup.procs"))
			if n := len(strings.Fields(string(b))); err != nil || n < 2 {
				t.Errorf("%d processes in %s, error %v: expected the replica and its child", n, p.Dir, err)
			}
		}
		if err := raise(t, in); err != nil {
			t.Fatal(err)
		}
		checkShare(t, in, false)
		in.(containers.Lowerer).Lower()
		checkShare(t, in, true)
		dirs := in.(*instance).places()
		if err := in.Signal(false); err != nil {
			t.Fatal(err)
		}
		waitExit(t, in)
		for _, p := range dirs {
			if _, err := os.Stat(p.Dir); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("%s after the end: %v", p.Dir, err)
			}
		}
	}
}

// A replica without such limits has no cgroup, and the Runtime does not look for any.
func TestNoLimitsNoGroups(t *testing.T) {
	r := newRuntime(t)
	l := shell(t, `exit 3`, newOutput())
	l.Limits = containers.Limits{OpenFiles: 100, DataBytes: 1 << 30}
	in := start(t, r, l)
	if exit := waitExit(t, in); exit.Code != 3 || in.(*instance).group != nil || r.manager != nil {
		t.Errorf("exit %+v, group %+v, manager %+v: expected none", exit, in.(*instance).group, r.manager)
	}
	if sentences := r.Unenforced(l.Limits); sentences != nil || r.manager != nil {
		t.Errorf("unenforced %q, manager %+v", sentences, r.manager)
	}
}

// Without any cgroups, each limit has its sentence, memory is bounded per process, and replicas start.
func TestWithoutCgroups(t *testing.T) {
	r := newRuntime(t)
	r.root = t.TempDir()
	limits := containers.Limits{MemoryBytes: 1 << 30, PIDs: 100, CPUMillis: 1500}
	sentences := r.Unenforced(limits)
	if len(sentences) != 3 {
		t.Fatalf("unenforced %q: expected three sentences", sentences)
	}
	for i, want := range [][]string{
		{"limits.memory (1GiB) does not bind a replica as a whole: ", "may map that much private writable memory", "shared memory and files do not."},
		{"limits.pids (100) is not enforced", "/proc/self/mountinfo"},
		{"limits.cpu (1.5) is not enforced", "/proc/self/mountinfo"},
	} {
		for _, part := range want {
			if !strings.Contains(sentences[i], part) || !strings.HasSuffix(sentences[i], ".") {
				t.Errorf("sentence %q: expected it to contain %q", sentences[i], part)
			}
		}
	}
	for _, tc := range []struct{ data, want uint64 }{{0, 1 << 30}, {2 << 30, 1 << 30}, {1 << 29, 1 << 29}} {
		out := newOutput()
		l := shell(t, `echo ready; exec sleep 1000`, out)
		l.Limits, l.Quiet = limits, true
		l.Limits.DataBytes = tc.data
		in := start(t, r, l)
		out.until(t, "ready")
		var got unix.Rlimit
		if err := unix.Prlimit(in.PID(), unix.RLIMIT_DATA, nil, &got); err != nil {
			t.Fatal(err)
		}
		if got.Max != tc.want || got.Cur != tc.want {
			t.Errorf("a limit of data %+v, expected %d", got, tc.want)
		}
		if err := raise(t, in); err != nil {
			t.Error(err)
		}
		if err := in.Signal(false); err != nil {
			t.Fatal(err)
		}
		if exit := waitExit(t, in); exit.Signal != int(syscall.SIGKILL) || exit.Reason != "" {
			t.Errorf("exit %+v", exit)
		}
	}
	eater := shell(t, eat, newOutput())
	eater.Limits.MemoryBytes = 64 << 20
	if exit := waitExit(t, start(t, r, eater)); exit.Code != 1 || exit.Signal != 0 {
		t.Errorf("exit %+v over the data limit, expected the program's own code 1", exit)
	}
}

// A replica that ignores SIGTERM is killed after the grace, with everything in its group.
func TestSupervisedStubborn(t *testing.T) {
	r := newRuntime(t)
	events := make(chan containers.Event, 100)
	set, err := containers.NewSet(containers.Config{
		Model: api.ModelID{Name: "m", Version: "1"}, Runtime: r, Dir: t.TempDir(),
		Command: []string{"/bin/sh", "-c", `trap '' TERM; env -i setsid sleep 1000 & echo up; while :; do sleep 0.01; done`},
		Limits:  containers.Limits{PIDs: 20}, Grace: 20 * time.Millisecond, Event: func(ev containers.Event) { events <- ev },
	})
	if err != nil {
		t.Fatal(err)
	}
	defer set.Close(t.Context())
	if err := set.SetCount(1); err != nil {
		t.Fatal(err)
	}
	next(t, events, containers.Started) // the line alone can come before: a stop then cancels the start
	waitLine(t, set, "up")
	if err := set.SetCount(0); err != nil {
		t.Fatal(err)
	}
	if ev := next(t, events, containers.Exited); !ev.Asked || ev.Exit.Signal != int(syscall.SIGKILL) {
		t.Errorf("event %+v: expected SIGKILL", ev)
	}
	if able(r, cgroup.PIDs) { // otherwise the stray stays until the Runtime ends
		noZombies(t, reaperOf(t, r))
	}
}

func TestExplain(t *testing.T) {
	limits := containers.Limits{MemoryBytes: 512 << 20, PIDs: 100}
	kill := containers.Exit{Code: -1, Signal: int(syscall.SIGKILL)}
	for _, tc := range []struct {
		name   string
		exit   containers.Exit
		ev     cgroup.Events
		killed bool
		want   string
	}{
		{"all over their bound", kill, cgroup.Events{OOMKills: 1, OverBound: true}, false,
			"ended by SIGKILL: all replicas together took more than 1024 MiB, which is what the machine, or the gateway's cgroup, has for them, and the kernel chose this one; " +
				"bound each model (limits.memory), or find out what the models hold"},
		{"a child, all over their bound", containers.Exit{Code: 1}, cgroup.Events{OOMKills: 2, OverBound: true}, false,
			"exited with code 1, after the kernel had killed 2 of its processes for memory: all replicas together took more than 1024 MiB, which is what the machine, or the gateway's cgroup, " +
				"has for them, and the kernel chose this one; bound each model (limits.memory), or find out what the models hold"},
		{"over both", kill, cgroup.Events{OOMKills: 1, OverLimit: true, OverBound: true}, false,
			"ended by SIGKILL: it took more than its memory limit of 512MiB (limits.memory); raise it, or find out what the model holds"},
		{"over its limit", kill, cgroup.Events{OOMKills: 1, OverLimit: true}, false,
			"ended by SIGKILL: it took more than its memory limit of 512MiB (limits.memory); raise it, or find out what the model holds"},
		{"within its limit", kill, cgroup.Events{OOMKills: 1}, false,
			"ended by SIGKILL: the host, or a cgroup around the gateway, ran out of memory, while the replica was within its memory limit of 512MiB (limits.memory); run fewer replicas, or give the host more"},
		{"killed by its owner", kill, cgroup.Events{OOMKills: 1, OverLimit: true, PIDsRefused: 1}, true, kill.String()},
		{"killed by another process", kill, cgroup.Events{}, false, kill.String()},
		{"a child", containers.Exit{Code: 1}, cgroup.Events{OOMKills: 2, OverLimit: true}, false,
			"exited with code 1, after the kernel had killed 2 of its processes for memory: its limit is 512MiB (limits.memory); raise it, or find out what the model holds"},
		{"too many", containers.Exit{Code: 1}, cgroup.Events{PIDsRefused: 3}, false,
			"exited with code 1, after new processes or threads had been refused 3 times: its limit is 100 (limits.pids)"},
		{"well", containers.Exit{}, cgroup.Events{OOMKills: 1, PIDsRefused: 3}, false, "exited with code 0"},
		{"lost", containers.Exit{Code: -1, Reason: "ended with its reaper"}, cgroup.Events{OOMKills: 1}, false, "ended with its reaper"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := confinement{limits: limits, bound: 1 << 30}
			exit := c.explain(tc.exit, tc.ev, tc.killed)
			if got := exit.String(); got != tc.want {
				t.Errorf("%q, expected %q", got, tc.want)
			}
			if memory := strings.Contains(tc.want, "limits.memory"); memory != (exit.Cause == containers.OutOfMemory) {
				t.Errorf("%q is counted as %v", tc.want, exit.Cause)
			}
		})
	}
}
