package poll

import (
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/api/busypoll"
	"github.com/xebec-serving/xebec/scheduler/timer"
)

const (
	// batchEvents are taken from the kernel at a time.
	batchEvents = 128
	// ReadBytes are read at a time by a poller. Requests that are larger go to a goroutine.
	ReadBytes = 16 << 10

	// flushReads and flushBytes bound what a poller reads before it flushes the batch: what the first one has left there waits for the
	// parsing of some ten small requests, or of one that is large, which is about 100 µs.
	flushReads = 16
	flushBytes = 32 << 10
)

// Batch has what the owners of a poller's sockets have left to be done for many of them at once.
type Batch interface {
	// Flush does it. The poller calls it after each batch of events, and earlier when it has read much. It must not block.
	Flush()
}

// Group is a number of pollers.
type Group struct {
	now     func() api.Nanos
	pollers []*poller
	next    atomic.Uint32
	wg      sync.WaitGroup
	pass    atomic.Pointer[func(o Owner, fd int) bool] // of PassOn; nil: none
}

// Config configures a group. Pollers and Now are required.
type Config struct {
	// Pollers is how many there are.
	Pollers int
	// Now is a monotonic clock.
	Now func() api.Nanos
	// Batch makes a poller's Batch; nil: there is none.
	Batch func() Batch
	// BusyPoll is how long a poller may spin before it sleeps, while it expects an event; 0: it sleeps at once.
	BusyPoll time.Duration
}

// New starts pollers.
func New(cfg Config) (*Group, error) {
	g := &Group{now: cfg.Now}
	for range cfg.Pollers {
		p, err := newPoller(g)
		if err != nil {
			g.Close()
			return nil, fmt.Errorf("make a poller: %w", err)
		}
		if p.busy = busypoll.New(cfg.BusyPoll); cfg.Batch != nil {
			p.batch = cfg.Batch()
		}
		g.pollers = append(g.pollers, p)
		g.wg.Go(p.run)
	}
	return g, nil
}

// Counts are the system calls of a group, and its spins, since it was made. No count ever falls.
type Counts struct {
	Waits         uint64 // epoll_pwait
	Reads, Writes uint64 // of sockets, by pollers and by others
	// SpinsFound ended with an event, SpinsVain with nothing.
	SpinsFound, SpinsVain uint64
}

// Counts returns the counts. Any goroutine may call it.
func (g *Group) Counts() (c Counts) {
	for _, p := range g.pollers {
		c.Waits += p.waited.Load()
		c.Reads += p.received.Load()
		c.Writes += p.sent.Load()
		c.SpinsFound += p.spinsFound.Load()
		c.SpinsVain += p.spinsVain.Load()
	}
	return c
}

// Close stops the pollers. Sockets that are still open stay so, and nothing reads them.
func (g *Group) Close() {
	for _, p := range g.pollers {
		p.mu.Lock()
		p.stopped = true
		p.wakeLocked()
		p.mu.Unlock()
	}
	g.wg.Wait()
	for _, p := range g.pollers {
		p.file.Close()
	}
}

// poller is an epoll set and the goroutine that works it.
type poller struct {
	group *Group
	file  *os.File // the epoll set
	raw   syscall.RawConn
	batch Batch

	// Of the goroutine.
	reads  int // since the last flush
	bytes  int // in them
	buf    []byte
	events [batchEvents]unix.EpollEvent
	ready  []event
	again  []*Socket // have more to read
	more   []*Socket // those of the round before
	moved  []*Socket // the inbox, on its way
	busy   busypoll.Estimator

	// Counts. Mostly the poller adds to the first two, and goroutines that end queries to the third, so these have cache lines of their own.
	_                [64]byte
	waited, received atomic.Uint64
	spinsFound       atomic.Uint64
	spinsVain        atomic.Uint64
	_                [64]byte
	sent             atomic.Uint64
	_                [64]byte

	mu      sync.Mutex
	slots   []slot // what events name
	free    []int32
	wheel   *timer.Wheel[Socket]
	inbox   []*Socket   // may be read again, as other goroutines say
	calls   []*Socket   // Wake was called
	wakeAt  api.Nanos   // the read deadline; api.Never: none
	woken   atomic.Bool // the deadline has passed, or soon will; written under mu
	stopped bool
}

