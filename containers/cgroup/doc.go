// Package cgroup limits what a replica may take of the host: memory, processes and processor time, by Linux's control groups of version 2 or 1.
//
// # What it promises
//
// To whoever starts replicas as processes: [Open] finds out where groups can be made, and for which resources; a resource that cannot be
// limited comes with a reason that a person can act on ([Manager.Able]). [Manager.Create] makes a [Group], whose [Places] a process is put
// into; what that starts is in there too, whatever it does to its process group, its session and its environment, so that nothing of it
// escapes [Places.Kill]. [Group.Events] tells afterwards whether the kernel killed for memory.
//
// It makes cgroups nowhere but below the one that the gateway itself is in, changes no limit of that, moves no process but the gateway and
// what the gateway has started, and never logs. A gateway that has no limits to enforce should not call Open, and then nothing is made.
// A replica that runs as root can leave its group: cgroups bound what goes wrong, not who is set on it.
//
// # Where groups are
//
//	<the gateway's cgroup>/xebec-<pid>-<start>/<model>-<number>     one for each replica that has limits
//	<the gateway's cgroup>/xebec-<pid>-<start>/gateway              version 2: the gateway itself
//
// Pid and start (in ticks since boot, proc_pid_stat(5)) name a process for good. Open removes the directories of those that do not live any
// more, and kills what is left in their groups.
//
// Version 1 has a hierarchy for each controller (or a few), and the gateway's cgroup may be another one in each: Documentation/admin-guide/
// cgroup-v1. Version 2 has one, with two rules of which users notice something (Documentation/admin-guide/cgroup-v2.rst, "Top-down Constraint" and
// "No Internal Process Constraint"): a controller is there for a cgroup's children if every cgroup above hands it down, and one that hands
// controllers down holds no processes itself. So the gateway moves into a leaf, if it alone is in its cgroup, as systemd asks of a service
// with Delegate=yes. If others are there too, a shell for instance, it moves nothing, and Able says what to do. All three controllers are handed
// down at once; from then on the processor is shared between the gateway's leaf and the groups as equals, where there is not enough for all.
//
// # How a process gets in
//
// A process that is put into its group after it has begun may have forked by then, and its child would stay outside for good. [Places.Fork]
// leaves no such moment. In version 2 the kernel puts the child there as it makes it (clone3 with CLONE_INTO_CGROUP). In version 1 the thread that forks
// goes in before and out after, for a child begins where the thread is that made it: six writes of some ten microseconds each. While it
// is in there it counts as a process, so the limit of processes is one higher until [Group.Started]. Where neither is allowed, and
// for a process that another one has forked, [Places.Add] does it afterwards.
//
// # The limits
//
// Memory: what the group's processes hold in RAM, shared memory and cached files included; cached files go first. No swap. When nothing can be
// freed the kernel kills: in version 2 the whole group, in version 1 its largest process. PIDs: the fork that is one too many fails with
// EAGAIN. Processor time: CPUMillis = 1500 is 150 ms in every 100 ms, over all processors; who has used his waits for the next
// period. A group that has a limit of processor time is a unit for the scheduler, which looks at no niceness across such units: [Group.Hush] is for
// replicas that are to give way. Their directory weighs as much as all of them together, so that ten busy groups beside one busy gateway
// thread get 10/11 of the processors rather than half.
//
// Start reading at [Open] in manager.go; find.go reads /proc, group.go is a group's life, place.go what its starter does.
package cgroup
