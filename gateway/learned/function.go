package learned

import (
	"math"

	"github.com/zeebo/xxh3"

	"github.com/xebec-serving/xebec/gateway/selection"
)

// Function is the state of one function, with its policy and candidates as declared. It is safe for concurrent use.
// When a new declaration replaces it, queries that started with it may still use it: they see the state from before,
// with the old order of candidates, and their feedback goes to the candidates that still exist.
type Function struct {
	states *states
	policy selection.Policy
	learns bool
	sticky uint64 // seed for the contexts' sticky numbers
}

func (t *Table) newFunction(name string, p selection.Policy, st *states) *Function {
	return &Function{states: st, policy: p, learns: p.Learns(), sticky: xxh3.HashString(name)}
}

// Policy returns the function's policy.
func (f *Function) Policy() selection.Policy { return f.policy }

// Candidates returns the refs of the candidates, in the order of their indices. The caller must not modify them.
func (f *Function) Candidates() []string { return f.states.layout.refs }

// hasState reports whether a context has a state of its own. A context longer than MaxContextBytes has none and is
// served from the global state.
func (f *Function) hasState(context []byte) bool {
	return f.learns && len(context) > 0 && len(context) <= MaxContextBytes
}

// view is a locked state.
type view struct {
	shard  *shard
	global *global
	value  *value // nil, or locked as well
	state  selection.State
}

func (v *view) close() {
	if v.value != nil {
		v.value.mu.RUnlock()
	}
	if v.shard != nil {
		v.shard.mu.Unlock()
	} else {
		v.global.mu.RUnlock()
	}
}

// open locks the context's state, or the global one, for reading.
func (f *Function) open(context []byte) view {
	st := f.states
	if f.hasState(context) {
		hash := st.table.hash(context)
		s := st.shardOf(hash)
		s.mu.Lock()
		var i int32
		if s.moved {
			i = s.find(context, hash)
		} else {
			i = st.touch(s, context, hash, f.policy)
		}
		if i != none {
			return st.withValue(view{shard: s, state: s.state(i)})
		}
		s.mu.Unlock()
	}
	return f.openGlobal()
}

func (f *Function) openGlobal() view {
	g := &f.states.global
	if f.learns && f.states.table.refreshes {
		f.states.table.mark(f.states.lineage, inUse)
	}
	g.mu.RLock()
	return f.states.withValue(view{global: g, state: f.states.layout.state(g.value)})
}

// withValue adds the policy's value to a view, and locks it.
func (st *states) withValue(v view) view {
	if st.value != nil {
		st.value.mu.RLock()
		st.value.use()
		v.value = st.value
	}
	return v
}

// now is the policy's value; nil if it has none.
func (v *view) now() selection.Value {
	if v.value == nil {
		return nil
	}
	return v.value.now
}

// Select lets the policy choose for a query of a context; an empty context means none. It sets q.State, q.Sticky and
// q.HasContext; q.State is not valid afterwards. It allocates nothing if the context is known or replaces another one.
func (f *Function) Select(context []byte, q *selection.Query, out *selection.Selection) {
	q.HasContext = len(context) > 0
	q.Sticky = 0
	if q.HasContext {
		// Seeded by the function, so that two functions do not split the same contexts in the same way, and by nothing
		// else: every gateway must compute the same number, also after a restart.
		q.Sticky = xxh3.HashSeed(context, f.sticky)
	}
	v := f.open(context)
	q.State, q.Value = v.state, v.now()
	f.policy.Select(q, out)
	v.close()
	q.State, q.Value = selection.State{}, nil
}

// Combine lets the policy combine the answers that have arrived. It sets c.State, which is not valid afterwards.
func (f *Function) Combine(context []byte, c *selection.Combination) {
	v := f.open(context)
	c.State, c.Value = v.state, v.now()
	f.policy.Combine(c)
	v.close()
	c.State, c.Value = selection.State{}, nil
}

// Observe lets the policy learn from feedback: once for the context's state, if it has one, and once for the global
// state and the policy's value. An estimate that is unbiased for one is unbiased for the other. It uses fb.State and fb.Delta, which are not
// valid afterwards.
func (f *Function) Observe(context []byte, fb *selection.Feedback) {
	if !f.learns {
		return
	}
	if f.hasState(context) {
		f.observeContext(context, f.states.table.hash(context), fb)
	}
	f.observeGlobal(fb)
	fb.State, fb.Delta = selection.State{}, nil
}

func (f *Function) observeContext(context []byte, hash xxh3.Uint128, fb *selection.Feedback) {
	s := f.states.shardOf(hash)
	s.mu.Lock()
	if s.moved {
		s.mu.Unlock()
		if next := f.states.next.Load(); next != nil {
			next.observeContext(context, hash, f.translate(fb, next))
		}
		return
	}
	i := f.states.touch(s, context, hash, f.policy)
	fb.State, fb.Delta = s.state(i), s.delta()
	f.policy.Observe(fb)
	f.states.learn(s, i, fb.Delta)
	s.mu.Unlock()
}

func (f *Function) observeGlobal(fb *selection.Feedback) {
	g := &f.states.global
	g.mu.Lock()
	if g.moved {
		g.mu.Unlock()
		if next := f.states.next.Load(); next != nil {
			next.observeGlobal(f.translate(fb, next))
		}
		return
	}
	if g.scratch == nil {
		g.scratch = make([]float64, len(g.value))
	}
	clear(g.scratch)
	fb.State, fb.Delta = f.states.layout.state(g.value), g.scratch
	if v := f.states.value; v != nil {
		fb.Value = v.change()
		f.policy.Observe(fb)
		v.changed()
		fb.Value = nil
	} else {
		f.policy.Observe(fb)
	}
	f.states.learnGlobal(g.scratch)
	g.mu.Unlock()
}

// translate converts feedback to the candidate indices of another declaration, and drops candidates that it does not
// have.
func (f *Function) translate(fb *selection.Feedback, to *Function) *selection.Feedback {
	n := len(to.Candidates())
	out := &selection.Feedback{
		P: make([]float64, n), Losses: make([]float64, n), Inputs: fb.Inputs, Context: fb.Context, Label: fb.Label, Judged: fb.Judged, Missing: fb.Missing,
		Vote: fb.Vote, VoteKnown: fb.VoteKnown,
	}
	for i, o := range origins(to.Candidates(), f.Candidates()) {
		out.Losses[i] = math.NaN()
		if !o.same {
			continue
		}
		if fb.Selected.Has(o.row) {
			out.Selected = out.Selected.With(i)
		}
		if o.row < len(fb.P) {
			out.P[i] = fb.P[o.row]
		}
		if o.row < len(fb.Losses) {
			out.Losses[i] = fb.Losses[o.row]
		}
		for _, p := range fb.Predictions {
			if p.Candidate == o.row {
				p.Candidate = i
				out.Predictions = append(out.Predictions, p)
			}
		}
	}
	return out
}

// Gains writes what each candidate's answer adds to the others', over all contexts. dst has one element for each
// candidate.
func (f *Function) Gains(dst []float64) {
	v := f.openGlobal()
	f.policy.Gains(v.state, dst)
	v.close()
}

// Shares writes the fraction of the queries without a context that would ask each candidate. dst has one element for
// each candidate.
func (f *Function) Shares(dst []float64) {
	v := f.openGlobal()
	f.policy.Shares(v.state, selection.All(len(f.Candidates())), dst)
	v.close()
}
