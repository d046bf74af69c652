// Package node reports what this machine has for replicas, and what replicas really use. It promises the placement
// numbers that are no larger than what the kernel allows, each with its source, so that an operator can see why a model
// does not fit. Its readings never block, are bounded in size, and are never those of another process.
//
// # What there is
//
// [Detect] takes the least of the bounds:
//
//   - CPU: the processors that this process may run on (its affinity, which a cpuset sets too), and the CFS quota
//     divided by its period of the process's control group and of every visible one above it (cpu.max, or
//     cpu.cfs_quota_us and cpu.cfs_period_us).
//   - Memory: MemTotal, and the limits of the same groups (the lower of memory.max and memory.high, or
//     memory.limit_in_bytes), less a reserve for the gateway and the system: an eighth, at least 256 MiB, at most 4
//     GiB, and never more than half. Of 8 GiB that leaves 7 GiB, of 64 GiB 60 GiB, of 512 MiB 256 MiB.
//   - GPUs: the number of /dev/nvidia0, /dev/nvidia1 and so on. They are numbered like in CUDA, which counts the
//     visible ones from 0: a container that was given only /dev/nvidia3 has one GPU, number 0. If CUDA_VISIBLE_DEVICES
//     is set for the gateway, only those that it names.
//
// Control groups are found as the kernel documents it: /proc/self/cgroup names the process's group,
// /proc/self/mountinfo the mount point of its hierarchy and which part of it is mounted (cgroups(7),
// cgroup_namespaces(7)). Both versions may exist side by side.
//
// # What is used
//
// A [Meter] reads the processes of replicas: each first process with those that it started and that are still in its
// session. Memory is the proportional set size, Pss of /proc/PID/smaps_rollup: a page that several processes share,
// like the forks of a zygote, counts for each of them in part, so the sum over all replicas is what they use together.
// If that may not be read, it is RssAnon and RssShmem of /proc/PID/status, which count shared pages in full and no
// mapped files. CPU is utime and stime of /proc/PID/stat since the previous reading.
//
// A worked example: a replica of two processes with 40 and 60 MiB of their own that share 100 MiB has 200 MiB by Pss.
// Their CPU times are 1,200 and 300 ticks, and five seconds later 1,500 and 400: 400 ticks of 10 ms are 4 s of CPU in 5
// s, 800 thousandths of a core.
//
// A reading costs about 10 µs for each process of the machine (its stat). For processes of replicas the kernel also
// walks through their page tables for Pss, which takes about a millisecond for each GiB and delays their page faults.
// So one reading does this only for [MaxRollups] of them, in turn, and the others keep their last value.
//
// # What it never does, and its limits
//
// It starts nothing, signals nothing, and changes no control group. Memory used by other programs is not subtracted:
// configure less if others run beside the gateway. CPU time of a child that started and ended between two readings is
// not counted. A pid identifies a process only together with its start time, so a process with a reused pid starts
// over; the caller must know which process a pid means at its first reading. MIG slices of a GPU are not distinguished.
//
// Start reading at [Detect] and [Meter.Read].
package node
