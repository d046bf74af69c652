package state

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	bolt "go.etcd.io/bbolt"
)

// Objects in a file. object_record.go has the layout.

// A damagedError says that the content of the file is damaged.
type damagedError struct{ error }

func (e damagedError) Unwrap() error { return e.error }

func damagedFor(what string, err error) error { return damagedError{fmt.Errorf("%s: %w", what, err)} }

// checkContext returns an error if the context has ended.
func (f *fileStore) checkContext(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%s: given up by the caller: %w", f.path, err)
	}
	return nil
}

func (f *fileStore) Commit(ctx context.Context, c *Commit) (uint64, error) {
	if err := f.checkContext(ctx); err != nil {
		return 0, err
	}
	if err := c.check(); err != nil {
		return 0, fmt.Errorf("%s: nothing was changed: %w", f.path, err)
	}
	f.objectsLock.Lock()
	defer f.objectsLock.Unlock()
	var revision uint64
	err := f.guard(func() (err error) {
		revision, err = f.commit(c, f.stage)
		return err
	})
	if err != nil {
		return 0, err
	}
	return revision, nil
}

// commit runs stage in a transaction.
func (f *fileStore) commit(c *Commit, stage func(*bolt.Tx, *Commit) (uint64, []ObjectKey, bool, error)) (revision uint64, err error) {
	var deleted []ObjectKey
	staged, again := false, false
	err = f.update(func(tx *bolt.Tx) (err error) {
		revision, deleted, again, err = stage(tx, c)
		staged = err == nil
		return err
	})
	switch {
	case err == nil:
		if !again {
			f.deleted.note(revision, c.Put, deleted, f.limits.tombstones)
		}
		if err := f.CheckPath(); err != nil { // the file went away meanwhile, and may come back with the change or without
			return 0, &UnknownError{err}
		}
	case staged && f.hasCommit(c.ID):
		// The last write of the transaction reached the file, but perhaps not the disk. So it is not known what has changed either, and
		// readers get everything.
		f.deleted.start(revision)
		return 0, &UnknownError{err}
	}
	return revision, err
}

// hasCommit reports whether a commit is in the file as this process sees it.
func (f *fileStore) hasCommit(id [16]byte) (found bool) {
	err := f.db.View(func(tx *bolt.Tx) (err error) {
		_, found, err = findCommit(tx, id)
		return err
	})
	return err == nil && found
}

// findCommit returns the revision that a remembered commit made. It searches from the newest, because those are the ones sent again.
func findCommit(tx *bolt.Tx, id [16]byte) (uint64, bool, error) {
	cursor := tx.Bucket(commitsBucket).Cursor()
	for key, value := cursor.Last(); key != nil; key, value = cursor.Prev() {
		body, err := unseal(key, value)
		if err == nil && len(key) != 8 {
			err = fmt.Errorf("its key has %d bytes, expected 8", len(key))
		}
		if err != nil {
			return 0, false, damagedFor("the record of a commit", err)
		}
		if bytes.Equal(body, id[:]) {
			return binary.BigEndian.Uint64(key), true, nil
		}
	}
	return 0, false, nil
}

// stage makes the commit in the transaction. It returns the revision, the objects that existed and are deleted, and whether a commit with
// this ID was made before.
func (f *fileStore) stage(tx *bolt.Tx, c *Commit) (revision uint64, deleted []ObjectKey, again bool, err error) {
	h, err := readHead(tx)
	if err != nil {
		return 0, nil, false, err
	}
	revision, again, err = findCommit(tx, c.ID)
	if err != nil {
		return 0, nil, false, err
	}
	if again {
		return revision, nil, true, nil
	}
	if c.Base != h.revision {
		return 0, nil, false, &StaleError{Base: c.Base, Revision: h.revision}
	}
	h.revision++
	if deleted, err = f.stageObjects(tx, &h, c); err != nil {
		return 0, nil, false, err
	}
	if err := f.stageEvents(tx, &h, c.Events); err != nil {
		return 0, nil, false, err
	}
	key := numberKey(h.revision)
	commits := tx.Bucket(commitsBucket)
	if err := commits.Put(key, seal(append([]byte{}, c.ID[:]...), 0, key)); err != nil {
		return 0, nil, false, err
	}
	for {
		oldest, _ := commits.Cursor().First()
		if len(oldest) != 8 || binary.BigEndian.Uint64(oldest)+uint64(f.limits.commits) > h.revision {
			break
		}
		if err := commits.Delete(oldest); err != nil {
			return 0, nil, false, err
		}
	}
	return h.revision, deleted, false, writeHead(tx, &h)
}

func (f *fileStore) stageObjects(tx *bolt.Tx, h *head, c *Commit) ([]ObjectKey, error) {
	objects, before := tx.Bucket(objectsBucket), h.objects
	var deleted []ObjectKey
	for _, k := range c.Delete {
		key := fileObjectKey(k)
		if objects.Get(key) == nil {
			continue
		}
		if err := objects.Delete(key); err != nil {
			return nil, err
		}
		h.objects--
		deleted = append(deleted, k)
	}
	for i := range c.Put {
		o := &c.Put[i]
		key := fileObjectKey(o.ObjectKey)
		if objects.Get(key) == nil {
			h.objects++
		}
		if err := objects.Put(key, encodeObject(key, h.revision, o.Data)); err != nil {
			return nil, err
		}
	}
	if h.objects > uint64(f.limits.objects) && h.objects > before {
		return nil, tooManyObjects(int(h.objects), f.limits.objects)
	}
	return deleted, nil
}

