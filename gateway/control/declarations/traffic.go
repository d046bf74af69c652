package declarations

import (
	"cmp"
	"context"
	"sync/atomic"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/api/manifest"
	"github.com/xebec-serving/xebec/gateway/control/versions"
	"github.com/xebec-serving/xebec/gateway/registry"
	"go.uber.org/zap"
)

// trafficEdit replaces a family's traffic rules. version is the one that is to serve.
func (d *Declarations) trafficEdit(ctx context.Context, f *versions.Family, spec api.TrafficSpec, action, version, detail string) *edit {
	c := api.Change{Kind: api.KindTraffic, Name: f.Name, Version: version, Action: api.Updated}
	if f.Traffic == nil {
		c.Action = api.Created
	}
	e := &edit{
		changes: []api.Change{c}, put: manifest.Set{Traffic: []api.TrafficSpec{spec}}, events: []api.HistoryEvent{d.event(ctx, action, c, detail)},
	}
	if f.Serving != version {
		e.events[0].Before = f.Serving
	}
	e.install = func(s *versions.State) error { return d.put(s, &e.put, nil, f.Source) }
	return e
}

// keepLabels moves labels that a promotion or a rollback removed, and that functions name, to the version that is to serve
// instead: a function must not lose its model because of a label.
func (d *Declarations) keepLabels(f *versions.Family, spec *api.TrafficSpec, to string) {
	for label := range f.Spec().Labels {
		if _, stays := spec.Labels[label]; stays || d.labelUser(f.Name, label) == "" {
			continue
		}
		if spec.Labels == nil {
			spec.Labels = map[string]string{}
		}
		spec.Labels[label] = to
	}
}

// Promote makes a version the one that serves.
func (d *Declarations) Promote(ctx context.Context, model, version string, seen ...api.ObjectRevision) ([]api.Change, error) {
	return d.change(ctx, false, func(s *versions.State) (*edit, error) {
		f := s.Family(model)
		if f == nil || len(f.Versions) == 0 {
			return nil, api.Errorf(api.NotFound, "no model %q", model)
		}
		m := s.Registry(f)
		spec, err := registry.Promote(*f.Spec(), m, version)
		if err != nil {
			return nil, err
		}
		to := spec.Serving
		for _, v := range m.Versions { // the newest, where none is pinned
			if spec.Serving == "" {
				to = v.Name
			}
		}
		d.keepLabels(f, &spec, to)
		return d.trafficEdit(ctx, f, spec, "promoted", to, ""), nil
	}, seen...)
}

// servedBeforeEvents is how far back the history is searched for the version that served before.
const servedBeforeEvents = 200

// servedBefore is the version of a model that served before the one that does, according to the history; empty where the history
// does not tell. What this gateway has seen itself may only be the order in which versions were loaded at its start.
func (d *Declarations) servedBefore(ctx context.Context, model string) string {
	serving := ""
	s := d.cfg.Catalog.Lock()
	if f := s.Family(model); f != nil {
		serving = f.Serving
	}
	d.cfg.Catalog.Unlock()
	events, err := d.History(ctx, model, servedBeforeEvents)
	if err != nil {
		return "" // the next older version is as good a guess
	}
	for _, e := range events { // newest first
		switch {
		case e.Kind == api.KindModel && e.Version == serving && e.Action == string(api.Created):
			return "" // before that, the model may have been another one of the same name
		case e.Kind == api.KindTraffic && e.Before != "" && e.Version == serving:
			return e.Before
		}
	}
	return ""
}

