package declarations

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/api/manifest"
	"github.com/xebec-serving/xebec/gateway/control/deployment"
	"github.com/xebec-serving/xebec/gateway/control/versions"
	"github.com/xebec-serving/xebec/gateway/internal/state"
)

const (
	// commitWithin bounds a commit: a store that has not answered by then is away.
	commitWithin = 10 * time.Second //xebec:limit time for a commit to the store
	// commitAttempts is how often a change is judged again because another gateway changed something else meanwhile.
	commitAttempts = 8 //xebec:limit how often a change is validated again after a concurrent change
)

// edit is a change of what is declared: judged, and not made yet.
type edit struct {
	changes []api.Change // for the caller
	put     manifest.Set // objects that are new or differ
	drop    []state.ObjectKey
	events  []api.HistoryEvent
	// unserved are versions that get the mark of one that has never served.
	unserved []api.ModelID
	fresh    []*deployment.Deployment // of the models that are new
	// install makes the change in memory.
	install func(s *versions.State) error
}

// plan judges a change against what is declared now.
type plan func(s *versions.State) (*edit, error)

var errStopping = api.Errorf(api.ShuttingDown, "the gateway is stopping: nothing can be changed any more")

// change makes one change of what is declared. The plan is judged against what is declared now, committed to the store for the
// revision that it was judged against, and then installed. Changes of this gateway are made one after the other. Where another
// gateway changed something meanwhile, the plan is made again; it fails if that was the same object. seen is at which revisions
// the caller has seen objects: if one is at another revision, nothing is changed.
func (d *Declarations) change(ctx context.Context, dryRun bool, p plan, seen ...api.ObjectRevision) ([]api.Change, error) {
	changes, err := func() ([]api.Change, error) {
		d.declaring.Lock()
		defer d.declaring.Unlock()
		if why := d.refusing.Load(); why != nil {
			return nil, why
		}
		return d.changeHeld(ctx, dryRun, p, seen...)
	}()
	return changes, d.explain(ctx, err)
}

// changeHeld is change for a caller that holds declaring.
func (d *Declarations) changeHeld(ctx context.Context, dryRun bool, p plan, seen ...api.ObjectRevision) ([]api.Change, error) {
	theirs := map[state.ObjectKey]uint64{} // what other gateways have changed since the first plan
	current := !d.shared()
	for range commitAttempts {
		e, stale, err := d.judged(p, seen)
		switch {
		case stale != nil && d.cfg.Store != nil && !d.synced.Load():
			return nil, storeAway(errNotRead)
		case stale != nil && current:
			return nil, stale
		case stale != nil:
			// The caller may have read through another gateway what is not known here yet.
			current = true
			if err := d.catchUp(ctx, nil); err != nil {
				return nil, storeAway(err)
			}
			continue
		case err != nil:
			return nil, err
		}
		if dryRun {
			d.discard(e)
			return e.changes, nil
		}
		if err := conflict(e, theirs); err != nil {
			d.discard(e)
			return nil, err
		}
		revision, err := d.commit(ctx, e)
		var behind *state.StaleError
		if errors.As(err, &behind) {
			d.discard(e)
			if err := d.catchUp(ctx, theirs); err != nil {
				return nil, storeAway(err)
			}
			current = true
			for _, o := range seen { // these are judged by what the caller has seen, not by what was known here
				delete(theirs, keyOf(o))
			}
			continue
		}
		if err != nil {
			d.discard(e)
			d.reportStore()
			return nil, storeAway(err)
		}
		return e.changes, d.install(e, revision)
	}
	return nil, api.Errorf(api.Conflict, "other gateways change what is declared all the time: nothing was changed; try again")
}

// judged makes a plan's edit. stale is a staleError if the caller has not seen what is declared now.
func (d *Declarations) judged(p plan, seen []api.ObjectRevision) (e *edit, stale, err error) {
	s := d.cfg.Catalog.Lock()
	defer d.cfg.Catalog.Unlock()
	if s.Stopping() {
		return nil, nil, errStopping
	}
	if stale := d.ledger.expect(seen); stale != nil {
		return nil, stale, nil
	}
	e, err = p(s)
	return e, nil, err
}

