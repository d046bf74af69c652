package poll

import (
	"bufio"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/scheduler/timer"
)

// Owner is what a socket belongs to. The poller calls its methods, which must not block.
type Owner interface {
	// Input has the bytes that have come; they are the poller's again when Input returns. The owner passes to Keep what it does not use.
	Input(in []byte, now api.Nanos)
	// Ended is called when the peer sends no more, or the connection is broken. The owner closes the socket.
	Ended()
	// Expired is called some time after an Alarm, and after Wake, while no goroutine has the socket. It may come too early.
	Expired(now api.Nanos)
	// Left is called when the peer hangs up while the socket is held or taken.
	Left()
	// Closed is called once, on any goroutine, when the socket is closed and nothing uses it any more.
	Closed()
}

// Socket is a connection of a group. Its methods without another remark are for the goroutine that has taken it.
type Socket struct {
	owner         Owner
	poller        *poller
	fd            int
	slot          int32
	local, remote net.Addr
	refs          atomic.Int32 // users of fd; the open socket is one
	in            *input       // bytes that were read and not used; nil: none
	out           []byte       // what Flush will write
	place         []byte       // where the poller reads to next; nil: its own buffer

	readTimeout, writeTimeout   atomic.Int64 // of each wait, in nanoseconds; 0: none
	readDeadline, writeDeadline atomic.Int64 // Unix time in nanoseconds; 0: none

	mu       sync.Mutex
	ready    bool // it may have bytes, or the end, to read
	gone     bool // the peer has hung up
	room     bool // it may take bytes to write
	taken    bool // a goroutine has it
	held     int  // calls of Hold without their Free: something else is to happen first
	handling bool // the poller calls the owner
	closed   bool
	reads    bool // a goroutine waits for readable,
	writes   bool // or for writable
	readable chan struct{}
	writable chan struct{}

	timer    timer.Timer[Socket] // the poller's, under its lock
	alarm    atomic.Int64        // when the timer is set to; 0: it is not
	released bool                // under the poller's lock
}

// input is a buffer of bytes that were read.
type input struct {
	memory [ReadBytes]byte
	r, w   int
}

func (i *input) bytes() []byte { return i.memory[i.r:i.w] }

var inputs = sync.Pool{New: func() any { return new(input) }}

// Adopt makes a socket of a connected descriptor, which it owns even if it fails, and has a poller read it. Any goroutine may call it.
// Others may have called Unread, and Close, by which it fails.
func (g *Group) Adopt(s *Socket, fd int, local, remote net.Addr, owner Owner) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := net.ErrClosed
	if !s.closed {
		s.owner, s.fd, s.local, s.remote = owner, fd, local, remote
		s.poller = g.pollers[int(g.next.Add(1)-1)%len(g.pollers)]
		s.timer.Of = s
		s.refs.Store(1)
		err = s.poller.add(s)
	}
	if err != nil {
		s.closed = true
		unix.Close(fd)
	}
	return err
}

// signal notes what the kernel says, and reports whether the poller may read.
func (s *Socket) signal(bits uint32) bool {
	const hangUp = unix.EPOLLRDHUP | unix.EPOLLHUP | unix.EPOLLERR
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return false
	}
	if bits&(unix.EPOLLIN|hangUp) != 0 {
		s.ready = true
	}
	if bits&(unix.EPOLLOUT|hangUp) != 0 {
		s.room = true
	}
	s.gone = s.gone || bits&hangUp != 0
	s.wakeLocked()
	if !s.taken && s.held == 0 {
		ready := s.ready
		s.mu.Unlock()
		return ready
	}
	left := s.gone
	s.mu.Unlock()
	if left {
		s.owner.Left()
	}
	return false
}

// wakeLocked wakes the goroutines that can go on.
func (s *Socket) wakeLocked() {
	if s.reads && (s.ready || s.closed) {
		s.reads = false
		s.readable <- struct{}{}
	}
	if s.writes && (s.room || s.closed) {
		s.writes = false
		s.writable <- struct{}{}
	}
}

// noteRead notes that a read has returned where there may be more, and no event will tell: the read filled its buffer, or the end
// follows.
func (s *Socket) noteRead(n, size int, errno syscall.Errno) {
	s.mu.Lock()
	if n > 0 && (n == size || s.gone) || errno == unix.EINTR {
		s.ready = true
	}
	s.mu.Unlock()
}

