package runner

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/xebec-serving/xebec/bench/internal/results"
)

// Main runs the program called name. SIGINT and SIGTERM cancel the context of run. If run fails, Main prints the error to stderr and exits
// with status 1.
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

// Logf writes a line of progress to stderr. Stdout is for the report.
func Logf(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }

// Publish prints the report to stdout and keeps it in dir, see results.Keep. An empty dir means that it is only printed. A report without
// measurements is an error.
func Publish(dir, kind string, r results.Report) error { return publish(os.Stdout, dir, kind, r) }

func publish(stdout io.Writer, dir, kind string, r results.Report) error {
	if r.Empty() {
		return errors.New("nothing was measured")
	}
	if _, err := io.WriteString(stdout, r.Markdown()); err != nil || dir == "" {
		return err
	}
	files, err := results.Keep(dir, kind, r)
	if err == nil {
		Logf("==> written: %s", strings.Join(files, ", "))
	}
	return err
}

// Train runs a trainer of bench/models, which does nothing if its models are up to date.
func Train(ctx context.Context, python, script string) error {
	cmd := exec.CommandContext(ctx, python, script)
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w: it needs numpy and scikit-learn; `make demo` makes build/venv, which has them", cmd, err)
	}
	return nil
}

// Sleep returns after d, or with the context's error when ctx ends first.
func Sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Until calls ask, once right away and then periodically, until it returns true or an error. If that takes longer than within, the error
// says that the condition, what, did not become true.
func Until(ctx context.Context, every, within time.Duration, what string, ask func(context.Context) (bool, error)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, within, fmt.Errorf("not within %v: %s", within, what))
	defer cancel()
	poll := time.NewTicker(every)
	defer poll.Stop()
	for {
		if done, err := ask(ctx); err != nil || done {
			return err
		}
		select {
		case <-poll.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
