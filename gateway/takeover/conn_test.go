package takeover

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) {
	if path := os.Getenv(dialEnv); path != "" {
		leaveConnection(path)
	}
	goleak.VerifyTestMain(m)
}

const dialEnv = "XEBEC_TEST_TAKEOVER_DIAL"

// leaveConnection connects, leaves its end of the connection to another process, which waits for the end of stdin, and ends.
func leaveConnection(path string) {
	c, err := net.Dial("unix", path)
	if err != nil {
		panic(err)
	}
	f, err := c.(*net.UnixConn).File()
	if err != nil {
		panic(err)
	}
	heir := exec.Command("cat")
	heir.Stdin, heir.ExtraFiles = os.Stdin, []*os.File{f}
	if err := heir.Start(); err != nil {
		panic(err)
	}
	os.Exit(0)
}

// Whether the gateway will accept the other process is known before it is asked, and said with what to do.
func TestUsers(t *testing.T) {
	const root, other, unknown = 0, 65534, 1999999999
	for _, c := range []struct {
		gateway, own   int
		takeOver, asks string // what to do; empty: nothing
	}{
		{root, root, "", ""},
		{other, other, "", ""},
		{root, other, "(sudo -u root)", "(sudo -u root) or root"},
		{unknown, root, "(sudo -u '#1999999999')", ""},
		{unknown, other, "(sudo -u '#1999999999')", "(sudo -u '#1999999999') or root"},
	} {
		for what, got := range map[string]struct {
			err  error
			says string
		}{"take over": {mayTakeOver(c.gateway, c.own), c.takeOver}, "ask": {mayAsk(c.gateway, c.own), c.asks}} {
			if (got.err == nil) != (got.says == "") || got.err != nil && !strings.HasSuffix(got.err.Error(), "as that user "+got.says) {
				t.Errorf("%s from a gateway of user %d as user %d: %v, expected %q", what, c.gateway, c.own, got.err, got.says)
			}
		}
	}
}

// A process that has ended is not mistaken for the one that has its number next: that one is not killed in its place.
func TestNumberOfAnotherProcess(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	ln, err := Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	dialer := exec.Command(os.Args[0])
	dialer.Env = append(os.Environ(), dialEnv+"="+path)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	dialer.Stdin = r
	if err := dialer.Run(); err != nil {
		t.Fatal(err)
	}
	r.Close()
	c, err := ln.AcceptUnix()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	stranger := processWithNumber(t, dialer.Process.Pid)
	if stranger == nil {
		return
	}
	conn, err := NewConn(c)
	if errors.Is(err, unix.ESRCH) || errors.Is(err, unix.EINVAL) { // Linux 6.5 to 6.15
		err = nil
	} else if err == nil {
		defer conn.Close()
		err = conn.Kill()
	}
	if err != nil {
		t.Error(err)
	}
	// Only a stranger that was not killed echoes.
	_, err = io.WriteString(stranger, "x")
	if err == nil {
		_, err = io.ReadFull(stranger, make([]byte, 1))
	}
	if err != nil {
		t.Errorf("process %d has got the number of the one that had connected, and was killed in its place: %v", dialer.Process.Pid, err)
	}
}

// processWithNumber starts a process that echoes and has this number, or returns nil where numbers cannot be chosen.
func processWithNumber(t *testing.T, pid int) io.ReadWriter {
	const tries = 500 // others start processes, too
	for range tries {
		if err := os.WriteFile("/proc/sys/kernel/ns_last_pid", []byte(strconv.Itoa(pid-1)), 0); err != nil {
			t.Logf("this test chooses the number of a process, which it may not here: %v", err)
			return nil
		}
		cat := exec.Command("cat")
		in, err := cat.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := cat.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cat.Start(); err != nil {
			t.Fatal(err)
		}
		end := func() {
			in.Close()
			_ = cat.Wait()
		}
		if cat.Process.Pid == pid {
			t.Cleanup(end)
			return struct {
				io.Reader
				io.Writer
			}{out, in}
		}
		end()
	}
	t.Logf("number %d was not free in %d tries", pid, tries)
	return nil
}

