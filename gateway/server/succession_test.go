package server

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"golang.org/x/sys/unix"

	"github.com/xebec-serving/xebec/gateway/takeover"
)

// The control socket survives a moment in which the process has no descriptor left.
func TestControlSocketWithoutDescriptors(t *testing.T) {
	dir := t.TempDir()
	core, lines := observer.New(zap.InfoLevel)
	s, _, _ := alive(t, Config{DataDir: dir, Logger: zap.New(core)})
	c, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(c)
	// The descriptors of a process are numbered from the lowest one that is free.
	f, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	none := f.Fd()
	f.Close()
	var before unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: uint64(none), Max: before.Max}); err != nil {
		t.Fatal(err)
	}
	restored := func() {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &before); err != nil {
			t.Fatal(err)
		}
	}
	defer restored()
	if err := unix.Connect(c, &unix.SockaddrUnix{Name: filepath.Join(dir, controlFile)}); err != nil {
		t.Fatal(err)
	}
	until(t, "the log to say so", func() bool { return logged(lines, "its control socket is tried again") == 1 })
	restored()
	conn, err := takeover.Dial(t.Context(), s.dir.control())
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(conn.SetReceiveDeadline(time.Now().Add(testTimeout)), conn.Send(takeover.KindDone, nil)); err != nil {
		t.Fatal(err)
	}
	if _, _, err := conn.Receive(); !errors.Is(err, io.EOF) {
		t.Errorf("a message that must not come is answered with %v, expected the end of the connection", err)
	}
	if err := conn.Close(); err != nil {
		t.Error(err)
	}
}
