package program

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
)

// Main runs a program of this name. Its context ends with SIGINT and SIGTERM; an error goes to stderr, and the process ends with
// status 1.
func Main(name string, run func(context.Context) error) {
	if status := status(name, os.Stderr, run); status != 0 {
		os.Exit(status)
	}
}

func status(name string, stderr io.Writer, run func(context.Context) error) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintf(stderr, "%s: %v\n", name, err)
		return 1
	}
	return 0
}

// ParseFlags parses the command line, and accepts nothing but flags.
func ParseFlags() error { return parse(flag.CommandLine, os.Args[1:]) }

func parse(flags *flag.FlagSet, args []string) error {
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q: everything is a flag, see -help", flags.Arg(0))
	}
	return nil
}

// Resolve makes paths absolute, in place, and fails where there is nothing; hint says how to make what is missing. An empty path
// stays empty: it is of something that the program does without.
func Resolve(hint string, paths ...*string) error {
	for _, path := range paths {
		if *path == "" {
			continue
		}
		absolute, err := filepath.Abs(*path)
		if err != nil {
			return err
		}
		if _, err := os.Stat(absolute); err != nil {
			return fmt.Errorf("%w: %s", err, hint)
		}
		*path = absolute
	}
	return nil
}
