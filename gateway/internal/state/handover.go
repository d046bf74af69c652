package state

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"time"
)

// Handover is a Backend over a file that two gateways hold one after the other, while both serve: the old one of an upgrade, and the
// new one. It has the file itself, or a copy of it with what is declared, or another gateway that has the file, or nothing for the
// moment. In the last two cases calls about learned states wait for their contexts, and changes of objects are refused.
type Handover struct {
	path string

	mu      sync.RWMutex   // held for reading while a call is in the store
	store   Backend        // nil: the file is not here
	copied  Backend        // nil, or a copy of the file that answers for objects until the file comes
	commits []*Commit      // made in the copy
	learned Learned        // nil, or the gateway that has the file now
	asking  sync.WaitGroup // calls of learned
	changed chan struct{}
	closed  bool
}

// Learned is the part of a Store that a gateway without the file asks of the one that has it.
type Learned interface {
	Merge(ctx context.Context, updates []Update) ([][]Total, error)
	Load(ctx context.Context, keys []Key) ([][]Total, error)
}

var errElsewhere = errors.New("the store is with another process of this gateway, which takes over: nothing was changed; try again in a moment")

// OwnFile is a Handover that begins with the file.
func OwnFile(path string) (*Handover, error) {
	store, err := OpenFile(path)
	if err != nil {
		return nil, err
	}
	h := awaitingFile(store.Name())
	h.store = store
	return h, nil
}

// AwaitFile is a Handover that begins with a copy of the file, which it closes when the file comes. The copy must be there: the process that
// has made it removes it when the handover is called off, and an empty one in its place would declare nothing.
func AwaitFile(path, copied string) (*Handover, error) {
	c, err := openExisting(copied)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s: the process that has made this copy of the store has removed it, and hands nothing over: %w", copied, err)
	}
	if err != nil {
		return nil, err
	}
	h := awaitingFile(path)
	h.copied = c
	return h, nil
}

func awaitingFile(path string) *Handover { return &Handover{path: path, changed: make(chan struct{})} }

// Copy writes a consistent copy of the file to path.
func (h *Handover) Copy(path string) error {
	h.mu.RLock()
	defer h.mu.RUnlock()
	f, ok := h.store.(*fileStore)
	if !ok {
		return errElsewhere
	}
	return f.copyTo(path)
}

// Release closes the file. Calls that are in it end first. From then on calls wait until the file is taken again, or passed on.
func (h *Handover) Release() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.store == nil {
		return errElsewhere
	}
	err := h.store.Close()
	h.set(nil, nil)
	return err
}

// Take opens the file, which no other process holds any more, and makes in it the commits that were made in the copy.
func (h *Handover) Take(ctx context.Context) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.store != nil {
		return nil
	}
	store, err := OpenFile(h.path)
	if err != nil {
		return err
	}
	for _, c := range h.commits {
		if _, err := store.Commit(ctx, c); err != nil {
			return errors.Join(fmt.Errorf("make the changes of --config durable: %w", err), store.Close())
		}
	}
	if h.copied != nil {
		_ = h.copied.Close() // it is thrown away
	}
	h.copied, h.commits = nil, nil
	h.set(store, nil)
	return nil
}

// PassOn lets another gateway, which has the file now, answer what is asked about learned states.
func (h *Handover) PassOn(to Learned) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.set(nil, to)
}

// Recall ends PassOn, and waits for the answers to what was asked: a call that was made again in the file would count twice.
func (h *Handover) Recall() {
	h.mu.Lock()
	if h.learned != nil {
		h.set(h.store, nil)
	}
	h.mu.Unlock()
	h.asking.Wait()
}

// Guest is the file for another gateway, which does not have it any more: a writer of its own.
func (h *Handover) Guest() Learned {
	g := &guest{h: h}
	rand.Read(g.writer[:])
	return g
}

type guest struct {
	h      *Handover
	writer [16]byte
}

func (g *guest) Merge(ctx context.Context, updates []Update) (totals [][]Total, err error) {
	err = g.h.withLearned(ctx, func(l Learned) (err error) {
		if f, ok := l.(*fileStore); ok {
			totals, err = f.mergeAs(ctx, g.writer, updates)
		} else {
			totals, err = l.Merge(ctx, updates)
		}
		return err
	})
	return totals, err
}

func (g *guest) Load(ctx context.Context, keys []Key) ([][]Total, error) { return g.h.Load(ctx, keys) }

// set changes where the file is, and wakes the calls that wait. Its caller holds mu.
func (h *Handover) set(store Backend, learned Learned) {
	h.store, h.learned = store, learned
	close(h.changed)
	h.changed = make(chan struct{})
}

