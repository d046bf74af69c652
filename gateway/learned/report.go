package learned

import "github.com/xebec-serving/xebec/gateway/selection"

// Report is what a function has learned, for people.
type Report struct {
	Policy string
	// Global has a row for each candidate.
	Global []Row
	// Contexts are those used last: the latest of each part of the memory, so that their order among one another is only
	// roughly that of their use.
	Contexts []ContextReport
	// InMemory counts the contexts in memory, Pending the states, of contexts and the global one, with deltas that the store
	// has not confirmed.
	InMemory int
	Pending  int64
}

// ContextReport is what was learned for one context.
type ContextReport struct {
	Context string
	// Own: something was learned of this context. Otherwise it follows the global state.
	Own bool
	// Pending: the store has not confirmed everything.
	Pending bool
	Rows    []Row
}

// Row is one candidate.
type Row struct {
	Ref string
	// Share is the part of the queries that would ask it, Weight what the policy thinks of it, as a part of 1; see
	// [selection.Weigh].
	Share, Weight float64
	// Count is how many losses it has been told, which a policy may let fade; Loss their mean, 0 when there are none.
	Count, Loss float64
}

// Report says what is known now, of up to so many contexts.
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

// reportAt reports on the context of a shard that was used last but so many.
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
		Context: string(s.context(e)), Own: e.flags&followsGlobal == 0, Pending: e.record != none, Rows: f.rows(s.state(i)),
	}, true
}

func (f *Function) rows(s selection.State) []Row {
	refs := f.Candidates()
	shares, weights := make([]float64, len(refs)), make([]float64, len(refs))
	f.policy.Shares(s, selection.All(len(refs)), shares)
	selection.Weigh(f.policy, s, weights)
	rows := make([]Row, len(refs))
	for i, ref := range refs {
		rows[i] = Row{Ref: ref, Share: shares[i], Weight: weights[i], Count: s.Row(i)[selection.SlotCount]}
		if rows[i].Count > 0 {
			rows[i].Loss = s.Row(i)[selection.SlotLoss] / rows[i].Count
		}
	}
	return rows
}
