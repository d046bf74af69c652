package server

import (
	"context"
	"encoding/json"
	"fmt"
	"sort"
	"strings"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/api/manifest"
	"github.com/xebec-serving/xebec/gateway/admin"
	"go.uber.org/zap"
)

// event is one line of the history.
func (s *Server) event(ctx context.Context, action string, c api.Change, detail string) api.HistoryEvent {
	return api.HistoryEvent{
		Time: time.Now().UTC(), By: admin.CallerOf(ctx).String(), Gateway: s.identity,
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

// shown is a field's value, cut where a line of the history would get too long.
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
const maxRemembered = 1000

// remember keeps events where there is no store that does.
func (s *Server) remember(events []api.HistoryEvent, revision uint64) {
	for i := range events {
		events[i].Revision = revision
		s.log.Info("declared", zap.String("action", events[i].Action), zap.String("kind", string(events[i].Kind)), zap.String("name", events[i].Name), zap.String("version", events[i].Version), zap.String("by", events[i].By))
	}
	if s.objects == nil {
		s.events = append(s.events, events...)
		s.events = s.events[max(0, len(s.events)-maxRemembered):]
	}
}

// History returns the last changes of what is declared, newest first.
func (s *Server) History(ctx context.Context, name string, limit int) ([]api.HistoryEvent, error) {
	if s.objects == nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		var out []api.HistoryEvent
		for i := len(s.events) - 1; i >= 0 && len(out) < limit; i-- {
			if name == "" || s.events[i].Name == name {
				out = append(out, s.events[i])
			}
		}
		return out, nil
	}
	events, err := s.objects.History(ctx, name, limit)
	if err != nil {
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

// Export returns everything that is kept.
func (s *Server) Export(context.Context) (*manifest.Set, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	set := &manifest.Set{}
	for _, d := range s.models {
		if d.life.source == sourceApply {
			set.Models = append(set.Models, *d.spec())
		}
	}
	sort.Slice(set.Models, func(i, j int) bool {
		a, b := &set.Models[i], &set.Models[j]
		return a.Name < b.Name || a.Name == b.Name && api.CompareVersions(a.Version, b.Version) < 0
	})
	for _, name := range sortedNames(s.functions) {
		if f := s.functions[name]; f.source == sourceApply {
			set.Functions = append(set.Functions, f.spec)
		}
	}
	for _, name := range sortedNames(s.families) {
		if f := s.families[name]; f.traffic != nil {
			set.Traffic = append(set.Traffic, *f.traffic)
		}
	}
	return set, nil
}
