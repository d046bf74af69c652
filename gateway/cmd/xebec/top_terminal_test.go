package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"
)

// pty is a terminal whose other side is the test: a pseudoterminal of the kernel.
type pty struct {
	t     *testing.T
	outer *os.File
	inner *terminal
	seen  bytes.Buffer
}

func newPTY(t *testing.T, columns, rows uint16) *pty {
	t.Helper()
	outer, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { outer.Close() })
	p := &pty{t: t, outer: outer}
	var unlock, number int32
	p.ioctl(syscall.TIOCSPTLCK, unsafe.Pointer(&unlock))
	p.ioctl(syscall.TIOCGPTN, unsafe.Pointer(&number))
	inner, err := os.OpenFile("/dev/pts/"+strconv.Itoa(int(number)), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { inner.Close() })
	p.inner = &terminal{f: inner}
	p.resize(columns, rows)
	return p
}

func (p *pty) ioctl(request uintptr, argument unsafe.Pointer) {
	p.t.Helper()
	if err := ioctl(p.outer, request, argument); err != nil {
		p.t.Fatal(err)
	}
}

func (p *pty) resize(columns, rows uint16) {
	size := [4]uint16{rows, columns}
	p.ioctl(syscall.TIOCSWINSZ, unsafe.Pointer(&size))
}

// settings are the terminal's, whoever has changed them.
func (p *pty) settings() (s syscall.Termios) {
	p.ioctl(syscall.TCGETS, unsafe.Pointer(&s))
	return s
}

func (p *pty) press(keys string) {
	p.t.Helper()
	if _, err := p.outer.WriteString(keys); err != nil {
		p.t.Fatal(err)
	}
}

// await reads until the terminal has been sent a text, and forgets all up to it.
func (p *pty) await(text string) {
	p.t.Helper()
	if err := p.outer.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		p.t.Fatal(err)
	}
	buffer := make([]byte, 4096)
	for {
		if _, after, ok := strings.Cut(p.seen.String(), text); ok {
			p.seen.Reset()
			p.seen.WriteString(after)
			return
		}
		n, err := p.outer.Read(buffer)
		if err != nil {
			p.t.Fatalf("%v before %q came; of what came instead the last is %q", err, text, p.seen.Bytes()[max(0, p.seen.Len()-2000):])
		}
		p.seen.Write(buffer[:n])
	}
}

// live runs "xebec top" on the terminal; end waits for it and has its error.
func (p *pty) live(ctx context.Context, s *topServer) (end func() error) {
	ended := make(chan error, 1)
	c := s.cli(&bytes.Buffer{})
	go func() { ended <- c.topLive(ctx, p.inner, time.Millisecond) }()
	return func() error { return <-ended }
}

func TestTopOnATerminal(t *testing.T) {
	s, p := newTopServer(t), newPTY(t, 100, 20)
	before := p.settings()
	end := p.live(t.Context(), s)
	p.await(enterScreen)
	p.await("[functions 3]")
	if raw := p.settings(); raw.Lflag&(syscall.ICANON|syscall.ECHO) != 0 || raw.Lflag&syscall.ISIG == 0 {
		t.Errorf("while it is held its flags are %x", raw.Lflag)
	}
	p.press("m")
	p.await("[models 4]")
	p.await("digits-svm@3")
	p.press("/BERT\r")
	p.await("filter /BERT")
	p.resize(40, 10)
	p.await("\r\n\x1b[K\x1b[7mq quit  f functions  m models  s sort  …\x1b[0m")
	s.mu.Lock()
	s.down = true
	s.mu.Unlock()
	p.await("NO ANSWER: the gateway is")
	s.mu.Lock()
	s.down = false
	s.mu.Unlock()
	p.await("queries/s")
	p.press("q")
	p.await(leaveScreen)
	if err := end(); err != nil {
		t.Error(err)
	}
	if after := p.settings(); after != before {
		t.Errorf("the terminal is left as\n%+v, it was\n%+v", after, before)
	}
}

// An interrupt, or a terminal that goes away, end it too.
func TestTopEnds(t *testing.T) {
	t.Run("interrupted", func(t *testing.T) {
		s, p := newTopServer(t), newPTY(t, 80, 24)
		before := p.settings()
		ctx, interrupt := context.WithCancel(t.Context())
		end := p.live(ctx, s)
		p.await("xebec v1.2.3")
		interrupt()
		p.await(leaveScreen)
		if err := end(); err != nil || p.settings() != before {
			t.Errorf("%v, and the terminal is %+v", err, p.settings())
		}
	})
	t.Run("hung up", func(t *testing.T) {
		s, p := newTopServer(t), newPTY(t, 80, 24)
		end := p.live(t.Context(), s)
		p.await("xebec v1.2.3")
		p.outer.Close()
		if err := end(); err != nil {
			t.Error(err)
		}
	})
	t.Run("no gateway", func(t *testing.T) {
		s, p := newTopServer(t), newPTY(t, 80, 24)
		s.down = true
		before := p.settings()
		if err := p.live(t.Context(), s)(); err == nil || !strings.Contains(err.Error(), "shutting down") || p.settings() != before {
			t.Errorf("%v", err)
		}
	})
}

// TestTopIsSuspended runs itself a second time, as a program that the pseudoterminal controls: only such a one is suspended by a key.
func TestTopIsSuspended(t *testing.T) {
	const admin = "XEBEC_TEST_TOP_ADMIN"
	if address := os.Getenv(admin); address != "" {
		inner, err := openTerminal()
		if err != nil {
			t.Fatal(err)
		}
		c := &cli{admin: address, http: newHTTPClient(), getenv: func(string) string { return "" }, now: time.Now}
		defer c.http.CloseIdleConnections()
		if err := c.topLive(t.Context(), inner, time.Millisecond); err != nil {
			t.Fatal(err)
		}
		return
	}
	s, p := newTopServer(t), newPTY(t, 80, 24)
	before := p.settings()
	child := exec.Command(os.Args[0], "-test.run=^TestTopIsSuspended$")
	child.Env = append(os.Environ(), admin+"="+s.URL)
	child.Stdin, child.Stdout, child.Stderr = p.inner.f, p.inner.f, p.inner.f
	child.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { child.Process.Kill() })
	p.await(enterScreen)
	p.await("[functions 3]")
	p.press("\x1a") // Ctrl-Z
	var status syscall.WaitStatus
	if _, err := syscall.Wait4(child.Process.Pid, &status, syscall.WUNTRACED, nil); err != nil || !status.Stopped() {
		t.Fatalf("%v; it is not stopped: %v", err, status)
	}
	if p.settings() != before {
		t.Errorf("while it is stopped the terminal is %+v", p.settings())
	}
	p.await(leaveScreen)
	if err := child.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	p.await(enterScreen)
	p.await("[functions 3]")
	p.press("\x1c\x1b[B") // Ctrl-\ is no way out, and neither is an arrow
	p.press("m")
	p.await("[models 4]")
	p.press("q")
	p.await(leaveScreen)
	if err := child.Wait(); err != nil || p.settings() != before {
		t.Errorf("%v, and the terminal is %+v", err, p.settings())
	}
}

func TestIsTerminal(t *testing.T) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	if isTerminal(null) || isTerminal(&bytes.Buffer{}) {
		t.Error("a buffer, or /dev/null, is taken for a terminal")
	}
	if p := newPTY(t, 80, 24); !isTerminal(p.inner.f) {
		t.Error("a terminal is not taken for one")
	}
}
