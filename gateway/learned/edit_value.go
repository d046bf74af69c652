package learned

import (
	"fmt"
	"slices"

	"github.com/xebec-serving/xebec/gateway/internal/state"
	"github.com/xebec-serving/xebec/gateway/selection"
)

// settleValue reads what the store has of a policy's value, and writes what was learned here.
func (t *Table) settleValue(f *Function) error {
	if t.values == nil || f.states.value == nil {
		return nil
	}
	f.states.value.use()
	if err := t.syncValue(f.states.lineage); err != nil {
		return fmt.Errorf("%w: %w", ErrNotWritten, err)
	}
	return nil
}

// savedValue returns the policy's value as an export has it; nil if it has none.
func (st *states) savedValue() ([]byte, error) {
	v := st.value
	if v == nil {
		return nil, nil
	}
	v.mu.RLock()
	defer v.mu.RUnlock()
	b, err := v.encode()
	if err != nil {
		return nil, fmt.Errorf("the value of policy %s cannot be exported: %w", st.lineage.policy, err)
	}
	return b, nil
}

// replaceValue gives the policy what an export has; nil: nothing is known.
func (t *Table) replaceValue(f *Function, data []byte) error {
	v := f.states.value
	if v == nil {
		return nil
	}
	next, err := v.decode(data)
	if err != nil {
		return err
	}
	if err := v.replace(next); err != nil {
		return err
	}
	return t.settleValue(f)
}

func (v *value) replace(next selection.Value) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.moved {
		return fmt.Errorf("%w: the function was declared again meanwhile", ErrNotWritten)
	}
	if !v.learns {
		return ErrElsewhere
	}
	v.now, v.dirty = next, true
	return nil
}

// fitsValue checks the value of an edit.
func (f *Function) fitsValue(e Edit) error {
	global := slices.ContainsFunc(e.States, func(s Saved) bool { return s.Context == "" && s.Rows != nil })
	v := f.states.value
	switch {
	case v == nil && e.Value != nil:
		return fmt.Errorf("the value %w: the policy %s keeps none", ErrNotFitting, f.policy.Name())
	case v == nil:
		return nil
	case global && e.Value == nil:
		return fmt.Errorf("the global state %w: the value that policy %s keeps beside it is missing", ErrNotFitting, f.policy.Name())
	case e.Value == nil:
		return nil
	case !global:
		return fmt.Errorf("the value %w: it belongs to the global state, which is missing", ErrNotFitting)
	case len(e.Value) > state.MaxValueBytes:
		return fmt.Errorf("the value %w: it has %d bytes, expected at most %d", ErrNotFitting, len(e.Value), state.MaxValueBytes)
	}
	refs, encoded, err := envelope(e.Value)
	if err == nil {
		err = v.policy.NewValue(len(refs)).UnmarshalBinary(encoded)
	}
	if err != nil {
		return fmt.Errorf("the value %w what policy %s has learned here: %w", ErrNotFitting, f.policy.Name(), err)
	}
	mine, theirs := slices.Sorted(slices.Values(v.refs)), slices.Sorted(slices.Values(refs))
	if !slices.Equal(mine, theirs) {
		return fmt.Errorf("the value %w: it is of %q, expected %q", ErrNotFitting, theirs, mine)
	}
	return nil
}
