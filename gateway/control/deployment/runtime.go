package deployment

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/containers"
	"go.uber.org/zap"
)

// sweepWithin bounds the search for replicas that an earlier life of this gateway left.
const sweepWithin = time.Minute

// FollowDeclared tells the runtime what follows from all versions that are declared: which zygotes should be there before they
// are needed, and, once, that replicas of an earlier life of the gateway are to be removed. background runs work that the end of
// the gateway waits for; life ends with the gateway.
func (h *Host) FollowDeclared(life context.Context, all iter.Seq[*Deployment], background func(func())) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.preload(all)
	h.sweep(life, all, background)
}

// sweep removes containers that an earlier life left, as soon as a model with an image is declared.
func (h *Host) sweep(life context.Context, all iter.Seq[*Deployment], background func(func())) {
	r, ok := h.Runtime.(interface{ Sweep(context.Context) error })
	if !ok || h.swept {
		return
	}
	for d := range all {
		if d.Spec().Run.Image == "" {
			continue
		}
		h.swept = true
		background(func() {
			ctx, cancel := context.WithTimeout(life, sweepWithin)
			defer cancel()
			if err := r.Sweep(ctx); err != nil && life.Err() == nil {
				h.Log.Warn("containers of an earlier gateway, if there are any, are not removed yet", zap.Error(err))
			}
		})
		return
	}
}

// preload tells the runtime which modules the declared models preload, so that their zygotes are there before they are needed.
func (h *Host) preload(all iter.Seq[*Deployment]) {
	r, ok := h.Runtime.(interface{ Preload([]containers.Launch) })
	if !ok {
		return
	}
	kinds := map[string]*Deployment{} // thousands of models may share a few
	for d := range all {
		if d.preloads != "" {
			kinds[d.preloads] = d
		}
	}
	same := len(kinds) == len(h.preloads)
	for kind := range kinds {
		same = same && h.preloads[kind]
	}
	if same {
		return
	}
	var launches []containers.Launch
	h.preloads = make(map[string]bool, len(kinds))
	for kind, d := range kinds {
		h.preloads[kind] = true
		spec := d.Spec()
		launches = append(launches, containers.Launch{Model: d.id, Dir: d.dir(), Command: h.command(spec), Preload: spec.Preload, Env: environment(spec)})
	}
	r.Preload(launches)
}

// preloadKind names what decides which zygote a version's replicas fork from; empty: none.
func (h *Host) preloadKind(spec *api.ModelSpec) string {
	if len(spec.Preload) == 0 {
		return ""
	}
	env := environment(spec)
	slices.Sort(env)
	return fmt.Sprintf("%q", [][]string{h.command(spec)[:1], spec.Preload, env})
}

// unenforced says which of the version's limits the runtime cannot enforce on this host.
func (d *Deployment) unenforced() []string {
	r, ok := d.h.Runtime.(interface {
		Unenforced(containers.Limits) []string
	})
	if !ok || d.Spec().Run.Image != "" { // a container engine enforces all of them
		return nil
	}
	return r.Unenforced(limitsOf(d.Spec()))
}