func (s *Socket) wantsPollerLocked() bool {
	return !s.closed && !s.taken && s.held == 0 && !s.handling && (s.ready || s.Len() > 0)
}

// Batch returns the batch of the socket's poller. It is for the owner's Input and Expired.
func (s *Socket) Batch() Batch { return s.poller.batch }

// Take gives the socket to a goroutine that the caller starts. Only the owner's Input and Expired may call it.
func (s *Socket) Take() {
	s.refs.Add(1)
	s.mu.Lock()
	s.taken = true
	s.mu.Unlock()
}

// Give returns the socket to its poller and reports true, or reports false: there is more to read, and the goroutine keeps it.
func (s *Socket) Give() bool {
	for {
		s.mu.Lock()
		if s.closed || s.in != nil {
			s.mu.Unlock()
			return false
		}
		if passes := s.poller.group.passes(); passes || !s.ready {
			s.taken = false
			s.mu.Unlock()
			if passes {
				s.poller.push(s)
			}
			s.unref()
			return true
		}
		s.ready = false
		s.mu.Unlock()
		in := inputs.Get().(*input)
		n, errno := s.recv(in.memory[:])
		s.noteRead(n, len(in.memory), errno)
		if n > 0 {
			in.r, in.w = 0, n
			s.in = in
			return false
		}
		inputs.Put(in)
		if errno != unix.EAGAIN && errno != unix.EINTR {
			s.mu.Lock()
			s.ready = true // for the read that finds the end
			s.mu.Unlock()
			return false
		}
	}
}

// Yield returns the socket to its poller without a look at what has come, and asks for Expired, as Wake does. It is for a goroutine that
// has called Hold.
func (s *Socket) Yield() {
	s.mu.Lock()
	s.taken = false
	s.mu.Unlock()
	s.poller.call(s) // after which the poller reads, if Free was called meanwhile
	s.unref()
}

// Leave ends the use of the socket by the goroutine that has taken it. It has closed the socket.
func (s *Socket) Leave() { s.unref() }

// Hold stops the poller from reading until Free. The owner's Input, and the goroutine that has taken the socket, may call it.
func (s *Socket) Hold() {
	s.refs.Add(1)
	s.mu.Lock()
	s.held++
	s.mu.Unlock()
}

// Free undoes one Hold. Any goroutine may call it.
func (s *Socket) Free() {
	s.mu.Lock()
	s.held--
	more := s.wantsPollerLocked()
	s.mu.Unlock()
	if more || s.poller.group.passes() {
		s.poller.push(s)
	}
	s.unref()
}

// Alarm asks for Expired at a time of the group's clock, or earlier if an earlier one was asked for. Any goroutine that holds the
// socket may call it.
func (s *Socket) Alarm(at api.Nanos) {
	if set := s.alarm.Load(); set == 0 || at < api.Nanos(set) {
		s.poller.setAlarm(s, at)
	}
}

// Wake asks for Expired as soon as the poller can, unless a goroutine has the socket. Any goroutine may call it.
func (s *Socket) Wake() { s.poller.call(s) }

// Gone reports whether the peer has hung up. Left is called when that happens later, if the socket is held or taken.
func (s *Socket) Gone() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.gone
}

// Keep keeps bytes of Input that the owner has not used. They come again, before others.
func (s *Socket) Keep(rest []byte) {
	if len(rest) > 0 {
		s.in = inputs.Get().(*input)
		s.in.r, s.in.w = 0, copy(s.in.memory[:], rest)
	}
}

// Place has the poller read the next bytes straight to b, which Input then gets a part of; nil: not. It is for the owner's Input and
// Expired, and for one read.
func (s *Socket) Place(b []byte) { s.place = b }

func (s *Socket) dropInput() {
	if s.in != nil {
		inputs.Put(s.in)
		s.in = nil
	}
}

// Unread reports whether the peer has sent something that was not read, or is handled just now. Any goroutine may call it.
func (s *Socket) Unread() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed { // otherwise the descriptor stays open while the lock is held
		return false
	}
	if s.poller == nil { // it is about to be adopted
		return true
	}
	n, err := unix.IoctlGetInt(s.fd, unix.TIOCINQ)
	return s.handling || err == nil && n > 0
}

