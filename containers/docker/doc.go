// Package docker runs replicas in containers of a Docker engine on this host. It promises that a replica sees nothing
// of the host except a socket of its own and its model's directory, stays within its limits, and leaves no container
// behind, however it, the engine or the gateway ends.
//
// # The container
//
// A [Runtime] makes one container for each launch, and removes it when it has ended:
//
//   - No network, no capabilities, no new privileges, the engine's seccomp profile, a read-only root. The user is the
//     image's if that is given by number and not root ("1000" means 1000:1000), else 65534:65534.
//   - Two mounts, both read-only: the socket that XEBEC_SOCKET names appears as /run/xebec/worker.sock, the model's
//     directory (Launch.Dir) as /model, where the command runs. File systems mounted below that directory are left out
//     where the engine cannot make them read-only (before API 1.44).
//   - /tmp, and every VOLUME that the image declares, are 64 MiB of memory each; /dev/shm has 16 MiB. Data in an
//     image's VOLUME is not visible: put it elsewhere.
//   - Limits.MemoryBytes or else [Config].MemoryBytes, without additional swap; Limits.CPUMillis; Limits.PIDs or else
//     512; OpenFiles, DataBytes; no core dumps. Config.MemoryBytes bounds each container by itself: the engine has no
//     bound for all of them together.
//   - XEBEC_GPUS=0,2 in the environment requests these devices from the engine; inside they are numbered from 0.
//   - Launch.Command replaces the image's entry point and command. An init runs in front of it, if the engine has one.
//
// Batches pass through memory that gateway and worker share, as without a container; the descriptors come over the
// socket. Therefore the engine must run on this host, under the same kernel as the gateway. The socket is a door of
// worker/local (worker.Expectation.Isolated), which no other process can reach.
//
// # The image
//
// Launch.Image says which image, and Launch.ImageDigest which bytes it has: an id or NAME@sha256:…. With a digest the name only appears in messages.
// The instance says which bytes its container was made from ([containers.ImageReporter]), as the engine reports them: a name may move between a look
// and the container. A digest is looked up as it is given; with a repository's name also without it, because the engine keeps an image whose name was
// removed by its digest alone; without a name also in the repository of Launch.Image. What is missing is pulled by its name and digest. An id cannot be
// pulled: the error says what is gone.
//
// # Containers that wait
//
// For a launch with modules to import (Launch.Preload) that was announced ([Runtime.Preload]), one container runs xebec._warm instead of
// the command: it imports and waits. Its mount is a socket of this package, over which it gets the command, the environment and a
// descriptor of the replica's socket when a launch claims it. Then it is that launch's container in everything else. One that was made from other bytes
// than the launch's ImageDigest is not used. warm.go has it.
//
// # Supervision
//
// For each container one goroutine waits for its end through the engine, and another copies its output, which is
// complete when Exited is closed. The container's exit is reported like a process's: exit codes above 128 are signals,
// and for a replica that the kernel killed for memory the reason names limits.memory, or the bound that holds without.
//
// An engine that goes away does not break the workers' connections: replicas keep serving. So a broken connection to
// the engine does not count as an exit. Instead the package watches the container's first process, through a descriptor
// that was opened at its start: its end is the container's end, whatever happens to the engine. Meanwhile signals go
// directly to the process. When the engine is back, after attempts 100 ms to 2 s apart, the package looks up the
// container. If it has ended or is gone, the exit is reported with the engine's absence as the reason; otherwise it
// still runs (live-restore). Where the process is not visible, because the gateway is in another PID name space, the
// replica is given up after five minutes.
//
// # An engine that hangs
//
// Such an engine keeps its connections and accepts requests but answers none. So every request has a time limit: 15 s
// (callWithin) to look something up or to remove a container, a minute (createWithin) for the four that make one
// together, 30 minutes (pullWithin) for a pull, a minute (sweepWithin) for all orphans, 2 s (signalWithin) for a
// signal. Only the wait for a container's end has no limit, and the process is watched in parallel. What depends on the
// engine's answer:
//
//   - A container whose process has ended is over. The engine has 3 s (reportWithin) to report the exit code. After
//     that the code is unknown, and the container is removed at the next contact.
//   - A signal that the engine does not accept goes to the process.
//   - A replica that cannot be ended, because its process is not visible either, depends on the engine: Signal returns
//     an error, which [containers.Set] reports, and Close gives it up after some seconds.
//   - A launch that waits says so in the replica's log after 2 s, and fails with the engine's name. When it is
//     cancelled, a request that the engine may have received has 5 s left (givenUpWithin). Launches that wait together
//     share one answer.
//
// For example: the engine stops, and a replica's process is killed 1 s later. The replica is reported gone at 4 s. The
// launch that replaces it logs at 6 s that it waits for the engine, and fails at 19 s, when the next attempt is due.
//
// # Orphans
//
// Each container has labels: the gateway's name, and its process by boot, PID name space, pid and start time, which
// identify it uniquely. At the first contact with the engine, and after every outage, the package removes containers
// that have this process's labels but are unknown to it, and those of a process that is gone. For example: gateway
// process 4711, started 98 s after boot, is killed. The next one finds its containers, no process 4711 that began at
// tick 9800, and removes them. A process in another PID name space is not visible. Its containers are left alone unless
// it had this gateway's name ([Config].Owner) and they have ended, which honest workers do when their gateway is gone.
// A container without these labels is never touched.
//
// # What it never does
//
// It makes no network, no volume and no image, and removes no image. It has no registry passwords: an image that needs
// one must be pulled by hand (docker login, docker pull), and the error says so. It does not check whether a worker is
// connected.
//
// An error that needs an operator is a [*containers.LaunchError]: no such image, a directory that the container's user cannot
// read, limits that the engine refuses. An engine that does not answer is an ordinary error, because it may come back.
//
// Start reading at [Runtime].Start, then spec.go (the container's configuration), instance.go (a container's life), warm.go and
// ask.go (time limits).
package docker
