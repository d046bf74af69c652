package server

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func launch(t *testing.T, ctx context.Context, ready func() error, script string) (*Process, string, error) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "server")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	p, err := Start(ctx, Options{Name: "a server", Program: "/bin/sh", Args: []string{"-c", script}, Env: []string{"GOMAXPROCS=3"}, Folder: dir, Ready: ready})
	return p, dir, err
}

func never() error { return errors.New("not yet") }

func TestStartWaitsAndStopCleansUp(t *testing.T) {
	asked := 0
	ready := func() error {
		if asked++; asked < 3 {
			return never()
		}
		return nil
	}
	p, dir, err := launch(t, t.Context(), ready, `echo ready >file; exec sleep 600`)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.CPU(); err != nil {
		t.Error(err)
	}
	p.Stop()
	if _, err := os.Stat(dir); asked != 3 || !os.IsNotExist(err) {
		t.Errorf("asked %d times, want 3; folder: %v", asked, err)
	}
	if p.LastWords() != "" {
		t.Errorf("the server wrote nothing, but its last words are %q", p.LastWords())
	}
	p.Stop() // once more is harmless
}

// A child that outlives the server has its output, too. Stop does not wait for the child.
func TestStopDoesNotWaitForWhatTheServerLeavesBehind(t *testing.T) {
	file := filepath.Join(t.TempDir(), "child")
	ready := func() error {
		if text, err := os.ReadFile(file); err != nil || !strings.HasSuffix(string(text), "\n") {
			return never()
		}
		return nil
	}
	p, _, err := launch(t, t.Context(), ready, `sleep 600 & echo $! >`+file+`; wait`)
	if err != nil {
		t.Fatal(err)
	}
	p.Stop()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	child, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(child, syscall.SIGKILL); err != nil {
		t.Errorf("the child has ended, so nothing was tested: %v", err)
	}
}

func TestAServerThatEndsIsReportedWithItsLastWords(t *testing.T) {
	_, dir, err := launch(t, t.Context(), never, `echo "port taken by $GOMAXPROCS" >&2; exit 3`)
	if err == nil || !strings.Contains(err.Error(), "it ended") || !strings.Contains(err.Error(), "last words of a server:\nport taken by 3") {
		t.Errorf("got %v", err)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("its folder is still there: %v", err)
	}
}

func TestStartCanBeCancelled(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, _, err := launch(t, ctx, never, "exec sleep 600"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
}

func TestAProgramThatIsMissingLeavesNoFolder(t *testing.T) {
	dir := t.TempDir()
	_, err := Start(t.Context(), Options{Name: "a server", Program: filepath.Join(dir, "missing"), Folder: dir, Ready: never})
	if !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), "start a server: ") {
		t.Errorf("got %v", err)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("its folder is still there: %v", err)
	}
}

func TestFreeAddrCanBeListenedOn(t *testing.T) {
	addr, err := FreeAddr()
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
}

func TestTailKeepsTheEnd(t *testing.T) {
	var w Tail
	io.WriteString(&w, "start")
	for range 3 {
		if n, err := w.Write(make([]byte, tailBytes-1)); n != tailBytes-1 || err != nil {
			t.Fatal(n, err)
		}
	}
	io.WriteString(&w, "the end")
	if s := w.String(); len(s) != tailBytes || !strings.HasSuffix(s, "\x00the end") || strings.Contains(s, "start") {
		t.Errorf("%d bytes are kept, want %d with the end", len(s), tailBytes)
	}
}
