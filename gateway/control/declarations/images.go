package declarations

import (
	"context"
	"fmt"
	"strings"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/api/manifest"
	"github.com/xebec-serving/xebec/gateway/control/versions"
	"go.uber.org/zap"
)

// The bytes of a model in a container are those of its image, too. A manifest may name them; otherwise they are those of the first replica that is ready.

// Pinned stores the digest of the image that a version has from now on. It does not block.
//
// An image's id means something on one host only, so it is not stored where hosts share a store: there it holds as long as this gateway runs.
func (d *Declarations) Pinned(id api.ModelID, digest string) {
	if d.cfg.Background == nil {
		return
	}
	d.cfg.Background(func() {
		if d.pinWatched(id, digest) || d.shared() && ofHost(digest) {
			return
		}
		d.note(id, "the digest of a version's image", func(spec *api.ModelSpec) *string { return &spec.ImageDigest }, digest)
	})
}

// ofHost reports whether an image's digest is an id, without a repository that has it.
func ofHost(digest string) bool { return digest != "" && !strings.Contains(digest, "@") }

// takeImages gives each model of the set that names no digest of its image the one that the version has. Of a version that has never served, and of one that is to
// get the next number where that is necessary, what the image's name means now counts.
func (d *Declarations) takeImages(ctx context.Context, set *manifest.Set, have map[api.ModelID]*api.ModelSpec, newVersion bool) {
	for i := range set.Models {
		m := &set.Models[i]
		was := have[m.ID()]
		if m.ImageDigest != "" || was == nil || was.ImageDigest == "" || m.Run.Image != was.Run.Image {
			continue
		}
		m.ImageDigest = was.ImageDigest
		if !newVersion && !d.mayReplace(m.ID()) {
			continue
		}
		if now := d.cfg.Host.ResolveImage(ctx, m); now != "" {
			m.ImageDigest = now
		}
	}
}

// sameImage reports whether two digests of images may name the same bytes.
func sameImage(a, b string) bool {
	return (&api.ModelSpec{ImageDigest: a}).Fixed(&api.ModelSpec{ImageDigest: b}) == ""
}

// otherImage says that a version is declared with another digest of its image than it has.
func otherImage(was string, m *api.ModelSpec) error {
	return api.FieldErrors{{Path: "image_digest", Message: fmt.Sprintf("the version exists with other bytes of its image (%s, not %s): a version never changes once it has served; declare these as another version (`xebec deploy --new-version` takes the next one), or delete this one first", was, m.ImageDigest)}}
}

// keepImage lets a version keep the image that it has, where a manifest that is applied at the start names another one. What is different is a problem that is
// shown.
func (d *Declarations) keepImage(m, was *api.ModelSpec, changed map[api.ModelID]string) {
	if was == nil || was.ImageDigest == "" || m.ImageDigest == "" || m.Run.Image != was.Run.Image {
		return
	}
	if sameImage(was.ImageDigest, m.ImageDigest) || d.mayReplace(m.ID()) {
		return
	}
	err := otherImage(was.ImageDigest, m)
	changed[m.ID()] = fmt.Sprintf("model %s: %v; the version keeps the image that it has", m.ID(), err)
	d.cfg.Log.Error("the image of a version has changed: it keeps the one that it has", zap.Stringer("model", m.ID()), zap.Error(err))
	m.ImageDigest = was.ImageDigest
}

// A version of a watched directory is not in the store. Its image's digest is kept beside the copies of files, as the digest of its files is.

// imagePin names the image of a watched version in the store of snapshots.
func imagePin(m *api.ModelSpec) string {
	return pinName(m.ID(), "image "+m.Run.Image+" "+m.Dir)
}

// pinWatched keeps the digest of a watched version's image, and reports whether the version is one.
func (d *Declarations) pinWatched(id api.ModelID, digest string) bool {
	s := d.cfg.Catalog.Lock()
	v := s.Version(id)
	watched := v != nil && v.Source != versions.Applied
	var spec api.ModelSpec
	if watched {
		spec = *v.Spec()
	}
	d.cfg.Catalog.Unlock()
	store := d.cfg.Host.Snapshots
	if !watched || store == nil || store.Pinned(imagePin(&spec)) == digest {
		return watched
	}
	if err := store.Pin(imagePin(&spec), digest); err != nil {
		d.cfg.Log.Warn("the digest of a watched version's image is not kept yet: its next start takes it again", zap.Stringer("model", id), zap.Error(err))
	}
	return true
}

// keepWatchedImage gives a watched version the image that was kept for it, and returns what is wrong if its manifest names another one.
func keepWatchedImage(m *api.ModelSpec, kept string) (problem string) {
	if kept == "" {
		return ""
	}
	if !sameImage(kept, m.ImageDigest) {
		problem = fmt.Sprintf("model %s in %s: image_digest: the version has other bytes of its image (%s, not %s), and keeps them: a version never changes; put this one into a directory of another version", m.ID(), m.Dir, kept, m.ImageDigest)
	}
	m.ImageDigest = kept
	return problem
}
