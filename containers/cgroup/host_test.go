package cgroup

import (
	"bufio"
	"errors"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/xebec-serving/xebec/containers"
	"github.com/xebec-serving/xebec/containers/internal/procfs"
)

// These tests run with whatever the machine allows. Where it allows no groups, they check what the package reports.

// patience bounds every wait of these tests. It only elapses if something is broken.
const patience = 30 * time.Second

func openHost(t *testing.T) *Manager {
	t.Helper()
	m := Open("/", 0)
	t.Cleanup(m.Close)
	for _, r := range resources {
		if err := m.Unsupported(r); err != nil {
			t.Logf("cannot be limited here: %v", err)
		}
	}
	return m
}

// forked starts a program in places, from a thread that lives as long as the test, and returns its pid.
func forked(t *testing.T, places Places, argv ...string) int {
	t.Helper()
	type result struct {
		pid int
		err error
	}
	results, over := make(chan result), make(chan struct{})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		runtime.LockOSThread()
		pid, err := places.Fork(func(dir int) (int, error) {
			return syscall.ForkExec(argv[0], argv, &syscall.ProcAttr{
				Env: os.Environ(), Sys: &syscall.SysProcAttr{UseCgroupFD: dir >= 0, CgroupFD: dir, Pdeathsig: syscall.SIGKILL, Setsid: true},
			})
		})
		results <- result{pid, err}
		<-over
		runtime.UnlockOSThread()
	}()
	res := <-results
	if res.err != nil {
		close(over)
		<-ended
		t.Fatal(res.err)
	}
	t.Cleanup(func() {
		_ = syscall.Kill(-res.pid, syscall.SIGKILL)
		_, _ = syscall.Wait4(res.pid, nil, 0, nil)
		close(over)
		<-ended
	})
	return res.pid
}

// inGroup reports whether a process is listed in a place.
func inGroup(p Place, pid int) bool {
	b, _ := os.ReadFile(filepath.Join(p.Dir, "cgroup.procs"))
	for _, listed := range parsePIDs(b) {
		if listed == pid {
			return true
		}
	}
	return false
}

// until waits for a condition that another process establishes.
func until(t *testing.T, what string, condition func() bool) {
	t.Helper()
	late := time.NewTimer(patience)
	defer late.Stop()
	again := time.NewTicker(time.Millisecond)
	defer again.Stop()
	for !condition() {
		select {
		case <-again.C:
		case <-late.C:
			t.Fatalf("timeout waiting for %s", what)
		}
	}
}

func value(t *testing.T, dir, file string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, file))
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(b))
}

// A group has exactly those requested limits that can be enforced. A process starts in it, and Remove removes it.
func TestHostGroup(t *testing.T) {
	m := openHost(t)
	g, err := m.Create("test", containers.Limits{CPUMillis: 500, MemoryBytes: 64 << 20, PIDs: 20})
	if err != nil {
		t.Fatal(err)
	}
	defer g.Remove()
	limited := map[Resource]bool{}
	for _, p := range g.parts {
		for _, r := range p.hierarchy.resources {
			limited[r] = true
			var got, want string
			switch {
			case r == Memory && p.hierarchy.unified:
				got, want = value(t, p.dir, "memory.max"), "67108864"
			case r == Memory:
				got, want = value(t, p.dir, "memory.limit_in_bytes"), "67108864"
			case r == CPU && p.hierarchy.unified:
				got, want = value(t, p.dir, "cpu.max"), "50000 100000"
			case r == CPU:
				got, want = value(t, p.dir, "cpu.cfs_quota_us")+" "+value(t, p.dir, "cpu.cfs_period_us"), "50000 100000"
			case p.hierarchy.leavable:
				got, want = value(t, p.dir, "pids.max"), "21"
			default:
				got, want = value(t, p.dir, "pids.max"), "20"
			}
			if got != want {
				t.Errorf("%s is limited to %q, expected %q", r, got, want)
			}
		}
	}
	for _, r := range resources {
		if limited[r] != (m.Unsupported(r) == nil) {
			t.Errorf("%s: limited %v, but Able returns %v", r, limited[r], m.Unsupported(r))
		}
	}
	pid := forked(t, g.Places(), "/bin/sleep", "1000")
	g.Started()
	for _, p := range g.parts {
		for _, r := range p.hierarchy.resources {
			if r == PIDs && value(t, p.dir, "pids.max") != "20" {
				t.Errorf("pids.max is %s after the start", value(t, p.dir, "pids.max"))
			}
		}
	}
	for _, p := range g.Places() {
		if !inGroup(p, pid) {
			t.Errorf("process %d was not started in %s", pid, p.Dir)
		}
		if inGroup(p, os.Getpid()) {
			t.Errorf("this process is in %s", p.Dir)
		}
		b, _ := os.ReadFile(filepath.Join(p.Dir, "tasks")) // version 1: the thread that forked has returned
		if tids := parsePIDs(b); !p.Unified && len(tids) != 1 {
			t.Errorf("threads %v in %s, expected one", tids, p.Dir)
		}
	}
	if err := g.Places().Add(pid); err != nil { // it is there already
		t.Error(err)
	}
	if ev := g.Events(); ev != (Events{}) {
		t.Errorf("events %+v before anything has happened", ev)
	}
	g.Remove()
	for _, p := range g.Places() {
		if _, err := os.Stat(p.Dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s after its removal: %v", p.Dir, err)
		}
	}
	g.Remove()
}

