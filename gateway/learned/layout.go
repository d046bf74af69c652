package learned

import (
	"slices"
	"strconv"
	"strings"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/internal/state"
	"github.com/xebec-serving/xebec/gateway/selection"
)

// layout maps the numbers of a state to candidates, with a row for each ref, and to their names in the store.
type layout struct {
	policy selection.Policy
	refs   []string
	slots  int
	fields []string         // names of the numbers of a state: ref/slot
	index  map[string]int32 // from a name to the number's position
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

// width returns how many numbers a state has.
func (l *layout) width() int { return len(l.fields) }

func (l *layout) state(v []float64) selection.State { return selection.State{Slots: l.slots, V: v} }

// same reports whether states of the other layout have the same meaning here.
func (l *layout) same(other *layout) bool {
	return l.policy.Name() == other.policy.Name() && l.slots == other.slots && slices.Equal(l.refs, other.refs)
}

// origin is the source of a candidate's row when the candidates change.
type origin struct {
	row int // old row, or -1 if there is none and the candidate joins
	// same means that it is the row of the same candidate. Otherwise it is inherited from a version that is no longer a
	// candidate.
	same bool
}

// origins returns, for each ref, the old row that it takes over.
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

// composer converts states of another layout to this one.
type composer struct {
	*layout
	from []origin
	temp []float64
}

func (l *layout) composer(before []string) *composer {
	return &composer{layout: l, from: origins(l.refs, before), temp: make([]float64, (len(l.refs)+1)*l.slots)}
}

// compose writes dst from the old rows, which may have a different number of slots. A joining candidate starts from the
// mean of the rows that were carried over, not of others that join at the same time.
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

// carry copies into dst the old rows of candidates that stay.
func (c *composer) carry(dst []float64, before selection.State) {
	for i, o := range c.from {
		if o.same {
			copy(c.state(dst).Row(i), before.Row(o.row))
		}
	}
}

// take copies the store's numbers into v and leaves the rest unchanged. complete means that the store had every number,
// found that it had any. A number that is not finite counts as missing, because nothing can be added to it.
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

// takeFirst is take for the first read of a state. Rows that the store does not have are derived from those that it
// has, as if the candidates had changed just now. A context that was not seen for a month thus inherits its experience
// with the version before the present one.
func (l *layout) takeFirst(v []float64, totals []state.Total) (found, complete bool) {
	found, complete = l.take(v, totals)
	if complete || len(totals) == 0 {
		return found, complete
	}
	before, rows := l.stored(totals)
	c := l.composer(before)
	if !slices.ContainsFunc(c.from, func(o origin) bool { return o.row >= 0 }) {
		return false, false // only rows of other models
	}
	composed := make([]float64, len(v))
	c.compose(composed, l.state(rows))
	written := l.slotsOf(totals)
	for i, o := range c.from {
		row := l.state(v).Row(i)
		if !o.same {
			copy(row, l.state(composed).Row(i))
			continue
		}
		// A number that only this row lacks keeps its initial value. One that all rows lack is of a later program, to which 0 says so.
		for slot := range row {
			if !written[slot] {
				row[slot] = 0
			}
		}
	}
	return true, false
}

// slotsOf reports for each slot whether the store has it in any row.
func (l *layout) slotsOf(totals []state.Total) []bool {
	written := make([]bool, l.slots)
	for _, t := range totals {
		if cut := strings.LastIndexByte(t.Name, '/'); cut >= 0 {
			if slot, err := strconv.Atoi(t.Name[cut+1:]); err == nil && slot >= 0 && slot < l.slots {
				written[slot] = true
			}
		}
	}
	return written
}

// stored parses refs and rows from the names of numbers. Missing numbers in a row are zero.
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

// update returns what to send: the rows with deltas or, with allRows, every row, so that the store gets what the state
// started from.
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

// finiteOrZero keeps a non-finite initial value of a policy out of the store, which would always refuse it.
func finiteOrZero(x float64) float64 {
	if isFinite(x) {
		return x
	}
	return 0
}

// replyKind says why totals come from the store.
type replyKind uint8

const (
	// loaded: read because a query needs the state.
	loaded replyKind = iota
	// refreshed: read again, to get what other gateways have added.
	refreshed
	// merged: the answer to an update.
	merged
)

// replyTarget is the state, of a context or global, to which totals are applied.
type replyTarget struct {
	value    []float64
	ledger   ledger // its vectors are nil if there is none
	inFlight *bool
	wanted   bool
}

// applyReply applies the store's totals to a state. applied reports whether they were used; found and complete are as
// in take.
func (l *layout) applyReply(h replyTarget, totals []state.Total, why replyKind) (applied, found, complete bool) {
	total := h.ledger.total
	switch {
	case total == nil:
		total = h.value
	case why == merged:
		add(total, h.ledger.inFlight) // remains only for numbers that the answer lacks
		clear(h.ledger.inFlight)
		*h.inFlight = false
	case *h.inFlight:
		return false, false, false // the totals may or may not include the update in flight; its answer will tell
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