// connected are both ends of a connection at a socket file.
func connected(t *testing.T) (here, there *Conn) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	ln, err := Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the socket has %v, %v", info, err)
	}
	if here, err = Dial(t.Context(), path); err != nil {
		t.Fatal(err)
	}
	c, err := ln.AcceptUnix()
	if err != nil {
		t.Fatal(err)
	}
	if there, err = NewConn(c); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { here.Close(); there.Close() })
	return here, there
}

// A listening socket arrives with its message, and accepts in its new place what was connected before.
func TestSendFiles(t *testing.T) {
	here, there := connected(t)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	file, err := ln.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	client, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if err := here.Send(KindWelcome, WelcomeMessage{Version: Version, Files: []string{"function"}}, file); err != nil {
		t.Fatal(err)
	}
	if flags, err := unix.FcntlInt(rawFD(t, file), unix.F_GETFL, 0); err != nil || flags&unix.O_NONBLOCK == 0 {
		t.Errorf("the socket blocks after it was sent: %v", err)
	}
	file.Close()
	ln.Close()
	f, files, err := there.Receive()
	if err != nil || f.Kind != KindWelcome || len(files) != 1 {
		t.Fatalf("got %v with %d files: %v", f.Kind, len(files), err)
	}
	got, err := net.FileListener(files[0])
	files[0].Close()
	if err != nil {
		t.Fatal(err)
	}
	defer got.Close()
	c, err := got.Accept()
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	if there.PID() != os.Getpid() {
		t.Errorf("the other process is %d", there.PID())
	}
}

func rawFD(t *testing.T, f *os.File) (fd uintptr) {
	t.Helper()
	raw, err := f.SyscallConn()
	if err == nil {
		err = raw.Control(func(n uintptr) { fd = n })
	}
	if err != nil {
		t.Fatal(err)
	}
	return fd
}

