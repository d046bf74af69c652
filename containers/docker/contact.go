package docker

import (
	"context"
	"strings"
	"time"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"
	"go.uber.org/zap"
)

// sweepWithin bounds the removal of orphans at one contact. The rest is removed at the next.
const sweepWithin = time.Minute

// isGone reports whether an error means that a container does not exist, or is being removed.
func isGone(err error) bool {
	return cerrdefs.IsNotFound(err) || cerrdefs.IsConflict(err) && strings.Contains(err.Error(), "removal of container")
}

// contact ensures that the engine answers, and, at the first contact or after an outage, that orphaned containers are
// removed. Of concurrent callers one tries, and all of them get its result.
func (r *Runtime) contact(ctx context.Context) error {
	if r.hostErr != nil {
		return r.hostErr
	}
	r.mu.Lock()
	attempts := r.attempts
	r.mu.Unlock()
	select {
	case r.contacting <- struct{}{}:
		defer func() { <-r.contacting }()
	case <-ctx.Done():
		return ctx.Err()
	}
	r.mu.Lock()
	inContact, failed := r.inContact, r.failed
	tried := r.attempts != attempts
	r.mu.Unlock()
	switch {
	case inContact:
		return nil
	case tried && failed != nil:
		return failed
	}
	err := r.reconnect(ctx)
	if ctx.Err() != nil {
		return ctx.Err() // a cancelled attempt says nothing to others
	}
	r.mu.Lock()
	r.attempts, r.failed = r.attempts+1, err
	r.mu.Unlock()
	return err
}

// reconnect makes contact. The caller holds contacting.
func (r *Runtime) reconnect(ctx context.Context) error {
	r.mu.Lock()
	r.inContact = true // reset if anything fails from here on
	r.mu.Unlock()
	err := r.ask(ctx, callWithin, func(ctx context.Context) error {
		_, err := r.engine.Ping(ctx, client.PingOptions{NegotiateAPIVersion: true})
		return err
	})
	if err != nil {
		r.lostContact()
		return r.unreachable(err)
	}
	if err := r.sweep(ctx); err != nil { // replicas can start anyway
		r.lostContact()
		r.log.Warn("orphaned containers may be left", zap.String("engine", r.host), zap.Error(err))
	}
	return nil
}

// lostContact makes the next contact check again.
func (r *Runtime) lostContact() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.inContact = false
}

// Sweep removes containers that gateways which are gone have left behind, mainly earlier processes of this gateway.
// Start does so at its first contact; a gateway that may not start a container for long calls Sweep. It returns an
// error if the engine does not answer.
func (r *Runtime) Sweep(ctx context.Context) error { return r.contact(ctx) }

// sweep removes the orphaned containers with our labels. It does not touch others.
func (r *Runtime) sweep(ctx context.Context) error {
	ctx, done := context.WithTimeout(ctx, sweepWithin)
	defer done()
	var list client.ContainerListResult
	err := r.ask(ctx, callWithin, func(ctx context.Context) (err error) {
		list, err = r.engine.ContainerList(ctx, client.ContainerListOptions{All: true, Filters: make(client.Filters).Add("label", labelGateway)})
		return err
	})
	if err != nil {
		return err
	}
	var failed error
	for _, c := range list.Items {
		o, ours := ownerOf(c.Labels)
		ended := c.State == container.StateExited || c.State == container.StateDead
		if !ours || r.knows(c.Names) || !r.me.abandoned(o, ended, hasEnded) {
			continue
		}
		if err := r.ask(ctx, callWithin, func(ctx context.Context) error { return r.remove(ctx, c.ID) }); err != nil {
			failed = err
			if r.silent.Load() {
				return err
			}
			continue
		}
		r.log.Info("removed an orphaned container", zap.String("container", strings.Join(c.Names, " ")), zap.String("model", c.Labels[labelModel]),
			zap.String("gateway", o.id), zap.Int("gateway_pid", o.pid))
	}
	return failed
}

func (r *Runtime) knows(names []string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, name := range names {
		if _, ok := r.known[strings.TrimPrefix(name, "/")]; ok {
			return true
		}
	}
	return false
}