// Rollback makes an older version serve, and keeps the one that serves now from being loaded.
func (d *Declarations) Rollback(ctx context.Context, model, to, reason string, seen ...api.ObjectRevision) ([]api.Change, error) {
	previous := ""
	if to == "" {
		previous = d.servedBefore(ctx, model)
	}
	return d.change(ctx, false, func(s *versions.State) (*edit, error) {
		f := s.Family(model)
		if f == nil || len(f.Versions) == 0 {
			return nil, api.Errorf(api.NotFound, "no model %q", model)
		}
		spec, err := registry.Rollback(*f.Spec(), s.Registry(f), to, cmp.Or(previous, f.Before), reason)
		if err != nil {
			return nil, err
		}
		d.keepLabels(f, &spec, spec.Rollback.To)
		return d.trafficEdit(ctx, f, spec, "rolled back", spec.Rollback.To, reason), nil
	}, seen...)
}

// Traffic returns how models' queries are divided between their versions: of one model, or of all that have rules.
func (d *Declarations) Traffic(_ context.Context, model string) ([]api.TrafficStatus, error) {
	out := d.traffic(model)
	if model != "" && len(out) == 0 {
		return nil, d.Unknown("model", model)
	}
	return out, nil
}

func (d *Declarations) traffic(model string) (out []api.TrafficStatus) {
	s := d.cfg.Catalog.Lock()
	defer d.cfg.Catalog.Unlock()
	status := func(f *versions.Family) api.TrafficStatus {
		st := f.TrafficStatus()
		st.Revision = d.Revision(api.KindTraffic, f.Name)
		return st
	}
	if model != "" {
		f := s.Family(model)
		if f == nil || len(f.Versions) == 0 {
			return nil
		}
		return []api.TrafficStatus{status(f)}
	}
	for _, name := range s.FamilyNames() {
		if f := s.Family(name); f.Traffic != nil {
			out = append(out, status(f))
		}
	}
	return out
}

// superviseEvery is how often roll-outs are judged.
const superviseEvery = time.Second //xebec:limit interval between judgements of a roll-out

// superviseRollouts declares the end of each roll-out on which there is a verdict, until ctx ends.
func (d *Declarations) superviseRollouts(ctx context.Context) {
	t := time.NewTicker(superviseEvery)
	defer t.Stop()
	for {
		select {
		case <-t.C:
		case <-ctx.Done():
			return
		}
		for _, v := range d.cfg.Catalog.JudgeRollouts() {
			if err := d.conclude(ctx, v); err != nil {
				d.cfg.Log.Warn("a roll-out is over and could not be ended: tried again", zap.String("model", v.Model), zap.Error(err))
			}
		}
	}
}

// conclude ends a roll-out: in a promotion, or in a retreat that keeps the version from being loaded again.
func (d *Declarations) conclude(ctx context.Context, over versions.Verdict) error {
	ctx = api.WithCaller(ctx, api.Caller{Name: "rollout"})
	_, err := d.change(ctx, false, func(s *versions.State) (*edit, error) {
		f := s.Family(over.Model)
		if f == nil || f.Traffic == nil || f.Traffic.Rollout == nil || f.Traffic.Rollout.Version != over.Version {
			return &edit{install: func(*versions.State) error { return nil }}, nil // the rules have changed meanwhile
		}
		if over.Advance {
			spec, err := registry.Promote(*f.Traffic, s.Registry(f), over.Version)
			if err != nil {
				return nil, err
			}
			d.keepLabels(f, &spec, over.Version)
			return counted(d.trafficEdit(ctx, f, spec, "promoted", over.Version, over.Reason), &d.rolledOut), nil
		}
		spec, err := registry.RetreatRollout(*f.Traffic, s.Registry(f), over.Reason)
		if err != nil { // it was an older version: nothing has to be kept from loading
			spec = *f.Traffic
			spec.Rollout = nil
		}
		d.keepLabels(f, &spec, f.Serving)
		return counted(d.trafficEdit(ctx, f, spec, "retreated", over.Version, over.Reason), &d.retreated), nil
	})
	return err
}

// counted counts an edit when it is made.
func counted(e *edit, n *atomic.Uint64) *edit {
	install := e.install
	e.install = func(s *versions.State) error {
		n.Add(1)
		return install(s)
	}
	return e
}
