package declarations

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/api/manifest"
	"github.com/xebec-serving/xebec/gateway/control/functions"
	"github.com/xebec-serving/xebec/gateway/control/versions"
	"go.uber.org/zap"
)

// event is one line of the history.
func (d *Declarations) event(ctx context.Context, action string, c api.Change, detail string) api.HistoryEvent {
	return api.HistoryEvent{
		Time: time.Now().UTC(), By: api.CallerOf(ctx).String(), Gateway: d.cfg.Identity,
		Action: action, Kind: c.Kind, Name: c.Name, Version: c.Version, Detail: detail,
	}
}

// differences names the fields in which two specs of an object differ.
func differences(old, now any) string {
	var a, b map[string]json.RawMessage
	for _, x := range []struct {
		from any
		to   *map[string]json.RawMessage
	}{{old, &a}, {now, &b}} {
		data, err := json.Marshal(x.from)
		if err != nil || json.Unmarshal(data, x.to) != nil {
			return ""
		}
	}
	var fields []string
	for name := range b {
		if string(a[name]) != string(b[name]) {
			fields = append(fields, name+": "+shown(a[name])+" → "+shown(b[name]))
		}
	}
	for name := range a {
		if _, still := b[name]; !still {
			fields = append(fields, name+": "+shown(a[name])+" → default")
		}
	}
	sort.Strings(fields)
	return strings.Join(fields, ", ")
}

// shown is a field's value, cut to what fits a line of the history.
func shown(raw json.RawMessage) string {
	const longest = 80
	switch {
	case raw == nil:
		return "default"
	case len(raw) > longest:
		return string(raw[:longest]) + "…"
	}
	return string(raw)
}

// maxRemembered bounds the history of a gateway without a store.
const maxRemembered = 1000 //xebec:limit history entries of a gateway without a store

// remember logs events, and keeps them where there is no store that does.
func (d *Declarations) remember(events []api.HistoryEvent, revision uint64) {
	for i := range events {
		events[i].Revision = revision
		d.cfg.Log.Info("declared", zap.String("action", events[i].Action), zap.String("kind", string(events[i].Kind)), zap.String("name", events[i].Name), zap.String("version", events[i].Version), zap.String("by", events[i].By))
	}
	d.ledger.noteCreated(events)
	if d.cfg.Store == nil {
		d.ledger.remember(events)
	}
}

// History returns the last changes of what is declared, newest first.
func (d *Declarations) History(ctx context.Context, name string, limit int) ([]api.HistoryEvent, error) {
	if d.cfg.Store == nil {
		return d.ledger.history(name, limit), nil
	}
	events, err := d.cfg.Store.History(ctx, name, limit)
	if err != nil {
		d.reportStore()
		return nil, api.Errorf(api.Unavailable, "%w", err)
	}
	out := make([]api.HistoryEvent, 0, len(events))
	for _, ev := range events {
		var h api.HistoryEvent
		if err := json.Unmarshal(ev.Data, &h); err != nil {
			return nil, fmt.Errorf("an event of revision %d in the store cannot be read: %w", ev.Revision, err)
		}
		h.Revision = ev.Revision
		out = append(out, h)
	}
	return out, nil
}

// Export returns everything that is declared and kept. Models of watched directories are not in it. While the store has not been read
// the export fails: a part of the declarations would pass for a backup of all of them.
func (d *Declarations) Export(context.Context) (*manifest.Set, error) {
	if why := d.storeUnread(); why != "" {
		return nil, api.Errorf(api.Unavailable, "what is declared is not known yet: %s", why)
	}
	s := d.cfg.Catalog.Lock()
	defer d.cfg.Catalog.Unlock()
	set := &manifest.Set{}
	for _, v := range s.Versions() {
		if v.Source == versions.Applied {
			set.Models = append(set.Models, *v.Spec())
		}
	}
	sort.Slice(set.Models, func(i, j int) bool {
		a, b := &set.Models[i], &set.Models[j]
		return a.Name < b.Name || a.Name == b.Name && api.CompareVersions(a.Version, b.Version) < 0
	})
	d.cfg.Functions.Each(func(_ string, f functions.Declared) {
		if f.Source == versions.Applied {
			set.Functions = append(set.Functions, *f.Spec)
		}
	})
	for _, name := range s.FamilyNames() {
		if f := s.Family(name); f.Traffic != nil {
			set.Traffic = append(set.Traffic, *f.Traffic)
		}
	}
	return set, nil
}

// InForce names what Export returns, by kind: a model by its name and version, rules by their model.
func (d *Declarations) InForce() map[string][]string {
	names := map[string][]string{}
	set, err := d.Export(context.Background())
	if err != nil {
		return names // nothing has been read
	}
	for _, key := range keysOf(set) {
		names[key.Kind] = append(names[key.Kind], key.Name)
	}
	return names
}

// Lacking returns why one of these objects is not in force here, though the store has it; empty: there is none.
func (d *Declarations) Lacking(names map[string][]string) string {
	d.cfg.Catalog.Lock()
	defer d.cfg.Catalog.Unlock()
	for key, why := range d.problems {
		if slices.Contains(names[key.Kind], key.Name) {
			return strings.ReplaceAll(why, "\n", "; ")
		}
	}
	return ""
}
