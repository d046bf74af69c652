package main

import (
	"io"
	"os"
	"syscall"
	"unsafe"
)

// Control sequences of xterm and of all terminals that follow it.
const (
	// The alternate screen, without a cursor, and without wrapping of lines that a wide character makes too long.
	enterScreen = "\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[2J"
	leaveScreen = "\x1b[?7h\x1b[?25h\x1b[?1049l"
	toTheTop    = "\x1b[H"
	clearLine   = "\x1b[K"
)

// terminal is a person's terminal, which is drawn on as a whole and read key by key while it is held.
type terminal struct {
	f      *os.File
	before syscall.Termios
	held   bool
}

// openTerminal opens the terminal that the program was started from: a description of its own, so that reading it can be ended, and nobody
// else's reads are changed.
func openTerminal() (*terminal, error) {
	f, err := os.OpenFile("/dev/tty", os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	return &terminal{f: f}, nil
}

// isTerminal reports whether w is a terminal; /dev/null is a character device too, and is none.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	var t syscall.Termios
	return ok && ioctl(f, syscall.TCGETS, unsafe.Pointer(&t)) == nil
}

// hold turns echo and lines off and shows the alternate screen. Interrupt (Ctrl-C) and suspend (Ctrl-Z) are still signals;
// quit (Ctrl-\) is not, for it ends a program without a chance to release the terminal.
func (t *terminal) hold() error {
	if err := ioctl(t.f, syscall.TCGETS, unsafe.Pointer(&t.before)); err != nil {
		return err
	}
	raw := t.before
	raw.Lflag &^= syscall.ICANON | syscall.ECHO | syscall.IEXTEN
	raw.Iflag &^= syscall.IXON
	raw.Cc[syscall.VMIN], raw.Cc[syscall.VTIME], raw.Cc[syscall.VQUIT] = 1, 0, 0
	if err := ioctl(t.f, syscall.TCSETS, unsafe.Pointer(&raw)); err != nil {
		return err
	}
	t.held = true
	_, err := io.WriteString(t.f, enterScreen)
	return err
}

// release puts everything back; where nothing is held it does nothing.
func (t *terminal) release() {
	if !t.held {
		return
	}
	t.held = false
	_, _ = io.WriteString(t.f, leaveScreen) // a terminal that has gone needs none
	_ = ioctl(t.f, syscall.TCSETS, unsafe.Pointer(&t.before))
}

// size is the terminal's, in columns and lines; that of the oldest ones where it does not say.
func (t *terminal) size() (width, height int) {
	var s struct{ rows, columns, x, y uint16 }
	if ioctl(t.f, syscall.TIOCGWINSZ, unsafe.Pointer(&s)) != nil || s.rows == 0 || s.columns == 0 {
		return 80, 24
	}
	return int(s.columns), int(s.rows)
}

func ioctl(f *os.File, request uintptr, argument unsafe.Pointer) error {
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
