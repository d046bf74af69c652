//go:build linux && (amd64 || arm64 || loong64 || ppc64le || riscv64)

package xebec

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// maxLines is how many calls of a worker are under way at once. The gateway gives 64 lines, and one that was closed just now may still count.
const maxLines = 48 //xebec:limit calls of other functions that a replica in Go makes at a time

// lines are the connections on which the model calls other functions (section 7 of the protocol). They speak HTTP/1.1, one call at a time, so net/http
// keeps them, up to maxLines, and closes the line of a call that is cancelled. Any goroutine may use them.
type lines struct {
	http http.Transport

	asking sync.Mutex    // one question and its answer at a time
	ask    *net.UnixConn // where the worker asks for lines

	mu      sync.Mutex
	open    map[*line]struct{} // nil: close was called
	callees map[string]*callee
}

// newLines takes the descriptor that has come with LINES.
func newLines(fd int) (*lines, error) {
	ask, err := unixConn(fd)
	if err != nil {
		return nil, fmt.Errorf("xebec: the socket that came with LINES: %w", err)
	}
	l := &lines{ask: ask, open: map[*line]struct{}{}, callees: map[string]*callee{}}
	l.http.DialContext = func(context.Context, string, string) (net.Conn, error) { return l.dial() }
	l.http.MaxConnsPerHost, l.http.MaxIdleConnsPerHost = maxLines, maxLines
	l.http.DisableCompression = true // blocks go from memory to memory
	return l, nil
}

// unixConn makes a connection of a descriptor, which it takes over.
func unixConn(fd int) (*net.UnixConn, error) {
	f := os.NewFile(uintptr(fd), "line")
	defer f.Close() // FileConn duplicates it
	c, err := net.FileConn(f)
	if err != nil {
		return nil, err
	}
	if u, ok := c.(*net.UnixConn); ok {
		return u, nil
	}
	c.Close()
	return nil, errors.New("the descriptor is no unix socket")
}

// errNoLine is the gateway's refusal to give a line.
var errNoLine = errors.New("the gateway gives no connection: it is stopping, or has no descriptors left")

// dial asks for a line. The gateway answers at once, so it does not watch a context: an answer that nothing reads would be the next one's.
func (l *lines) dial() (net.Conn, error) {
	l.asking.Lock()
	defer l.asking.Unlock()
	if _, err := l.ask.Write([]byte{1}); err != nil {
		return nil, err
	}
	var given [1]byte
	oob := make([]byte, unix.CmsgSpace(4))
	n, oobn, _, _, err := l.ask.ReadMsgUnix(given[:], oob)
	switch {
	case err != nil:
		return nil, err
	case n == 0:
		return nil, io.ErrUnexpectedEOF
	case oobn == 0:
		return nil, errNoLine
	}
	messages, err := unix.ParseSocketControlMessage(oob[:oobn])
	if err != nil {
		return nil, err
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil {
		return nil, err
	}
	conn, err := unixConn(fds[0]) // there is room for one
	if err != nil {
		return nil, err
	}
	c := &line{conn, l}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open == nil {
		conn.Close()
		return nil, net.ErrClosed
	}
	l.open[c] = struct{}{}
	return c, nil
}

// line is one connection.
type line struct {
	*net.UnixConn
	lines *lines
}

// Close closes the line. A call that is under way on it is cancelled.
func (c *line) Close() error {
	c.lines.mu.Lock()
	delete(c.lines.open, c)
	c.lines.mu.Unlock()
	return c.UnixConn.Close()
}

// close closes all lines, and no other is opened.
func (l *lines) close() {
	l.ask.Close()
	l.mu.Lock()
	open := l.open
	l.open = nil
	l.mu.Unlock()
	for c := range open {
		c.UnixConn.Close()
	}
	l.http.CloseIdleConnections()
}
