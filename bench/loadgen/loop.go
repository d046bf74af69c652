package loadgen

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"golang.org/x/sys/unix"
)

// A loop is one thread with its connections. Times are nanoseconds since the start of the run.
type loop struct {
	opts    *Options
	cpu     int // processor to pin the thread to, or -1
	addr    netip.AddrPort
	start   time.Time
	measure int64 // when the measured part begins
	end     int64 // when it ends; nothing is sent after that
	giveUp  int64

	epoll, timer int
	wake         int // an eventfd that ends the loop
	conns        []*conn
	idle         []*conn   // open loop: connections without a request out
	out          int       // requests without an answer
	schedule     *Schedule // nil in a closed loop
	behind       backlog
	armed        int64 // time to which the timer is set

	latency, sendDelay *hdrhistogram.Histogram
	completed          uint64
	status             [600]uint64
	defaults, wrong    uint64
	firstWrong         string
	errs               map[string]uint64
	dropped            uint64
	reconnects         int
}

type conn struct {
	slot    int // index in conns, and the event's data
	fd      int
	req     int    // index of the current or last request
	unsent  []byte // of that request
	in      []byte
	got     int
	resp    response // headerBytes is 0 until the header is in
	due     int64    // from when latency counts
	busy    bool
	writing bool // also waits for EPOLLOUT
}

const (
	// timerSlot and wakeSlot mark the events of the timer and of cancel.
	timerSlot = -1
	wakeSlot  = -2
	// readBytes is the initial size of a read buffer: many times the answer of a predict.
	readBytes = 16 << 10
	// maxReconnects ends a run against a server that keeps closing connections.
	maxReconnects = 1000
	firstWrongMax = 200
)

var defaultMark = []byte(`"default":true`)

func (l *loop) now() int64 { return int64(time.Since(l.start)) }

func (l *loop) open(connections int) (err error) {
	if l.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return fmt.Errorf("epoll: %w", err)
	}
	if l.timer, err = unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC); err != nil {
		return fmt.Errorf("timer: %w", err)
	}
	if err = unix.EpollCtl(l.epoll, unix.EPOLL_CTL_ADD, l.timer, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: timerSlot}); err != nil {
		return fmt.Errorf("epoll: %w", err)
	}
	if l.wake, err = unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC); err != nil {
		return fmt.Errorf("eventfd: %w", err)
	}
	if err = unix.EpollCtl(l.epoll, unix.EPOLL_CTL_ADD, l.wake, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: wakeSlot}); err != nil {
		return fmt.Errorf("epoll: %w", err)
	}
	for i := range connections {
		// Connections start far from each other, so that they do not send the same request at about the same time.
		c := &conn{slot: i, fd: -1, req: i * len(l.opts.Requests) / connections, in: make([]byte, readBytes)}
		l.conns = append(l.conns, c)
		if l.opts.Fresh {
			continue
		}
		if err := l.connect(c); err != nil {
			return err
		}
	}
	return nil
}

func (l *loop) connect(c *conn) error {
	// A new address each time, because x/sys writes into it and loops must not share it.
	var to unix.Sockaddr = &unix.SockaddrInet6{Port: int(l.addr.Port()), Addr: l.addr.Addr().As16()}
	family := unix.AF_INET6
	if l.addr.Addr().Is4() {
		to = &unix.SockaddrInet4{Port: int(l.addr.Port()), Addr: l.addr.Addr().As4()}
		family = unix.AF_INET
	}
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("socket: %w", err)
	}
	// Connecting blocks. It happens before the run and for the rare broken connection.
	if err = unix.Connect(fd, to); err == nil {
		err = errors.Join(unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1), unix.SetNonblock(fd, true),
			unix.EpollCtl(l.epoll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(c.slot)}))
	}
	if err != nil {
		unix.Close(fd)
		return fmt.Errorf("connect to %s: %w", l.opts.Addr, err)
	}
	c.fd, c.got, c.resp, c.writing = fd, 0, response{}, false
	return nil
}

