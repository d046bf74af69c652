package learned

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"go.uber.org/zap"

	"github.com/xebec-serving/xebec/gateway/internal/state"
	"github.com/xebec-serving/xebec/gateway/selection"
)

// value is what a [selection.Valuer] has learned about a function, and what is known of its copy in the store.
//
// A value that merges may change at any time: what the store has gained since it was last read is added to it. Another
// value changes only while this gateway has the lease, and has read what the store has; the other gateways follow. While
// the store is away, the gateway that had the lease goes on. If another one has taken the lease meanwhile, the store
// refuses the save, and what was learned since is given up.
type value struct {
	table  *Table
	policy selection.Valuer
	refs   []string
	merges bool
	used   atomic.Bool // since the writer looked

	mu    sync.RWMutex
	now   selection.Value
	moved bool // the candidates have changed, or the function is gone
	// learns: Observe may change the value. dirty: it has, since the last save was made. loaded: the store's value was read.
	learns, dirty, loaded bool
	// base is what the store had when it was last read or written, at that revision; nil: nothing. fence is that of the
	// lease, 0: another gateway has it. All three are the writer's. flight is a save that was sent and not answered.
	base     []byte
	revision uint64
	fence    uint64
	flight   *state.Save
	refused  bool // the store refuses the value: it is kept in memory only
}

func newValue(t *Table, l *layout, now selection.Value) *value {
	v := &value{table: t, policy: l.policy.(selection.Valuer), refs: l.refs, now: now}
	_, v.merges = now.(selection.Merger)
	v.learns = v.merges || t.values == nil
	return v
}

// change locks the value and returns what Observe may change: nil if another gateway learns.
func (v *value) change() selection.Value {
	v.mu.Lock()
	v.use()
	if v.moved || !v.learns {
		if !v.moved {
			v.table.elsewhere.Add(1)
		}
		return nil
	}
	return v.now
}

// changed ends change.
func (v *value) changed() {
	if !v.moved && v.learns {
		v.dirty = true
	}
	v.mu.Unlock()
}

// use notes that the value is in use. Values that are not cost the writer nothing.
func (v *value) use() {
	if !v.used.Load() {
		v.used.Store(true)
	}
}

// retire freezes the value.
func (v *value) retire() {
	v.mu.Lock()
	v.moved = true
	v.mu.Unlock()
}

// adopt takes over the value of other candidates.
func (v *value) adopt(old *value) {
	old.mu.Lock()
	defer old.mu.Unlock()
	v.now.Adopt(old.now, takenFrom(v.refs, old.refs))
	v.learns, v.loaded, v.base, v.revision, v.fence, v.flight = old.learns, old.loaded, old.base, old.revision, old.fence, old.flight
	v.dirty = true
	v.used.Store(true)
	old.moved = true
}

// takenFrom returns, for each ref, the index of what it takes over in before, or -1.
func takenFrom(refs, before []string) []int {
	rows := make([]int, len(refs))
	for i, o := range origins(refs, before) {
		rows[i] = o.row
	}
	return rows
}

// convert gives the value to the same policy with other parameters. If that cannot read it, it starts from nothing.
func (v *value) convert(p selection.Policy, lin *lineage) {
	v.mu.Lock()
	defer v.mu.Unlock()
	next, ok := p.(selection.Valuer)
	if !ok {
		return
	}
	fresh := next.NewValue(len(v.refs))
	if b, err := v.now.AppendBinary(nil); err == nil && fresh.UnmarshalBinary(b) != nil {
		fresh = next.NewValue(len(v.refs))
		v.table.cfg.Log.Warn("what a policy has learned does not fit its new parameters: it starts from nothing", zap.String("function", lin.function), zap.String("policy", lin.policy))
		v.base = nil // what the store has is replaced, not merged
	}
	v.policy, v.now, v.dirty = next, fresh, true
	v.used.Store(true)
}

// The store has a value with the candidates that it is of: their number, each with its length, then the policy's
// encoding. Numbers are uvarints.

var errEnvelope = errors.New("it does not begin with the names of its candidates")

// encode returns the value as the store has it. The caller holds mu.
func (v *value) encode() ([]byte, error) {
	b := binary.AppendUvarint(nil, uint64(len(v.refs)))
	for _, ref := range v.refs {
		b = append(binary.AppendUvarint(b, uint64(len(ref))), ref...)
	}
	b, err := v.now.AppendBinary(b)
	if err == nil && len(b) > selection.MaxValueBytes {
		err = fmt.Errorf("it has %d bytes: expected at most %d", len(b), selection.MaxValueBytes)
	}
	return b, err
}

// envelope splits an encoded value into the names of its candidates and the policy's encoding.
func envelope(data []byte) (refs []string, encoded []byte, err error) {
	count, n := binary.Uvarint(data)
	if n <= 0 || count > selection.MaxCandidates {
		return nil, nil, errEnvelope
	}
	rest := data[n:]
	refs = make([]string, count)
	for i := range refs {
		size, n := binary.Uvarint(rest)
		if n <= 0 || size > uint64(len(rest)-n) {
			return nil, nil, errEnvelope
		}
		refs[i], rest = string(rest[n:n+int(size)]), rest[n+int(size):]
	}
	return refs, rest, nil
}

// decode returns a value of the current candidates. Its data is not trusted.
func (v *value) decode(data []byte) (selection.Value, error) {
	if data == nil {
		return v.policy.NewValue(len(v.refs)), nil
	}
	refs, encoded, err := envelope(data)
	if err != nil {
		return nil, err
	}
	stored := v.policy.NewValue(len(refs))
	if err := stored.UnmarshalBinary(encoded); err != nil {
		return nil, err
	}
	if slices.Equal(refs, v.refs) {
		return stored, nil
	}
	fresh := v.policy.NewValue(len(v.refs))
	fresh.Adopt(stored, takenFrom(v.refs, refs))
	return fresh, nil
}

// take applies what the store has: it replaces the value, or what it has gained is added to a value that merges. The
// caller holds mu.
func (v *value) take(got state.Value) error {
	v.loaded = true
	if got.Data == nil || got.Revision == v.revision && v.base != nil {
		v.revision = got.Revision
		return nil
	}
	theirs, err := v.decode(got.Data)
	if err != nil {
		v.base, v.revision, v.dirty = nil, got.Revision, true // it will be replaced
		return fmt.Errorf("the value of the policy in the store cannot be used, and is replaced: %w", err)
	}
	mine, merges := v.now.(selection.Merger)
	if merges && v.dirty {
		base, err := v.decode(v.base)
		if err != nil {
			base = v.policy.NewValue(len(v.refs))
		}
		mine.Merge(base, theirs)
	} else {
		v.now = theirs
	}
	v.base, v.revision = got.Data, got.Revision
	return nil
}
