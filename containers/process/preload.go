package process

import (
	"context"
	"errors"
	"fmt"

	"github.com/xebec-serving/xebec/containers"
)

// Preload announces all launches that are to come. The zygotes of those with a Preload are started now, up to the
// maximum, so that no launch has to wait for the imports. Zygotes that none of them needs are ended. It does not wait.
// Each call replaces the last one. Only Model, Dir, Command, Preload, Env, Isolation and
// the names in Secret of a launch matter. A launch that was not
// announced gets a zygote when it arrives.
func (r *Runtime) Preload(launches []containers.Launch) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return
	}
	r.wanted = append([]containers.Launch{}, launches...) // not nil, even if launches is
	if !r.preloading {
		r.preloading = true
		r.zygotes.running.Go(r.preload)
	}
}

// preload processes the announced launches until there are no new ones.
func (r *Runtime) preload() {
	for {
		r.mu.Lock()
		launches := r.wanted
		r.wanted = nil
		r.preloading = launches != nil && !r.closed
		again := r.preloading
		r.mu.Unlock()
		if !again {
			return
		}
		var specs []zygoteSpec
		for _, l := range launches {
			if s, ok := r.specOf(l); ok {
				specs = append(specs, s)
			}
		}
		var k *link
		if len(specs) > 0 {
			var err error
			if k, err = r.reaper(); err != nil {
				continue // the launch will report it
			}
		}
		r.zygotes.want(k, specs)
	}
}

// specOf returns the spec of a launch's zygote. It returns false if the launch has none or cannot be started; the
// launch itself reports why.
func (r *Runtime) specOf(l containers.Launch) (zygoteSpec, bool) {
	if len(l.Preload) == 0 || len(l.Command) == 0 {
		return zygoteSpec{}, false
	}
	env, err := workerEnv("", r.environ, l.Env)
	if err != nil {
		return zygoteSpec{}, false
	}
	path, err := resolve(l.Dir, l.Command[0], lookupEnv(env, "PATH"))
	if err != nil {
		return zygoteSpec{}, false
	}
	return specOf(path, l)
}

// fork starts a launch from its zygote. If it returns neither an instance nor an error, the launch must be started as a
// process of its own: it wants no zygote, or could not be forked, in which case its stderr says why.
func (r *Runtime) fork(ctx context.Context, k *link, path string, l containers.Launch) (*instance, error) {
	spec, ok := specOf(path, l)
	if !ok {
		return nil, nil
	}
	in, err := r.zygotes.fork(ctx, k, spec, path, l)
	if errors.Is(err, errStale) { // a new zygote takes its place
		in, err = r.zygotes.fork(ctx, k, spec, path, l)
	}
	var permanent *containers.LaunchError
	switch {
	case err == nil:
		return in, nil
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case errors.Is(err, errRuntimeClosed), errors.As(err, &permanent):
		return nil, err
	}
	if l.Stderr != nil {
		fmt.Fprintf(l.Stderr, "xebec: this replica is not forked from a zygote and imports everything itself: %v\n", err)
	}
	return nil, nil
}
