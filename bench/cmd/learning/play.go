package main

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/selection"
)

// stream is queries in an order: what each model says of each of them, and what is right. It is everything that a policy depends on, so a
// policy can be measured without a gateway.
type stream struct {
	models  int
	answers []int32 // models numbers for each query
	labels  []int32
	users   []int32 // who asks; nil: everything is asked in one context
	phases  []int   // the queries at which something changes
	// reported and forAll are the answers of the model of each user's reported group, and of the model for all users.
	reported, forAll []int32
	// inputs returns a query's inputs, for policies that route by them. specs describes them; nil: the stream has none.
	specs  []api.TensorSpec
	inputs func(query int) []api.Value
}

func (s *stream) queries() int { return len(s.labels) }

// says returns the models' answers to a query.
func (s *stream) says(query int) []int32 { return s.answers[query*s.models : (query+1)*s.models] }

// wrong returns for each query whether the choice is wrong.
func (s *stream) wrong(choice func(query int) int32) []bool {
	wrong := make([]bool, s.queries())
	for q := range wrong {
		wrong[q] = choice(q) != s.labels[q]
	}
	return wrong
}

// best returns the errors of the model with the fewest: of each user's, if there are users.
func (s *stream) best() []bool {
	errors := map[int32][]int{}
	user := func(q int) int32 {
		if s.users == nil {
			return 0
		}
		return s.users[q]
	}
	for q := range s.queries() {
		if errors[user(q)] == nil {
			errors[user(q)] = make([]int, s.models)
		}
		for m, answer := range s.says(q) {
			if answer != s.labels[q] {
				errors[user(q)][m]++
			}
		}
	}
	best := map[int32]int{}
	for u, of := range errors {
		best[u] = slices.Index(of, slices.Min(of))
	}
	return s.wrong(func(q int) int32 { return s.says(q)[best[user(q)]] })
}

// player plays a stream to a policy as the gateway does: it selects, combines and, with feedback before the next query, observes. Without
// learns there is no feedback.
type player struct {
	policy  selection.Policy
	learns  bool
	fresh   bool // a context starts with nothing, not with what all contexts together have learned
	global  selection.State
	value   selection.Value // of a policy with knowledge of its own, which all contexts share
	needs   selection.Needs
	users   map[int32]selection.State
	seed    *rand.PCG
	answers []selection.Answer
	given   []selection.Prediction // of the answers, for policies that see them
	classes [selection.MaxCandidates]uint64
	losses  [selection.MaxCandidates]float64
	delta   []float64
	out     selection.Selection
}

// contender is a policy with its parameters.
type contender struct {
	Name   string         `json:"name"`
	Policy string         `json:"policy"`
	Params map[string]any `json:"params,omitempty"`
	// Silent means that the policy gets no feedback.
	Silent bool `json:"silent,omitempty"`
	// Fresh means that a user's state starts with nothing, as in the paper.
	Fresh bool `json:"fresh,omitempty"`
}

func (c *contender) player(models int, seed uint64) (*player, error) {
	names := make([]string, models)
	for i := range names {
		names[i] = fmt.Sprint("m", i)
	}
	policy, err := selection.New(c.Policy, c.Params, names)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.Name, err)
	}
	p := &player{policy: policy, learns: !c.Silent, fresh: c.Fresh, users: map[int32]selection.State{}, seed: rand.NewPCG(seed, 4)}
	p.value, p.needs = selection.NewValue(policy, models), selection.NeedsOf(policy)
	p.global = p.empty(models)
	p.delta = make([]float64, len(p.global.V))
	return p, nil
}

func (p *player) empty(models int) selection.State {
	s := selection.State{Slots: p.policy.Slots(), V: make([]float64, models*p.policy.Slots())}
	p.policy.Init(s)
	return s
}

