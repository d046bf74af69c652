package api

import (
	"cmp"
	"fmt"
	"strings"
)

// RunSpec says how a worker is started.
type RunSpec struct {
	// Command is the program and its arguments. No shell interprets them. With an Image it replaces the image's own
	// command and may be empty.
	Command []string `json:"command,omitempty" field:"word"`
	// Image is a container image. If it is empty, the command runs as a process on the gateway's host.
	Image string `json:"image,omitempty"`
	// Isolation is IsolationAuto when empty, IsolationStrict or IsolationNone: what a process on the gateway's host is
	// kept apart from. A container has all of it.
	Isolation string `json:"isolation,omitempty"`
	// Network is NetworkNone when empty, or NetworkHost.
	Network string `json:"network,omitempty"`
	// Env is added to the worker's environment.
	Env map[string]EnvValue `json:"env,omitempty"`
}

// The levels of isolation, and the networks, of a worker.
const (
	// IsolationAuto takes every layer that the machine gives. The replica's status says which those are.
	IsolationAuto = "auto"
	// IsolationStrict refuses to start a replica that would lack a layer.
	IsolationStrict = "strict"
	// IsolationNone runs the worker as any process of the gateway's user.
	IsolationNone = "none"

	// NetworkNone leaves a loopback interface of the replica's own.
	NetworkNone = "none"
	NetworkHost = "host"
)

// isolation and network are the fields with their defaults.
func (r *RunSpec) isolation() string { return cmp.Or(r.Isolation, IsolationAuto) }
func (r *RunSpec) network() string   { return cmp.Or(r.Network, NetworkNone) }

func (r *RunSpec) validate(e *FieldErrors) {
	switch r.isolation() {
	case IsolationAuto, IsolationStrict:
	case IsolationNone:
		if r.Image != "" {
			e.add("run.isolation", "%q: a container is always isolated; it is for processes on the host", r.Isolation)
		}
	default:
		e.add("run.isolation", "%q: expected %q, %q or %q", r.Isolation, IsolationAuto, IsolationStrict, IsolationNone)
	}
	switch r.network() {
	case NetworkNone:
	case NetworkHost:
		if r.Image != "" {
			e.add("run.network", "%q: a container has no network; it is for processes on the host", r.Network)
		}
	default:
		e.add("run.network", "%q: expected %q or %q", r.Network, NetworkNone, NetworkHost)
	}
	switch {
	case r.Image != "":
		e.check("run.image", checkImage(r.Image))
	case len(r.Command) == 0:
		e.add("run.command", "is empty: expected the program that serves the model and its arguments, such as [python, model.py]")
	}
	if len(r.Command) > 0 && r.Command[0] == "" {
		e.add("run.command[0]", "is empty: expected a program")
	}
	if len(r.Command) > MaxArgs {
		e.add("run.command", "has %d arguments: expected at most %d", len(r.Command), MaxArgs)
	}
	total := 0
	for i, arg := range r.Command {
		total += len(arg)
		if !execText(arg) {
			e.add(fmt.Sprintf("run.command[%d]", i), "%q: expected UTF-8 text without NUL", arg)
		}
	}
	if len(r.Env) > MaxEnv {
		e.add("run.env", "has %d variables: expected at most %d", len(r.Env), MaxEnv)
		return
	}
	total += validateEnv(e, r.Env)
	if total > MaxRunBytes {
		e.add("run", "command and environment take %d bytes: expected at most %d", total, MaxRunBytes)
	}
}

// maxImageBytes is what registries accept: 255 for a name, 128 for a tag, plus a digest and a host name.
const maxImageBytes = 512

// checkImage reports why a string cannot be a reference to a container image. The container engine checks the rest.
func checkImage(s string) error {
	if len(s) > maxImageBytes {
		return fmt.Errorf("has %d bytes: expected at most %d", len(s), maxImageBytes)
	}
	for i := 0; i < len(s); i++ {
		c := s[i]
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || i > 0 && strings.IndexByte("._-/:@+", c) >= 0) {
			return fmt.Errorf("%q is not the name of an image: expected one such as digits:3 or registry.example.com/team/digits:3", s)
		}
	}
	return nil
}

// Check checks a command that is run without a model's declaration.
func (r RunSpec) Check() error {
	var e FieldErrors
	r.validate(&e)
	return e.err()
}
