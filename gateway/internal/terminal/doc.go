// Package terminal holds a person's terminal: a program draws on all of it and reads it key by key, and the shell gets
// it back unchanged.
//
// # What it promises
//
// Between [Terminal.Hold] and [Terminal.Release] the alternate screen is shown, keys arrive without echo and without
// waiting for Enter, and the cursor is hidden. Release restores the settings and the screen that Hold found, and does
// nothing where nothing is held, so callers can defer it. [Terminal.Close] releases first. It also ends a pending read,
// because [Open] opens /dev/tty itself instead of using the descriptor of stdin.
//
// Ctrl-C and Ctrl-Z stay signals. The caller catches SIGTSTP and calls [Terminal.Suspend]. Ctrl-\ is off: it would end
// the program before it can release the terminal.
//
// [Keys] decodes what xterm and the terminals modelled on it send (ECMA-48 control sequences). It keeps fewer than 16
// bytes of an unfinished sequence, whatever it is fed.
//
// # What it never does
//
// It starts no goroutine and handles no signal by itself. It knows no colours and no layout: its caller writes them.
//
// Package terminaltest has a pseudoterminal for tests.
package terminal
