package state

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Backend is a store of learned states, values, declared objects and notes. [Open] returns one.
type Backend interface {
	Store
	Objects
	Values
	Notes
}

// Objects stores declared objects, which are documents that this package does not interpret, and the history of their changes. All objects
// of a store share one revision, a number that each commit increments. Any number of goroutines may use it.
type Objects interface {
	// Changes returns what has changed after the revision since, which is 0 or the Revision of an earlier result of this opened store. One
	// goroutine at a time may follow the store from result to result; others pass 0.
	Changes(ctx context.Context, since uint64) (Changes, error)
	// Commit applies all of the changes or none, and returns the store's new revision. When the error is nil they are durable: a file
	// has them on disk, a Redis server as its settings say. With a [*StaleError] the store's revision is not c.Base, and nothing was changed.
	// With an [*UnknownError] the answer was lost, and the changes may have been made: calling Commit again with the same ID is safe and
	// resolves it. After any other error nothing was changed.
	Commit(ctx context.Context, c *Commit) (uint64, error)
	// History returns the last events of a subject, at most limit, newest first. An empty subject stands for all.
	History(ctx context.Context, subject string, limit int) ([]Event, error)
}

// Changes is the result of [Objects.Changes], a consistent snapshot.
type Changes struct {
	// Revision is the store's revision. It is lower than since if a server has lost commits: a replica that lagged behind was promoted, or a
	// server without persistence restarted.
	Revision uint64
	// Complete says that Objects are all objects of the store, so any other object is gone. It is set if since is 0, and if the store
	// cannot tell what has changed because it lost commits or no longer remembers all deletions.
	Complete bool
	// Objects are ordered by kind and name. A deleted object has nil Data; there is none if Complete is set.
	Objects []Object
}

// ObjectKey identifies an object by its kind ("Model"), of letters and digits, and its name ("digits@3"), of any bytes.
type ObjectKey struct{ Kind, Name string }

// Object is one document.
type Object struct {
	ObjectKey
	// Revision is the store's revision at the object's last change. Commit ignores it.
	Revision uint64
	Data     []byte
}

// Commit is one change of the store.
type Commit struct {
	// ID is random and not zero. A commit that is sent again with its ID is applied once. IDs are remembered for at least the next 1,024
	// commits.
	ID [16]byte
	// Base is the revision that the commit is made against.
	Base uint64
	// Put has the objects to add or replace, which must have Data. Delete has the objects to delete; missing ones are ignored. A key may
	// appear once in both together.
	Put    []Object
	Delete []ObjectKey
	// Events are added to the history. The store sets their Revision.
	Events []Event
}

// Event is one entry of the history.
type Event struct {
	Revision uint64
	// At is read back in UTC, with its nanoseconds.
	At time.Time
	// Subject is what [Objects.History] looks events up by: a model's or function's name.
	Subject string
	Data    []byte
}

// Limits of objects.
const (
	// MaxObjects is more than anyone declares. It bounds what is read at the start.
	MaxObjects = 1 << 17 //xebec:limit models, functions and traffic rules in the store
	// MaxObjectBytes bounds the data of one object and of one event.
	MaxObjectBytes = 1 << 20 //xebec:limit one object, and one history entry
	// MaxCommitBytes bounds a commit as a whole.
	MaxCommitBytes = 64 << 20 //xebec:limit one commit
	// MaxEvents is how many events the history keeps. The oldest are dropped.
	MaxEvents = 100_000 //xebec:limit history entries; the oldest are dropped
	// MaxHistoryBytes bounds all events together. The oldest are dropped.
	MaxHistoryBytes = 128 << 20 //xebec:limit bytes of the history
)

// StaleError says that the store's revision is not the one that the commit was made against.
type StaleError struct{ Base, Revision uint64 }

func (e *StaleError) Error() string {
	if e.Revision <= e.Base {
		return fmt.Sprintf("the store has gone back to a different revision %d, and the change was made for revision %d: the server has lost commits "+
			"(an older replica became the primary, or it restarted without its data); check what is left, and try again", e.Revision, e.Base)
	}
	return fmt.Sprintf("the store has revision %d, and the change was made for revision %d: check what others have changed, and try again", e.Revision, e.Base)
}

// UnknownError says that the answer to a commit was lost, so the commit may have been made or not.
type UnknownError struct{ Err error }

func (e *UnknownError) Error() string {
	return fmt.Sprintf("it is not known whether the store has taken the change: %v", e.Err)
}

func (e *UnknownError) Unwrap() error { return e.Err }

// ErrTooMany is wrapped by errors about exceeded limits.
var ErrTooMany = errors.New("more than the store allows")
