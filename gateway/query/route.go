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

// Route is a model's traffic rule as applied to one candidate of a function, or to requests that address the model: part
// of the queries for the serving version go to another version. It is immutable once published.
type Route struct {
	Rule  *Rule
	Model *Model
	Queue int32
}

// Rule divides queries between the serving version of a model and another one: by a fixed part, the same for all queries
// of a context, or by a policy that learns. A Rule is kept when tables are replaced.
type Rule struct {
	// Serving and Other count the answers of the two versions.
	Serving, Other Arm
	// Selector, if not nil, learns which of the two versions, 0 or 1, to ask, within the part. It sees no contexts.
	Selector Selector

	part atomic.Uint64 // bits of a float64: the part of the queries that goes to Other
	seed uint64        // of the hash of contexts
}

// NewRule makes a rule with part 0. Rules of the same name send the same contexts to the other version, on every gateway.
func NewRule(name string, s Selector) *Rule { return &Rule{Selector: s, seed: xxh3.HashString(name)} }

// SetPart sets the part of the queries, from 0 to 1, that goes to the other version. With a Selector it is the upper
// limit for that version.
func (r *Rule) SetPart(part float64) { r.part.Store(math.Float64bits(part)) }

// Part returns the value set by SetPart.
func (r *Rule) Part() float64 { return math.Float64frombits(r.part.Load()) }

// Arm counts the answers of one version of a rule.
type Arm struct {
	Queries, Failed atomic.Uint64
	// Latency is that of the queries that it evaluated.
	Latency obs.Latency
	// Losses is the sum of the losses from feedback, Squares the sum of their squares.
	Losses  obs.Loss
	Squares obs.Sum
}

// Tee is the other kind of rule: another version also gets a sample of a candidate's queries. Its answers are compared
// with the candidate's and never returned.
type Tee struct {
	Candidate
	Of       int // the candidate
	Part     float64
	Compared *Comparison
}

// Comparison counts the comparisons of a Tee. It is kept when tables are replaced.
type Comparison struct {
	Same, Different, Failed atomic.Uint64
	// Serving and Other are the two versions.
	Serving, Other Arm
}

// rules is what a request's rules have decided. It is the same for all of its queries, so that they can share a batch.
type rules struct {
	ruled, other selection.Set // candidates with a rule; those of them that go to the other version
	p            [selection.MaxCandidates]float64
	limits       [2]float64
	query        selection.Query
	selection    selection.Selection
}

// route decides, for each candidate with a rule, which of the two versions the request's queries ask.
func (r *Request) route() {
	fn := r.fn
	if fn.ruled == 0 && r.outside == 0 {
		return
	}
	r.rules.ruled = fn.ruled &^ r.outside
	for rest := r.rules.ruled; rest != 0; rest &= rest - 1 {
		i := rest.First()
		other, p := r.decide(fn.Candidates[i].Model, fn.Candidates[i].Route)
		if r.forced.Has(i) { // the request names the version
			other, p = r.forcedOther.Has(i), 1
		}
		r.rules.p[i] = p
		if other {
			r.rules.other = r.rules.other.With(i)
		}
	}
	if !fn.Selects {
		r.model, r.queue = r.target(r.candidate)
	}
}

// routeModel applies the rules of a model that is addressed by name, and returns the version to ask.
func (r *Request) routeModel(t *Table, serving *Model) *Model {
	r.direct = t.Tees[serving.ID.Name]
	if route := t.Routes[serving.ID.Name]; route != nil {
		r.arm = &route.Rule.Serving
		if other, _ := r.decide(serving, route); other {
			r.arm, r.direct = &route.Rule.Other, nil
			return route.Model
		}
	}
	return serving
}

