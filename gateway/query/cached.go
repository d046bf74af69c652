package query

import (
	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/cache"
	"github.com/xebec-serving/xebec/gateway/selection"
	"github.com/xebec-serving/xebec/scheduler/driver"
)

// The states of member.alarmed. A member that waits at the cache holds two references to its request: one until the cache
// has called back or can no longer do so, and one until its alarm has rung or was stopped in time.
const (
	alarmUnset uint32 = iota
	alarmSet
	alarmOver  // the cache has called back
	alarmAgain // the cache has called back before the alarm was set, and the member must be evaluated after all
)

// lookUp looks in the caches of the query's members. It reports whether the query needs a lane, or would need one if the
// plan had room for it.
func (q *Query) lookUp() (needsLane bool) {
	needsLane = q.dropped != 0
	for _, m := range q.members {
		m.lookUp()
		needsLane = needsLane || m.evaluated
	}
	return needsLane
}

// mostPrefetched is how many candidates of a function the caches are prefetched for.
const mostPrefetched = 8

// prefetch hashes the query, and prefetches what lookUp and put are likely to read: the sooner, the less they wait for memory.
func (q *Query) prefetch() {
	r := q.request
	fn := r.fn
	if fn == nil || !fn.Selects {
		q.prefetchOf(r.model)
		return
	}
	for i := range fn.Candidates[:min(len(fn.Candidates), mostPrefetched)] {
		q.prefetchOf(fn.Candidates[i].Model)
	}
	if j := r.path.joins; fn.Mode == selection.One && len(j.slots) > 0 && len(r.salt) == 0 && !r.learning {
		cache.Prefetch(j.lastWith(q.digest())) // the digest is the key in the caches
	}
}

func (q *Query) prefetchOf(m *Model) {
	if handle := m.usableCache(); handle != nil && !q.request.unlisted {
		handle.Prefetch(q.key(m.Contextual.Load()))
	}
}

// saltFor returns what distinguishes equal inputs: the caller's salt and, for models that see it, the context.
func (q *Query) saltFor(contextual bool) []byte {
	if contextual {
		return q.request.contextSalt
	}
	return q.request.salt
}

// key returns the query's key in the caches.
func (q *Query) key(contextual bool) cache.Key {
	i := 0
	if contextual && len(q.request.contextSalt) > 0 { // else both are the same
		i = 1
	}
	if !q.keyed[i] {
		q.keys[i], q.keyed[i] = q.request.path.cfg.Cache.Key(q.saltFor(contextual), q.Inputs), true
	}
	return q.keys[i]
}

// lookUp looks in the model's cache. The member goes to its lane if its prediction is neither cached nor being evaluated.
func (m *member) lookUp() {
	r := m.query.request
	handle := m.model.usableCache()
	if handle == nil || r.unlisted {
		m.tellCause()
		m.evaluated = true
		m.unvetted = handle == nil && !r.unlisted && !m.model.CapabilitiesKnown.Load()
		return
	}
	r.refs.Add(1)
	if !m.askCache(handle) {
		m.evaluated, m.holds = true, true
	}
}

// askCache looks in the cache. If it returns true, the member has ended or will be called back, and releases the caller's
// reference to the request. If it returns false, the member must be evaluated, and the caller still owns the reference.
func (m *member) askCache(handle *cache.Model) bool {
	m.wait.Owner, m.wait.Outputs, m.wait.Until = m, m.Outputs, m.Deadline
	q, r := m.query, m.query.request
	switch handle.Request(q.key(m.contextual), q.saltFor(m.contextual), q.Inputs, &m.wait) {
	case cache.Hit:
		m.takeCached()
		m.end(api.OK)
		r.Release()
		return true
	case cache.Wait:
		m.tellCause()
		timers := r.path.cfg.Timers
		r.refs.Add(1) // for the alarm
		timers.Set(&m.alarm, m.Deadline)
		if m.alarmed.CompareAndSwap(alarmUnset, alarmSet) {
			return true
		}
		stopped := timers.Stop(&m.alarm)
		if stopped {
			r.Release()
		}
		if m.alarmed.Load() == alarmOver {
			return true
		}
		if !stopped { // the deadline has passed, and the lane will report it
			return false
		}
		m.alarmed.Store(alarmUnset)
		return m.askCache(handle)
	case cache.Lead:
		m.tellCause()
		m.leads = true
	}
	return false
}

// takeCached makes the outputs that the cache has copied the member's result.
func (m *member) takeCached() { m.SetResult(m.wait.Outputs, m.wait.Confidence) }

// Filled is called by the cache: the evaluation that the member waits for has succeeded.
func (m *member) Filled(*cache.Waiter) {
	m.takeCached()
	m.waited(api.OK)
}

// Failed is called by the cache: the evaluation that the member waits for has failed. If that query ran out of time, of
// which this one may have more, or its caller has left, the member is evaluated itself. After a timeout it does so only
// once.
func (m *member) Failed(_ *cache.Waiter, code api.Code) {
	r := m.query.request
	r.refs.Add(1)
	defer r.Release()
	m.Detail = m.wait.Detail
	if again := code == api.Overloaded || code == api.DeadlineExceeded || code == api.Cancelled; !again || m.retried {
		m.waited(code)
		return
	}
	m.retried = code != api.Cancelled
	if m.alarmed.CompareAndSwap(alarmUnset, alarmAgain) {
		return // askCache handles it
	}
	m.alarmed.Store(alarmOver)
	if !r.path.cfg.Timers.Stop(&m.alarm) { // it is ringing, or has rung
		m.end(api.DeadlineExceeded)
		r.Release()
		return
	}
	r.Release() // of the alarm
	m.alarmed.Store(alarmUnset)
	m.follow()
	if handle := m.model.usableCache(); handle != nil && m.askCache(handle) {
		return
	}
	if m.model.Closed.Load() { // it is being unloaded
		m.end(api.NoReplica)
		r.Release()
		return
	}
	m.submit() // with the reference that the member holds
}

// waited ends a member that waited for another query's evaluation.
func (m *member) waited(code api.Code) {
	r := m.query.request
	if m.alarmed.Swap(alarmOver) == alarmSet && r.path.cfg.Timers.Stop(&m.alarm) {
		r.Release() // never the last one
	}
	m.end(code)
	r.Release()
}

// Ring is the deadline of a member that waits for another query's evaluation.
func (m *member) Ring(*driver.Alarm) {
	r := m.query.request
	if m.wait.Cancel() {
		m.end(api.DeadlineExceeded)
		r.Release()
	}
	r.Release()
}

// fill passes the prediction to the cache and to the queries that wait for it.
func (m *member) fill() {
	m.leads = false
	result := m.Result()
	m.wait.Fill(result.Outputs, result.Confidence)
}

// keep caches the first prediction of a version, if its worker has declared meanwhile that it may be cached. A sleeping
// model is queried before that is known.
func (m *member) keep() {
	handle := m.model.usableCache()
	if handle == nil {
		return
	}
	q, result := m.query, m.Result()
	salt := q.saltFor(m.model.Contextual.Load())
	handle.Add(handle.Key(salt, q.Inputs), salt, q.Inputs, result.Outputs, result.Confidence)
}
