package sim

import (
	"math"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/scheduler"
	"github.com/xebec-serving/xebec/scheduler/planner"
)

// golden turns a counter into a sequence that fills the interval from 0 to 1 evenly at any length.
const golden = 0.6180339887498949

// call handles a request as the gateway does: it asks the models that the plan selects, or refuses.
func (w *world) call(f *function, client int) {
	c := &call{id: uint64(len(w.calls)), function: f, at: w.now, deadline: w.now + api.Nanos(f.spec.SLONanos), client: client, missingGain: 1}
	if f.spec.SLONanos == 0 {
		c.deadline = w.now + 30e9
	}
	if f.spec.LateBy > 0 && w.rng.IntN(50) == 0 {
		c.deadline = w.now - api.Nanos(w.rng.Int64N(f.spec.LateBy))
	}
	w.calls = append(w.calls, c)
	f.stats.offered(w, c)

	point := math.Mod(float64(f.counter)*golden, 1)
	f.counter++
	switch {
	case f.spec.Mode == planner.Shares:
		if i := f.selectByShares(point); i >= 0 {
			w.ask(c, i)
		}
	case f.parts == nil && f.spec.Mode == planner.One:
		w.ask(c, f.favourite())
	case f.parts == nil:
		for i := range f.spec.Candidates {
			w.ask(c, i)
		}
	default:
		plan := planner.FunctionPlan{Evaluate: f.parts}
		f.picked = plan.Pick(point, f.picked[:0])
		for _, i := range f.picked {
			w.ask(c, int(i))
		}
	}
	if c.asked == 0 {
		f.refused++
		c.overload++
		if s := w.models[f.spec.Candidates[f.favourite()].Model].scaling; s != nil {
			s.noteRefusal(w.now)
		}
		w.finish(c)
		return
	}
	w.allowForStart(c)
	for _, q := range c.queries {
		w.step(q.model, &Input{Kind: Arrive, Item: &q.Item})
		w.wakeScaler(q.model)
	}
	if w.spec.CancelPart > 0 && w.rng.Float64() < w.spec.CancelPart {
		w.events.push(event{at: w.now + api.Nanos(w.rng.Int64N(max(1, f.spec.SLONanos))), kind: callerLeaves, b: c.id})
	}
}

// favourite is the candidate with the largest gain.
func (f *function) favourite() int {
	best := 0
	for i, c := range f.spec.Candidates {
		if c.Gain > f.spec.Candidates[best].Gain {
			best = i
		}
	}
	return best
}

// selectByShares is a policy with mode Shares: it draws a candidate by its shares, and if the plan's limits withhold
// that, one of the unlimited candidates. It returns -1 to refuse the query, whose place in the sequence is point.
func (f *function) selectByShares(point float64) int {
	wish, chance, other := f.draw(nil), f.rng.Float64(), f.draw(f.limits) // the same number of draws for each query, whatever the plan
	f.wished[wish]++
	switch {
	case f.refuse > 0 && point >= 1-f.refuse:
		return -1
	case f.limits != nil && chance >= f.limits[wish] && other >= 0:
		return other
	}
	return wish
}

// draw draws a candidate by the shares, among those with limit 1 if there are limits; -1: there is none.
func (f *function) draw(limits []float64) int {
	u, sum, last := f.rng.Float64(), 0.0, -1
	weigh := func(i int) float64 {
		if limits != nil && limits[i] < 1 {
			return 0
		}
		return f.share(i)
	}
	for i := range f.spec.Candidates {
		sum += weigh(i)
	}
	for i := range f.spec.Candidates {
		if w := weigh(i); w > 0 {
			last = i
			if u -= w / sum; u < 0 {
				break
			}
		}
	}
	return last
}

// share is how often the policy would ask candidate i: as specified, or equally often if nothing is.
func (f *function) share(i int) float64 {
	for _, c := range f.spec.Candidates {
		if c.Share > 0 {
			return f.spec.Candidates[i].Share
		}
	}
	return 1
}

// ask prepares a query to one of the function's candidates.
func (w *world) ask(c *call, candidate int) {
	f := c.function
	m := w.models[f.spec.Candidates[candidate].Model]
	q := &query{call: c, model: m, candidate: candidate, arrivedAt: w.now, waiting: true}
	q.Query = api.Query{
		ID: uint64(len(w.queries)), Function: f.queues[candidate], Arrived: w.now, Deadline: c.deadline,
		Expires: max(c.deadline, w.now+api.Nanos(f.spec.TTLNanos)),
	}
	if f.spec.Bytes > 0 {
		q.Context = zeroInput[:min(f.spec.Bytes, len(zeroInput))]
	}
	q.Owner = q
	w.queries = append(w.queries, q)
	w.open++
	c.queries = append(c.queries, q)
	c.asked++
	m.ledger.add(q)
}

// zeroInput is the input of every query: engines only count its bytes.
var zeroInput = make([]byte, 1<<20)

// end delivers an answer, takes an item back, or both.
func (w *world) end(m *model, e *scheduler.End) {
	q := w.checkEnd(m, e)
	if q == nil {
		return
	}
	if e.Kind != scheduler.ReleaseOnly {
		q.answered = true
		if e.Code != api.OK {
			w.leaveStream(q.flight) // its caller has gone
		}
		c := q.call
		c.answered++
		switch e.Code {
		case api.OK:
			c.ok++
			if w.now <= c.deadline {
				c.inTime++
				c.missingGain *= 1 - c.function.spec.Candidates[q.candidate].Gain
				c.function.stats.answered(w, c, q.candidate)
			}
		case api.Overloaded:
			c.overload++
		}
		if c.answered == c.asked {
			w.finish(c)
		}
	}
	if e.Kind != scheduler.AnswerOnly {
		q.released = true
		w.queries[q.ID] = nil
		w.open--
	}
}

// finish ends a call: all models that were asked have answered.
func (w *world) finish(c *call) {
	c.function.stats.finished(w, c)
	w.calls[c.id] = nil
	if c.client >= 0 {
		src := c.function.sources[c.client]
		pause := api.Nanos(src.rng.ExpFloat64() * float64(src.ThinkNanos))
		if c.ok == 0 && pause == 0 {
			pause = 1e5 // a refused client does not return in the same instant, or the loop would not end
		}
		w.events.push(event{at: w.now + max(pause, 1), kind: clientSends, a: c.function.index, b: uint64(c.client)})
	}
}