// A process that another one has forked is put into the group.
func TestHostAdd(t *testing.T) {
	m := openHost(t)
	g, err := m.Create("test", containers.Limits{CPUMillis: 500, MemoryBytes: 64 << 20, PIDs: 20})
	if err != nil {
		t.Fatal(err)
	}
	defer g.Remove()
	pid := forked(t, nil, "/bin/sleep", "1000")
	if err := g.Places().Add(pid); err != nil {
		t.Fatal(err)
	}
	for _, p := range g.Places() {
		if !inGroup(p, pid) {
			t.Errorf("process %d is not in %s", pid, p.Dir)
		}
	}
	const noPID = 1<<22 + 1 // above the highest pid
	if err := g.Places().Add(noPID); err != nil {
		t.Errorf("add a process that has ended: %v", err)
	}
	if err := (Places{{Dir: filepath.Join(t.TempDir(), "gone")}}).Add(pid); err == nil {
		t.Error("no error for a missing group")
	}
}

// A process enters the groups of version 1 through their doors, and Add finds it there.
func TestHostDoors(t *testing.T) {
	m := openHost(t)
	g, err := m.Create("test", containers.Limits{MemoryBytes: 64 << 20, PIDs: 20})
	if err != nil {
		t.Fatal(err)
	}
	defer g.Remove()
	doors := g.Places().Doors()
	want := 0
	cmd := exec.Command("/bin/sh", "-c", `for fd; do eval "echo 0 >&$fd"; done; exec sleep 1000`, "sh")
	for _, p := range g.Places() {
		if !p.Unified {
			want++
		}
	}
	for i, fd := range doors {
		f := os.NewFile(uintptr(fd), "door")
		defer f.Close()
		cmd.ExtraFiles = append(cmd.ExtraFiles, f)
		cmd.Args = append(cmd.Args, strconv.Itoa(3+i))
	}
	if len(doors) != want {
		t.Errorf("%d doors, expected %d", len(doors), want)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	for _, p := range g.Places() {
		if !p.Unified {
			until(t, "the process enters "+p.Dir, func() bool { return inGroup(p, cmd.Process.Pid) })
		}
	}
	if err := g.Places().Add(cmd.Process.Pid); err != nil {
		t.Error(err)
	}
	for _, p := range g.Places() {
		if !inGroup(p, cmd.Process.Pid) {
			t.Errorf("the process is not in %s", p.Dir)
		}
	}
}

// Processes that fork all the time, in sessions of their own, are gone after Kill, also where it can only read the list
// of processes.
func TestHostKillForkers(t *testing.T) {
	m := openHost(t)
	g, err := m.Create("test", containers.Limits{CPUMillis: 1000, MemoryBytes: 256 << 20, PIDs: 60})
	if err != nil {
		t.Fatal(err)
	}
	defer g.Remove()
	pid := forked(t, g.Places(), "/bin/sh", "-c", `i=0; while [ $i -lt 8 ]; do i=$((i+1)); setsid sh -c 'while :; do sleep 0.001 & wait $!; done' & done; wait`)
	if len(g.Places()) == 0 {
		g.Places().Kill() // nothing is in no group
		if err := syscall.Kill(pid, 0); err != nil {
			t.Errorf("a process outside: %v", err)
		}
		return
	}
	p := g.Places()[0]
	until(t, "the start of the forkers", func() bool { return len(p.pids()) > 8 })
	p.killListed(g.Places())
	until(t, "the end of the forkers", func() bool { return len(p.pids()) == 0 })
	g.Remove()
	if _, err := os.Stat(p.Dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s after its removal: %v", p.Dir, err)
	}
}

// unifiedDir makes a cgroup of version 2 below this process's own, without controllers. If the machine allows none, it
// returns a directory that does not exist.
func unifiedDir(t *testing.T) (dir string, real bool) {
	t.Helper()
	none := filepath.Join(t.TempDir(), "none")
	mountinfo, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return none, false
	}
	membership, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return none, false
	}
	own, isUnified, err := findOwn(procfs.ParseMounts(mountinfo), procfs.ParseMembership(membership), "no such controller")
	if err != nil || !isUnified {
		return none, false
	}
	dir = path.Join(own, "xebec-test-"+strconv.Itoa(os.Getpid()))
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Logf("no cgroup of version 2 can be made here: %v", err)
		return none, false
	}
	t.Cleanup(func() {
		m := &Manager{files: host("/"), root: "/"}
		if err := m.remove(dir); err != nil {
			t.Error(err)
		}
	})
	return dir, true
}

