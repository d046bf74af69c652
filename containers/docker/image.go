package docker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	cerrdefs "github.com/containerd/errdefs"
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

// image is the part of an image's configuration that is used here.
type image struct {
	user    string
	volumes map[string]struct{}
	command []string // its entry point and command
}

// image looks up an image, and pulls it if it is missing. Of several launches that need the same one, one pulls.
func (r *Runtime) image(ctx context.Context, l containers.Launch) (image, error) {
	for {
		var info client.ImageInspectResult
		answered := r.slow(l.Stderr)
		err := r.ask(ctx, callWithin, func(ctx context.Context) (err error) {
			info, err = r.engine.ImageInspect(ctx, l.Image)
			return err
		})
		answered()
		switch {
		case err == nil:
			if info.Config == nil {
				return image{}, nil
			}
			return image{user: info.Config.User, volumes: info.Config.Volumes, command: slices.Concat(info.Config.Entrypoint, info.Config.Cmd)}, nil
		case ctx.Err() != nil:
			return image{}, ctx.Err()
		case !cerrdefs.IsNotFound(err):
			return image{}, r.refused("look up the configuration", l.Image, err)
		}
		r.mu.Lock()
		under := r.pulls[l.Image]
		if under == nil {
			under = make(chan struct{})
			r.pulls[l.Image] = under
			r.mu.Unlock()
			err := r.pull(ctx, l)
			r.mu.Lock()
			delete(r.pulls, l.Image)
			close(under)
			r.mu.Unlock()
			if err != nil {
				return image{}, err
			}
			continue
		}
		r.mu.Unlock()
		logTo(l.Stderr, "pulling %s: waiting for another replica's pull", l.Image)
		select {
		case <-under: // if that failed, this launch tries and reports why
		case <-ctx.Done():
			return image{}, ctx.Err()
		}
	}
}

// Check implements [containers.Checker]: it looks for the image on this host, and in its registry as far as that answers everyone.
func (r *Runtime) Check(ctx context.Context, l containers.Launch) error {
	err := r.ask(ctx, callWithin, func(ctx context.Context) error {
		_, err := r.engine.ImageInspect(ctx, l.Image)
		return err
	})
	switch {
	case err == nil || ctx.Err() != nil:
		return ctx.Err()
	case !cerrdefs.IsNotFound(err):
		return r.refused("look up the configuration", l.Image, err)
	}
	err = r.ask(ctx, callWithin, func(ctx context.Context) error {
		_, err := r.engine.DistributionInspect(ctx, l.Image, client.DistributionInspectOptions{})
		return err
	})
	if err != nil && ctx.Err() == nil {
		return launchErrorf(err, "the image %s is not on this host, and its registry does not show it: %s", l.Image, engineMessage(err))
	}
	return ctx.Err()
}

// pull fetches an image. Credentials are the engine's; this package has none.
func (r *Runtime) pull(ctx context.Context, l containers.Launch) error {
	ctx, done := context.WithTimeout(ctx, pullWithin)
	defer done()
	began := time.Now()
	logTo(l.Stderr, "pulling %s: it is not on this host", l.Image)
	err := r.pulled(ctx, l, began)
	switch {
	case err == nil:
		logTo(l.Stderr, "pulled %s in %v", l.Image, time.Since(began).Round(100*time.Millisecond))
		return nil
	case errors.Is(ctx.Err(), context.Canceled):
		return ctx.Err()
	case ctx.Err() != nil:
		return fmt.Errorf("pull the image %s: not done within %v; docker pull %s fetches it by hand", l.Image, pullWithin, l.Image)
	case client.IsErrConnectionFailed(err), errors.Is(err, io.ErrUnexpectedEOF):
		r.lostContact()
		return r.unreachable(err)
	}
	return launchErrorf(err, "the image %s is not on this host, and the Docker engine at %s cannot pull it: %s. Check the name; "+
		"docker login and docker pull %s on this host fetch it from a registry that requires a password; docker load imports it from a file", l.Image, r.host, engineMessage(err), l.Image)
}

func (r *Runtime) pulled(ctx context.Context, l containers.Launch, last time.Time) error {
	stream, err := r.engine.ImagePull(ctx, l.Image, client.ImagePullOptions{})
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
			logTo(l.Stderr, "pulling %s: %v", l.Image, &p)
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
