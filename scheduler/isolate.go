package scheduler

import "github.com/xebec-serving/xebec/api"

const (
	// IsolatePart is how many queries, per query that arrives, may be evaluated again alone because their batch failed.
	// It lets every batch be taken apart once: 10 bad queries of 160 in 10 batches of 16 cost 160 tokens, and 160 have
	// arrived. IsolateBurst bounds those that wait at a time.
	IsolatePart  = 1.0
	IsolateBurst = 1024 //xebec:limit queries of failed batches that may be evaluated again, each alone, at once
	// isolateHopeless is how many of them may fail in a row before the model itself is to blame: no batch is taken apart
	// until the model has answered something. Only one query is tried alone every probeNanos: otherwise a model whose
	// every batch has a bad query would fail all the good ones for ever.
	isolateHopeless = 16
)

// isolation is the state of taking failed batches apart.
type isolation struct {
	tokens  float64
	counted uint64 // arrivals that were added to tokens
	inRow   int    // queries alone, since the model last answered, that failed
	// hopelessAt is when inRow last came to isolateHopeless.
	hopelessAt api.Nanos
	// limit bounds batches while single queries make them fail; 0: it does not.
	limit int
	spare []entry // memory for a queue
}

// mayIsolate is how many queries of a batch that failed may be evaluated again, each alone: the most urgent ones.
func (m *Machine) mayIsolate(fl *flight, code api.Code) int {
	if code != api.ModelError && code != api.BadOutput || len(fl.items) < 2 || fl.hedge || fl.hedged || !m.cfg.Retry || m.closed {
		return 0
	}
	is := &m.isolation
	is.tokens = min(IsolateBurst, is.tokens+IsolatePart*float64(m.counters.Arrived-is.counted))
	is.counted = m.counters.Arrived
	n := min(len(fl.items), int(is.tokens))
	if n == 0 || is.inRow >= isolateHopeless && m.now-is.hopelessAt < probeNanos {
		return 0
	}
	is.tokens -= float64(n)
	is.inRow = min(is.inRow, isolateHopeless-1)
	return n
}

// canRepeat reports whether a query of a failed batch would be answered in time by the profile of some replica.
func (m *Machine) canRepeat(it *Item) bool {
	return it.Deadline > m.now && (m.ready == 0 || m.otherMeetsDeadline(nil, it.Deadline))
}

// mayKill reports whether a waiting query that must travel alone may have killed a replica. Nothing travels beside or
// behind it. A query whose batch failed has killed nothing.
func (it *Item) mayKill() bool { return it.failed == api.OK || it.suspect }

// isolate queues a query of a failed batch for a batch of its own, unless its caller waits no more, it would be late, or it
// was tried again before.
func (m *Machine) isolate(it *Item, code api.Code, size int) {
	if it.retried || it.answered || !m.canRepeat(it) {
		m.finish(it, code)
		return
	}
	it.retried, it.failed, it.failedOf = true, code, size
	m.counters.Isolated++
	m.queueRetry(it)
}

// isolatedEnded learns from a batch that has ended: of one query of a failed batch, or any other.
func (m *Machine) isolatedEnded(fl *flight, code api.Code) {
	is := &m.isolation
	it := fl.items[0]
	alone := len(fl.items) == 1 && it.failed != api.OK
	if alone && code == api.OK {
		code = it.Status
	}
	switch {
	case alone && code == api.InvalidInput:
		is.inRow = 0 // the model works
	case code == api.OK && alone:
		is.inRow = 0
		if half := max(1, it.failedOf/2); is.limit == 0 || half < is.limit {
			is.limit = half // this query was well, so another one of its batch was not
		}
	case code == api.OK:
		is.inRow = 0
		if is.limit > 0 && len(fl.items) >= is.limit {
			is.limit += 1 + is.limit/8
			if is.limit >= m.cfg.Batching.MaxBatch {
				is.limit = 0
			}
		}
	case alone && (code == api.ModelError || code == api.BadOutput):
		if is.inRow++; is.inRow == isolateHopeless {
			is.hopelessAt = m.now
			m.giveUpIsolated()
		}
	}
}

// isolates reports whether r's batches are smaller because single queries make them fail.
func (m *Machine) isolates(r *replica) bool {
	limit := m.isolation.limit
	return limit > 0 && limit <= m.capOf(r) && limit < r.controller.cap()
}

// giveUpIsolated ends the queries that wait for a batch of their own because their batch failed.
func (m *Machine) giveUpIsolated() {
	waiting := m.retries.heap
	m.retries = queue{heap: m.isolation.spare[:0]}
	for _, e := range waiting {
		if e.it.failed == api.OK {
			m.retries.push(e.at, e.it)
			continue
		}
		m.bytes -= e.it.bytes
		if e.it.mayKill() {
			m.suspects--
		}
		m.finish(e.it, e.it.failed)
	}
	clear(waiting)
	m.isolation.spare = waiting
}
