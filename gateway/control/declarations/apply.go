package declarations

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"sort"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/api/manifest"
	"github.com/xebec-serving/xebec/gateway/control/deployment"
	"github.com/xebec-serving/xebec/gateway/control/functions"
	"github.com/xebec-serving/xebec/gateway/control/versions"
	"github.com/xebec-serving/xebec/gateway/internal/state"
	"github.com/xebec-serving/xebec/gateway/registry"
)

// Apply declares everything in the set, or nothing.
func (d *Declarations) Apply(ctx context.Context, set *manifest.Set, dryRun bool, seen ...api.ObjectRevision) ([]api.Change, error) {
	if err := d.takeDigests(ctx, set, dryRun); err != nil {
		return nil, err
	}
	return d.apply(ctx, set, dryRun, seen...)
}

// apply is Apply for a set whose models have their digests.
func (d *Declarations) apply(ctx context.Context, set *manifest.Set, dryRun bool, seen ...api.ObjectRevision) ([]api.Change, error) {
	return d.change(ctx, dryRun, func(s *versions.State) (*edit, error) { return d.planApply(ctx, s, set) }, seen...)
}

func (d *Declarations) planApply(ctx context.Context, s *versions.State, set *manifest.Set) (*edit, error) {
	changes, err := d.judge(s, set)
	if err != nil {
		return nil, err
	}
	e := &edit{changes: changes}
	var replaced []api.ModelID // versions that have never served
	for i, c := range changes {
		var fields []api.FieldChange
		switch at := i - len(set.Models); {
		case c.Action == api.Unchanged:
			continue
		case at < 0:
			spec := &set.Models[i]
			if c.Note == replacedNote {
				spec.Interpreter = d.cfg.Host.Interpreter(spec)
				fields = changedFields(s.Version(spec.ID()).Spec().WithoutSecrets(), spec.WithoutSecrets())
				replaced = append(replaced, spec.ID())
			}
			if c.Action == api.Created || c.Note == replacedNote {
				fresh, err := d.cfg.Host.New(*spec)
				if err != nil {
					d.discard(e)
					return nil, api.Errorf(api.InvalidArgument, "%w", err)
				}
				e.fresh = append(e.fresh, fresh)
			} else {
				fields = changedFields(s.Version(spec.ID()).Spec().WithoutSecrets(), spec.WithoutSecrets())
			}
			e.put.Models = append(e.put.Models, *spec)
		case at < len(set.Functions):
			if old, ok := d.cfg.Functions.Get(c.Name); ok && c.Action == api.Updated {
				fields = changedFields(old.Spec, &set.Functions[at])
			}
			e.put.Functions = append(e.put.Functions, set.Functions[at])
		default:
			t := set.Traffic[at-len(set.Functions)]
			if f := s.Family(t.Model); f != nil && f.Traffic != nil {
				fields = changedFields(f.Traffic, &t)
			}
			e.put.Traffic = append(e.put.Traffic, t)
		}
		changes[i].Fields = fields
		detail := differences(fields)
		if c.Note != "" {
			detail = c.Note + ": " + detail
		}
		e.events = append(e.events, d.event(ctx, string(c.Action), c, detail))
	}
	e.install = func(s *versions.State) error {
		for _, id := range replaced {
			if v := s.Version(id); v != nil {
				s.Remove(v)
			}
		}
		for _, spec := range e.put.Models {
			d.replaced(spec.ID())
		}
		err := d.put(s, &e.put, e.fresh, versions.Applied)
		for _, fresh := range e.fresh {
			if v := s.Version(fresh.ID()); v != nil {
				s.MarkUnserved(v)
			}
		}
		return err
	}
	return e, nil
}

// replaced forgets what the store had of a model that was not in force: another declaration has taken its place, or it was deleted.
func (d *Declarations) replaced(id api.ModelID) {
	key := state.ObjectKey{Kind: string(api.KindModel), Name: id.String()}
	delete(d.problems, key)
	delete(d.displaced, key)
	delete(d.edited, id)
}

// put makes in memory what was declared. fresh has the deployments of the models that are new.
func (d *Declarations) put(s *versions.State, set *manifest.Set, fresh []*deployment.Deployment, source string) error {
	for _, f := range fresh {
		s.Adopt(f, source)
	}
	for _, spec := range set.Models {
		if v := s.Version(spec.ID()); !reflect.DeepEqual(*v.Spec(), spec) || v.State == registry.Rejected {
			s.Update(v, spec)
		}
	}
	for i := range set.Traffic {
		s.SetTraffic(&set.Traffic[i])
	}
	var errs []error
	for _, spec := range set.Functions {
		errs = append(errs, d.cfg.Functions.Put(s, spec, source))
	}
	return errors.Join(errs...)
}

