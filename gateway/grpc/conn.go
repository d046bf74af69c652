package grpc

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/grpc/meter"
)

const (
	// heldStep is by how much what a connection holds may differ from what the budget knows, so that small messages do not touch it.
	heldStep = 32 << 10
	// roomWait is how long a connection with the beginning of a message is not read while the budget has no room, before it is closed.
	roomWait = time.Second //xebec:limit how long a gRPC connection waits unread for room in `--body-memory`, before it is closed
	// readBytes is how much is read of a connection at a time.
	readBytes = 32 << 10
	// maxSlowCalls is how many calls of a connection may end in slowSpan because their message comes too slowly. The next one ends the connection: its
	// client does not only have one bad source.
	maxSlowCalls = 16          //xebec:limit calls of a gRPC connection that end within a minute because their messages come too slowly, before the connection does
	slowSpan     = time.Minute // long against the time that one slow message is given
	// roomEvery is how often it looks for room.
	roomEvery = 5 * time.Millisecond
)

var errNoRoom = errors.New("there is no memory for the rest of the message")

// listener meters the connections of a port in clear text. With TLS the credentials do it, when the handshake is over.
type listener struct {
	net.Listener
	server *Server
}

func (l *listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil || l.server.cfg.TLS != nil {
		return c, err
	}
	return l.server.metered(c), nil
}

// meteredTLS is TLS whose connections are metered.
type meteredTLS struct {
	credentials.TransportCredentials
	server *Server
}

func newMeteredTLS(s *Server, c *tls.Config) credentials.TransportCredentials {
	return &meteredTLS{credentials.NewTLS(c), s}
}

func (m *meteredTLS) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	c, info, err := m.TransportCredentials.ServerHandshake(raw)
	if err != nil {
		return nil, nil, err
	}
	return m.server.metered(c), info, nil
}

func (m *meteredTLS) Clone() credentials.TransportCredentials {
	return &meteredTLS{m.TransportCredentials.Clone(), m.server}
}

// conn is a connection, and what its client makes the gateway hold.
type conn struct {
	net.Conn
	server *Server
	remote *address
	once   sync.Once
	in     *bufio.Reader // the library's has no buffer, so that the meter has seen what the library has read, and no more

	mu      sync.Mutex
	meter   *meter.Meter
	counted int                // bytes of incomplete messages that the budget knows of
	waiting map[*call]struct{} // calls of one message that have not got it
	late    []meter.Slow       // memory of slow
	slows   int                // calls that have ended since slowAt
	slowAt  api.Nanos
	closed  bool
	unsent  atomic.Int64 // bytes of answers that the library holds
	written atomic.Int64 // bytes, ever
	seen    int64        // of written, when slow looked last
	due     api.Nanos    // when more must have been taken
	writing atomic.Bool
}

// address is a connection's remote address, by which handlers find the connection.
type address struct {
	net.Addr
	conn *conn
}

func (s *Server) metered(c net.Conn) *conn {
	m := &conn{Conn: c, server: s, in: bufio.NewReaderSize(c, readBytes), meter: meter.New(), waiting: map[*call]struct{}{}}
	m.remote = &address{c.RemoteAddr(), m}
	s.mu.Lock()
	s.conns[m] = struct{}{}
	s.mu.Unlock()
	s.live.Add(1)
	return m
}

// connOf returns the connection of a call; nil if it has none.
func connOf(ctx context.Context) *conn {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return nil
	}
	if a, ok := p.Addr.(*address); ok {
		return a.conn
	}
	return nil
}

func (c *conn) RemoteAddr() net.Addr { return c.remote }

// Read reads from the client, unless it has begun a message for which there is no room.
func (c *conn) Read(b []byte) (int, error) {
	if c.server.cfg.Memory.Full() && !c.awaitRoom() {
		c.server.refused(NoRoom)
		return 0, errNoRoom
	}
	n, err := c.in.Read(b)
	if n > 0 {
		c.mu.Lock()
		c.meter.In(b[:n])
		c.count()
		c.mu.Unlock()
	}
	return n, err
}

// awaitRoom reports whether the connection may be read. One that holds nothing always may: what it sends may be no message.
func (c *conn) awaitRoom() bool {
	over := time.NewTimer(roomWait)
	defer over.Stop()
	again := time.NewTicker(roomEvery)
	defer again.Stop()
	for {
		c.mu.Lock()
		held, closed := c.meter.Held(), c.closed
		c.mu.Unlock()
		if held == 0 || closed || !c.server.cfg.Memory.Full() {
			return true
		}
		select {
		case <-over.C:
			return false
		case <-again.C:
		}
	}
}

