package declarations

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/api/manifest"
	"github.com/xebec-serving/xebec/gateway/internal/state"
)

// A caller that reads an object, edits it and declares it again must not undo what another caller has declared meanwhile. This is
// the optimistic concurrency control of H. T. Kung and J. T. Robinson (On Optimistic Methods for Concurrency Control, TODS 6(2),
// 1981) with one number per object. A reader is told the object's revision and sends it back with its change. The change is
// validated and made without anything in between, under declaring and the catalog's lock. Of N callers that read revision 7 the
// first to write makes it 8; the others are told so and have to read again. In each round one caller succeeds, so none waits for
// one that has gone away.
//
// The numbers are the store's, and come back with it. Without a store the gateway counts by itself, from the microsecond of its
// start: no gateway changes something a million times a second, so a revision that was read before a restart does not occur
// again after it.

// ledger knows at which revision each object is, and the history of a gateway without a store. It is a leaf: no other lock is
// taken while its lock is held. Changes of the ledger and of the catalog are made together under the catalog's lock, so a reader
// that holds that lock sees both of the same moment.
type ledger struct {
	stored bool // there is a store, whose revisions count

	mu        sync.Mutex
	revision  uint64                     // of the store, as far as it is known here
	count     uint64                     // of the changes of a gateway without a store
	revisions map[state.ObjectKey]uint64 // of each object, in the store or by count
	lost      map[state.ObjectKey]bool   // objects that the store had taken and does not have any more
	events    []api.HistoryEvent         // of a gateway without a store, oldest first
	// created is when each applied function and version was declared first, since it was deleted last. A zero time: the history does not say.
	created map[state.ObjectKey]time.Time
}

func (l *ledger) init(stored bool, started time.Time) {
	l.stored, l.count = stored, firstCount(started)
	l.revisions, l.lost, l.created = map[state.ObjectKey]uint64{}, map[state.ObjectKey]bool{}, map[state.ObjectKey]time.Time{}
}

// firstCount is where a gateway without a store begins to count its changes. It stays below 2^53 until the year 2255, so programs
// that read JSON numbers as float64 can tell one revision from the next.
func firstCount(started time.Time) uint64 { return uint64(started.UnixMicro()) }

// storeRevision is the store's revision, as far as it is known here.
func (l *ledger) storeRevision() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.revision
}

// setStoreRevision notes up to which revision the store has been read.
func (l *ledger) setStoreRevision(revision uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.revision = revision
}

// of is the revision of an object's last change; 0: it is not declared.
func (l *ledger) of(k state.ObjectKey) uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.revisions[k]
}

// take notes what the store has of an object. A revision of 0 means that the object is gone.
func (l *ledger) take(k state.ObjectKey, revision uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.lost, k)
	if l.revisions[k] != revision { // it may have been deleted and declared again
		delete(l.created, k)
	}
	if revision == 0 {
		delete(l.revisions, k)
	} else {
		l.revisions[k] = revision
	}
}

// mark notes the revision of an edit's objects, and returns it. stored is the store's answer: 0 where there is none, or where
// there was nothing to store.
func (l *ledger) mark(e *edit, stored uint64) uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	puts := keysOf(&e.put)
	switch {
	case stored > 0:
		l.revision = stored
	case !l.stored && len(puts)+len(e.drop) > 0:
		l.count++
		stored = l.count
	default:
		return 0
	}
	for _, k := range puts {
		l.revisions[k] = stored
		delete(l.lost, k)
	}
	for _, k := range e.drop {
		delete(l.revisions, k)
	}
	return stored
}

// loseAfter notes that the store has gone back to an older revision: the objects that it had taken since are lost.
func (l *ledger) loseAfter(revision uint64) (was uint64, lost int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for k, r := range l.revisions {
		if r > revision {
			l.lost[k] = true
		}
	}
	return l.revision, len(l.lost)
}

func (l *ledger) isLost(k state.ObjectKey) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lost[k]
}

// lostObjects are the objects that the store has lost.
func (l *ledger) lostObjects() (keys []state.ObjectKey) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for k := range l.lost {
		keys = append(keys, k)
	}
	return keys
}

// restored notes that the store has everything again.
func (l *ledger) restored() {
	l.mu.Lock()
	defer l.mu.Unlock()
	clear(l.lost)
}

// remember keeps events for a gateway without a store.
func (l *ledger) remember(events []api.HistoryEvent) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.events = append(l.events, events...)
	l.events = l.events[max(0, len(l.events)-maxRemembered):]
}

// history returns the last events that remember kept, newest first.
func (l *ledger) history(name string, limit int) (out []api.HistoryEvent) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := len(l.events) - 1; i >= 0 && len(out) < limit; i-- {
		if name == "" || l.events[i].Name == name {
			out = append(out, l.events[i])
		}
	}
	return out
}

