package server

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"github.com/xebec-serving/xebec/containers/snapshot"
	"github.com/xebec-serving/xebec/gateway/control/declarations"
	"github.com/xebec-serving/xebec/gateway/registry/fetch"
)

// openStores makes the sources of models that lie behind HTTP. What they fetch is kept in the data directory, each store's in a
// directory of its own.
func openStores(cfg Config, dir dataDir) (stores []declarations.Store, err error) {
	if len(cfg.Stores) > 0 && (dir.path == "" || cfg.LiveModels || cfg.SnapshotLimitBytes <= 0) {
		return nil, errors.New("--models-url needs a --data-dir to keep what it fetches, and a --snapshot-limit that is not 0")
	}
	names := map[string]bool{}
	for _, index := range cfg.Stores {
		store, err := fetch.New(fetch.Config{
			Index: index, Dir: filepath.Join(dir.file(fetchedDir), fmt.Sprintf("%x", sha256.Sum256([]byte(index)))[:16]), Every: cfg.StoresEvery, LimitBytes: cfg.SnapshotLimitBytes,
			Unpack: func(ctx context.Context, dir string, stream io.Reader) error {
				return snapshot.Unpack(ctx, dir, stream, cfg.SnapshotLimitBytes)
			},
		})
		if err != nil {
			return nil, fmt.Errorf("--models-url %w", err)
		}
		if names[store.Name()] {
			return nil, fmt.Errorf("--models-url %s: is given twice", store.Name())
		}
		names[store.Name()] = true
		stores = append(stores, store)
	}
	return stores, nil
}
