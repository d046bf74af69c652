package accept

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Kept is what another process has to know of a kept connection, beside its descriptor.
type Kept struct {
	Served bool          // it has had a request
	Waited time.Duration // since its last answer, or since it was accepted
}

// A message with a connection is a byte that says whether it was served, and the time that it has waited in nanoseconds, 8 bytes with the
// lowest first. Its answer is one byte.
const (
	keptBytes  = 9
	markFresh  = 'f'
	markServed = 's'
	takenMark  = 't'
)

// append appends the message of a connection.
func (k Kept) append(b []byte) []byte {
	mark := byte(markFresh)
	if k.Served {
		mark = markServed
	}
	return binary.LittleEndian.AppendUint64(append(b, mark), uint64(max(0, k.Waited)))
}

// parseKept parses the message of a connection, and reports whether it is one.
func parseKept(b []byte) (Kept, bool) {
	if len(b) != keptBytes || b[0] != markFresh && b[0] != markServed {
		return Kept{}, false
	}
	k := Kept{Served: b[0] == markServed, Waited: time.Duration(binary.LittleEndian.Uint64(b[1:]))}
	return k, k.Waited >= 0
}

// Outlet passes kept connections to another process, over a socket. A connection is this process's until that one has said that it has
// taken it. If the socket ends first, that process has not got it, and has not read from it.
type Outlet struct {
	to  *os.File
	raw syscall.RawConn
}

// NewOutlet makes an outlet, and the socket for the other process's [Inlet]. The caller owns both.
func NewOutlet() (_ *Outlet, there *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	to, there := os.NewFile(uintptr(fds[0]), "kept connections for another process"), os.NewFile(uintptr(fds[1]), "kept connections from another process")
	raw, err := to.SyscallConn()
	if err != nil {
		return nil, nil, errors.Join(err, to.Close(), there.Close())
	}
	return &Outlet{to: to, raw: raw}, there, nil
}

