package scheduler

import (
	"math"

	"github.com/xebec-serving/xebec/api"
)

const (
	// probeNanos is the interval of probes: one query per interval is let through to a replica although its profile
	// predicts that it will be late.
	probeNanos = api.Nanos(1e9) //xebec:limit interval between queries admitted against a profile
	// longDeadlineNanos: a query with at least this long until its deadline is never refused because of a profile.
	longDeadlineNanos = int64(3600e9)
	// surely is a factor that exceeds every rounding error of an estimate.
	surely = 1 + 1e-9
)

// admit returns the code that an arriving query is refused with, or OK.
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
	case m.willMissDeadline(f, it):
		if it.probe = m.probe(it); !it.probe {
			m.counters.RefusedEarly++
			return api.Overloaded
		}
	}
	return api.OK
}

// shed reports whether the plan refuses this query of f. The refused part is evenly spread: under a plan that sheds
// 0.3, the 4th, 7th and 10th of ten queries in a row are refused.
func (f *function) shed() bool {
	if !(f.plan.Shed > 0) { // also true for NaN
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

// makeRoom reports whether the queue takes one more query of that size. It drops late queries, whose callers already
// have their answers, to make room.
func (m *Machine) makeRoom(bytes int) bool {
	for m.queuedItems() >= m.cfg.MaxQueue || m.bytes+bytes > m.cfg.MaxQueueBytes && m.queuedItems() > 0 {
		if m.late.len() == 0 {
			return false
		}
		m.finish(m.takeFrom(&m.late), api.Overloaded)
	}
	return true
}

// willMissDeadline reports whether the query is expected to end after its deadline. It returns false while the estimate
// is not reliable: a ready replica has completed too few batches, or its cap is still growing.
//
// The estimate compares two counts: the queries that the ready replicas finish before the deadline, and the queries
// that would be served before this one. Predicted times include their margin of error. A replica finishes whole batches
// at its cap, and a smaller one at the end, less the places that later arrivals will fill. Example: one idle replica, a
// cap of 32, 2 ms + 10 µs × n, hardly any arrivals. A deadline in 5 ms leaves room for two batches of 32 (2 × 2.32 ms)
// and none in the last 0.36 ms, so the 65th query is refused. A deadline in 7 ms leaves room for 3 batches. One in 6.8
// ms leaves room for two, and one of 16 that starts in 4.64 ms; at 1,000 arrivals per second, 4 of these 16 places will
// be taken.
func (m *Machine) willMissDeadline(f *function, it *Item) bool {
	left := int64(it.Deadline - m.now)
	if it.Sticky != 0 {
		return m.willMissAtHome(it)
	}
	if m.ready == 0 || left >= longDeadlineNanos {
		return false
	}
	// Each lost query that waits costs its replica a batch of one before anything else.
	alone := 0
	if n := m.retries.len(); n > 0 {
		alone = (n + m.ready - 1) / m.ready
	}
	// Later arrivals of other functions may be more urgent, or have a turn before queries that wait now.
	coming := max(0, (m.rate.at(m.now)-f.rate.at(m.now))*float64(left))
	room := 0
	for _, r := range m.replicas {
		if !r.open() {
			continue
		}
		most := m.capOf(r)
		if most*it.bytes > m.cfg.Batching.MaxBatchBytes { // as if all queries were of this size
			most = min(most, max(1, m.cfg.Batching.MaxBatchBytes/it.bytes))
		}
		if !r.profile.known() || most == r.controller.cap() && !r.controller.settled() {
			return false
		}
		busy := r.remaining(m.now) + int64(alone)*r.profile.predict(1)
		each := max(1, r.profile.predict(most))
		if float64(room+most) > float64(m.live)+coming && float64(left) > surely*r.profile.margin*float64(busy+each) {
			return false // a whole batch suffices: the usual case, without a division
		}
		mine := int64(float64(left)/r.profile.margin) - busy
		if mine <= 0 {
			continue
		}
		whole := mine / each
		joining := m.rate.at(m.now) * float64(busy+whole*each) / float64(m.ready)
		room += int(whole)*most + max(0, r.profile.within(mine-whole*each, most)-int(joining))
		if float64(room) > float64(m.live)+coming { // it fits even if all others go first
			return false
		}
	}
	if room == 0 {
		return true
	}
	// The round robin also serves other functions meanwhile: their waiting queries and their arrivals, as far as their
	// weights allow.
	own := f.queue.ahead(it.Deadline, room)
	others := float64(m.live-f.queue.len()) + coming
	if others > 0 {
		others = min(others, float64(own+1)*(m.activeWeight()-f.share())/f.share())
	}
	return own+int(max(0, others)) >= room
}

// activeWeight is the sum of the shares of all functions that have queries waiting or had arrivals lately.
func (m *Machine) activeWeight() float64 {
	sum := 0.0
	for _, f := range m.functions {
		if f != nil && (f.next != nil || f.rate.at(m.now) > 0) {
			sum += f.share()
		}
	}
	return sum
}

// probe lets through one query per second and replica that may have it.
func (m *Machine) probe(it *Item) bool {
	for _, r := range m.replicas {
		if it.Sticky != 0 && r != m.home(it.Sticky) {
			continue
		}
		if r.open() && m.now-r.probedAt >= probeNanos {
			r.probedAt = m.now
			m.counters.Probes++
			return true
		}
	}
	return false
}

// rate is the arrival rate of queries, refused ones included: a mean over about the last 50 ms.
type rate struct {
	perNano float64
	since   api.Nanos
	counted int
}

// rateWindowNanos is how long arrivals are counted before they enter the mean.
const rateWindowNanos = 10e6

// at is the rate per nanosecond as of now. It is 0 after a long time without arrivals.
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