func (l *loop) close() {
	for _, c := range l.conns {
		if c.fd >= 0 {
			unix.Close(c.fd)
			c.fd = -1
		}
	}
	for _, fd := range []int{l.timer, l.wake, l.epoll} {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
}

// cancel makes run return soon, from any goroutine, as long as the loop is open.
func (l *loop) cancel() {
	one := [8]byte{1}
	_, _ = unix.Write(l.wake, one[:]) // fails only if it is readable already
}

// run sends and receives until the end, and then until no request is outstanding. It locks its thread, so that the kernel sees one steady
// thread per loop.
func (l *loop) run() error {
	runtime.LockOSThread()
	if l.cpu < 0 {
		defer runtime.UnlockOSThread()
	} else {
		// The thread stays locked, so that it ends with the goroutine and no other goroutine inherits the pin.
		var one unix.CPUSet
		one.Set(l.cpu)
		if err := unix.SchedSetaffinity(0, &one); err != nil {
			return fmt.Errorf("pin to CPU %d: %w", l.cpu, err)
		}
	}

	now := l.now()
	for _, c := range l.conns {
		if l.schedule != nil {
			l.idle = append(l.idle, c)
		} else if err := l.send(c, now); err != nil {
			return err
		}
	}
	events := make([]unix.EpollEvent, 256)
	for {
		now = l.now()
		if l.schedule != nil {
			if err := l.sendDue(now); err != nil {
				return err
			}
		}
		if now >= l.giveUp || now >= l.end && l.out == 0 && l.behind.count == 0 {
			return nil
		}
		if err := l.arm(now); err != nil {
			return err
		}
		n, err := unix.EpollWait(l.epoll, events, -1)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("epoll: %w", err)
		}
		for _, e := range events[:max(n, 0)] {
			if e.Fd == wakeSlot {
				return nil
			}
			if e.Fd == timerSlot {
				l.armed = 0
				var expirations [8]byte
				_, _ = unix.Read(l.timer, expirations[:]) // only resets it; EAGAIN if it was set again meanwhile
				continue
			}
			if err := l.handle(l.conns[e.Fd], e.Events); err != nil {
				return err
			}
		}
	}
}

// arm sets the timer to the next due request or the end of the run. A timerfd is exact, while the timeout of epoll_wait is in milliseconds.
func (l *loop) arm(now int64) error {
	at := l.giveUp
	if now < l.end {
		at = l.end
		if l.schedule != nil {
			at = min(at, l.schedule.Due())
		}
	}
	if at == l.armed {
		return nil
	}
	l.armed = at
	spec := unix.ItimerSpec{Value: unix.NsecToTimespec(max(at-l.now(), 1))}
	if err := unix.TimerfdSettime(l.timer, 0, &spec, nil); err != nil {
		return fmt.Errorf("timer: %w", err)
	}
	return nil
}

// sendDue sends the requests that are due on free connections and queues the rest.
func (l *loop) sendDue(now int64) error {
	for l.schedule.Due() <= now && l.schedule.Due() < l.end {
		if due := l.schedule.Next(); !l.behind.push(due) {
			l.dropped++
		}
	}
	for l.behind.count > 0 && len(l.idle) > 0 {
		c := l.idle[len(l.idle)-1]
		l.idle = l.idle[:len(l.idle)-1]
		if err := l.send(c, l.behind.pop()); err != nil {
			return err
		}
	}
	return nil
}

// send starts a request on an idle connection. Latency counts from due.
func (l *loop) send(c *conn, due int64) error {
	if c.req++; c.req == len(l.opts.Requests) {
		c.req = 0
	}
	c.unsent, c.due, c.busy = l.opts.Requests[c.req].Wire, due, true
	l.out++
	if c.fd < 0 {
		if err := l.connect(c); err != nil {
			return l.broken(c, err.Error())
		}
	}
	if l.schedule != nil && due >= l.measure {
		record(l.sendDelay, l.now()-due)
	}
	return l.write(c)
}

func (l *loop) write(c *conn) error {
	for len(c.unsent) > 0 {
		n, err := unix.Write(c.fd, c.unsent)
		switch {
		case err == nil:
			c.unsent = c.unsent[n:]
		case errors.Is(err, unix.EAGAIN):
			return l.watch(c, true)
		case errors.Is(err, unix.EINTR):
		default:
			return l.broken(c, "write: "+err.Error())
		}
	}
	return l.watch(c, false)
}

func (l *loop) watch(c *conn, writing bool) error {
	if c.writing == writing {
		return nil
	}
	c.writing = writing
	events := uint32(unix.EPOLLIN)
	if writing {
		events |= unix.EPOLLOUT
	}
	if err := unix.EpollCtl(l.epoll, unix.EPOLL_CTL_MOD, c.fd, &unix.EpollEvent{Events: events, Fd: int32(c.slot)}); err != nil {
		return fmt.Errorf("epoll: %w", err)
	}
	return nil
}