// Deploy declares the model of a model directory and a function of its name, unless there is one. A new version starts a replica even if it
// may sleep, so that its author learns whether it can.
func (d *Declarations) Deploy(ctx context.Context, q api.Deployment) ([]api.Change, error) {
	set, err := deployed(q)
	if err != nil {
		return nil, api.Errorf(api.InvalidArgument, "%w", err)
	}
	if q.NewVersion {
		d.takeImages(ctx, set, d.have(set), true)
	}
	if err := d.takeDigests(ctx, set, q.DryRun); err != nil {
		return nil, err
	}
	return d.change(ctx, q.DryRun, func(s *versions.State) (*edit, error) {
		with := *set
		with.Models = slices.Clone(set.Models) // a plan may be made again, of what was given
		if m := &with.Models[0]; q.NewVersion {
			if v := s.Version(m.ID()); v != nil && (v.Digest() != m.Digest || v.Spec().Fixed(m) != "") {
				m.Version = nextVersion(s.Family(m.Name), m)
			}
		}
		all, err := d.withImplied(s, with)
		if err != nil {
			return nil, err
		}
		e, err := d.planApply(ctx, s, all)
		if err != nil {
			return nil, err
		}
		install := e.install
		e.install = func(s *versions.State) error {
			err := install(s)
			for _, f := range e.fresh {
				if v := s.Version(f.ID()); v != nil {
					s.Prove(v)
				}
			}
			return err
		}
		return e, nil
	})
}

// deployed is the set of a model directory on this host, or on another one.
func deployed(q api.Deployment) (*manifest.Set, error) {
	if q.Manifest == "" && q.Digest == "" {
		return loadModelDir(q.Dir)
	}
	at := filepath.Join(q.Dir, manifest.ModelFile)
	set, err := manifest.Decode(at, []byte(q.Manifest))
	if err != nil {
		return nil, err
	}
	if len(set.Models) != 1 {
		return nil, fmt.Errorf("%s: declares %d models: expected one", at, len(set.Models))
	}
	set.SetDir(q.Dir)
	m := &set.Models[0]
	m.Dir, m.Digest = cmp.Or(m.Dir, q.Dir), q.Digest
	return set, nil
}

// withImplied adds a function of each model's name, unless there is one by now.
func (d *Declarations) withImplied(s *versions.State, set manifest.Set) (*manifest.Set, error) {
	set.Models, set.Functions = slices.Clone(set.Models), slices.Clone(set.Functions) // a plan may be made again, of what was given
	for _, m := range set.Models {
		if v := s.Version(m.ID()); v != nil && v.Spec().Dir != m.Dir && !d.replaceable(s, v) && (m.Digest == "" || v.Digest() == "") { // else digests say whether it is the same
			return nil, api.Errorf(api.Conflict, "model %s exists and lies in %s: a version never changes; give this one another version, or delete that one first", m.ID(), v.Spec().Dir)
		}
		old, ok := d.cfg.Functions.Get(m.Name)
		declared := ok && old.Source == versions.Applied
		for _, f := range set.Functions {
			declared = declared || f.Name == m.Name
		}
		if !declared {
			set.Functions = append(set.Functions, implied(m.Name))
		}
	}
	return &set, nil
}

// RefString is a reference to a model, or to a version where the id has one.
func RefString(id api.ModelID) string {
	if id.Version == "" {
		return id.Name
	}
	return id.String()
}

// Delete removes a function, versions of a model that no function needs, or a model's traffic rules.
func (d *Declarations) Delete(ctx context.Context, kind api.Kind, id api.ModelID, seen ...api.ObjectRevision) ([]api.Change, error) {
	return d.change(ctx, false, func(s *versions.State) (*edit, error) {
		switch kind {
		case api.KindFunction:
			return d.planDeleteFunction(ctx, id.Name)
		case api.KindTraffic:
			return d.planDeleteTraffic(ctx, s, id.Name)
		}
		return d.planDeleteModel(ctx, s, id)
	}, seen...)
}

func (d *Declarations) planDeleteFunction(ctx context.Context, name string) (*edit, error) {
	f, ok := d.cfg.Functions.Get(name)
	if !ok {
		return nil, api.Errorf(api.NotFound, "no function %q", name)
	}
	if f.Source != versions.Applied {
		return nil, api.Errorf(api.Conflict, "function %s is there for the model in the watched directory %s: it goes when that goes", name, f.Source)
	}
	c := api.Change{Kind: api.KindFunction, Name: name, Action: api.Deleted}
	return &edit{
		changes: []api.Change{c}, drop: []state.ObjectKey{{Kind: string(api.KindFunction), Name: name}},
		events: []api.HistoryEvent{d.event(ctx, string(api.Deleted), c, "")},
		install: func(s *versions.State) error {
			d.cfg.Functions.Drop(s, name)
			d.implyFunctions(s)
			return nil
		},
	}, nil
}

