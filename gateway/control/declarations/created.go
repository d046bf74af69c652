package declarations

import (
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/internal/state"
)

// When a function or a version of a model was declared first is in the history, and nowhere else: an object in the store is what `apply` was given, and older programs
// that share the store refuse fields that they do not know. Where the history does not reach back, the time is unknown; the time at which
// this process has read the object would be a wrong one.

// createdEvents is how far back in the history the times are searched at the start, and when other gateways have declared objects.
const createdEvents = 20_000 //xebec:limit history entries that are searched for when functions and models were declared first

// Created is when an applied function, or a version name@version of an applied model, was declared first, since it was deleted last. It is
// zero where the history does not reach back. applied is false if the object comes from a watched directory. It never asks the store.
func (d *Declarations) Created(kind api.Kind, name string) (at time.Time, applied bool) {
	d.ledger.mu.Lock()
	defer d.ledger.mu.Unlock()
	at, applied = d.ledger.created[state.ObjectKey{Kind: string(kind), Name: name}]
	return at, applied
}

// hasAge reports whether objects of a kind show when they were declared.
func hasAge(kind api.Kind) bool { return kind == api.KindFunction || kind == api.KindModel }

// subject is the object that an event is about.
func subject(e *api.HistoryEvent) state.ObjectKey {
	if e.Kind == api.KindModel {
		return state.ObjectKey{Kind: string(e.Kind), Name: api.ModelID{Name: e.Name, Version: e.Version}.String()}
	}
	return state.ObjectKey{Kind: string(e.Kind), Name: e.Name}
}

// noteCreated notes when objects were declared and deleted through this gateway.
func (l *ledger) noteCreated(events []api.HistoryEvent) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range events {
		switch e := &events[i]; {
		case !hasAge(e.Kind):
		case e.Action == string(api.Created):
			l.created[subject(e)] = e.Time
		case e.Action == string(api.Deleted):
			delete(l.created, subject(e))
		}
	}
}

// searchCreated searches the history for when the objects that came from the store were declared. Its caller holds declaring. A history that
// cannot be read is no reason not to serve: it is searched again with the next change in a shared store, or at the next start.
func (d *Declarations) searchCreated(ctx context.Context) {
	wanted := d.ledger.withoutCreated()
	if len(wanted) == 0 {
		return
	}
	events, err := d.History(ctx, "", createdEvents)
	if err != nil {
		d.cfg.Log.Warn("the history cannot be read: when functions and models were declared is shown as unknown", zap.Error(err))
	}
	d.ledger.setCreated(wanted, events)
}

// withoutCreated are the objects whose time was not searched yet.
func (l *ledger) withoutCreated() map[state.ObjectKey]bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	keys := map[state.ObjectKey]bool{}
	for k := range l.revisions {
		if _, searched := l.created[k]; hasAge(api.Kind(k.Kind)) && !searched {
			keys[k] = true
		}
	}
	return keys
}

// setCreated takes the times from events, newest first. What they do not say stays unknown.
func (l *ledger) setCreated(wanted map[state.ObjectKey]bool, events []api.HistoryEvent) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for k := range wanted {
		l.created[k] = time.Time{}
	}
	for i := range events {
		e := &events[i]
		if !wanted[subject(e)] {
			continue
		}
		switch e.Action {
		case string(api.Created):
			l.created[subject(e)] = e.Time
			delete(wanted, subject(e))
		case string(api.Deleted): // the next declaration left no event
			delete(wanted, subject(e))
		}
	}
}
