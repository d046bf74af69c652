package server

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"reflect"
	"sort"
	"strings"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/api/manifest"
	"github.com/xebec-serving/xebec/gateway/internal/state"
	"github.com/xebec-serving/xebec/gateway/registry"
)

const (
	// commitWithin bounds a commit: a store that has not answered then is away.
	commitWithin = 10 * time.Second
	// commitAttempts is how often a change is judged again because others have changed something else meanwhile.
	commitAttempts = 8
)

// edit is a change of what is declared: judged, and not yet made.
type edit struct {
	changes []api.Change // for whoever asked
	put     manifest.Set // objects that are new or differ
	drop    []state.ObjectKey
	events  []api.HistoryEvent
	fresh   []*deployment // of the models that are new
	// install makes it so in memory; with the lock held.
	install func() error
}

// discard takes back what was made for an edit that does not happen.
func (s *Server) discard(e *edit) {
	for _, d := range e.fresh {
		s.retire(d)
	}
}

// change makes one change of what is declared: plan judges it, with the lock held, against what is declared now; then it is made durable,
// and then it is made so. Changes of this gateway come one after the other. Where another gateway has changed something meanwhile the plan is
// made again, and fails if that was the same thing. seen is at which revisions the caller has seen objects: where they are at others, nothing
// is changed.
func (s *Server) change(ctx context.Context, dryRun bool, plan func() (*edit, error), seen ...api.ObjectRevision) ([]api.Change, error) {
	changes, err := func() ([]api.Change, error) {
		s.declaring.Lock()
		defer s.declaring.Unlock()
		return s.changeHeld(ctx, dryRun, plan, seen...)
	}()
	return changes, s.explain(ctx, err)
}

func (s *Server) changeHeld(ctx context.Context, dryRun bool, plan func() (*edit, error), seen ...api.ObjectRevision) ([]api.Change, error) {
	theirs := map[state.ObjectKey]uint64{} // what others have changed since the first plan
	current := s.objects == nil || !s.objects.Shared()
	for range commitAttempts {
		s.mu.Lock()
		if s.stopping {
			s.mu.Unlock()
			return nil, errStopping
		}
		if err := s.expectedLocked(seen); err != nil {
			s.mu.Unlock()
			switch {
			case s.objects != nil && !s.synced.Load():
				return nil, storeAway(errNotRead)
			case current:
				return nil, err
			}
			// The caller may have seen through another gateway what is not known here yet.
			current = true
			if err := s.catchUp(ctx, nil); err != nil {
				return nil, storeAway(err)
			}
			continue
		}
		e, err := plan()
		s.mu.Unlock()
		if err != nil {
			return nil, err
		}
		if dryRun {
			s.discard(e)
			return e.changes, nil
		}
		if err := conflict(e, theirs); err != nil {
			s.discard(e)
			return nil, err
		}
		revision, err := s.commit(ctx, e)
		var stale *state.StaleError
		if errors.As(err, &stale) {
			s.discard(e)
			if err := s.catchUp(ctx, theirs); err != nil {
				return nil, storeAway(err)
			}
			current = true
			for _, o := range seen { // which is judged by what the caller has seen, not by what was known here
				delete(theirs, keyOf(o))
			}
			continue
		}
		if err != nil {
			s.discard(e)
			return nil, storeAway(err)
		}
		s.mu.Lock()
		if s.stopping { // it is stored, and in force at the next start
			s.mu.Unlock()
			s.discard(e)
			return e.changes, nil
		}
		s.remember(e.events, s.markLocked(e, revision))
		err = e.install()
		s.settleLocked()
		s.mu.Unlock()
		return e.changes, err
	}
	return nil, api.Errorf(api.Conflict, "other gateways change what is declared all the time: nothing was changed; try again")
}

// settleLocked lets everything follow what is declared now.
func (s *Server) settleLocked() {
	s.outdated = true
	s.reconsiderLocked()
	s.nameLocked()
	s.configureLocked()
	s.preloadLocked()
	s.sweepLocked()
	s.stepAllLocked()
}

// conflict says that somebody else has changed the same object since the caller looked.
func conflict(e *edit, theirs map[state.ObjectKey]uint64) error {
	if len(theirs) == 0 {
		return nil
	}
	for _, k := range append(keysOf(&e.put), e.drop...) {
		if revision, ok := theirs[k]; ok {
			id, _ := api.ParseModelRef(k.Name) // a function's and a rule's name is one, too
			return staleConflict(api.StaleObject{Kind: api.Kind(k.Kind), Name: id.Name, Version: id.Version, Revision: revision},
				"%s %s was changed through another gateway at the same time (revision %d of the store): nothing was changed here; look at `xebec history %s`, and apply again", strings.ToLower(k.Kind), k.Name, revision, subjectOf(k))
		}
	}
	return nil
}

