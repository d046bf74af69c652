package state

import (
	"errors"
	"fmt"
	"time"
)

const (
	maxKindBytes = 64
	// maxObjectNameBytes bounds names and subjects. It holds a model's name and its version.
	maxObjectNameBytes = 512
)

// objectLimits are the limits that tests lower.
type objectLimits struct {
	objects      int
	events       int
	historyBytes int
	// tombstones is how many deleted objects are remembered for Changes.
	tombstones int
	// page is how many objects or events one request to a server returns.
	page int
	// commits is how many IDs of commits are remembered.
	commits int
}

var defaultLimits = objectLimits{
	objects: MaxObjects, events: MaxEvents, historyBytes: MaxHistoryBytes,
	tombstones: 100_000, //xebec:limit deleted objects that a store remembers; a gateway that was away longer reads everything
	//xebec:limit commits that are recognised when they are sent again
	commits: 2048, // twice what Commit.ID promises
	page:    redisPage,
}

func tooManyObjects(n, limit int) error {
	return fmt.Errorf("there would be %d objects, and at most %d are allowed: delete some that are no longer needed: %w", n, limit, ErrTooMany)
}

// check validates a commit without looking at the store.
func (c *Commit) check() error {
	if c.ID == [16]byte{} {
		return errors.New("the change has no ID: expected a random one")
	}
	if n := len(c.Put) + len(c.Delete); n > MaxObjects {
		return fmt.Errorf("the change has %d objects, and at most %d are allowed: %w", n, MaxObjects, ErrTooMany)
	}
	if len(c.Events) > MaxEvents {
		return fmt.Errorf("the change has %d events, and at most %d are allowed: %w", len(c.Events), MaxEvents, ErrTooMany)
	}
	seen := make(map[ObjectKey]struct{}, len(c.Put)+len(c.Delete))
	once := func(k ObjectKey) error {
		if err := k.check(); err != nil {
			return err
		}
		if _, again := seen[k]; again {
			return fmt.Errorf("%s appears twice in the change: expected once", k)
		}
		seen[k] = struct{}{}
		return nil
	}
	total := 0
	for i := range c.Put {
		o := &c.Put[i]
		if err := once(o.ObjectKey); err != nil {
			return err
		}
		if len(o.Data) == 0 {
			return fmt.Errorf("%s has no data: expected some, or a deletion", o.ObjectKey)
		}
		if len(o.Data) > MaxObjectBytes {
			return fmt.Errorf("%s has %d bytes, and at most %d are allowed: %w", o.ObjectKey, len(o.Data), MaxObjectBytes, ErrTooMany)
		}
		total += len(o.Kind) + len(o.Name) + len(o.Data)
	}
	for _, k := range c.Delete {
		if err := once(k); err != nil {
			return err
		}
		total += len(k.Kind) + len(k.Name)
	}
	for i := range c.Events {
		e := &c.Events[i]
		if err := e.check(); err != nil {
			return err
		}
		total += len(e.Subject) + len(e.Data)
	}
	if total > MaxCommitBytes {
		return fmt.Errorf("the change has %d bytes, and at most %d are allowed: split it: %w", total, MaxCommitBytes, ErrTooMany)
	}
	return nil
}

func (k ObjectKey) check() error {
	switch {
	case !isKind(k.Kind):
		return fmt.Errorf("an object is of kind %.80q: expected 1 to %d letters and digits", k.Kind, maxKindBytes)
	case k.Name == "":
		return fmt.Errorf("an object of kind %s has no name: expected one", k.Kind)
	case len(k.Name) > maxObjectNameBytes:
		return fmt.Errorf("the name of an object of kind %s has %d bytes: expected at most %d", k.Kind, len(k.Name), maxObjectNameBytes)
	}
	return nil
}

// isKind accepts kinds that need no escaping in the keys of any store.
func isKind(kind string) bool {
	for i := range len(kind) {
		if c := kind[i]; !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9') {
			return false
		}
	}
	return 0 < len(kind) && len(kind) <= maxKindBytes
}

func (e *Event) check() error {
	if e.Subject == "" || len(e.Subject) > maxObjectNameBytes {
		return fmt.Errorf("an event's subject has %d bytes: expected 1 to %d", len(e.Subject), maxObjectNameBytes)
	}
	if len(e.Data) > MaxObjectBytes {
		return fmt.Errorf("an event of %q has %d bytes, and at most %d are allowed: %w", e.Subject, len(e.Data), MaxObjectBytes, ErrTooMany)
	}
	if !time.Unix(0, e.At.UnixNano()).Equal(e.At) {
		return fmt.Errorf("the time of an event of %q is %v: expected a time from 1678 to 2262", e.Subject, e.At)
	}
	return nil
}

// String returns the key for messages.
func (k ObjectKey) String() string { return fmt.Sprintf("%s %q", k.Kind, k.Name) }
