//go:build linux && (amd64 || arm64 || loong64 || ppc64le || riscv64)

package gatewaytest

import (
	"net"
	"net/http"
	"os"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/xebec-serving/xebec/worker/wire"
)

// Lines answers what a worker calls, on lines.
type Lines struct {
	Handler http.Handler
	Limit   int // how many lines are given; 0: as many as are asked for; -1: none
	Given   atomic.Int64
}

// SendLines sends LINES and gives lines to the worker, until the end of the test. Call it between Welcome and Segments.
func (g *Gateway) SendLines(l *Lines) {
	g.t.Helper()
	ours, theirs := g.pair()
	defer theirs.Close()
	if _, _, err := g.conn.WriteMsgUnix(wire.AppendLines(nil), unix.UnixRights(int(theirs.Fd())), nil); err != nil {
		g.t.Fatal(err)
	}
	listener := &lines{Lines: l, g: g, ask: ours}
	server := &http.Server{Handler: l.Handler}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.Serve(listener) // it ends with the socket
	}()
	g.t.Cleanup(func() {
		server.Close()
		<-served
	})
}

// pair makes a connection.
func (g *Gateway) pair() (ours *net.UnixConn, theirs *os.File) {
	g.t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		g.t.Fatal(err)
	}
	own := os.NewFile(uintptr(fds[0]), "line")
	defer own.Close()
	conn, err := net.FileConn(own)
	if err != nil {
		g.t.Fatal(err)
	}
	return conn.(*net.UnixConn), os.NewFile(uintptr(fds[1]), "line of the worker")
}

// lines is the listener of a worker's lines.
type lines struct {
	*Lines
	g   *Gateway
	ask *net.UnixConn
}

// Accept waits until the worker asks for a line that it is given.
func (l *lines) Accept() (net.Conn, error) {
	for {
		var asked [1]byte
		if _, err := l.ask.Read(asked[:]); err != nil {
			return nil, err
		}
		if asked[0] != 1 {
			l.g.t.Errorf("the worker asks for a line by %d", asked[0])
		}
		if l.Limit < 0 || l.Limit > 0 && l.Given.Load() >= int64(l.Limit) {
			if _, err := l.ask.Write([]byte{0}); err != nil {
				return nil, err
			}
			continue
		}
		l.Given.Add(1)
		ours, theirs := l.g.pair()
		_, _, err := l.ask.WriteMsgUnix([]byte{1}, unix.UnixRights(int(theirs.Fd())), nil)
		theirs.Close()
		return ours, err
	}
}

func (l *lines) Close() error   { return l.ask.Close() }
func (l *lines) Addr() net.Addr { return l.ask.LocalAddr() }