// install makes an edit that is durable.
func (d *Declarations) install(e *edit, revision uint64) error {
	s := d.cfg.Catalog.Lock()
	defer d.cfg.Catalog.Unlock()
	if s.Stopping() { // it is stored, and in force at the next start
		d.discard(e)
		return nil
	}
	d.remember(e.events, d.ledger.mark(e, revision))
	err := e.install(s)
	d.settle(s)
	return err
}

// settle lets everything follow what is declared now.
func (d *Declarations) settle(s *versions.State) {
	s.Outdate()
	d.reconsider(s)
	s.Settle()
}

// discard ends the deployments of an edit that is not made.
func (d *Declarations) discard(e *edit) {
	for _, fresh := range e.fresh {
		d.cfg.Catalog.Discard(fresh)
	}
}

// conflict reports that another gateway changed the same object since the caller looked.
func conflict(e *edit, theirs map[state.ObjectKey]uint64) error {
	if len(theirs) == 0 {
		return nil
	}
	for _, k := range append(keysOf(&e.put), e.drop...) {
		if revision, ok := theirs[k]; ok && k.Kind != kindUnserved {
			id, _ := api.ParseModelRef(k.Name) // the name of a function or a rule is one, too
			return staleConflict(api.StaleObject{Kind: api.Kind(k.Kind), Name: id.Name, Version: id.Version, Revision: revision},
				"%s %s was changed through another gateway at the same time (revision %d of the store): nothing was changed here; look at `xebec history %s`, and apply again", strings.ToLower(k.Kind), k.Name, revision, subjectOf(k))
		}
	}
	return nil
}

var errNotRead error = &api.UnreadError{Why: "it has not been read since the gateway started: is it there?"}

func subjectOf(k state.ObjectKey) string {
	name, _, _ := strings.Cut(k.Name, "@")
	return name
}

// storeAway reports that the store has not taken a change.
func storeAway(err error) error {
	var unknown *state.UnknownError
	if errors.As(err, &unknown) {
		return api.Errorf(api.Unavailable, "%w; if it was, it will show in `xebec history`; to apply the same again is safe", err)
	}
	if errors.Is(err, state.ErrTooMany) {
		return api.Errorf(api.InvalidArgument, "%w: nothing was changed", err)
	}
	return api.Errorf(api.Unavailable, "the store does not take the change, so nothing was changed; what serves goes on serving: %w", err)
}

// commit makes an edit durable. Without a store there is nothing to do.
func (d *Declarations) commit(ctx context.Context, e *edit) (uint64, error) {
	puts := objectsOf(&e.put)
	for _, id := range e.unserved {
		puts = append(puts, unservedMark(id))
	}
	if d.cfg.Store == nil || len(puts)+len(e.drop) == 0 {
		return 0, nil
	}
	if !d.synced.Load() {
		return 0, errNotRead
	}
	c := &state.Commit{Base: d.ledger.storeRevision(), Put: puts, Delete: e.drop}
	rand.Read(c.ID[:])
	for _, ev := range e.events {
		data, err := json.Marshal(ev)
		if err != nil {
			return 0, err
		}
		c.Events = append(c.Events, state.Event{At: ev.Time, Subject: ev.Name, Data: data})
	}
	// A caller that leaves must not leave the outcome unknown.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), commitWithin)
	defer cancel()
	return d.cfg.Store.Commit(ctx, c)
}

// objectsOf is a set as the store keeps it.
func objectsOf(set *manifest.Set) []state.Object {
	keys := keysOf(set)
	out := make([]state.Object, 0, len(keys))
	add := func(one manifest.Set) {
		data, err := one.JSON()
		if err != nil {
			panic(err) // specs that were judged can be written
		}
		out = append(out, state.Object{ObjectKey: keys[len(out)], Data: data})
	}
	for i := range set.Models {
		add(manifest.Set{Models: set.Models[i : i+1]})
	}
	for i := range set.Functions {
		add(manifest.Set{Functions: set.Functions[i : i+1]})
	}
	for i := range set.Traffic {
		add(manifest.Set{Traffic: set.Traffic[i : i+1]})
	}
	return out
}
