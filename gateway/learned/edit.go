package learned

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/xebec-serving/xebec/gateway/internal/state"
	"github.com/xebec-serving/xebec/gateway/selection"
)

// Saved is the state of one context, or the global one if Context is empty.
type Saved struct {
	Context string
	// Rows has a row of the policy's numbers for each candidate. In an Edit, nil means what the state begins with: for the global state that
	// nothing is known, for a context what is known globally. Where the global state is reset, so is the policy's value.
	Rows [][]float64
}

// Which says which states an Export has. The zero value means the global one.
type Which struct {
	// Context is the only state that is wanted; empty means the global one.
	Context string
	// All means the global state and that of every context, in memory and in the store.
	All bool
	// Most bounds the number of states; 0 means no bound.
	Most int
}

// Export is what a function has learned.
type Export struct {
	Policy     string
	Candidates []string
	Slots      int
	// States are ordered by context, so the global state comes first.
	States []Saved
	// Value belongs to the global state: what the policy keeps beside the numbers, with the names of the candidates. It is nil for a policy that
	// is no [selection.Valuer], and in an export without the global state.
	Value []byte
}

// Edit replaces states.
type Edit struct {
	States []Saved
	// Value goes with a global state that has rows: see [Export]. It is checked.
	Value []byte
	// Others means that the states of all other contexts, in memory and in the store, become what they begin with.
	Others bool
}

// Errors of Export and Replace, beside those of the store.
var (
	ErrNoFunction = errors.New("the function is not declared, or its policy does not learn")
	ErrNoContext  = errors.New("nothing was learned about the context alone: it follows the function as a whole")
	ErrTooMany    = errors.New("there are too many contexts")
	// ErrElsewhere: a value that cannot be merged is changed only where the lease is.
	ErrElsewhere = errors.New("another gateway on the store has the lease on what the policy keeps beside its numbers: ask that one, or try again within seconds after it has ended")
	// ErrNotFitting is wrapped by the error of an Edit whose states do not fit the function's policy or candidates.
	ErrNotFitting = errors.New("does not fit")
	// ErrNotWritten says that the store could not be asked. Some of the states may have changed.
	ErrNotWritten = errors.New("the store does not answer")
)

// maxEdited is the number of states that one call to the store replaces.
const maxEdited = 256

// errandWithin bounds how long Export and Replace wait until they begin: longer than a call to the store takes.
const errandWithin = 2 * callTimeout //xebec:limit wait of `xebec learn` for other work with the store

// errand is work of Export or Replace, which the writer's goroutine does between its own calls to the store.
type errand struct {
	do   func() error
	done chan error
}

// errandOf runs do where no other call to the store is made. Without a store that is here.
func (t *Table) errandOf(ctx context.Context, do func() error) error {
	if t.store == nil {
		return do()
	}
	e := errand{do, make(chan error, 1)}
	late := time.NewTimer(errandWithin)
	defer late.Stop()
	select {
	case t.writer.errands <- e:
	case <-t.writer.done:
		return fmt.Errorf("%w: the gateway stops", ErrNotWritten)
	case <-late.C:
		return fmt.Errorf("%w: %s is busy, or is still with another process", ErrNotWritten, t.store.Name())
	case <-ctx.Done():
		return fmt.Errorf("%w: given up by the caller: %w", ErrNotWritten, ctx.Err())
	}
	// What has begun is finished, so that the caller learns what became of it. Each call to the store ends in time.
	return <-e.done
}

// Export returns what a function has learned. Everything that was learned is written to the store first.
func (t *Table) Export(ctx context.Context, function string, which Which) (*Export, error) {
	var out *Export
	err := t.errandOf(ctx, func() (err error) {
		out, err = t.export(ctx, function, which)
		return err
	})
	return out, err
}

// Replace replaces states of a function, and returns how many. Feedback that arrives meanwhile may count before or after. States in a store
// change by what they differ, so the learning of other gateways that is on its way is added to the new values.
//
// If the store fails, some states may have been replaced; calling it again is safe.
func (t *Table) Replace(ctx context.Context, function string, e Edit) (n int, err error) {
	err = t.errandOf(ctx, func() (err error) {
		n, err = t.replace(ctx, function, e)
		return err
	})
	return n, err
}

// editable returns a function that learns.
func (t *Table) editable(function string) (*Function, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	f := t.functions[function]
	if f == nil || !f.learns {
		return nil, ErrNoFunction
	}
	if t.forgetPending(f.states.lineage) {
		return nil, fmt.Errorf("%w: an earlier function of this name is still to be deleted from %s", ErrNotWritten, t.store.Name())
	}
	return f, nil
}

