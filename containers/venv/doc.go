// Package venv gives a model's replicas a Python environment with what the model's requirements.txt or pyproject.toml ask
// for. It is a [containers.Runtime] in front of the one that runs processes: before a launch with
// [containers.Launch].Environment it builds the environment, and puts its interpreter in the command's place.
//
// # What it promises
//
//   - An environment is built once. It lies in a directory that is named by a hash of everything that goes into it: the
//     requirements with the files that they name, the interpreter, the binding, the options. Launches that need the same one
//     at the same time wait for one build. Gateways that share the data directory while one takes over wait for each other,
//     by a lock.
//   - What is incomplete is never used: the last thing that is written is a marker. Without it the next build begins again.
//   - A build is bounded: its time, its bytes and files, what it leaves free on the disk, and how many run at once. It ends when
//     no launch waits for it any more.
//   - A build that fails says so with the last lines of the installer. It is tried again after a delay that doubles, and
//     until then launches fail at once with the same message.
//   - The time of a build is not the time of a start: Start returns when the process runs, and limits begin there.
//
// # How a build is confined
//
// The installer is a launch like any other: it has namespaces, a read-only view of the file system without the gateway's
// data and tokens, no capabilities and a filter of system calls, as far as the machine gives them. It also has the host's
// network, and may write to the environment. Its environment variables are those that every replica inherits, and those that say
// where packages come from. Only wheels are installed, so nothing of a package runs before the model does. With
// [Config].AllowBuild packages may be built from source, which runs their code with the network.
//
// # What an environment has
//
// What was asked for, and the worker binding: the gateway's own, with the C extension of the gateway's Python if that has
// the same one. The packages of the gateway's Python are not there.
//
// Start reading at [Runtime.Start]; requirements.go says what is read of a model's directory, build.go builds.
package venv
