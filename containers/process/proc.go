package process

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/xebec-serving/xebec/containers/internal/procfs"
)

const (
	// markerName is the environment variable that marks every process of a launch, including children and daemons: they
	// inherit it however they fork. It identifies strays that have left their process group.
	markerName = "XEBEC_LAUNCH"
	// maxEnvironBytes bounds how much of a process's environment is searched for the marker; exec accepts no more.
	maxEnvironBytes = 2 << 20
)

// stat is the part of /proc/PID/stat that is used here.
type stat struct {
	pid, ppid, pgrp int
	zombie          bool
	// runnable: it runs, or waits for a processor. ticks is its processor time, in hundredths of a second.
	runnable bool
	ticks    uint64
	// nice is the niceness of the thread, or of a process's first thread.
	nice int
	// start is the start time in ticks since boot. Together with the pid it identifies a process uniquely.
	start uint64
}

func parseStat(b []byte) (stat, bool) {
	st, ok := procfs.ParseStat(b)
	return stat{pid: st.PID, ppid: st.Parent, pgrp: st.Group, nice: st.Nice, start: st.Start, zombie: st.Zombie, runnable: st.Runnable, ticks: st.Ticks}, ok
}

func readStat(pid int) (stat, bool) {
	b, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return stat{}, false
	}
	return parseStat(b)
}

// processes lists all visible processes. A process that ends meanwhile is left out.
func processes() []stat {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1)
	var all []stat
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil {
			if st, ok := readStat(pid); ok {
				all = append(all, st)
			}
		}
	}
	return all
}

// descendants returns the processes below root: children, their children, and so on, parents first.
func descendants(root int, all []stat) []stat {
	children := make(map[int][]stat)
	for _, st := range all {
		children[st.ppid] = append(children[st.ppid], st)
	}
	var below []stat
	seen := map[int]bool{root: true} // all is no snapshot: reused pids could form a cycle
	for next := []int{root}; len(next) > 0; {
		parent := next[0]
		next = next[1:]
		for _, st := range children[parent] {
			if !seen[st.pid] {
				seen[st.pid] = true
				below = append(below, st)
				next = append(next, st.pid)
			}
		}
	}
	return below
}

// marked reports whether the process was started with a marker that begins with prefix. A prefix that ends in a zero
// byte is the whole marker.
func marked(pid int, prefix string) bool {
	f, err := os.Open(filepath.Join("/proc", strconv.Itoa(pid), "environ"))
	if err != nil {
		return false
	}
	defer f.Close()
	env, err := io.ReadAll(io.LimitReader(f, maxEnvironBytes))
	if err != nil {
		return false
	}
	want := []byte(markerName + "=" + prefix)
	return bytes.HasPrefix(env, want) || bytes.Contains(env, append([]byte{0}, want...))
}

// signalExactly sends sig to the process that st describes, and never to one that has reused its pid.
func signalExactly(st stat, sig unix.Signal) {
	fd, err := unix.PidfdOpen(st.pid, 0)
	if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPERM) { // an old kernel, or a sandbox that forbids it
		if now, ok := readStat(st.pid); ok && now.start == st.start {
			_ = unix.Kill(st.pid, sig)
		}
		return
	}
	if err != nil {
		return
	}
	defer unix.Close(fd)
	if now, ok := readStat(st.pid); ok && now.start == st.start {
		_ = unix.PidfdSendSignal(fd, sig, nil, 0)
	}
}
