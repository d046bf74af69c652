// Package docker runs replicas in containers of a Docker engine on this host. It promises that a replica sees nothing of the host
// but a socket of its own and its model's directory, takes no more than its limits, and leaves no container behind, however it,
// the engine or the gateway ends.
//
// # The container
//
// A [Runtime] makes one container for each launch, and removes it when it has ended:
//
//   - No network, no capabilities, no new privileges, the engine's seccomp profile, a read-only root. The user is the image's if that
//     is one by number and not root ("1000" means 1000:1000), else 65534:65534.
//   - Two mounts, both read-only: the socket that XEBEC_SOCKET names appears as /run/xebec/worker.sock, the model's directory
//     (Launch.Dir) as /model, where the command runs. What is mounted below that directory is left out where the engine could not
//     make it read-only (before API 1.44).
//   - /tmp, and whatever the image declares as a VOLUME, are 64 MiB of memory each; /dev/shm has 16 MiB. An image whose VOLUME holds
//     data does not see it: put data elsewhere.
//   - Limits.MemoryBytes without swap beside it, Limits.CPUMillis, Limits.PIDs or else 512, OpenFiles, DataBytes; no core dumps.
//   - XEBEC_GPUS=0,2 in the environment asks the engine for these devices; inside they are numbered from 0.
//   - Launch.Command takes the place of the image's entry point and command. An init stands in front, where the engine has one.
//
// Batches pass through memory that gateway and worker share, as they do without a container: its descriptors come over the socket. That
// is why the engine must run on this host, under the kernel that the gateway runs under. The socket is a door of package
// worker/local (worker.Expectation.Isolated), which no other process can reach.
//
// # Who watches
//
// One goroutine for each container waits for its end through the engine, another copies its output, which has come in full when
// Exited is closed. The container's end is reported as a process's would be: exit codes beyond 128 are signals, and a replica that
// the kernel killed for memory is said to have reached limits.memory.
//
// An engine that goes away takes no worker's connection with it: replicas serve on. So an exit is not reported on the
// strength of a broken connection. Instead the container's first process is looked at, through a descriptor that was opened when it
// started: its end is the container's, whatever becomes of the engine. Signals go to it directly meanwhile. When the engine
// is back, after attempts 100 ms to 2 s apart, the container is looked up: it has ended or is gone, which is reported with the
// engine's absence as the reason, or it runs on (live-restore). Where the process cannot be seen, because the gateway is in another PID
// name space, the replica is given up after five minutes.
//
// # An engine that hangs
//
// It keeps its connections, takes requests, and answers none. So every request has a time that it may take: 15 s (callWithin) to look
// something up or to remove a container, a minute (createWithin) for the four that make one together, 30 minutes (pullWithin) for a pull, a
// minute (sweepWithin) for all that is left behind, 2 s (signalWithin) for a signal. The one without is the wait for a container's end, and
// beside that the process is watched. What depends on the engine's answer, and what not:
//
//   - A container whose process is gone has ended. The engine has 3 s (toldWithin) to say how; after that its exit code is not known, and
//     the container is left to the next contact.
//   - A signal that the engine has not taken goes to the process.
//   - A replica that cannot be ended, because its process is not seen either, is said to be in the engine's hands: the error of Signal is
//     what [containers.Set] says of it, and Close gives it up after some seconds.
//   - A launch that waits says so in the replica's log after 2 s, and fails with the engine's name. When nobody wants it any more, a
//     request that may have been heard has 5 s left (givenUpWithin). Launches that wait together hear one answer.
//
// For example: the engine stops, and a replica's process is killed 1 s later. The replica is reported gone at 4 s; the launch that takes
// its place logs at 6 s whom it waits for, and fails at 19 s, when the next attempt is due.
//
// # Orphans
//
// Each container bears labels: the gateway's name, and its process by boot, PID name space, number and start, which name it
// for good. When the engine is heard of, for the first time or again, containers are removed that bear this process's labels and are not
// known to it, or those of a process that is gone. For example: gateway process 4711, started 98 s after boot, is killed; the next one
// finds its containers, no process 4711 that began at tick 9800, and removes them. A process in another PID name space cannot be
// judged; its containers are left alone unless it bore this gateway's name ([Config].Owner) and they have ended, which honest workers
// do when their gateway is gone. A container without these labels is never touched.
//
// # What it never does
//
// It makes no network, no volume and no image, and removes no image. It has no registry's password: what cannot be pulled without
// one is pulled by hand (docker login, docker pull), and the error says so. It does not judge whether a worker is connected.
//
// What a launch needs a person for is a [*LaunchError]: no such image, a directory that the container's user cannot read, limits
// that the engine refuses. An engine that does not answer is an ordinary error, for it may come back.
//
// Start reading at [Runtime].Start, then spec.go (what is asked for), instance.go (a container's life) and ask.go (how long anything may take).
package docker