var errNotRead = errors.New("it has not been read since the gateway started: is it there?")

func subjectOf(k state.ObjectKey) string {
	name, _, _ := strings.Cut(k.Name, "@")
	return name
}

// storeAway says that the store has not taken a change.
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
func (s *Server) commit(ctx context.Context, e *edit) (uint64, error) {
	puts := objectsOf(&e.put)
	if s.objects == nil || len(puts)+len(e.drop) == 0 {
		return 0, nil
	}
	if !s.synced.Load() {
		return 0, errNotRead
	}
	c := &state.Commit{Base: s.revisionNow(), Put: puts, Delete: e.drop}
	rand.Read(c.ID[:])
	for _, ev := range e.events {
		data, err := json.Marshal(ev)
		if err != nil {
			return 0, err
		}
		c.Events = append(c.Events, state.Event{At: ev.Time, Subject: ev.Name, Data: data})
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), commitWithin) // a caller that leaves must not leave a riddle
	defer cancel()
	return s.objects.Commit(ctx, c)
}

func (s *Server) revisionNow() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.revision
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

// Apply declares everything in the set, or nothing.
func (s *Server) Apply(ctx context.Context, set *manifest.Set, dryRun bool, seen ...api.ObjectRevision) ([]api.Change, error) {
	return s.change(ctx, dryRun, func() (*edit, error) { return s.planApplyLocked(ctx, set) }, seen...)
}

func (s *Server) planApplyLocked(ctx context.Context, set *manifest.Set) (*edit, error) {
	changes, err := s.judgeLocked(set)
	if err != nil {
		return nil, err
	}
	e := &edit{changes: changes}
	for i, c := range changes {
		detail := ""
		switch at := i - len(set.Models); {
		case c.Action == api.Unchanged:
			continue
		case at < 0:
			spec := &set.Models[i]
			if c.Action == api.Created {
				d, err := s.deployLocked(*spec)
				if err != nil {
					s.discard(e)
					return nil, api.Errorf(api.InvalidArgument, "%w", err)
				}
				e.fresh = append(e.fresh, d)
			} else {
				detail = differences(s.models[spec.ID()].spec(), spec)
			}
			e.put.Models = append(e.put.Models, *spec)
		case at < len(set.Functions):
			if old := s.functions[c.Name]; old != nil && c.Action == api.Updated {
				detail = differences(&old.spec, &set.Functions[at])
			}
			e.put.Functions = append(e.put.Functions, set.Functions[at])
		default:
			t := set.Traffic[at-len(set.Functions)]
			if f := s.families[t.Model]; f != nil && f.traffic != nil {
				detail = differences(f.traffic, &t)
			}
			e.put.Traffic = append(e.put.Traffic, t)
		}
		e.events = append(e.events, s.event(ctx, string(c.Action), c, detail))
	}
	e.install = func() error { return s.installLocked(&e.put, e.fresh, sourceApply) }
	return e, nil
}

// installLocked makes in memory what was declared. fresh has the deployments of the models that are new.
func (s *Server) installLocked(put *manifest.Set, fresh []*deployment, source string) error {
	var errs []error
	for _, d := range fresh {
		s.adoptLocked(d, source)
	}
	for _, spec := range put.Models {
		if d := s.models[spec.ID()]; !reflect.DeepEqual(*d.spec(), spec) || d.life.state == registry.Rejected {
			errs = append(errs, s.updateLocked(d, spec))
		}
	}
	for i := range put.Traffic {
		f := s.familyLocked(put.Traffic[i].Model)
		f.traffic = &put.Traffic[i]
		s.touchLocked(f.name)
	}
	for _, spec := range put.Functions {
		f := &function{created: time.Now(), stats: new(endpoint), rate: new(rate), key: s.keys.Add(1)}
		if old := s.functions[spec.Name]; old != nil {
			*f = *old
			s.weighLocked(spec)
		}
		f.spec, f.source = spec, source
		s.functions[spec.Name] = f
		errs = append(errs, s.declareLocked(f))
	}
	return errors.Join(errs...)
}

// Delete removes a function, versions of a model that no function needs, or a model's traffic rules.
func (s *Server) Delete(ctx context.Context, kind api.Kind, id api.ModelID, seen ...api.ObjectRevision) ([]api.Change, error) {
	return s.change(ctx, false, func() (*edit, error) {
		switch kind {
		case api.KindFunction:
			return s.planDeleteFunctionLocked(ctx, id.Name)
		case api.KindTraffic:
			return s.planDeleteTrafficLocked(ctx, id.Name)
		}
		return s.planDeleteModelLocked(ctx, id)
	}, seen...)
}

