package query

import (
	"math"
	"math/rand/v2"
	"sync/atomic"

	"github.com/zeebo/xxh3"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/internal/obs"
	"github.com/xebec-serving/xebec/gateway/selection"
)

// Route is a model's traffic rule as one candidate of a function, or a request that addresses the model, sees it: some of what would go
// to the serving version goes to another one. Immutable once published.
type Route struct {
	Rule  *Rule
	Model *Model
	Queue int32
}

// Rule divides live answers between the serving version of a model and another one: by a fixed part, the same for all queries of a
// context, or as a policy learns. It outlives the tables that it is in.
type Rule struct {
	// Serving and Other count what the two have answered.
	Serving, Other Arm
	// Selector, if there is one, learns which of the two, 0 or 1, to ask; it gets the part at most. It knows no contexts.
	Selector Selector

	part atomic.Uint64 // bits: of the queries, for Other
	seed uint64        // of contexts' numbers
}

// NewRule makes a rule that gives nothing to the other version yet. Rules with the same name send the same contexts there, whichever
// gateway has them.
func NewRule(name string, s Selector) *Rule { return &Rule{Selector: s, seed: xxh3.HashString(name)} }

// SetPart says which part of the queries, from 0 to 1, goes to the other version. With a Selector it is the limit of its wish for it,
// from 0 to 1.
func (r *Rule) SetPart(part float64) { r.part.Store(math.Float64bits(part)) }

// Part is what SetPart has set.
func (r *Rule) Part() float64 { return math.Float64frombits(r.part.Load()) }

// Arm is what one version of a rule has answered.
type Arm struct {
	Queries, Failed atomic.Uint64
	// Latency is of the queries that it evaluated.
	Latency obs.Latency
	// Losses is what feedback has said, Squares the sum of their squares.
	Losses  obs.Loss
	Squares obs.Sum
}

// Tee is the other kind of rule: a sample of a candidate's queries is also asked of another version, whose answers are compared with the
// candidate's and given to nobody.
type Tee struct {
	Candidate
	Of   int // the candidate
	Part float64
	Seen *Seen
}

// Seen counts what comparing has shown. It outlives the tables that it is in.
type Seen struct {
	Same, Different, Failed atomic.Uint64
	// Serving and Other are the two versions.
	Serving, Other Arm
}

// rules is what a call's rules have decided: for all queries of one call the same, so that they may share a batch.
type rules struct {
	ruled, other selection.Set // candidates with a rule; those that go to the other version
	p            [selection.MaxCandidates]float64
	limits       [2]float64
	query        selection.Query
	selection    selection.Selection
}

// route decides, for each candidate with a rule, which of the two versions the call's queries ask.
func (c *call) route() {
	fn := c.fn
	if fn.ruled == 0 {
		return
	}
	c.rules.ruled = fn.ruled
	for rest := fn.ruled; rest != 0; rest &= rest - 1 {
		i := rest.First()
		other, p := c.decide(fn.Candidates[i].Model, fn.Candidates[i].Route)
		if c.forced.Has(i) { // the request names the version
			other, p = c.forcedOther.Has(i), 1
		}
		c.rules.p[i] = p
		if other {
			c.rules.other = c.rules.other.With(i)
		}
	}
	if !fn.Selects {
		c.model, c.queue = c.target(c.candidate)
	}
}

// decide reports whether the other version is asked, and how likely that was. Where only one of the two has a replica it is that one.
func (c *call) decide(serving *Model, r *Route) (other bool, p float64) {
	theirs, ours := r.Model.awake(), serving.awake()
	if !theirs {
		return false, 1
	}
	if !ours {
		return true, 1
	}
	rule := r.Rule
	part := rule.Part()
	switch {
	case rule.Selector != nil:
		q, s := &c.rules.query, &c.rules.selection
		c.rules.limits = [2]float64{1, part}
		*q = selection.Query{Seed: rand.Uint64(), Allowed: selection.All(2), Limits: c.rules.limits[:]}
		rule.Selector.Select(nil, q, s)
		if s.Ask == 0 {
			return false, 1
		}
		return s.Ask.Has(1), s.P[s.Ask.First()]
	case len(c.context) > 0:
		other = float64(xxh3.HashSeed(c.context, rule.seed)>>11)/(1<<53) < part
	default:
		other = rand.Float64() < part
	}
	if other {
		return true, part
	}
	return false, 1 - part
}

