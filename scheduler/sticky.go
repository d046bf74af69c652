package scheduler

import "github.com/xebec-serving/xebec/api"

// homes are the queues of sticky queries ([Item.Sticky]). Each waits in the queue of its home, the replica that queries of
// its kind go to, or, while no replica takes batches, in homeless.
type homes struct {
	waiting  int // in all of these queues
	homeless queue
	moving   []*Item // memory for rehome
}

// home is the replica that sticky queries of that kind go to: the one with the highest hash of the kind and the replica's
// id (rendezvous hashing: Thaler and Ravishankar, Using Name-Based Mappings to Increase Hit Rates, IEEE/ACM ToN 6(1),
// 1998). When a replica comes or goes, only the kinds that it gets or had change their homes. nil while no replica takes
// batches.
func (m *Machine) home(kind uint64) *replica {
	var best *replica
	var most uint64
	for _, r := range m.replicas {
		if !r.open() {
			continue
		}
		if h := mix(kind ^ mix(uint64(r.id))); best == nil || h > most {
			best, most = r, h
		}
	}
	return best
}

// mix is the finalizer of SplitMix64 (Steele, Lea and Flood, Fast Splittable Pseudorandom Number Generators, OOPSLA 2014).
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// homeQueue is the queue that a sticky query waits in.
func (m *Machine) homeQueue(it *Item) *queue {
	if it.home == nil {
		return &m.homes.homeless
	}
	return &it.home.own
}

// queueAtHome puts a sticky query into the queue of its home.
func (m *Machine) queueAtHome(it *Item) {
	it.place, it.home = atHome, m.home(it.Sticky)
	m.homes.waiting++
	m.bytes += it.bytes
	m.functions[it.Function].atHome++
	m.homeQueue(it).push(it.Deadline, it)
}

// leaveHome accounts for a sticky query that was taken out of its queue.
func (m *Machine) leaveHome(it *Item) {
	m.homes.waiting--
	m.bytes -= it.bytes
	m.functions[it.Function].atHome--
	it.home = nil
}

// takeFromHome takes the most urgent query out of a queue of sticky ones.
func (m *Machine) takeFromHome(q *queue) *Item {
	it := q.pop()
	m.leaveHome(it)
	return it
}

// rehome moves the sticky queries that wait to their homes, after the replicas that take batches have changed.
func (m *Machine) rehome() {
	h := &m.homes
	if h.waiting == 0 {
		return
	}
	h.moving = m.evacuate(&h.homeless, h.moving[:0])
	for _, r := range m.replicas {
		h.moving = m.evacuate(&r.own, h.moving)
	}
	for _, it := range h.moving {
		m.queueAtHome(it)
	}
	clear(h.moving)
}

// evacuate appends to list the queries in q whose home has changed, and takes them out.
func (m *Machine) evacuate(q *queue, list []*Item) []*Item {
	for i := len(q.heap) - 1; i >= 0; i-- {
		if it := q.heap[i].it; m.home(it.Sticky) != it.home {
			q.heap[i] = q.heap[len(q.heap)-1]
			q.heap[len(q.heap)-1] = entry{}
			q.heap = q.heap[:len(q.heap)-1]
			m.leaveHome(it)
			list = append(list, it)
		}
	}
	for i := len(q.heap)/2 - 1; i >= 0; i-- {
		q.down(i)
	}
	return list
}

// dispatchHomes sends batches to the replicas that sticky queries wait for.
func (m *Machine) dispatchHomes() {
	if m.homes.waiting == 0 {
		return
	}
	for _, r := range m.replicas {
		for m.takesOwn(r) && m.mayUseDevice(r) {
			m.send(r)
		}
	}
}

// takesOwn reports whether a batch with the sticky queries that wait for r should be sent: at once if r would begin it,
// else under the conditions of pickBusy.
func (m *Machine) takesOwn(r *replica) bool {
	n := min(r.own.len(), m.capOf(r))
	if n == 0 || !r.open() || !r.room() {
		return false
	}
	if m.retries.len() > 0 && (!m.mayBegin(r) || m.mayBeginRetry(r) && m.retries.first() <= r.own.first()) {
		return false
	}
	if r.idle() {
		return true
	}
	if n < m.capOf(r) && !m.eager(r) {
		return false
	}
	if at := m.followTime(r, r.profile.predict(n)); at > m.now {
		m.followAt = min(m.followAt, at)
		return false
	}
	return true
}

// fillOwn adds the sticky queries that wait for r to its batch, by deadline. It answers those that will be late: no other
// replica may have them.
func (m *Machine) fillOwn(b *filling, r *replica) {
	for r.own.len() > 0 && !b.full && len(b.fl.items) < b.limit {
		it := r.own.heap[0].it
		switch m.verdictFor(b, it) {
		case inTime:
			if !b.fits(it) {
				return
			}
			b.fl.add(m.takeFromHome(&r.own))
		case closeBatch:
			b.full = true
		case tooLate, deferQuery:
			m.counters.PassedOver++
			m.finish(m.takeFromHome(&r.own), api.Overloaded)
		}
	}
}

// expireHomes answers the sticky queries whose deadlines have passed. They are not kept to fill a cache.
func (m *Machine) expireHomes() {
	if m.homes.waiting == 0 {
		return
	}
	for m.homes.homeless.first() <= m.now {
		it := m.takeFromHome(&m.homes.homeless)
		m.finish(it, m.expiryCode(it))
	}
	for _, r := range m.replicas {
		for r.own.first() <= m.now {
			m.finish(m.takeFromHome(&r.own), api.DeadlineExceeded)
		}
	}
}

// closeHomes ends all sticky queries that wait.
func (m *Machine) closeHomes(code api.Code) {
	for m.homes.homeless.len() > 0 {
		m.finish(m.takeFromHome(&m.homes.homeless), code)
	}
	for _, r := range m.replicas {
		for r.own.len() > 0 {
			m.finish(m.takeFromHome(&r.own), code)
		}
	}
}

// willMissAtHome is willMissDeadline for a sticky query. It counts the sticky queries that wait for the same replica and,
// because the others have every second batch there while some wait, half of the batches.
func (m *Machine) willMissAtHome(it *Item) bool {
	r := m.home(it.Sticky)
	left := int64(it.Deadline - m.now)
	if r == nil || left >= longDeadlineNanos || !r.profile.known() {
		return false
	}
	most := min(m.capOf(r), max(1, m.cfg.Batching.MaxBatchBytes/max(1, it.bytes)))
	if most == r.controller.cap() && !r.controller.settled() {
		return false
	}
	mine := int64(float64(left)/r.profile.margin) - r.remaining(m.now)
	room := 0
	if mine > 0 {
		each := max(1, r.profile.predict(most))
		whole := mine / each
		room = r.concurrency * (int(whole)*most + r.profile.within(mine-whole*each, most))
		if m.live >= most {
			room = (room + 1) / 2
		}
	}
	return r.own.ahead(it.Deadline, room) >= room
}
