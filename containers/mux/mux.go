package mux

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/xebec-serving/xebec/containers"
)

// Route is a runtime and the launches that it starts.
type Route struct {
	// Name is the runtime's name, for messages.
	Name string
	// Takes reports whether a launch goes to Runtime; nil means every launch that no earlier route takes. It must give
	// the same answer for launches whose Image, Dir, Command, Env and Preload are equal. Many goroutines may call it.
	Takes   func(l containers.Launch) bool
	Runtime containers.Runtime
}

// Runtime passes launches on to the runtimes of its routes.
type Runtime struct{ routes []Route }

var (
	_ containers.Runtime       = (*Runtime)(nil)
	_ containers.Chooser       = (*Runtime)(nil)
	_ containers.Preloader     = (*Runtime)(nil)
	_ containers.Sweeper       = (*Runtime)(nil)
	_ containers.QuietReporter = (*Runtime)(nil)
)

// New returns a Runtime that starts a launch with the first route that takes it. It owns the runtimes from then on.
func New(routes ...Route) *Runtime { return &Runtime{slices.Clone(routes)} }

// Image takes launches that name a container image.
func Image(l containers.Launch) bool { return l.Image != "" }

// route returns the index of the route that takes l, -1 if there is none.
func (r *Runtime) route(l containers.Launch) int {
	return slices.IndexFunc(r.routes, func(route Route) bool { return route.Takes == nil || route.Takes(l) })
}

// Start implements [containers.Runtime].
func (r *Runtime) Start(ctx context.Context, l containers.Launch) (containers.Instance, error) {
	if i := r.route(l); i >= 0 {
		return r.routes[i].Runtime.Start(ctx, l)
	}
	return nil, &noRouteError{l, r.names()}
}

// noRouteError is a launch that no route takes. It is permanent: the model or the program must change.
type noRouteError struct {
	launch containers.Launch
	names  []string
}

func (e *noRouteError) Error() string {
	what := fmt.Sprintf("the command %q", e.launch.Command)
	if e.launch.Image != "" {
		what = fmt.Sprintf("the image %s", e.launch.Image)
	}
	return fmt.Sprintf("no runtime of this gateway starts %s: it has %q", what, e.names)
}

// Permanent implements [containers.Permanent].
func (e *noRouteError) Permanent() bool { return true }

func (r *Runtime) names() (all []string) {
	for _, route := range r.routes {
		all = append(all, route.Name)
	}
	return all
}

// Chosen implements [containers.Chooser].
func (r *Runtime) Chosen(l containers.Launch) containers.Runtime {
	if i := r.route(l); i >= 0 {
		return r.routes[i].Runtime
	}
	return nil
}

// Close implements [containers.Runtime].
func (r *Runtime) Close() error {
	var errs []error
	for _, route := range slices.Backward(r.routes) {
		errs = append(errs, route.Runtime.Close())
	}
	return errors.Join(errs...)
}

// Preload implements [containers.Preloader]. Each Preloader receives the launches that go to it, also if there are
// none.
func (r *Runtime) Preload(launches []containers.Launch) {
	own := make([][]containers.Launch, len(r.routes))
	for _, l := range launches {
		if i := r.route(l); i >= 0 {
			own[i] = append(own[i], l)
		}
	}
	for i, route := range r.routes {
		if p, ok := route.Runtime.(containers.Preloader); ok {
			p.Preload(own[i])
		}
	}
}

// Zygotes implements [containers.Preloader].
func (r *Runtime) Zygotes() (pids []int) {
	for _, route := range r.routes {
		if p, ok := route.Runtime.(containers.Preloader); ok {
			pids = append(pids, p.Zygotes()...)
		}
	}
	return pids
}

// Sweep implements [containers.Sweeper]. Every Sweeper sweeps, also if one before it fails.
func (r *Runtime) Sweep(ctx context.Context) error {
	var errs []error
	for _, route := range r.routes {
		if s, ok := route.Runtime.(containers.Sweeper); ok {
			errs = append(errs, s.Sweep(ctx))
		}
	}
	return errors.Join(errs...)
}

// Quiet implements [containers.QuietReporter]. It returns the reasons of all runtimes that have one.
func (r *Runtime) QuietUnsupported() error {
	var errs []error
	for _, route := range r.routes {
		if q, ok := route.Runtime.(containers.QuietReporter); ok {
			errs = append(errs, q.QuietUnsupported())
		}
	}
	return errors.Join(errs...)
}
