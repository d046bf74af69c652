package docker

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"

	"github.com/xebec-serving/xebec/containers/internal/procfs"
)

// The labels of every container that this package makes. They name its gateway process, so that another gateway, or the
// next one, can tell whether it is still needed.
const (
	labelGateway = "io.xebec.gateway" // Config.Owner
	labelBoot    = "io.xebec.gateway.boot"
	labelPIDs    = "io.xebec.gateway.pidns"
	labelPID     = "io.xebec.gateway.pid"
	labelStart   = "io.xebec.gateway.start"
	labelModel   = "io.xebec.model"
	labelVersion = "io.xebec.version"
	labelReplica = "io.xebec.replica"
)

// owner identifies one process of one gateway: by the boot of its machine, its PID name space, its pid and its start
// time.
type owner struct {
	id    string
	boot  string
	pids  string // the PID name space, as in /proc/self/ns/pid
	pid   int
	start uint64 // in ticks since boot
}

// self returns this process as an owner.
func self(id string) (owner, error) {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return owner{}, fmt.Errorf("identify this gateway's containers: %w", err)
	}
	pids, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		return owner{}, fmt.Errorf("identify this gateway's containers: %w", err)
	}
	start, ok := startOf(os.Getpid())
	if !ok {
		return owner{}, fmt.Errorf("identify this gateway's containers: /proc/%d/stat cannot be read", os.Getpid())
	}
	return owner{id: id, boot: strings.TrimSpace(string(boot)), pids: pids, pid: os.Getpid(), start: start}, nil
}

// startOf returns when a process of this PID name space began, or false if there is none or it is a zombie.
func startOf(pid int) (ticks uint64, ok bool) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, false
	}
	st, ok := procfs.ParseStat(b)
	return st.Start, ok && !st.Zombie
}

// hasEnded reports whether a process of this PID name space that began then has certainly ended.
func hasEnded(pid int, start uint64) bool {
	signalled := syscall.Kill(pid, 0)
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return provesEnd(signalled, stat, err, start)
}

// provesEnd judges what signal 0 to a process returned, and what reading its stat did. A process that cannot be looked at,
// because it is hidden or no descriptor is left, may live.
func provesEnd(signalled error, stat []byte, err error, start uint64) bool {
	if errors.Is(signalled, syscall.ESRCH) {
		return true
	}
	st, ok := procfs.ParseStat(stat)
	return err == nil && ok && (st.Zombie || st.Start != start)
}

func (o owner) labels() map[string]string {
	return map[string]string{
		labelGateway: o.id, labelBoot: o.boot, labelPIDs: o.pids, labelPID: strconv.Itoa(o.pid), labelStart: strconv.FormatUint(o.start, 10),
	}
}

// ownerOf parses a container's labels. It returns false if labels did not write them, so the container is not one of
// ours.
func ownerOf(labels map[string]string) (owner, bool) {
	pid, err := strconv.Atoi(labels[labelPID])
	if err != nil {
		return owner{}, false
	}
	start, err := strconv.ParseUint(labels[labelStart], 10, 64)
	if err != nil {
		return owner{}, false
	}
	o := owner{id: labels[labelGateway], boot: labels[labelBoot], pids: labels[labelPIDs], pid: pid, start: start}
	return o, o.id != "" && o.boot != "" && o.pids != ""
}

// abandoned reports whether a container that the gateway o does not know, with the labels of owner of, is an orphan.
// gone reports whether a process that began then has ended. A process in another PID name space is not visible: its containers are abandoned
// if it had this gateway's name and they have ended, as a container does if its gateway is gone and its worker is
// honest.
func (o owner) abandoned(of owner, ended bool, gone func(pid int, start uint64) bool) bool {
	switch {
	case of == o, of.boot != o.boot:
		return true
	case of.pids != o.pids:
		return of.id == o.id && ended
	}
	return gone(of.pid, of.start)
}
