package process

import (
	"fmt"
	"strconv"
	"syscall"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/containers"
	"github.com/xebec-serving/xebec/containers/cgroup"
)

// groupedBy reports whether limits need a cgroup. Without them a replica has one where there is a bound for all.
func groupedBy(l containers.Limits) bool { return l.CPUMillis > 0 || l.MemoryBytes > 0 || l.PIDs > 0 }

// cgroups returns the manager of the replicas' cgroups. It is opened on first use, so a Runtime without limits and bound
// does not touch cgroups at all.
func (r *Runtime) cgroups() *cgroup.Manager {
	r.limiting.Lock()
	defer r.limiting.Unlock()
	if r.manager == nil {
		r.manager = cgroup.Open(r.root, r.memory)
	}
	return r.manager
}

// Unenforced says which of a model's limits are not enforced for replicas started by this Runtime, why, what is done
// instead and what to do about it: a sentence for each, nil if all are enforced. It is cheap enough to call for every
// description.
func (r *Runtime) Unenforced(l containers.Limits) []string {
	if !groupedBy(l) {
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

// confinement is what bounds a launch from outside. Its owner removes the group.
type confinement struct {
	limits containers.Limits // of its single processes, and of its group
	group  *cgroup.Group     // nil: it needs none, or there is none
	// bound is the memory of all replicas together, 0 where the group is not bounded by that. unbounded says why not, as a
	// sentence; empty if it is, or need not be.
	bound     int64
	unbounded string
}

// confined makes the cgroup of a launch. A zygote is the gateway's own process and has none.
func (r *Runtime) confined(l containers.Launch, zygote bool) (confinement, error) {
	limits := l.Limits
	if zygote || !groupedBy(limits) && r.memory == 0 {
		return confinement{limits: limits}, nil
	}
	m := r.cgroups()
	c := confinement{bound: r.memory}
	if err := m.Unsupported(cgroup.Memory); r.memory > 0 && err != nil {
		c.bound, c.unbounded = 0, unbounded(err)
	}
	if memory := uint64(max(0, limits.MemoryBytes)); memory > 0 && m.Unsupported(cgroup.Memory) != nil {
		if limits.DataBytes == 0 || limits.DataBytes > memory {
			limits.DataBytes = memory
		}
	}
	grouped := limits
	if limits.PIDs > 0 && l.Isolation.Level != containers.IsolateNone {
		grouped.PIDs += launcherTasks
	}
	c.limits = limits
	create := m.Create
	if l.Quiet {
		create = m.CreateYielding
	}
	group, err := create(l.Model.String(), grouped)
	if err == nil && len(group.Places()) == 0 { // nothing can be limited
		return c, nil
	}
	switch {
	case err == nil:
		c.group = group
	case groupedBy(l.Limits): // limits that were asked for hold, or nothing starts
		return c, err
	default:
		c.bound, c.unbounded = 0, unbounded(err)
	}
	return c, nil
}

// unbounded says that a replica has no part in the bound of all.
func unbounded(why error) string {
	return fmt.Sprintf("Its memory is not bounded (no memory cgroup): %v. It may take what the machine has.", why)
}

// explain adds what a replica's cgroup recorded to its exit, unless the owner killed it.
func (c *confinement) explain(exit containers.Exit, ev cgroup.Events, killed bool) containers.Exit {
	if killed || exit.Reason != "" || exit.Signal == 0 && exit.Code == 0 {
		return exit
	}
	if ev.OOMKills > 0 {
		exit.Cause = containers.OutOfMemory
	}
	memory := api.FormatBytes(c.limits.MemoryBytes)
	byKernel := exit.Signal == int(syscall.SIGKILL)
	how := "ended by SIGKILL: "
	if !byKernel {
		how = fmt.Sprintf("%s, after the kernel had killed %d of its processes for memory: ", exit, ev.OOMKills)
	}
	switch {
	case ev.OOMKills > 0 && byKernel && ev.OverLimit:
		exit.Reason = how + fmt.Sprintf("it took more than its memory limit of %s (limits.memory); raise it, or find out what the model holds", memory)
	case ev.OOMKills > 0 && ev.OverBound && !ev.OverLimit:
		exit.Reason = how + fmt.Sprintf("all replicas together took more than %d MiB, which is what the machine, or the gateway's cgroup, has for them, and the kernel chose this one; "+
			"bound each model (limits.memory), or find out what the models hold", c.bound>>20)
	case ev.OOMKills > 0 && byKernel && c.limits.MemoryBytes == 0:
		exit.Reason = how + "the host, or a cgroup around the gateway, ran out of memory; run fewer replicas, bound each model (limits.memory), or give the host more"
	case ev.OOMKills > 0 && byKernel:
		exit.Reason = how + fmt.Sprintf("the host, or a cgroup around the gateway, ran out of memory, while the replica was within its memory limit of %s (limits.memory); "+
			"run fewer replicas, or give the host more", memory)
	case ev.OOMKills > 0 && c.limits.MemoryBytes == 0:
		exit.Reason = how + "the host, or a cgroup around the gateway, ran out of memory; bound each model (limits.memory), or give the host more"
	case ev.OOMKills > 0:
		exit.Reason = how + fmt.Sprintf("its limit is %s (limits.memory); raise it, or find out what the model holds", memory)
	case ev.PIDsRefused > 0:
		exit.Reason = fmt.Sprintf("%s, after new processes or threads had been refused %d times: its limit is %d (limits.pids)", exit, ev.PIDsRefused, c.limits.PIDs)
	}
	return exit
}