// Send writes what the socket accepts at once. It is for those who hold the socket. gone: it is broken.
func (s *Socket) Send(b []byte) (n int, gone bool) {
	n, errno := s.send(b)
	return n, errno != 0 && errno != unix.EAGAIN && errno != unix.EINTR
}

// SendBoth is Send for two pieces.
func (s *Socket) SendBoth(head, body []byte) (n int, gone bool) {
	s.poller.sent.Add(1)
	n, err := unix.SendmsgBuffers(s.fd, [][]byte{head, body}, nil, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
	if err != nil {
		return 0, err != unix.EAGAIN && err != unix.EINTR
	}
	return n, false
}

// Cut ends the connection for both sides. Its users notice, and close the socket. It is for those who hold the socket, and for others
// while these do.
func (s *Socket) Cut() { _ = unix.Shutdown(s.fd, unix.SHUT_RDWR) } // if the peer has left, there is nothing to cut

// EndWriting tells the peer that nothing follows.
func (s *Socket) EndWriting() { _ = unix.Shutdown(s.fd, unix.SHUT_WR) } // if the peer has left, the next read says so

// Close closes the socket once nothing uses it. Goroutines that wait on it wake. Any goroutine may call it.
func (s *Socket) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return net.ErrClosed
	}
	s.closed = true
	s.wakeLocked()
	adopted := s.poller != nil
	s.mu.Unlock()
	if adopted {
		s.unref()
	}
	return nil
}

func (s *Socket) unref() {
	if s.refs.Add(-1) > 0 {
		return
	}
	s.poller.remove(s)
	unix.Close(s.fd)
	s.dropInput()
	s.owner.Closed()
}

// wait waits until ready is true, the socket is closed, or the time is over. It is called with the lock, and returns with it.
func (s *Socket) wait(ready, waits *bool, signal *chan struct{}, until time.Time) error {
	if *signal == nil {
		*signal = make(chan struct{}, 1)
	}
	ch := *signal
	var timer *time.Timer
	var over <-chan time.Time
	if !until.IsZero() {
		timer = time.NewTimer(time.Until(until))
		over = timer.C
		defer timer.Stop()
	}
	for !*ready && !s.closed {
		*waits = true
		s.mu.Unlock()
		late := false
		select {
		case <-ch:
		case <-over:
			late = true
		}
		s.mu.Lock()
		if *waits {
			*waits = false
		} else if late {
			<-ch // the signal came meanwhile
		}
		if late && !*ready && !s.closed {
			return os.ErrDeadlineExceeded
		}
	}
	if s.closed {
		return net.ErrClosed
	}
	return nil
}

// until returns when a wait that begins now ends; the zero time: never.
func until(timeout, deadline *atomic.Int64) (at time.Time) {
	if d := deadline.Load(); d != 0 {
		at = time.Unix(0, d)
	}
	if t := timeout.Load(); t > 0 {
		if end := time.Now().Add(time.Duration(t)); at.IsZero() || end.Before(at) {
			at = end
		}
	}
	return at
}

// receive reads what has come, and waits for it.
func (s *Socket) receive(b []byte) (int, error) {
	end := until(&s.readTimeout, &s.readDeadline)
	for {
		s.mu.Lock()
		if err := s.wait(&s.ready, &s.reads, &s.readable, end); err != nil {
			s.mu.Unlock()
			return 0, err
		}
		s.ready = false
		s.mu.Unlock()
		n, errno := s.recv(b)
		s.noteRead(n, len(b), errno)
		switch {
		case n > 0:
			return n, nil
		case errno == 0:
			return 0, io.EOF
		case errno != unix.EAGAIN && errno != unix.EINTR:
			return 0, errno
		}
	}
}

// Read reads what was kept, or else straight from the kernel.
func (s *Socket) Read(b []byte) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	if s.in == nil {
		return s.receive(b)
	}
	n := copy(b, s.in.bytes())
	return n, s.Skip(n)
}

// Len returns how many bytes can be had without a system call.
func (s *Socket) Len() int {
	if s.in == nil {
		return 0
	}
	return s.in.w - s.in.r
}

