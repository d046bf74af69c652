package learned

import "github.com/xebec-serving/xebec/gateway/selection"

// Report describes to users what a function has learned.
type Report struct {
	Policy string
	// Global has a row for each candidate.
	Global []Row
	// Contexts are those used most recently. They are taken from each shard in turn, so they are only roughly in order
	// of use.
	Contexts []ContextReport
	// InMemory is the number of contexts in memory. Pending is the number of states, of contexts and global, with
	// deltas that the store has not confirmed.
	InMemory int
	Pending  int64
}

// ContextReport describes what was learned for one context.
type ContextReport struct {
	Context string
	// HasOwnState means that something was learned about this context. Otherwise it follows the global state.
	HasOwnState bool
	// Pending means that the store has not confirmed everything.
	Pending bool
	Rows    []Row
}

// Row describes one candidate.
type Row struct {
	Ref string
	// Share is the fraction of the queries that would ask the candidate. Weight is the policy's opinion of it, as a
	// fraction of 1; see [selection.CandidateWeights].
	Share, Weight float64
	// Count is the candidate's number of losses, which a policy may discount. Loss is their mean, or 0 if there are
	// none.
	Count, Loss float64
}

// Report describes the current state, with at most the given number of contexts.
func (f *Function) Report(contexts int) Report {
	st := f.states
	r := Report{Policy: f.policy.Name(), Pending: st.lineage.pending.Load()}
	v := f.openGlobal()
	r.Global = f.rows(v.state)
	v.close()
	shards := st.shards.Load()
	if shards == nil {
		return r
	}
	for i := range *shards {
		s := &(*shards)[i]
		s.mu.Lock()
		r.InMemory += s.resident
		s.mu.Unlock()
	}
	for depth, before := 0, -1; before < len(r.Contexts); depth++ {
		before = len(r.Contexts)
		for i := range *shards {
			if len(r.Contexts) >= contexts {
				return r
			}
			if c, ok := f.reportAt(&(*shards)[i], depth); ok {
				r.Contexts = append(r.Contexts, c)
			}
		}
	}
	return r
}

// reportAt reports on the context at position depth of a shard's list, most recently used first.
func (f *Function) reportAt(s *shard, depth int) (ContextReport, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := s.newest
	for ; depth > 0 && i != none; depth-- {
		i = s.entries[i].older
	}
	if i == none {
		return ContextReport{}, false
	}
	e := &s.entries[i]
	return ContextReport{
		Context: string(s.context(e)), HasOwnState: e.flags&followsGlobal == 0, Pending: e.record != none, Rows: f.rows(s.state(i)),
	}, true
}

func (f *Function) rows(s selection.State) []Row {
	refs := f.Candidates()
	shares, weights := make([]float64, len(refs)), make([]float64, len(refs))
	f.policy.Shares(s, selection.All(len(refs)), shares)
	selection.CandidateWeights(f.policy, s, weights)
	rows := make([]Row, len(refs))
	for i, ref := range refs {
		rows[i] = Row{Ref: ref, Share: shares[i], Weight: weights[i], Count: s.Row(i)[selection.SlotCount]}
		if rows[i].Count > 0 {
			rows[i].Loss = s.Row(i)[selection.SlotLoss] / rows[i].Count
		}
	}
	return rows
}