// count tells the budget what the connection holds. Its caller holds the lock.
func (c *conn) count() {
	held := c.meter.Held()
	if c.closed {
		held = 0
	}
	switch d := held - c.counted; {
	case d >= heldStep:
		c.server.cfg.Memory.Hold(d)
	case d <= -heldStep || held == 0 && d < 0:
		c.server.cfg.Memory.Return(-d)
	default:
		return
	}
	c.counted = held
}

func (c *conn) Write(b []byte) (int, error) {
	c.mu.Lock()
	c.meter.Out(b)
	c.count()
	c.mu.Unlock()
	c.writing.Store(true)
	n, err := c.Conn.Write(b)
	c.writing.Store(false)
	c.written.Add(int64(n))
	return n, err
}

func (c *conn) Close() error {
	err := c.Conn.Close()
	c.once.Do(func() {
		c.mu.Lock()
		c.closed = true
		c.count()
		c.mu.Unlock()
		s := c.server
		s.mu.Lock()
		delete(s.conns, c)
		s.mu.Unlock()
		s.live.Add(-1)
	})
	return err
}

// slow ends calls whose message comes more slowly than it may. It reports whether the connection must end: too many of its calls were slow, one of them does
// not end, or the client takes answers too slowly.
func (c *conn) slow(now api.Nanos) (Reason, bool) {
	c.mu.Lock()
	slow, end := c.slowCalls(now)
	unread := c.unread(now)
	c.mu.Unlock()
	for _, of := range slow {
		of.call.end(of.message)
		c.server.refused(TooSlow)
	}
	switch {
	case end:
		return TooSlow, true
	case unread:
		return Unread, true
	}
	return 0, false
}

// slowCall is a call that must end, and what its client is told.
type slowCall struct {
	call    *call
	message string
}

// slowCalls returns the calls that must end because their messages come too slowly, and whether the connection must.
func (c *conn) slowCalls(now api.Nanos) (list []slowCall, end bool) {
	l := &c.server.cfg.Limits
	c.late = c.meter.Late(c.late[:0], now, c.server.meterLimits())
	defer func() { clear(c.late) }()
	for _, m := range c.late {
		of, ok := m.Call.(*call)
		if !ok || of.answer == nil || m.Again || !c.mayBeSlow(now) {
			return list, true
		}
		list = append(list, slowCall{of, slowMessage(m, l)})
	}
	if l.HeaderTimeout <= 0 {
		return list, false
	}
	for of := range c.waiting {
		if now-of.since <= api.Nanos(l.HeaderTimeout) || c.meter.Begins(of.stream) {
			continue
		}
		if of.answer == nil || !c.mayBeSlow(now) {
			return list, true
		}
		delete(c.waiting, of)
		list = append(list, slowCall{of, fmt.Sprintf("no message has come within %v of the call's beginning (--header-timeout): send it at once", l.HeaderTimeout)})
	}
	return list, false
}

// mayBeSlow counts a call that ends because it is slow.
func (c *conn) mayBeSlow(now api.Nanos) bool {
	if now-c.slowAt > api.Nanos(slowSpan) {
		c.slows, c.slowAt = 0, now
	}
	c.slows++
	return c.slows <= maxSlowCalls
}

func slowMessage(m meter.Slow, l *Limits) string {
	came := fmt.Sprintf("%d bytes of the message have come", m.Came)
	if m.Length > 0 {
		came = fmt.Sprintf("%d of the message's %d bytes have come", m.Came, m.Length)
	}
	return fmt.Sprintf("%s, and the rest comes more slowly than %d bytes a second (--min-rate) for more than %v: send it faster, or in smaller messages", came, l.MinRate, l.RateGrace)
}

// unread reports whether the client takes answers more slowly than it may.
func (c *conn) unread(now api.Nanos) bool {
	l := &c.server.cfg.Limits
	if l.MinRate <= 0 {
		return false
	}
	written := c.written.Load()
	took := written - c.seen
	c.seen = written
	switch {
	case c.unsent.Load() == 0 && !c.writing.Load():
		c.due = 0
	case c.due == 0:
		c.due = now + api.Nanos(l.RateGrace)
	default:
		c.due = min(c.due+api.Nanos(float64(took)*1e9/float64(l.MinRate)), now+api.Nanos(l.RateGrace))
		return now > c.due
	}
	return false
}
