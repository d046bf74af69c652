package query

import (
	"math"
	"math/rand/v2"
	"sync/atomic"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/cache"
	"github.com/xebec-serving/xebec/gateway/selection"
	"github.com/xebec-serving/xebec/scheduler"
	"github.com/xebec-serving/xebec/scheduler/driver"
)

// item is one query of a call: it asks its members, and is settled when the last of them has ended, which its deadline sees to.
type item struct {
	call   *call
	id     uint64
	inputs []api.Value

	teed    bool      // a member is one that a rule compares
	solo    member    // the first one to be asked: most queries ask no other
	members []*member // in the order of candidates, then shadows; not changed once they have been submitted
	more    []*member // those that were asked when the first answers were in
	next    int       // the first of members that dispatch has not looked at
	waiting atomic.Int32

	cold bool // nobody who could be asked has a replica: it may wait for the first one

	// What became of it.
	code       api.Code
	outputs    []api.Value
	confidence float64 // NaN: nobody says anything
	// asked, arrived and dropped are candidates: dropped ones would have been asked, but the plan had no room for them. agreed are those
	// whose own prediction is the answer.
	asked, arrived, dropped, agreed selection.Set
	keys                            [2]cache.Key // of salt and inputs: without and with the context
	keyed                           [2]bool      // which of them are known
	wish                            int          // whom a policy that asks one would have asked without limits
	scratch                         *scratch     // for policies that select; kept with the item
}

// member is one model that is asked for one query, or the prediction of it that was in the cache.
type member struct {
	scheduler.Item
	item      *item
	model     *Model
	candidate int
	shadow    bool // its answer is compared, not given
	evaluated bool // it goes, or went, to its lane
	// contextual models see contexts: predictions for one are not for another.
	contextual bool
	early      bool // no worker had said whether the prediction may be kept
	code       api.Code
	arm        *Arm // whose record it goes to; may be nil

	// Where the model has a cache: wait is its place there. As a leader it evaluates what others may be waiting for.
	wait    cache.Waiter
	leads   bool
	retried bool
	one     [1]*scheduler.Item
	alarm   driver.Alarm
	alarmed atomic.Uint32
}

func (m *member) init() { m.Item.Owner, m.alarm.Owner = m, m }

// The states of member.alarmed. A member that waits at the cache holds two references to its call: one until the cache has called
// back, or was told not to; one until its alarm has rung, or was stopped in time.
const (
	alarmUnset uint32 = iota
	alarmSet
	alarmOver  // the cache has called back
	alarmAgain // it has, before the alarm was set, and the member is to be evaluated after all
)

// begin makes the item a query that asks nobody yet.
func (it *item) begin(id uint64) {
	it.id = id
	it.waiting.Store(1)
	it.members, it.more, it.next = it.members[:0], it.more[:0], 0
	it.asked, it.arrived, it.dropped, it.agreed = 0, 0, 0, 0
	it.code, it.outputs, it.confidence = api.OK, nil, math.NaN()
	it.keyed, it.cold, it.teed = [2]bool{}, true, false
}

// choose decides whom the query asks.
func (it *item) choose() {
	c := it.call
	fn := c.fn
	switch {
	case c.refused:
		it.code = api.Overloaded
	case c.model.Closed.Load() && (fn == nil || !fn.Selects) && !c.unlisted:
		it.code = api.NoReplica
	case fn == nil:
		it.asked = 1
		it.add(&it.members, c.model, c.queue, 0)
	case !fn.Selects:
		if c.model.down() && fn.hurried() {
			c.model.wake()
			it.code = api.NoReplica
			return
		}
		it.asked = it.asked.With(c.candidate)
		it.add(&it.members, c.model, c.queue, c.candidate)
	default:
		it.chooseByPolicy(fn)
	}
	if it.code != api.OK {
		return
	}
	if fn != nil {
		it.addShadows(fn)
	}
	if len(c.direct) > 0 || fn != nil && len(fn.Tees) > 0 {
		it.tees()
	}
}

