package program

import (
	"context"
	"errors"
	"flag"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestStatus(t *testing.T) {
	var stderr strings.Builder
	if got := status("tool", &stderr, func(context.Context) error { return nil }); got != 0 || stderr.String() != "" {
		t.Errorf("without an error: status %d, %q", got, stderr.String())
	}
	if got := status("tool", &stderr, func(context.Context) error { return errors.New("no disk") }); got != 1 || stderr.String() != "tool: no disk\n" {
		t.Errorf("with an error: status %d, %q", got, stderr.String())
	}
}

func TestASignalEndsTheContext(t *testing.T) {
	for _, s := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		status("tool", io.Discard, func(ctx context.Context) error {
			if err := syscall.Kill(os.Getpid(), s); err != nil {
				t.Fatal(err)
			}
			<-ctx.Done()
			return nil
		})
	}
}

func TestOnlyFlagsAreParsed(t *testing.T) {
	flags := flag.NewFlagSet("tool", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	n := flags.Int("n", 1, "")
	if err := parse(flags, []string{"-n", "3"}); err != nil || *n != 3 {
		t.Errorf("got %d, %v", *n, err)
	}
	for _, args := range [][]string{{"word"}, {"-n", "3", "word"}, {"-m"}} {
		if err := parse(flags, args); err == nil {
			t.Errorf("%v was accepted", args)
		}
	}
}

func TestResolve(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	if err := os.WriteFile("there", nil, 0o644); err != nil {
		t.Fatal(err)
	}
	there, none, missing := "there", "", "missing"
	if err := Resolve("make it", &there, &none); err != nil || there != filepath.Join(dir, "there") || none != "" {
		t.Errorf("got %q and %q, %v", there, none, err)
	}
	if err := Resolve("make it", &missing); !errors.Is(err, fs.ErrNotExist) || !strings.HasSuffix(err.Error(), ": make it") {
		t.Errorf("got %v", err)
	}
}
