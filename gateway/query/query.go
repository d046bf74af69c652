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

// Query is one query of a request. It asks its members, and is settled when the last of them has ended. Each member ends
// at its deadline at the latest.
type Query struct {
	ID     uint64
	Inputs []api.Value

	// The results. Outputs are valid if Code is OK or LowConfidence. Confidence is NaN if no confidence was computed.
	Code       api.Code
	Outputs    []api.Value
	Confidence float64
	Detail     string // the model's words if Code is InvalidInput

	request *Request
	first   member    // most queries ask one model
	members []*member // in the order of candidates, then shadows and tees; not changed after they were submitted
	second  []*member // members of a second step, after the first answers
	todo    int       // index of the first member that dispatch has not looked at
	waits   int32     // what waiting is to begin with, while members are added
	waiting atomic.Int32

	// asked, arrived, dropped and agreed are sets of candidates. The plan had no room for those in dropped. The
	// prediction of those in agreed is the answer.
	asked, arrived, dropped, agreed selection.Set

	cold    bool         // no candidate has a replica: the query may wait for the first one
	streams bool         // its outputs after the first one go to the request's stream
	teed    bool         // a member belongs to a Tee
	wish    int          // the candidate that a policy that asks one would have asked without limits
	keys    [2]cache.Key // of salt and inputs: without and with the context
	keyed   [2]bool      // which of them are known
	scratch *scratch     // for functions that select; kept with the query
}

// member is the evaluation of one query by one model.
type member struct {
	scheduler.Item
	query     *Query
	model     *Model
	candidate int
	code      api.Code
	took      api.Nanos // from the arrival to the prediction; only for policies that see predictions
	arm       *Arm      // counts the member's answer; may be nil
	shadow    bool      // its answer is only compared
	evaluated bool      // it needs its lane
	holds     bool      // it holds its request, as its lane is to do
	cold      bool      // its model had no replica when it was asked
	// contextual models see contexts, so a prediction holds for one context only. unvetted means that no worker had
	// declared its capabilities, so it was not known whether the prediction may be cached.
	contextual, unvetted bool

	// If the model has a cache, wait is the member's place in it. A leader evaluates what other members wait for.
	wait    cache.Waiter
	leads   bool
	retried bool
	alarm   driver.Alarm
	alarmed atomic.Uint32

	course atomic.Uint32      // whether it may still go to another version: see handover.go
	single [1]*scheduler.Item // to submit it alone
}

func (m *member) init() { m.Item.Owner, m.alarm.Owner = m, m }

// Reason says why the query has no output, for its caller.
func (q *Query) Reason() string {
	if q.Detail != "" && q.Code == api.InvalidInput {
		return q.Detail
	}
	if r := q.request; q.Code == api.NoReplica && r != nil && r.fn == nil && r.model != nil && r.model.Closed.Load() {
		return r.model.whyClosed()
	}
	return q.Code.Reason()
}

// Streams reports whether the request's stream gets the outputs after the first one. Otherwise there is nothing after it.
func (q *Query) Streams() bool { return q.streams }

// FreeOutputs gives up large outputs of a query that streams. Otherwise its first output would be held until the end of the stream, however long
// ago the client has read it. Its owner calls it when it has rendered them, in Deliver. Outputs that will be compared with those of shadows stay.
func (q *Query) FreeOutputs() {
	if !q.streams || len(q.members) != 1 {
		return
	}
	for i := range q.Outputs {
		if v := &q.Outputs[i]; cap(v.Data) > maxHeldOutput {
			v.Data = nil
		}
	}
}

// maxHeldOutput is how much memory for each of the first outputs stays with a stream.
const maxHeldOutput = 16 << 10

// Parts groups the candidates of a query by their results.
type Parts struct {
	// Answered have made a prediction. Late had none at the deadline, or no replica to evaluate the query. Failed have
	// failed. The plan had no room for Dropped.
	Answered, Late, Failed, Dropped selection.Set
}

// Parts returns the results of the query's candidates. If the function does not select, only Answered is set.
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

// begin resets the query to one without members.
func (q *Query) begin(id uint64) {
	q.ID = id
	q.waits = 1 // until Submit has submitted all members
	q.members, q.second, q.todo = q.members[:0], q.second[:0], 0
	q.asked, q.arrived, q.dropped, q.agreed = 0, 0, 0, 0
	q.Code, q.Outputs, q.Confidence, q.Detail = api.OK, nil, math.NaN(), ""
	q.keyed, q.cold, q.teed, q.streams = [2]bool{}, true, false, false
}

// all returns the members of both steps.
func (q *Query) all() []*member {
	if len(q.second) == 0 {
		return q.members
	}
	return q.scratch.all
}

// member returns the member of the candidate, or nil.
func (q *Query) member(candidate int) *member {
	for _, m := range q.all() {
		if m.candidate == candidate {
			return m
		}
	}
	return nil
}

// drop releases the query's memory after the request was released.
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
	if m.wait.Shared {
		m.Outputs, m.wait.Outputs, m.wait.Shared = nil, nil, false
	}
	m.query, m.model, m.arm, m.Inputs, m.Context, m.Parameters, m.Call, m.Stream = nil, nil, nil, nil, nil, nil, nil, nil
	if m != &q.first {
		q.request.path.members.Put(m)
	}
}
