package terminal

import (
	"context"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"unsafe"
)

// Control sequences of xterm and the terminals modelled on it.
const (
	// EnterScreen shows the alternate screen, hides the cursor, and turns off wrapping: a wide character can make a
	// line too long.
	EnterScreen = "\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[2J"
	// LeaveScreen undoes EnterScreen.
	LeaveScreen = "\x1b[?7h\x1b[?25h\x1b[?1049l"
	cursorHome  = "\x1b[H"
	clearLine   = "\x1b[K"
)

// Terminal is a terminal that can be held. Its methods are for one goroutine, except that ReadKeys may run in another.
type Terminal struct {
	f     *os.File
	saved syscall.Termios
	held  bool
}

// New returns a terminal on an open file, which it owns from now on.
func New(f *os.File) *Terminal { return &Terminal{f: f} }

// Open opens the terminal that the program was started from. The description is new: closing it ends a read of it, and
// reads of stdin are not affected.
func Open() (*Terminal, error) {
	f, err := os.OpenFile("/dev/tty", os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	return New(f), nil
}

// Is reports whether w is a terminal. /dev/null is a character device too, but not a terminal.
func Is(w io.Writer) bool {
	f, ok := w.(*os.File)
	var t syscall.Termios
	return ok && Ioctl(f, syscall.TCGETS, unsafe.Pointer(&t)) == nil
}

// Hold turns off echo and line editing and shows the alternate screen. Ctrl-C and Ctrl-Z still send signals. Ctrl-\
// does not, because it would end the program without a chance to release the terminal.
func (t *Terminal) Hold() error {
	if err := Ioctl(t.f, syscall.TCGETS, unsafe.Pointer(&t.saved)); err != nil {
		return err
	}
	raw := t.saved
	raw.Lflag &^= syscall.ICANON | syscall.ECHO | syscall.IEXTEN
	raw.Iflag &^= syscall.IXON
	raw.Cc[syscall.VMIN], raw.Cc[syscall.VTIME], raw.Cc[syscall.VQUIT] = 1, 0, 0
	if err := Ioctl(t.f, syscall.TCSETS, unsafe.Pointer(&raw)); err != nil {
		return err
	}
	t.held = true
	_, err := io.WriteString(t.f, EnterScreen)
	return err
}

// Release restores what Hold changed. It does nothing if the terminal is not held.
func (t *Terminal) Release() {
	if !t.held {
		return
	}
	t.held = false
	_, _ = io.WriteString(t.f, LeaveScreen) // a terminal that hung up needs none
	_ = Ioctl(t.f, syscall.TCSETS, unsafe.Pointer(&t.saved))
}

// Close releases the terminal and closes it, which ends ReadKeys. Closing it twice is harmless.
func (t *Terminal) Close() {
	t.Release()
	t.f.Close()
}

// Suspend releases the terminal, stops the process, and holds the terminal again once the process is continued. The
// kernel may stop the process only after Kill has returned, so Suspend waits for SIGCONT.
func (t *Terminal) Suspend() error {
	continued := make(chan os.Signal, 1)
	signal.Notify(continued, syscall.SIGCONT)
	defer signal.Stop(continued)
	t.Release()
	if err := syscall.Kill(os.Getpid(), syscall.SIGSTOP); err != nil {
		return err
	}
	<-continued
	return t.Hold()
}

// Size is in columns and lines. A terminal that does not report its size counts as 80 × 24.
func (t *Terminal) Size() (width, height int) {
	var s struct{ rows, columns, x, y uint16 }
	if Ioctl(t.f, syscall.TIOCGWINSZ, unsafe.Pointer(&s)) != nil || s.rows == 0 || s.columns == 0 {
		return 80, 24
	}
	return int(s.columns), int(s.rows)
}

// Draw replaces what the screen shows. The frame must have as many lines as the screen, the last one without a line
// feed. It is written at once, so that nothing flickers.
func (t *Terminal) Draw(frame string) error {
	// A line is cleared before it is written: after a full line the cursor stands on its last character.
	_, err := io.WriteString(t.f, cursorHome+clearLine+strings.ReplaceAll(frame, "\n", "\r\n"+clearLine))
	return err
}

// ReadKeys sends the keys that are pressed until the terminal is closed or ctx ends, then closes the channel.
func (t *Terminal) ReadKeys(ctx context.Context, keys chan<- []Key) {
	defer close(keys)
	var decoder Keys
	buffer := make([]byte, 256)
	for {
		n, err := t.f.Read(buffer)
		if err != nil {
			return
		}
		select {
		case keys <- decoder.Feed(buffer[:n]):
		case <-ctx.Done():
			return
		}
	}
}

// Ioctl calls ioctl(2) on a file and leaves the file in Go's poller, which File.Fd would not.
func Ioctl(f *os.File, request uintptr, argument unsafe.Pointer) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var errno syscall.Errno
	if err := raw.Control(func(fd uintptr) { _, _, errno = syscall.Syscall(syscall.SYS_IOCTL, fd, request, uintptr(argument)) }); err != nil {
		return err
	}
	if errno != 0 {
		return errno
	}
	return nil
}

// Keep returns a function that puts a terminal back into its present state. It does nothing for a file that is no terminal.
func Keep(f *os.File) (restore func()) {
	var saved syscall.Termios
	if Ioctl(f, syscall.TCGETS, unsafe.Pointer(&saved)) != nil {
		return func() {}
	}
	return func() { _ = Ioctl(f, syscall.TCSETS, unsafe.Pointer(&saved)) }
}
