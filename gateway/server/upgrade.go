package server

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/xebec-serving/xebec/gateway/takeover"
)

// contactWithin bounds how long a process that was started may take to ask.
const contactWithin = 30 * time.Second //xebec:limit time for a process that `xebec upgrade` has started to ask to take over

// startedProcess is a process that `xebec upgrade` has started.
type startedProcess struct {
	outcome chan error // capacity 1
	tell    func(takeover.Progress)
	began   sync.Once
}

// progress tells the command how far it is. The process may ask to take over before its parent knows that it runs: that it is started
// is told first in any case.
func (p *startedProcess) progress(step takeover.Progress) {
	p.began.Do(func() { p.tell(takeover.Progress{PID: step.PID, Stage: takeover.StageStarted}) })
	if step.Stage != takeover.StageStarted {
		p.tell(step)
	}
}

// upgrade starts a process that takes over, and waits until it has.
func (s *Server) upgrade(conn *takeover.Conn, u takeover.Upgrade) (pid int, err error) {
	switch {
	case s.cfg.StartSuccessor == nil:
		return 0, errors.New("this gateway is part of another program, which has to be replaced as a whole: start the new one with Config.Takeover")
	case os.Getpid() == 1:
		return 0, errors.New("this gateway is process 1, and its container ends with it: replace the container")
	}
	if err := u.Canary.Check(); err != nil {
		return 0, err
	}
	p := &startedProcess{outcome: make(chan error, 1), tell: func(step takeover.Progress) { _ = conn.Send(takeover.KindProgress, step) }}
	su := &s.succession
	su.mu.Lock()
	if su.isOver() {
		su.mu.Unlock()
		return 0, errSuperseded
	}
	if su.started != nil || su.to != nil {
		su.mu.Unlock()
		return 0, s.takingOver()
	}
	su.started = p
	su.mu.Unlock()
	defer func() {
		su.mu.Lock()
		su.started = nil
		su.mu.Unlock()
	}()
	process, err := s.cfg.StartSuccessor(u.Binary, u.Canary)
	if err != nil {
		return 0, err
	}
	pid = process.Pid
	s.log.Info("started a process that is to take over", zap.Int("process", pid))
	p.progress(takeover.Progress{PID: pid, Stage: takeover.StageStarted})
	ended := make(chan error, 1)
	go func() { ended <- endOf(process) }() // it outlives this process if it takes over
	left := make(chan struct{})
	go func() { // the command says nothing more: its connection has ended
		defer close(left)
		_, files, _ := conn.Receive()
		for _, file := range files {
			file.Close()
		}
	}()
	contact := time.NewTimer(su.contact)
	defer contact.Stop()
	why := "" // it is ended
	for {
		select {
		case err := <-p.outcome:
			return pid, err
		case err := <-ended:
			if known, err := su.outcomeOf(p); known { // it knows better why
				return pid, err
			}
			how := "exit status 0"
			if err != nil {
				how = err.Error()
			}
			err = fmt.Errorf("process %d has ended before it asked to take over (%s): is it a gateway that knows the flags of this one? Its own messages are in the log", pid, how)
			if why != "" {
				err = fmt.Errorf("process %d was killed: %s", pid, why)
			}
			s.log.Error("an upgrade has failed; this process goes on", zap.Int("process", pid), zap.Error(err))
			return pid, err
		case <-contact.C:
			why = s.callOff(process, fmt.Sprintf("it did not ask to take over within %s: is it a gateway, and does it have the same --data-dir?", su.contact), false)
		case <-left:
			left = nil
			why = s.callOff(process, "the command that had started the upgrade was interrupted", true)
		case <-su.stopping: // perhaps as the new process serves
			if known, err := su.outcomeOf(p); known {
				return pid, err
			}
			return pid, errors.New("the gateway is stopping")
		}
	}
}

// takingOver says which process is taking over, or is to.
func (s *Server) takingOver() error {
	u := s.Upgrade()
	if u == nil {
		return errors.New("another process has been started already, and is to take over: wait until it serves or has failed")
	}
	return fmt.Errorf("process %d is taking over already, since %s, step %s: wait until it serves or has failed", u.Peer, u.Since.Format(time.TimeOnly), u.Step)
}

// outcomeOf is the outcome of a takeover by a started process, if it has one. It waits for a takeover that has begun.
func (s *succession) outcomeOf(p *startedProcess) (known bool, err error) {
	s.mu.Lock()
	to, decided := s.to, s.decided
	s.mu.Unlock()
	if to != nil {
		<-decided
	}
	select {
	case err := <-p.outcome:
		return true, err
	default:
		return false, nil
	}
}

// callOff ends an upgrade. A process that has not asked to take over is killed: why says so. Otherwise the takeover is aborted, if
// that is wanted.
func (s *Server) callOff(process *os.Process, reason string, abort bool) (why string) {
	su := &s.succession
	su.mu.Lock()
	defer su.mu.Unlock()
	switch {
	case su.to == nil:
		killGroup(process)
		return reason
	case abort:
		go su.abort(reason)
	}
	return ""
}

// killGroup kills a process and, if it leads a process group, what it has started.
func killGroup(process *os.Process) {
	// The first call fails only if the process has ended, whose number may be another one's by now.
	if process.Kill() == nil {
		_ = unix.Kill(-process.Pid, unix.SIGKILL) // it fails if there is no such group
	}
}

// endOf waits until a process has ended. The error says how, unless its status is 0.
func endOf(p *os.Process) error {
	st, err := p.Wait()
	if err == nil && !st.Success() {
		err = errors.New(st.String())
	}
	return err
}

// StartProcess starts a program that takes over from the gateway of this process, with this environment and in a process group of its
// own. It is what the command passes as Config.StartSuccessor.
func StartProcess(binary string, args []string) (*os.Process, error) {
	if binary == "" {
		var err error
		if binary, err = os.Executable(); err != nil {
			return nil, err
		}
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	// What a service manager has said to this process alone.
	env := slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "LISTEN_") || strings.HasPrefix(v, "WATCHDOG_PID=")
	})
	p, err := os.StartProcess(binary, append([]string{binary}, args...), &os.ProcAttr{
		Env: env, Files: []*os.File{null, os.Stdout, os.Stderr}, Sys: &syscall.SysProcAttr{Setpgid: true},
	})
	switch {
	case errors.Is(err, unix.ENOEXEC):
		return nil, fmt.Errorf("start %s: it is no program for this machine (%s/%s), or not all of it was copied: %w", binary, runtime.GOOS, runtime.GOARCH, err)
	case errors.Is(err, unix.ETXTBSY):
		return nil, fmt.Errorf("start %s: it is still being written: copy it to another name and move it there: %w", binary, err)
	case err != nil:
		return nil, fmt.Errorf("start %s: %w", binary, err)
	}
	return p, nil
}