// settle writes and reads everything that is pending, so that the store has what memory has. Of the values only the function's own is synchronised.
func (t *Table) settle(f *Function) error {
	if t.store == nil {
		return nil
	}
	if err := t.settleValue(f); err != nil {
		return err
	}
	w := &t.writer
	t.takeNotes()
	for len(w.load) > 0 {
		before := len(w.load)
		if err := t.load(nil); err != nil {
			return fmt.Errorf("%w: %w", ErrNotWritten, err)
		}
		if len(w.load) >= before {
			break // a lineage that waits for a deletion
		}
	}
	t.takeNotes() // states that have been read can be written
	t.collect()
	err := t.sendAll()
	if err == nil && t.cfg.Refresh > 0 {
		err = t.readAgain(f.states.settledGlobal(nil)) // what other gateways have written: contexts are read where they are needed
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrNotWritten, err)
	}
	return nil
}

func (t *Table) export(ctx context.Context, function string, which Which) (*Export, error) {
	f, err := t.editable(function)
	if err != nil {
		return nil, err
	}
	if err := t.settle(f); err != nil {
		return nil, err
	}
	l := f.states.layout
	out := &Export{Policy: f.policy.Name(), Candidates: slices.Clone(l.refs), Slots: l.slots}
	if which.Context == "" || which.All {
		out.States = append(out.States, Saved{Rows: savedRows(l.state(f.states.globalValue()))})
		if out.Value, err = f.states.savedValue(); err != nil {
			return nil, err
		}
	}
	switch {
	case which.All:
		found := map[string]bool{}
		err = t.eachContext(ctx, f, func(contexts []string) error {
			contexts = slices.DeleteFunc(contexts, func(c string) bool { return found[c] })
			if which.Most > 0 && len(found)+len(contexts)+1 > which.Most {
				return ErrTooMany
			}
			for _, c := range contexts {
				found[c] = true
			}
			states, err := t.saved(f, contexts)
			out.States = append(out.States, states...)
			return err
		})
	case which.Context != "":
		if out.States, err = t.saved(f, []string{which.Context}); err == nil && len(out.States) == 0 {
			err = ErrNoContext
		}
	}
	if err != nil {
		return nil, err
	}
	slices.SortFunc(out.States, func(a, b Saved) int { return strings.Compare(a.Context, b.Context) })
	return out, nil
}

// globalValue copies the numbers of the global state.
func (st *states) globalValue() []float64 {
	st.global.mu.RLock()
	defer st.global.mu.RUnlock()
	return slices.Clone(st.global.value)
}

func savedRows(s selection.State) [][]float64 {
	rows := make([][]float64, s.Candidates())
	for i := range rows {
		rows[i] = slices.Clone(s.Row(i))
	}
	return rows
}

// eachContext passes the contexts about which something was learned, in groups.
func (t *Table) eachContext(ctx context.Context, f *Function, do func(contexts []string) error) error {
	group := func(contexts []string) error {
		for piece := range slices.Chunk(contexts, maxEdited) {
			if err := do(piece); err != nil {
				return err
			}
		}
		return nil
	}
	if t.store == nil {
		return group(f.states.ownContexts())
	}
	lin := f.states.lineage
	var failed error
	err := t.store.EachContext(ctx, lin.function, lin.policy, func(contexts []string) error {
		failed = group(contexts)
		return failed
	})
	if err != nil && failed == nil {
		err = fmt.Errorf("%w: %w", ErrNotWritten, err)
	}
	return err
}

// ownContexts returns the contexts in memory about which something was learned.
func (st *states) ownContexts() (contexts []string) {
	shards := st.shards.Load()
	if shards == nil {
		return nil
	}
	for i := range *shards {
		s := &(*shards)[i]
		s.mu.Lock()
		for at := s.newest; at != none; at = s.entries[at].older {
			if e := &s.entries[at]; e.flags&followsGlobal == 0 {
				contexts = append(contexts, string(s.context(e)))
			}
		}
		s.mu.Unlock()
	}
	return contexts
}

// saved reads the states of contexts, without those about which nothing was learned.
func (t *Table) saved(f *Function, contexts []string) ([]Saved, error) {
	l := f.states.layout
	var out []Saved
	if t.store == nil {
		for _, c := range contexts {
			if v := f.states.ownValue(c); v != nil {
				out = append(out, Saved{c, savedRows(l.state(v))})
			}
		}
		return out, nil
	}
	answers, err := t.readStates(f.states.lineage, contexts)
	if err != nil {
		return nil, err
	}
	global := f.states.globalValue()
	for i, c := range contexts {
		v := make([]float64, l.width())
		f.policy.InitContext(l.state(global), l.state(v))
		if found, _ := l.takeFirst(v, answers[i]); found {
			out = append(out, Saved{c, savedRows(l.state(v))})
		}
	}
	return out, nil
}

// ownValue copies the numbers of a context in memory; nil if nothing was learned about it.
func (st *states) ownValue(context string) []float64 {
	if st.shards.Load() == nil {
		return nil
	}
	hash := st.table.hash([]byte(context))
	s := st.shardOf(hash)
	s.mu.Lock()
	defer s.mu.Unlock()
	i := s.find([]byte(context), hash)
	if i == none || s.entries[i].flags&followsGlobal != 0 {
		return nil
	}
	return slices.Clone(s.value(i))
}

