package docker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/distribution/reference"
	"github.com/moby/moby/api/types/jsonstream"
	"github.com/moby/moby/client"

	"github.com/xebec-serving/xebec/containers"
)

const (
	// pullWithin bounds one pull: ten gigabytes, the size of images with GPU libraries, at 50 Mbit/s.
	pullWithin = 30 * time.Minute //xebec:limit pull of an image
	// progressEvery is how often a pull reports its progress.
	progressEvery = 3 * time.Second
	// maxLayers bounds the layers tracked for a pull; the engine's own limit for an image is 127.
	maxLayers = 1024
)

// image is what is used here of an image.
type image struct {
	ref     string // by which the engine finds these bytes, or what the name means
	id      string
	digests []string // NAME@sha256:… in repositories
	user    string
	volumes map[string]struct{}
	command []string // its entry point and command
}

// digest returns what names the image's bytes from now on. One in the repository that name is of is preferred, because an engine that has lost
// the image, and every other one, can pull it.
func (i image) digest(name string) string {
	for _, d := range i.digests {
		if d == name || sameRepository(d, name) {
			return d
		}
	}
	return i.id
}

func sameRepository(a, b string) bool {
	x, err1 := reference.ParseNormalizedNamed(a)
	y, err2 := reference.ParseNormalizedNamed(b)
	return err1 == nil && err2 == nil && x.Name() == y.Name()
}

// references are the names by which the engine may have the image of a launch, the best first. The digest of an image whose name has moved on may be found
// without its repository only, and an operator may give a digest in the repository of the image without its name.
func references(l containers.Launch) []string {
	if l.ImageDigest == "" {
		return []string{l.Image}
	}
	name, bare, named := strings.Cut(l.ImageDigest, "@")
	if named {
		return []string{l.ImageDigest, bare}
	}
	if repository, err := reference.ParseNormalizedNamed(l.Image); err == nil {
		return []string{name, reference.FamiliarName(repository) + "@" + name}
	}
	return []string{name}
}

// lookUp looks for the image of a launch on this host. The error is [cerrdefs.IsNotFound] if it is not there.
func (r *Runtime) lookUp(ctx context.Context, l containers.Launch) (image, error) {
	var info client.ImageInspectResult
	var err error
	for _, ref := range references(l) {
		err = r.ask(ctx, callWithin, func(ctx context.Context) (err error) {
			info, err = r.engine.ImageInspect(ctx, ref)
			return err
		})
		if err == nil {
			img := image{ref: ref, id: fullID(info.ID), digests: info.RepoDigests}
			if info.Config != nil {
				img.user, img.volumes, img.command = info.Config.User, info.Config.Volumes, slices.Concat(info.Config.Entrypoint, info.Config.Cmd)
			}
			return img, nil
		}
		if !cerrdefs.IsNotFound(err) {
			break
		}
	}
	return image{}, err
}

// fullID is an image's id as it is written in full. Engines other than Docker's leave the algorithm out.
func fullID(id string) string {
	if id == "" || strings.Contains(id, ":") {
		return id
	}
	return "sha256:" + id
}

// image looks up an image, and pulls it if it is missing. Of several launches that need the same one, one pulls.
func (r *Runtime) image(ctx context.Context, l containers.Launch) (image, error) {
	for {
		answered := r.slow(l.Stderr)
		img, err := r.lookUp(ctx, l)
		answered()
		switch {
		case err == nil:
			return img, nil
		case ctx.Err() != nil:
			return image{}, ctx.Err()
		case !cerrdefs.IsNotFound(err):
			return image{}, r.refused("look up the configuration", l.Image, err)
		}
		ref := references(l)[0]
		if l.ImageDigest != "" && !strings.Contains(ref, "@") {
			return image{}, gone(err, l, "no registry is known to have it")
		}
		r.mu.Lock()
		under := r.pulls[ref]
		if under == nil {
			under = make(chan struct{})
			r.pulls[ref] = under
			r.mu.Unlock()
			err := r.pull(ctx, l, ref)
			r.mu.Lock()
			delete(r.pulls, ref)
			close(under)
			r.mu.Unlock()
			if err != nil {
				return image{}, err
			}
			continue
		}
		r.mu.Unlock()
		logTo(l.Stderr, "pulling %s: waiting for another replica's pull", ref)
		select {
		case <-under: // if that failed, this launch tries and reports why
		case <-ctx.Done():
			return image{}, ctx.Err()
		}
	}
}

// gone says that the bytes that a version has are not on this host any more.
func gone(err error, l containers.Launch, why string) error {
	return launchErrorf(err, "the image %s that %s serves with is gone from this host: the version is pinned to %s, and %s. A version never changes, so what %s means now does not take its place. "+
		"docker load or docker pull brings that image back; `xebec deploy --new-version`, or another version in the manifest, declares the one that the name means now", l.Image, l.Model, l.ImageDigest, why, l.Image)
}

