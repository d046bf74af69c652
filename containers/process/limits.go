package process

import (
	"fmt"
	"strconv"
	"syscall"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/containers"
	"github.com/xebec-serving/xebec/containers/cgroup"
)

// grouped reports whether limits need a cgroup.
func grouped(l containers.Limits) bool { return l.CPUMillis > 0 || l.MemoryBytes > 0 || l.PIDs > 0 }

// cgroups returns the manager of the cgroups for replicas with limits. It is opened on first use, so a gateway without
// such limits does not touch cgroups at all.
func (r *Runtime) cgroups() *cgroup.Manager {
	r.limiting.Lock()
	defer r.limiting.Unlock()
	if r.manager == nil {
		r.manager = cgroup.Open(r.root)
	}
	return r.manager
}

// Unenforced says which of a model's limits are not enforced for replicas started by this Runtime, why, what is done
// instead and what to do about it: a sentence for each, nil if all are enforced. It is cheap enough to call for every
// description.
func (r *Runtime) Unenforced(l containers.Limits) []string {
	if !grouped(l) {
		return nil
	}
	m := r.cgroups()
	var all []string
	if err := m.Unsupported(cgroup.Memory); l.MemoryBytes > 0 && err != nil {
		all = append(all, fmt.Sprintf("limits.memory (%s) does not bind a replica as a whole: %v. Instead each of its processes may map that much private writable memory: "+
			"one that maps more gets an error (a MemoryError in Python) and is not killed; what is mapped and never used counts, shared memory and files do not.",
			api.FormatBytes(l.MemoryBytes), err))
	}
	if err := m.Unsupported(cgroup.PIDs); l.PIDs > 0 && err != nil {
		all = append(all, fmt.Sprintf("limits.pids (%d) is not enforced, and a replica may start as many processes and threads as the gateway's user may: %v.", l.PIDs, err))
	}
	if err := m.Unsupported(cgroup.CPU); l.CPUMillis > 0 && err != nil {
		all = append(all, fmt.Sprintf("limits.cpu (%s) is not enforced, and a replica takes what processor time it can get: %v.",
			strconv.FormatFloat(float64(l.CPUMillis)/1000, 'g', -1, 64), err))
	}
	return all
}

// confined makes the cgroup of a launch, nil if it needs none, and returns the limits for its single processes. The
// caller removes the group.
func (r *Runtime) confined(l containers.Launch) (*cgroup.Group, containers.Limits, error) {
	limits := l.Limits
	if !grouped(limits) {
		return nil, limits, nil
	}
	m := r.cgroups()
	if memory := uint64(max(0, limits.MemoryBytes)); memory > 0 && m.Unsupported(cgroup.Memory) != nil {
		if limits.DataBytes == 0 || limits.DataBytes > memory {
			limits.DataBytes = memory
		}
	}
	grouped := limits
	if limits.PIDs > 0 && l.Isolation.Level != containers.IsolateNone {
		grouped.PIDs += launcherTasks
	}
	group, err := m.Create(l.Model.String(), grouped)
	if err == nil && l.Quiet {
		if err = group.SetQuiet(true); err != nil {
			group.Remove()
		}
	}
	if err != nil {
		return nil, limits, err
	}
	return group, limits, nil
}

// explain adds what a replica's cgroup recorded to its exit, unless the owner killed it.
func explain(exit containers.Exit, ev cgroup.Events, l containers.Limits, killed bool) containers.Exit {
	if killed || exit.Reason != "" || exit.Signal == 0 && exit.Code == 0 {
		return exit
	}
	if ev.OOMKills > 0 {
		exit.Cause = containers.OutOfMemory
	}
	memory := api.FormatBytes(l.MemoryBytes)
	switch byKernel := exit.Signal == int(syscall.SIGKILL); {
	case ev.OOMKills > 0 && byKernel && ev.OverLimit:
		exit.Reason = fmt.Sprintf("ended by SIGKILL: it took more than its memory limit of %s (limits.memory); raise it, or find out what the model holds", memory)
	case ev.OOMKills > 0 && byKernel:
		exit.Reason = fmt.Sprintf("ended by SIGKILL: the host, or a cgroup around the gateway, ran out of memory, while the replica was within its memory limit of %s (limits.memory); "+
			"run fewer replicas, or give the host more", memory)
	case ev.OOMKills > 0:
		exit.Reason = fmt.Sprintf("%s, after the kernel had killed %d of its processes for memory: its limit is %s (limits.memory); raise it, or find out what the model holds",
			exit, ev.OOMKills, memory)
	case ev.PIDsRefused > 0:
		exit.Reason = fmt.Sprintf("%s, after new processes or threads had been refused %d times: its limit is %d (limits.pids)", exit, ev.PIDsRefused, l.PIDs)
	}
	return exit
}
