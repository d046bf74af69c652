package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/xebec-serving/xebec/containers/process"
)

func main() {
	// The gateway starts this program again as its reaper, which outlives it.
	process.MaybeReaper()
	hangups := catchHangups(os.Args[1:])
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// The first signal asks for an orderly end. The second is not caught.
	context.AfterFunc(ctx, stop)
	c := &cli{in: os.Stdin, out: os.Stdout, err: os.Stderr, getenv: os.Getenv, now: time.Now, pollEvery: pollInterval, signals: hangups}
	os.Exit(c.run(ctx, os.Args[1:]))
}
