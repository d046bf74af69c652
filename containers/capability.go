package containers

import (
	"context"
	"time"
)

// Optional capabilities. A [Runtime] may have any of them, and works without. Callers use [As] to find them. [Raiser],
// [IsolationReporter], [ImageReporter] and [Progresser] are capabilities of an [Instance].

// Preloader is a Runtime that can import modules before the launch that needs them ([Launch].Preload). Without it such
// a launch imports everything itself.
type Preloader interface {
	// Preload announces all launches to come. The last call counts. The runtime prepares what these launches need and
	// releases what none of them needs. It does not wait. It uses Model, Dir, Command, Image, Preload, Env and the
	// names in Secret of each launch, whose values may be missing.
	Preload(launches []Launch)
	// Zygotes returns the processes on this host that hold preloaded modules. They are not replicas, and their memory
	// comes on top of the replicas'.
	Zygotes() (pids []int)
}

// Sweeper is a Runtime whose replicas can outlive a gateway that is killed. A Runtime without it has nothing left over,
// or leaves it.
type Sweeper interface {
	// Sweep removes what earlier processes of this gateway have left. It returns when that is done, or says why it
	// cannot.
	Sweep(ctx context.Context) error
}

// LimitReporter is a Runtime that knows which limits it enforces. Without it, limits may or may not hold.
type LimitReporter interface {
	// Unenforced returns one sentence for each limit that does not hold for replicas of this runtime, with the reason
	// and what to do; nil if all hold. It is called for every description of a model, so it must be cheap.
	Unenforced(l Limits) []string
}

// QuietReporter is a Runtime that knows whether it grants [Launch].Quiet. Without it, a launch is quiet if its Instance
// is a Raiser.
type QuietReporter interface {
	// Quiet returns why quiet launches do not start quietly, nil if they do.
	QuietUnsupported() error
}

// Adviser is a Runtime that knows which errors of a model may come from what the runtime keeps its replicas from. Without
// it, errors are shown as they are.
type Adviser interface {
	// Advise returns one sentence for each restriction of the launch that text seems to be about, and what to do; nil if
	// there is none. It is called for every description of a replica with an error.
	Advise(l Launch, text string) []string
}

// Checker is a Runtime that can look for what a launch needs, without starting it. Without it, a launch shows what is missing.
type Checker interface {
	// Check says why a launch could not start: its directory, its program or its image is not there. nil does not promise that it
	// starts.
	Check(ctx context.Context, l Launch) error
}

// IsolationReporter is an Instance that knows what it is isolated by. Without it, nothing is said about isolation.
type IsolationReporter interface {
	// Isolation returns the names of the layers that the replica has, and one sentence for each that it asked for and
	// does not have, with the reason.
	Isolation() (layers, missing []string)
}

// ImageReporter is an Instance that knows which bytes its image has.
type ImageReporter interface {
	// Image returns them.
	Image() Image
}

// Progresser is an Instance that knows how much processor time it has got. Without it, a quiet one that gets none is raised later.
type Progresser interface {
	// Progress returns the processor time since the start of the replica's first process, and whether one of its threads could run now.
	// ok is false if that is not known.
	Progress() (ran time.Duration, runnable, ok bool)
}

// Image is the bytes of a container's image.
type Image struct {
	// ID is the image's id on this host. It is empty if it is not known.
	ID string
	// Digest is what [Launch].ImageDigest is for another launch to have these bytes.
	Digest string
}

// ImageResolver is a Runtime that can look up which bytes an image's name means now.
type ImageResolver interface {
	// Resolve looks for the image of a launch on this host. It pulls nothing.
	Resolve(ctx context.Context, l Launch) (Image, error)
}

// Chooser is a Runtime that passes each launch on to another Runtime, as package mux does.
type Chooser interface {
	// Chosen returns the Runtime that would start l; nil if there is none.
	Chosen(l Launch) Runtime
}

// As returns the capability T of the runtime that would start l, and whether that runtime has it. It follows Choosers,
// because the capabilities of one of their runtimes do not apply to launches of another.
func As[T any](r Runtime, l Launch) (capability T, ok bool) {
	for {
		c, chooses := r.(Chooser)
		if !chooses {
			capability, ok = r.(T)
			return capability, ok
		}
		r = c.Chosen(l)
	}
}