// Pass sends a connection, without waiting. Its descriptor stays open. The caller bounds how many are on their way.
func (o *Outlet) Pass(fd int, k Kept) error {
	message := k.append(nil)
	var sent error
	closed := o.raw.Control(func(to uintptr) {
		sent = unix.Sendmsg(int(to), message, unix.UnixRights(fd), nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
	})
	return errors.Join(closed, sent)
}

// Taken waits until the other process has taken the connection that was sent first, of those that it has not said so of. The error is
// os.ErrDeadlineExceeded if that takes longer, and os.ErrClosed after Close; any other one is the end of the socket.
func (o *Outlet) Taken(until time.Time) error {
	if err := o.to.SetReadDeadline(until); err != nil {
		return fmt.Errorf("%w: %w", os.ErrClosed, err) // the only cause: NewOutlet's socket can be waited for
	}
	var answer [2]byte
	n, err := o.to.Read(answer[:])
	if errors.Is(err, unix.ECONNRESET) { // it has ended with connections unread: its answers before come now
		n, err = o.to.Read(answer[:])
	}
	if err == nil && (n != 1 || answer[0] != takenMark) {
		err = errors.New("the other process answers a connection with something that this program does not know")
	}
	return err
}

// Close ends the outlet. The other process gets what was sent before.
func (o *Outlet) Close() error { return o.to.Close() }

// Inlet takes the connections of another process's [Outlet].
type Inlet struct {
	from  *os.File
	raw   syscall.RawConn
	local net.Addr
}

// NewInlet makes an inlet for the connections of a port, of which local is the address. It owns the socket.
func NewInlet(from *os.File, local net.Addr) (*Inlet, error) {
	raw, err := from.SyscallConn()
	if err == nil {
		err = from.SetDeadline(time.Time{}) // it must be a descriptor that can be waited for
	}
	if err != nil {
		return nil, errors.Join(err, from.Close())
	}
	return &Inlet{from, raw, local}, nil
}

// Next waits for a connection. It is like one of [Pollable], and is not to be read before Taken has returned nil. io.EOF: there will be no
// more; os.ErrClosed: Close was called. After any other error the caller closes the inlet: the other process then keeps what was not taken.
func (i *Inlet) Next() (net.Conn, Kept, error) {
	fd, kept, err := -1, Kept{}, error(nil)
	if closed := i.raw.Read(func(from uintptr) bool {
		fd, kept, err = receiveKept(int(from))
		return !errors.Is(err, unix.EAGAIN)
	}); closed != nil {
		return nil, kept, os.ErrClosed // there is no other error of Read itself
	}
	if err != nil {
		return nil, kept, err
	}
	if err := errors.Join(checkClient(fd, i.local), unix.SetNonblock(fd, true)); err != nil {
		unix.Close(fd)
		return nil, kept, err
	}
	peer, _ := unix.Getpeername(fd) // it fails only if the client has gone
	return &polled{fd: fd, local: i.local, remote: address(peer)}, kept, nil
}

// Taken says that the connection that Next has returned belongs to this process.
func (i *Inlet) Taken() (err error) {
	closed := i.raw.Control(func(from uintptr) {
		_, err = unix.SendmsgN(int(from), []byte{takenMark}, nil, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
	})
	if errors.Is(err, unix.EPIPE) || errors.Is(err, unix.ECONNRESET) {
		return nil // the other process has ended, or needs no answer any more
	}
	return errors.Join(closed, err)
}

// Close ends the inlet. What was sent and not taken stays with the other process.
func (i *Inlet) Close() error { return i.from.Close() }

// receiveKept receives one connection, without waiting.
func receiveKept(from int) (fd int, k Kept, err error) {
	var message [keptBytes + 1]byte
	oob := make([]byte, unix.CmsgSpace(4))
	n, oobn, _, _, err := unix.Recvmsg(from, message[:], oob, unix.MSG_DONTWAIT|unix.MSG_CMSG_CLOEXEC)
	switch {
	case errors.Is(err, unix.EINTR):
		return -1, k, unix.EAGAIN
	case errors.Is(err, unix.ECONNRESET), err == nil && n == 0:
		return -1, k, io.EOF
	case err != nil:
		return -1, k, err
	}
	fds := descriptors(oob[:oobn])
	k, ok := parseKept(message[:n])
	if ok && len(fds) == 1 {
		return fds[0], k, nil
	}
	for _, fd := range fds {
		unix.Close(fd)
	}
	if len(fds) == 0 {
		return -1, k, errors.New("a connection of the other process did not come: this one is out of descriptors (ulimit -n, LimitNOFILE)")
	}
	return -1, k, fmt.Errorf("the other process sent %q and %d descriptors: expected %d bytes that say what a connection has had, and 1 descriptor", message[:n], len(fds), keptBytes)
}

// descriptors are those that came with a message.
func descriptors(oob []byte) (fds []int) {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil
	}
	for i := range messages {
		if some, err := unix.ParseUnixRights(&messages[i]); err == nil {
			fds = append(fds, some...)
		}
	}
	return fds
}

// checkClient checks that a descriptor from another process is what accept returns on a port with that address.
func checkClient(fd int, local net.Addr) error {
	domain, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN)
	if err != nil {
		return fmt.Errorf("the other process sent a descriptor that is no socket: %w", err)
	}
	kind, err1 := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE)
	listens, err2 := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ACCEPTCONN)
	if err := errors.Join(err1, err2); err != nil {
		return fmt.Errorf("examine a socket of the other process: %w", err)
	}
	right := domain == unix.AF_INET || domain == unix.AF_INET6
	if _, path := local.(*net.UnixAddr); path {
		right = domain == unix.AF_UNIX
	}
	if !right || kind != unix.SOCK_STREAM || listens != 0 {
		return fmt.Errorf("the other process sent a socket of family %d and type %d (listening: %d): expected a connection of %s", domain, kind, listens, local)
	}
	return nil
}
