package process

import (
	"context"
	"errors"
	"fmt"

	"github.com/xebec-serving/xebec/containers"
)

// Preload says which launches are to come: all of them. The zygotes of those that have a Preload are started now, as many as there may
// be, so that no launch has to wait for the imports; zygotes that none of them needs are ended. It does not wait, and may be
// called as often as one likes: the last call counts. Of a launch only Dir, Command, Preload and Env matter. A launch that was
// not announced gets a zygote too, when it comes.
func (r *Runtime) Preload(launches []containers.Launch) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return
	}
	r.wanted = append([]containers.Launch{}, launches...) // not nil
	if !r.preloading {
		r.preloading = true
		r.zygotes.running.Go(r.preload)
	}
}

// preload does what Preload was called for, until there is nothing more to do.
func (r *Runtime) preload() {
	for {
		r.mu.Lock()
		launches := r.wanted
		r.wanted = nil
		r.preloading = launches != nil && !r.closed
		goOn := r.preloading
		r.mu.Unlock()
		if !goOn {
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
				continue // a launch will say so
			}
		}
		r.zygotes.want(k, specs)
	}
}

// specOf is the spec of a launch's zygote; false: it has none, or it cannot be started, of which its launch will tell.
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

// fork starts a launch from its zygote. Neither an instance nor an error: it is to be started as a process of its own, because it asks
// for nothing else, or because it could not be forked, and then its stderr says why.
func (r *Runtime) fork(ctx context.Context, k *link, path string, l containers.Launch) (*instance, error) {
	spec, ok := specOf(path, l)
	if !ok {
		return nil, nil
	}
	in, err := r.zygotes.fork(ctx, k, spec, path, l)
	if errors.Is(err, errStale) { // another takes its place
		in, err = r.zygotes.fork(ctx, k, spec, path, l)
	}
	var permanent *LaunchError
	switch {
	case err == nil:
		return in, nil
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case errors.Is(err, errRuntimeClosed), errors.As(err, &permanent):
		return nil, err
	}
	if l.Stderr != nil {
		fmt.Fprintf(l.Stderr, "xebec: this replica is not forked from a zygote, and imports everything itself: %v\n", err)
	}
	return nil, nil
}
