package machine

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Machine is what a reader of a measurement needs to know of the machine.
type Machine struct {
	CPU    string  `json:"cpu"`
	Cores  int     `json:"cores"`
	Kernel string  `json:"kernel"`
	Go     string  `json:"go"`
	Load1  float64 `json:"load_1min_at_start"` // from other programs, at the start; if it exceeds a tenth of the cores, distrust the measurement
}

// String describes the machine in one sentence.
func (m Machine) String() string {
	return fmt.Sprintf("%s, %d cores, Linux %s, %s; load of the machine when it began: %.2f.", m.CPU, m.Cores, m.Kernel, m.Go, m.Load1)
}

// Here describes the machine of this process.
func Here() Machine {
	m := Machine{CPU: "unknown CPU", Cores: runtime.NumCPU(), Kernel: "unknown", Go: runtime.Version()}
	if data, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		m.CPU = modelName(data)
	}
	var name unix.Utsname
	if unix.Uname(&name) == nil {
		m.Kernel = unix.ByteSliceToString(name.Release[:])
	}
	if data, err := os.ReadFile("/proc/loadavg"); err == nil {
		first, _, _ := strings.Cut(string(data), " ")
		if load, err := strconv.ParseFloat(first, 64); err == nil {
			m.Load1 = load
		}
	}
	return m
}

func modelName(cpuinfo []byte) string {
	lines := bufio.NewScanner(bytes.NewReader(cpuinfo))
	for lines.Scan() {
		if name, value, ok := strings.Cut(lines.Text(), ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return "unknown CPU"
}

// CPUTime returns the user and system time of a process over all its threads, including those that have ended. The kernel counts it in
// nanoseconds (man 3 clock_getcpuclockid), while /proc/PID/stat has ticks of 10 ms.
func CPUTime(pid int) (time.Duration, error) {
	const schedClock = 2 // CPUCLOCK_SCHED: the scheduler's own account, user and system together
	var ts unix.Timespec
	if err := unix.ClockGettime(int32(^pid)<<3|schedClock, &ts); err != nil {
		return 0, fmt.Errorf("CPU time of process %d: %w", pid, err)
	}
	return time.Duration(ts.Nano()), nil
}

// ForgetPeak makes Peak begin with what the process has resident now (man 5 proc, clear_refs).
func ForgetPeak(pid int) error {
	return os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0)
}

// Peak returns the most bytes that a process had resident since it began, or since ForgetPeak.
func Peak(pid int) (int64, error) {
	name := fmt.Sprintf("/proc/%d/status", pid)
	text, err := os.ReadFile(name)
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(text), "\nVmHWM:")
	var kib int64
	if _, err := fmt.Sscanf(rest, "%d kB", &kib); err != nil {
		return 0, fmt.Errorf("%s: no peak of resident memory: %w", name, err)
	}
	return kib << 10, nil
}

// Cores returns the numbers of the processors that this process may run on, in ascending order.
func Cores() ([]int, error) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return nil, fmt.Errorf("processors of this process: %w", err)
	}
	var cores []int
	for cpu := 0; len(cores) < set.Count(); cpu++ {
		if set.IsSet(cpu) {
			cores = append(cores, cpu)
		}
	}
	return cores, nil
}

// OnCores calls start on a thread that may run only on the given processors. A process that start creates inherits the restriction, and so do
// its children. With no cores it just calls start.
func OnCores(cores []int, start func() error) error {
	if len(cores) == 0 {
		return start()
	}
	result := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked, so that the thread and its affinity end with the goroutine
		var set unix.CPUSet
		for _, cpu := range cores {
			set.Set(cpu)
		}
		if err := unix.SchedSetaffinity(0, &set); err != nil {
			result <- fmt.Errorf("restrict to processors %v: %w", cores, err)
			return
		}
		result <- start()
	}()
	return <-result
}
