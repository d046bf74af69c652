package server

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/admin"
	"github.com/xebec-serving/xebec/gateway/internal/state"
)

// Whoever reads an object, edits it and declares it again must not undo what somebody else has declared meanwhile. This is the optimistic
// concurrency control of H. T. Kung and J. T. Robinson (On Optimistic Methods for Concurrency Control, TODS 6(2), 1981) with one number
// for each object: a reader is told at which revision the object is, sends that back with its change, and the change is validated and
// made without anything in between, under declaring and mu. Of N who read revision 7 the first to write makes it 8; the others are told so
// and are to read again. In each round somebody succeeds, so nobody waits for one who has gone away.
//
// The numbers are the store's, and come back with it. Without a store the gateway counts by itself, from the microsecond of its start on:
// what somebody read before a restart is not met again after it, for a gateway that changes something a million times a second does
// not exist.

// keyOf is where the store keeps an object.
func keyOf(o api.ObjectRevision) state.ObjectKey {
	id := api.ModelID{Name: o.Name, Version: o.Version}
	return state.ObjectKey{Kind: string(o.Kind), Name: refString(id)}
}

// revisionLocked is the revision of an object's last change; 0: it is not declared.
func (s *Server) revisionLocked(kind api.Kind, name string) uint64 {
	return s.revisions[state.ObjectKey{Kind: string(kind), Name: name}]
}

func (s *Server) trafficStatusLocked(f *family) api.TrafficStatus {
	st := f.status()
	st.Revision = s.revisionLocked(api.KindTraffic, f.name)
	return st
}

// firstCount is where a gateway without a store begins to count its changes. Programs that take JSON's numbers for float64 can still tell one
// from the next: it stays below 2^53 until the year 2255.
func firstCount(started time.Time) uint64 { return uint64(started.UnixMicro()) }

// markLocked notes at which revision the objects of an edit are now, and returns it. stored is what the store says; 0 where there is none, or
// there was nothing to store.
func (s *Server) markLocked(e *edit, stored uint64) uint64 {
	puts := keysOf(&e.put)
	switch {
	case stored > 0:
		s.revision = stored
	case s.objects == nil && len(puts)+len(e.drop) > 0:
		s.count++
		stored = s.count
	default:
		return 0
	}
	for _, k := range puts {
		s.revisions[k] = stored
		delete(s.lost, k)
	}
	for _, k := range e.drop {
		delete(s.revisions, k)
	}
	return stored
}

// expectedLocked judges what a caller has seen. The error is nil or *staleError.
func (s *Server) expectedLocked(seen []api.ObjectRevision) error {
	var stale staleError
	for _, want := range seen {
		if now := s.revisions[keyOf(want)]; now != want.Revision {
			stale = append(stale, mismatch{want, now})
		}
	}
	if stale == nil {
		return nil
	}
	return stale
}

// mismatch is an object that is at another revision than was expected.
type mismatch struct {
	want api.ObjectRevision
	now  uint64
}

type staleError []mismatch

func (e staleError) Error() string {
	return fmt.Sprintf("%d objects are not at the revisions that were expected", len(e))
}

// maxStale bounds how many objects an answer tells of: the history is asked for each.
const maxStale = 8

// explain turns a staleError into what the caller is told: who was faster. It asks the store, so no lock is held.
func (s *Server) explain(ctx context.Context, err error) error {
	var stale staleError
	if !errors.As(err, &stale) {
		return err
	}
	told := &admin.StaleError{}
	var lines []string
	for _, m := range stale[:min(len(stale), maxStale)] {
		o, line := s.whatHappened(ctx, m)
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
	return api.Errorf(api.Conflict, "%w", &admin.StaleError{Message: fmt.Sprintf(format, args...), Objects: []api.StaleObject{o}})
}

// explainEvents is how far back in an object's history the change is looked for: it was made a moment ago.
const explainEvents = 20

func (s *Server) whatHappened(ctx context.Context, m mismatch) (o api.StaleObject, line string) {
	o = api.StaleObject{Kind: m.want.Kind, Name: m.want.Name, Version: m.want.Version, Revision: m.now}
	events, err := s.History(ctx, o.Name, explainEvents)
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
