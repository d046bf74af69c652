package poll

import (
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// moves passes the sockets of a group on to a second one, by a copy of the descriptor as another process gets it.
func moves(t *testing.T, from, to *Group) (moved <-chan *owner) {
	t.Helper()
	there := make(chan *owner, 8)
	from.PassOn(func(o Owner, fd int) bool {
		dup, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			t.Error(err)
			return false
		}
		n := &owner{input: echo, events: make(chan string, 64)}
		if err := to.Adopt(&n.Socket, dup, &net.UnixAddr{}, &net.UnixAddr{}, n); err != nil {
			t.Error(err)
		}
		go o.(*owner).Depart()
		there <- n
		return true
	})
	return there
}

func arrives(t *testing.T, moved <-chan *owner) {
	t.Helper()
	select {
	case n := <-moved:
		t.Cleanup(func() { n.Close() })
	case <-time.After(20 * time.Second):
		t.Fatal("the socket is not passed on")
	}
}

// What has come on a socket is read by the group that the socket was passed on to, and so is everything later.
func TestPassOn(t *testing.T) {
	here, there := group(t, 1), group(t, 1)
	o, peer := pair(t, here, func(_ *owner, in []byte) { t.Errorf("%q was read", in) })
	moved := moves(t, here, there)
	write(t, peer, "in the kernel")
	arrives(t, moved)
	o.wants(t, "closed")
	reads(t, peer, "in the kernel")
	write(t, peer, "later")
	reads(t, peer, "later")
}

// A socket on which nothing comes is passed on when it is offered.
func TestOffer(t *testing.T) {
	here, there := group(t, 1), group(t, 1)
	o, peer := pair(t, here, func(_ *owner, in []byte) { t.Errorf("%q was read", in) })
	moved := moves(t, here, there)
	if !o.Offer() {
		t.Error("a socket that nothing uses is in use")
	}
	arrives(t, moved)
	o.wants(t, "closed")
	if o.Offer() {
		t.Error("a closed socket is not in use")
	}
	write(t, peer, "there")
	reads(t, peer, "there")
}

// A socket with an answer to be written, or that a goroutine has, is passed on afterwards.
func TestPassOnWhatIsInUse(t *testing.T) {
	for _, use := range []struct {
		name       string
		begin, end func(o *owner)
	}{
		{"held", func(o *owner) { o.Hold() }, func(o *owner) { o.Free() }},
		{"taken", func(o *owner) { o.Take() }, func(o *owner) {
			if !o.Give() {
				t.Error("Give reads on")
			}
		}},
	} {
		here, there := group(t, 1), group(t, 1)
		used := make(chan struct{})
		o, peer := pair(t, here, func(o *owner, _ []byte) { use.begin(o); close(used) })
		write(t, peer, "first")
		<-used
		moved := moves(t, here, there)
		if o.Offer() {
			t.Errorf("a socket that is %s is not in use", use.name)
		}
		write(t, peer, "second")
		o.Send([]byte("answer"))
		use.end(o)
		arrives(t, moved)
		o.wants(t, "closed")
		reads(t, peer, "answersecond")
	}
}

// A socket that has bytes which its owner has not used is not passed on before they are.
func TestKeptBytesAreNotPassedOn(t *testing.T) {
	here, there := group(t, 1), group(t, 1)
	inputs := make(chan string, 8)
	o, peer := pair(t, here, func(o *owner, in []byte) {
		inputs <- string(in)
		if len(in) > 1 {
			o.Hold()
			o.Keep(in[1:])
		}
	})
	write(t, peer, "ab")
	if got := <-inputs; got != "ab" {
		t.Fatalf("the first input is %q", got)
	}
	moved := moves(t, here, there)
	o.Free()
	if got := <-inputs; got != "b" {
		t.Errorf("the second input is %q", got)
	}
	write(t, peer, "c")
	arrives(t, moved)
	o.wants(t, "closed")
	reads(t, peer, "c")
}

// A socket that no other process gets after all is read by its poller again.
func TestReclaim(t *testing.T) {
	g := group(t, 1)
	o, peer := pair(t, g, echo)
	offered := make(chan *owner, 1)
	g.PassOn(func(o Owner, _ int) bool { offered <- o.(*owner); return true })
	write(t, peer, "unread")
	taken := <-offered
	g.PassOn(nil)
	taken.Reclaim()
	reads(t, peer, "unread")
	write(t, peer, "later")
	reads(t, peer, "later")
	peer.Close()
	o.wants(t, "ended")
}

// A socket that is closed while it is passed on leaves nothing behind, whatever becomes of it.
func TestCloseWhilePassing(t *testing.T) {
	for _, end := range []func(o *owner){func(o *owner) { o.Depart() }, func(o *owner) { o.Reclaim() }} {
		g := group(t, 1)
		o, peer := pair(t, g, echo)
		offered := make(chan *owner, 1)
		g.PassOn(func(o Owner, _ int) bool { offered <- o.(*owner); return true })
		write(t, peer, "unread")
		taken := <-offered
		o.Close()
		end(taken)
		o.wants(t, "closed")
	}
}
