package containers

import (
	"context"
	"io"
	"time"

	"github.com/xebec-serving/xebec/api"
)

// Launch is everything that a [Runtime] needs to start one replica.
type Launch struct {
	// Replica is the number of this launch. It is never reused within a [Set]: a replica that is restarted gets a new
	// number.
	Replica uint64
	Model   api.ModelID
	// Dir is the working directory, the model's own. It must be an absolute path.
	Dir string
	// Command is the program and its arguments, as passed to exec, without a shell. The runtime defines how a program
	// that is not an absolute path is found.
	Command []string
	// Image is a container image. If it is empty, the command runs as a process of this host. With an image, Command
	// replaces the image's own and may be empty.
	Image string
	// ImageDigest names the bytes of Image to run: an image's id, or NAME@sha256:…. If it is empty, Image says which. Messages name the image
	// by Image.
	ImageDigest string
	// Preload lists Python modules that the process should have imported before it runs Command, whose first word is a
	// Python interpreter. A [Preloader] can fork such a launch from a zygote; other runtimes start it as any other.
	Preload []string
	// Env is the worker's environment, "NAME=value" each; a later entry wins. A runtime adds only a short list of
	// harmless variables of its own, which Env overrides.
	Env []string
	// Secret names the variables of Env whose values no launch of another model may see. A [Preloader] shares nothing of such a
	// launch with other models, and its imports do not see the values.
	Secret []string
	Limits Limits
	// Isolation says what the replica is kept apart from. Containers have all of it.
	Isolation Isolation
	// Quiet asks for the lowest CPU priority at start, so that loading takes no time from serving replicas. An Instance
	// that grants it is a [Raiser]. Other runtimes start the replica at the gateway's own priority.
	Quiet bool
	// Environment says that the first word of Command is the gateway's own Python. A runtime may put the interpreter of an environment in its
	// place that has what the files in Dir require (package venv).
	Environment bool
	// Writable are directories that the launch may write to beside its temporary ones. Only programs of the gateway's own have any.
	Writable []string
	// Stdout and Stderr receive the worker's output. One goroutine at a time writes to each, and not after Exited was
	// closed. A Write must not block. If nil, the output is discarded.
	Stdout, Stderr io.Writer
}

// Isolation is what a launch asks for. The zero value asks for as much as the machine gives, without a network.
type Isolation struct {
	Level IsolationLevel
	// Network gives the replica the host's network. Otherwise it has a loopback interface of its own and no other.
	Network bool
	// Granted says that the launch is a program of the gateway's own: what forbids the network to models does not forbid it this one.
	Granted bool
}

// IsolationLevel says how much isolation a launch needs.
type IsolationLevel uint8

// The levels.
const (
	// IsolateAuto takes every layer that the machine gives. The Instance says which those are.
	IsolateAuto IsolationLevel = iota
	// IsolateStrict refuses to start where a layer is missing.
	IsolateStrict
	// IsolateNone starts the replica as a plain process of the gateway's user.
	IsolateNone
)

// Limits bound one replica. Zero means the gateway's own limit.
type Limits struct {
	// OpenFiles is the number of descriptors that one process may have open.
	OpenFiles uint64
	// DataBytes is how much private writable memory one process may map. Shared memory does not count.
	DataBytes uint64
	// CPUMillis is the processor time of the replica with everything it has started; 1500 is one and a half cores.
	// MemoryBytes is its memory, PIDs the number of its processes and threads.
	CPUMillis   int64
	MemoryBytes int64
	PIDs        int
}

// Runtime starts replicas. Many goroutines may call it. capability.go has what a Runtime can do besides: [Preloader],
// [Sweeper], [LimitReporter], [QuietReporter].
type Runtime interface {
	// Start returns when the replica runs, or says why it cannot. If ctx ends while Start waits, nothing is left
	// running. After Start has returned, ctx has no effect on the replica.
	Start(ctx context.Context, l Launch) (Instance, error)
	// Close ends every replica that still runs and returns when they are gone.
	Close() error
}

// Instance is one started replica.
type Instance interface {
	// PID is the process id on this host; 0 if there is none or it is unknown.
	PID() int
	// Exited is closed when the replica is gone and all its output was written.
	Exited() <-chan struct{}
	// Exit says how it ended. It is valid once Exited is closed.
	Exit() Exit
	// Signal asks the replica to end (term, so that it can finish what it holds) or kills it, with every process that
	// it has started. It returns nil if the replica is gone already.
	Signal(term bool) error
}

// Raiser is an Instance that can be started quietly.
type Raiser interface {
	// Raise gives the replica, with everything it has started, the gateway's own CPU priority. It returns when that is
	// done, or why it cannot be. It returns nil for a replica that was not started quietly, and for one that ends
	// meanwhile.
	Raise() error
}

// Lowerer is an Instance whose end can be made quiet.
type Lowerer interface {
	// Lower gives a replica that has nothing more to answer the lowest CPU priority, as far as that is possible. It does not wait.
	Lower()
}

// Exit is how a replica ended.
type Exit struct {
	// Code is the exit code; -1 if there is none.
	Code int
	// Signal is the Linux number of the signal that ended it; 0 if none did.
	Signal int
	// At is when the runtime learned of it.
	At time.Time
	// Reason is set if Code and Signal do not tell: the replica could not be started, was lost, or ended at one of its
	// limits.
	Reason string
	// Cause is OutOfMemory or Lost where the runtime knows that. Otherwise it is 0, and follows from the rest and from
	// what the supervisor did.
	Cause Cause
}

// Permanent is implemented by a Start error, and returns true, if trying again is useless until a person has changed
// something: for example a missing command or directory.
type Permanent interface {
	error
	Permanent() bool
}

// Interrupted is implemented by a Start error, and returns true, if the launch ended with a part of the runtime and not by
// its own fault: nothing is known of the model then. The next launch may succeed at once.
type Interrupted interface {
	error
	Interrupted() bool
}
