package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/xebec-serving/xebec/gateway/inferlog"
)

func TestBareWriter(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "floor")
	cause := errors.New("the run failed")
	rps, failed, err := beside(t.Context(), dir, 1, func() (float64, uint64, error) {
		return 5, 7, cause
	})
	if rps != 5 || failed != 7 || !errors.Is(err, cause) {
		t.Errorf("beside: %v, %v, %v", rps, failed, err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the files are left: %v", err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := writeAt(ended, dir, 1e9); err == nil || !strings.Contains(err.Error(), "of 1000000000 bytes/s") {
		t.Errorf("a writer that wrote nothing: %v", err)
	}
	if err := writeAt(t.Context(), dir, 0); err == nil {
		t.Error("a writer without a rate has no error")
	}
}

// The files are together not larger than the log's.
func TestBareWriterRotates(t *testing.T) {
	w := bareWriter{dir: t.TempDir(), block: make([]byte, 1)}
	files := int64(inferlog.DefaultMaxBytes / inferlog.DefaultFileBytes)
	for i := range files + 3 {
		w.written = i * inferlog.DefaultFileBytes // as if the files before were full
		if err := w.write(); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.close(); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(w.dir)
	if err != nil || int64(len(entries)) != files {
		t.Errorf("%d files, %v: expected %d", len(entries), err, files)
	}
}

func TestNoise(t *testing.T) {
	all := noise()
	seen := map[string]bool{}
	for _, body := range all {
		seen[string(body)] = true
	}
	if len(all)%loggedConnections != 0 || len(seen) != len(all) || len(all)*largeBody < 2*inferlog.DefaultBlockBytes {
		t.Errorf("%d different bodies of %d, expected more than two blocks of the log, and as many for each of %d connections", len(seen), len(all), loggedConnections)
	}
}
