package state

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"

	bolt "go.etcd.io/bbolt"
)

// Lister lists the states of a store.
type Lister interface {
	// EachContext passes to do the contexts that have a state of a function and policy, some hundred at a time, in no order. A context may be
	// passed twice, and one whose state is made meanwhile may be missing. do may call the store. Its error ends the listing and is returned.
	EachContext(ctx context.Context, function, policy string, do func(contexts []string) error) error
}

// contextsPage is how many contexts of a file one transaction reads. It must not stay open while the caller writes.
const contextsPage = 512

func (f *fileStore) EachContext(ctx context.Context, function, policy string, do func(contexts []string) error) error {
	prefix := fileKey(Key{Function: function, Policy: policy})
	from := append(slices.Clone(prefix), 0) // after the global state, whose context is empty
	for {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("%s: given up by the caller: %w", f.path, err)
		}
		var page []string
		err := f.guard(func() error {
			return f.db.View(func(tx *bolt.Tx) error {
				records := tx.Bucket(policyBucket).Bucket([]byte(function))
				if records == nil {
					return nil
				}
				c := records.Cursor()
				for k, _ := c.Seek(from); len(page) < contextsPage && bytes.HasPrefix(k, prefix); k, _ = c.Next() {
					page = append(page, string(k[len(prefix):]))
				}
				return nil
			})
		})
		if err != nil || len(page) == 0 {
			return err
		}
		from = append(append(slices.Clone(prefix), page[len(page)-1]...), 0)
		if err := do(page); err != nil {
			return err
		}
	}
}

func (r *redisStore) EachContext(ctx context.Context, function, policy string, do func(contexts []string) error) error {
	if err := r.inFormat(ctx, func() error { return r.checkFormat(ctx) }); err != nil {
		return err
	}
	prefix := functionPrefix(function) + escape(policy) + ":"
	var cursor uint64
	for {
		keys, next, err := r.client.Scan(ctx, cursor, prefix+"*", redisScan).Result()
		if err != nil {
			return r.explain(err)
		}
		var contexts []string
		for _, key := range keys {
			if of, ok := strings.CutPrefix(key, prefix); ok && of != "" {
				contexts = append(contexts, of)
			}
		}
		if len(contexts) > 0 {
			if err := do(contexts); err != nil {
				return err
			}
		}
		if next == 0 {
			return nil
		}
		cursor = next
	}
}

// checkFormat returns an error if the database has another format.
func (r *redisStore) checkFormat(ctx context.Context) error {
	found, known, err := r.readFormat(ctx)
	if err == nil && known && found != r.format() {
		err = r.wrongFormat(found)
	}
	return err
}

// EachContext implements Lister. It needs the file.
func (h *Handover) EachContext(ctx context.Context, function, policy string, do func(contexts []string) error) error {
	s, err := h.held()
	if err != nil {
		return err
	}
	return s.EachContext(ctx, function, policy, do)
}

// held is the file, for calls that need it and do not wait for it.
func (h *Handover) held() (Backend, error) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	if h.store == nil {
		return nil, errElsewhere
	}
	return h.store, nil
}
