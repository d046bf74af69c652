package terminal_test

import (
	"bytes"
	"os"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"github.com/xebec-serving/xebec/gateway/internal/terminal"
	"github.com/xebec-serving/xebec/gateway/internal/terminal/terminaltest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestIs(t *testing.T) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	if terminal.Is(null) || terminal.Is(&bytes.Buffer{}) {
		t.Error("a buffer, or /dev/null, counts as a terminal")
	}
	if p := terminaltest.New(t, 80, 24); !terminal.Is(p.Inner) {
		t.Error("a pseudoterminal does not count as a terminal")
	}
}

// TestHoldAndRelease: the settings are raw while the terminal is held, and as before afterwards. Keys and frames pass.
func TestHoldAndRelease(t *testing.T) {
	p := terminaltest.New(t, 100, 20)
	before := p.Settings()
	x := terminal.New(p.Inner)
	x.Release() // nothing is held
	if err := x.Hold(); err != nil {
		t.Fatal(err)
	}
	p.Await(terminal.EnterScreen)
	if raw := p.Settings(); raw.Lflag&(syscall.ICANON|syscall.ECHO) != 0 || raw.Lflag&syscall.ISIG == 0 {
		t.Errorf("the flags of the held terminal are %x", raw.Lflag)
	}
	if width, height := x.Size(); width != 100 || height != 20 {
		t.Errorf("the size is %d × %d, want 100 × 20", width, height)
	}
	if err := x.Draw("one\ntwo"); err != nil {
		t.Fatal(err)
	}
	p.Await("\x1b[H\x1b[Kone\r\r\n\x1b[Ktwo") // the kernel adds one \r
	keys := make(chan []terminal.Key)
	go x.ReadKeys(t.Context(), keys)
	p.Press("\x1b[Aq")
	if got := <-keys; len(got) != 2 || got[0] != terminal.KeyUp || got[1] != 'q' {
		t.Errorf("the keys are %v, want the arrow up and q", got)
	}
	x.Close()
	if _, more := <-keys; more {
		t.Error("keys are read after the terminal was closed")
	}
	p.Await(terminal.LeaveScreen)
	if after := p.Settings(); after != before {
		t.Errorf("the terminal is left as\n%+v, it was\n%+v", after, before)
	}
}
