// Package cgroup limits the memory, the processes and the processor time of a replica, with Linux control groups of
// version 2 or 1.
//
// # What it promises
//
// The caller starts replicas as processes. [Open] finds out where groups can be made, and for which resources; for a
// resource that cannot be limited, [Manager.Unsupported] returns a reason that an operator can act on. [Manager.Create] makes
// a [Group], whose [Places] a process is put into. Everything that the process starts is in the group too, whatever it
// does to its process group, its session and its environment, so that no process escapes [Places.Kill]. [Group.Events]
// says afterwards whether the kernel killed for memory. With a bound for all groups together, no replica and no number of them
// takes the memory that is left to the gateway.
//
// The package makes cgroups only below the gateway's own, changes no limit of that one, moves no process except the
// gateway and what the gateway has started, and never logs. A gateway without a limit or bound to enforce should not call
// Open; then nothing is made. A replica that runs as root can leave its group: cgroups protect against faults, not against an
// attacker.
//
// # Where groups are
//
//	<the gateway's cgroup>/xebec-<pid>-<life>-<device>/<model>-<number>           version 1: one for each replica that is limited
//	<the gateway's cgroup>/xebec-<pid>-<life>-<device>/replicas/<model>-<number>  version 2: the same
//	<the gateway's cgroup>/xebec-<pid>-<life>-<device>/gateway                    version 2: the gateway itself
//	<the gateway's cgroup>/xebec-<pid>-<life>-<device>-<number>                   version 1: the processor time of a group that yields
//
// A gateway holds a shared lock of its directory (flock(2)) as long as it lives. Open removes the directories whose
// exclusive lock it gets, and kills what is left in their groups. A pid would prove nothing: in another pid namespace it
// is another process, or none. A lock is the same in every namespace, if both processes see one file system, which has the
// number <device>; a directory with another one is left alone, as is one without a number, which earlier programs have made.
// <life> is a random number of the process, because gateways in two namespaces may have one pid.
//
// Version 1 has a hierarchy for each controller (or a few), and the gateway's cgroup may differ between them:
// Documentation/admin-guide/cgroup-v1. Version 2 has one hierarchy, with two rules that matter to users
// (Documentation/admin-guide/cgroup-v2.rst, "Top-down Constraint" and "No Internal Process Constraint"): a cgroup's
// children have a controller only if every cgroup above enables it for its children, and a cgroup that does so holds no
// processes itself. So the gateway moves into a leaf if it is alone in its cgroup, as systemd requires of a service
// with Delegate=yes. If other processes are there too, for instance a shell, it moves nothing, and Able says what to
// do. All three controllers are enabled at once. From then on, when processor time is short, each group has one share of it,
// and the gateway's leaf as many as there are processors.
//
// # How a process gets in
//
// A process that is put into its group after it has started may have forked by then, and its child would stay outside.
// [Places.Fork] avoids this. In version 2 the kernel creates the child in the group (clone3 with CLONE_INTO_CGROUP). In
// version 1 the forking thread enters the group before and leaves it after, because a child starts in the cgroup of the
// thread that created it: six writes of about ten microseconds each. While it is there it counts as a process, so the
// limit of processes is one higher until [Group.Started]. A process that another one has forked enters version 1 by itself, through
// [Places.Doors]. Where none of this is possible [Places.Add] moves the process. That takes about ten milliseconds, which the kernel
// spends waiting for every processor; a thread that enters by itself is spared it in version 1.
//
// # The limits
//
// Memory is what the group's processes hold in RAM, including shared memory and cached files; cached files are dropped
// first. There is no swap. When nothing can be freed the kernel kills: in version 2 the whole group, in version 1 its
// largest process. The directory of all groups has the bound: a group that exceeds it alone is killed, and of several that
// exceed it together one, which the kernel chooses by their OOM scores, mostly the largest. PIDs: the fork that exceeds the limit fails with EAGAIN. Processor time: CPUMillis = 1500 is 150 ms
// in every 100 ms, over all processors; a group that has used its quota waits for the next period. A group with a part in
// that controller is one unit for the scheduler, which compares it with what is beside it, and not the niceness of the threads inside with others'.
// Groups with a limit have a common directory with the weight of all of them together, so that ten busy
// groups beside one busy gateway thread get 10/11 of the processors rather than half.
//
// # Groups that yield
//
// [Manager.CreateYielding] and [Group.SetQuiet] are for replicas that load while others serve. What counts for the latency of those is not the
// share of a loading one, but how soon it leaves a processor when a serving thread wakes. The kernel preempts it at once only if one of the two
// units that it compares is idle (cpu.idle) and the other is not. So in version 1 a group that may yield is a directory beside the gateway:
//
//	<the gateway's cgroup>/xebec-<pid>-<life>-<device>-<number>
//
// with a lock of its own. It keeps that place with the normal weight, which is then that of a session beside it. In version 2 there is one
// hierarchy, and a replica that leaves the directory of all replicas would leave its bound of memory, so a quiet group is idle beside the other
// replicas' and not beside the gateway's leaf.
//
// Start reading at [Open] in manager.go. find.go reads /proc, group.go has the life of a group, place.go what the
// starting process needs.
package cgroup
