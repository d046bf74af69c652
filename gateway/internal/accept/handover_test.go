package accept

import (
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func passage(t *testing.T) (*Outlet, *Inlet) {
	t.Helper()
	out, there, err := NewOutlet()
	if err != nil {
		t.Fatal(err)
	}
	in, err := NewInlet(there, &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1337})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { out.Close(); in.Close() })
	return out, in
}

// connection is an accepted connection, and its client.
func connection(t *testing.T) (fd int, client net.Conn) {
	t.Helper()
	l := listen(t, Config{})
	client = dial(t, l)
	_ = client.SetDeadline(time.Now().Add(30 * time.Second))
	c, err := l.Listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	f, err := c.(*net.TCPConn).File()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return int(f.Fd()), client
}

func soon() time.Time { return time.Now().Add(30 * time.Second) }

func TestPassKept(t *testing.T) {
	out, in := passage(t)
	fd, client := connection(t)
	for _, want := range []Kept{{Served: true, Waited: 3 * time.Second}, {}} {
		if err := out.Pass(fd, want); err != nil {
			t.Fatal(err)
		}
		c, kept, err := in.Next()
		if err != nil {
			t.Fatal(err)
		}
		if kept != want {
			t.Errorf("%+v came, want %+v", kept, want)
		}
		if got := c.RemoteAddr().String(); got != client.LocalAddr().String() {
			t.Errorf("the peer is %s, want %s", got, client.LocalAddr())
		}
		if err := in.Taken(); err != nil {
			t.Fatal(err)
		}
		if err := out.Taken(soon()); err != nil {
			t.Fatal(err)
		}
		if _, err := unix.Write(c.(interface{ Fd() int }).Fd(), []byte("there")); err != nil {
			t.Fatal(err)
		}
		text := make([]byte, 5)
		if _, err := io.ReadFull(client, text); err != nil || string(text) != "there" {
			t.Errorf("the client reads %q, %v", text, err)
		}
		c.Close()
	}
	if err := out.Taken(time.Now().Add(-time.Second)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("nothing is on its way, and Taken returns %v", err)
	}
	out.Close()
	if _, _, err := in.Next(); err != io.EOF {
		t.Errorf("after the last connection Next returns %v", err)
	}
}

// An inlet that is closed has taken what it has said so of, and nothing else.
func TestInletClosed(t *testing.T) {
	out, in := passage(t)
	fd, _ := connection(t)
	for range 3 {
		if err := out.Pass(fd, Kept{}); err != nil {
			t.Fatal(err)
		}
	}
	c, _, err := in.Next()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := in.Taken(); err != nil {
		t.Fatal(err)
	}
	in.Close()
	if err := out.Taken(soon()); err != nil {
		t.Errorf("the connection that was taken: %v", err)
	}
	if err := out.Taken(soon()); !errors.Is(err, io.EOF) {
		t.Errorf("one that was not: %v, want the end", err)
	}
	if err := out.Pass(fd, Kept{}); !errors.Is(err, unix.EPIPE) {
		t.Errorf("after the end Pass returns %v", err)
	}
}

// A process that has ended needs no answer.
func TestTakenAfterTheEnd(t *testing.T) {
	out, in := passage(t)
	fd, _ := connection(t)
	if err := out.Pass(fd, Kept{}); err != nil {
		t.Fatal(err)
	}
	out.Close()
	if err := out.Taken(soon()); !errors.Is(err, os.ErrClosed) {
		t.Errorf("after Close Taken returns %v", err)
	}
	c, _, err := in.Next()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := in.Taken(); err != nil {
		t.Error(err)
	}
}

// Only connections are taken.
func TestInletRefuses(t *testing.T) {
	file, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	socket := func(domain, kind int) int {
		fd, err := unix.Socket(domain, kind|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { unix.Close(fd) })
		return fd
	}
	listening := socket(unix.AF_INET, unix.SOCK_STREAM)
	if err := unix.Listen(listening, 1); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, why string
		fd        int
	}{
		{"a file", "no socket", int(file.Fd())},
		{"a datagram socket", "type 2", socket(unix.AF_INET, unix.SOCK_DGRAM)},
		{"a unix socket", "family 1", socket(unix.AF_UNIX, unix.SOCK_STREAM)},
		{"a listening socket", "listening: 1", listening},
	} {
		out, in := passage(t)
		if err := out.Pass(c.fd, Kept{}); err != nil {
			t.Fatal(err)
		}
		if _, _, err := in.Next(); err == nil || !strings.Contains(err.Error(), c.why) {
			t.Errorf("%s: %v, want an error with %q", c.name, err, c.why)
		}
	}
	fd, _ := connection(t)
	for _, c := range []struct {
		name, message string
		fds           []int
	}{
		{"no descriptor", "f12345678", nil},
		{"two descriptors", "f12345678", []int{fd, fd}},
		{"a short message", "f1234567", []int{fd}},
		{"a long message", "f123456789", []int{fd}},
		{"another mark", "x12345678", []int{fd}},
		{"a time below 0", "f1234567\xff", []int{fd}},
	} {
		out, in := passage(t)
		var rights []byte
		if c.fds != nil {
			rights = unix.UnixRights(c.fds...)
		}
		_ = out.raw.Control(func(to uintptr) { err = unix.Sendmsg(int(to), []byte(c.message), rights, nil, 0) })
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := in.Next(); err == nil {
			t.Errorf("%s is taken", c.name)
		}
	}
}

// A message is taken only if this program could have made it.
func FuzzParseKept(f *testing.F) {
	f.Add(Kept{Served: true, Waited: time.Hour}.append(nil))
	f.Add(Kept{}.append(nil))
	f.Add([]byte("s1234567"))
	f.Fuzz(func(t *testing.T, b []byte) {
		k, ok := parseKept(b)
		if again := k.append(nil); ok && string(again) != string(b) {
			t.Errorf("%q is taken as %+v, which is %q", b, k, again)
		}
	})
}