// In version 2 a child is created in its group, and the kernel kills the whole group at once.
func TestHostUnified(t *testing.T) {
	dir, real := unifiedDir(t)
	ps := Places{{Dir: dir, Unified: true}}
	pid := forked(t, ps, "/bin/sh", "-c", `setsid sleep 1000 & setsid sleep 1000 & wait`)
	if !real { // it starts anyway, and Add fails
		if err := ps.Add(pid); err == nil {
			t.Error("no error for a missing group")
		}
		return
	}
	if !inGroup(ps[0], pid) {
		if err := ps.Add(pid); err != nil { // a sandbox without clone3
			t.Fatal(err)
		}
	} else {
		until(t, "the start of its children", func() bool { return len(ps[0].pids()) == 3 })
	}
	ps.Kill()
	until(t, "the end of the group", func() bool { return len(ps[0].pids()) == 0 })
	ps.Remove()
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s after its removal: %v", dir, err)
	}
	if err := os.Mkdir(dir, 0o755); err != nil { // for the cleanup
		t.Fatal(err)
	}
}

// leave makes the directory of another gateway in a hierarchy, with a group and a process in it.
func leave(t *testing.T, h hierarchy, life string) (base string, pid int) {
	t.Helper()
	device := h.base[strings.LastIndexByte(h.base, '-'):]
	base = path.Join(h.own, prefix+strconv.Itoa(os.Getpid())+"-"+life+device)
	for _, dir := range []string{base, base + "/m-1"} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	pid = forked(t, nil, "/bin/sleep", "1000")
	if err := (Places{{Dir: base + "/m-1", Unified: h.unified}}).Add(pid); err != nil {
		t.Fatal(err)
	}
	return base, pid
}

func hasEnded(pid int) bool {
	b, _ := os.ReadFile(path.Join("/proc", strconv.Itoa(pid), "stat"))
	return strings.Contains(string(b), ") Z ")
}

// A gateway that was killed with its reaper leaves groups behind, and processes in them.
func TestHostLeft(t *testing.T) {
	m := openHost(t)
	for _, h := range m.hierarchies {
		left, pid := leave(t, h, "1")
		openHost(t)
		if _, err := os.Stat(left); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: error %v, expected ErrNotExist", left, err)
		}
		until(t, "the end of the process left behind", func() bool { return hasEnded(pid) })
	}
	if len(m.hierarchies) == 0 {
		for _, r := range resources {
			if m.Unsupported(r) == nil {
				t.Errorf("%s can be limited, but has no hierarchy", r)
			}
		}
	}
}

// A gateway that holds its lock lives, whatever pid it has here. Its groups are left alone until it has ended.
func TestHostLeftLives(t *testing.T) {
	m := openHost(t)
	for _, h := range m.hierarchies {
		base, pid := leave(t, h, "2")
		l, err := host("/").lock(base, false)
		if err != nil {
			t.Fatal(err)
		}
		openHost(t)
		if _, err := os.Stat(base + "/m-1"); err != nil || hasEnded(pid) {
			t.Errorf("%s of a gateway that lives: %v; its process has ended: %v", base, err, hasEnded(pid))
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		openHost(t)
		if _, err := os.Stat(base); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: error %v, expected ErrNotExist", base, err)
		}
	}
}

// Each Manager holds the lock of its directory, also after another one of this process has removed and remade that.
func TestHostHolds(t *testing.T) {
	m := openHost(t)
	check := func(when string) {
		t.Helper()
		for _, h := range m.hierarchies {
			if l, err := host("/").lock(h.base, true); !errors.Is(err, syscall.EWOULDBLOCK) {
				t.Errorf("%s the exclusive lock of %s could be taken (%v)", when, h.base, err)
				if err == nil {
					l.Close()
				}
			}
		}
	}
	check("at first")
	Open("/", 0).Close() // it removes what is empty
	other := Open("/", 0)
	g, err := m.Create("test", containers.Limits{CPUMillis: 500, MemoryBytes: 64 << 20, PIDs: 20})
	if err != nil {
		t.Fatal(err)
	}
	defer g.Remove()
	other.Close()
	check("after another one has ended")
}

