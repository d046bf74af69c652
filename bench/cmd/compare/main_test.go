package main

import (
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestServersGetTheirProcsAndTheirFolder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "server")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	var procs []byte
	ready := func() (err error) {
		procs, err = os.ReadFile(filepath.Join(dir, "procs"))
		return err
	}
	s, err := start(t.Context(), config{procs: 3}, "a server", "addr", dir, ready, "/bin/sh", "-c", "echo $GOMAXPROCS >new; mv new procs; exec sleep 600")
	if err != nil {
		t.Fatal(err)
	}
	if string(procs) != "3\n" || s.Name != "a server" || s.addr != "addr" || s.dir != dir {
		t.Errorf("got %+v with GOMAXPROCS %q", s, procs)
	}
	s.Stop()
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("its folder is still there: %v", err)
	}
}
