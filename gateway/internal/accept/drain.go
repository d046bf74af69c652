package accept

import (
	"context"
	"net"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// handshakes is how long connections that have begun may take to be there. Those that begin meanwhile are attempted again by their
	// clients after a second, and find the socket closed.
	handshakes = 20 * time.Millisecond //xebec:limit time for connections that have begun when a port is about to close
	// queued bounds the wait for connections that cannot be accepted. Mostly none wait.
	queued = 2 * time.Second //xebec:limit time to accept what waits when a port is about to close
)

// Listen opens a TCP port that Drain can end. It does not speak multipath TCP, as Go's listeners do: the kernel takes no filter for that.
func Listen(address string) (net.Listener, error) {
	c := net.ListenConfig{}
	c.SetMultipathTCP(false)
	return c.Listen(context.Background(), "tcp", address)
}

// Drain has the kernel begin no more connections, and waits until those that it has begun were accepted, for Close to follow: what is in the
// kernel's queue then is reset although its client may have sent a request. It does not wait where another process accepts from the socket.
// Where one may do so later, the kernel goes on: what comes between the last Accept and Close waits for that process.
func (l *Listener) Drain() {
	if l.isStopped() || l.closed() {
		return
	}
	least := time.Time{}
	if !l.shared.Load() && l.refuseSYN() == nil {
		least = time.Now().Add(handshakes)
	}
	most := time.NewTimer(queued)
	defer most.Stop()
	again := time.NewTicker(time.Millisecond)
	defer again.Stop()
	for time.Now().Before(least) || l.waiting() > 0 {
		select {
		case <-again.C:
		case <-most.C:
			return
		case <-l.ended:
			return
		}
	}
}

// waiting counts the connections in the kernel's queue; 0 if it does not say.
func (l *Listener) waiting() (n int) {
	_ = l.raw.Control(func(fd uintptr) { // it fails only if the listener is closed
		if info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
			n = int(info.Unacked) // of a listening socket: the length of its queue
		}
	})
	return n
}

// refuseSYN drops the first segments of new connections, by a filter on the socket: there is no other way to end a queue without losing
// what enters it last.
func (l *Listener) refuseSYN() error {
	const flags, syn, ack = 13, 0x02, 0x10 // of the TCP header, with which a filter's packet begins
	program := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_B | unix.BPF_ABS, K: flags},
		{Code: unix.BPF_ALU | unix.BPF_AND | unix.BPF_K, K: syn | ack},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: syn, Jt: 0, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: 0},
		{Code: unix.BPF_RET | unix.BPF_K, K: 1<<32 - 1},
	}
	var failed error
	if err := l.raw.Control(func(fd uintptr) {
		if _, failed = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO); failed == nil { // it is TCP
			failed = unix.SetsockoptSockFprog(int(fd), unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]})
		}
	}); err != nil {
		return err
	}
	return failed
}
