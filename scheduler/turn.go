package scheduler

import "github.com/xebec-serving/xebec/api"

// turn is what a machine knows of its turn on a device that several model versions share.
type turn struct {
	wanted bool // asked for and not granted yet
	held   bool
	used   bool // a batch has been sent in it
	// from is when the turn was granted, until when no further batch is begun in it.
	from, until api.Nanos
}

// TurnGranted: the device is this machine's for about nanos. A machine that asked ([Actions.WantTurn]) is granted one turn,
// and says when it has ended ([Actions.EndTurn]): when nothing is in flight and nothing is sent any more.
func (m *Machine) TurnGranted(now api.Nanos, nanos int64) {
	m.tick(now)
	m.change()
	m.turn = turn{held: true, from: m.now, until: m.now + api.Nanos(max(nanos, 1))}
}

// mayUse reports whether a batch for r may be sent now as far as a shared device is concerned, and asks for a turn if not.
// In a turn the first batch always may; further ones if they are full and expected to end within it. What does not fill a
// batch waits for the next turn, which comes at once if nobody else wants the device, and grows meanwhile if somebody does:
// serving each query as it comes would use up the turn in small batches.
func (m *Machine) mayUse(r *replica) bool {
	if !m.cfg.Shared {
		return true
	}
	if m.turn.held {
		switch {
		case !m.turn.used:
			return true
		case !m.fills(r):
			return false
		case m.inFlight() == 0 && m.now < m.turn.until:
			return true
		}
		n := min(m.live, m.capOf(r))
		return m.now+api.Nanos(r.remaining(m.now)+r.profile.predict(n)) <= m.turn.until
	}
	if !m.turn.wanted {
		m.turn.wanted = true
		m.out.WantTurn = true
	}
	return false
}

// endTurn gives the device up when nothing of the turn is left to be done, and asks for another one when something waits.
func (m *Machine) endTurn() {
	if !m.turn.held || m.inFlight() > 0 {
		return
	}
	m.out.EndTurn = max(1, int64(m.now-m.turn.from))
	used := m.turn.used
	m.turn = turn{}
	// A turn in which nothing could be sent would be no different if it came again before anything has changed.
	if used && m.cfg.Shared && m.ready > 0 && m.queuedItems() > 0 && m.holdUntil == api.Never {
		m.turn.wanted = true
		m.out.WantTurn = true
	}
}

// inFlight is the number of outstanding batches.
func (m *Machine) inFlight() int {
	n := 0
	for _, r := range m.replicas {
		n += len(r.flights)
	}
	return n
}