// Peek returns the next n bytes, at most ReadBytes. They are valid until Skip.
func (s *Socket) Peek(n int) ([]byte, error) {
	if n > ReadBytes {
		return nil, bufio.ErrBufferFull
	}
	for s.Len() < n {
		if s.in == nil {
			s.in = inputs.Get().(*input)
			s.in.r, s.in.w = 0, 0
		} else if s.in.r > 0 {
			s.in.w, s.in.r = copy(s.in.memory[:], s.in.bytes()), 0
		}
		got, err := s.receive(s.in.memory[s.in.w:])
		if err != nil {
			if s.Len() == 0 {
				s.dropInput()
			}
			return nil, err
		}
		s.in.w += got
	}
	if n == 0 {
		return nil, nil
	}
	return s.in.bytes()[:n], nil
}

// Skip discards n bytes that Peek has returned.
func (s *Socket) Skip(n int) error {
	if n > s.Len() {
		return io.ErrUnexpectedEOF
	}
	if n > 0 {
		if s.in.r += n; s.in.r == s.in.w {
			s.dropInput()
		}
	}
	return nil
}

// Release does nothing: a buffer is given back when its last byte is skipped.
func (s *Socket) Release() error { return nil }

// ReadByte reads a byte.
func (s *Socket) ReadByte() (byte, error) {
	b, err := s.Peek(1)
	if err != nil {
		return 0, err
	}
	c := b[0]
	return c, s.Skip(1)
}

// ReadBinary reads n bytes into new memory.
func (s *Socket) ReadBinary(n int) ([]byte, error) {
	b := make([]byte, n)
	_, err := io.ReadFull(s, b)
	return b, err
}

// Write writes all of b.
func (s *Socket) Write(b []byte) (written int, err error) {
	end := until(&s.writeTimeout, &s.writeDeadline)
	for written < len(b) {
		s.mu.Lock()
		s.room = false // an event from now on says that there is some
		closed := s.closed
		s.mu.Unlock()
		if closed {
			return written, net.ErrClosed
		}
		n, errno := s.send(b[written:])
		written += n
		switch errno {
		case 0, unix.EINTR:
			continue
		case unix.EAGAIN:
		default:
			return written, errno
		}
		s.mu.Lock()
		err := s.wait(&s.room, &s.writes, &s.writable, end)
		s.mu.Unlock()
		if err != nil {
			return written, err
		}
	}
	return written, nil
}

// Malloc returns n bytes that Flush will write, after those before.
func (s *Socket) Malloc(n int) ([]byte, error) {
	have := len(s.out)
	s.out = append(s.out, make([]byte, n)...)
	return s.out[have:], nil
}

// WriteBinary adds b to what Flush will write.
func (s *Socket) WriteBinary(b []byte) (int, error) {
	s.out = append(s.out, b...)
	return len(b), nil
}

// Flush writes what Malloc and WriteBinary have gathered.
func (s *Socket) Flush() error {
	b := s.out
	s.out = nil
	if len(b) == 0 {
		return nil
	}
	_, err := s.Write(b)
	return err
}

// LocalAddr and RemoteAddr return the ends of the connection.
func (s *Socket) LocalAddr() net.Addr { return s.local }

// RemoteAddr returns the peer's address.
func (s *Socket) RemoteAddr() net.Addr { return s.remote }

// SetReadTimeout bounds each read; 0: no bound.
func (s *Socket) SetReadTimeout(t time.Duration) error { s.readTimeout.Store(int64(t)); return nil }

// SetWriteTimeout bounds each Write and Flush; 0: no bound.
func (s *Socket) SetWriteTimeout(t time.Duration) error { s.writeTimeout.Store(int64(t)); return nil }

// SetReadDeadline bounds reads that begin later; the zero time: no bound.
func (s *Socket) SetReadDeadline(t time.Time) error { setDeadline(&s.readDeadline, t); return nil }

// SetWriteDeadline bounds writes that begin later; the zero time: no bound.
func (s *Socket) SetWriteDeadline(t time.Time) error { setDeadline(&s.writeDeadline, t); return nil }

// SetDeadline sets both deadlines.
func (s *Socket) SetDeadline(t time.Time) error {
	setDeadline(&s.readDeadline, t)
	setDeadline(&s.writeDeadline, t)
	return nil
}

func setDeadline(d *atomic.Int64, t time.Time) {
	if t.IsZero() {
		d.Store(0)
	} else {
		d.Store(t.UnixNano())
	}
}
