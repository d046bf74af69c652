package venv

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// watch measures a build that runs.
type watch struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	done   chan struct{}
}

// errMeasured ends a watch that has found nothing.
var errMeasured = errors.New("the build has ended")

// measure ends the context that it returns when the environment becomes too large.
func (b *builder) measure(ctx context.Context) *watch {
	w := &watch{done: make(chan struct{})}
	w.ctx, w.cancel = context.WithCancelCause(ctx)
	go func() {
		defer close(w.done)
		tick := time.NewTicker(measureEvery)
		defer tick.Stop()
		for {
			if err := b.within(); err != nil {
				w.cancel(err)
				return
			}
			select {
			case <-tick.C:
			case <-w.ctx.Done():
				return
			}
		}
	}()
	return w
}

// end stops measuring, and returns what was found.
func (w *watch) end() error {
	w.cancel(errMeasured)
	<-w.done
	if cause := context.Cause(w.ctx); cause != errMeasured && !errors.Is(cause, context.Canceled) {
		return cause
	}
	return nil
}

// within reports what an environment has too much of.
func (b *builder) within() error {
	var disk unix.Statfs_t
	if err := unix.Statfs(b.dir, &disk); err == nil && disk.Bavail*uint64(disk.Bsize) < minFree {
		return fmt.Errorf("less than %d MiB are free on the disk of %s", minFree>>20, b.dir)
	}
	var size int64
	files := 0
	return filepath.WalkDir(b.dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil // the installer has removed it
		}
		if info, err := d.Info(); err == nil && info.Mode().IsRegular() {
			size += info.Size()
		}
		switch files++; {
		case size > maxBytes:
			return fmt.Errorf("it has more than %d GiB", int64(maxBytes)>>30)
		case files > maxFiles:
			return fmt.Errorf("it has more than %d files", maxFiles)
		}
		return nil
	})
}
