package state

import (
	"context"
	"fmt"
	"strings"
)

// Key names the state that a policy has for one context of one function. The context of the function's global state is empty.
type Key struct {
	Function, Policy, Context string
}

// Field is one number of a state, by name. Where the store has no such field it starts at Base, whoever comes first; then
// Delta is added.
type Field struct {
	Name        string
	Base, Delta float64
}

// Update adds to one state.
type Update struct {
	Key    Key
	Fields []Field
	// Seq increases from update to update of the same writer to the same key, from 1 on. An update whose Seq is not higher than
	// the last one that was applied is not applied again: its answer had been lost.
	Seq uint64
}

// Total is a field as the store has it.
type Total struct {
	Name  string
	Value float64
}

// Store keeps policy states: sums of what its writers have added. It is used by one goroutine at a time for writing and by
// any number for loading. An opened store is one writer: opened again it is another one, whose Seq may begin at 1 again.
type Store interface {
	// Merge applies updates, each at most once however often it is sent, and returns for each the whole state after it, in the
	// order of the updates. A state's totals are ordered by name. After an error some may have been applied: send the same ones
	// again, with the same Seq. The exception is a [*RefusedError]: all but the refused ones have been applied.
	Merge(ctx context.Context, updates []Update) ([][]Total, error)
	// Load reads states, ordered as Merge's; one that there is not is empty. With a [*RefusedError] all but the refused ones have
	// been read.
	Load(ctx context.Context, keys []Key) ([][]Total, error)
	// Forget drops every state of a function. What somebody merges meanwhile may stay.
	Forget(ctx context.Context, function string) error
	// Shared reports whether other gateways may write to the same states.
	Shared() bool
	// Name says where it is, for people, without passwords.
	Name() string
	Close() error
}

// RefusedError says which updates of a Merge, or keys of a Load, the store will never take as they are, because of what they
// hold or of what lies under their key. Nothing was changed for these, and their results are nil; the others of the same call
// were done, and their results are there. To send a refused one again would be refused again: drop it, and say so.
type RefusedError struct {
	Refused []Refusal // ordered by Index, never empty
}

// Refusal is one update or key that was refused.
type Refusal struct {
	Index  int // in what Merge or Load was given
	Key    Key
	Reason string // a sentence for people, what to do included
}

// Error gives the first reason, and how many more there are.
func (e *RefusedError) Error() string {
	first := e.Refused[0]
	more := ""
	if n := len(e.Refused) - 1; n > 0 {
		more = fmt.Sprintf(" (and %d more)", n)
	}
	return fmt.Sprintf("the policy state of %s is refused: %s%s", first.Key, first.Reason, more)
}

// String is the key as an operator reads it; a context may hold any bytes, and is quoted.
func (k Key) String() string {
	if k.Context == "" {
		return fmt.Sprintf("function %q, policy %q", k.Function, k.Policy)
	}
	return fmt.Sprintf("function %q, policy %q, context %q", k.Function, k.Policy, k.Context)
}

// Open opens the store that where names: a URL that begins with redis:// or rediss:// is a Redis server's ([OpenRedis]),
// anything else without "://" the path of a file ([OpenFile]).
func Open(where string) (Backend, error) {
	switch {
	case strings.HasPrefix(where, "redis://"), strings.HasPrefix(where, "rediss://"):
		return OpenRedis(where)
	case strings.Contains(where, "://"):
		scheme, _, _ := strings.Cut(where, "://")
		return nil, fmt.Errorf("the store's address begins with %q: expected redis://host:port/db, rediss://host:port/db, or the path of a file", scheme+"://")
	case where == "":
		return nil, fmt.Errorf("the store's address is empty: expected redis://host:port/db, rediss://host:port/db, or the path of a file")
	}
	return OpenFile(where)
}