// slot is a socket's place. The generation tells events of a closed socket from those of its successor.
type slot struct {
	socket     *Socket
	generation int32
}

type event struct {
	socket *Socket
	bits   uint32
}

func newPoller(g *Group) (*poller, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, err
	}
	if err := unix.SetNonblock(fd, true); err != nil { // so that it joins the runtime's poller
		unix.Close(fd)
		return nil, err
	}
	p := &poller{group: g, file: os.NewFile(uintptr(fd), "epoll"), buf: make([]byte, ReadBytes), wheel: timer.New[Socket](1 << 22), wakeAt: api.Never}
	if p.raw, err = p.file.SyscallConn(); err == nil {
		err = p.file.SetReadDeadline(time.Time{}) // it fails if the runtime does not poll the descriptor
	}
	if err != nil {
		p.file.Close()
		return nil, err
	}
	return p, nil
}

func (p *poller) run() {
	work := func(fd uintptr) bool { p.work(int(fd)); return false }
	for {
		err := p.raw.Read(work) // ends with its deadline only
		if p.rouse() || !errors.Is(err, os.ErrDeadlineExceeded) {
			return
		}
		// Read calls work only if no new deadline has passed meanwhile: many calls of push must not keep it from that.
		_ = p.raw.Control(func(fd uintptr) { work(fd) })
	}
}

// work serves all that is ready. An event that comes later makes the runtime call it again. It may go on for as long as clients send, so
// after each round, which has at most batchEvents of events and as many reads of sockets that have more, it does what is due.
func (p *poller) work(fd int) {
	idle, worked := false, false
	for {
		var n int
		if !idle {
			p.waited.Add(1)
			n = epollWait(fd, p.events[:])
		} else if n = p.spin(fd); n == 0 {
			return
		}
		now := p.group.now()
		if n > 0 && p.busy.Waiting() {
			p.busy.Arrived(now)
		}
		due := p.resolve(p.events[:n], now)
		for i, e := range p.ready {
			p.ready[i].socket = nil
			if e.socket.signal(e.bits) {
				p.process(e.socket, now)
			}
		}
		p.more, p.again = p.again, p.more[:0]
		worked = worked || n > 0 || len(p.more) > 0
		for i, s := range p.more {
			p.more[i] = nil
			if i < batchEvents {
				p.process(s, now)
			} else {
				p.again = append(p.again, s) // in the next round, after what is due
			}
		}
		p.flush()
		if due && p.rouse() {
			p.mu.Lock()
			p.wakeLocked() // run ends by the deadline
			p.mu.Unlock()
			return
		}
		if n < len(p.events) && len(p.again) == 0 {
			if !worked || !p.busy.On() {
				return
			}
			idle, worked = true, false
		} else {
			idle = false
		}
	}
}

// resolve finds the sockets of events, and reports whether there is something for rouse.
func (p *poller) resolve(events []unix.EpollEvent, now api.Nanos) (due bool) {
	p.ready = p.ready[:0]
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range events {
		e := &events[i]
		if s := p.slots[e.Fd]; s.socket != nil && s.generation == e.Pad {
			p.ready = append(p.ready, event{s.socket, e.Events})
		}
	}
	return p.woken.Load() || p.wakeAt <= now
}