// chooseByPolicy asks the function's policy, within what the plan has room for.
func (it *item) chooseByPolicy(fn *Function) {
	c := it.call
	allowed, ready := c.allowed()
	it.cold = !ready
	if allowed == 0 {
		it.code = api.NoReplica
		return
	}
	s, refusing := it.scratchpad(), false
	q := &s.query
	*q = selection.Query{Seed: rand.Uint64(), MinConfidence: c.minConfidence}
	if fn.Choice != nil && c.learning == nil {
		if fn.Mode == selection.Several {
			planned := selection.Set(fn.Choice.Members())
			if planned == 0 || allowed&planned != 0 { // else it counts on those that have lost their replicas since
				it.dropped = allowed &^ planned
				allowed &= planned
			}
		} else {
			refusing = fn.Choice.Refusing()
			q.Limits = fn.Choice.Limits(s.limits[:len(fn.Candidates)])
		}
	}
	q.Allowed = allowed
	if c.learning != nil && fn.Mode == selection.Several {
		s.selection.Ask = allowed
	} else if allowed != 0 {
		it.wish = s.choose(fn, c.context)
	} else {
		s.selection.Ask = 0
	}
	if refusing {
		s.selection.Ask = 0
		fn.Choice.Wish(it.wish)
	}
	it.asked = s.selection.Ask
	it.takeDropped(fn)
	if it.dropped != 0 {
		fn.Learning.Dropped.Add(uint64(it.dropped.Len()))
	}
	if it.asked == 0 {
		it.code = api.Overloaded
		if fn.Choice != nil {
			fn.Choice.Refuse(1)
		}
		return
	}
	for rest := it.asked; rest != 0; rest &= rest - 1 {
		i := rest.First()
		model, queue := c.target(i)
		it.add(&it.members, model, queue, i)
	}
}

// choose has the policy choose. It returns whom a policy that asks one would have asked if there were no limits: that is what the
// next plan is to know.
func (s *scratch) choose(fn *Function, context []byte) (wish int) {
	limits := s.query.Limits
	s.query.Limits = nil
	fn.Selector.Select(context, &s.query, &s.selection)
	wish = min(s.selection.Ask.First(), len(fn.Candidates)-1)
	if s.query.Limits = limits; limits != nil {
		fn.Selector.Select(context, &s.query, &s.selection)
	}
	return wish
}

// takeDropped asks those for which the plan has no room all the same, where their predictions are in the cache and cost nothing.
func (it *item) takeDropped(fn *Function) {
	for rest := it.dropped; rest != 0; rest &= rest - 1 {
		i := rest.First()
		m, _ := it.call.target(i)
		contextual := m.Contextual.Load()
		if handle := m.cached(); handle != nil && handle.Fetch(it.keyOf(contextual), it.saltFor(contextual), it.inputs, &it.scratch.peek) {
			it.asked = it.asked.With(i)
			it.dropped = it.dropped.Without(i)
			it.scratch.selection.P[i] = 1
		}
	}
}

// add makes the query ask one more model.
func (it *item) add(to *[]*member, model *Model, queue int32, candidate int) *member {
	c := it.call
	m := &it.solo
	if len(it.members)+len(it.more) > 0 {
		m = c.g.members.Get().(*member)
	}
	wait, keep := c.slo, c.ttl
	if model.Ready.Load() == 0 {
		if it.cold {
			cold := model.ColdStart
			switch {
			case c.fn != nil:
				cold = c.fn.coldStart(model)
			case model.Down.Load():
				cold = 0
			}
			wait = max(wait, api.Nanos(cold))
		}
		if model.CacheOn.Load() { // for those who ask the same later, although this caller has his default
			keep = max(keep, api.Nanos(DefaultColdStart))
		}
	}
	m.item, m.model, m.candidate, m.shadow, m.arm = it, model, candidate, false, nil
	if c.rules.ruled != 0 || c.arm != nil {
		m.arm = c.armOf(candidate)
	}
	m.code, m.leads, m.early, m.retried, m.evaluated, m.contextual = api.OK, false, false, false, false, model.Contextual.Load()
	m.alarmed.Store(alarmUnset)
	m.ID, m.Function, m.Inputs, m.Context = it.id, queue, it.inputs, c.context
	m.Arrived, m.Deadline = c.arrived, c.arrived+wait
	m.Expires = max(m.Deadline, c.arrived+keep)
	*to = append(*to, m)
	it.waiting.Add(1)
	return m
}

// addShadows sends a sample of the queries to models that are only compared.
func (it *item) addShadows(fn *Function) {
	for i := range fn.Shadows {
		sh := &fn.Shadows[i]
		if it.call.learning != nil || rand.Float64() >= sh.Part || !sh.Candidate.Model.awake() {
			continue
		}
		if sh.Choice != nil {
			sh.Choice.Arrived(1)
			if sh.Choice.Members()&1 == 0 {
				fn.Learning.ShadowsDropped.Add(1)
				continue
			}
		}
		it.add(&it.members, sh.Candidate.Model, sh.Candidate.Queue, len(fn.Candidates)+i).shadow = true
		it.waiting.Add(-1) // nobody waits for it
	}
}