// target is the version that the call asks as the candidate.
func (c *call) target(candidate int) (*Model, int32) {
	of := &c.fn.Candidates[candidate]
	if c.rules.other.Has(candidate) {
		return of.Route.Model, of.Route.Queue
	}
	return of.Model, of.Queue
}

// armOf is whose record a candidate's answers go to; nil: nobody's.
func (c *call) armOf(candidate int) *Arm {
	if c.fn == nil {
		return c.arm
	}
	if !c.rules.ruled.Has(candidate) || c.forced.Has(candidate) { // who names a version is no sample
		return nil
	}
	rule := c.fn.Candidates[candidate].Route.Rule
	if c.rules.other.Has(candidate) {
		return &rule.Other
	}
	return &rule.Serving
}

// observe counts an answer of a version that a rule has to do with.
func (a *Arm) observe(code api.Code, evaluated bool, took api.Nanos) {
	switch code {
	case api.Cancelled: // the caller's wish says nothing of the version
		return
	case api.OK:
	default:
		a.Failed.Add(1)
	}
	a.Queries.Add(1)
	if evaluated {
		a.Latency.Observe(int64(took))
	}
}

// learn tells a rule what feedback has said of one of its two versions.
func (r *Rule) learn(other bool, p, loss float64) {
	arm, i := &r.Serving, 0
	if other {
		arm, i = &r.Other, 1
	}
	arm.Losses.Observe(loss)
	arm.Squares.Add(loss * loss)
	if r.Selector == nil {
		return
	}
	f := feedbacks.Get().(*feedback)
	f.p[i], f.losses[i], f.losses[1-i] = p, loss, math.NaN()
	f.Feedback = selection.Feedback{Selected: selection.Set(0).With(i), P: f.p[:2], Losses: f.losses[:2]}
	r.Selector.Observe(nil, &f.Feedback)
	feedbacks.Put(f)
}

// tees adds the versions that are asked beside the candidates of the query, and compared.
func (it *item) tees() {
	c := it.call
	if c.learning != nil {
		return
	}
	list, width := c.direct, 1
	if c.fn != nil {
		list, width = c.fn.Tees, len(c.fn.Candidates)+len(c.fn.Shadows)
	}
	for i := range list {
		t := &list[i]
		if !it.asked.Has(t.Of) || c.fn != nil && c.rules.other.Has(t.Of) || rand.Float64() >= t.Part || !t.Model.awake() {
			continue
		}
		m := it.add(&it.members, t.Model, t.Queue, width+i)
		m.shadow, m.arm = true, &t.Seen.Other
		it.waiting.Add(-1) // nobody waits for it
		it.teed = true
		if of := it.of(t.Of); of.arm == nil {
			of.arm = &t.Seen.Serving
		}
	}
}

// compareTees counts how often they say the same as the version that they are compared with.
func (it *item) compareTees() {
	c := it.call
	list, width := c.direct, 1
	var averages *Averages
	if c.fn != nil {
		list, width, averages = c.fn.Tees, len(c.fn.Candidates)+len(c.fn.Shadows), c.fn.Averages
	}
	for _, m := range it.members {
		if !m.shadow || m.candidate < width {
			continue
		}
		t := &list[m.candidate-width]
		of := it.of(t.Of)
		switch {
		case of == nil || of.code != api.OK: // there is nothing to compare with
		case m.code != api.OK:
			t.Seen.Failed.Add(1)
		case averages.same(of.Result().Outputs, m.Result().Outputs):
			t.Seen.Same.Add(1)
		default:
			t.Seen.Different.Add(1)
		}
	}
}
