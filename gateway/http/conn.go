package http

import (
	"context"
	"net"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/cloudwego/hertz/pkg/common/config"
	"github.com/cloudwego/hertz/pkg/network"
	hertznet "github.com/cloudwego/hertz/pkg/network/netpoll"
	"github.com/cloudwego/netpoll"
	"golang.org/x/sys/unix"

	"github.com/xebec-serving/xebec/gateway/dialect"
	"github.com/xebec-serving/xebec/gateway/http/coding"
)

// conn is a client's connection. The goroutine that ends a query may write the answer to it.
//
// At most one answer is pending: a later request of the same connection waits in its handler, before it is submitted,
// until the previous answer has been written. A pending answer is written by a non-blocking send on a duplicate of the
// descriptor. conn owns the duplicate: netpoll may close its own descriptor during the write, and its number may be
// reused. A goroutine writes what the socket does not accept at once, so a client that does not read never blocks a
// poller.
type conn struct {
	*hertznet.Conn
	server   *Server
	nc       netpoll.Connection
	fd       int // the duplicate
	state    atomic.Uint32
	wake     chan struct{} // capacity 1: the answer that a handler waits for has been written
	refs     atomic.Int32  // users of fd: the open connection, and a pending answer
	call     atomic.Pointer[dialect.Call]
	accept   coding.Coding // of the pending answer
	exchange exchange

	coming   atomic.Int64 // bytes of the body that is read now: netpoll may have them
	cut      atomic.Bool  // for what it sent ahead, which is not served
	accepted time.Time
	begun    atomic.Bool // its first byte has come, or the sweep has closed it
}

// begin reports whether the connection's first byte was not too late. A connection that sends nothing has no goroutine that could
// wait for a deadline, so the server looks for such connections once a second.
func (c *conn) begin() bool { return c.begun.CompareAndSwap(false, true) }

// ahead is how much the client has sent beyond the request that is read or answered. netpoll reads whatever comes, also while the
// connection waits for an answer.
func (c *conn) ahead() int64 { return int64(c.Len()) - c.coming.Load() }

const (
	connIdle    uint32 = iota
	connPending        // an answer will be written,
	connAwaited        // and a handler waits for that
)

// connContext passes the connection from accept to its requests without a lookup by key.
type connContext struct {
	context.Context
	conn *conn
}

// transporter is Hertz's netpoll transport with our connections.
type transporter struct {
	network.Transporter
}

// newTransporter makes the transport, with a conn for each connection.
func (s *Server) newTransporter(o *config.Options) network.Transporter {
	o.OnAccept = func(c net.Conn) context.Context {
		hc, ok := c.(*hertznet.Conn)
		if !ok {
			return context.Background()
		}
		nc, ok := hc.Conn.(netpoll.Connection)
		if !ok {
			return context.Background()
		}
		cn, err := newConn(s, hc, nc)
		if err != nil {
			return context.Background() // out of descriptors: handlers write the answers
		}
		if !s.track(cn) {
			cn.unref()
			nc.Close()
			return context.Background()
		}
		if d, ok := nc.(interface {
			SetOnDisconnect(netpoll.OnDisconnect) error
		}); ok {
			_ = d.SetOnDisconnect(func(context.Context, netpoll.Connection) { cn.abandon() })
		}
		_ = nc.AddCloseCallback(func(netpoll.Connection) error {
			s.untrack(cn)
			cn.unref()
			return nil
		})
		return &connContext{context.Background(), cn}
	}
	s.transport = hertznet.NewTransporter(o)
	return transporter{s.transport}
}

func (t transporter) ListenAndServe(onData network.OnData) error {
	return t.Transporter.ListenAndServe(func(ctx context.Context, c any) error {
		if cc, ok := ctx.(*connContext); ok {
			return onData(ctx, cc.conn)
		}
		return onData(ctx, c)
	})
}

func newConn(s *Server, hc *hertznet.Conn, nc netpoll.Connection) (*conn, error) {
	fd, err := unix.FcntlInt(uintptr(nc.(interface{ Fd() int }).Fd()), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return nil, err
	}
	c := &conn{Conn: hc, server: s, nc: nc, fd: fd, wake: make(chan struct{}, 1), accepted: time.Now()}
	c.refs.Store(1)
	c.exchange.init(s, c)
	return c, nil
}

