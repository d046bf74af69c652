package query

import (
	"context"
	"net"
	"strconv"
	"sync/atomic"
	"unsafe"

	"github.com/cloudwego/hertz/pkg/common/config"
	"github.com/cloudwego/hertz/pkg/network"
	hertznet "github.com/cloudwego/hertz/pkg/network/netpoll"
	"github.com/cloudwego/netpoll"
	"golang.org/x/sys/unix"
)

// conn is a client's connection whose answers may be written by the side that completes queries.
//
// At most one answer is pending: a later request of the same connection waits in its handler, before it writes, until the one
// before it has been written. A pending answer goes out by a non-blocking send on a duplicate of the descriptor, which this type
// owns: netpoll may close its own while the answer is being written, and the number may be used again by then. What the socket
// does not take at once is written by a goroutine, so a client that does not read never blocks a poller.
type conn struct {
	*hertznet.Conn
	nc    netpoll.Connection
	fd    int // our duplicate
	state atomic.Uint32
	wake  chan struct{} // capacity 1: told when an answer that somebody waits for is written
	refs  atomic.Int32  // who uses fd: the open connection, and a pending answer
	call  atomic.Pointer[call]
}

const (
	connIdle    uint32 = iota
	connPending        // an answer will be written
	connAwaited        // and a handler waits for it
)

// connContext brings the connection from accept to its requests without a look-up by key.
type connContext struct {
	context.Context
	conn *conn
}

// transporter is Hertz's netpoll transport with our connections.
type transporter struct {
	network.Transporter
}

// newTransporter makes Hertz's netpoll transport, with a conn for each connection.
func (h *HTTP) newTransporter(o *config.Options) network.Transporter {
	o.OnAccept = func(c net.Conn) context.Context {
		hc, ok := c.(*hertznet.Conn)
		if !ok {
			return context.Background()
		}
		nc, ok := hc.Conn.(netpoll.Connection)
		if !ok {
			return context.Background()
		}
		cn, err := newConn(hc, nc)
		if err != nil {
			return context.Background() // no descriptor left: answers are written by handlers
		}
		if !h.track(cn) {
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
			h.untrack(cn)
			cn.unref()
			return nil
		})
		return &connContext{context.Background(), cn}
	}
	h.transport = hertznet.NewTransporter(o)
	return transporter{h.transport}
}

func (t transporter) ListenAndServe(onData network.OnData) error {
	return t.Transporter.ListenAndServe(func(ctx context.Context, c any) error {
		if cc, ok := ctx.(*connContext); ok {
			return onData(ctx, cc.conn)
		}
		return onData(ctx, c)
	})
}

func newConn(hc *hertznet.Conn, nc netpoll.Connection) (*conn, error) {
	fd, err := unix.FcntlInt(uintptr(nc.(interface{ Fd() int }).Fd()), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return nil, err
	}
	c := &conn{Conn: hc, nc: nc, fd: fd, wake: make(chan struct{}, 1)}
	c.refs.Store(1)
	return c, nil
}

// expect announces an answer that reply will write. Only the connection's handler calls it, when the one before is written.
func (c *conn) expect(cl *call) {
	c.refs.Add(1)
	c.call.Store(cl)
	c.state.Store(connPending)
}

// settle waits until no answer is pending. Only the connection's handler calls it.
func (c *conn) settle() {
	if c.state.Load() != connIdle && c.state.CompareAndSwap(connPending, connAwaited) {
		<-c.wake
	}
}

// reply writes the call's answer. The call is only used until reply returns or, when the socket is full, until the goroutine
// that finishes the job has: it holds a reference.
func (c *conn) reply(cl *call) {
	p := cl.head()
	// A raw system call: the socket takes the answer in less time than handing over the P would cost.
	sent, _, errno := unix.RawSyscall6(unix.SYS_SENDTO, uintptr(c.fd), uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)), unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, 0, 0)
	n := 0
	if errno == 0 {
		n = int(sent)
	}
	if n == len(p) || errno != 0 && errno != unix.EAGAIN && errno != unix.EINTR {
		c.replied(cl) // or the client is away, which netpoll notices by itself
		return
	}
	cl.refs.Add(1)
	go func() {
		_, _ = c.Conn.WriteBinary(p[n:]) // Flush tells; bounded by the connection's write timeout
		if err := c.Conn.Flush(); err != nil {
			cl.wire = nil // netpoll may still refer to it: it must not carry another answer
			c.nc.Close()
		}
		c.replied(cl)
		cl.unref()
	}()
}

func (c *conn) replied(cl *call) {
	if !cl.lent { // else its handler leaves
		cl.leave()
	}
	c.call.Store(nil)
	if c.state.Swap(connIdle) == connAwaited {
		c.wake <- struct{}{}
	}
	c.unref()
}

// abandon is called when the client has gone: its query, if one is under way, need not be evaluated.
func (c *conn) abandon() {
	if cl := c.call.Load(); cl != nil && cl.tryRef() {
		if c.call.Load() == cl { // still this connection's, not one that was recycled meanwhile
			cl.cancel()
		}
		cl.unref()
	}
}

func (c *conn) unref() {
	if c.refs.Add(-1) == 0 {
		unix.Close(c.fd)
	}
}

// Malloc, WriteBinary, Flush and Close are Hertz's way to write; they keep the order of answers.

func (c *conn) Malloc(n int) ([]byte, error) {
	c.settle()
	return c.Conn.Malloc(n)
}

func (c *conn) WriteBinary(b []byte) (int, error) {
	c.settle()
	return c.Conn.WriteBinary(b)
}

func (c *conn) Flush() error {
	if c.state.Load() != connIdle {
		return nil // Hertz flushes after every handler; the pending answer is not its to write
	}
	return c.Conn.Flush()
}

func (c *conn) Close() error {
	c.settle()
	return c.Conn.Close()
}

// hijacked tells Hertz that the handler has taken care of the answer.
type hijacked struct{}

func (hijacked) Write(p []byte) (int, error) { return len(p), nil }
func (hijacked) Flush() error                { return nil }
func (hijacked) Finalize() error             { return nil }

// head renders the answer as it goes onto the wire.
func (c *call) head() []byte {
	b := append(c.wire[:0], "HTTP/1.1 "...)
	b = strconv.AppendInt(b, int64(c.status), 10)
	b = append(b, ' ')
	b = append(b, statusText(c.status)...)
	b = append(b, "\r\n"...)
	b = append(b, *c.g.date.Load()...)
	b = append(b, c.contentType()...)
	b = append(b, "\r\nContent-Length: "...)
	b = strconv.AppendInt(b, int64(len(c.out)), 10)
	if c.jsonLen > 0 {
		b = append(b, "\r\nInference-Header-Content-Length: "...)
		b = strconv.AppendInt(b, int64(c.jsonLen), 10)
	}
	if c.retryAfter {
		b = append(b, "\r\nRetry-After: 1"...)
	}
	b = append(b, "\r\n\r\n"...)
	b = append(b, c.out...)
	c.wire = b
	return b
}

func (c *call) contentType() string {
	if c.jsonLen > 0 {
		return "application/octet-stream"
	}
	return "application/json"
}
