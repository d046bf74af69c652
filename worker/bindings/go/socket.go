//go:build linux && (amd64 || arm64 || loong64 || ppc64le || riscv64)

package xebec

import (
	"errors"
	"fmt"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/xebec-serving/xebec/worker/wire"
)

// socket is the connection to the gateway. recv and the parser belong to the loop; any goroutine may call send.
//
// The descriptor is blocking and outside of the Go runtime's poller: the loop has nothing else to do while it waits,
// and the kernel wakes a thread in recvmsg directly.
type socket struct {
	fd     int
	parser wire.Parser
	fds    []int // descriptors that wait for their LINES or SEGMENTS

	// Arguments of recvmsg, kept so that a wake-up does not allocate.
	msg unix.Msghdr
	iov unix.Iovec
	oob [128]byte

	mu     sync.Mutex // serialises frames
	closed bool
}

// segmentDescriptors is how many descriptors come with SEGMENTS. One more may come before them, with LINES.
const segmentDescriptors = 2

func dial(path string) (*socket, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("xebec: make a socket: %w", err)
	}
	for {
		err = unix.Connect(fd, &unix.SockaddrUnix{Name: path})
		if err != unix.EINTR {
			break
		}
	}
	if err != nil && err != unix.EISCONN { // a signal arrived after it had connected
		unix.Close(fd)
		return nil, fmt.Errorf("xebec: connect to the gateway at %s: %w: is the gateway running?", path, err)
	}
	return &socket{fd: fd}, nil
}

// recv reads once into the parser. It waits for data unless flags have MSG_DONTWAIT. It returns unix.EAGAIN if there is
// nothing to read, and ErrGatewayGone at the end of the stream.
func (s *socket) recv(flags int) error {
	space := s.parser.Space()
	s.iov.Base = &space[0]
	s.iov.SetLen(len(space))
	for {
		s.msg = unix.Msghdr{Iov: &s.iov, Control: &s.oob[0]}
		s.msg.SetIovlen(1)
		s.msg.SetControllen(len(s.oob))
		n, _, errno := unix.Syscall(unix.SYS_RECVMSG, uintptr(s.fd), uintptr(unsafe.Pointer(&s.msg)), uintptr(flags|unix.MSG_CMSG_CLOEXEC))
		switch {
		case errno == unix.EINTR:
			continue
		case errno == unix.EAGAIN:
			return unix.EAGAIN
		case errno == unix.ECONNRESET:
			return ErrGatewayGone
		case errno != 0:
			return fmt.Errorf("xebec: read from the gateway: %w", errno)
		}
		if s.msg.Controllen > 0 {
			if err := s.takeDescriptors(); err != nil {
				return err
			}
		}
		if n == 0 {
			return ErrGatewayGone
		}
		s.parser.Advance(int(n))
		return nil
	}
}

func (s *socket) takeDescriptors() error {
	messages, err := unix.ParseSocketControlMessage(s.oob[:s.msg.Controllen])
	if err != nil {
		return fmt.Errorf("xebec: read a control message from the gateway: %w", err)
	}
	for i := range messages {
		if messages[i].Header.Level != unix.SOL_SOCKET || messages[i].Header.Type != unix.SCM_RIGHTS {
			continue
		}
		fds, err := unix.ParseUnixRights(&messages[i])
		if err != nil {
			return fmt.Errorf("xebec: read descriptors from the gateway: %w", err)
		}
		s.fds = append(s.fds, fds...)
	}
	if len(s.fds) > 1+segmentDescriptors || s.msg.Flags&unix.MSG_CTRUNC != 0 {
		return fmt.Errorf("xebec: the gateway sent at least %d descriptors, expected %d with SEGMENTS", len(s.fds), segmentDescriptors)
	}
	return nil
}

// takeLines returns the descriptor of LINES. The caller closes it.
func (s *socket) takeLines() (int, error) {
	if len(s.fds) == 0 {
		return 0, errors.New("xebec: LINES came without a descriptor")
	}
	fd := s.fds[0]
	s.fds = append(s.fds[:0], s.fds[1:]...)
	return fd, nil
}

// takePair returns the two descriptors of SEGMENTS. The caller closes them.
func (s *socket) takePair() (a, b int, err error) {
	if len(s.fds) != segmentDescriptors {
		return 0, 0, fmt.Errorf("xebec: %d descriptors came with SEGMENTS, expected %d", len(s.fds), segmentDescriptors)
	}
	a, b = s.fds[0], s.fds[1]
	s.fds = s.fds[:0]
	return a, b, nil
}

// bell is a frame of one byte.
var bell = wire.AppendBell(nil)

// send writes a whole frame. It blocks while the gateway does not read, and fails when the gateway is gone.
func (s *socket) send(frame []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(frame) > 0 {
		if s.closed {
			return ErrGatewayGone
		}
		n, _, errno := unix.Syscall6(unix.SYS_SENDTO, uintptr(s.fd), uintptr(unsafe.Pointer(&frame[0])), uintptr(len(frame)), unix.MSG_NOSIGNAL, 0, 0)
		switch {
		case errno == unix.EINTR:
			continue
		case errno == unix.EPIPE || errno == unix.ECONNRESET:
			return ErrGatewayGone
		case errno != 0:
			return fmt.Errorf("xebec: write to the gateway: %w", errno)
		}
		frame = frame[n:]
	}
	return nil
}

// waitHangUp returns when either side has ended the connection. It polls without asking for data, so bells do not wake
// it.
func (s *socket) waitHangUp() {
	set := []unix.PollFd{{Fd: int32(s.fd), Events: unix.POLLRDHUP}}
	for {
		n, err := unix.Poll(set, -1)
		if n > 0 || err != nil && !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

// shutdown ends the connection but keeps the descriptor, which waitHangUp may still use.
func (s *socket) shutdown() {
	_ = unix.Shutdown(s.fd, unix.SHUT_RDWR) // it may have ended already
}

// stopReading ends the gateway's side of the connection: recv returns ErrGatewayGone when it has read what came before.
func (s *socket) stopReading() {
	_ = unix.Shutdown(s.fd, unix.SHUT_RD) // it may have ended already
}

// close closes the descriptor. No goroutine may be using it any more.
func (s *socket) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for _, fd := range s.fds {
		unix.Close(fd)
	}
	s.fds = nil
	unix.Close(s.fd)
}
