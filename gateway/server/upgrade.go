package server

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/xebec-serving/xebec/gateway/takeover"
)

// contactWithin bounds how long a process that was started may take to ask.
const contactWithin = 30 * time.Second //xebec:limit time for a process that `xebec upgrade` has started to ask to take over

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
	if su.started != nil || su.to != nil {
		su.mu.Unlock()
		return 0, errors.New("another process is taking over already")
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
	go func() { _, _, _ = conn.Receive(); close(left) }() // the command says nothing more: its connection has ended
	contact := time.NewTimer(su.contact)
	defer contact.Stop()
	why := "" // it is ended
	for {
		select {
		case err := <-p.outcome:
			return pid, err
		case err := <-ended:
			su.mu.Lock()
			to, decided := su.to, su.decided
			su.mu.Unlock()
			if to != nil {
				<-decided
			}
			select {
			case err := <-p.outcome: // it knows better why
				return pid, err
			default:
			}
			how := "exit status 0"
			if err != nil {
				how = err.Error()
			}
			err = fmt.Errorf("process %d has ended before it asked to take over (%s): its own messages are in the log", pid, how)
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
		case <-su.stopping:
			return pid, errors.New("the gateway is stopping")
		}
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
		_ = process.Kill() // it fails only if the process has ended, whose number may be another one's by now
		return reason
	case abort:
		go su.abort(reason)
	}
	return ""
}

// endOf waits until a process has ended. The error says how, unless its status is 0.
func endOf(p *os.Process) error {
	st, err := p.Wait()
	if err == nil && !st.Success() {
		err = errors.New(st.String())
	}
	return err
}

// StartProcess starts a program that takes over from the gateway of this process, with the same arguments and environment. It is what
// the command passes as Config.StartSuccessor.
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
	p, err := os.StartProcess(binary, append([]string{binary}, args...), &os.ProcAttr{Env: env, Files: []*os.File{null, os.Stdout, os.Stderr}})
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", binary, err)
	}
	return p, nil
}

// UpgradeProgress is a step of an upgrade.
type UpgradeProgress = takeover.Progress

// Upgrade asks the gateway that runs with a data directory to start a process of a program that takes over from it, and waits until
// that has happened or failed. An empty binary is the gateway's own program. With a canary the new process is tried first. progress is
// called at each step.
func Upgrade(ctx context.Context, dataDir, binary string, canary *Canary, progress func(UpgradeProgress)) (pid int, err error) {
	dir, err := findDataDir(dataDir)
	if err != nil {
		return 0, err
	}
	conn, err := takeover.Dial(ctx, dir.control())
	if err != nil {
		return 0, fmt.Errorf("no gateway answers in %s: --data-dir names the directory of the one to replace: %w", dir.path, err)
	}
	defer func() { _ = conn.Close() }()
	defer context.AfterFunc(ctx, conn.EndReceive)()
	if err := conn.Send(takeover.KindUpgrade, takeover.Upgrade{Binary: binary, Canary: canary}); err != nil {
		return 0, err
	}
	for {
		f, files, err := conn.Receive()
		for _, file := range files {
			file.Close()
		}
		if err != nil && ctx.Err() != nil {
			return 0, fmt.Errorf("%w: the upgrade is called off, unless the new process serves already", context.Cause(ctx))
		} else if err != nil {
			return 0, errors.Join(context.Cause(ctx), fmt.Errorf("the gateway, process %d, has ended the connection; its log says what became of the upgrade: %w", conn.PID(), err))
		}
		if f.Kind == takeover.KindProgress {
			var step UpgradeProgress
			if err := f.Decode(&step); err != nil {
				return 0, err
			}
			progress(step)
			continue
		}
		var r takeover.Result
		if err := f.Decode(&r); err != nil {
			return 0, err
		}
		switch {
		case r.Error != "":
			return 0, errors.New(r.Error)
		default:
			return r.PID, nil
		}
	}
}
