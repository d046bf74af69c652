package state

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"
	bolt "go.etcd.io/bbolt"
)

// Note is a small document that the gateway can do without, such as a measurement: it survives a restart, has no revision and no history,
// and replaces the note of its name. Notes of one series are ordered by name, byte by byte.
type Note struct {
	Name string
	// Data is empty only in a call of PutNotes, which then deletes the note.
	Data []byte
}

// Notes keeps notes in series. They are no objects: a note does not change the store's revision, so that a measurement never refuses a
// declaration that was made against an earlier revision. Any number of goroutines may use it. Of two gateways that put a note of the same name,
// the later one wins.
type Notes interface {
	// PutNotes adds, replaces and deletes notes of a series. Then it deletes those whose names sort first, until at most keep are left.
	PutNotes(ctx context.Context, series string, notes []Note, keep int) error
	// ReadNotes returns the notes of a series, by name.
	ReadNotes(ctx context.Context, series string) ([]Note, error)
	// DropNotes deletes a series.
	DropNotes(ctx context.Context, series string) error
}

// SeriesOf is the series of a function's own notes, which [Store.Forget] deletes with the function's states.
func SeriesOf(function string) string { return "function/" + function }

// Limits of notes.
const (
	// MaxNotes bounds a series.
	MaxNotes = 16384 //xebec:limit notes in a series of the store
	// MaxNoteBytes bounds the data of a note.
	MaxNoteBytes = 64 << 10 //xebec:limit one note
	// maxNoteName bounds the name of a note and of a series.
	maxNoteName = 512
)

// notesBucket has a bucket for each series. It is made with the first note and is no part of the file's format: a program that does not know it
// leaves it alone and misses nothing that it needs.
var notesBucket = []byte("notes")

// notesPrefix begins the key of a series in Redis, a hash from names to data.
const notesPrefix = "xebec:notes:"

func checkSeries(series string) error {
	if series == "" || len(series) > maxNoteName {
		return fmt.Errorf("the name of a series has %d bytes: expected 1 to %d", len(series), maxNoteName)
	}
	return nil
}

func checkNotes(series string, notes []Note, keep int) error {
	if err := checkSeries(series); err != nil {
		return err
	}
	if keep < 1 || keep > MaxNotes {
		return fmt.Errorf("series %q is to keep %d notes: expected 1 to %d", series, keep, MaxNotes)
	}
	if len(notes) > MaxNotes {
		return fmt.Errorf("series %q gets %d notes at once: expected at most %d", series, len(notes), MaxNotes)
	}
	for _, n := range notes {
		switch {
		case n.Name == "" || len(n.Name) > maxNoteName:
			return fmt.Errorf("series %q: the name of a note has %d bytes: expected 1 to %d", series, len(n.Name), maxNoteName)
		case len(n.Data) > MaxNoteBytes:
			return fmt.Errorf("series %q: note %q has %d bytes: expected at most %d", series, n.Name, len(n.Data), MaxNoteBytes)
		}
	}
	return nil
}

func (f *fileStore) PutNotes(ctx context.Context, series string, notes []Note, keep int) error {
	if err := checkNotes(series, notes, keep); err != nil {
		return err
	}
	if err := f.checkContext(ctx); err != nil {
		return err
	}
	return f.guard(func() error {
		return f.updateHeld(func(tx *bolt.Tx) error {
			all, err := tx.CreateBucketIfNotExists(notesBucket)
			if err != nil {
				return err
			}
			of, err := all.CreateBucketIfNotExists([]byte(series))
			if err != nil {
				return err
			}
			for _, n := range notes {
				if len(n.Data) == 0 {
					err = of.Delete([]byte(n.Name))
				} else {
					err = of.Put([]byte(n.Name), n.Data)
				}
				if err != nil {
					return err
				}
			}
			return trimNotes(of, keep)
		})
	})
}

// trimNotes deletes the notes that sort first until keep are left.
func trimNotes(of *bolt.Bucket, keep int) error {
	var names [][]byte
	c := of.Cursor()
	for name, _ := c.First(); name != nil; name, _ = c.Next() {
		names = append(names, bytes.Clone(name))
	}
	for _, name := range names[:max(0, len(names)-keep)] {
		if err := of.Delete(name); err != nil {
			return err
		}
	}
	return nil
}

