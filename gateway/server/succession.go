package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/xebec-serving/xebec/gateway/takeover"
)

const (
	// firstMessageWithin bounds how long a process that has connected to the control socket may say nothing.
	firstMessageWithin = 10 * time.Second //xebec:limit time from connecting to the control socket to the first message
	// maxControl bounds the connections to the control socket. There is one takeover at a time; others are told so.
	maxControl = 8 //xebec:limit connections to the control socket
	// controlAgain is the pause after a connection to the control socket that could not be accepted.
	controlAgain = 100 * time.Millisecond
)

// errSuperseded refuses what is asked between the commit point and the close of the control socket.
var errSuperseded = errors.New("another process has just taken over, and this one ends: try again in a moment")

// succession is how this gateway is replaced: the control socket, and the process that takes over.
type succession struct {
	mu       sync.Mutex
	ln       *net.UnixListener
	running  sync.WaitGroup
	to       *takeover.Conn      // the process that takes over, or wants to; nil: none
	abort    func(reason string) // ends its takeover, unless it serves
	decided  chan struct{}       // closed when that one has failed, or serves
	started  *startedProcess
	contact  time.Duration // how long a started process may take to ask
	stopping chan struct{}
	stopOnce sync.Once
	// superseded is closed at the commit point.
	superseded chan struct{}
}

func (s *succession) init() {
	s.contact = contactWithin
	s.stopping, s.superseded = make(chan struct{}), make(chan struct{})
}

// Superseded is closed when another process has taken over: it serves, and this gateway is to be shut down. Shutdown waits for the
// connections that this one still has.
func (s *Server) Superseded() <-chan struct{} { return s.succession.superseded }

// Successor is the process that has taken over; 0: none has.
func (s *Server) Successor() int {
	if !s.succession.isOver() {
		return 0
	}
	s.succession.mu.Lock()
	defer s.succession.mu.Unlock()
	return s.succession.to.PID()
}

// listenForSuccessor opens the control socket, at which a process asks to take over.
func (s *Server) listenForSuccessor() error {
	path := s.dir.control()
	if path == "" {
		return nil
	}
	ln, err := takeover.Listen(path)
	if err != nil {
		return fmt.Errorf("open the control socket: %w", err)
	}
	su := &s.succession
	su.mu.Lock()
	defer su.mu.Unlock()
	select {
	case <-su.stopping:
		return ln.Close()
	default:
	}
	su.ln = ln
	slots := make(chan struct{}, maxControl)
	su.running.Go(func() {
		failing := false
		for {
			c, err := ln.AcceptUnix()
			switch {
			case errors.Is(err, net.ErrClosed):
				return
			case err != nil: // mostly there is no descriptor left, which passes
				if !failing {
					s.log.Warn("this gateway cannot be taken over now: its control socket is tried again; raise the limit of open files (ulimit -n, LimitNOFILE) if there are too few", zap.Error(err))
				}
				failing = true
				select {
				case <-time.After(controlAgain):
				case <-su.stopping:
				}
				continue
			}
			failing = false
			select {
			case slots <- struct{}{}:
			default:
				c.Close()
				continue
			}
			su.running.Go(func() {
				defer func() { <-slots }()
				conn, err := takeover.NewConn(c)
				if err != nil {
					s.log.Warn("a process may not use the control socket", zap.Error(err))
					return
				}
				defer func() { _ = conn.Close() }()
				s.serveControl(conn)
			})
		}
	})
	return nil
}

// serveControl does what a process asks for at the control socket.
func (s *Server) serveControl(conn *takeover.Conn) {
	if conn.SetReceiveDeadline(time.Now().Add(firstMessageWithin)) != nil {
		return
	}
	unhook := context.AfterFunc(s.life, conn.EndReceive)
	f, files, err := conn.Receive()
	unhook()
	for _, file := range files {
		file.Close()
	}
	if err != nil || conn.SetReceiveDeadline(time.Time{}) != nil {
		return
	}
	switch f.Kind {
	case takeover.KindHello:
		var hello takeover.Hello
		if err := f.Decode(&hello); err != nil {
			s.log.Warn("a process asks to take over and cannot be understood", zap.Error(err))
			return
		}
		s.give(conn, hello)
	case takeover.KindUpgrade:
		var u takeover.Upgrade
		err := f.Decode(&u)
		pid := 0
		if err == nil {
			pid, err = s.upgrade(conn, u)
		}
		if errors.Is(err, errSuperseded) {
			return // without an answer the command asks again, at the socket of the new process
		}
		r := takeover.Result{PID: pid}
		if err != nil {
			r.Error = err.Error()
		}
		_ = conn.Send(takeover.KindResult, r)
	}
}

// settle ends a takeover that has not reached its commit point, or waits for it. It returns the connection to the process that has
// taken over; nil: there is none.
func (s *succession) settle() *takeover.Conn {
	s.mu.Lock()
	s.stopOnce.Do(func() { close(s.stopping) })
	if s.ln != nil {
		_ = s.ln.Close()
		s.ln = nil
	}
	to, decided := s.to, s.decided
	s.mu.Unlock()
	if to == nil {
		return nil
	}
	<-decided
	if s.isOver() {
		return to
	}
	return nil
}

// isStopping reports whether the gateway is stopping. No process can take over from it then.
func (s *succession) isStopping() bool {
	select {
	case <-s.stopping:
		return true
	default:
		return false
	}
}

// isOver reports whether another process has taken over.
func (s *succession) isOver() bool {
	select {
	case <-s.superseded:
		return true
	default:
		return false
	}
}

// end says that this process is done.
func (s *succession) end(to *takeover.Conn) {
	if to != nil {
		_ = to.Send(takeover.KindDone, nil)
		to.EndReceive()
	}
	s.running.Wait()
}
