// Package node says what the machine that the gateway runs on has for replicas, and what replicas really take of it. It promises those who place
// replicas numbers that are no larger than what the kernel would let them have, each with where it is from, so that a person
// can see why a model does not fit; and readings that never block, never grow without bound, and are never another process's.
//
// # What there is
//
// [Detect] takes the least of what binds:
//
//   - CPU: the processors that this process may run on (its affinity, which a cpuset sets too), and the CFS quota by its period of the control
//     group that it runs in and of every one above it that can be seen (cpu.max, or cpu.cfs_quota_us and cpu.cfs_period_us).
//   - Memory: MemTotal, and the limits of the same groups (the lower of memory.max and memory.high, or memory.limit_in_bytes), less a reserve
//     for the gateway and the system: an eighth, at least 256 MiB, at most 4 GiB, and never more than half. Of 8 GiB that leaves 7, of 64 it leaves
//     60, of 512 MiB 256.
//   - GPUs: as many as there are /dev/nvidia0, /dev/nvidia1 and so on. They are numbered as CUDA does it, which counts what a process can see from 0:
//     a container that was given only /dev/nvidia3 has one GPU, number 0. If CUDA_VISIBLE_DEVICES is set for the gateway, those that it names.
//
// Control groups are found as the kernel describes them: /proc/self/cgroup says which one the process is in, /proc/self/mountinfo where its
// hierarchy is mounted, and which part of it (cgroups(7), cgroup_namespaces(7)). Both versions may be there side by side.
//
// # What is taken
//
// A [Meter] reads the processes of replicas: each with those that it started and that are still in its session. Memory is the
// proportional set size, Pss of /proc/PID/smaps_rollup: pages that several processes share, as the forks of a zygote do, count in parts, so that the
// sum over all replicas is what they take together. Where that may not be read, RssAnon and RssShmem of /proc/PID/status stand in, which count
// shared pages in full and no mapped files. CPU is utime and stime of /proc/PID/stat since the reading before.
//
// A worked number: a replica of two processes with 40 and 60 MiB of their own that share 100 MiB has 200 MiB by Pss. Their clocks stood at 1,200
// and 300 ticks, five seconds later at 1,500 and 400: 400 ticks of 10 ms are 4 s of CPU in 5 s, 800 thousandths of a core.
//
// A reading costs some 10 µs for each process of the machine (its stat), and for those of replicas what the kernel needs to walk through their page
// tables for Pss, which is a millisecond for each GiB or so and holds up their page faults; so only [MaxRollups] of them are walked through in one
// reading, in turn, and the others keep what was measured last.
//
// # What it never does, and its limits
//
// It starts nothing, signals nothing, and changes no control group. A machine's memory that other programs take is not subtracted: say less where others live
// beside the gateway. What a child has used that has ended between two readings is not seen. A number names a process only together
// with its start time, so that a process that got the number of another begins anew; which process a number stands for when it is first
// read is the caller's to know. MIG slices of a GPU are not told apart.
//
// Start reading at [Detect] and [Meter.Read].
package node
