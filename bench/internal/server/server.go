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
	// readyWithin is generous: a Python worker imports scikit-learn on a busy machine.
	readyWithin = 60 * time.Second
	pollEvery   = 20 * time.Millisecond
	stopWithin  = 15 * time.Second
)

// Options say what to start.
type Options struct {
	Name    string // in messages
	Program string
	Args    []string
	Env     []string // beside this process's
	// Folder is the working directory. It belongs to the process and is removed with it, also when Start fails; "" stays where
	// this process is, and removes nothing.
	Folder string
	// Cores are those that the server, and all that it starts, may run on; none: all.
	Cores []int
	// Ready asks the server something; it is called until it returns nil.
	Ready func() error
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
	p.cmd.Env = append(append(os.Environ(), "XEBEC_DATA_DIR=none"), o.Env...) // unless its flags or variables say otherwise
	p.cmd.Stdout, p.cmd.Stderr = &p.output, &p.output
	// A Ctrl-C is for this program, which then stops the servers; a terminal would send it to all of them at once.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := machine.OnCores(o.Cores, p.cmd.Start); err != nil {
		p.removeFolder()
		return nil, fmt.Errorf("start %s: %w", o.Name, err)
	}
	go func() {
		_ = p.cmd.Wait() // its last words say why it ended
		close(p.exited)
	}()
	if err := p.await(ctx, o.Ready); err != nil {
		p.Stop()
		return nil, fmt.Errorf("start %s: %w%s", o.Name, err, p.LastWords())
	}
	return p, nil
}

func (p *Process) await(ctx context.Context, ready func() error) error {
	giveUp := time.NewTimer(readyWithin)
	defer giveUp.Stop()
	poll := time.NewTicker(pollEvery)
	defer poll.Stop()
	err := errors.New("not asked yet")
	for err != nil {
		select {
		case <-poll.C:
			err = ready()
		case <-ctx.Done():
			return ctx.Err()
		case <-p.exited:
			return errors.New("it ended")
		case <-giveUp.C:
			return fmt.Errorf("not ready after %s: %w", readyWithin, err)
		}
	}
	return nil
}

// PID is the server's process number.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// CPU is the time that the server has used, without its workers.
func (p *Process) CPU() (time.Duration, error) { return machine.CPUTime(p.PID()) }

// LastWords is the end of what the server wrote, for the end of an error message; empty when it was silent.
func (p *Process) LastWords() string {
	if words := p.output.String(); words != "" {
		return "\nlast words of " + p.Name + ":\n" + words
	}
	return ""
}

// Stop ends the server, gently first, and removes its folder.
func (p *Process) Stop() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
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
		_ = os.RemoveAll(p.folder) // what stays is in the system's folder for such
	}
}

// FreeAddr is an address that was free a moment ago.
func FreeAddr() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}