func (f *fileStore) stageEvents(tx *bolt.Tx, h *head, events []Event) error {
	history, subjects := tx.Bucket(historyBucket), tx.Bucket(subjectsBucket)
	for i := range events {
		h.newest++
		key := numberKey(h.newest)
		value := encodeEvent(key, h.revision, &events[i])
		h.historyBytes += uint64(len(value))
		if err := history.Put(key, value); err != nil {
			return err
		}
		index := append(subjectKey(events[i].Subject), key...)
		if err := subjects.Put(index, seal(nil, 0, index)); err != nil {
			return err
		}
	}
	for h.events() > f.limits.events || h.historyBytes > uint64(f.limits.historyBytes) {
		key := numberKey(h.oldest)
		value := history.Get(key)
		// An old event that cannot be read must not block new ones: it is deleted, and its entry in the index stays without an event.
		if e, err := decodeEvent(key, value); err == nil {
			if err := subjects.Delete(append(subjectKey(e.Subject), key...)); err != nil {
				return err
			}
		}
		h.historyBytes -= min(h.historyBytes, uint64(len(value)))
		if err := history.Delete(key); err != nil {
			return err
		}
		h.oldest++
		if h.events() == 0 {
			h.historyBytes = 0
		}
	}
	return nil
}

func (f *fileStore) Changes(ctx context.Context, since uint64) (Changes, error) {
	if err := f.checkContext(ctx); err != nil {
		return Changes{}, err
	}
	f.objectsLock.RLock()
	defer f.objectsLock.RUnlock()
	var result Changes
	err := f.guard(func() error {
		return f.db.View(func(tx *bolt.Tx) (err error) {
			result, err = f.changes(tx, since)
			return err
		})
	})
	if err != nil {
		return Changes{}, err
	}
	return result, nil
}

func (f *fileStore) changes(tx *bolt.Tx, since uint64) (Changes, error) {
	h, err := readHead(tx)
	if err != nil {
		return Changes{}, err
	}
	c := Changes{Revision: h.revision, Complete: since == 0 || since > h.revision || since < f.deleted.floor}
	if since == h.revision && !c.Complete {
		return c, nil
	}
	if c.Complete {
		since = 0
	}
	// This scans all objects, however few have changed. There is no index by revision because the process that asks is the one that
	// commits, and it asks after its own commits.
	n := uint64(0)
	objects := tx.Bucket(objectsBucket).Cursor()
	for key, value := objects.First(); key != nil; key, value = objects.Next() {
		o, err := decodeObject(key, value)
		if err != nil {
			return Changes{}, damagedFor(fmt.Sprintf("the record of %.600q", key), err)
		}
		if n++; o.Revision > since {
			o.Data = bytes.Clone(o.Data)
			c.Objects = append(c.Objects, o)
		}
	}
	if n != h.objects {
		return Changes{}, damagedError{fmt.Errorf("it has %d objects, expected %d", n, h.objects)}
	}
	if !c.Complete {
		for k, revision := range f.deleted.at {
			if revision > since {
				c.Objects = append(c.Objects, Object{ObjectKey: k, Revision: revision})
			}
		}
		sortObjects(c.Objects)
	}
	return c, nil
}

// sortObjects orders objects by kind and name.
func sortObjects(objects []Object) {
	slices.SortFunc(objects, func(a, b Object) int {
		if order := strings.Compare(a.Kind, b.Kind); order != 0 {
			return order
		}
		return strings.Compare(a.Name, b.Name)
	})
}

func (f *fileStore) History(ctx context.Context, subject string, limit int) ([]Event, error) {
	if err := f.checkContext(ctx); err != nil {
		return nil, err
	}
	var events []Event
	err := f.guard(func() error {
		return f.db.View(func(tx *bolt.Tx) (err error) {
			events, err = f.history(tx, subject, limit)
			return err
		})
	})
	if err != nil {
		return nil, err
	}
	return events, nil
}

func (f *fileStore) history(tx *bolt.Tx, subject string, limit int) ([]Event, error) {
	h, err := readHead(tx)
	if err != nil {
		return nil, err
	}
	var events []Event
	for number := range eventNumbers(tx, &h, subject) {
		if len(events) >= limit {
			break
		}
		key := numberKey(number)
		e, err := decodeEvent(key, tx.Bucket(historyBucket).Get(key))
		if err == nil && subject != "" && e.Subject != subject {
			err = fmt.Errorf("its subject is %q, and the index says %q", e.Subject, subject)
		}
		if err != nil {
			return nil, damagedFor(fmt.Sprintf("the record of event %d", number), err)
		}
		events = append(events, e)
	}
	return events, nil
}

// eventNumbers iterates over the numbers of a subject's events, newest first; over all events if the subject is empty.
func eventNumbers(tx *bolt.Tx, h *head, subject string) func(yield func(uint64) bool) {
	if subject == "" {
		return func(yield func(uint64) bool) {
			for number := h.newest; number >= h.oldest && yield(number); number-- {
			}
		}
	}
	return func(yield func(uint64) bool) {
		prefix := subjectKey(subject)
		cursor := tx.Bucket(subjectsBucket).Cursor()
		// Start one behind the subject's last event: no number has all bits set.
		key, _ := cursor.Seek(append(bytes.Clone(prefix), 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff))
		if key == nil {
			key, _ = cursor.Last()
		} else {
			key, _ = cursor.Prev()
		}
		for ; len(key) == len(prefix)+8 && bytes.HasPrefix(key, prefix); key, _ = cursor.Prev() {
			number := binary.BigEndian.Uint64(key[len(prefix):])
			if number < h.oldest || !yield(number) {
				return
			}
		}
	}
}