// readStates reads the store's numbers. A state that the store refuses is an error.
func (t *Table) readStates(lin *lineage, contexts []string) ([][]state.Total, error) {
	keys := make([]state.Key, len(contexts))
	for i, c := range contexts {
		keys[i] = state.Key{Function: lin.function, Policy: lin.policy, Context: c}
	}
	answers, refused, err := t.call(len(keys), func(ctx context.Context) ([][]state.Total, error) { return t.store.Load(ctx, keys) })
	return answers, edited(refused, err)
}

// edited is the error of a call about states that are edited.
func edited(refused []state.Refusal, err error) error {
	if err == nil && len(refused) > 0 {
		err = &state.RefusedError{Refused: refused}
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrNotWritten, err)
	}
	return nil
}

func (t *Table) replace(ctx context.Context, function string, e Edit) (int, error) {
	f, err := t.editable(function)
	if err != nil {
		return 0, err
	}
	if err := f.fits(e); err != nil {
		return 0, err
	}
	if err := t.settle(f); err != nil {
		return 0, err
	}
	if slices.ContainsFunc(e.States, func(s Saved) bool { return s.Context == "" }) {
		if err := t.replaceValue(f, e.Value); err != nil {
			return 0, err
		}
	}
	named := map[string]bool{}
	states := slices.Clone(e.States)
	slices.SortStableFunc(states, func(a, b Saved) int { return strings.Compare(a.Context, b.Context) }) // contexts begin with the new global state
	n := 0
	for group := range slices.Chunk(states, maxEdited) {
		if group[0].Context == "" && len(group) > 1 {
			if _, err := t.replaceGroup(f, group[:1]); err != nil {
				return n, err
			}
			n++
			group = group[1:]
		}
		replaced, err := t.replaceGroup(f, group)
		if n += replaced; err != nil {
			return n, err
		}
	}
	if !e.Others {
		return n, nil
	}
	for _, s := range states {
		named[s.Context] = true
	}
	err = t.eachContext(ctx, f, func(contexts []string) error {
		var group []Saved
		for _, c := range contexts {
			if !named[c] {
				group = append(group, Saved{Context: c})
			}
		}
		if len(group) == 0 {
			return nil
		}
		replaced, err := t.replaceGroup(f, group)
		n += replaced
		return err
	})
	return n, err
}

// fits checks the states of an edit.
func (f *Function) fits(e Edit) error {
	if err := f.fitsValue(e); err != nil {
		return err
	}
	l := f.states.layout
	seen := map[string]bool{}
	for _, s := range e.States {
		name := "the global state"
		if s.Context != "" {
			name = "the state of context " + strconv.Quote(s.Context)
		}
		switch {
		case len(s.Context) > MaxContextBytes:
			return fmt.Errorf("%s %w: its context has %d bytes, expected at most %d", name, ErrNotFitting, len(s.Context), MaxContextBytes)
		case seen[s.Context]:
			return fmt.Errorf("%s %w: it is given twice", name, ErrNotFitting)
		case s.Rows == nil:
		case len(s.Rows) != len(l.refs):
			return fmt.Errorf("%s %w: it has %d rows, expected one for each of %d candidates", name, ErrNotFitting, len(s.Rows), len(l.refs))
		}
		seen[s.Context] = true
		for i, row := range s.Rows {
			if len(row) != l.slots {
				return fmt.Errorf("%s %w: the row of %s has %d numbers, expected %d (count, sum of losses, and the policy's own)", name, ErrNotFitting, l.refs[i], len(row), l.slots)
			}
			for _, x := range row {
				if !isFinite(x) || math.Abs(x) > maxNumber {
					return fmt.Errorf("%s %w: the row of %s has the number %v, expected finite ones up to %g", name, ErrNotFitting, l.refs[i], x, float64(maxNumber))
				}
			}
			switch count, loss := row[selection.SlotCount], row[selection.SlotLoss]; {
			case count < 0 || loss < 0:
				return fmt.Errorf("%s %w: the row of %s has a negative count or sum of losses", name, ErrNotFitting, l.refs[i])
			case count > maxCount:
				return fmt.Errorf("%s %w: the row of %s has the count %v, expected up to %d", name, ErrNotFitting, l.refs[i], count, int64(maxCount))
			case loss > count+1e-6*max(1, count): // what gateways have added up, and what is forgotten, is rounded
				return fmt.Errorf("%s %w: the row of %s has a sum of losses of %v for a count of %v, expected at most 1 for each", name, ErrNotFitting, l.refs[i], loss, count)
			}
		}
	}
	return nil
}

// maxCount bounds counts that are imported: one more can still be counted.
const maxCount = 1 << 52

// maxNumber bounds numbers that are imported. No policy comes near it, and sums of such numbers stay finite.
const maxNumber = 1e100

// Fits returns the error that Replace would return before it changes anything.
func (t *Table) Fits(function string, e Edit) error {
	f, err := t.editable(function)
	if err != nil {
		return err
	}
	return f.fits(e)
}
