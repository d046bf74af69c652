package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func launch(t *testing.T, ctx context.Context, ready func() error, script string) (*serverProcess, string, error) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "server")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	s, err := start(ctx, config{procs: 3}, "a server", "", dir, ready, "/bin/sh", "-c", script)
	return s, dir, err
}

func TestStartWaitsAndStopCleansUp(t *testing.T) {
	asked := 0
	ready := func() error {
		if asked++; asked < 3 {
			return errors.New("not yet")
		}
		return nil
	}
	s, dir, err := launch(t, t.Context(), ready, `echo "procs $GOMAXPROCS"; echo ready >file; exec sleep 600`)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.cpu(); err != nil {
		t.Error(err)
	}
	s.stop()
	if _, err := os.Stat(dir); asked != 3 || !os.IsNotExist(err) {
		t.Errorf("asked %d times, want 3; folder: %v", asked, err)
	}
}

func TestAServerThatEndsIsReportedWithItsLastWords(t *testing.T) {
	never := func() error { return errors.New("not yet") }
	_, dir, err := launch(t, t.Context(), never, `echo "port taken by $GOMAXPROCS" >&2; exit 3`)
	if err == nil || !strings.Contains(err.Error(), "it ended") || !strings.Contains(err.Error(), "port taken by 3") {
		t.Errorf("got %v", err)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("its folder is still there: %v", err)
	}
}

func TestStartCanBeCancelled(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	never := func() error { return errors.New("not yet") }
	if _, _, err := launch(t, ctx, never, "exec sleep 600"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
}
