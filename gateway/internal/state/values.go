package state

import (
	"context"
	"fmt"
	"time"
)

// MaxValueBytes bounds a value of a policy.
const MaxValueBytes = 1 << 20 //xebec:limit value of a policy in the store

// Values keeps the values of policies whose knowledge is not a sum of numbers, one for each function and policy. The store does not
// interpret them. A value has a revision, which each save increments. One goroutine makes all calls.
//
// A value that cannot be merged has one writer at a time, which holds a lease on it. A lease has a fence, a number that increases
// whenever another writer takes the lease, and a save that carries an older fence is not applied: a gateway that was stopped for longer
// than its lease cannot overwrite what its successor has written.
type Values interface {
	// LeaseValue takes or renews this opened store's lease on a key for that long; 0 gives it up. A fence of 0 means that another
	// writer has the lease.
	LeaseValue(ctx context.Context, key Key, lasts time.Duration) (fence uint64, err error)
	// LoadValue reads a value. Data is nil if there is none, or if its revision is still since.
	LoadValue(ctx context.Context, key Key, since uint64) (Value, error)
	// SaveValue replaces a value. After an error it may have been replaced: send the same save again. A save that could not be applied
	// returns what the store has instead.
	SaveValue(ctx context.Context, s *Save) (Saved, error)
}

// Value is a value in the store.
type Value struct {
	Data     []byte
	Revision uint64 // 0: there is none
}

// Save replaces a value if its revision is Base and, where Fence is not 0, the lease with that fence is the last one that was given.
type Save struct {
	Key         Key // without a context
	Data        []byte
	Base, Fence uint64
	// Seq is as that of an [Update]. A save whose Seq was applied is not applied again.
	Seq uint64
}

// Saved is the result of a Save. Applied: the save is in the store; Value is what the store has now, which is of another writer if the
// save was applied before and its answer was lost. Data is nil if it is the data of the save.
type Saved struct {
	Value
	Applied bool
	// Fenced: the save was not applied because another writer has taken the lease.
	Fenced bool
}

func (k Key) checkValue() error {
	if k.Context != "" {
		return fmt.Errorf("it has the context %q: values are of functions", k.Context)
	}
	return k.check()
}

func (s *Save) check() error {
	if err := s.Key.checkValue(); err != nil {
		return err
	}
	if s.Seq == 0 {
		return fmt.Errorf("its sequence number is 0: expected one from 1 on, or it would never be applied")
	}
	if len(s.Data) > MaxValueBytes {
		return fmt.Errorf("it has %d bytes: expected at most %d", len(s.Data), MaxValueBytes)
	}
	return nil
}

func refuse(k Key, reason string) error { return &RefusedError{[]Refusal{{0, k, reason}}} }
