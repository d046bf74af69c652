package registry

import "github.com/xebec-serving/xebec/api"

// State is the state of a version.
type State uint8

// The states. Declared is the zero value. [State.Next] has the legal transitions.
const (
	// Declared: known; nothing of it runs.
	Declared State = iota
	// Loading: it has been given replicas; none is ready.
	Loading
	// Validating: a replica is ready and is being warmed up and validated.
	Validating
	// Available: it may get traffic.
	Available
	// Draining: it gets no more traffic and answers what it has accepted.
	Draining
	// Rejected: it did not pass; nothing of it runs.
	Rejected
)

// Version is one version of a model as the registry sees it.
type Version struct {
	Name  string
	State State
	// Named means that a function names it as "model@version": it is wanted, whatever the policies say.
	Named bool
	// Gone means that no source declares it any more: it is to be unloaded and forgotten.
	Gone bool
	// Troubled means that it has no ready replica although it had one or should have one: it is still loading after
	// several failures, or has lost all its replicas. Untroubled versions are preferred.
	Troubled bool
	// Failing means that it has no ready replica because its starts fail. It is still tried, but "latest" does not count
	// it, so that an older version which works is loaded beside it. Under the resources policy it is not tried while an
	// older version works.
	Failing bool
	// Unproven means that it is known to have never served.
	Unproven bool
	// Asleep means that an available version has no replica while the serving one has. Queries should not wait for its
	// start: it is woken first and then takes over.
	Asleep bool
	// Resumable means that a draining version was available and still has its replicas, so it can be available again
	// immediately if it is wanted. A version without this flag drains completely and is then loaded again.
	Resumable bool
}

// Model is one model as the registry sees it.
type Model struct {
	// Versions are in any order, with distinct names.
	Versions []Version
	Traffic  *api.TrafficSpec // never nil
	// Default is the source's policy, which applies if Traffic has none.
	Default api.VersionPolicy
	// Spare means that where the source's policy is "latest", the version before the serving one is wanted too: see [Spare].
	Spare bool
	// Serving is the version that serves now: the last result of [Serving] that the gateway has published, or "" if
	// none. Under the availability policy it stays loaded while it is available.
	Serving string
}

// StepKind is a kind of step.
type StepKind uint8

// Kinds of steps.
const (
	// Load: Declared → Loading.
	Load StepKind = iota + 1
	// Unload: Loading, Validating or Available → Draining.
	Unload
	// Resume: Draining → Available, only if Resumable.
	Resume
)

// Action is the next step of one version.
type Action struct {
	Version string
	Do      StepKind
}
