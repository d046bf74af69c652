package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/xebec-serving/xebec/bench/internal/machine"
)

const (
	// defaultWithin is enough for a Python worker to import scikit-learn on a busy machine.
	defaultWithin = 60 * time.Second
	pollEvery     = 20 * time.Millisecond
	stopWithin    = 15 * time.Second
	// outputWithin is how long a server's output is read after its end: a process that it has left behind may keep it open.
	outputWithin = time.Second
)

// Options describe the server.
type Options struct {
	Name    string // in messages
	Program string
	Args    []string
	Env     []string // beside this process's
	// Folder is the working directory. Start takes ownership: the folder is removed when the server stops or fails to start. Empty means this
	// process's directory, which is not removed.
	Folder string
	// Cores are the processors of the server and its children. None means all.
	Cores []int
	// Ready checks that the server is ready. Start calls it until it returns nil.
	Ready func() error
	// Within bounds the time until the server is ready. 0 means a minute.
	Within time.Duration
}

// Process is a running server.
type Process struct {
	Name string

	cmd    *exec.Cmd
	folder string
	output Tail
	exited chan struct{}
}

// Start runs a server and waits until it is ready.
func Start(ctx context.Context, o Options) (*Process, error) {
	p := &Process{Name: o.Name, cmd: exec.Command(o.Program, o.Args...), folder: o.Folder, exited: make(chan struct{})}
	p.cmd.Dir = o.Folder
	p.cmd.Env = append(append(os.Environ(), "XEBEC_DATA_DIR=none"), o.Env...) // flags and Env can override it
	p.cmd.Stdout, p.cmd.Stderr = &p.output, &p.output
	p.cmd.WaitDelay = outputWithin
	// A process group of its own, so that a terminal's Ctrl-C reaches only this program, which then stops the server.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := machine.OnCores(o.Cores, p.cmd.Start); err != nil {
		p.removeFolder()
		return nil, fmt.Errorf("start %s: %w", o.Name, err)
	}
	go func() {
		_ = p.cmd.Wait() // the server's last output says why it ended
		close(p.exited)
	}()
	if err := p.await(ctx, o); err != nil {
		p.Stop()
		return nil, fmt.Errorf("start %s: %w%s", o.Name, err, p.LastWords())
	}
	return p, nil
}

func (p *Process) await(ctx context.Context, o Options) error {
	within := o.Within
	if within == 0 {
		within = defaultWithin
	}
	giveUp := time.NewTimer(within)
	defer giveUp.Stop()
	poll := time.NewTicker(pollEvery)
	defer poll.Stop()
	err := errors.New("not asked yet")
	for err != nil {
		select {
		case <-poll.C:
			err = o.Ready()
		case <-ctx.Done():
			return ctx.Err()
		case <-p.exited:
			return errors.New("it ended")
		case <-giveUp.C:
			return fmt.Errorf("not ready after %s: %w", within, err)
		}
	}
	return nil
}

// PID returns the server's process ID.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// CPU returns the CPU time of the server, without its children.
func (p *Process) CPU() (time.Duration, error) { return machine.CPUTime(p.PID()) }

// ForgetPeak makes Peak begin with what the server has resident now.
func (p *Process) ForgetPeak() error { return machine.ForgetPeak(p.PID()) }

// Peak returns the most bytes that the server had resident since ForgetPeak, memory that it shares with its children included.
func (p *Process) Peak() (int64, error) { return machine.Peak(p.PID()) }

// LastWords returns the end of the server's output, formatted for the end of an error message, or "" if there was none.
func (p *Process) LastWords() string {
	if words := p.output.String(); words != "" {
		return "\nlast words of " + p.Name + ":\n" + words
	}
	return ""
}

// Stop ends the server with SIGTERM, and with SIGKILL if that takes too long, and removes its folder.
func (p *Process) Stop() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // fails if the server has ended
	select {
	case <-p.exited:
	case <-time.After(stopWithin):
		_ = p.cmd.Process.Kill()
		<-p.exited
	}
	p.removeFolder()
}

func (p *Process) removeFolder() {
	if p.folder != "" {
		_ = os.RemoveAll(p.folder) // leftovers stay in the system's temporary folder
	}
}

// FreeAddr returns a loopback address that was free a moment ago.
func FreeAddr() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}