// decide reports whether the other version is asked, and with which probability that was decided. If only one of the two
// versions has a replica it is asked.
func (r *Request) decide(serving *Model, route *Route) (other bool, p float64) {
	otherServes, servingServes := route.Model.servesOrWakes(), serving.servesOrWakes()
	if !otherServes {
		return false, 1
	}
	if !servingServes {
		return true, 1
	}
	rule := route.Rule
	part := rule.Part()
	switch {
	case rule.Selector != nil:
		q, s := &r.rules.query, &r.rules.selection
		r.rules.limits = [2]float64{1, part}
		*q = selection.Query{Seed: rand.Uint64(), Allowed: selection.All(2), Limits: r.rules.limits[:]}
		rule.Selector.Select(nil, q, s)
		if s.Ask == 0 {
			return false, 1
		}
		return s.Ask.Has(1), s.P[s.Ask.First()]
	case len(r.context) > 0:
		other = float64(xxh3.HashSeed(r.context, rule.seed)>>11)/(1<<53) < part
	default:
		other = rand.Float64() < part
	}
	if other {
		return true, part
	}
	return false, 1 - part
}

// target returns the version that the request asks as the candidate, and its sub-queue.
func (r *Request) target(candidate int) (*Model, int32) {
	c := &r.fn.Candidates[candidate]
	if r.outside.Has(candidate) {
		m := outsideOf(r.versions, candidate)
		return m, m.Direct
	}
	if r.rules.other.Has(candidate) {
		return c.Route.Model, c.Route.Queue
	}
	return c.Model, c.Queue
}

// armOf returns the Arm that counts a candidate's answers, or nil if no rule does.
func (r *Request) armOf(candidate int) *Arm {
	if r.fn == nil {
		return r.arm
	}
	if !r.rules.ruled.Has(candidate) || r.forced.Has(candidate) { // a request that names a version is not a sample
		return nil
	}
	rule := r.fn.Candidates[candidate].Route.Rule
	if r.rules.other.Has(candidate) {
		return &rule.Other
	}
	return &rule.Serving
}

// observe counts an answer of a version that has a rule.
func (a *Arm) observe(code api.Code, evaluated bool, took api.Nanos) {
	switch code {
	case api.Cancelled: // that the caller left says nothing about the version
		return
	case api.InvalidInput: // nor does a wrong input, but it was evaluated in time
	case api.OK:
	default:
		a.Failed.Add(1)
	}
	a.Queries.Add(1)
	if evaluated {
		a.Latency.Observe(int64(took))
	}
}

// learn passes feedback on one of the rule's two versions, which was asked with probability p, to the rule.
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
	f := observations.Get().(*observation)
	f.p[i], f.losses[i], f.losses[1-i] = p, loss, math.NaN()
	f.Feedback = selection.Feedback{Selected: selection.Set(0).With(i), P: f.p[:2], Losses: f.losses[:2]}
	r.Selector.Observe(nil, &f.Feedback)
	observations.Put(f)
}

// addTees makes the query ask the versions that are compared with its candidates. The query does not wait for them.
func (q *Query) addTees() {
	r := q.request
	list, width := r.tees()
	for i := range list {
		t := &list[i]
		if !q.asked.Has(t.Of) || r.fn != nil && (r.rules.other|r.outside).Has(t.Of) || rand.Float64() >= t.Part || !t.Model.servesOrWakes() {
			continue
		}
		m := q.ask(&q.members, t.Model, t.Queue, width+i)
		m.shadow, m.arm = true, &t.Compared.Other
		q.waits--
		q.teed = true
		if of := q.member(t.Of); of.arm == nil {
			of.arm = &t.Compared.Serving
		}
	}
}

// tees returns those of the request. Their members are numbered from width on, after candidates and shadows.
func (r *Request) tees() (list []Tee, width int) {
	if r.fn == nil {
		return r.direct, 1
	}
	return r.fn.Tees, len(r.fn.Candidates) + len(r.fn.Shadows)
}

// compareTees counts how often a tee gives the same answer as the version that it is compared with.
func (q *Query) compareTees() {
	r := q.request
	list, width := r.tees()
	same := sameOutputs
	if r.fn != nil {
		same = r.fn.same
	}
	for _, m := range q.members {
		if !m.shadow || m.candidate < width {
			continue
		}
		t := &list[m.candidate-width]
		of := q.member(t.Of)
		switch {
		case of == nil || of.code != api.OK: // there is nothing to compare with
		case m.code != api.OK:
			t.Compared.Failed.Add(1)
		case same(of.Result().Outputs, m.Result().Outputs):
			t.Compared.Same.Add(1)
		default:
			t.Compared.Different.Add(1)
		}
	}
}
