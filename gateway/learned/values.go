package learned

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/xebec-serving/xebec/gateway/internal/state"
)

const (
	// leaseLasts is how long a gateway keeps the lease on a value without renewing it. Then another one may learn.
	leaseLasts = 5 * time.Second //xebec:limit lease on the value of a policy that only one gateway may change
	// saveAttempts is how often one round tries to save a value that other gateways change too.
	saveAttempts = 4
)

// value registers a lineage with a value, which is to be read soon.
func (w *writer) value(lin *lineage) {
	if !slices.Contains(w.valued, lin) {
		w.valued = append(w.valued, lin)
	}
	w.valuesAt = time.Time{}
}

// syncValues reads and writes the values when that is due. Their failures delay no other work.
func (t *Table) syncValues(clock func() time.Time) {
	w := &t.writer
	now := clock()
	if t.values == nil || len(w.valued) == 0 || now.Before(w.valuesAt) {
		return
	}
	if err := t.syncAll(now); err != nil {
		w.valuesBackoff = min(max(2*w.valuesBackoff, w.minBackoff), w.maxBackoff)
		w.valuesAt = now.Add(w.valuesBackoff)
		return
	}
	w.valuesBackoff = 0
	w.valuesAt = now.Add(max(t.cfg.Flush, t.cfg.Refresh))
}

// syncAll synchronises every value that is in use with the store. It goes on after an error, which is the first one.
func (t *Table) syncAll(now time.Time) (first error) {
	w := &t.writer
	if t.values == nil {
		return nil
	}
	t.takeNotes()
	t.mu.Lock()
	w.valued = slices.DeleteFunc(w.valued, func(lin *lineage) bool { return lin.now == nil || lin.now.value == nil })
	all := slices.Clone(w.valued)
	t.mu.Unlock()
	for _, lin := range all {
		if err := t.syncValue(lin); err != nil && first == nil {
			first = err
		}
	}
	t.noteValues(first, now)
	return first
}

// noteValues records the outcome of a round.
func (t *Table) noteValues(err error, now time.Time) {
	w := &t.writer
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil {
		w.stats.Errors++
		w.stats.LastError, w.stats.LastErrorAt = err.Error(), now
	}
}

// valueOf returns the value of a lineage, or nil if it is gone or must not be touched yet.
func (t *Table) valueOf(lin *lineage) *value {
	t.mu.Lock()
	defer t.mu.Unlock()
	if lin.now == nil || t.forgetPending(lin) {
		return nil
	}
	return lin.now.value
}

// syncValue takes or renews the lease, reads what others have written, and saves what was learned here.
func (t *Table) syncValue(lin *lineage) error {
	v := t.valueOf(lin)
	if v == nil {
		return nil
	}
	key := state.Key{Function: lin.function, Policy: lin.policy}
	v.mu.RLock()
	loaded, refused := v.loaded, v.refused
	v.mu.RUnlock()
	if refused || loaded && !v.used.Swap(false) {
		return nil
	}
	err := t.callValue(func(ctx context.Context) error { return t.exchange(ctx, lin, v, key) })
	if err == nil {
		return nil
	}
	v.use() // try again
	var refusal *state.RefusedError
	if errors.As(err, &refusal) {
		t.refuseValue(v, refusal)
		return nil
	}
	return err
}

func (t *Table) callValue(do func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(t.writer.calls, callTimeout)
	defer cancel()
	return do(ctx)
}

// refuseValue keeps a value in memory only from now on.
func (t *Table) refuseValue(v *value, refusal *state.RefusedError) {
	v.mu.Lock()
	v.refused, v.loaded, v.learns = true, true, true
	v.mu.Unlock()
	t.lost.Add(1)
	w := &t.writer
	w.mu.Lock()
	w.stats.Refused++
	w.stats.LastError, w.stats.LastErrorAt = refusal.Error(), time.Now()
	w.mu.Unlock()
	t.cfg.Log.Warn("the store refuses the value of a policy: it is kept in memory only", zap.String("store", t.store.Name()), zap.Error(refusal))
}

