package top

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/xebec-serving/xebec/gateway/internal/terminal"
	"github.com/xebec-serving/xebec/gateway/internal/terminal/terminaltest"
)

// gateway answers polls with the fixture, a second later each time, unless it is down.
type gateway struct {
	mu     sync.Mutex
	second int
	down   bool
}

func (g *gateway) setDown(down bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.down = down
}

func (g *gateway) poll(context.Context) (*Snapshot, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.second++
	if g.down {
		return nil, errors.New("the gateway is shutting down\ncall again")
	}
	return fixture(g.second), nil
}

// live runs the view on a terminal. end waits for it and returns its error.
func live(ctx context.Context, g *gateway, p *terminaltest.PTY) (end func() error) {
	ended := make(chan error, 1)
	go func() { ended <- Live(ctx, g.poll, terminal.New(p.Inner), time.Millisecond, true) }()
	return func() error { return <-ended }
}

func TestLive(t *testing.T) {
	g, p := &gateway{}, terminaltest.New(t, 100, 20)
	before := p.Settings()
	end := live(t.Context(), g, p)
	p.Await(terminal.EnterScreen)
	p.Await("[functions 3]")
	p.Press("m")
	p.Await("[models 4]")
	p.Await("digits-svm@3")
	p.Press("/BERT\r")
	p.Await("filter /BERT")
	p.Resize(40, 10)
	p.Await("\r\n\x1b[K\x1b[7mq quit  f functions  m models  s sort  …\x1b[0m")
	g.setDown(true)
	p.Await("NO ANSWER: the gateway is")
	g.setDown(false)
	p.Await("queries/s")
	p.Press("q")
	p.Await(terminal.LeaveScreen)
	if err := end(); err != nil {
		t.Error(err)
	}
	if after := p.Settings(); after != before {
		t.Errorf("the terminal is left as\n%+v, it was\n%+v", after, before)
	}
}

// An interrupt ends the view, and so does a terminal that hangs up.
func TestLiveEnds(t *testing.T) {
	t.Run("interrupted", func(t *testing.T) {
		p := terminaltest.New(t, 80, 24)
		before := p.Settings()
		ctx, interrupt := context.WithCancel(t.Context())
		end := live(ctx, &gateway{}, p)
		p.Await("xebec v1.2.3")
		interrupt()
		p.Await(terminal.LeaveScreen)
		if err := end(); err != nil || p.Settings() != before {
			t.Errorf("%v, and the terminal is %+v", err, p.Settings())
		}
	})
	t.Run("hung up", func(t *testing.T) {
		p := terminaltest.New(t, 80, 24)
		end := live(t.Context(), &gateway{}, p)
		p.Await("xebec v1.2.3")
		p.HangUp()
		if err := end(); err != nil {
			t.Error(err)
		}
	})
	t.Run("no gateway", func(t *testing.T) {
		p := terminaltest.New(t, 80, 24)
		before := p.Settings()
		if err := live(t.Context(), &gateway{down: true}, p)(); err == nil || !strings.Contains(err.Error(), "shutting down") || p.Settings() != before {
			t.Errorf("%v", err)
		}
	})
	t.Run("no terminal", func(t *testing.T) {
		null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		if err := Live(t.Context(), (&gateway{}).poll, terminal.New(null), time.Millisecond, false); !errors.Is(err, ErrTerminal) {
			t.Errorf("got %v, want %v", err, ErrTerminal)
		}
	})
}

// TestSuspend runs this test binary a second time with the pseudoterminal as its controlling terminal: only such a
// process is suspended by a key.
func TestSuspend(t *testing.T) {
	const child = "XEBEC_TEST_TOP_CHILD"
	if os.Getenv(child) != "" {
		inner, err := terminal.Open()
		if err != nil {
			t.Fatal(err)
		}
		if err := Live(t.Context(), (&gateway{}).poll, inner, time.Millisecond, true); err != nil {
			t.Fatal(err)
		}
		return
	}
	p := terminaltest.New(t, 80, 24)
	before := p.Settings()
	cmd := exec.Command(os.Args[0], "-test.run=^TestSuspend$")
	cmd.Env = append(os.Environ(), child+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = p.Inner, p.Inner, p.Inner
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill() })
	p.Await(terminal.EnterScreen)
	p.Await("[functions 3]")
	p.Press("\x1a") // Ctrl-Z
	var status syscall.WaitStatus
	if _, err := syscall.Wait4(cmd.Process.Pid, &status, syscall.WUNTRACED, nil); err != nil || !status.Stopped() {
		t.Fatalf("%v; the process is not stopped: %v", err, status)
	}
	if p.Settings() != before {
		t.Errorf("while the process is stopped the terminal is %+v", p.Settings())
	}
	p.Await(terminal.LeaveScreen)
	if err := cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	p.Await(terminal.EnterScreen)
	p.Await("[functions 3]")
	p.Press("\x1c\x1b[B") // neither Ctrl-\ nor an arrow ends it
	p.Press("m")
	p.Await("[models 4]")
	p.Press("q")
	p.Await(terminal.LeaveScreen)
	if err := cmd.Wait(); err != nil || p.Settings() != before {
		t.Errorf("%v, and the terminal is %+v", err, p.Settings())
	}
}
