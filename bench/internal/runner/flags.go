package runner

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// ParseFlags parses the command line. Positional arguments are an error.
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

// Setting is a flag that several programs have, with the same name, default and meaning in each.
type Setting struct{ name, value, usage string }

// The settings that programs share.
var (
	Xebec      = Setting{"xebec", "bin/xebec", "gateway `program`"}
	Worker     = Setting{"worker", "bin/xebec-testworker", "compiled worker `program`"}
	Python     = Setting{"python", "build/venv/bin/python", "`interpreter` with the Python binding and scikit-learn"}
	DemoModels = Setting{"models", "deploy/demo/models", "`folder` of the demo's trained models"}
	GoTool     = Setting{"go", "go", "Go `tool`, for the packages' benchmarks"}
	Root       = Setting{"root", ".", "root `folder` of the repository"}
	Out        = Setting{"out", "bench/results", "`folder` for the results; empty: only print them"}
)

// Var registers the flag on the command line, with its value in to.
func (s Setting) Var(to *string) { flag.StringVar(to, s.name, s.value, s.usage) }

// Names splits the comma-separated value of a flag and checks that each name is known.
func Names(flagName, value string, known ...string) ([]string, error) {
	names := strings.Split(value, ",")
	for _, n := range names {
		if !slices.Contains(known, n) {
			return nil, fmt.Errorf("-%s %q: there is no %q; expected some of %s, separated by commas", flagName, value, n, strings.Join(known, ","))
		}
	}
	return names, nil
}

// Resolve makes the paths absolute, in place. It fails if one does not exist; hint tells the user how to make what is missing. An empty
// path stays empty: the program does without it.
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

// BuildHint is the hint for Resolve about paths that the Makefile makes.
const BuildHint = "`make build demo` at the repository's root builds what is missing"
