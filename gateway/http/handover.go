package http

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/http/poll"
	"github.com/xebec-serving/xebec/gateway/internal/accept"
)

// This file moves kept connections in clear text from a server to that of another process, each between two of its requests: what the client has
// sent of the next one lies in the kernel, and goes along. A connection with a request in work moves after its answer.

const (
	// maxPassing bounds the connections that were sent and that the other process has not said to have.
	maxPassing = 64 //xebec:limit kept connections on their way to a new process of the gateway
	// passWithin is how long the other process may take to say so. It then gets no more.
	passWithin = 5 * time.Second //xebec:limit time for a new process of the gateway to take a kept connection
	// offerEvery is how often connections that have become idle otherwise than by an answer are looked for.
	offerEvery = 10 * time.Millisecond
)

var errEnding = errors.New("the server is ending")

// handover is the end of a server that another process replaces.
type handover struct {
	server *Server
	out    *accept.Outlet
	idle   []*conn // to be offered

	mu     sync.Mutex
	sent   []*conn // that the other process has not said to have, the first one first
	moved  time.Time
	closed bool
}

// HandOver passes the server's connections on to another process, until Shutdown, and owns the outlet. It returns how many that process has
// taken. If it returns an error, the others stay, and each closes with its next answer as after CloseAfterAnswers. The listener has stopped.
func (s *Server) HandOver(out *accept.Outlet) (taken int, err error) {
	switch err := s.joins(out); {
	case errors.Is(err, errEnding): // a process that had no connection may have ended before it came here
		return 0, nil
	case err != nil:
		s.CloseAfterAnswers()
		return 0, err
	}
	defer s.leaves(out)
	h := &handover{server: s, out: out, moved: time.Now()}
	s.pollers.Load().PassOn(h.pass)
	for {
		err := out.Taken(time.Now().Add(offerEvery))
		switch {
		case err == nil && h.depart():
			taken++
			h.offer(1)
		case errors.Is(err, os.ErrDeadlineExceeded) && !h.late(time.Now()):
			h.find()
			h.offer(maxPassing)
		case errors.Is(err, os.ErrClosed):
			h.end(true)
			return taken, nil
		default:
			s.CloseAfterAnswers() // before more is read
			h.end(errors.Is(err, os.ErrDeadlineExceeded))
			return taken, fmt.Errorf("pass on the connections: %w", h.why(err))
		}
	}
}

// why says why the other process gets no more connections.
func (h *handover) why(err error) error {
	switch {
	case err == nil:
		return errors.New("the other process says that it has taken more than were sent")
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("the other process has not taken one within %s", passWithin)
	case errors.Is(err, io.EOF):
		return errors.New("the other process takes no more; its log says why")
	}
	return err
}

// pass sends a connection, if it is between two requests. A poller calls it, which also parses what comes.
func (h *handover) pass(o poll.Owner, fd int) bool {
	c := o.(*conn)
	if c.reader != nil || c.state.Load() != connIdle {
		return false
	}
	waited := h.server.edge.loop.now() - api.Nanos(c.since.Load())
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed || len(h.sent) == maxPassing {
		return false
	}
	if h.out.Pass(fd, accept.Kept{Served: c.served, Waited: time.Duration(waited)}) != nil {
		return false // it stays for now: the socket is full, or has ended, which HandOver notices
	}
	if len(h.sent) == 0 {
		h.moved = time.Now()
	}
	h.sent = append(h.sent, c)
	return true
}

// depart closes the connection that the other process has taken, or reports that none was on its way.
func (h *handover) depart() bool {
	h.mu.Lock()
	if len(h.sent) == 0 {
		h.mu.Unlock()
		return false
	}
	c := h.sent[0]
	h.sent[0] = nil
	h.sent, h.moved = h.sent[1:], time.Now()
	h.mu.Unlock()
	c.Depart()
	return true
}

// late reports whether the other process has taken none for too long.
func (h *handover) late(now time.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.sent) > 0 && now.Sub(h.moved) > passWithin
}

