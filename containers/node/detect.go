package node

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"strconv"
	"strings"
)

// Budget is what a node has for replicas.
type Budget struct {
	// CPUMillis is in thousandths of a core.
	CPUMillis   int64
	MemoryBytes int64
	// TotalBytes is the memory before anything was reserved: the machine's, or the control group's limit if it is less.
	TotalBytes int64
	// GPUs are CUDA's numbers of the GPUs.
	GPUs []int
	// From names the source of each number, for operators.
	From string
}

// The part of the memory that is reserved for the gateway and the system: see the package documentation.
const (
	reserveShare    = 8
	minReserveBytes = 256 << 20 //xebec:limit memory left to the gateway and the system: an eighth of the machine, at least this, never more than half
	maxReserveBytes = 4 << 30   //xebec:limit the same, at most
)

// Detect returns what this machine has for replicas, or the control group that this process runs in. With an error, the
// values that are known are set and the others are 0.
func Detect() (Budget, error) {
	visible, restricted := os.LookupEnv("CUDA_VISIBLE_DEVICES")
	return detect(os.DirFS("/"), runtime.NumCPU(), visible, restricted)
}

// detect examines the file system of a machine. cpus is how many processors this process may run on. restricted: it may
// use only the GPUs that visible names.
func detect(root fs.FS, cpus int, visible string, restricted bool) (Budget, error) {
	b := Budget{CPUMillis: int64(cpus) * 1000}
	cpuFrom := fmt.Sprintf("%d processors", cpus)
	groups, groupErr := limitsOf(root)
	if q := groups.cpuMillis; q > 0 && q < b.CPUMillis {
		b.CPUMillis, cpuFrom = q, "quota in "+groups.cpuFrom
	}
	total, memoryErr := memTotal(root)
	memoryFrom := "MemTotal"
	if l := groups.memoryBytes; l > 0 && (l < total || total == 0) {
		total, memoryFrom, memoryErr = l, "limit in "+groups.memoryFrom, nil
	}
	reserved := min(max(total/reserveShare, minReserveBytes), maxReserveBytes, total/2)
	b.MemoryBytes, b.TotalBytes = total-reserved, total
	gpus, gpuFrom := gpusOf(root, visible, restricted)
	b.GPUs = gpus

	parts := []string{fmt.Sprintf("%g cores (%s)", float64(b.CPUMillis)/1000, cpuFrom)}
	if total > 0 {
		parts = append(parts, fmt.Sprintf("%d MiB of memory (%s, %d MiB, less %d for the gateway and the system)", b.MemoryBytes>>20, memoryFrom, total>>20, reserved>>20))
	}
	if gpuFrom != "" {
		parts = append(parts, fmt.Sprintf("%d GPUs (%s)", len(gpus), gpuFrom))
	}
	b.From = strings.Join(parts, ", ")
	return b, errors.Join(memoryErr, groupErr)
}

// memTotal returns MemTotal of /proc/meminfo.
func memTotal(root fs.FS) (int64, error) {
	text, err := readSmall(root, "proc/meminfo")
	if err != nil {
		return 0, fmt.Errorf("read the machine's memory: %w", err)
	}
	n, ok := fieldBytes(text, "MemTotal:")
	if !ok || n <= 0 {
		return 0, errors.New("/proc/meminfo has no MemTotal: the machine's memory is unknown")
	}
	return n, nil
}

// maxGPUs bounds how many GPUs are counted: no machine has as many.
const maxGPUs = 64

// gpusOf returns the visible GPUs and the source; "": the machine has none.
func gpusOf(root fs.FS, visible string, restricted bool) (gpus []int, from string) {
	entries, err := fs.ReadDir(root, "dev")
	if err != nil {
		return nil, ""
	}
	count := 0
	for _, e := range entries {
		digits, ok := strings.CutPrefix(e.Name(), "nvidia")
		if _, err := strconv.ParseUint(digits, 10, 16); ok && err == nil && count < maxGPUs {
			count++
		}
	}
	if count == 0 {
		return nil, ""
	}
	if !restricted {
		for i := range count {
			gpus = append(gpus, i)
		}
		return gpus, "/dev/nvidia*"
	}
	seen := [maxGPUs]bool{}
	for name := range strings.SplitSeq(visible, ",") {
		i, err := strconv.Atoi(strings.TrimSpace(name))
		if err != nil || i < 0 || i >= count || seen[i] { // like CUDA: everything after the first invalid entry is ignored
			break
		}
		seen[i] = true
		gpus = append(gpus, i)
	}
	return gpus, fmt.Sprintf("of %d in /dev, those that CUDA_VISIBLE_DEVICES=%q names by number", count, visible)
}
