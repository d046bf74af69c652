package main

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"
	"time"
)

// console is a cli whose streams, environment and clock belong to a test. The clock stands still at 65 minutes after
// then.
type console struct {
	*cli
	stdout, stderr bytes.Buffer
	env            map[string]string
}

func newConsole(stdin string) *console {
	x := &console{env: map[string]string{}}
	x.cli = &cli{
		in: strings.NewReader(stdin), out: &x.stdout, err: &x.stderr, getenv: func(name string) string { return x.env[name] },
		now: func() time.Time { return then.Add(65 * time.Minute) }, pollEvery: time.Millisecond,
	}
	return x
}

// run runs one command line.
func (x *console) run(ctx context.Context, args ...string) (code int, stdout, stderr string) {
	code = x.cli.run(ctx, args)
	return code, x.stdout.String(), x.stderr.String()
}

// execute runs a command line against the fake gateway, and returns what a transcript shows.
func execute(t *testing.T, g *fakeGateway, stdin string, args []string) string {
	t.Helper()
	x := newConsole(stdin)
	x.env["XEBEC_ADMIN"], x.env["XEBEC_SERVER"] = g.Listener.Addr().String(), g.URL
	code, out, stderr := x.run(t.Context(), args...)
	for line := range strings.Lines(stderr) {
		out += "! " + line
	}
	for _, r := range g.take() {
		out += "> " + strings.ReplaceAll(r, "\n", "\n> ") + "\n"
	}
	if code != 0 {
		out += fmt.Sprintf("exit status %d\n", code)
	}
	return out
}
