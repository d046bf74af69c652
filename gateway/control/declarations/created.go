package declarations

import (
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/xebec-serving/xebec/api"
)

// When a function was declared first is in the history, and nowhere else: an object in the store is what `apply` was given, and older programs
// that share the store refuse fields that they do not know. Where the history does not reach back, the time is unknown; the time at which
// this process has read the function would be a wrong one.

// createdEvents is how far back in the history the times are searched at the start, and when other gateways have declared functions.
const createdEvents = 20_000 //xebec:limit history entries that are searched for when functions were declared first

// Created is when an applied function was declared first, since it was deleted last. It is zero where that is unknown: the history does not
// reach back, or the function comes from a watched directory. It never asks the store.
func (d *Declarations) Created(function string) time.Time {
	d.ledger.mu.Lock()
	defer d.ledger.mu.Unlock()
	return d.ledger.created[function]
}

// noteCreated notes when functions were declared and deleted through this gateway.
func (l *ledger) noteCreated(events []api.HistoryEvent) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range events {
		switch e := &events[i]; {
		case e.Kind != api.KindFunction:
		case e.Action == string(api.Created):
			l.created[e.Name] = e.Time
		case e.Action == string(api.Deleted):
			delete(l.created, e.Name)
		}
	}
}

// searchCreated searches the history for when the functions that came from the store were declared. Its caller holds declaring. A history that
// cannot be read is no reason not to serve: it is searched again with the next change in a shared store, or at the next start.
func (d *Declarations) searchCreated(ctx context.Context) {
	wanted := d.ledger.withoutCreated()
	if len(wanted) == 0 {
		return
	}
	events, err := d.History(ctx, "", createdEvents)
	if err != nil {
		d.cfg.Log.Warn("the history cannot be read: when functions were declared is shown as unknown", zap.Error(err))
	}
	d.ledger.setCreated(wanted, events)
}

// withoutCreated are the functions whose time was not searched yet.
func (l *ledger) withoutCreated() map[string]bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	names := map[string]bool{}
	for k := range l.revisions {
		if _, searched := l.created[k.Name]; k.Kind == string(api.KindFunction) && !searched {
			names[k.Name] = true
		}
	}
	return names
}

// setCreated takes the times from events, newest first. What they do not say stays unknown.
func (l *ledger) setCreated(wanted map[string]bool, events []api.HistoryEvent) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for name := range wanted {
		l.created[name] = time.Time{}
	}
	for i := range events {
		e := &events[i]
		if e.Kind != api.KindFunction || !wanted[e.Name] {
			continue
		}
		switch e.Action {
		case string(api.Created):
			l.created[e.Name] = e.Time
			delete(wanted, e.Name)
		case string(api.Deleted): // who declared it again left no event
			delete(wanted, e.Name)
		}
	}
}
