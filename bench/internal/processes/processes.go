package processes

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/xebec-serving/xebec/bench/internal/machine"
)

// Process is one process of a server. A process ID may be used again; with the time of its start it is unique.
type Process struct {
	PID     int
	started string // the field of /proc/PID/stat
}

// Set is the processes of one server.
type Set []Process

// stat is what /proc/PID/stat says.
type stat struct {
	parent  int
	state   string
	started string
}

// Of returns the processes of the server that was started as root with mark ("NAME=VALUE") in its environment. A mark of another server must not
// be the beginning of it.
func Of(root int, mark string) (Set, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	all, children, found := map[int]stat{}, map[int][]int{}, []int{root}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		s, ok := statOf(pid)
		if !ok || s.state == "Z" {
			continue // it has ended
		}
		all[pid] = s
		children[s.parent] = append(children[s.parent], pid)
		if marked(pid, mark) {
			found = append(found, pid)
		}
	}
	var out Set
	seen := map[int]bool{}
	for len(found) > 0 {
		pid := found[0]
		found = found[1:]
		if s, alive := all[pid]; alive && !seen[pid] {
			seen[pid] = true
			out = append(out, Process{pid, s.started})
			found = append(found, children[pid]...)
		}
	}
	slices.SortFunc(out, func(a, b Process) int { return a.PID - b.PID })
	return out, nil
}

func statOf(pid int) (stat, bool) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return stat{}, false
	}
	return parseStat(text)
}

// parseStat reads the state, the parent and the time of the start (fields 3, 4 and 22, man 5 proc). The second field, the name, may hold blanks
// and brackets.
func parseStat(text []byte) (stat, bool) {
	fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
	if len(fields) < 20 {
		return stat{}, false
	}
	parent, err := strconv.Atoi(string(fields[1]))
	return stat{parent, string(fields[0]), string(fields[19])}, err == nil
}

func marked(pid int, mark string) bool {
	environ, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	return err == nil && slices.Contains(splitZero(environ), mark)
}

func splitZero(environ []byte) []string {
	var out []string
	for _, v := range bytes.Split(environ, []byte{0}) {
		out = append(out, string(v))
	}
	return out
}

// CPU adds up the CPU time of the processes, user and system, all threads. What a process used that has ended meanwhile is missing.
func (s Set) CPU() time.Duration {
	var sum time.Duration
	for _, p := range s {
		if used, err := machine.CPUTime(p.PID); err == nil {
			sum += used
		}
	}
	return sum
}

// Memory is what the processes have resident, in bytes. A page that n processes share counts 1/n in each (Pss in man 5 proc), so that it
// counts once for the server, or less if others map it, too.
func (s Set) Memory() (int64, error) {
	var sum int64
	for _, p := range s {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", p.PID))
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
			continue // it has ended
		}
		if err != nil {
			return 0, err
		}
		kib, err := parsePss(text)
		if err != nil {
			return 0, fmt.Errorf("process %d: %w", p.PID, err)
		}
		sum += kib << 10
	}
	return sum, nil
}

func parsePss(rollup []byte) (kib int64, err error) {
	_, rest, ok := bytes.Cut(rollup, []byte("\nPss:"))
	if !ok {
		return 0, errors.New("smaps_rollup has no line Pss")
	}
	_, err = fmt.Sscanf(string(rest), "%d kB", &kib)
	return kib, err
}

// Signal sends a signal to every process that is still the one that was found. It returns how many there were.
func (s Set) Signal(signal syscall.Signal) int {
	sent := 0
	for _, p := range s {
		if now, ok := statOf(p.PID); ok && now.started == p.started && now.state != "Z" && syscall.Kill(p.PID, signal) == nil {
			sent++
		}
	}
	return sent
}
