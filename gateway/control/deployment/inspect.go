package deployment

import (
	"bytes"
	"context"
	"sync"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/containers"
)

const (
	// maxInspections bounds the inspections at once. Each loads a model.
	maxInspections = 4 //xebec:limit inspections of models at once
	// inspectWithin bounds an inspection, from the start of its process.
	inspectWithin = 10 * time.Minute //xebec:limit inspection of a model
	// maxInspectedBytes is more than the description of a model with the most tensors, and fits a line of the command line's.
	maxInspectedBytes = 512 << 10 //xebec:limit output of an inspection
)

// Inspect runs a command in a model's directory as a replica of a model there would run: with the same interpreter, isolated, without a
// network. emit gets its stderr line by line, and in the end the last line of its stdout. The error is emit's, or says how the command
// ended if it failed.
func (h *Host) Inspect(ctx context.Context, dir string, command []string, emit func(api.LogLine) error) error {
	if h.inspections.Add(1) > maxInspections {
		h.inspections.Add(-1)
		return api.Errorf(api.Overloaded, "already %d models are inspected: try again when one of them is done", maxInspections)
	}
	defer h.inspections.Add(-1)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	spec := api.ModelSpec{Name: "inspect", Version: "1", Dir: dir, Run: api.RunSpec{Command: command}}
	replica, logs, stdout := h.replicas.Add(1), containers.NewLogs(), &lastLine{}
	stderr := logs.Writer(replica, containers.Stderr)
	started := make(chan error, 1)
	go func() {
		defer logs.Close()
		started <- h.inspect(ctx, containers.Launch{
			Replica: replica, Model: spec.ID(), Dir: dir, Command: h.command(&spec), Isolation: isolationOf(&spec), Environment: ownPython(&spec), Stdout: stdout, Stderr: stderr,
		})
		_ = stderr.Close() // it cannot fail
	}()
	failed := pass(ctx, logs, emit)
	if failed != nil {
		cancel()
	}
	err := <-started
	switch {
	case failed != nil:
		return failed
	case err != nil:
		return api.Errorf(api.InvalidArgument, "%w", err)
	}
	return emit(api.LogLine{Time: time.Now(), Replica: replica, Stream: "stdout", Text: stdout.String()})
}

// pass hands lines to emit until the log is closed.
func pass(ctx context.Context, logs *containers.Logs, emit func(api.LogLine) error) error {
	follower := logs.Follow(-1)
	for {
		lines, _, err := follower.Next(ctx)
		for _, l := range lines {
			if err := emit(api.LogLine{Time: l.At, Replica: l.Replica, Stream: l.Stream.String(), Text: l.Text}); err != nil {
				return err
			}
		}
		if err != nil {
			return ctx.Err() // nil: the log was closed
		}
	}
}

// inspect starts the launch and returns when it has ended. It fails if the launch did.
func (h *Host) inspect(ctx context.Context, l containers.Launch) error {
	inst, err := h.Runtime.Start(ctx, l)
	if err != nil {
		return err
	}
	late := time.NewTimer(inspectWithin)
	defer late.Stop()
	select {
	case <-inst.Exited():
		if exit := inst.Exit(); exit.Code != 0 {
			return exitError(exit.String())
		}
		return nil
	case <-ctx.Done():
		err = ctx.Err()
	case <-late.C:
		err = exitError("killed: it took longer than " + inspectWithin.String())
	}
	if kill := inst.Signal(false); kill != nil {
		return kill
	}
	<-inst.Exited()
	return err
}

// exitError is how a process ended.
type exitError string

func (e exitError) Error() string { return string(e) }

// lastLine keeps the last line that is written to it, without its end.
type lastLine struct {
	mu   sync.Mutex
	line []byte
	done bool // line is complete: what comes begins another one
}

func (l *lastLine) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for part := range bytes.Lines(p) {
		if l.done {
			l.line, l.done = l.line[:0], false
		}
		text, ended := bytes.CutSuffix(part, []byte("\n"))
		l.line = append(l.line, text[:min(len(text), maxInspectedBytes-len(l.line))]...)
		l.done = ended
	}
	return len(p), nil
}

func (l *lastLine) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return string(bytes.ToValidUTF8(l.line, []byte("\uFFFD")))
}