// rouse does what a deadline was for: alarms that are due, and what other goroutines have put into the inbox. It reports whether the
// group closes. The poller's goroutine calls it, when the deadline has passed or, while there is always more to read, in between.
func (p *poller) rouse() (stopped bool) {
	now := p.group.now()
	p.mu.Lock()
	p.woken.Store(false)
	p.moved, p.inbox = p.inbox, p.moved[:0]
	stopped = p.stopped
	due := p.calls
	p.calls = nil
	p.wheel.Advance(now)
	for t := p.wheel.Pop(); t != nil; t = p.wheel.Pop() {
		t.Of.alarm.Store(0)
		due = append(due, t.Of)
	}
	p.wakeAt = api.Never
	p.sleepUntilLocked(p.wheel.Next())
	p.mu.Unlock()
	for i, s := range p.moved {
		p.moved[i] = nil
		p.process(s, now)
	}
	for _, s := range due {
		p.expire(s, now)
	}
	p.flush()
	return stopped
}

// flush does what the owners have left in the batch.
func (p *poller) flush() {
	p.reads, p.bytes = 0, 0
	if p.batch != nil {
		p.batch.Flush()
	}
}

// noteInput counts what an owner has got, and flushes when that is much.
func (p *poller) noteInput(n int) {
	p.reads++
	p.bytes += n
	if p.reads >= flushReads || p.bytes >= flushBytes {
		p.flush()
	}
}

// process reads a socket once, unless it is not the poller's to read.
func (p *poller) process(s *Socket, now api.Nanos) {
	if pass := p.group.pass.Load(); pass != nil && s.offer(*pass) {
		return
	}
	s.mu.Lock()
	if s.closed || s.taken || s.held > 0 || !s.ready && s.Len() == 0 {
		s.mu.Unlock()
		return
	}
	s.refs.Add(1)
	s.handling = true
	kept := s.Len() > 0
	if !kept {
		s.ready = false
	}
	s.mu.Unlock()
	if kept {
		in := p.buf[:copy(p.buf, s.in.bytes())]
		s.dropInput()
		s.owner.Input(in, now)
		p.noteInput(len(in))
	} else {
		to := p.buf
		if s.place != nil {
			to = s.place
		}
		n, errno := s.recv(to)
		s.noteRead(n, len(to), errno)
		switch {
		case n > 0:
			s.place = nil
			s.owner.Input(to[:n], now)
			p.noteInput(n)
		case errno == unix.EAGAIN, errno == unix.EINTR:
		default:
			s.owner.Ended()
		}
	}
	s.mu.Lock()
	s.handling = false
	more := s.wantsPollerLocked()
	s.mu.Unlock()
	if more {
		p.again = append(p.again, s)
	}
	s.unref()
}

func (p *poller) expire(s *Socket, now api.Nanos) {
	s.mu.Lock()
	if s.closed || s.taken {
		s.mu.Unlock()
		return
	}
	s.refs.Add(1)
	s.handling = true
	s.mu.Unlock()
	s.owner.Expired(now)
	s.mu.Lock()
	s.handling = false
	more := s.wantsPollerLocked()
	s.mu.Unlock()
	if more {
		p.again = append(p.again, s)
	}
	s.unref()
}

// push has the poller look at a socket again. Any goroutine may call it.
func (p *poller) push(s *Socket) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.inbox = append(p.inbox, s)
	p.wakeLocked()
}

// call has the poller call Expired soon. Any goroutine may call it.
func (p *poller) call(s *Socket) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls = append(p.calls, s)
	p.wakeLocked()
}

func (p *poller) wakeLocked() {
	if !p.woken.Load() {
		p.woken.Store(true)
		_ = p.file.SetReadDeadline(time.Unix(1, 0)) // it fails only after Close, which has woken
	}
}

// sleepUntilLocked moves the deadline forward to at.
func (p *poller) sleepUntilLocked(at api.Nanos) {
	if p.woken.Load() || at >= p.wakeAt && p.wakeAt != api.Never {
		return
	}
	p.wakeAt = at
	until := time.Time{}
	if at != api.Never {
		until = time.Now().Add(time.Duration(at - p.group.now()))
	}
	_ = p.file.SetReadDeadline(until)
}

