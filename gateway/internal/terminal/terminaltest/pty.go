package terminaltest

import (
	"bytes"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/xebec-serving/xebec/gateway/internal/terminal"
)

// PTY is a pseudoterminal. The program under test uses Inner, the test the methods.
type PTY struct {
	// Inner is the end that looks like a terminal. It is closed when the test ends.
	Inner *os.File

	t     testing.TB
	outer *os.File
	seen  bytes.Buffer
}

// New opens a pseudoterminal of a size.
func New(t testing.TB, columns, rows uint16) *PTY {
	t.Helper()
	outer, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { outer.Close() })
	p := &PTY{t: t, outer: outer}
	var unlock, number int32
	p.ioctl(syscall.TIOCSPTLCK, unsafe.Pointer(&unlock))
	p.ioctl(syscall.TIOCGPTN, unsafe.Pointer(&number))
	p.Inner, err = os.OpenFile("/dev/pts/"+strconv.Itoa(int(number)), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Inner.Close() })
	p.Resize(columns, rows)
	return p
}

func (p *PTY) ioctl(request uintptr, argument unsafe.Pointer) {
	p.t.Helper()
	if err := terminal.Ioctl(p.outer, request, argument); err != nil {
		p.t.Fatal(err)
	}
}

// Resize changes the size of the screen. It sends no SIGWINCH unless a process has the terminal as its controlling one.
func (p *PTY) Resize(columns, rows uint16) {
	size := [4]uint16{rows, columns}
	p.ioctl(syscall.TIOCSWINSZ, unsafe.Pointer(&size))
}

// Settings are the terminal's present ones.
func (p *PTY) Settings() (s syscall.Termios) {
	p.ioctl(syscall.TCGETS, unsafe.Pointer(&s))
	return s
}

// Press types keys.
func (p *PTY) Press(keys string) {
	p.t.Helper()
	if _, err := p.outer.WriteString(keys); err != nil {
		p.t.Fatal(err)
	}
}

// HangUp closes the outer end.
func (p *PTY) HangUp() { p.outer.Close() }

// Await reads until the program has written a text, and discards everything up to its end.
func (p *PTY) Await(text string) {
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
			p.t.Fatalf("%v while waiting for %q; the last output was %q", err, text, p.seen.Bytes()[max(0, p.seen.Len()-2000):])
		}
		p.seen.Write(buffer[:n])
	}
}