// Calls go in both directions at once, answers come in any order, and the end of the other process ends those that wait.
func TestCalls(t *testing.T) {
	here, there := connected(t)
	ended := make(chan struct{}, 2)
	for _, c := range []*Conn{here, there} {
		go func() {
			defer func() { ended <- struct{}{} }()
			for {
				f, _, err := c.Receive()
				if err != nil {
					c.EndCalls()
					return
				}
				if f.Kind == KindAnswer {
					err = c.Answered(f)
				} else {
					go func() {
						_ = c.Answer(f, func(op string, body []byte) (any, error) {
							if op == "fail" {
								return nil, errors.New("it cannot")
							}
							return op + string(body), nil
						})
					}()
				}
				if err != nil {
					t.Error(err)
				}
			}
		}()
	}
	asked := make(chan error)
	for i := range 50 {
		go func() {
			c := here
			if i%2 == 0 {
				c = there
			}
			var got string
			err := c.Call(t.Context(), "say", i, &got)
			if err == nil && got != fmt.Sprintf("say%d", i) {
				err = fmt.Errorf("call %d is answered %s", i, got)
			}
			asked <- err
		}()
	}
	for range 50 {
		if err := <-asked; err != nil {
			t.Error(err)
		}
	}
	if err := here.Call(t.Context(), "fail", nil, nil); err == nil || err.Error() != "it cannot" {
		t.Errorf("got %v", err)
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	var ignored string
	if err := here.Call(over, "say", 1, &ignored); err != nil && !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	there.conn.Close()
	<-ended
	<-ended
	if err := here.Call(t.Context(), "say", 1, &ignored); err == nil {
		t.Error("a call to a process that is gone was answered")
	}
}

// What the other process has sent before it went is received, also after a call of it that cannot be answered any more.
func TestLastWordAfterACall(t *testing.T) {
	here, there := connected(t)
	if err := errors.Join(here.Send(KindCall, Call{ID: 1, Op: "x"}), here.Send(KindAbort, Abort{Reason: "last word"})); err != nil {
		t.Fatal(err)
	}
	here.EndReceive()
	f, _, err := there.Receive()
	if err != nil {
		t.Fatal(err)
	}
	if err := there.Answer(f, func(string, []byte) (any, error) { return 1, nil }); err != nil {
		t.Errorf("a call that cannot be answered any more ends with %v", err)
	}
	var a Abort
	if f, _, err := there.Receive(); err != nil || f.Kind != KindAbort || f.Decode(&a) != nil || a.Reason != "last word" {
		t.Errorf("got message %d %s, %v", f.Kind, f.Payload, err)
	}
}

// Bytes that are no frame end the connection with an error that says why.
func TestMalformed(t *testing.T) {
	for want, b := range map[string][]byte{
		"kind 0": {0, 0, 0, 0, 0}, "kind 200": {0, 0, 0, 0, 200}, "expected at most": {255, 255, 255, 255, 1}, "EOF": {1, 0},
	} {
		here, there := connected(t)
		if _, err := here.conn.Write(b); err != nil {
			t.Fatal(err)
		}
		here.conn.CloseWrite()
		if _, _, err := there.Receive(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: got %v, want %q", b, err, want)
		}
	}
	here, there := connected(t)
	if err := here.Send(KindPast, make([]byte, MaxFrameBytes+1)); err == nil {
		t.Error("a frame over the bound was sent")
	}
	here.conn.CloseWrite()
	if _, _, err := there.Receive(); !errors.Is(err, io.EOF) {
		t.Errorf("at the end: %v", err)
	}
}

// Whatever bytes come with however many descriptors, Receive returns frames or an error, after an error every descriptor is closed, and
// no message decodes into a panic.
func FuzzReceive(f *testing.F) {
	for i, kind := range []Kind{KindHello, KindPast, KindCall} {
		frame, err := appendFrame(nil, kind, []byte(`{"version":1,"id":7,"body":{}}`))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(frame, uint8(i), uint16(3))
		f.Add(frame, uint8(i+maxFiles), uint16(len(frame)))
	}
	f.Add([]byte{1, 2, 3, 4, 5, 6}, uint8(1), uint16(5))
	f.Add([]byte{100, 0, 0, 0, 1, '{'}, uint8(2), uint16(6))
	f.Fuzz(func(t *testing.T, b []byte, descriptors uint8, first uint16) {
		if len(b) > 4096 || len(b) == 0 {
			return // more than the socket takes without a reader; without a byte there is no message
		}
		fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		ends := [2]*Conn{}
		for i, fd := range fds {
			file := os.NewFile(uintptr(fd), "")
			end, err := net.FileConn(file)
			file.Close()
			if err != nil {
				t.Fatal(err)
			}
			defer end.Close()
			ends[i] = &Conn{conn: end.(*net.UnixConn), process: -1, waiting: map[uint64]chan Answer{}}
		}
		end, closed := pipe(t)
		cut := min(max(int(first), 1), len(b))
		sendRaw(t, ends[0], b[:cut], end, int(descriptors)%254)
		if _, err := ends[0].conn.Write(b[cut:]); err != nil {
			t.Fatal(err)
		}
		end.Close()
		ends[0].conn.Close()
		for {
			frame, files, err := ends[1].Receive()
			if err != nil {
				break
			}
			if len(files) > maxFiles {
				t.Errorf("%d files came", len(files))
			}
			for _, file := range files {
				file.Close()
			}
			for _, into := range []any{&Hello{}, &WelcomeMessage{}, &Abort{}, &Call{}, &Answer{}, &Upgrade{}, &Progress{}, &Result{}} {
				_ = frame.Decode(into)
			}
			_ = ends[1].Answered(frame)
		}
		ends[1].conn.Close()
		closed()
	})
}
