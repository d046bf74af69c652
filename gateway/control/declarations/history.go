package declarations

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
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

// changedFields are the fields in which two specs of an object differ, by their paths. Objects are compared field by field, lists as a
// whole.
func changedFields(old, now any) []api.FieldChange {
	before, errOld := json.Marshal(old)
	after, errNow := json.Marshal(now)
	if errOld != nil || errNow != nil {
		return nil
	}
	var fields []api.FieldChange
	compareFields("", before, after, &fields)
	return fields
}

func compareFields(path string, old, now json.RawMessage, fields *[]api.FieldChange) {
	var a, b map[string]json.RawMessage
	if string(old) == string(now) {
		return
	}
	if path != "" && (len(old) == 0 || len(now) == 0) || json.Unmarshal(old, &a) != nil || json.Unmarshal(now, &b) != nil {
		*fields = append(*fields, api.FieldChange{Path: path, Old: old, New: now})
		return
	}
	names := slices.Collect(maps.Keys(b))
	for name := range a {
		if _, both := b[name]; !both {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		at := name
		if path != "" {
			at = path + "." + name
		}
		compareFields(at, a[name], b[name], fields)
	}
}

// differences names the fields that were changed, in a line of the history.
func differences(fields []api.FieldChange) string {
	lines := make([]string, len(fields))
	for i, f := range fields {
		lines[i] = f.Path + ": " + shown(f.Old) + " → " + shown(f.New)
	}
	return strings.Join(lines, ", ")
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
//
// The directory of a version whose files were sent to the gateway is that of the copy which the gateway keeps, because the one that they came from is on
// another host. The id of an image is left out for the same reason; a digest that a registry has is not.
func (d *Declarations) Export(context.Context) (*manifest.Set, error) {
	set, err := d.export()
	if err != nil {
		return nil, err
	}
	for i := range set.Models { // without a lock: this looks at files
		m := &set.Models[i]
		if ofHost(m.ImageDigest) {
			m.ImageDigest = ""
		}
		if m.Dir == "" || m.Digest == "" || m.Digest == api.DigestNone {
			continue
		}
		if _, err := os.Stat(m.Dir); errors.Is(err, fs.ErrNotExist) {
			if copied := d.cfg.Host.Copy(m.Digest); copied != "" {
				m.Dir = copied
			}
		}
	}
	return set, nil
}

func (d *Declarations) export() (*manifest.Set, error) {
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
	set, err := d.export()
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
