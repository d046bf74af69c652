package scheduler

import (
	"math"

	"github.com/xebec-serving/xebec/api"
)

const (
	// probeNanos: one query in this time is let through to a replica although its profile says that it will be late.
	probeNanos = api.Nanos(1e9)
	// hopefulNanos: a query that has this long is never refused for what a profile says.
	hopefulNanos = int64(3600e9)
)

// admit says why a query that arrives is refused, or OK.
func (m *Machine) admit(it *Item) api.Code {
	f := m.function(it.Function)
	switch {
	case m.closed:
		return m.closeCode
	case f == nil || f.removed:
		return api.ModelRemoved
	case it.bytes > m.cfg.Batching.MaxBatchBytes:
		return api.TooLarge
	case it.Deadline <= m.now:
		return api.DeadlineExceeded
	case f.shed():
		m.counters.Shed++
		return api.Overloaded
	case !m.makeRoom(it.bytes):
		m.counters.QueueFull++
		return api.Overloaded
	case m.hopeless(f, it):
		if it.probe = m.probe(); !it.probe {
			m.counters.RefusedEarly++
			return api.Overloaded
		}
	}
	return api.OK
}

// shed reports whether the plan refuses this query of f: the part that it sheds, evenly spread. Of ten queries in a row
// under a plan that sheds 0.3 the 4th, the 7th and the 10th are refused.
func (f *function) shed() bool {
	if !(f.plan.Shed > 0) { // also NaN
		f.shedding = 0
		return false
	}
	f.shedding += min(f.plan.Shed, 1)
	if f.shedding < 1-1e-9 {
		return false
	}
	f.shedding--
	return true
}

// makeRoom reports whether the queue takes one more query of that size. Late queries, whose callers have their answers,
// give way.
func (m *Machine) makeRoom(bytes int) bool {
	for m.queuedItems() >= m.cfg.MaxQueue || m.bytes+bytes > m.cfg.MaxQueueBytes && m.queuedItems() > 0 {
		if m.late.len() == 0 {
			return false
		}
		m.finish(m.takeFrom(&m.late), api.Overloaded)
	}
	return true
}

// hopeless reports whether, by all that is known, the query would end after its deadline. Nothing is known while a ready
// replica has shown too few batches or its cap is still growing.
//
// The estimate is a count: how many queries the ready replicas finish before the deadline, against how many would be served
// before this one. Times are counted with what they may be off by. A replica finishes whole batches at its cap, and one
// smaller one at the end, as far as those who will come until it starts do not fill it up: with one replica, idle, a cap of
// 32, 2 ms + 10 µs × n and hardly any arrivals, a deadline in 5 ms leaves room for two batches of 32 (2 × 2.32 ms) and
// nothing in the last 0.36 ms, so the 65th query is refused; a deadline in 7 ms leaves room for 3 batches; one in 6.8 ms for
// two, and one of 16 that starts in 4.64 ms: where 1,000 queries come in a second, 4 of these 16 places will be taken.
func (m *Machine) hopeless(f *function, it *Item) bool {
	left := int64(it.Deadline - m.now)
	if m.ready == 0 || left >= hopefulNanos {
		return false
	}
	// Each lost query that waits costs its replica a batch of one before anything else.
	alone := (m.retries.len() + m.ready - 1) / m.ready
	byBytes := max(1, m.cfg.Batching.MaxBatchBytes/max(1, it.bytes)) // as if all were of this size
	// Others who come later may be more urgent, or have a turn before those who wait.
	coming := max(0, (m.rate.at(m.now)-f.rate.at(m.now))*float64(left))
	room := 0
	for _, r := range m.replicas {
		if !r.open() {
			continue
		}
		most := min(m.capOf(r), byBytes)
		if !r.profile.known() || most == r.controller.cap() && !r.controller.settled() {
			return false
		}
		busy := r.remaining(m.now) + int64(alone)*r.profile.predict(1)
		mine := int64(float64(left)/r.profile.margin) - busy
		if mine <= 0 {
			continue
		}
		each := max(1, r.profile.predict(most))
		whole := mine / each
		joining := m.rate.at(m.now) * float64(busy+whole*each) / float64(m.ready)
		room += int(whole)*most + max(0, r.profile.within(mine-whole*each, most)-int(joining))
		if float64(room) > float64(m.live)+coming { // everybody could go first
			return false
		}
	}
	if room == 0 {
		return true
	}
	// The round robin serves others meanwhile: those who wait, and those who will come, as far as their weights go.
	own := f.queue.ahead(it.Deadline, room)
	others := float64(m.live-f.queue.len()) + coming
	if others > 0 {
		others = min(others, float64(own+1)*(m.activeWeight()-f.share())/f.share())
	}
	return own+int(max(0, others)) >= room
}

// activeWeight is the sum of the shares of all functions that have queries waiting, or had some lately.
func (m *Machine) activeWeight() float64 {
	sum := 0.0
	for _, f := range m.functions {
		if f != nil && (f.next != nil || f.rate.at(m.now) > 0) {
			sum += f.share()
		}
	}
	return sum
}

// probe lets one query a second and replica through.
func (m *Machine) probe() bool {
	for _, r := range m.replicas {
		if r.open() && m.now-r.probedAt >= probeNanos {
			r.probedAt = m.now
			m.counters.Probes++
			return true
		}
	}
	return false
}

// rate is how many queries arrive, whatever becomes of them: a mean over about the last 50 ms.
type rate struct {
	perNano float64
	since   api.Nanos
	counted int
}

// rateWindowNanos is how long arrivals are counted before the mean takes them in.
const rateWindowNanos = 10e6

// at is the rate per nanosecond as of now: where nobody has come for long it is 0.
func (r *rate) at(now api.Nanos) float64 {
	if now-r.since > 10*rateWindowNanos {
		return 0
	}
	return r.perNano
}

func (r *rate) count(now api.Nanos) {
	r.counted++
	if passed := float64(now - r.since); passed >= rateWindowNanos {
		keep := math.Exp2(-passed / (3 * rateWindowNanos))
		r.perNano = keep*r.perNano + (1-keep)*float64(r.counted)/passed
		r.since, r.counted = now, 0
	}
}