// expect compares the revisions that a caller has seen. The error is nil or a staleError.
func (l *ledger) expect(seen []api.ObjectRevision) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	var stale staleError
	for _, want := range seen {
		if now := l.revisions[keyOf(want)]; now != want.Revision {
			stale = append(stale, mismatch{want, now})
		}
	}
	if stale == nil {
		return nil
	}
	return stale
}

// Revision is the revision of an object's last change; 0: it is not declared. With the catalog's lock held it is of the same
// moment as the object.
func (d *Declarations) Revision(kind api.Kind, name string) uint64 {
	return d.ledger.of(state.ObjectKey{Kind: string(kind), Name: name})
}

// StoreRevision is the store's revision, as far as it is known here.
func (d *Declarations) StoreRevision() uint64 { return d.ledger.storeRevision() }

// keyOf is where the store keeps an object.
func keyOf(o api.ObjectRevision) state.ObjectKey {
	id := api.ModelID{Name: o.Name, Version: o.Version}
	return state.ObjectKey{Kind: string(o.Kind), Name: RefString(id)}
}

// keysOf are where the store keeps the objects of a set.
func keysOf(set *manifest.Set) []state.ObjectKey {
	out := make([]state.ObjectKey, 0, set.Len())
	for i := range set.Models {
		out = append(out, state.ObjectKey{Kind: string(api.KindModel), Name: set.Models[i].ID().String()})
	}
	for i := range set.Functions {
		out = append(out, state.ObjectKey{Kind: string(api.KindFunction), Name: set.Functions[i].Name})
	}
	for i := range set.Traffic {
		out = append(out, state.ObjectKey{Kind: string(api.KindTraffic), Name: set.Traffic[i].Model})
	}
	return out
}

// mismatch is an object that is at another revision than the caller expected.
type mismatch struct {
	want api.ObjectRevision
	now  uint64
}

type staleError []mismatch

func (e staleError) Error() string {
	return fmt.Sprintf("%d objects are not at the revisions that were expected", len(e))
}

// maxStale bounds how many objects an error describes: the history is read for each.
const maxStale = 8

// explain turns a staleError into what the caller is told: who changed the object. It asks the store, so no lock is held.
func (d *Declarations) explain(ctx context.Context, err error) error {
	var stale staleError
	if !errors.As(err, &stale) {
		return err
	}
	told := &api.StaleError{}
	var lines []string
	for _, m := range stale[:min(len(stale), maxStale)] {
		o, line := d.whatHappened(ctx, m)
		told.Objects, lines = append(told.Objects, o), append(lines, line)
	}
	if more := len(stale) - maxStale; more > 0 {
		lines = append(lines, fmt.Sprintf("and %d more", more))
	}
	told.Message = strings.Join(lines, "; ") + ": nothing was changed; read it again, and change what is there now"
	return api.Errorf(api.Conflict, "%w", told)
}

// staleConflict is a conflict over one object.
func staleConflict(o api.StaleObject, format string, args ...any) error {
	return api.Errorf(api.Conflict, "%w", &api.StaleError{Message: fmt.Sprintf(format, args...), Objects: []api.StaleObject{o}})
}

// explainEvents is how far back in an object's history the change is searched: it was made a moment ago.
const explainEvents = 20

func (d *Declarations) whatHappened(ctx context.Context, m mismatch) (o api.StaleObject, line string) {
	o = api.StaleObject{Kind: m.want.Kind, Name: m.want.Name, Version: m.want.Version, Revision: m.now}
	events, err := d.History(ctx, o.Name, explainEvents)
	if err != nil {
		events = nil // it is a conflict all the same
	}
	for _, e := range events {
		if e.Kind != o.Kind || e.Kind == api.KindModel && e.Version != o.Version {
			continue
		}
		if e.Revision == m.now || m.now == 0 && e.Action == string(api.Deleted) {
			o.Action, o.By, o.Time = e.Action, e.By, e.Time
		}
		break
	}
	what := strings.ToLower(string(o.Kind)) + " " + keyOf(m.want).Name
	by := ""
	if o.Action != "" {
		if o.By != "" {
			by = " by " + o.By
		}
		by = fmt.Sprintf(" (%s%s at %s)", o.Action, by, o.Time.Format(time.RFC3339))
	}
	switch {
	case m.now == 0:
		return o, fmt.Sprintf("%s is not declared%s, and was expected at revision %d", what, by, m.want.Revision)
	case m.want.Revision == 0:
		return o, fmt.Sprintf("%s is declared, at revision %d%s, and was expected not to be", what, m.now, by)
	}
	return o, fmt.Sprintf("%s is at revision %d%s, and was expected at revision %d", what, m.now, by, m.want.Revision)
}
