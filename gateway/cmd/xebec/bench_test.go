package main

import (
	"errors"
	"testing"

	"github.com/xebec-serving/xebec/gateway/internal/terminal/terminaltest"
)

// Errors of two lines are two lines in a terminal too, and do not drive it.
func TestSayingLinesInATerminal(t *testing.T) {
	p := terminaltest.New(t, 80, 24)
	b := &bench{c: &cli{out: p.Inner, err: p.Inner}}
	b.say("%v", errors.Join(errors.New("xebec.yaml:4: one"), errors.New("xebec.yaml:5: two\x1b[2J")))
	p.Await("xebec: xebec.yaml:4: one\r\nxebec.yaml:5: two·[2J\r\n")
}
