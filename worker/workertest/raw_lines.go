package workertest

import (
	"errors"
	"net"
	"os"
	"syscall"
	"time"

	"github.com/xebec-serving/xebec/worker/wire"
)

// Asker is the socket on which a worker asks for lines.
type Asker struct {
	TB   TB
	Conn *net.UnixConn
}

// ReadLines waits for LINES and takes the descriptor that comes with it. Call it between ReadWelcome and ReadSegments.
func (w *Raw) ReadLines() *Asker {
	w.TB.Helper()
	w.Want(wire.TypeLines)
	if len(w.fds) == 0 {
		w.TB.Fatalf("LINES came without a descriptor")
	}
	fd := w.fds[0]
	w.fds = w.fds[1:]
	return &Asker{w.TB, w.conn(fd)}
}

// conn makes a connection of a descriptor, which ends with the test's patience.
func (w *Raw) conn(fd int) *net.UnixConn {
	w.TB.Helper()
	f := os.NewFile(uintptr(fd), "line")
	defer f.Close()
	c, err := net.FileConn(f)
	if err != nil {
		w.TB.Fatalf("a descriptor that the gateway has sent: %v", err)
	}
	_ = c.SetDeadline(time.Now().Add(patience))
	return c.(*net.UnixConn)
}

// Ask asks for a line, and returns it, or nil if the gateway gives none.
func (a *Asker) Ask() *net.UnixConn {
	a.TB.Helper()
	if _, err := a.Conn.Write([]byte{1}); err != nil {
		a.TB.Fatalf("ask for a line: %v", err)
	}
	var said [1]byte
	oob := make([]byte, 64)
	n, oobn, _, _, err := a.Conn.ReadMsgUnix(said[:], oob)
	if err != nil || n != 1 {
		a.TB.Fatalf("the answer to a request for a line: %d bytes, %v", n, err)
	}
	var fds []int
	messages, err := syscall.ParseSocketControlMessage(oob[:oobn])
	for i := range messages {
		more, bad := syscall.ParseUnixRights(&messages[i])
		fds, err = append(fds, more...), errors.Join(err, bad)
	}
	if err != nil || len(fds) != int(said[0]) {
		a.TB.Fatalf("the answer %d came with %d descriptors, %v", said[0], len(fds), err)
	}
	if len(fds) == 0 {
		return nil
	}
	return (&Raw{TB: a.TB}).conn(fds[0])
}
