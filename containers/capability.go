package containers

import "context"

// What follows are optional capabilities: a [Runtime] may have any of them, and works without. [As] finds out. The capabilities of
// an [Instance] are beside it ([Raiser]).

// Preloader is a Runtime that can have modules imported before the launch that needs them ([Launch].Preload). Without it such a
// launch imports everything itself.
type Preloader interface {
	// Preload announces which launches are to come: all of them; the last call counts. The runtime makes ready what these need and
	// gives up what none of them needs. It does not wait. Dir, Command, Image, Preload and Env of each launch matter.
	Preload(launches []Launch)
	// Zygotes returns the processes on this host that hold what was preloaded. They are no replicas, and take memory beside them.
	Zygotes() (pids []int)
}

// Sweeper is a Runtime whose replicas can outlive a gateway that is killed. Without it nothing is looked for: either nothing can be
// left over, or nothing is removed.
type Sweeper interface {
	// Sweep removes what earlier lives of this gateway have left. It returns when that is done, or says why it cannot.
	Sweep(ctx context.Context) error
}

// LimitReporter is a Runtime that knows which limits it enforces. Without it nobody can say whether limits hold.
type LimitReporter interface {
	// Unenforced says which of the limits do not hold for replicas that the runtime starts, a sentence each with the reason and
	// what to do; nil when all of them hold. It is called for every description of a model, so it must be cheap.
	Unenforced(l Limits) []string
}

// QuietReporter is a Runtime that knows whether it grants [Launch].Quiet. Without it a launch is quiet where its Instance is a Raiser.
type QuietReporter interface {
	// Quiet returns why launches that ask for it do not start quietly, and nil if they do.
	Quiet() error
}

// Chooser is a Runtime that passes each launch on to another one, as package mux does.
type Chooser interface {
	// Chosen returns the Runtime that would start l; nil when none would.
	Chosen(l Launch) Runtime
}

// As returns the capability T of the runtime that would start l, and whether it has it. A Chooser is asked for that runtime: what
// one of its runtimes can do says nothing of another's launches.
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
