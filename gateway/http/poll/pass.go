package poll

import "golang.org/x/sys/unix"

// PassOn has the pollers offer each socket to pass before they read it, from now on; nil: no more. A socket is offered while no goroutine
// has it, no answer is to be written, and its owner has seen every byte that was read of it. pass must not block. It returns true if
// another process is to get the socket, which is taken then as by [Socket.Take]: [Socket.Depart] or [Socket.Reclaim] ends that, on any
// goroutine, perhaps before pass has returned.
func (g *Group) PassOn(pass func(o Owner, fd int) bool) {
	if pass == nil {
		g.pass.Store(nil)
		return
	}
	g.pass.Store(&pass)
}

// passes reports whether sockets are offered.
func (g *Group) passes() bool { return g.pass.Load() != nil }

// offer offers a socket, and reports whether it was taken. The poller calls it.
func (s *Socket) offer(pass func(o Owner, fd int) bool) bool {
	s.mu.Lock()
	if s.closed || s.taken || s.held > 0 || s.gone || s.Len() > 0 {
		s.mu.Unlock()
		return false
	}
	s.taken = true
	s.refs.Add(1)
	s.mu.Unlock()
	if pass(s.owner, s.fd) {
		return true
	}
	s.mu.Lock()
	s.taken = false
	s.mu.Unlock()
	s.unref()
	return false
}

// Offer has the poller offer the socket soon, also if nothing has come on it, and reports false if it is in use. Any goroutine may call it.
func (s *Socket) Offer() bool {
	s.mu.Lock()
	idle := s.poller != nil && !s.closed && !s.taken && s.held == 0 && !s.handling
	s.mu.Unlock()
	if idle {
		s.poller.push(s)
	}
	return idle
}

// Depart closes a socket that was offered and that another process has now. The connection goes on there.
func (s *Socket) Depart() {
	s.poller.unpoll(s)
	_ = s.Close() // it may be closed already
	s.unref()
}

// Reclaim gives a socket that was offered, and that no other process has got, back to its poller.
func (s *Socket) Reclaim() {
	s.mu.Lock()
	s.taken = false
	s.mu.Unlock()
	s.poller.push(s)
	s.unref()
}

// unpoll takes a socket out of the set. Closing it is not enough if another process has it, too: its events would come for ever.
func (p *poller) unpoll(s *Socket) {
	_ = p.raw.Control(func(set uintptr) { _ = unix.EpollCtl(int(set), unix.EPOLL_CTL_DEL, s.fd, nil) }) // it fails only after the pollers' end
}
