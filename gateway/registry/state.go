package registry

import (
	"strconv"

	"github.com/xebec-serving/xebec/api"
)

// states has the name of each state, the phase that users see, and the states that may follow.
var states = [...]struct {
	name  string
	phase api.VersionPhase
	next  []State
}{
	Declared: {"Declared", api.PhaseDeclared, []State{Loading}},
	// Rejected: the load was given up. Declared: it was unloaded before anything ran.
	Loading: {"Loading", api.PhaseLoading, []State{Validating, Draining, Rejected, Declared}},
	// Loading again: its replica died before it was available.
	Validating: {"Validating", api.PhaseValidating, []State{Available, Rejected, Draining, Loading}},
	// A version that has lost all its replicas stays available and is troubled: it has passed, and queries wait for its
	// next replica.
	Available: {"Available", api.PhaseAvailable, []State{Draining}},
	// Available again: it is wanted again, and still has its replicas.
	Draining: {"Draining", api.PhaseDraining, []State{Declared, Available}},
	// Only when it is declared again: what failed is not retried over and over.
	Rejected: {"Rejected", api.PhaseRejected, []State{Declared}},
}

// String returns the state's name, for logs and messages.
func (s State) String() string {
	if int(s) >= len(states) {
		return "State(" + strconv.Itoa(int(s)) + ")"
	}
	return states[s].name
}

// Next reports whether a version may change from this state to another. Staying in a state is not a transition.
func (s State) Next(to State) bool {
	if int(s) >= len(states) {
		return false
	}
	for _, n := range states[s].next {
		if n == to {
			return true
		}
	}
	return false
}

// Phase returns the state as users see it.
func (s State) Phase() api.VersionPhase {
	if int(s) >= len(states) {
		return api.PhaseDeclared
	}
	return states[s].phase
}

// loaded reports whether something of a version runs or is about to, which Unload would end.
func (s State) loaded() bool { return s == Loading || s == Validating || s == Available }
