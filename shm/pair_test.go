package shm

import (
	"errors"
	"net"
	"os"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// pair is one generation as both sides see it: A and B as created, and both as opened by the worker. Tests within one
// process map the same memory twice, at different addresses.
type pair struct {
	a, b             *Segment // the gateway's
	workerA, workerB *Segment
}

func newPair(tb testing.TB, entries int, slabBytes uint64) *pair {
	tb.Helper()
	size := SlabOffset(entries) + slabBytes
	p := &pair{a: mustCreate(tb, RoleA, 7, entries, size), b: mustCreate(tb, RoleB, 7, entries, size)}
	p.workerA, p.workerB = mustOpen(tb, p.a), mustOpen(tb, p.b)
	return p
}

func mustCreate(tb testing.TB, role Role, generation uint32, entries int, size uint64) *Segment {
	tb.Helper()
	s, err := Create(role, generation, entries, size)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { mustClose(tb, s) })
	return s
}

func mustOpen(tb testing.TB, created *Segment) *Segment {
	tb.Helper()
	s, err := Open(created.FD(), created.Role(), created.Generation(), created.Entries(), created.Size())
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { mustClose(tb, s) })
	return s
}

func mustClose(tb testing.TB, s *Segment) {
	tb.Helper()
	if err := s.Close(); err != nil {
		tb.Error(err)
	}
}

// errHungUp means that the other end of the socket is closed.
var errHungUp = errors.New("the peer hung up")

// side is one side of a running pair, as in the gateway and the bindings: rings, and a socket to park on.
type side struct {
	*Producer
	*Consumer
	own, peer []byte
	entries   uint64
	raw       syscall.RawConn

	bells    uint64 // bytes read; these tests send nothing but bells
	sleeps   uint64
	buf      [64]byte
	state    error
	drainFn  func(uintptr) bool
	parkFn   func(uintptr) bool
	bellFn   func(uintptr) bool
	bellByte [1]byte
}

func newSide(own, peer *Segment, conn *net.UnixConn) (*side, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	s := &side{
		Producer: NewProducer(own, peer), Consumer: NewConsumer(own, peer), raw: raw,
		own: own.Bytes(), peer: peer.Bytes(), entries: uint64(own.Entries()), bellByte: [1]byte{1},
	}
	// Made once: a closure for every wait would allocate every time.
	s.drainFn = func(fd uintptr) bool { s.read(fd); return true }
	s.parkFn = s.read
	s.bellFn = func(fd uintptr) bool {
		if _, err := ignoringEINTR(func() (int, error) { return unix.Write(int(fd), s.bellByte[:]) }); err != nil {
			if errors.Is(err, unix.EPIPE) || errors.Is(err, unix.ECONNRESET) {
				err = errHungUp
			}
			s.state = err
		}
		return true
	}
	return s, nil
}

func ignoringEINTR(f func() (int, error)) (int, error) {
	for {
		n, err := f()
		if !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}

// read reads the socket empty and reports whether there was anything.
func (s *side) read(fd uintptr) (some bool) {
	for {
		n, err := ignoringEINTR(func() (int, error) { return unix.Read(int(fd), s.buf[:]) })
		switch {
		case errors.Is(err, unix.EAGAIN):
			return some
		case err != nil || n == 0:
			s.state = errHungUp
			return true
		}
		s.bells += uint64(n)
		some = true
	}
}

// bell rings if the peer sleeps.
func (s *side) bell() error {
	if !s.ShouldRing() {
		return nil
	}
	if err := s.raw.Write(s.bellFn); err != nil {
		return err
	}
	return s.state
}

// next pops the next descriptor and sleeps until there is one. It calls idle when it finds the ring empty.
func (s *side) next(d *Descriptor, outstanding uint64, idle func() error) error {
	for {
		if ok, err := s.Pop(d, outstanding); ok || err != nil {
			return err
		}
		if err := idle(); err != nil {
			return err
		}
		if err := s.raw.Read(s.drainFn); err != nil || s.state != nil {
			return errors.Join(err, s.state)
		}
		if !s.PrepareSleep() {
			continue
		}
		s.sleeps++
		err := s.raw.Read(s.parkFn)
		s.Wake()
		if err != nil || s.state != nil {
			return errors.Join(err, s.state)
		}
	}
}

// socketPair returns two connected unix stream sockets.
func socketPair() (x, y *net.UnixConn, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, nil, err
	}
	x, errX := unixConn(os.NewFile(uintptr(fds[0]), "x"))
	y, errY := unixConn(os.NewFile(uintptr(fds[1]), "y"))
	return x, y, errors.Join(errX, errY)
}

// unixConn converts a file that is a unix socket into a connection and closes the file.
func unixConn(f *os.File) (*net.UnixConn, error) {
	defer f.Close()
	c, err := net.FileConn(f)
	if err != nil {
		return nil, err
	}
	return c.(*net.UnixConn), nil
}