func (p *poller) setAlarm(s *Socket, at api.Nanos) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s.released {
		return
	}
	s.alarm.Store(int64(at))
	p.wheel.Set(&s.timer, at)
	p.sleepUntilLocked(p.wheel.Next())
}

// add puts a socket into the set.
func (p *poller) add(s *Socket) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := len(p.free); n > 0 {
		s.slot, p.free = p.free[n-1], p.free[:n-1]
	} else {
		s.slot = int32(len(p.slots))
		p.slots = append(p.slots, slot{})
	}
	at := &p.slots[s.slot]
	at.socket = s
	at.generation++
	err := errors.New("the pollers have been closed")
	if !p.stopped {
		e := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLOUT | unix.EPOLLRDHUP | unix.EPOLLET&0xffffffff, Fd: s.slot, Pad: at.generation}
		if controlled := p.raw.Control(func(set uintptr) { err = unix.EpollCtl(int(set), unix.EPOLL_CTL_ADD, s.fd, &e) }); controlled != nil {
			err = controlled
		}
	}
	if err != nil {
		p.vacateLocked(s)
	}
	return err
}

func (p *poller) vacateLocked(s *Socket) {
	s.released = true
	p.slots[s.slot].socket = nil
	p.free = append(p.free, s.slot)
}

// remove forgets a socket. Its descriptor may be closed afterwards, which takes it out of the set.
func (p *poller) remove(s *Socket) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.wheel.Stop(&s.timer)
	p.vacateLocked(s)
}

// Listener is what Accept takes connections from: its descriptor becomes readable, and its Accept does not wait.
type Listener interface {
	Fd() int
	Accept() (net.Conn, error)
}

// Accept calls adopt with each connection until stop is closed. A connection has a method Fd, and is adopt's to close.
func Accept(ln Listener, stop <-chan struct{}, adopt func(c net.Conn)) error {
	fd, err := unix.FcntlInt(uintptr(ln.Fd()), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("accept connections: %w", err)
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		unix.Close(fd)
		return fmt.Errorf("accept connections: %w", err)
	}
	file := os.NewFile(uintptr(fd), "listener")
	raw, err := file.SyscallConn()
	if err != nil {
		file.Close()
		return fmt.Errorf("accept connections: %w", err)
	}
	var closing sync.WaitGroup
	closing.Go(func() { <-stop; _ = file.SetReadDeadline(time.Unix(1, 0)) })
	var events [1]unix.EpollEvent
	_ = raw.Read(func(fd uintptr) bool { // ends by the deadline that stop sets
		for epollWait(int(fd), events[:]) > 0 {
			select {
			case <-stop:
				return true
			default:
			}
			if c, err := ln.Accept(); err == nil && c != nil {
				adopt(c)
			}
		}
		return false
	})
	<-stop
	closing.Wait()
	return file.Close()
}

// epollWait takes events without waiting. A raw system call: it takes less time than handing over the P would.
func epollWait(fd int, events []unix.EpollEvent) int {
	n, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(events))), uintptr(len(events)), 0, 0, 0)
	if errno != 0 {
		return 0
	}
	return int(n)
}

// recv reads without waiting; n is at least 0.
func (s *Socket) recv(b []byte) (n int, errno syscall.Errno) {
	s.poller.received.Add(1)
	got, _, errno := unix.RawSyscall6(unix.SYS_RECVFROM, uintptr(s.fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)), unix.MSG_DONTWAIT, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(got), 0
}

// send writes without waiting; n is at least 0.
func (s *Socket) send(b []byte) (n int, errno syscall.Errno) {
	s.poller.sent.Add(1)
	sent, _, errno := unix.RawSyscall6(unix.SYS_SENDTO, uintptr(s.fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)), unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(sent), 0
}
