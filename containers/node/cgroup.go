package node

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"path"
	"strconv"
	"strings"

	"github.com/xebec-serving/xebec/containers/internal/procfs"
)

// limits is what control groups allow; 0: no limit.
type limits struct {
	cpuMillis   int64
	cpuFrom     string // the file
	memoryBytes int64
	memoryFrom  string
}

const (
	// maxFileBytes bounds what is read of a file: a mountinfo of thousands of containers is some hundred KiB.
	maxFileBytes = 4 << 20
	// maxDepth bounds the nesting of groups that is examined.
	maxDepth = 64
	// unlimited is the value of version 1 without a limit, rounded down to pages of up to 64 KiB.
	unlimited = math.MaxInt64 &^ 0xffff
)

// limitsOf returns the lowest limits of this process's control groups. A machine without control groups has none. An
// error means that there are some that cannot be read.
func limitsOf(root fs.FS) (limits, error) {
	var l limits
	own, err := readSmall(root, "proc/self/cgroup")
	if errors.Is(err, fs.ErrNotExist) {
		return l, nil
	}
	if err != nil {
		return l, fmt.Errorf("read the control group of this process: %w", err)
	}
	mounts, err := readSmall(root, "proc/self/mountinfo")
	if err != nil {
		return l, fmt.Errorf("read where control groups are mounted: %w", err)
	}
	groups := procfs.ParseMembership(own)
	for _, m := range procfs.ParseMounts(mounts) {
		controllers := m.Controllers
		if m.Unified {
			controllers = []string{procfs.Unified}
		}
		for _, c := range controllers {
			if in, ok := groups[c]; ok && (m.Unified || c == "cpu" || c == "memory") {
				l.apply(root, m, c, in)
			}
		}
	}
	return l, nil
}

// apply applies the limits of a group and of all above it, up to the mount point.
func (l *limits) apply(root fs.FS, m procfs.Mount, controller, group string) {
	below, ok := strings.CutPrefix(group, strings.TrimSuffix(m.Root, "/"))
	if !ok || below != "" && !strings.HasPrefix(below, "/") || strings.HasPrefix(below, "/..") {
		below = "/" // the group is not in the visible part of the hierarchy: use what is visible
	}
	point := path.Clean(m.Point)
	for range maxDepth {
		below = path.Clean("/" + below)
		dir := strings.TrimPrefix(path.Join(point, below), "/")
		if m.Unified {
			l.applyV2(root, dir)
		} else {
			l.applyV1(root, dir, controller)
		}
		if below == "/" {
			return
		}
		below = path.Dir(below)
	}
}

func (l *limits) applyV2(root fs.FS, dir string) {
	if text, err := readSmall(root, dir+"/cpu.max"); err == nil {
		l.cpu(parseCPUMax(text), dir+"/cpu.max")
	}
	for _, name := range []string{"/memory.max", "/memory.high"} { // above high it is throttled almost to a halt
		if text, err := readSmall(root, dir+name); err == nil {
			l.memory(parseLimit(text), dir+name)
		}
	}
}

func (l *limits) applyV1(root fs.FS, dir, controller string) {
	if controller == "memory" {
		if text, err := readSmall(root, dir+"/memory.limit_in_bytes"); err == nil {
			l.memory(parseLimit(text), dir+"/memory.limit_in_bytes")
		}
		return
	}
	quota, err := readSmall(root, dir+"/cpu.cfs_quota_us")
	period, err2 := readSmall(root, dir+"/cpu.cfs_period_us")
	if err == nil && err2 == nil {
		l.cpu(parseCPUMax([]byte(string(quota)+" "+string(period))), dir+"/cpu.cfs_quota_us")
	}
}

func (l *limits) cpu(millis int64, file string) {
	if millis > 0 && (l.cpuMillis == 0 || millis < l.cpuMillis) {
		l.cpuMillis, l.cpuFrom = millis, "/"+file
	}
}

func (l *limits) memory(n int64, file string) {
	if n > 0 && (l.memoryBytes == 0 || n < l.memoryBytes) {
		l.memoryBytes, l.memoryFrom = n, "/"+file
	}
}

// parseCPUMax parses "quota period" in microseconds. Without a limit the quota is max or negative, and the result is 0.
func parseCPUMax(text []byte) (millis int64) {
	fields := strings.Fields(string(text))
	if len(fields) != 2 {
		return 0
	}
	quota, err := strconv.ParseInt(fields[0], 10, 64)
	period, err2 := strconv.ParseInt(fields[1], 10, 64)
	if err != nil || err2 != nil || quota <= 0 || period <= 0 || quota > math.MaxInt64/1000 {
		return 0
	}
	return max(1, quota*1000/period)
}

// parseLimit parses a number of bytes; 0: no limit.
func parseLimit(text []byte) int64 {
	n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	if err != nil || n <= 0 || n >= unlimited { // the max of version 2 is not a number
		return 0
	}
	return n
}

// readSmall reads a file of the kernel.
func readSmall(root fs.FS, name string) ([]byte, error) {
	f, err := root.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // it was only read
	return io.ReadAll(io.LimitReader(f, maxFileBytes))
}