func (s *Server) planDeleteFunctionLocked(ctx context.Context, name string) (*edit, error) {
	f := s.functions[name]
	if f == nil {
		return nil, api.Errorf(api.NotFound, "no function %q", name)
	}
	if f.source != sourceApply {
		return nil, api.Errorf(api.Conflict, "function %s is there for the model in the watched directory %s: it goes when that goes", name, f.source)
	}
	c := api.Change{Kind: api.KindFunction, Name: name, Action: api.Deleted}
	return &edit{
		changes: []api.Change{c}, drop: []state.ObjectKey{{Kind: string(api.KindFunction), Name: name}},
		events:  []api.HistoryEvent{s.event(ctx, string(api.Deleted), c, "")},
		install: func() error { s.dropFunctionLocked(name); s.implyLocked(); return nil },
	}, nil
}

// dropFunctionLocked forgets a function and what it has learned.
func (s *Server) dropFunctionLocked(name string) {
	delete(s.functions, name)
	s.detachLocked(name)
	s.learned.Forget(name)
	s.gw.Forget(name)
}

func (s *Server) planDeleteTrafficLocked(ctx context.Context, name string) (*edit, error) {
	f := s.families[name]
	if f == nil || f.traffic == nil {
		return nil, api.Errorf(api.NotFound, "no traffic rules of a model %q", name)
	}
	if err := s.checkLabelsLocked(name, nil); err != nil {
		return nil, err
	}
	c := api.Change{Kind: api.KindTraffic, Name: name, Action: api.Deleted}
	return &edit{
		changes: []api.Change{c}, drop: []state.ObjectKey{{Kind: string(api.KindTraffic), Name: name}},
		events:  []api.HistoryEvent{s.event(ctx, string(api.Deleted), c, "")},
		install: func() error { s.dropTrafficLocked(name); return nil },
	}, nil
}

func (s *Server) dropTrafficLocked(name string) {
	f := s.families[name]
	f.traffic = nil
	if len(f.versions) == 0 {
		delete(s.families, name)
	}
	s.touchLocked(name)
}

func (s *Server) planDeleteModelLocked(ctx context.Context, id api.ModelID) (*edit, error) {
	f := s.families[id.Name]
	var gone []*deployment
	if f != nil {
		for v, d := range f.versions {
			if id.Version == "" || v == id.Version {
				gone = append(gone, d)
			}
		}
	}
	if len(gone) == 0 {
		return nil, api.Errorf(api.NotFound, "no model %s", refString(id))
	}
	if f.source != sourceApply {
		return nil, api.Errorf(api.Conflict, "model %s comes from the watched directory %s: remove it there", refString(id), f.source)
	}
	all := len(gone) == len(f.versions)
	if err := s.neededLocked(f, id, all); err != nil {
		return nil, err
	}
	sort.Slice(gone, func(i, j int) bool { return api.CompareVersions(gone[i].id.Version, gone[j].id.Version) < 0 })
	e := &edit{}
	for _, d := range gone {
		c := api.Change{Kind: api.KindModel, Name: d.id.Name, Version: d.id.Version, Action: api.Deleted}
		e.changes = append(e.changes, c)
		e.drop = append(e.drop, state.ObjectKey{Kind: string(api.KindModel), Name: d.id.String()})
		e.events = append(e.events, s.event(ctx, string(api.Deleted), c, ""))
	}
	if all && f.traffic != nil {
		e.drop = append(e.drop, state.ObjectKey{Kind: string(api.KindTraffic), Name: f.name})
		e.events = append(e.events, s.event(ctx, string(api.Deleted), api.Change{Kind: api.KindTraffic, Name: f.name}, "with the model"))
	}
	e.install = func() error {
		if all && f.traffic != nil {
			s.dropTrafficLocked(f.name)
		}
		for _, d := range gone {
			s.disownLocked(d)
			s.retire(d)
		}
		return nil
	}
	return e, nil
}

// neededLocked says who needs a model, or a version of it, that is to be deleted.
func (s *Server) neededLocked(f *family, id api.ModelID, all bool) error {
	if t := f.traffic; t != nil && !all {
		if where := namedBy(t, id.Version); where != "" {
			return api.Errorf(api.Conflict, "the traffic rules of %s name version %s (%s): change them first, with `xebec traffic %s` or by promoting another version", f.name, id.Version, where, f.name)
		}
	}
	for name, fn := range s.functions {
		if fn.source != sourceApply {
			continue
		}
		for _, ref := range fn.spec.Refs() {
			need, err := api.ParseModelRef(ref)
			if err != nil || need.Name != id.Name {
				continue
			}
			d := s.resolveLocked(ref)
			if all || need.Version != "" && d != nil && d.id.Version == id.Version {
				return api.Errorf(api.Conflict, "function %s needs model %s: delete the function first, or give it another model", name, ref)
			}
		}
	}
	return nil
}
