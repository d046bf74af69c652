package main

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/xebec-serving/xebec/bench/internal/machine"
)

// CPU is the average number of cores used in a phase. Generator, gateway and workers share the machine.
type CPU struct {
	Generator float64 `json:"generator"` // this process
	Gateway   float64 `json:"gateway"`
	Workers   float64 `json:"workers"` // every process below the gateway
	// Others is what the rest of the machine used, including what the host of a virtual machine took.
	Others float64 `json:"others"`
}

// usage is the CPU time used up to a moment.
type usage struct {
	at                                time.Time
	generator, gateway, workers, busy time.Duration
}

func readUsage(gatewayPID int) (usage, error) {
	u := usage{at: time.Now()}
	var err error
	if u.generator, err = machine.CPUTime(os.Getpid()); err != nil {
		return u, err
	}
	if u.gateway, err = machine.CPUTime(gatewayPID); err != nil {
		return u, err
	}
	parents, err := parentsOf()
	if err != nil {
		return u, err
	}
	for _, pid := range below(gatewayPID, parents) {
		// A process that has just ended is not a worker, because workers live as long as the gateway.
		if used, err := machine.CPUTime(pid); err == nil {
			u.workers += used
		}
	}
	stat, err := os.ReadFile("/proc/stat")
	if err != nil {
		return u, err
	}
	u.busy, err = busyTime(string(stat))
	return u, err
}

// since returns the average between two moments.
func (u usage) since(before usage) CPU {
	cores := func(used time.Duration) float64 { return used.Seconds() / u.at.Sub(before.at).Seconds() }
	c := CPU{Generator: cores(u.generator - before.generator), Gateway: cores(u.gateway - before.gateway), Workers: cores(u.workers - before.workers)}
	// The kernel counts the machine's time in ticks of 10 ms, so the difference can be slightly negative.
	c.Others = max(0, cores(u.busy-before.busy)-c.Generator-c.Gateway-c.Workers)
	return c
}

// parentsOf maps every process to its parent.
func parentsOf() (map[int]int, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	parents := map[int]int{}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		stat, err := os.ReadFile("/proc/" + e.Name() + "/stat")
		if err != nil {
			continue // it has ended
		}
		if parent, ok := parentOf(stat); ok {
			parents[pid] = parent
		}
	}
	return parents, nil
}

// parentOf reads the fourth field of /proc/PID/stat. The second, the name, may hold blanks and brackets.
func parentOf(stat []byte) (int, bool) {
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 2 {
		return 0, false
	}
	parent, err := strconv.Atoi(string(fields[1]))
	return parent, err == nil
}

// below returns the descendants of a process.
func below(pid int, parents map[int]int) []int {
	var out []int
	for child, parent := range parents {
		if parent == pid && child != pid {
			out = append(append(out, child), below(child, parents)...)
		}
	}
	return out
}

// busyTime adds up the first line of /proc/stat over all cores: user, nice, system, irq, softirq and steal, without idle and iowait. Guest
// time is part of user. A tick is 10 ms for every program (man 5 proc).
func busyTime(stat string) (time.Duration, error) {
	const tick = 10 * time.Millisecond
	line, _, _ := strings.Cut(stat, "\n")
	fields := strings.Fields(line)
	if len(fields) < 9 || fields[0] != "cpu" {
		return 0, fmt.Errorf("/proc/stat begins with %q: expected cpu and at least eight numbers", line)
	}
	var busy time.Duration
	for i, f := range fields[1:9] {
		const idle, iowait = 3, 4
		if i == idle || i == iowait {
			continue
		}
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("/proc/stat: %w", err)
		}
		busy += time.Duration(n) * tick
	}
	return busy, nil
}
