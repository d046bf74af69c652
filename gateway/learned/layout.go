package learned

import (
	"slices"
	"strconv"
	"strings"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/internal/state"
	"github.com/xebec-serving/xebec/gateway/selection"
)

// layout says which number of a state is whose: a row for each candidate, by its ref, and the names that the store has for
// the numbers.
type layout struct {
	policy selection.Policy
	refs   []string
	slots  int
	fields []string         // of number i of a state: ref/slot
	index  map[string]int32 // the number of a field
}

func newLayout(p selection.Policy, refs []string) *layout {
	l := &layout{policy: p, refs: slices.Clone(refs), slots: p.Slots(), index: map[string]int32{}}
	for _, ref := range refs {
		for s := range l.slots {
			name := ref + "/" + strconv.Itoa(s)
			l.index[name] = int32(len(l.fields))
			l.fields = append(l.fields, name)
		}
	}
	return l
}

// width is how many numbers a state has.
func (l *layout) width() int { return len(l.fields) }

func (l *layout) state(v []float64) selection.State { return selection.State{Slots: l.slots, V: v} }

// same reports whether states of the other layout mean the same here.
func (l *layout) same(other *layout) bool {
	return l.policy.Name() == other.policy.Name() && l.slots == other.slots && slices.Equal(l.refs, other.refs)
}

// origin is where a candidate's row comes from when the candidates change.
type origin struct {
	row int // of the rows before; -1: from none, the candidate joins
	// same: it is the same candidate's row. Otherwise a version that is no longer a candidate bequeaths it.
	same bool
}

// origins says, for each ref, which of the rows before becomes its own.
func origins(refs, before []string) []origin {
	from := make([]origin, len(refs))
	for i, ref := range refs {
		if at := slices.Index(before, ref); at >= 0 {
			from[i] = origin{at, true}
			continue
		}
		from[i] = origin{row: -1}
		for at, old := range before {
			if slices.Contains(refs, old) || modelOf(old) != modelOf(ref) {
				continue
			}
			if prev := from[i].row; prev < 0 || api.CompareVersions(versionOf(old), versionOf(before[prev])) > 0 {
				from[i].row = at
			}
		}
	}
	return from
}

func modelOf(ref string) string {
	name, _, _ := strings.Cut(ref, "@")
	return name
}

func versionOf(ref string) string {
	_, version, _ := strings.Cut(ref, "@")
	return version
}

// composer makes states of one layout from rows of another.
type composer struct {
	*layout
	from []origin
	temp []float64
}

func (l *layout) composer(before []string) *composer {
	return &composer{layout: l, from: origins(l.refs, before), temp: make([]float64, (len(l.refs)+1)*l.slots)}
}

// compose writes dst from the rows before, which need not have as many slots. A candidate that joins is put beside those that
// have come over, and not beside others that join with it: the mean is one of what was learned.
func (c *composer) compose(dst []float64, before selection.State) {
	c.policy.Init(c.state(dst))
	n := 0
	for i, o := range c.from {
		if o.row >= 0 {
			row := c.state(dst).Row(i)
			copy(row, before.Row(o.row))
			n += copy(c.temp[n:], row)
		}
	}
	if n == 0 {
		return
	}
	joined := c.state(c.temp[:n+c.slots])
	for i, o := range c.from {
		if o.row < 0 {
			last := joined.Row(n / c.slots)
			clear(last)
			c.policy.Join(joined, n/c.slots)
			copy(c.state(dst).Row(i), last)
		}
	}
}

// carry writes into dst the rows before that stay with their candidates.
func (c *composer) carry(dst []float64, before selection.State) {
	for i, o := range c.from {
		if o.same {
			copy(c.state(dst).Row(i), before.Row(o.row))
		}
	}
}

