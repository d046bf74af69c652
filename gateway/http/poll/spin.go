package poll

// spin takes events without sleeping, while one is likely to come soon. 0: there was none. The runtime's poller sees the events too, and
// calls work once more for nothing.
func (p *poller) spin(fd int) (n int) {
	now := p.group.now()
	until := p.busy.Idle(now)
	if now >= until {
		return 0
	}
	for ; n == 0 && now < until && !p.woken.Load(); now = p.group.now() {
		p.waited.Add(1)
		n = epollWait(fd, p.events[:])
	}
	if n > 0 {
		p.spinsFound.Add(1)
	} else {
		p.spinsVain.Add(1)
	}
	return n
}
