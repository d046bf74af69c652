package registry

import "github.com/xebec-serving/xebec/api"

// State is where a version is in its life.
type State uint8

// The states; Declared is the zero value. [State.Next] has the legal steps.
const (
	// Declared versions are known, and nothing of them runs.
	Declared State = iota
	// Loading versions have been given replicas, none of which is ready.
	Loading
	// Validating versions have a ready replica, which is being warmed up and validated.
	Validating
	// Available versions may get traffic.
	Available
	// Draining versions get none any more, and answer what they have accepted.
	Draining
	// Rejected versions did not pass, and nothing of them runs.
	Rejected
)

// Version is one version of a model as the manager sees it.
type Version struct {
	Name  string
	State State
	// Named says that a function names it, as "model@version": it is wanted, whatever the policies say.
	Named bool
	// Gone says that no source declares it any more: it is to be unloaded and forgotten.
	Gone bool
	// Troubled says that it has no ready replica, although it had one or should have: it is loading after several failures, or has lost all it
	// had. A version that is not troubled is preferred.
	Troubled bool
	// Asleep says of an available version that it has no replica and the one that serves has: who is answered is not to wait for a start. It
	// is to be woken, and takes over then.
	Asleep bool
	// Resumable says of a draining version that it was available and has its replicas still, so that it can go back to that at once if it is
	// wanted again. Where it is never set, such a version is drained to its end and loaded anew.
	Resumable bool
}

// Model is one model as the manager sees it.
type Model struct {
	// Versions are in no particular order; no name is there twice.
	Versions []Version
	Traffic  *api.TrafficSpec // never nil
	// Default is what the model's source aspires to where Traffic says nothing.
	Default api.VersionPolicy
	// Serving is the version that serves now, as [Serving] has said and the gateway has taken up; empty: none has yet. Under the availability
	// policy what is here stays loaded while it is available.
	Serving string
}

// Do is a step that a version can be made to take.
type Do uint8

// The steps.
const (
	// Load: Declared → Loading.
	Load Do = iota + 1
	// Unload: Loading, Validating or Available → Draining.
	Unload
	// Resume: Draining → Available, only of what is Resumable.
	Resume
)

// Action is the next step of one version.
type Action struct {
	Version string
	Do      Do
}
