// Package process runs replicas as processes of this host. It promises that a worker never outlives its gateway,
// however the gateway ends, and that no process that a worker has started outlives the worker.
//
// # The reaper
//
// Linux offers two means against orphans, and neither suffices alone. A parent-death signal is sent when the *thread*
// that forked ends, which in a Go program can be any time, and it covers a child but not the child's children. Cleaning
// up at exit does not work for a process that is killed by SIGKILL or by the out-of-memory killer. So a small process
// stands between the gateway and its workers: the reaper, which is this same program executed again.
//
//	gateway ══ socket pair ══ reaper (subreaper) ── worker (session, group, PDEATHSIG) ── its children
//	   ╚═════ stdout, stderr of each worker: pipes, straight to the gateway ═══════╝
//
// The reaper's duties:
//
//   - The reaper starts the workers on request, on locked threads that live as long as the reaper, each with PDEATHSIG
//     = SIGKILL. If the reaper is killed, the workers die with it. The [Runtime] then looks for processes that the
//     workers had started (below), reports every replica as exited, and starts a new reaper with the next launch.
//   - The reaper is a child subreaper: every process below it that loses its parent, including daemons, becomes its
//     child. A single loop waits for all children, so there are no zombies.
//   - The reaper watches its end of the socket pair. When the gateway's end closes, for whatever reason, the reaper
//     sends SIGTERM to everything below it, waits at most a second, kills what is left until nothing is, and exits. It
//     ignores the signals that terminals and service managers send to all processes, because it must exit last.
//   - When a worker's first process ends, the reaper kills its process group before it reaps the process, while the
//     group's number cannot have been reused. Then it kills those descendants that have left the group: every process
//     of a launch has the variable XEBEC_LAUNCH in its environment, and the reaper looks for it among its descendants.
//
// A descendant that has both left its group and overwritten its environment is missed when its worker ends. It ends
// with the gateway, unless the launch has a pid namespace or a cgroup (below). If gateway and reaper are killed at the same instant,
// workers die, but children that they have put into the background do not. A process that hangs inside the kernel dies
// when the kernel allows it.
//
// # What a worker gets
//
// A session and a process group of its own; stdin from /dev/null; pipes for stdout and stderr; no other descriptor,
// whatever the gateway or its parents have open; the environment of its launch on top of the variables listed at
// [Inherited]; no_new_privs; no core dumps (they would hold clients' data); the limits of its launch; an OOM score that
// is 300 above the gateway's, so that the kernel ends a replica first when memory runs out. (Lowering the gateway's own
// score would need privilege: systemd's OOMScoreAdjust= does that.) Signals have their defaults.
//
// The reaper and the zygotes are not dumpable, and a gateway that calls [Conceal] is not either: a process of the same
// user cannot trace them, or read their memory, environment and descriptors.
//
// The command is executed without a shell. An absolute path is used as it is. A relative path with a slash is looked up
// in the model's directory. A bare name is looked up in the model's directory first and then in PATH, as the worker
// sees it. argv[0] is the resolved path. Errors that can be found before anything starts are returned as a
// [*containers.LaunchError] that says what to do. A command that is a shell script should exec its last program: SIGTERM goes to
// the first process only, and when that one ends, the others are killed.
//
// # Isolation
//
// A launch is isolated unless it says otherwise ([containers.Isolation]). The reaper then starts a launcher, this program
// executed once more, in namespaces of its own, and the launcher starts the worker:
//
//		reaper ── launcher (pid 1 of a pid namespace) ── worker (session, group) ── its children
//		  ╚══ socket pair: the request; which layers hold, and the worker's pid; its wait status ══╝
//
//	  - User, mount, pid, IPC and network namespaces. The worker sees its own processes, and a loopback interface. When its
//	    first process ends, the kernel kills everything in the pid namespace, whatever session and environment it has.
//	  - A view of the host's file system, under the same paths: read-only, without what [Config].Hidden lists. /tmp, /var/tmp,
//	    /dev/shm, TMPDIR and /run are its own. What the launch names (its directory, program, arguments, environment) is shown
//	    where it lies in one of these.
//	  - Landlock: it writes to its temporary directories and to devices, and signals its own processes only.
//	  - A filter that forbids the system calls of debuggers, mounts, namespaces, io_uring, BPF, keys and modules.
//	  - No capabilities. A replica of a root gateway has a user of its own, if other users may read the model and its
//	    program.
//	  - At most 4096 processes and threads, and a part of the memory that all replicas have together (below).
//
// A machine may refuse some of it: an old kernel, a container, a distribution that restricts user namespaces. Without
// namespaces, Landlock hides the files and forbids TCP instead, and the rest holds. [containers.IsolationReporter] says
// for each instance what it has, and what it lacks and why; a strict launch is refused instead. GPU devices stay usable.
//
// The launcher drops capabilities on the thread that forks the worker and keeps them on others, because the kernel
// translates a pid that a process reports for another one only if that has them.
//
// # Limits
//
// Open files and data are limits of each process (prlimit). A launch that limits memory, processor time or the number
// of processes gets a cgroup, if the machine lets the gateway make them (package cgroup), and so does every other launch if
// [Config].MemoryBytes bounds all replicas together. The reaper starts the worker
// inside it, so that nothing the worker does precedes it, and kills everything in it when the worker is killed or ends.
// The gateway removes it. [containers.Exit] then says in words that the kernel killed the worker for memory, or that
// processes were refused. Without cgroups, memory is bounded for each process instead (RLIMIT_DATA), and the other two
// are not limited; [Runtime.Unenforced] says so, for the log and for descriptions of a model. The bound of all is a layer of
// isolation: an instance has it or says why not, and a strict launch without it is refused. Without limits and bound no
// cgroup is made or looked for.
//
// # Quiet launches
//
// A replica that loads while others serve should use only the time that they leave over. A launch with
// [containers.Launch].Quiet starts at the lowest CPU priority, and stays there until the instance is raised. What
// matters is that a serving thread that wakes gets its processor at once, and three mechanisms give that, as far as the
// machine has them (priority.go):
//
//   - Where replicas have control groups, a quiet one yields as a whole (cpu.idle; see package cgroup). Raising it is
//     one write.
//   - Its threads have niceness 19, from a reaper thread that is itself low, and the policy SCHED_IDLE where the
//     scheduler does not group threads by session.
//   - Where it does, the group of its session has niceness 19.
//
// To raise an instance, the reaper gives every thread of its process group, and of its processes that have left the
// group, the gateway's own priority, and repeats until it finds no low thread, because threads may be created
// meanwhile. Nothing else about it changes, and launches that are not quiet are not touched. [containers.Progresser]
// tells the supervisor whether a quiet instance gets any time.
//
// On a machine whose processors are never idle, the lowest priority was seen to give a launcher less than it needs within 30 s. So
// a quiet launch that has not begun after a second gets full priority, and so does the reaper's thread if a fork takes it long. A
// launch that still does not begin is killed, alone: the other replicas of the reaper live on. A replica that only has to end is
// lowered for two seconds at most, and not when it is killed or when everything ends.
//
// Raising a thread needs CAP_SYS_NICE or a sufficient RLIMIT_NICE. The reaper tries it on a thread of its own when it
// starts. If it fails, no thread is ever lowered, because a replica that serves at the lowest priority would be worse.
// [Runtime.QuietUnsupported] says so, for the log. Input and output are not held back, except where the kernel's I/O schedulers
// follow niceness.
//
// # Zygotes
//
// A Python program with a machine-learning library imports for seconds before its own first line. A launch with a
// [containers.Launch].Preload is therefore forked from a zygote: a process of the same interpreter in the same
// environment that has already imported these modules (xebec._zygote, part of the worker binding, whose docstring
// specifies the messages and says what a forked worker sees). The program runs as if it had been started normally, but
// faster: with scikit-learn in 20 ms instead of 2 s.
//
//	gateway ══ socket pair (SOCK_SEQPACKET) ══ zygote
//	   ║   1. fork: stdout, stderr, and a pipe to wait at           │ forks twice; the process between ends, so that
//	   ║   2. it is process N                                       ▼ the reaper becomes the parent
//	   ╚═ 3. adopt N ══▶ reaper: mine, and marked so? limits, priority ── 4. go ──▶ worker
//
// The rules for zygotes:
//
//   - There is one zygote for each interpreter, list of modules and environment; the variables that differ between
//     launches (XEBEC_*, visible devices) do not count. A model with secrets has a zygote of its own, whose imports do
//     not see them: a fork has what earlier requests left in the zygote's memory. [Runtime.Preload] says which zygotes will be needed. There are
//     at most 8. The one that has been idle longest, for at least a minute, is ended to make room for another.
//   - A forked worker is a worker: everything above holds for it. It enters its cgroups of version 1 by itself, because it
//     takes the reaper ten milliseconds to move it; the reaper checks that it is there. It sets its own parent-death signal once the reaper
//     is its parent, and checks that it still is. Until the reaper adopts it, it waits at a pipe whose other end goes
//     from the gateway to the reaper. If either ends, so does the worker.
//   - Strays are recognised by the environment that a process began with, and a forked process began with its zygote's.
//     So between the two forks the launch's marker is written over the zygote's, in the memory that /proc/PID/environ
//     shows: the worker has its launch's marker from the start. All markers have the same length for that.
//   - A zygote of isolated launches has namespaces, and its forks share them. They are children of its launcher, which
//     reports their ends to the reaper, and stays until the last one has ended. Its view has the host's /tmp, read-only,
//     where the models of its forks may lie. A strict launch is not forked.
//   - Isolated forks are kept from each other by a Landlock domain each, which they enter before they are adopted, and by a
//     /proc that shows to each only what it may trace (apart.go). They can neither look into, trace nor signal each other.
//   - The end of a zygote does not end other processes. A failed zygote is tried again by the next launch after a delay
//     that doubles from 1 s to 5 min.
//   - A launch that cannot be forked is started normally, and its stderr begins with the reason: its zygote cannot
//     import a module, has threads or open files that a fork does not preserve, has imported for more than 30 s, or has
//     ended; or there is no room for a zygote.
//   - A zygote imports at the lowest priority, like a quiet launch, until a launch that is not quiet waits for it. It
//     has the gateway's priority when it forks. It is no replica: no limits and no bound apply to it, and its memory (120 MiB with
//     scikit-learn) counts as the gateway's. Memory that a forked worker has not written to stays shared with the
//     zygote.
//
// A zygote's messages are not trusted, because the modules in it might send anything. The reaper adopts only a child of
// its own that leads its group and its session, has the launch's marker, and is no worker yet.
//
// # For programs that embed it
//
// Call [MaybeReaper] first in main, before flags, logging and listeners, and in the TestMain of every test that starts
// a Runtime. [New] returns an error without it. The program's package initialisation runs in the reaper and in each
// launcher too, so it should start nothing. Call [Conceal] too, unless another part of the program must be dumpable.
//
// Start reading at [Runtime], then link.go (the gateway's side), reaper.go (the other side) and priority.go. isolation.go
// decides what isolates a launch, isolate.go starts the launcher, sandbox.go is the launcher with view.go and restrict.go.
// limits.go
// connects both to package cgroup; zygotes.go, zygote.go and apart.go fork.
package process