func (l *loop) handle(c *conn, events uint32) error {
	if c.fd < 0 {
		return nil // closed by an earlier event of the same wake
	}
	if events&unix.EPOLLOUT != 0 && len(c.unsent) > 0 {
		if err := l.write(c); err != nil || c.fd < 0 {
			return err
		}
	}
	if events&(unix.EPOLLIN|unix.EPOLLHUP|unix.EPOLLERR) == 0 {
		return nil
	}
	n, err := unix.Read(c.fd, c.in[c.got:])
	switch {
	case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EINTR):
		return nil
	case err != nil:
		return l.broken(c, "read: "+err.Error())
	case n == 0:
		return l.broken(c, "the server closed the connection")
	case !c.busy:
		return l.broken(c, "bytes without a request")
	}
	c.got += n
	if c.resp.headerBytes == 0 {
		r, ok, err := parseHeader(c.in[:c.got])
		if err != nil {
			return l.broken(c, err.Error())
		}
		if !ok {
			if c.got == len(c.in) {
				return l.broken(c, errHeaderTooLong.Error())
			}
			return nil
		}
		c.resp = r
		if r.size() > len(c.in) {
			grown := make([]byte, r.size())
			copy(grown, c.in[:c.got])
			c.in = grown
		}
	}
	switch {
	case c.got < c.resp.size():
		return nil
	case c.got > c.resp.size():
		return l.broken(c, "bytes without a request")
	}
	return l.answered(c)
}

func (l *loop) answered(c *conn) error {
	now := l.now()
	l.judge(c, now)
	closing := c.resp.close || l.opts.Fresh || len(c.unsent) > 0 // answered before it read the request, so the connection cannot be reused
	c.got, c.resp, c.busy = 0, response{}, false
	l.out--
	if closing {
		l.drop(c)
		if err := l.reconnect(c); err != nil {
			return err
		}
	}
	return l.goOn(c, now)
}

// judge counts an answer and calls the hook.
func (l *loop) judge(c *conn, now int64) {
	if now >= l.measure && now < l.end {
		l.completed++
	}
	measured := c.due >= l.measure
	if measured {
		record(l.latency, now-c.due)
		l.status[c.resp.status]++
	}
	a := Answered{Status: c.resp.status, Measured: measured}
	if c.resp.status == 200 && (measured || l.opts.OnAnswer != nil) {
		body := c.in[c.resp.headerBytes:c.resp.size()]
		a.Default = bytes.Contains(body[:min(len(body), readBytes)], defaultMark)
		a.Wrong = !a.Default && !l.opts.Requests[c.req].accepts(body)
		if measured {
			l.count(a, body)
		}
	}
	if l.opts.OnAnswer != nil {
		a.Due, a.Done = l.start.Add(time.Duration(c.due)), l.start.Add(time.Duration(now))
		l.opts.OnAnswer(a)
	}
}

func (l *loop) count(a Answered, body []byte) {
	if a.Default {
		l.defaults++
	}
	if a.Wrong {
		if l.wrong == 0 {
			l.firstWrong = string(body[:min(len(body), firstWrongMax)])
		}
		l.wrong++
	}
}

// goOn sends the next request on a free connection, if there is one.
func (l *loop) goOn(c *conn, now int64) error {
	switch {
	case l.schedule != nil:
		l.idle = append(l.idle, c)
		return nil
	case now < l.end:
		return l.send(c, now)
	}
	return nil
}

// broken counts the outstanding request of c, if any, as failed, and reconnects.
func (l *loop) broken(c *conn, why string) error {
	wasBusy := c.busy
	if wasBusy {
		l.out--
		l.errs[why]++
	}
	c.busy, c.unsent = false, nil
	l.drop(c)
	if err := l.reconnect(c); err != nil {
		return err
	}
	if wasBusy {
		return l.goOn(c, l.now())
	}
	return nil
}

func (l *loop) drop(c *conn) {
	if c.fd >= 0 {
		unix.Close(c.fd) // also removes it from the epoll instance
		c.fd = -1
	}
}

func (l *loop) reconnect(c *conn) error {
	if l.opts.Fresh {
		c.got, c.resp, c.writing = 0, response{}, false
		return nil
	}
	if l.reconnects++; l.reconnects > maxReconnects {
		return fmt.Errorf("%s closed more than %d connections: %v", l.opts.Addr, maxReconnects, l.errs)
	}
	return l.connect(c)
}