// needsLane looks in the members' caches; true: the scheduler is needed all the same, or would be if it had room.
func (it *item) needsLane() bool {
	needed := it.dropped != 0
	for _, m := range it.members {
		m.lookUp()
		needed = needed || m.evaluated
	}
	return needed
}

// saltFor is what distinguishes equal inputs: what the caller says, and for models that see it the context.
func (it *item) saltFor(contextual bool) []byte {
	if contextual {
		return it.call.contextSalt
	}
	return it.call.salt
}

// keyOf is where the caches look for the query.
func (it *item) keyOf(contextual bool) cache.Key {
	i := 0
	if contextual {
		i = 1
	}
	if !it.keyed[i] {
		it.keys[i], it.keyed[i] = it.call.g.cfg.Cache.Key(it.saltFor(contextual), it.inputs), true
	}
	return it.keys[i]
}

// lookUp asks the model's cache. What is neither there nor being evaluated goes to the lane.
func (m *member) lookUp() {
	handle := m.model.cached()
	if handle == nil || m.item.call.unlisted {
		m.evaluated = true
		m.early = handle == nil && !m.item.call.unlisted && !m.model.Told.Load()
		return
	}
	m.item.call.refs.Add(1)
	if !m.request(handle) {
		m.evaluated = true
		m.item.call.refs.Add(-1) // never the last one
	}
}

// request asks the cache with a reference to the call that is let go of when the answer is there. False: the member must be
// evaluated, and the reference is still the caller's, who has another one.
func (m *member) request(handle *cache.Model) bool {
	m.wait.Owner, m.wait.Outputs, m.wait.Until = m, m.Outputs, m.Deadline
	c := m.item.call
	switch handle.Request(m.item.keyOf(m.contextual), m.item.saltFor(m.contextual), m.item.inputs, &m.wait) {
	case cache.Hit:
		m.took()
		m.end(api.OK)
		c.unref()
		return true
	case cache.Wait:
		c.refs.Add(1) // the alarm's
		c.g.cfg.Timers.Set(&m.alarm, m.Deadline)
		if m.alarmed.CompareAndSwap(alarmUnset, alarmSet) {
			return true
		}
		stopped := c.g.cfg.Timers.Stop(&m.alarm)
		if stopped {
			c.unref()
		}
		if m.alarmed.Load() == alarmOver {
			return true
		}
		if !stopped { // its time is up, and the lane will say so
			return false
		}
		m.alarmed.Store(alarmUnset)
		return m.request(handle)
	case cache.Lead:
		m.leads = true
	}
	return false
}

// took makes what the cache has copied the member's outputs.
func (m *member) took() { m.SetResult(m.wait.Outputs, m.wait.Confidence) }

// Filled is called by the cache: somebody else's evaluation has come.
func (m *member) Filled(*cache.Waiter) {
	m.took()
	m.waited(api.OK)
}

// Failed is called by the cache: somebody else's evaluation has failed. Where that was for want of time, which this query may
// have more of, or because that caller has left, it asks for itself; for want of time only once.
func (m *member) Failed(_ *cache.Waiter, code api.Code) {
	c := m.item.call
	c.refs.Add(1)
	defer c.unref()
	if again := code == api.Overloaded || code == api.DeadlineExceeded || code == api.Cancelled; !again || m.retried {
		m.waited(code)
		return
	}
	m.retried = code != api.Cancelled
	if m.alarmed.CompareAndSwap(alarmUnset, alarmAgain) {
		return // request sees it
	}
	m.alarmed.Store(alarmOver)
	if !c.g.cfg.Timers.Stop(&m.alarm) { // it rings, or has
		m.end(api.DeadlineExceeded)
		c.unref()
		return
	}
	c.unref() // the alarm's
	m.alarmed.Store(alarmUnset)
	if handle := m.model.cached(); handle != nil && m.request(handle) {
		return
	}
	if m.model.Closed.Load() { // it is being unloaded meanwhile
		m.end(api.NoReplica)
		c.unref()
		return
	}
	m.submit() // with the reference that it has
}

// waited ends a member that waited for somebody else's evaluation.
func (m *member) waited(code api.Code) {
	c := m.item.call
	if m.alarmed.Swap(alarmOver) == alarmSet && c.g.cfg.Timers.Stop(&m.alarm) {
		c.unref() // never the last one
	}
	m.end(code)
	c.unref()
}

// Ring is the deadline of a member that waits for somebody else's evaluation.
func (m *member) Ring(*driver.Alarm) {
	c := m.item.call
	if m.wait.Cancel() {
		m.end(api.DeadlineExceeded)
		c.unref()
	}
	c.unref()
}