// find looks for connections that are still here.
func (h *handover) find() {
	if len(h.idle) > 0 {
		return
	}
	h.server.mu.Lock()
	defer h.server.mu.Unlock()
	for c := range h.server.conns {
		h.idle = append(h.idle, c)
	}
}

// offer has pollers pass on so many connections. The others come later: pollers have more to do.
func (h *handover) offer(n int) {
	for n > 0 && len(h.idle) > 0 {
		last := len(h.idle) - 1
		c := h.idle[last]
		h.idle[last] = nil
		h.idle = h.idle[:last]
		if c.Offer() {
			n--
		}
	}
}

// end passes on no more. What is on its way stays here, unless the other process may still take it.
func (h *handover) end(mayBeTaken bool) {
	h.server.pollers.Load().PassOn(nil)
	h.mu.Lock()
	h.closed = true
	left := h.sent
	h.sent = nil
	h.mu.Unlock()
	for _, c := range left {
		if mayBeTaken {
			c.Depart()
		} else {
			c.reclaim()
		}
	}
}

// reclaim reads a connection again that the other process has not taken. Its alarm may have rung meanwhile.
func (c *conn) reclaim() {
	if limit := c.idleLimit(); limit > 0 {
		c.Alarm(api.Nanos(c.since.Load()) + limit)
	}
	c.Reclaim()
}

// TakeConnections serves the connections that another process passes on, until that one ends or Shutdown, and owns the inlet. It returns how
// many it has taken. After an error the others stay with that process.
func (s *Server) TakeConnections(in *accept.Inlet) (taken int, err error) {
	if err := s.joins(in); err != nil {
		return 0, err
	}
	defer s.leaves(in)
	for {
		nc, kept, err := in.Next()
		if errors.Is(err, io.EOF) || errors.Is(err, os.ErrClosed) {
			return taken, nil
		}
		if err != nil {
			return taken, err
		}
		c := s.newConn()
		if !s.track(c) {
			return taken, errors.Join(fmt.Errorf("%d connections are open, which is the limit (--max-connections)", s.cfg.Limits.Connections), nc.Close())
		}
		if err := in.Taken(); err != nil {
			s.untrack(c)
			return taken, errors.Join(err, nc.Close())
		}
		c.served = kept.Served
		s.begin(c, nc, api.Nanos(kept.Waited))
		taken++
	}
}

// joins notes a handover that Shutdown is to end, and waits until there are pollers. If it fails it closes the handover.
func (s *Server) joins(h io.Closer) error {
	err := errEnding
	s.mu.Lock()
	switch {
	case s.cfg.TLS != nil:
		err = errors.New("connections with TLS cannot be passed on: their keys are this process's")
	case !s.ended:
		s.handovers[h] = struct{}{}
		err = nil
	}
	s.mu.Unlock()
	if err == nil {
		select {
		case <-s.polling:
			return nil
		case <-s.served:
			err = errEnding
		}
	}
	s.leaves(h)
	return err
}

// leaves closes a handover.
func (s *Server) leaves(h io.Closer) {
	_ = h.Close() // it may be closed already
	s.mu.Lock()
	delete(s.handovers, h)
	s.mu.Unlock()
}

// endHandovers ends those under way, and lets none begin.
func (s *Server) endHandovers() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	for h := range s.handovers {
		_ = h.Close() // it may be closed already
	}
}

// newConn makes a connection.
func (s *Server) newConn() *conn {
	c := &conn{server: s, wake: make(chan struct{}, 1)}
	c.exchange.init(s, c)
	return c
}

// begin serves a connection that is tracked, and that has waited so long for a request.
func (s *Server) begin(c *conn, nc net.Conn, waited api.Nanos) {
	now, limit := s.edge.loop.now(), c.idleLimit()
	since := now - waited
	c.since.Store(int64(since))
	if s.pollers.Load().Adopt(&c.Socket, nc.(interface{ Fd() int }).Fd(), nc.LocalAddr(), nc.RemoteAddr(), c) != nil {
		s.untrack(c)
		if c.ended != nil {
			c.ended()
		}
		return
	}
	if limit > 0 {
		c.Alarm(max(now, since+limit))
	}
}
