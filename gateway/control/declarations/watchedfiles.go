package declarations

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"sort"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/containers/snapshot"
	"github.com/xebec-serving/xebec/gateway/control/deployment"
	"github.com/xebec-serving/xebec/gateway/registry"
	"github.com/xebec-serving/xebec/gateway/registry/watch"
	"go.uber.org/zap"
)

// Versions of watched directories are their bytes, too. Nothing of them is in the store, so the digest that a version had when it was
// accepted is kept beside the copies of files, by its path: an edit is noticed after a restart as well.

// lookAgain is how many scans of a watched directory pass from one look at the files of accepted versions to the next.
const lookAgain = 10

// takenFiles are what a watched version's files were when it was accepted.
type takenFiles struct {
	dir    string
	digest string // empty: they cannot be a version's
	image  string // the digest of the version's image, where one is kept
	// imagePin is the name that it is kept under; empty: the version has no image.
	imagePin string
	// problem says why, or how they differ from what they are now.
	problem string
}

// pinName names a watched version in the store of snapshots.
func pinName(id api.ModelID, dir string) string {
	return fmt.Sprintf("%x", sha256.Sum256(fmt.Appendf(nil, "%q %q", id.String(), dir)))
}

// takeFiles takes the digests of the versions of a report, and keeps copies of their files. It reports whether that has changed since the
// last time. No lock of the catalog is held meanwhile: a file system may hang.
func (d *Declarations) takeFiles(ctx context.Context, w *watched, r watch.Report) bool {
	store := d.cfg.Host.Snapshots
	if store == nil || !r.Complete {
		return false
	}
	w.taking.Lock()
	defer w.taking.Unlock()
	before := w.taken // written only here
	rejected := map[api.ModelID]bool{}
	s := d.cfg.Catalog.Lock()
	for id, v := range s.Versions() {
		if v.State == registry.Rejected {
			rejected[id] = true
		}
	}
	d.cfg.Catalog.Unlock()
	now := make(map[api.ModelID]takenFiles, len(before))
	for _, specs := range r.Models {
		for i := range specs {
			m := &specs[i]
			t := d.takeWatchedFiles(ctx, m, before[m.ID()])
			if t.problem != "" && rejected[m.ID()] { // it has never served, and its files may have been repaired
				store.Unpin(pinName(m.ID(), m.Dir))
				store.Unpin(t.imagePin)
				t = d.takeWatchedFiles(ctx, m, takenFiles{})
			}
			now[m.ID()] = t
		}
	}
	for id, t := range before {
		if _, there := now[id]; !there { // what comes in its place is another version
			store.Unpin(pinName(id, t.dir))
			store.Unpin(t.imagePin)
		}
	}
	if maps.Equal(before, now) {
		return false
	}
	for id, t := range now {
		if t.problem != "" && t.problem != before[id].problem {
			d.cfg.Log.Warn("watched models: problem", zap.String("model", id.Name), zap.String("version", id.Version), zap.String("problem", t.problem))
		}
	}
	d.cfg.Catalog.Lock()
	defer d.cfg.Catalog.Unlock()
	w.taken = now
	return true
}

func (d *Declarations) takeWatchedFiles(ctx context.Context, m *api.ModelSpec, was takenFiles) takenFiles {
	store, o, pin := d.cfg.Host.Snapshots, deployment.TreeOptions(m), pinName(m.ID(), m.Dir)
	t := takenFiles{dir: m.Dir, digest: was.digest}
	if m.Run.Image != "" {
		t.imagePin = imagePin(m)
		t.image = store.Pinned(t.imagePin)
	}
	if t.digest == "" {
		t.digest = store.Pinned(pin)
	}
	if t.digest == "" {
		added, err := store.Add(ctx, m.Dir, o)
		if err == nil {
			err = store.Pin(pin, added.Digest)
		}
		if err != nil {
			t.problem = fmt.Sprintf("model %s: %v", m.ID(), err)
			return t
		}
		t.digest = added.Digest
		return t
	}
	err := store.Check(ctx, m.Dir, o, t.digest)
	var differs *snapshot.DiffersError
	switch {
	case err == nil, errors.Is(err, fs.ErrNotExist): // the next scan says so
	case errors.As(err, &differs):
		t.problem = fmt.Sprintf("model %s: %v: a version never changes, so it keeps those that it has; put these into a directory of another version, and the old ones back", m.ID(), err)
	default:
		t.problem = fmt.Sprintf("model %s: %v; the version keeps the files that it has", m.ID(), err)
	}
	return t
}

// watchFiles looks at the files of accepted versions from time to time, until ctx ends. An edit is not seen by a watcher, which looks at
// manifests only.
func (d *Declarations) watchFiles(ctx context.Context, w *watched, every time.Duration) {
	t := time.NewTicker(lookAgain * every)
	defer t.Stop()
	for {
		select {
		case <-t.C:
		case <-ctx.Done():
			return
		}
		d.cfg.Catalog.Lock()
		last := w.last
		d.cfg.Catalog.Unlock()
		if d.takeFiles(ctx, w, last) {
			d.declaring.Lock()
			s := d.cfg.Catalog.Lock()
			if !s.Stopping() {
				d.showReported(w)
				d.takeWatched(s, w)
				d.settle(s)
			}
			d.cfg.Catalog.Unlock()
			d.declaring.Unlock()
		}
	}
}

// showReported makes the problems of a directory those of the last report and of its files. The catalog's lock is held.
func (d *Declarations) showReported(w *watched) {
	w.reported = append([]string(nil), w.scanned...)
	var files []string
	for _, t := range w.taken {
		if t.problem != "" {
			files = append(files, t.problem)
		}
	}
	sort.Strings(files)
	w.reported = append(w.reported, files...)
	w.problems = append([]string(nil), w.reported...)
}
