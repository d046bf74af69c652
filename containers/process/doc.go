// Package process runs replicas as processes of this host. It promises that a worker never outlives its gateway, however the
// gateway ends, and that nothing which a worker has started outlives the worker.
//
// # The reaper
//
// Linux offers two means against orphans, and neither is enough alone. A parent-death signal is sent when the *thread* that
// forked ends, which in a Go program is any time, and it covers a child but not the child's children. A process that closes
// everything down at its own end needs to reach its own end, which SIGKILL and the out-of-memory killer deny it. So a small
// process stands between the gateway and its workers: the reaper, which is this same program executed again.
//
//		gateway ══ socket pair ══ reaper (subreaper) ── worker (session, group, PDEATHSIG) ── its children
//		   ╚═════ stdout, stderr of each worker: pipes, straight to the gateway ═══════╝
//
//	  - The reaper starts the workers when asked, on locked threads that live as long as itself, each with PDEATHSIG = SIGKILL.
//	    If the reaper is killed, the workers die with it. The [Runtime] then looks for what they had started (below), reports
//	    every replica as exited, and starts a new reaper with the next launch.
//	  - The reaper is a child subreaper: whatever loses its parent below it, daemons included, becomes its child. It has one loop
//	    that waits for all children, so nothing stays a zombie.
//	  - The reaper watches its end of the socket pair. When the gateway's end closes, for whatever reason, it sends SIGTERM to all
//	    that is below it, waits a second at most, kills what is left until nothing is, and exits. It disregards the signals that
//	    terminals and service managers send to everyone, for it must be the last to go.
//	  - When a worker's first process ends, its process group is killed before the process is reaped, while the group's number
//	    cannot have been given to anyone else. Then go those of its descendants that have left the group: every process of a
//	    launch carries the variable XEBEC_LAUNCH in its environment, and the reaper looks for it among its descendants.
//
// A descendant that has both left its group and overwritten its environment is missed when its worker ends, and ends with the
// gateway, unless the launch has a cgroup (below). If gateway and reaper are killed at the same instant, workers die, but children that they have put into the
// background do not. A process that hangs inside the kernel dies when the kernel lets it.
//
// # What a worker gets
//
// A session and a process group of its own; stdin from /dev/null; pipes for stdout and stderr; no other descriptor, whatever the
// gateway or its parents have open; the environment of its launch over the variables that [Inherited] names; no_new_privs; no
// core dumps (they would hold clients' data); the limits of its launch. Signals have their defaults.
//
// The command is executed as it is, without a shell. An absolute path is taken as such; a relative one with a slash is looked up
// in the model's directory; a bare name in the model's directory first and then in PATH, as the worker sees it. argv[0] is
// the resolved path. What can be found wrong before anything starts is a [*LaunchError] that says what to do. A command that
// is a shell script should exec its last program: SIGTERM goes to the first process only, and when that ends, so does the rest.
//
// # Limits
//
// Open files and data are limits of each process (prlimit). A launch that limits memory, processor time or the number of processes gets a
// cgroup, where the machine lets the gateway make them (package cgroup): the reaper starts the worker in it, so that nothing the
// worker does comes before, kills all that is in it when the worker is killed or ends, and the gateway removes it. [containers.Exit] then
// tells in words that the kernel killed for memory, or that processes had been refused. Where cgroups cannot be had, memory is bounded
// process by process instead (RLIMIT_DATA), and the other two are not; [Runtime.Unenforced] says so, for the log and for who asks what a
// model gets. Without such limits no cgroup is made or looked for.
//
// # Quiet launches
//
// A replica that loads while others serve should take only the time that they leave over. A launch that is [containers.Launch].Quiet
// starts at the lowest CPU priority (niceness 19, and that of its session's autogroup), by a thread of the reaper's that is itself
// low, so that nothing of it ever is not. It stays so until the instance is raised: then the reaper gives every thread of its
// process group, and of its processes that have left the group, the gateway's own priority, and looks again until it finds none
// that is still low, for threads may be made meanwhile. Nothing else of it changes, and a launch that is not quiet is not touched.
//
// To raise a thread takes CAP_SYS_NICE or a fitting RLIMIT_NICE. The reaper tries that on a thread of its own when it starts, and
// where it may not, no thread is ever lowered: a replica that serves at the lowest priority would be worse. [Runtime.Quiet] says
// so, for the log. Input and output are not held back, but that the kernel's I/O schedulers follow niceness where they know it.
//
// # Zygotes
//
// A Python program with a machine-learning library imports for seconds before the first line of its own. A launch with a
// [containers.Launch].Preload is therefore forked from a zygote: a process of the same interpreter in the same environment that has
// imported these modules already (xebec._zygote, part of the worker binding, whose docstring has the messages and says what a
// forked worker sees). It is as if the program had been started, and had been quick: with scikit-learn 20 ms in place of 2 s.
//
//		gateway ══ socket pair (SOCK_SEQPACKET) ══ zygote
//		   ║   1. fork: stdout, stderr, and a pipe to wait at           │ forks twice; the process between ends, so that
//		   ║   2. it is process N                                       ▼ the reaper becomes the parent
//		   ╚═ 3. adopt N ══▶ reaper: mine, and marked so? limits, priority ── 4. go ──▶ worker
//
//	  - There is one zygote for each interpreter, list of modules and environment; the variables that differ from launch to launch
//	    (XEBEC_*, visible devices) do not count. [Runtime.Preload] says which are to be there before they are needed. There are 8
//	    at most: the one that has been idle longest, for a minute at least, makes room for another.
//	  - A forked worker is a worker: everything above holds for it. It sets its own parent-death signal once the reaper is its parent,
//	    and checks that it still is. Until it has been adopted it waits at a pipe whose other end goes from the gateway to the reaper:
//	    if either ends, so does the worker.
//	  - Strays are known by the environment that a process began with, and a forked one began with its zygote's. So a marker is written
//	    over the zygote's, in the memory that /proc/PID/environ shows, between the two forks: the worker is marked as its launch
//	    from its birth on. All markers have one length for that.
//	  - The end of a zygote ends nobody else. One that failed is tried again by the next launch after a while that doubles from 1 s to 5 min.
//	  - A launch that cannot be forked is started as any other, and its stderr begins with why: its zygote cannot import a module, has
//	    threads or open files that a fork does not take along, has imported for more than 30 s, has ended; or there is no room for it.
//	  - A zygote imports at the lowest priority, like a quiet launch, until a launch waits for it that is not quiet, and has the gateway's
//	    when it forks. It is no replica: no limits hold for it, and its memory (120 MiB with scikit-learn) counts as the gateway's. What
//	    a forked worker has not written to stays the zygote's.
//
// What a zygote says is not believed: the modules in it might say anything. The reaper adopts only a child of its own that leads its
// group and its session, is marked as the launch, and is no worker yet.
//
// # For programs that embed it
//
// Call [MaybeReaper] first in main, before flags, logging and listeners, and in the TestMain of every test that starts a
// Runtime. [New] refuses to work without. The program's package initialisation runs in the reaper too, so it should
// start nothing.
//
// Start reading at [Runtime], then link.go (the gateway's side), reaper.go (the other) and priority.go; limits.go
// joins both to package cgroup, zygotes.go and zygote.go fork.
package process
