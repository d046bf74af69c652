package takeover

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// pipe returns a pipe, and a check that the only descriptors of its read end are closed. The check may be called once.
func pipe(t *testing.T) (readEnd *os.File, closed func()) {
	t.Helper()
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(p[1]) })
	return os.NewFile(uintptr(p[0]), "read end"), func() {
		t.Helper()
		if _, err := unix.Write(p[1], []byte{1}); !errors.Is(err, unix.EPIPE) {
			t.Errorf("a descriptor is still open: %v", err)
		}
	}
}

// sendRaw sends bytes with copies of a descriptor, as a process does that does not keep to the protocol.
func sendRaw(t *testing.T, c *Conn, b []byte, f *os.File, copies int) {
	t.Helper()
	fds := make([]int, copies)
	for i := range fds {
		fds[i] = int(rawFD(t, f))
	}
	var rights []byte
	if copies > 0 {
		rights = unix.UnixRights(fds...)
	}
	if _, _, err := c.conn.WriteMsgUnix(b, rights, nil); err != nil {
		t.Fatal(err)
	}
}

// Descriptors that come with something that is no message, or are too many, are closed.
func TestDescriptorsOfMalformedMessagesAreClosed(t *testing.T) {
	for name, c := range map[string]struct {
		bytes  []byte
		copies int
		says   string
	}{
		"an unknown kind":       {[]byte{0, 0, 0, 0, 99}, 3, "kind 99"},
		"an endless message":    {[]byte{255, 255, 255, 255, 1}, 2, "expected at most"},
		"half a header":         {[]byte{1, 0}, 1, "EOF"},
		"half a message":        {[]byte{100, 0, 0, 0, 1, '{'}, maxFiles, "EOF"},
		"one too many":          {[]byte{0, 0, 0, 0, 1}, maxFiles + 1, "more than 8 descriptors"},
		"as many as it can":     {[]byte{0, 0, 0, 0, 1}, 253, "more than 8 descriptors"},
		"too many, and no kind": {[]byte{0, 0, 0, 0, 99}, 253, "more than 8 descriptors"},
	} {
		t.Run(name, func(t *testing.T) {
			here, there := connected(t)
			f, closed := pipe(t)
			sendRaw(t, here, c.bytes, f, c.copies)
			f.Close()
			here.conn.CloseWrite()
			_, files, err := there.Receive()
			if err == nil || !strings.Contains(err.Error(), c.says) || len(files) != 0 {
				t.Errorf("got %d files, %v: expected %q", len(files), err, c.says)
			}
			closed()
		})
	}
}

// The memory of a message grows with what has come of it: a header that announces the largest message costs next to nothing.
func TestAHeaderCostsNoMemory(t *testing.T) {
	here, there := connected(t)
	header := append(binary.LittleEndian.AppendUint32(nil, MaxFrameBytes), byte(KindPast))
	if _, err := here.conn.Write(header); err != nil {
		t.Fatal(err)
	}
	here.conn.CloseWrite()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, _, err := there.Receive(); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("got %v", err)
	}
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; took > MaxFrameBytes/16 {
		t.Errorf("a header took %d bytes", took)
	}
}

// A process that does not read does not hold up its partner for longer than one message may take: later ones fail at once. The other end
// sees what was sent whole, and then the end.
func TestAPeerThatStopsReading(t *testing.T) {
	here, there := connected(t)
	here.within = time.Millisecond
	large := make([]byte, 1<<20) // more than a socket takes
	if err := here.Send(KindReady, nil); err != nil {
		t.Fatal(err)
	}
	if err := here.Send(KindPast, large); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a message that is not read: %v", err)
	}
	here.within = time.Hour
	for range 3 {
		if err := here.Send(KindReady, nil); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("a message after one that was cut: %v", err)
		}
	}
	if err := here.Call(t.Context(), "say", 1, nil); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a call after a message that was cut: %v", err)
	}
	if f, _, err := there.Receive(); err != nil || f.Kind != KindReady {
		t.Errorf("got %d, %v: expected what was sent whole", f.Kind, err)
	}
	if f, _, err := there.Receive(); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("got %d, %v: expected the end of a message that was cut", f.Kind, err)
	}
}

// A socket is made in the place of whatever has its name, and nothing is followed there: not the target of a symbolic link either.
func TestListenInThePlaceOfOtherFiles(t *testing.T) {
	dir := t.TempDir()
	target := filepath.Join(dir, "target")
	for name, prepare := range map[string]func(path string) error{
		"file":     func(path string) error { return os.WriteFile(path, []byte("x"), 0o666) },
		"link":     func(path string) error { return os.Symlink(target, path) },
		"dangling": func(path string) error { return os.Symlink(filepath.Join(dir, "none"), path) },
		"socket": func(path string) error {
			ln, err := net.Listen("unix", path)
			if err == nil {
				ln.(*net.UnixListener).SetUnlinkOnClose(false)
				ln.Close()
			}
			return err
		},
	} {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.WriteFile(target, []byte("of another"), 0o600), prepare(path)); err != nil {
			t.Fatal(err)
		}
		ln, err := Listen(path)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		info, err := os.Lstat(path)
		if err != nil || info.Mode().Type() != os.ModeSocket || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", name, info, err)
		}
		ln.Close()
		if text, err := os.ReadFile(target); err != nil || string(text) != "of another" {
			t.Errorf("%s: the target of the link has %q, %v", name, text, err)
		}
		if _, err := os.Lstat(filepath.Join(dir, "none")); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: the target of the link was made: %v", name, err)
		}
	}
	full := filepath.Join(dir, "full")
	if err := errors.Join(os.Mkdir(full, 0o700), os.WriteFile(filepath.Join(full, "f"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	if ln, err := Listen(full); err == nil {
		ln.Close()
		t.Error("a directory with files was replaced")
	}
}
