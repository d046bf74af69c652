package grpc

import (
	"context"
	"crypto/tls"
	"errors"
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

	mu      sync.Mutex
	meter   *meter.Meter
	counted int // bytes of incomplete messages that the budget knows of
	waiting map[*wait]struct{}
	closed  bool
	unsent  atomic.Int64 // bytes of answers that the library holds
	written atomic.Int64 // bytes, ever
	seen    int64        // of written, when slow looked last
	due     api.Nanos    // when more must have been taken
	writing atomic.Bool
}

// wait is a call of one message that has not come.
type wait struct {
	conn  *conn
	since api.Nanos
}

// address is a connection's remote address, by which handlers find the connection.
type address struct {
	net.Addr
	conn *conn
}

func (s *Server) metered(c net.Conn) *conn {
	m := &conn{Conn: c, server: s, meter: meter.New(), waiting: map[*wait]struct{}{}}
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
	n, err := c.Conn.Read(b)
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

// slow reports whether the client sends or takes more slowly than it may.
func (c *conn) slow(now api.Nanos) (Reason, bool) {
	l := &c.server.cfg.Limits
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.meter.Late(now, c.server.meterLimits()) {
		return TooSlow, true
	}
	if l.HeaderTimeout > 0 && c.meter.Held() == 0 {
		for w := range c.waiting {
			if now-w.since > api.Nanos(l.HeaderTimeout) {
				return TooSlow, true
			}
		}
	}
	if l.MinRate <= 0 {
		return 0, false
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
		return Unread, now > c.due
	}
	return 0, false
}

// await notes that a call waits for its only message, until the wait ends.
func (c *conn) await(now api.Nanos) *wait {
	if c == nil {
		return nil
	}
	w := &wait{c, now}
	c.mu.Lock()
	c.waiting[w] = struct{}{}
	c.mu.Unlock()
	return w
}

func (w *wait) end() {
	if w == nil {
		return
	}
	w.conn.mu.Lock()
	delete(w.conn.waiting, w)
	w.conn.mu.Unlock()
}
