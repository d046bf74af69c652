package deployment

import (
	"context"
	"fmt"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/containers"
)

// A version of a model in a container is the bytes of its image, as another one is its files. The first replica that is ready says which: a name that
// moves later does not change the version.

// ImageDigest names the bytes of the image that the version's replicas run; empty: it has no image, or no replica has been ready yet.
func (d *Deployment) ImageDigest() string {
	if digest := d.Spec().ImageDigest; digest != "" {
		return digest
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.pinned.Digest
}

// pinImage makes the image of a replica the version's, if the replica has started and is ready, and no earlier one was. A replica that has other bytes than that
// one ends: both were started before the version had a digest, and the image's name moved between them.
func (d *Deployment) pinImage(replica uint64) {
	if d.Spec().Run.Image == "" {
		return
	}
	d.mu.Lock()
	l := d.launches[replica]
	if l == nil || l.ready.IsZero() || l.image.ID == "" || l.image.Digest == "" {
		d.mu.Unlock()
		return
	}
	declared := d.Spec().ImageDigest != ""
	if d.pinned.ID == "" && !declared {
		d.pinned, d.pinnedAt = l.image, time.Now()
	}
	is, pinned, beside := l.image, d.pinned, l.began.Before(d.pinnedAt)
	d.mu.Unlock()
	switch {
	case beside && is.ID != pinned.ID:
		go d.set.Kill(replica, containers.Stayed, fmt.Sprintf("the image %s changed while the version's first replicas started: the version has %s, and this replica %s", d.Spec().Run.Image, pinned.ID, is.ID))
	case !declared && d.h.Pinned != nil: // again for each replica until it is declared: a store may have been away
		d.h.Pinned(d.id, pinned.Digest)
	}
}

// ResolveImage returns the digest of what the name of a spec's image means now on this host; empty: that is not known.
func (h *Host) ResolveImage(ctx context.Context, spec *api.ModelSpec) string {
	l := containers.Launch{Model: spec.ID(), Dir: spec.Dir, Command: h.command(spec), Image: spec.Run.Image, Env: environment(spec)}
	resolver, ok := containers.As[containers.ImageResolver](h.Runtime, l)
	if !ok {
		return ""
	}
	image, err := resolver.Resolve(ctx, l)
	if err != nil {
		return ""
	}
	return image.Digest
}
