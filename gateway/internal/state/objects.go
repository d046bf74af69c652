package state

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Backend is a store that keeps policies' states and declared objects in one place. [Open] returns one.
type Backend interface {
	Store
	Objects
}

// Objects keeps what is declared: documents by name, whose meaning is not this package's, and the history of their changes. All objects
// of a store share one revision, a number that each commit raises by one. Any number of goroutines may use it.
type Objects interface {
	// Changes returns what has changed after the revision since, which is 0 or the Revision of an earlier answer of this opened store. One
	// goroutine at a time follows the store by what it was answered; others begin at 0.
	Changes(ctx context.Context, since uint64) (Changes, error)
	// Commit makes all of the changes, or none, and returns the store's new revision. When it returns nil they are durable: in a file on the disk,
	// in Redis as far as its own settings promise. [*StaleError]: the store has another revision than c.Base, and nothing was changed.
	// [*UnknownError]: the answer was lost, and it is not known whether they were made; to call it again with the same ID is safe, and tells.
	// After any other error nothing was changed.
	Commit(ctx context.Context, c *Commit) (uint64, error)
	// History returns the last events of a subject, newest first, at most limit; of all subjects where it is empty.
	History(ctx context.Context, subject string, limit int) ([]Event, error)
}

// Changes is what [Objects.Changes] answers: the store as it was at one moment.
type Changes struct {
	// Revision is the store's. It is lower than what was asked for where a server has lost commits: a replica that had not heard of them was
	// made the primary, or a server without a file was started again.
	Revision uint64
	// Complete says that Objects are all that there are, and what is not among them is gone. It is so for since 0, and where the store cannot
	// tell what has changed: it has lost commits, or so much was deleted that it does not remember all of that.
	Complete bool
	// Objects are ordered by kind and name. One that was deleted has nil Data; where they are complete, none is.
	Objects []Object
}

// ObjectKey names an object: a kind ("Model"), of letters and digits, and a name ("digits@3") of any bytes.
type ObjectKey struct{ Kind, Name string }

// Object is one document.
type Object struct {
	ObjectKey
	// Revision is the store's at its last change. Commit does not look at it.
	Revision uint64
	Data     []byte
}

// Commit is one change of the store.
type Commit struct {
	// ID is random and not zero: a commit that is sent again under its ID is made once. It is remembered for the next 1,024 commits at least.
	ID [16]byte
	// Base is the revision that the caller knows.
	Base uint64
	// Put are new or replaced objects, none without Data, Delete those that are to be gone, if they are there. No key is there twice.
	Put    []Object
	Delete []ObjectKey
	// Events are what the history is told. The store fills in their Revision.
	Events []Event
}

// Event is one entry of the history.
type Event struct {
	Revision uint64
	// At comes back in UTC, with its nanoseconds.
	At time.Time
	// Subject is what it is looked up by: a model's or function's name.
	Subject string
	Data    []byte
}

// Limits of objects.
const (
	// MaxObjects is more than are ever declared, and bounds what is read at the start.
	MaxObjects = 1 << 17
	// MaxObjectBytes bounds one object, and one event.
	MaxObjectBytes = 1 << 20
	// MaxCommitBytes bounds a commit: what all of it takes together.
	MaxCommitBytes = 64 << 20
	// MaxEvents is how many events the history keeps; the oldest give way.
	MaxEvents = 100_000
	// MaxHistoryBytes is what the events may take together; the oldest give way.
	MaxHistoryBytes = 128 << 20
)

// StaleError says that others have changed the store.
type StaleError struct{ Base, Revision uint64 }

func (e *StaleError) Error() string {
	if e.Revision <= e.Base {
		return fmt.Sprintf("the store has gone back to another revision %d, and the change was made for revision %d: the server has lost commits "+
			"(an older replica became the primary, or it was started again without its data); look at what is left, and try again", e.Revision, e.Base)
	}
	return fmt.Sprintf("the store has revision %d, and the change was made for revision %d: look at what others have changed, and try again", e.Revision, e.Base)
}

// UnknownError says that the store's answer to a commit was lost.
type UnknownError struct{ Err error }

func (e *UnknownError) Error() string {
	return fmt.Sprintf("it is not known whether the store has taken the change: %v", e.Err)
}

func (e *UnknownError) Unwrap() error { return e.Err }

// ErrTooMany is wrapped by errors about more than the limits.
var ErrTooMany = errors.New("more than the store takes")
