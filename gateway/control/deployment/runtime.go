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

// CheckRuntime logs whether loading replicas can take time from those that serve.
func (h *Host) CheckRuntime() {
	q, ok := h.Runtime.(containers.QuietReporter)
	if !ok {
		h.Log.Info("the runtime does not report whether replicas that are loaded while others serve have a lower priority than these")
	} else if err := q.QuietUnsupported(); err != nil {
		h.Log.Warn("replicas that are loaded while others serve have the same priority as these", zap.Error(err))
	}
}

// Preloaded are the processes that hold preloaded modules.
func (h *Host) Preloaded() []int {
	if p, ok := h.Runtime.(containers.Preloader); ok {
		return p.Zygotes()
	}
	return nil
}

// FollowDeclared tells the runtime what follows from all versions that are declared: which zygotes should be there before they
// are needed, and, once, that replicas of an earlier life of the gateway are to be removed. background runs work that the end of
// the gateway waits for; life ends with the gateway.
func (h *Host) FollowDeclared(life context.Context, all iter.Seq[*Deployment], background func(func())) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.preload(all)
	h.sweep(life, all, background)
}

// lacks logs, once for each capability, that a model needs what its runtime cannot do. Its caller holds h.mu.
func (h *Host) lacks(capability, message string, id api.ModelID) {
	if !h.lacking[capability] {
		if h.lacking == nil {
			h.lacking = map[string]bool{}
		}
		h.lacking[capability] = true
		h.Log.Warn(message, zap.Stringer("model", id))
	}
}

// sweep removes containers that an earlier life left, as soon as a model with an image is declared.
func (h *Host) sweep(life context.Context, all iter.Seq[*Deployment], background func(func())) {
	if h.swept {
		return
	}
	for d := range all {
		if d.Spec().Run.Image == "" {
			continue
		}
		h.swept = true
		if _, ok := containers.As[containers.Sweeper](h.Runtime, d.launch()); !ok {
			h.lacks("sweep", "containers that an earlier life of the gateway may have left are not removed: the runtime cannot find them", d.id)
		}
		if sweeper, ok := h.Runtime.(containers.Sweeper); ok {
			background(func() {
				ctx, cancel := context.WithTimeout(life, sweepWithin)
				defer cancel()
				if err := sweeper.Sweep(ctx); err != nil && life.Err() == nil {
					h.Log.Warn("containers of an earlier gateway, if there are any, are not removed yet", zap.Error(err))
				}
			})
		}
		return
	}
}

// preload tells the runtime which modules the declared models preload, so that their zygotes are there before they are needed.
func (h *Host) preload(all iter.Seq[*Deployment]) {
	kinds := map[string]*Deployment{} // thousands of models may share a few
	for d := range all {
		kind := d.preloads
		if kind != "" && d.Spec().Run.Image != "" { // a container that waits has the version's files
			kind += " " + d.Digest() + " " + d.ImageDigest()
		}
		if kind != "" {
			kinds[kind] = d
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
		l := d.launch()
		launches = append(launches, l)
		if _, ok := containers.As[containers.Preloader](h.Runtime, l); !ok {
			h.lacks("preload", "replicas of models that declare preload import their modules at each start: the runtime cannot preload", d.id)
		}
	}
	if p, ok := h.Runtime.(containers.Preloader); ok {
		p.Preload(launches)
	}
}

// preloadKind names what decides which zygote a version's replicas fork from; empty: none.
func (h *Host) preloadKind(spec *api.ModelSpec) string {
	isolation := isolationOf(spec)
	if len(spec.Preload) == 0 || isolation.Level == containers.IsolateStrict { // a strict replica is not forked
		return ""
	}
	env := environment(spec)
	slices.Sort(env)
	var owner []string
	if len(secretNames(spec)) > 0 { // other models must not read its secrets
		owner = []string{spec.ID().String()}
	}
	if ownPython(spec) && containers.HasRequirements(spec.Dir) { // and so an environment that others need not have
		owner = append(owner, spec.Dir)
	}
	if spec.Run.Image != "" { // a container waits for the next replica of one version
		return fmt.Sprintf("%v %q %v", spec.ID(), [][]string{{spec.Run.Image}, h.command(spec), spec.Preload, env}, limitsOf(spec))
	}
	return fmt.Sprintf("%q %v", [][]string{h.command(spec)[:1], spec.Preload, env, owner}, isolation)
}

// launch is what a runtime knows of the version's launches before there is one. The directory of a container is the one that place
// returns, because a container that waits becomes a replica.
func (d *Deployment) launch() containers.Launch {
	spec, dir := d.Spec(), d.dir()
	if store := d.h.Snapshots; store != nil && spec.Run.Image != "" && spec.Dir != "" {
		if kept, ok := store.Place(d.Digest()); ok {
			dir = kept
		}
	}
	return containers.Launch{Model: d.id, Dir: dir, Command: d.h.command(spec), Image: spec.Run.Image, ImageDigest: d.ImageDigest(), Preload: spec.Preload, Env: environment(spec), Secret: secretNames(spec), Limits: limitsOf(spec), Isolation: isolationOf(spec), Environment: ownPython(spec)}
}

// unenforced says which of the version's limits are not enforced here, or may not be.
func (d *Deployment) unenforced() (all []string) {
	l := d.launch()
	if r, ok := containers.As[containers.LimitReporter](d.h.Runtime, l); ok {
		return r.Unenforced(l.Limits)
	}
	for _, limit := range []struct {
		name string
		set  bool
	}{{"memory", l.Limits.MemoryBytes > 0}, {"cpu", l.Limits.CPUMillis > 0}, {"pids", l.Limits.PIDs > 0}} {
		if limit.set {
			all = append(all, fmt.Sprintf("limits.%s may not be enforced: the runtime that starts the replicas does not report which limits it enforces.", limit.name))
		}
	}
	return all
}