// withLearned calls do with what has the learned states, and waits for it if there is nothing at the moment.
func (h *Handover) withLearned(ctx context.Context, do func(Learned) error) error {
	for {
		h.mu.RLock()
		switch changed := h.changed; {
		case h.closed:
			h.mu.RUnlock()
			return fmt.Errorf("%s: the store is closed", h.path)
		case h.store != nil:
			defer h.mu.RUnlock()
			return do(h.store)
		case h.learned != nil:
			to := h.learned
			h.asking.Add(1)
			defer h.asking.Done()
			h.mu.RUnlock()
			return do(to)
		default:
			h.mu.RUnlock()
			select {
			case <-changed:
			case <-ctx.Done():
				return errElsewhere
			}
		}
	}
}

// Merge implements Store.
func (h *Handover) Merge(ctx context.Context, updates []Update) (totals [][]Total, err error) {
	err = h.withLearned(ctx, func(l Learned) (err error) { totals, err = l.Merge(ctx, updates); return err })
	return totals, err
}

// Load implements Store.
func (h *Handover) Load(ctx context.Context, keys []Key) (totals [][]Total, err error) {
	err = h.withLearned(ctx, func(l Learned) (err error) { totals, err = l.Load(ctx, keys); return err })
	return totals, err
}

// Forget implements Store. It needs the file.
func (h *Handover) Forget(ctx context.Context, function string) error {
	return h.withLearned(ctx, func(l Learned) error {
		s, ok := l.(Store)
		if !ok {
			return errElsewhere
		}
		return s.Forget(ctx, function)
	})
}

// withFile calls do with the file. Values are not passed between processes: the one without the file goes on with what it has, and the
// other one has what was saved last.
func (h *Handover) withFile(do func(Values) error) error {
	h.mu.RLock()
	defer h.mu.RUnlock()
	if h.store == nil {
		return errElsewhere
	}
	return do(h.store)
}

// LeaseValue implements Values.
func (h *Handover) LeaseValue(ctx context.Context, key Key, lasts time.Duration) (fence uint64, err error) {
	err = h.withFile(func(v Values) (err error) { fence, err = v.LeaseValue(ctx, key, lasts); return err })
	return fence, err
}

// LoadValue implements Values.
func (h *Handover) LoadValue(ctx context.Context, key Key, since uint64) (value Value, err error) {
	err = h.withFile(func(v Values) (err error) { value, err = v.LoadValue(ctx, key, since); return err })
	return value, err
}

// SaveValue implements Values.
func (h *Handover) SaveValue(ctx context.Context, s *Save) (saved Saved, err error) {
	err = h.withFile(func(v Values) (err error) { saved, err = v.SaveValue(ctx, s); return err })
	return saved, err
}

// objects is what answers for objects; nil: nothing at the moment. Its caller holds mu.
func (h *Handover) objects() Objects {
	switch {
	case h.store != nil:
		return h.store
	case h.copied != nil:
		return h.copied
	}
	return nil
}

// Changes implements Objects.
func (h *Handover) Changes(ctx context.Context, since uint64) (Changes, error) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	if o := h.objects(); o != nil {
		return o.Changes(ctx, since)
	}
	return Changes{}, errElsewhere
}

// History implements Objects.
func (h *Handover) History(ctx context.Context, subject string, limit int) ([]Event, error) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	if o := h.objects(); o != nil {
		return o.History(ctx, subject, limit)
	}
	return nil, errElsewhere
}

// Commit implements Objects. What is committed to a copy is durable when the file has been taken.
func (h *Handover) Commit(ctx context.Context, c *Commit) (uint64, error) {
	h.mu.RLock()
	if h.store != nil {
		defer h.mu.RUnlock()
		return h.store.Commit(ctx, c)
	}
	h.mu.RUnlock()
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.store != nil:
		return h.store.Commit(ctx, c)
	case h.copied == nil:
		return 0, errElsewhere
	}
	revision, err := h.copied.Commit(ctx, c)
	if err == nil {
		h.commits = append(h.commits, c)
	}
	return revision, err
}

// CheckPath returns an error if the path no longer refers to the open file.
func (h *Handover) CheckPath() error {
	h.mu.RLock()
	defer h.mu.RUnlock()
	if f, ok := h.store.(*fileStore); ok {
		return f.CheckPath()
	}
	return nil
}

// Shared implements Store: a file has one writer at a time.
func (h *Handover) Shared() bool { return false }

// Name implements Store.
func (h *Handover) Name() string { return h.path }

// Close implements Store. Calls that wait for the file fail.
func (h *Handover) Close() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return nil
	}
	h.closed = true
	var errs []error
	for _, s := range []Backend{h.store, h.copied} {
		if s != nil {
			errs = append(errs, s.Close())
		}
	}
	h.copied = nil
	h.set(nil, nil)
	return errors.Join(errs...)
}
