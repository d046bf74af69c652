package state

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
)

// Limits of states. They bound the growth of a state, and keep what is read within what can have been written.
const (
	// maxFields is 64 candidates with 64 numbers each.
	maxFields = 64 * 64 //xebec:limit numbers in a policy state
	// maxFieldBytes holds a model's name, its version and the name of the number.
	maxFieldBytes = 512 //xebec:limit name of such a number
	// maxNameBytes is the length of a DNS name; names of functions and policies are shorter.
	maxNameBytes = 253
	// maxContextBytes is the longest context that the gateway accepts.
	maxContextBytes = 256
)

func (k Key) check() error {
	switch {
	case k.Function == "" || k.Policy == "":
		return errors.New("it names no function, or no policy: both are needed")
	case len(k.Function) > maxNameBytes:
		return fmt.Errorf("the function's name has %d bytes: expected at most %d", len(k.Function), maxNameBytes)
	case len(k.Policy) > maxNameBytes:
		return fmt.Errorf("the policy's name has %d bytes: expected at most %d", len(k.Policy), maxNameBytes)
	case len(k.Context) > maxContextBytes:
		return fmt.Errorf("the context has %d bytes: expected at most %d", len(k.Context), maxContextBytes)
	}
	return nil
}

func (u *Update) check() error {
	if err := u.Key.check(); err != nil {
		return err
	}
	if u.Seq == 0 {
		return errors.New("its sequence number is 0: expected one from 1 on, or it would never be applied")
	}
	if len(u.Fields) > maxFields {
		return fmt.Errorf("it has %d fields: expected at most %d", len(u.Fields), maxFields)
	}
	for i := range u.Fields {
		f := &u.Fields[i]
		if f.Name == "" || len(f.Name) > maxFieldBytes {
			return fmt.Errorf("a field's name has %d bytes: expected 1 to %d", len(f.Name), maxFieldBytes)
		}
		if !finite(f.Base) || !finite(f.Delta) {
			return fmt.Errorf("field %q is %v + %v: expected finite numbers, because the sum could never recover", f.Name, f.Base, f.Delta)
		}
	}
	return nil
}

func finite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }

// Reasons that both kinds of store give.
func reasonTooMany(n int) string {
	return fmt.Sprintf("it would have %d fields: expected at most %d; delete the function's learned state to start over", n, maxFields)
}

func reasonOverflow(field string) string {
	return fmt.Sprintf("the sum of field %q is no longer a finite number: check the losses that were sent", field)
}

// refusals collects what a call refuses.
type refusals []Refusal

func (r *refusals) add(i int, k Key, reason string) { *r = append(*r, Refusal{i, k, reason}) }

// err returns the call's error, nil if nothing was refused.
func (r refusals) err() error {
	if len(r) == 0 {
		return nil
	}
	slices.SortFunc(r, func(a, b Refusal) int { return a.Index - b.Index })
	return &RefusedError{Refused: r}
}

// sortTotals orders a state by name, so that the results of two stores can be compared and printed.
func sortTotals(t []Total) {
	slices.SortFunc(t, func(a, b Total) int { return strings.Compare(a.Name, b.Name) })
}
