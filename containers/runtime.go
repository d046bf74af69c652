package containers

import (
	"context"
	"io"
	"time"

	"github.com/xebec-serving/xebec/api"
)

// Launch is everything a [Runtime] needs to start one replica.
type Launch struct {
	// Replica names this launch. It is never used twice within a [Set]: a replica that is restarted gets a new number.
	Replica uint64
	Model   api.ModelID
	// Dir is the working directory: the model's own. It must be an absolute path.
	Dir string
	// Command is the program and its arguments, as it goes to exec: no shell sees it. How a program that is not an
	// absolute path is looked up is the runtime's to say.
	Command []string
	// Image is a container image; empty: the command runs as a process of this host. With an image Command takes the place of what
	// the image would run, and may be empty.
	Image string
	// Preload has Python modules that the process is to have imported before it runs Command, whose first word is a Python interpreter. A
	// runtime that can forks such a launch from a zygote; one that cannot starts it as any other.
	Preload []string
	// Env is the worker's environment, "NAME=value" each; a later entry wins. Beyond it a runtime passes on no more than
	// a short list of harmless variables of its own, and Env wins over those too.
	Env    []string
	Limits Limits
	// Quiet asks that the replica starts at the lowest CPU priority, so that its loading takes no time from those that serve.
	// An Instance that grants it is a [Raiser]; a runtime that cannot starts the replica at the gateway's own priority.
	Quiet bool
	// Stdout and Stderr take the worker's output. Each is written by one goroutine at a time, and not after Exited has
	// been closed; a Write must not block. Nil means that the stream is thrown away.
	Stdout, Stderr io.Writer
}

// Limits bound what one replica may take. Zero means: as the gateway itself.
type Limits struct {
	// OpenFiles is the number of descriptors that one process may have open.
	OpenFiles uint64
	// DataBytes is how much private writable memory one process may map. Shared memory does not count.
	DataBytes uint64
	// CPUMillis is how much processor time the replica, with all that it has started, may take: 1500 is one core and a half. MemoryBytes
	// is what it may hold, PIDs how many processes and threads it may have.
	CPUMillis   int64
	MemoryBytes int64
	PIDs        int
}

// Runtime starts replicas. It is called from many goroutines. What a Runtime can do besides is in capability.go: [Preloader],
// [Sweeper], [LimitReporter], [QuietReporter].
type Runtime interface {
	// Start returns when the replica runs, or says why it cannot. A ctx that ends while Start waits leaves nothing
	// running; once Start has returned, ctx means nothing to the replica.
	Start(ctx context.Context, l Launch) (Instance, error)
	// Close ends every replica that still runs and returns when they are gone.
	Close() error
}

// Instance is one started replica.
type Instance interface {
	// PID is the process id on this host, 0 where there is none to know.
	PID() int
	// Exited is closed when the replica is gone and all its output has been written.
	Exited() <-chan struct{}
	// Exit says how it ended. It is valid once Exited is closed.
	Exit() Exit
	// Signal asks the replica to end (term: it may finish what it holds) or ends it, with every process that it has
	// started. It returns nil when the replica is gone already.
	Signal(term bool) error
}

// Raiser is an Instance that can have been started quietly.
type Raiser interface {
	// Raise gives the replica, with all that it has started, the gateway's own CPU priority and returns when it has it, or
	// why it cannot have it. It returns nil for a replica that was not started quietly, and for one that ends meanwhile.
	Raise() error
}

// Exit is how a replica ended.
type Exit struct {
	// Code is the exit code, -1 when there is none.
	Code int
	// Signal is the number of the signal that ended it (Linux's numbers), 0 when none did.
	Signal int
	// At is when the runtime learned of it.
	At time.Time
	// Reason is set where Code and Signal do not tell: the replica could not be started, was lost sight of, or ended at one of its limits.
	Reason string
}

// Permanent is what a Start error implements, and answers with true, when trying again is hopeless until a person has
// changed something: no such command, no such directory.
type Permanent interface {
	error
	Permanent() bool
}
