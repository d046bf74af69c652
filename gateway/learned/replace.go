package learned

import (
	"context"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/xebec-serving/xebec/gateway/internal/state"
	"github.com/xebec-serving/xebec/gateway/selection"
)

// replaceGroup replaces the states of distinct contexts. A context about which nothing was learned is not reset, and does not count.
func (t *Table) replaceGroup(f *Function, group []Saved) (replaced int, err error) {
	if t.store == nil {
		for _, s := range group {
			if s.Rows != nil || s.Context == "" || f.states.ownValue(s.Context) != nil {
				f.setValue(s)
				replaced++
			}
		}
		return replaced, nil
	}
	lin, l := f.states.lineage, f.states.layout
	contexts := make([]string, len(group))
	for i, s := range group {
		contexts[i] = s.Context
	}
	now, err := t.readStates(lin, contexts)
	if err != nil {
		return 0, err
	}
	targets := make([][]float64, len(group))
	for i, s := range group {
		if s.Rows != nil || s.Context == "" || len(now[i]) > 0 || f.states.ownValue(s.Context) != nil {
			targets[i] = f.target(s)
			replaced++
		}
	}
	// Twice: the sum of a number and a difference is the target only up to rounding. The second difference is so small that its sum is exact.
	for again := range 2 {
		var updates []state.Update
		var at []int
		for i, target := range targets {
			if target == nil {
				continue
			}
			fields := l.towards(target, now[i], f.policy)
			if again > 0 {
				fields = slices.DeleteFunc(fields, isLearning)
			}
			if len(fields) == 0 {
				continue
			}
			t.writer.seq++
			key := state.Key{Function: lin.function, Policy: lin.policy, Context: contexts[i]}
			updates, at = append(updates, state.Update{Key: key, Fields: fields, Seq: t.writer.seq}), append(at, i)
		}
		if len(updates) == 0 {
			break
		}
		answers, refused, err := t.call(len(updates), func(ctx context.Context) ([][]state.Total, error) { return t.store.Merge(ctx, updates) })
		if err := edited(refused, err); err != nil {
			return 0, err
		}
		t.writer.count(&t.writer.stats.Flushes, 1)
		for k, i := range at {
			now[i] = answers[k]
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if st := lin.now; st != nil {
		for i, c := range contexts {
			if targets[i] != nil {
				st.applyReply([]byte(c), now[i], refreshed)
			}
		}
	}
	return replaced, nil
}

// isLearning reports whether a difference is more than rounding: another gateway has learned meanwhile, which stays.
func isLearning(f state.Field) bool { return math.Abs(f.Delta) > 1e-9 }

// target returns the numbers that a state becomes.
func (f *Function) target(s Saved) []float64 {
	l := f.states.layout
	v := make([]float64, l.width())
	switch {
	case s.Rows != nil:
		for i, row := range s.Rows {
			copy(l.state(v).Row(i), row)
		}
	case s.Context == "":
		f.policy.Init(l.state(v))
	default:
		f.policy.InitContext(l.state(f.states.globalValue()), l.state(v))
	}
	for i := range v {
		v[i] = finiteOrZero(v[i])
	}
	return v
}

// towards returns the update that turns the store's numbers into the target. Rows of candidates that were removed get the numbers with which
// a candidate begins: if one returns, what was replaced is not found again.
func (l *layout) towards(target []float64, now []state.Total, p selection.Policy) []state.Field {
	first := make([]float64, l.slots)
	p.Init(l.state(first))
	var fields []state.Field
	stored := make([]bool, len(target))
	for _, total := range now {
		wanted := 0.0
		if i, ok := l.index[total.Name]; ok {
			stored[i], wanted = true, target[i]
		} else {
			slot := total.Name[strings.LastIndexByte(total.Name, '/')+1:]
			if n, err := strconv.Atoi(slot); err == nil && n >= 0 && n < l.slots {
				wanted = finiteOrZero(first[n])
			}
		}
		if delta := wanted - total.Value; delta != 0 && isFinite(delta) {
			fields = append(fields, state.Field{Name: total.Name, Delta: delta})
		}
	}
	for i, ok := range stored {
		if !ok {
			fields = append(fields, state.Field{Name: l.fields[i], Base: target[i]})
		}
	}
	return fields
}

// setValue replaces a state of a table without a store.
func (f *Function) setValue(s Saved) {
	st := f.states
	v := f.target(s)
	if s.Context == "" {
		g := &st.global
		g.mu.Lock()
		copy(g.value, v)
		g.version.Add(1)
		g.mu.Unlock()
		return
	}
	hash := st.table.hash([]byte(s.Context))
	shard := st.shardOf(hash)
	shard.mu.Lock()
	defer shard.mu.Unlock()
	if s.Rows == nil && shard.find([]byte(s.Context), hash) == none {
		return
	}
	i := st.touch(shard, []byte(s.Context), hash, f.policy)
	copy(shard.value(i), v)
	if e := &shard.entries[i]; s.Rows == nil {
		e.flags |= followsGlobal
		e.version = st.global.version.Load()
	} else {
		e.flags &^= followsGlobal
	}
}