// Resolve implements [containers.ImageResolver].
func (r *Runtime) Resolve(ctx context.Context, l containers.Launch) (containers.Image, error) {
	img, err := r.lookUp(ctx, l)
	if err != nil {
		return containers.Image{}, err
	}
	return containers.Image{ID: img.id, Digest: img.digest(l.Image)}, nil
}

// Check implements [containers.Checker]: it looks for the image on this host, and in its registry as far as that answers everyone.
func (r *Runtime) Check(ctx context.Context, l containers.Launch) error {
	_, err := r.lookUp(ctx, l)
	switch {
	case err == nil || ctx.Err() != nil:
		return ctx.Err()
	case !cerrdefs.IsNotFound(err):
		return r.refused("look up the configuration", l.Image, err)
	}
	ref := references(l)[0]
	if l.ImageDigest != "" && !strings.Contains(ref, "@") {
		return launchErrorf(err, "the image %s is not on this host: expected %s, or NAME@%s, which is pulled from its registry", ref, "the id of one that is", ref)
	}
	err = r.ask(ctx, callWithin, func(ctx context.Context) error {
		_, err := r.engine.DistributionInspect(ctx, ref, client.DistributionInspectOptions{})
		return err
	})
	if err != nil && ctx.Err() == nil {
		return launchErrorf(err, "the image %s is not on this host, and its registry does not show it: %s", ref, engineMessage(err))
	}
	return ctx.Err()
}

// pull fetches an image. Credentials are the engine's; this package has none.
func (r *Runtime) pull(ctx context.Context, l containers.Launch, ref string) error {
	ctx, done := context.WithTimeout(ctx, pullWithin)
	defer done()
	began := time.Now()
	logTo(l.Stderr, "pulling %s: it is not on this host", ref)
	err := r.pulled(ctx, l, ref, began)
	switch {
	case err == nil:
		logTo(l.Stderr, "pulled %s in %v", ref, time.Since(began).Round(100*time.Millisecond))
		return nil
	case errors.Is(ctx.Err(), context.Canceled):
		return ctx.Err()
	case ctx.Err() != nil:
		return fmt.Errorf("pull the image %s: not done within %v; docker pull %s fetches it by hand", ref, pullWithin, ref)
	case client.IsErrConnectionFailed(err), errors.Is(err, io.ErrUnexpectedEOF):
		r.lostContact()
		return r.unreachable(err)
	case l.ImageDigest != "":
		return gone(err, l, fmt.Sprintf("the Docker engine at %s cannot pull that: %s", r.host, engineMessage(err)))
	}
	return launchErrorf(err, "the image %s is not on this host, and the Docker engine at %s cannot pull it: %s. Check the name; "+
		"docker login and docker pull %s on this host fetch it from a registry that requires a password; docker load imports it from a file", l.Image, r.host, engineMessage(err), l.Image)
}

func (r *Runtime) pulled(ctx context.Context, l containers.Launch, ref string, last time.Time) error {
	stream, err := r.engine.ImagePull(ctx, ref, client.ImagePullOptions{})
	if err != nil {
		return err
	}
	var p progress
	for m, err := range stream.JSONMessages(ctx) {
		if err != nil {
			return err
		}
		if m.Error != nil {
			return m.Error
		}
		p.update(m)
		if time.Since(last) >= progressEvery {
			last = time.Now()
			logTo(l.Stderr, "pulling %s: %v", ref, &p)
		}
	}
	return nil
}

// progress tracks a pull.
type progress struct{ layers map[string]layer }

type layer struct {
	got, size int64
	done      bool
}

func (p *progress) update(m jsonstream.Message) {
	if m.ID == "" {
		return
	}
	if p.layers == nil {
		p.layers = map[string]layer{}
	}
	y, seen := p.layers[m.ID]
	if !seen && len(p.layers) >= maxLayers {
		return
	}
	switch m.Status {
	case "Pulling fs layer", "Waiting":
	case "Downloading":
		if m.Progress != nil {
			y.got, y.size = m.Progress.Current, max(y.size, m.Progress.Total)
		}
	case "Download complete", "Verifying Checksum", "Extracting":
		y.got = y.size
	case "Pull complete", "Already exists":
		y.got, y.done = y.size, true
	default: // "Pulling from library/name" has the tag as its id
		return
	}
	p.layers[m.ID] = y
}

func (p *progress) String() string {
	var done int
	var got, size int64
	for _, y := range p.layers {
		got, size = got+y.got, size+y.size
		if y.done {
			done++
		}
	}
	return fmt.Sprintf("%d of %d layers, %d of %d MiB", done, len(p.layers), got>>20, size>>20)
}

// logTo writes a line into a replica's log.
func logTo(w io.Writer, format string, args ...any) {
	if w != nil {
		_, _ = fmt.Fprintf(w, format+"\n", args...)
	}
}
