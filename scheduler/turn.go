package scheduler

import "github.com/xebec-serving/xebec/api"

// turn is the machine's turn on a device that several model versions share.
type turn struct {
	wanted bool // asked for and not granted yet
	held   bool
	used   bool // a batch has been sent in it
	// from is when the turn was granted; after until no further batch is begun in it.
	from, until api.Nanos
}

// TurnGranted gives the machine the device for about nanos. A machine that asked ([Actions.WantTurn]) is granted one
// turn. It returns the turn ([Actions.EndTurn]) when no batch is in flight and none will be sent.
func (m *Machine) TurnGranted(now api.Nanos, nanos int64) {
	m.tick(now)
	m.noteChange()
	m.turn = turn{held: true, from: m.now, until: m.now + api.Nanos(max(nanos, 1))}
}

// mayUseDevice reports whether the shared device permits sending a batch for r now, and asks for a turn if not. In a
// turn the first batch is always permitted; further ones must be full and expected to end within the turn. Queries that
// do not fill a batch wait for the next turn. It comes at once if no other tenant wants the device; otherwise the batch
// grows meanwhile. Serving each query as it arrives would use up the turn in small batches.
func (m *Machine) mayUseDevice(r *replica) bool {
	if !m.cfg.Shared {
		return true
	}
	if m.turn.held {
		switch {
		case !m.turn.used:
			return true
		case !m.fills(r):
			return false
		case m.outstanding() == 0 && m.now < m.turn.until:
			return true
		}
		n := min(m.live+r.own.len(), m.capOf(r))
		return m.now+api.Nanos(r.remaining(m.now)+r.profile.predict(n)) <= m.turn.until
	}
	if !m.turn.wanted {
		m.turn.wanted = true
		m.out.WantTurn = true
	}
	return false
}

// endTurn returns the device when there is nothing left to do in the turn, and asks for another turn when queries wait.
func (m *Machine) endTurn() {
	if !m.turn.held || m.outstanding() > 0 {
		return
	}
	m.out.EndTurn = max(1, int64(m.now-m.turn.from))
	used := m.turn.used
	m.turn = turn{}
	// A turn in which nothing could be sent would repeat without effect until something changes.
	if used && m.cfg.Shared && m.ready > 0 && m.queuedItems() > 0 && m.holdUntil == api.Never {
		m.turn.wanted = true
		m.out.WantTurn = true
	}
}

// outstanding is the number of outstanding batches.
func (m *Machine) outstanding() int {
	n := 0
	for _, r := range m.replicas {
		n += len(r.flights)
	}
	return n
}