// take writes into v what the store has, and leaves the rest as it is. whole says that the store had every number, some that it
// had any. What is not finite counts as not there: nothing can be added to it.
func (l *layout) take(v []float64, totals []state.Total) (found, complete bool) {
	n := 0
	for _, t := range totals {
		if i, ok := l.index[t.Name]; ok && isFinite(t.Value) {
			v[i] = t.Value
			n++
		}
	}
	return n > 0, n == l.width()
}

// takeFirst is take for a state that is read for the first time: rows that the store has not come from those that it has, as
// if the candidates had changed here and now. So a context that has not been seen for a month finds its own experience
// with the version before the present one.
func (l *layout) takeFirst(v []float64, totals []state.Total) (found, complete bool) {
	found, complete = l.take(v, totals)
	if complete || len(totals) == 0 {
		return found, complete
	}
	before, rows := l.stored(totals)
	c := l.composer(before)
	if !slices.ContainsFunc(c.from, func(o origin) bool { return o.row >= 0 }) {
		return false, false // rows of other models only
	}
	composed := make([]float64, len(v))
	c.compose(composed, l.state(rows))
	for i, o := range c.from {
		if !o.same { // of rows that lack single numbers, these stay what they started from
			copy(l.state(v).Row(i), l.state(composed).Row(i))
		}
	}
	return true, false
}

// stored reads refs and rows out of fields' names. Of a row with gaps the missing numbers are zero.
func (l *layout) stored(totals []state.Total) (refs []string, rows []float64) {
	for _, t := range totals {
		cut := strings.LastIndexByte(t.Name, '/')
		if cut < 0 || !isFinite(t.Value) {
			continue
		}
		slot, err := strconv.Atoi(t.Name[cut+1:])
		if err != nil || slot < 0 || slot >= l.slots {
			continue
		}
		at := slices.Index(refs, t.Name[:cut])
		if at < 0 {
			at = len(refs)
			refs = append(refs, t.Name[:cut])
			rows = append(rows, make([]float64, l.slots)...)
		}
		rows[at*l.slots+slot] = t.Value
	}
	return refs, rows
}

// update is what is sent of a state: the rows in which something was learned or, where the store is not known to have all,
// every one, so that it has what the state started from.
func (l *layout) update(led ledger, allRows bool) []state.Field {
	var fields []state.Field
	for i := range l.refs {
		if !allRows && isZero(l.state(led.inFlight).Row(i)) {
			continue
		}
		for at := i * l.slots; at < (i+1)*l.slots; at++ {
			fields = append(fields, state.Field{Name: l.fields[at], Base: finiteOrZero(led.total[at]), Delta: led.inFlight[at]})
		}
	}
	return fields
}

// sound keeps out of the store what it would refuse for ever, should a policy start a state with it.
func finiteOrZero(x float64) float64 {
	if isFinite(x) {
		return x
	}
	return 0
}

// arrival says why totals come from the store.
type replyKind uint8

const (
	// loaded: read because the state was wanted.
	loaded replyKind = iota
	// refreshed: read again, for what other gateways have added.
	refreshed
	// merged: the answer to an update.
	merged
)

// holding is one state, of a context or the global one, as totals meet it.
type replyTarget struct {
	value    []float64
	ledger   ledger // of nils where there is none
	inFlight *bool
	wanted   bool
}

// arrive takes in the store's totals. taken: they were of use; some and whole as for take.
func (l *layout) applyReply(h replyTarget, totals []state.Total, why replyKind) (applied, found, complete bool) {
	total := h.ledger.total
	switch {
	case total == nil:
		total = h.value
	case why == merged:
		add(total, h.ledger.inFlight) // stays only where the answer lacks a number
		clear(h.ledger.inFlight)
		*h.inFlight = false
	case *h.inFlight:
		return false, false, false // nobody knows whether the update is part of them: its answer will tell
	}
	if h.wanted {
		found, complete = l.takeFirst(total, totals)
	} else {
		found, complete = l.take(total, totals)
	}
	if h.ledger.total != nil {
		h.ledger.sum(h.value)
	}
	return true, found, complete
}