func (f *fileStore) ReadNotes(ctx context.Context, series string) (notes []Note, err error) {
	if err := checkSeries(series); err != nil {
		return nil, err
	}
	if err := f.checkContext(ctx); err != nil {
		return nil, err
	}
	err = f.guard(func() error {
		return f.db.View(func(tx *bolt.Tx) error {
			all := tx.Bucket(notesBucket)
			if all == nil {
				return nil
			}
			of := all.Bucket([]byte(series))
			if of == nil {
				return nil
			}
			return of.ForEach(func(name, data []byte) error {
				notes = append(notes, Note{string(name), bytes.Clone(data)})
				return nil
			})
		})
	})
	return notes, err
}

func (f *fileStore) DropNotes(ctx context.Context, series string) error {
	if err := checkSeries(series); err != nil {
		return err
	}
	if err := f.checkContext(ctx); err != nil {
		return err
	}
	return f.guard(func() error {
		return f.updateHeld(func(tx *bolt.Tx) error {
			return dropNotes(tx, series)
		})
	})
}

func dropNotes(tx *bolt.Tx, series string) error {
	all := tx.Bucket(notesBucket)
	if all == nil || all.Bucket([]byte(series)) == nil {
		return nil
	}
	return all.DeleteBucket([]byte(series))
}

func notesKey(series string) string { return notesPrefix + escape(series) }

func (r *redisStore) PutNotes(ctx context.Context, series string, notes []Note, keep int) error {
	if err := checkNotes(series, notes, keep); err != nil {
		return err
	}
	key := notesKey(series)
	_, err := r.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, n := range notes {
			if len(n.Data) == 0 {
				p.HDel(ctx, key, n.Name)
			} else {
				p.HSet(ctx, key, n.Name, n.Data)
			}
		}
		return nil
	})
	if err != nil {
		return r.explain(err)
	}
	count, err := r.client.HLen(ctx, key).Result()
	if err != nil {
		return r.explain(err)
	}
	if count <= int64(keep) {
		return nil
	}
	names, err := r.client.HKeys(ctx, key).Result()
	if err != nil {
		return r.explain(err)
	}
	slices.Sort(names)
	for piece := range slices.Chunk(names[:max(0, len(names)-keep)], redisUnlink) {
		if err := r.client.HDel(ctx, key, piece...).Err(); err != nil {
			return r.explain(err)
		}
	}
	return nil
}

func (r *redisStore) ReadNotes(ctx context.Context, series string) ([]Note, error) {
	if err := checkSeries(series); err != nil {
		return nil, err
	}
	all, err := r.client.HGetAll(ctx, notesKey(series)).Result()
	if err != nil {
		return nil, r.explain(err)
	}
	notes := make([]Note, 0, len(all))
	for name, data := range all {
		notes = append(notes, Note{name, []byte(data)})
	}
	slices.SortFunc(notes, func(a, b Note) int { return strings.Compare(a.Name, b.Name) })
	return notes, nil
}

func (r *redisStore) dropNotes(ctx context.Context, series string) error {
	if err := r.client.Unlink(ctx, notesKey(series)).Err(); err != nil {
		return r.explain(err)
	}
	return nil
}

func (r *redisStore) DropNotes(ctx context.Context, series string) error {
	if err := checkSeries(series); err != nil {
		return err
	}
	return r.dropNotes(ctx, series)
}

// PutNotes implements Notes. It needs the file.
func (h *Handover) PutNotes(ctx context.Context, series string, notes []Note, keep int) error {
	s, err := h.held()
	if err != nil {
		return err
	}
	return s.PutNotes(ctx, series, notes, keep)
}

// ReadNotes implements Notes. It needs the file.
func (h *Handover) ReadNotes(ctx context.Context, series string) ([]Note, error) {
	s, err := h.held()
	if err != nil {
		return nil, err
	}
	return s.ReadNotes(ctx, series)
}

// DropNotes implements Notes. It needs the file.
func (h *Handover) DropNotes(ctx context.Context, series string) error {
	s, err := h.held()
	if err != nil {
		return err
	}
	return s.DropNotes(ctx, series)
}