func (d *Declarations) planDeleteTraffic(ctx context.Context, s *versions.State, name string) (*edit, error) {
	f := s.Family(name)
	if f == nil || f.Traffic == nil {
		return nil, api.Errorf(api.NotFound, "no traffic rules of a model %q", name)
	}
	if err := d.checkLabels(f, nil); err != nil {
		return nil, err
	}
	c := api.Change{Kind: api.KindTraffic, Name: name, Action: api.Deleted}
	return &edit{
		changes: []api.Change{c}, drop: []state.ObjectKey{{Kind: string(api.KindTraffic), Name: name}},
		events:  []api.HistoryEvent{d.event(ctx, string(api.Deleted), c, "")},
		install: func(s *versions.State) error { s.DropTraffic(name); return nil },
	}, nil
}

func (d *Declarations) planDeleteModel(ctx context.Context, s *versions.State, id api.ModelID) (*edit, error) {
	f := s.Family(id.Name)
	var gone []*versions.Version
	if f != nil {
		for name, v := range f.Versions {
			if id.Version == "" || name == id.Version {
				gone = append(gone, v)
			}
		}
	}
	if len(gone) == 0 {
		return d.planDeleteDisplaced(ctx, id)
	}
	if f.Source != versions.Applied {
		return nil, api.Errorf(api.Conflict, "model %s comes from the watched directory %s: remove it there", RefString(id), f.Source)
	}
	all := len(gone) == len(f.Versions)
	if err := d.checkUnneeded(s, f, id, all); err != nil {
		return nil, err
	}
	sort.Slice(gone, func(i, j int) bool { return api.CompareVersions(gone[i].ID().Version, gone[j].ID().Version) < 0 })
	e := &edit{}
	for _, v := range gone {
		c := api.Change{Kind: api.KindModel, Name: v.ID().Name, Version: v.ID().Version, Action: api.Deleted}
		e.changes = append(e.changes, c)
		e.drop = append(e.drop, state.ObjectKey{Kind: string(api.KindModel), Name: v.ID().String()})
		e.events = append(e.events, d.event(ctx, string(api.Deleted), c, ""))
		d.dropMark(e, v.ID())
	}
	traffic := all && f.Traffic != nil
	if traffic {
		e.drop = append(e.drop, state.ObjectKey{Kind: string(api.KindTraffic), Name: f.Name})
		e.events = append(e.events, d.event(ctx, string(api.Deleted), api.Change{Kind: api.KindTraffic, Name: f.Name}, "with the model"))
	}
	e.install = func(s *versions.State) error {
		if traffic {
			s.DropTraffic(f.Name)
		}
		for _, v := range gone {
			delete(d.edited, v.ID())
			delete(d.unserved, v.ID())
			s.Remove(v)
		}
		return nil
	}
	return e, nil
}

// checkUnneeded returns what needs a model, or a version of it, that is to be deleted.
func (d *Declarations) checkUnneeded(s *versions.State, f *versions.Family, id api.ModelID, all bool) (err error) {
	if t := f.Traffic; t != nil && !all {
		if where := namedBy(t, id.Version); where != "" {
			return api.Errorf(api.Conflict, "the traffic rules of %s name version %s (%s): change them first, with `xebec traffic %s` or by promoting another version", f.Name, id.Version, where, f.Name)
		}
	}
	d.cfg.Functions.Each(func(name string, fn functions.Declared) {
		if fn.Source != versions.Applied || err != nil {
			return
		}
		for _, ref := range fn.Spec.Refs() {
			need, bad := api.ParseModelRef(ref)
			if bad != nil || need.Name != id.Name {
				continue
			}
			v := s.Resolve(ref)
			if all || need.Version != "" && v != nil && v.ID().Version == id.Version {
				err = api.Errorf(api.Conflict, "function %s needs model %s: delete the function first, or give it another model", name, ref)
				return
			}
		}
	})
	return err
}

// planDeleteDisplaced deletes models of the store that are not in force, so that no function uses them.
func (d *Declarations) planDeleteDisplaced(ctx context.Context, id api.ModelID) (*edit, error) {
	e := &edit{}
	keys := slices.SortedFunc(maps.Keys(d.displaced), func(a, b state.ObjectKey) int { return cmp.Compare(a.Name, b.Name) })
	for _, key := range keys {
		spec := d.displaced[key]
		if spec.Name != id.Name || id.Version != "" && spec.Version != id.Version {
			continue
		}
		c := api.Change{Kind: api.KindModel, Name: spec.Name, Version: spec.Version, Action: api.Deleted}
		e.changes = append(e.changes, c)
		e.drop = append(e.drop, key)
		e.events = append(e.events, d.event(ctx, string(api.Deleted), c, ""))
	}
	if len(e.changes) == 0 {
		return nil, api.Errorf(api.NotFound, "no model %s", RefString(id))
	}
	e.install = func(*versions.State) error {
		for _, c := range e.changes {
			d.replaced(api.ModelID{Name: c.Name, Version: c.Version})
		}
		return nil
	}
	return e, nil
}
