package server

import (
	"context"
	"errors"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/containers/snapshot"
	"go.uber.org/zap"
)

// defaultSnapshotLimit holds most models that are not language models. A larger one is copied where the operator says so: on a file
// system that shares blocks the copy takes no space.
const defaultSnapshotLimit = 2 << 30 //xebec:limit files of a version of which a copy is kept; `--snapshot-limit`

const (
	// collectEvery is how often copies of files that no version has are looked for.
	collectEvery = 10 * time.Minute //xebec:limit interval between searches for snapshots and environments that no version has
	// unusedFor is how long one must not have been used: a version may be about to be declared, or have replicas that still answer.
	unusedFor = time.Hour //xebec:limit how long a snapshot or an environment that no version has is kept
)

// openSnapshots opens the store of versions' files; nil: there is none, because replicas run from their directories as they are.
func openSnapshots(cfg Config, dir dataDir) (*snapshot.Store, error) {
	if cfg.LiveModels {
		return nil, nil
	}
	store, err := snapshot.Open(snapshot.Config{Dir: dir.file(modelsDir), LimitBytes: cfg.SnapshotLimitBytes, Exclude: hiddenPaths(cfg, dir)})
	if err != nil {
		return nil, dir.notWritten("make a directory for the files of models", err)
	}
	return store, nil
}

// collectSnapshots removes copies of files that no version has, until ctx ends.
func (s *Server) collectSnapshots(ctx context.Context) {
	if s.snapshots == nil && s.environments == nil {
		return
	}
	t := time.NewTicker(collectEvery)
	defer t.Stop()
	for {
		select {
		case <-t.C:
		case <-ctx.Done():
			return
		}
		if s.declared.Unread() == "" { // what has not been read may need them
			s.collectUnused(time.Now().Add(-unusedFor))
			s.collectEnvironments(ctx, time.Now().Add(-unusedFor))
		}
	}
}

// collectEnvironments removes environments that no version asks for. Those in the cache of a user are other programs', too.
func (s *Server) collectEnvironments(ctx context.Context, before time.Time) {
	if s.environments == nil || s.dir.path == "" {
		return
	}
	n, err := s.environments.Collect(ctx, s.declared.PythonDirs(), before)
	if err != nil && ctx.Err() == nil {
		s.log.Warn("environments that no version asks for are not all removed", zap.Error(err))
	}
	if n > 0 {
		s.log.Info("environments that no version asks for were removed", zap.Int("removed", n))
	}
}

func (s *Server) collectUnused(before time.Time) {
	if s.snapshots == nil {
		return
	}
	n, err := s.snapshots.Collect(s.declared.Digests(), before)
	if err != nil {
		s.log.Warn("copies of files that no version has are not all removed", zap.Error(err))
	}
	if n > 0 {
		s.log.Info("copies of files that no version has were removed", zap.Int("removed", n))
	}
}

// uploads are files of models that come through the admin port.
type uploads struct{ *snapshot.Store }

func (u uploads) Begin() (string, error) {
	id, err := u.Store.Begin()
	if err != nil {
		return "", api.Errorf(api.Unavailable, "%w", err)
	}
	return id, nil
}

func (u uploads) Append(id string, offset int64, part []byte) (int64, error) {
	next, err := u.Store.Append(id, offset, part)
	return next, uploadError(err)
}

func (u uploads) Finish(ctx context.Context, id string) (api.UploadedFiles, error) {
	t, err := u.Store.Finish(ctx, id)
	if err != nil {
		return api.UploadedFiles{}, uploadError(err)
	}
	return api.UploadedFiles{Digest: t.Digest, Files: len(t.Entries), Bytes: t.Bytes}, nil
}

func uploadError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, snapshot.ErrNoUpload):
		return api.Errorf(api.NotFound, "%w", err)
	case errors.Is(err, snapshot.ErrNoRoom):
		return api.Errorf(api.Unavailable, "%w", err)
	}
	return api.Errorf(api.InvalidArgument, "%w", err)
}
