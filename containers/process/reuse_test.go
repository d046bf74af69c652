package process

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/xebec-serving/xebec/containers"
)

// stranger starts a process that no gateway has anything to do with: the leader of a session and a process group, as each
// reaper and launcher is. With a pid it gets that one, where this process may choose it; otherwise the result is nil.
func stranger(t *testing.T, pid int) *exec.Cmd {
	t.Helper()
	const tries = 200 // other programs fork too
	for range tries {
		if pid != 0 && os.WriteFile("/proc/sys/kernel/ns_last_pid", []byte(strconv.Itoa(pid-1)), 0) != nil {
			return nil
		}
		cmd := exec.Command("/bin/sleep", "1000")
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		end := func() {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
		if pid == 0 || cmd.Process.Pid == pid {
			t.Cleanup(end)
			return cmd
		}
		end()
	}
	t.Fatalf("no process could be started with the pid %d", pid)
	return nil
}

func lives(cmd *exec.Cmd) bool {
	st, ok := readStat(cmd.Process.Pid)
	return ok && !st.zombie
}

// The launcher of a zygote outlives it while forks of it live, so the zygote's pid is free. A process of another gateway
// that gets it is not killed when the last fork ends: two gateways had lost reapers and launchers to a third one.
func TestZygotesPIDIsReused(t *testing.T) {
	m := newModels(t, tale)
	r := newRuntime(t)
	out := newOutput()
	l := m.launch(t, []string{"tale"}, waits, out)
	l.Isolation = containers.Isolation{}
	in := start(t, r, l)
	z := theZygote(t, r)
	if err := unix.Kill(z.in.PID(), unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	waitExit(t, z.in)
	other := stranger(t, z.in.PID())
	if other == nil {
		t.Log("this process may not choose a pid: TestKillIsExact shows the same without")
		return
	}
	st, ok := readStat(in.PID())
	if !ok {
		t.Fatal("the fork has ended with its zygote")
	}
	launcher := watch(t, "launcher", st.ppid)
	if err := in.Signal(false); err != nil {
		t.Fatal(err)
	}
	waitExit(t, in)
	if b, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(st.ppid), "comm")); err == nil && strings.TrimSpace(string(b)) == launcherName {
		waitGone(t, launcher)
	}
	if err := r.Close(); err != nil { // the reaper has ended, so it sends no more signals
		t.Error(err)
	}
	if !lives(other) {
		t.Error("a process that has the pid of a zygote that had ended was killed")
	}
}

// What a reaper sends to the first process of a worker that a launcher reaps is for that process, and never for another
// one that has got its pid, its process group and its session.
func TestKillIsExact(t *testing.T) {
	for _, tc := range []struct {
		name string
		w    worker
	}{
		{"a replica with a launcher", worker{}},
		{"a zygote", worker{forked: map[int]*worker{}}},
		{"a fork", worker{inside: true}},
	} {
		for _, way := range []request{{Op: opSignal, ID: 1}, {Op: opSignal, ID: 1, Kill: true}} {
			other, launcher := stranger(t, 0), stranger(t, 0)
			w := tc.w
			w.lead, w.pid = other.Process.Pid, launcher.Process.Pid
			if w.inside {
				w.pid = w.lead
			}
			w.first, _ = readStat(w.lead)
			w.first.start-- // it has been another process
			r := &reaper{byID: map[uint64]*worker{1: &w}}
			r.signal(way)
			w.first = stat{} // it had ended before it could be identified
			r.signal(way)
			if !lives(other) {
				t.Errorf("%s, kill %v: a process that has the pid now was killed", tc.name, way.Kill)
				continue
			}
			if !way.Kill && !lives(launcher) {
				t.Errorf("%s: SIGTERM ended its launcher", tc.name)
			}
			w.first, _ = readStat(w.lead)
			r.signal(way)
			if w.pid != w.lead && w.forked == nil && way.Kill {
				other = launcher // everything in its pid namespace ends with it
			}
			waitUntil(t, tc.name+" has ended", func() bool { return !lives(other) })
		}
	}
}
