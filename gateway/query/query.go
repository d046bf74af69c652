package query

import (
	"math"
	"sync/atomic"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/cache"
	"github.com/xebec-serving/xebec/gateway/selection"
	"github.com/xebec-serving/xebec/scheduler"
	"github.com/xebec-serving/xebec/scheduler/driver"
)

// Query is one query of a request. It asks its members, and is settled when the last of them has ended; each ends at its deadline at
// the latest.
type Query struct {
	ID     uint64
	Inputs []api.Value

	// The results. Outputs are valid when Code is OK, or LowConfidence. Confidence is NaN if nothing says how sure the answer is.
	Code       api.Code
	Outputs    []api.Value
	Confidence float64

	request *Request
	first   member    // most queries ask one model
	members []*member // in the order of candidates, then shadows and tees; not changed after they have been submitted
	second  []*member // asked in a second step, after the first answers
	todo    int       // the first of members that dispatch has not looked at
	waiting atomic.Int32

	// asked, arrived and dropped are candidates: the plan had no room for those dropped. agreed are those whose own prediction is the
	// answer.
	asked, arrived, dropped, agreed selection.Set

	cold    bool         // no candidate has a replica: it may wait for the first one
	teed    bool         // a member is that of a Tee
	wish    int          // the candidate that a policy that asks one would have asked without limits
	keys    [2]cache.Key // of salt and inputs: without and with the context
	keyed   [2]bool      // which of them are known
	scratch *scratch     // for policies that select; kept with the query
}

// member is one model that is asked for one query.
type member struct {
	scheduler.Item
	query     *Query
	model     *Model
	candidate int
	code      api.Code
	arm       *Arm // that counts its answer; may be nil
	shadow    bool // its answer is compared, not given
	evaluated bool // it goes, or went, to its lane
	// contextual models see contexts: predictions for one context are not for another. unvetted: no worker had declared its
	// capabilities, so it was not known whether the prediction may be cached.
	contextual, unvetted bool

	// Where the model has a cache: wait is its place there. As a leader it evaluates what others wait for.
	wait    cache.Waiter
	leads   bool
	retried bool
	alarm   driver.Alarm
	alarmed atomic.Uint32

	single [1]*scheduler.Item // to submit it alone
}

func (m *member) init() { m.Item.Owner, m.alarm.Owner = m, m }

// Parts says what became of the candidates of a query.
type Parts struct {
	// Answered have a prediction. Late had none at the deadline, or nothing to evaluate the query; Failed have failed at it; for
	// Dropped the plan had no room.
	Answered, Late, Failed, Dropped selection.Set
}

// Parts is what became of the query's candidates. If the function does not select, it has Answered only.
func (q *Query) Parts() Parts {
	p := Parts{Answered: q.arrived}
	if fn := q.request.fn; fn == nil || !fn.Selects {
		return p
	}
	p.Dropped = q.dropped
	rest := q.asked &^ q.arrived
	if rest == 0 {
		return p
	}
	for _, m := range q.all() {
		if !m.shadow && (m.code == api.DeadlineExceeded || m.code == api.Overloaded || m.code == api.NoReplica) {
			p.Late = p.Late.With(m.candidate)
		}
	}
	p.Late &= rest
	p.Failed = rest &^ p.Late
	return p
}

// begin makes it a query that asks nothing yet.
func (q *Query) begin(id uint64) {
	q.ID = id
	q.waiting.Store(1) // until Submit has submitted all
	q.members, q.second, q.todo = q.members[:0], q.second[:0], 0
	q.asked, q.arrived, q.dropped, q.agreed = 0, 0, 0, 0
	q.Code, q.Outputs, q.Confidence = api.OK, nil, math.NaN()
	q.keyed, q.cold, q.teed = [2]bool{}, true, false
}

// all has the members of both steps.
func (q *Query) all() []*member {
	if len(q.second) == 0 {
		return q.members
	}
	return q.scratch.all
}

// member is the one that asks the candidate; nil: none does.
func (q *Query) member(candidate int) *member {
	for _, m := range q.all() {
		if m.candidate == candidate {
			return m
		}
	}
	return nil
}

// drop gives back what the query holds, after it was released.
func (q *Query) drop() {
	if r := q.request; r.submitted.Load() {
		if r.fn != nil && len(r.fn.Shadows) > 0 {
			q.compareShadows(r.fn)
		}
		if q.teed {
			q.compareTees()
		}
	}
	for i, m := range q.members {
		m.drop()
		q.members[i] = nil
	}
	for i, m := range q.second {
		m.drop()
		q.second[i] = nil
	}
	q.members, q.second, q.Outputs, q.request = q.members[:0], q.second[:0], nil, nil
	if q.scratch != nil {
		clear(q.scratch.all)
	}
}

func (m *member) drop() {
	q := m.query
	m.query, m.model, m.arm, m.Inputs, m.Context = nil, nil, nil, nil, nil
	if m != &q.first {
		q.request.path.members.Put(m)
	}
}
