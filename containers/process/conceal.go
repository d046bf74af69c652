package process

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// Conceal closes this process to others of the same user: they can no longer trace it, read or write its memory, or
// read its environment and its descriptors (PR_SET_DUMPABLE, proc(5)). It also leaves no core dump. The reaper does
// this for itself. A program that serves models does it first in its main; a library leaves that to its host.
func Conceal() error {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("close the process to others of its user: %w", err)
	}
	return nil
}

const (
	// oomAbove is how far a worker's OOM score lies above the gateway's. 300 counts like 30 % of the machine's memory,
	// so the kernel prefers any replica of some size to the gateway.
	oomAbove = 300
	oomMax   = 1000
)

// oomAdj reads a process's adjustment of the OOM score (proc_pid_oom_score_adj(5)).
func oomAdj(pid string) (int, error) {
	b, err := os.ReadFile(oomPath(pid))
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(string(bytes.TrimSpace(b)))
}

func oomPath(pid string) string { return filepath.Join("/proc", pid, "oom_score_adj") }

// offerToOOM makes the kernel choose a worker rather than the gateway when memory runs out. It raises the score, for
// which no permission is needed. Processes that the worker starts inherit it. A kernel that refuses is no reason not to
// start the worker.
func offerToOOM(pid, base int) {
	f, err := os.OpenFile(oomPath(strconv.Itoa(pid)), os.O_WRONLY, 0)
	if err != nil {
		return
	}
	defer f.Close()
	_, _ = f.WriteString(strconv.Itoa(min(oomMax, base+oomAbove)))
}