// Groups without a limit are in a directory that bounds them together.
func TestHostBound(t *testing.T) {
	m := Open("/", 64<<20)
	t.Cleanup(m.Close)
	var groups []*Group
	for range 2 {
		g, err := m.Create("test", containers.Limits{})
		if err != nil {
			t.Fatal(err)
		}
		defer g.Remove()
		groups = append(groups, g)
	}
	if why := m.Unsupported(Memory); why != nil {
		t.Logf("cannot be bounded here: %v", why)
		if len(groups[0].parts) != 0 {
			t.Errorf("parts %+v", groups[0].parts)
		}
		return
	}
	h := groups[0].parts[0].hierarchy
	file := "memory.limit_in_bytes"
	if h.unified {
		file = "memory.max"
	}
	if got := value(t, h.groups, file); got != "67108864" {
		t.Errorf("all are bounded by %s", got)
	}
	for _, g := range groups {
		if dir := g.parts[0].dir; path.Dir(dir) != h.groups || value(t, dir, file) == "67108864" {
			t.Errorf("%s has the limit %s: expected none of its own", dir, value(t, dir, file))
		}
		pid := forked(t, g.Places(), "/bin/sh", "-c", `head -c 50331648 /dev/zero | tail -c 50331648 | { sleep 1000; cat >/dev/null; }`)
		if err := g.Places().Add(pid); err != nil {
			t.Fatal(err)
		}
	}
	over := func(g *Group) bool {
		ev := g.Events()
		return ev.OOMKills > 0 && ev.OverBound && !ev.OverLimit
	}
	until(t, "the kernel kills in one of them", func() bool { return over(groups[0]) || over(groups[1]) })
}

func fileExists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// Groups with a limit of processor time together have the weight that they would have beside the gateway.
func TestHostWeight(t *testing.T) {
	m := openHost(t)
	var groups []*Group
	for range 3 {
		g, err := m.Create("test", containers.Limits{CPUMillis: 500})
		if err != nil {
			t.Fatal(err)
		}
		defer g.Remove()
		groups = append(groups, g)
	}
	check := func(shares string) {
		t.Helper()
		for _, p := range groups[0].parts {
			if p.hierarchy.unified {
				continue
			}
			if got := value(t, p.hierarchy.groups, "cpu.shares"); got != shares {
				t.Errorf("weight of the groups %s, expected %s", got, shares)
			}
		}
	}
	check("3072")
	groups[2].Remove()
	check("2048")
	checkQuiet(t, groups[0])
	if (m.Unsupported(CPU) == nil) != (len(groups[0].parts) == 1) {
		t.Errorf("%d parts, but Able returns %v", len(groups[0].parts), m.Unsupported(CPU))
	}
}

// A machine without /proc has a reason for each resource, and groups without places.
func TestNoProc(t *testing.T) {
	m := Open(t.TempDir(), 0)
	defer m.Close()
	for _, r := range resources {
		if err := m.Unsupported(r); err == nil || !strings.Contains(err.Error(), "/proc/self/mountinfo") {
			t.Errorf("%s: %v, expected it to name the file", r, err)
		}
	}
	g, err := m.Create("m", allLimits)
	if err != nil || len(g.Places()) != 0 {
		t.Fatalf("group %+v, error %v", g, err)
	}
	pid := forked(t, g.Places(), "/bin/sh", "-c", "sleep 1000")
	if err := g.Places().Add(pid); err != nil {
		t.Error(err)
	}
	g.Remove()
	if err := syscall.Kill(pid, 0); err != nil {
		t.Errorf("a process outside of all groups: %v", err)
	}
}

// A program that cannot be executed is an error, and the thread has returned.
func TestForkFails(t *testing.T) {
	m := openHost(t)
	g, err := m.Create("test", containers.Limits{PIDs: 20, MemoryBytes: 64 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer g.Remove()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for _, program := range []string{"/no/such/program", "/etc/passwd"} {
		_, err = g.Places().Fork(func(dir int) (int, error) {
			return syscall.ForkExec(program, []string{program}, &syscall.ProcAttr{Sys: &syscall.SysProcAttr{UseCgroupFD: dir >= 0, CgroupFD: dir}})
		})
		if !errors.Is(err, syscall.ENOENT) && !errors.Is(err, syscall.EACCES) {
			t.Errorf("%s: %v", program, err)
		}
	}
	for _, p := range g.Places() {
		f, err := os.Open(filepath.Join(p.Dir, "cgroup.procs"))
		if err != nil {
			t.Fatal(err)
		}
		if scan := bufio.NewScanner(f); scan.Scan() {
			t.Errorf("process %s is in %s", scan.Text(), p.Dir)
		}
		f.Close()
	}
}
