// Package terminaltest has a pseudoterminal whose other end is a test: it presses keys, reads what the program draws,
// resizes the screen and hangs up.
//
// Every wait is for a text on the screen and fails the test after a minute. It needs /dev/ptmx.
package terminaltest
