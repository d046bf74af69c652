package state

import (
	"context"
	"fmt"
	"strings"
)

// Key identifies the state of a policy for one context of a function. The function's global state has an empty Context.
type Key struct {
	Function, Policy, Context string
}

// Field updates one number of a state. If the store has no number of this name, it starts at Base. Then Delta is added.
type Field struct {
	Name        string
	Base, Delta float64
}

// Update adds to the numbers of one state.
type Update struct {
	Key    Key
	Fields []Field
	// Seq starts at 1 and increases with each update of a writer to the same key. An update whose Seq is not higher than the last one
	// applied is a retry and is not applied again.
	Seq uint64
}

// Total is the value of one number of a state.
type Total struct {
	Name  string
	Value float64
}

// Store keeps the states of policies, which are sums of what the writers have added. One goroutine at a time may write, any number may
// load. Each opened store is a writer of its own whose Seq starts at 1.
type Store interface {
	Lister
	// Merge applies updates, each at most once however often it is sent. It returns the whole state after each update, in the order of the
	// updates, with totals ordered by name. After an error some updates may have been applied: send the same ones again with the same
	// Seq. The exception is a [*RefusedError]: all but the refused updates have been applied.
	Merge(ctx context.Context, updates []Update) ([][]Total, error)
	// Load reads states in the order of the keys, with totals ordered by name. A missing state is empty. With a [*RefusedError] all but the
	// refused states have been read.
	Load(ctx context.Context, keys []Key) ([][]Total, error)
	// Forget deletes every state of a function, and its notes ([SeriesOf]). Updates merged meanwhile may survive.
	Forget(ctx context.Context, function string) error
	// Shared reports whether other gateways may write to the same store.
	Shared() bool
	// Name says where the store is, for messages. It has no password.
	Name() string
	Close() error
}

// RefusedError lists the updates of a Merge, or the keys of a Load, that the store can never accept because of their content or of the data
// under their key. They changed nothing, and their results are nil. All others of the call were processed and have results. A
// refused update would be refused again: drop it and report it.
type RefusedError struct {
	Refused []Refusal // ordered by Index, never empty
}

// Refusal is one update or key that was refused.
type Refusal struct {
	Index  int // in the arguments of Merge or Load
	Key    Key
	Reason string // for messages; it says what to do
}

// Error returns the first reason and how many more there are.
func (e *RefusedError) Error() string {
	first := e.Refused[0]
	more := ""
	if n := len(e.Refused) - 1; n > 0 {
		more = fmt.Sprintf(" (and %d more)", n)
	}
	return fmt.Sprintf("the policy state of %s is refused: %s%s", first.Key, first.Reason, more)
}

// String returns the key for messages. The context is quoted because it may have any bytes.
func (k Key) String() string {
	if k.Context == "" {
		return fmt.Sprintf("function %q, policy %q", k.Function, k.Policy)
	}
	return fmt.Sprintf("function %q, policy %q, context %q", k.Function, k.Policy, k.Context)
}

// Open opens the store that where names: a Redis server if it begins with redis:// or rediss:// ([OpenRedis]), otherwise the file with this
// path ([OpenFile]). Other URLs are an error.
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