// Answered is called by the lane. Whoever waits for the same has his answer now, too: the release may be a while off, where a
// replica that is late still has the query.
func (m *member) Answered(_ *scheduler.Item, code api.Code) {
	m.end(code)
	if m.leads && code == api.OK {
		m.fill()
	}
}

// Released is called by the lane: the outputs are not touched any more, and whoever waits for the same gets them, also when
// they are too late for this query.
func (m *member) Released(_ *scheduler.Item, final api.Code) {
	switch {
	case m.early && final == api.OK:
		m.keep()
	case !m.leads:
	case final == api.OK:
		m.fill()
	default:
		m.leads = false
		m.wait.Fail(final)
	}
	if m.shadow {
		m.code = final
	}
	m.item.call.unref()
}

// fill gives what the model said to the cache, and to whoever waits for it.
func (m *member) fill() {
	m.leads = false
	r := m.Result()
	m.wait.Fill(r.Outputs, r.Confidence)
}

// keep gives the cache what the first worker of a version has said, when that may be kept: a model that sleeps is asked before
// anybody knows.
func (m *member) keep() {
	handle := m.model.cached()
	if handle == nil {
		return
	}
	salt := m.item.saltFor(m.model.Contextual.Load())
	r := m.Result()
	handle.Keep(handle.Key(salt, m.item.inputs), salt, m.item.inputs, r.Outputs, r.Confidence)
}

// end is how a member ended for its query.
func (m *member) end(code api.Code) {
	m.code = code
	if m.arm != nil {
		m.arm.observe(code, m.evaluated, m.item.call.g.cfg.Now()-m.item.call.arrived)
	}
	if code == api.OK && m.model.Drift.Load() != nil {
		m.watchDrift()
	}
	if !m.shadow {
		m.item.ended()
	}
}

// ended counts one thing less to wait for; the last one settles the query.
func (it *item) ended() {
	if it.waiting.Add(-1) == 0 {
		it.settle()
	}
}

// submit hands a single member to its lane, with a reference to the call that the caller has taken.
func (m *member) submit() {
	model := m.model // the member may be released at once
	m.one[0] = &m.Item
	model.Lane.SubmitAll(m.one[:])
	model.miss()
}

// settle makes the answer of what has come, or asks for more.
func (it *item) settle() {
	c := it.call
	switch fn := c.fn; {
	case len(it.members) == 0: // nobody could be asked, and the code says why
	case c.learning != nil:
	case fn != nil && fn.Selects:
		if it.combine(fn) {
			return
		}
	default:
		m := it.members[0]
		if it.code = m.code; m.code == api.OK { // else the outputs may be being written
			it.outputs, it.confidence = m.Result().Outputs, m.Result().Confidence
			it.arrived, it.agreed = it.asked, it.asked
		}
	}
	if it.code == api.OK && it.confidence < c.minConfidence {
		it.code = api.LowConfidence
	}
	if c.fn != nil && c.learning == nil {
		c.g.joins.put(it)
	}
	c.answered()
}

// compareShadows counts how often shadows say the same.
func (it *item) compareShadows(fn *Function) {
	for _, m := range it.members {
		switch {
		case !m.shadow || m.candidate >= len(fn.Candidates)+len(fn.Shadows):
		case m.code != api.OK:
			fn.Learning.ShadowsFailed.Add(1)
		case it.arrived == 0: // there is nothing to compare with
		case fn.Averages.same(it.outputs, m.Result().Outputs):
			fn.Learning.ShadowsSame.Add(1)
		default:
			fn.Learning.ShadowsOther.Add(1)
		}
	}
}

// drop gives back what the query held.
func (it *item) drop() {
	if fn := it.call.fn; fn != nil && len(fn.Shadows) > 0 && it.call.asked.Load() {
		it.compareShadows(fn)
	}
	if it.teed && it.call.asked.Load() {
		it.compareTees()
	}
	for i, m := range it.members {
		m.drop(it)
		it.members[i] = nil
	}
	for i, m := range it.more {
		m.drop(it)
		it.more[i] = nil
	}
	it.members, it.more, it.outputs, it.call = it.members[:0], it.more[:0], nil, nil
	if it.scratch != nil {
		clear(it.scratch.all)
	}
}

func (m *member) drop(it *item) {
	g := it.call.g
	m.item, m.model, m.arm, m.Inputs, m.Context = nil, nil, nil, nil, nil
	if m != &it.solo {
		g.members.Put(m)
	}
}