// play returns for each query whether the policy's answer was wrong.
func (p *player) play(s *stream) []bool {
	wrong := make([]bool, s.queries())
	for q := range wrong {
		state := p.global
		if s.users != nil {
			state = p.context(s.users[q], s.models)
		}
		var inputs selection.Tensors
		if p.needs.Inputs {
			inputs = selection.Tensors{Specs: s.specs, Values: s.inputs(q)}
		}
		winner := p.answer(state, inputs, s.says(q))
		wrong[q] = winner < 0 || s.says(q)[winner] != s.labels[q]
		if p.learns {
			p.learn(s.says(q), s.labels[q], state, inputs, s.users != nil)
		}
	}
	return wrong
}

func (p *player) context(user int32, models int) selection.State {
	state, ok := p.users[user]
	if !ok {
		state = p.empty(models)
		if !p.fresh {
			p.policy.InitContext(p.global, state)
		}
		p.users[user] = state
	}
	return state
}

// answer asks the models that the policy selects, in one or two steps, and returns the one whose answer is given.
func (p *player) answer(state selection.State, inputs selection.Tensors, says []int32) int {
	all := selection.All(len(says))
	q := selection.Query{State: state, Value: p.value, Allowed: all, Seed: p.seed.Uint64(), Inputs: inputs}
	c := selection.Combination{State: state, Value: p.value, Inputs: inputs}
	p.answers = p.answers[:0]
	for p.policy.Select(&q, &p.out); p.out.Ask != 0; p.policy.Select(&q, &p.out) {
		for t := p.out.Ask; t != 0; t &= t - 1 {
			i := t.First()
			p.answers = append(p.answers, selection.Answer{Candidate: i, Class: uint64(says[i]), Confidence: math.NaN()})
		}
		q.Asked |= p.out.Ask
		q.Answered = q.Asked
		c.Selected, c.Answers = q.Asked, p.answers
		if p.needs.Predictions {
			p.predictions()
			c.Predictions, c.Judged = p.given, -1
		}
		p.policy.Combine(&c)
		q.Confidence, q.Seed = c.Confidence, p.seed.Uint64()
		if q.Allowed = all &^ q.Asked; q.Allowed == 0 || p.policy.Mode() == selection.One {
			break
		}
	}
	return c.Winner
}

// answerSpec describes what models answer.
var answerSpec = []api.TensorSpec{{Name: "label", DType: api.Int64}}

// labelled returns a class as an output.
func labelled(class int32) selection.Tensors {
	return selection.Tensors{Specs: answerSpec, Values: []api.Value{{Data: binary.LittleEndian.AppendUint64(nil, uint64(class))}}}
}

// predictions makes the answers what policies see that need predictions.
func (p *player) predictions() {
	p.given = p.given[:0]
	for _, a := range p.answers {
		p.given = append(p.given, selection.Prediction{Candidate: a.Candidate, Outputs: labelled(int32(a.Class)), Confidence: a.Confidence})
	}
}

// learn gives feedback on the query that was just answered: for the user's state, if there is one, and for the global state and the policy's value.
func (p *player) learn(says []int32, label int32, state selection.State, inputs selection.Tensors, byUser bool) {
	f := selection.Feedback{P: p.out.P[:len(says)], Losses: p.losses[:len(says)], Delta: p.delta, Inputs: inputs}
	for i := range p.losses {
		p.losses[i] = math.NaN()
	}
	for _, a := range p.answers {
		i := a.Candidate
		f.Selected = f.Selected.With(i)
		p.classes[i] = a.Class
		p.losses[i] = 1
		if says[i] == label {
			p.losses[i] = 0
		}
	}
	if p.needs.Labels {
		f.Predictions, f.Label, f.Judged = p.given, labelled(label), -1
	}
	f.Vote, f.VoteKnown = selection.PlainVote(f.Selected, &p.classes, &p.losses)
	if byUser {
		p.observe(&f, state)
	}
	f.Value = p.value
	p.observe(&f, p.global)
}

func (p *player) observe(f *selection.Feedback, state selection.State) {
	clear(p.delta)
	f.State = state
	p.policy.Observe(f)
	for i, d := range p.delta {
		state.V[i] += d
	}
}