// exchange is syncValue's calls to the store.
func (t *Table) exchange(ctx context.Context, lin *lineage, v *value, key state.Key) error {
	if !v.merges {
		fence, err := t.values.LeaseValue(ctx, key, leaseLasts)
		if err != nil {
			return err
		}
		v.lease(fence)
	}
	v.mu.RLock()
	waits := v.flight != nil // its answer decides what the store has
	loaded, since := v.loaded, v.revision
	v.mu.RUnlock()
	if !waits && (!loaded || t.store.Shared()) {
		got, err := t.values.LoadValue(ctx, key, since)
		if err != nil {
			return err
		}
		v.mu.Lock()
		own := !v.merges && v.loaded && v.fence != 0 && v.dirty // no other gateway can have written: the save decides
		if !own {
			err = v.take(got)
		}
		v.learns = v.merges || v.fence != 0
		v.mu.Unlock()
		if err != nil {
			t.cfg.Log.Warn("policy", zap.String("function", lin.function), zap.String("policy", lin.policy), zap.Error(err))
		}
	}
	for range saveAttempts {
		save, err := v.startSave(&t.writer, key)
		if save == nil || err != nil {
			return err
		}
		saved, err := t.values.SaveValue(ctx, save)
		if err != nil {
			return err // the same save is sent again
		}
		if err := v.endSave(t, save, saved); err != nil {
			t.cfg.Log.Warn("policy", zap.String("function", lin.function), zap.String("policy", lin.policy), zap.Error(err))
		}
		t.writer.count(&t.writer.stats.Flushes, 1)
	}
	return nil
}

// lease notes the answer to a request for the lease. A lease that comes back with another fence was another gateway's
// meanwhile: what was learned here since is given up for what that one has written.
func (v *value) lease(fence uint64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if fence == v.fence {
		return
	}
	if v.fence != 0 && v.dirty {
		v.table.lost.Add(1)
	}
	v.learns, v.loaded, v.dirty = false, false, false
	v.fence, v.flight, v.base, v.revision = fence, nil, nil, 0
}

// startSave returns what is to be sent: a save that was not answered, or a new one. nil: there is nothing to save.
func (v *value) startSave(w *writer, key state.Key) (*state.Save, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.flight != nil {
		return v.flight, nil
	}
	if !v.dirty || !v.learns || !v.loaded {
		return nil, nil
	}
	data, err := v.encode()
	if err != nil {
		return nil, &state.RefusedError{Refused: []state.Refusal{{Key: key, Reason: err.Error()}}}
	}
	w.seq++
	v.flight = &state.Save{Key: key, Data: data, Base: v.revision, Fence: v.fence, Seq: w.seq}
	v.dirty = false
	return v.flight, nil
}

// endSave applies the answer to a save.
func (v *value) endSave(t *Table, save *state.Save, saved state.Saved) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.flight = nil
	switch {
	case saved.Applied:
		v.base, v.revision = save.Data, saved.Revision
		if saved.Data != nil && saved.Revision != save.Base+1 { // others have written since
			v.revision = save.Base + 1
			return v.take(saved.Value)
		}
		return nil
	case saved.Fenced:
		t.lost.Add(1)
		v.fence, v.learns, v.base = 0, false, nil
		return v.take(saved.Value)
	case !v.merges && saved.Revision < save.Base:
		// The store has lost what it had: it gets what is known here.
		v.base, v.revision, v.dirty = nil, saved.Revision, true
		return nil
	}
	v.dirty = true
	return v.take(saved.Value)
}

// closeValues saves what is left and gives up the leases, so that another gateway need not wait for their end.
func (t *Table) closeValues() error {
	if t.values == nil {
		return nil
	}
	if err := t.syncAll(time.Now()); err != nil {
		return fmt.Errorf("the values of policies: %w", err)
	}
	for _, lin := range t.writer.valued {
		v := t.valueOf(lin)
		if v == nil || v.merges || v.refused {
			continue
		}
		key := state.Key{Function: lin.function, Policy: lin.policy}
		if err := t.callValue(func(ctx context.Context) error { _, err := t.values.LeaseValue(ctx, key, 0); return err }); err != nil {
			return err
		}
		v.mu.Lock()
		v.fence, v.learns = 0, false
		v.mu.Unlock()
	}
	return nil
}

// unsaved is how many values have changes that the store has not confirmed.
func (t *Table) unsaved() (n int) {
	for _, lin := range t.writer.valued {
		if v := t.valueOf(lin); v != nil && !v.refused {
			v.mu.RLock()
			if v.dirty && v.learns || v.flight != nil {
				n++
			}
			v.mu.RUnlock()
		}
	}
	return n
}