// hasUnread reports whether the client has sent something that no handler has read.
func (c *conn) hasUnread() bool {
	n, err := unix.IoctlGetInt(c.fd, unix.TIOCINQ)
	return err == nil && n > 0 || c.nc.Reader().Len() > 0
}

// expect announces an answer that Reply will write. Only the connection's handler calls it, after the previous answer has
// been written.
func (c *conn) expect(call *dialect.Call, accept coding.Coding) {
	c.refs.Add(1)
	c.accept = accept
	c.call.Store(call)
	c.state.Store(connPending)
}

// retract undoes expect after its handler has panicked, and reports whether the answer has not been written. Nothing writes it then: a request
// ends only after its handler has submitted all of it.
func (c *conn) retract() bool {
	if c.call.Swap(nil) == nil {
		return false
	}
	c.state.Store(connIdle)
	c.unref()
	return true
}

// awaitWritten waits until no answer is pending. Only the connection's handler calls it.
func (c *conn) awaitWritten() {
	if c.state.Load() != connIdle && c.state.CompareAndSwap(connPending, connAwaited) {
		<-c.wake
	}
}

// Reply writes the call's answer. If the socket is full a goroutine writes the rest, and retains the call. A goroutine also
// compresses: the one that calls Reply has other queries to end.
func (c *conn) Reply(call *dialect.Call) {
	a := &call.Answer
	if c.accept != coding.Identity && len(a.Body) >= coding.CompressFrom && !encoded(a) {
		call.Retain()
		go func() {
			small := coding.Compress(c.accept, a.Body)
			a.Wire = c.server.appendCompressed(a.Wire[:0], call, c.accept, small)
			if small != nil {
				small.Free()
			}
			c.finish(call, a.Wire)
		}()
		return
	}
	p := c.server.appendAnswer(a.Wire[:0], call)
	a.Wire = p
	// A raw system call: the socket takes the answer in less time than handing over the P would cost.
	sent, _, errno := unix.RawSyscall6(unix.SYS_SENDTO, uintptr(c.fd), uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)), unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, 0, 0)
	n := 0
	if errno == 0 {
		n = int(sent)
	}
	if n == len(p) || errno != 0 && errno != unix.EAGAIN && errno != unix.EINTR {
		c.written(call) // or the client has left, which netpoll notices by itself
		return
	}
	call.Retain()
	go c.finish(call, p[n:])
}

// finish writes the rest of an answer on a goroutine of its own, and releases the call.
func (c *conn) finish(call *dialect.Call, rest []byte) {
	if err := c.server.edge.writePaced(c.Conn, rest); err != nil {
		call.Answer.Wire = nil // netpoll may still refer to it: it must not carry another answer
		c.nc.Close()
	}
	c.written(call)
	call.Release()
}

func (c *conn) written(call *dialect.Call) {
	if !call.Borrowed() { // otherwise its handler still runs
		call.Delivered()
	}
	c.call.Store(nil)
	if c.state.Swap(connIdle) == connAwaited {
		c.wake <- struct{}{}
	}
	c.unref()
}

// abandon is called when the client has disconnected: a query in flight need not be evaluated.
func (c *conn) abandon() {
	if call := c.call.Load(); call != nil && call.TryRetain() {
		if c.call.Load() == call { // it still belongs to this connection and was not recycled meanwhile
			call.Cancel()
		}
		call.Release()
	}
}

func (c *conn) unref() {
	if c.refs.Add(-1) == 0 {
		unix.Close(c.fd)
	}
}

// Malloc, WriteBinary, Flush and Close are Hertz's interface for writing. They keep the order of answers.

func (c *conn) Malloc(n int) ([]byte, error) {
	c.awaitWritten()
	return c.Conn.Malloc(n)
}

func (c *conn) WriteBinary(b []byte) (int, error) {
	c.awaitWritten()
	return c.Conn.WriteBinary(b)
}

func (c *conn) Flush() error {
	if c.state.Load() != connIdle {
		return nil // Hertz flushes after every handler, but the pending answer is not its own
	}
	if err := c.Conn.SetWriteTimeout(c.server.cfg.Limits.writeTimeout()); err != nil {
		return err
	}
	return c.Conn.Flush()
}

func (c *conn) Close() error {
	c.awaitWritten()
	return c.Conn.Close()
}
