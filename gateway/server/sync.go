package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/api/manifest"
	"github.com/xebec-serving/xebec/gateway/admin"
	"github.com/xebec-serving/xebec/gateway/internal/state"
	"go.uber.org/zap"
)

const (
	// syncEvery is how often a store that others write to is asked for news: two intervals and a change are well below a second.
	syncEvery = 250 * time.Millisecond
	// syncBackoff is the longest time between attempts while the store is away.
	syncBackoff = 5 * time.Second
	// firstSync is how long the start waits for a store that does not answer, before it serves what --config declares without it.
	firstSync = 3 * time.Second
)

// catchUp takes in what others have changed in the store. theirs, if it is not nil, is told which objects.
func (s *Server) catchUp(ctx context.Context, theirs map[state.ObjectKey]uint64) error {
	changes, err := s.objects.Changes(ctx, s.revisionNow())
	if err != nil {
		return err
	}
	if changes.Revision == s.revisionNow() && !changes.Complete {
		s.synced.Store(true)
		return nil
	}
	if theirs != nil {
		s.mu.Lock()
		for _, o := range changes.Objects {
			if s.revisions[o.ObjectKey] != o.Revision {
				theirs[o.ObjectKey] = o.Revision
			}
		}
		s.mu.Unlock()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopping {
		return nil
	}
	objects := changes.Objects
	var absent []state.ObjectKey
	if changes.Complete {
		objects, absent = s.completeLocked(changes)
	}
	put, drop, problems := decodeObjects(objects)
	s.sweepBefore(len(put.Models))
	s.takeOverLocked(put, append(drop, absent...), problems)
	for _, o := range objects {
		delete(s.lost, o.ObjectKey)
		if s.revisions[o.ObjectKey] = o.Revision; o.Data == nil {
			delete(s.revisions, o.ObjectKey)
		}
	}
	s.revision = changes.Revision
	s.synced.Store(true)
	s.settleLocked()
	return nil
}

// completeLocked says what follows from all that the store has: the objects that are news, and those that are to go. A store that has gone back,
// because it lost its memory or an older replica took its place, knows nothing of later revisions: what it had taken then and has no more
// is not gone but lost. It is kept, and stored again.
func (s *Server) completeLocked(c state.Changes) (news []state.Object, gone []state.ObjectKey) {
	if c.Revision < s.revision {
		for k, revision := range s.revisions {
			if revision > c.Revision {
				s.lost[k] = true
			}
		}
		s.log.Warn("the store has gone back: what it has lost is kept, and stored again", zap.Uint64("revision", c.Revision), zap.Uint64("was", s.revision), zap.Int("lost", len(s.lost)))
	}
	for _, o := range c.Objects {
		if !s.lost[o.ObjectKey] {
			news = append(news, o)
		}
	}
	for _, k := range s.absentLocked(c.Objects) {
		if !s.lost[k] {
			gone = append(gone, k)
			delete(s.revisions, k)
		}
	}
	return news, gone
}

// restore stores again what the store has lost.
func (s *Server) restore(ctx context.Context) error {
	s.mu.Lock()
	n := len(s.lost)
	s.mu.Unlock()
	if n == 0 {
		return nil
	}
	ctx = admin.WithCaller(ctx, admin.Caller{Name: "restore"})
	_, err := s.changeHeld(ctx, false, func() (*edit, error) {
		e := &edit{install: func() error { clear(s.lost); return nil }}
		add := func(kind api.Kind, id api.ModelID) {
			c := api.Change{Kind: kind, Name: id.Name, Version: id.Version, Action: api.Created}
			e.changes, e.events = append(e.changes, c), append(e.events, s.event(ctx, "restored", c, "the store had lost it"))
		}
		for k := range s.lost {
			id, err := api.ParseModelRef(k.Name)
			if err != nil {
				continue
			}
			switch api.Kind(k.Kind) {
			case api.KindModel:
				if d := s.models[id]; d != nil && d.life.source == sourceApply {
					e.put.Models = append(e.put.Models, *d.spec())
					add(api.KindModel, id)
				}
			case api.KindFunction:
				if f := s.functions[id.Name]; f != nil && f.source == sourceApply {
					e.put.Functions = append(e.put.Functions, f.spec)
					add(api.KindFunction, id)
				}
			case api.KindTraffic:
				if f := s.families[id.Name]; f != nil && f.traffic != nil {
					e.put.Traffic = append(e.put.Traffic, *f.traffic)
					add(api.KindTraffic, id)
				}
			}
		}
		return e, nil
	})
	return err
}

// decodeObjects reads what the store has. What cannot be read is a problem, and stays as it is.
func decodeObjects(objects []state.Object) (put manifest.Set, drop []state.ObjectKey, problems map[state.ObjectKey]string) {
	problems = map[state.ObjectKey]string{}
	for _, o := range objects {
		if o.Data == nil {
			drop = append(drop, o.ObjectKey)
			continue
		}
		set, err := manifest.Decode("store", o.Data)
		if err != nil || set.Len() != 1 {
			problems[o.ObjectKey] = fmt.Sprintf("%s %s in the store cannot be read by this program, and is passed over: %v", strings.ToLower(o.Kind), o.Name, err)
			continue
		}
		if keysOf(set)[0] != o.ObjectKey {
			problems[o.ObjectKey] = fmt.Sprintf("%s %s in the store declares something else, and is passed over: somebody else writes there", strings.ToLower(o.Kind), o.Name)
			continue
		}
		put.Append(set)
	}
	return put, drop, problems
}

// absentLocked are the objects that are declared here and that the store, as it is now, has not.
func (s *Server) absentLocked(objects []state.Object) (gone []state.ObjectKey) {
	there := make(map[state.ObjectKey]bool, len(objects))
	for _, o := range objects {
		there[o.ObjectKey] = true
	}
	look := func(kind api.Kind, name string) {
		if k := (state.ObjectKey{Kind: string(kind), Name: name}); !there[k] {
			gone = append(gone, k)
		}
	}
	for id, d := range s.models {
		if d.life.source == sourceApply {
			look(api.KindModel, id.String())
		}
	}
	for name, f := range s.functions {
		if f.source == sourceApply {
			look(api.KindFunction, name)
		}
	}
	for name, f := range s.families {
		if f.traffic != nil {
			look(api.KindTraffic, name)
		}
	}
	return gone
}

// takeOverLocked installs what came from the store. It has been judged by whoever stored it; what cannot be here is a problem of this gateway.
func (s *Server) takeOverLocked(put manifest.Set, drop []state.ObjectKey, problems map[state.ObjectKey]string) {
	for _, k := range drop {
		delete(s.troubles, k)
		delete(s.misfits, k)
	}
	var fresh []*deployment
	kept := manifest.Set{Traffic: put.Traffic}
	for _, spec := range put.Models {
		key := state.ObjectKey{Kind: string(api.KindModel), Name: spec.ID().String()}
		delete(s.troubles, key)
		delete(s.misfits, key)
		if why := s.misfitLocked(&spec); why != "" {
			problems[key], s.misfits[key] = why, spec
			continue
		}
		if d := s.models[spec.ID()]; d != nil && d.spec().Fixed(&spec) != "" { // it was deleted and declared anew
			s.disownLocked(d)
			s.retire(d)
		}
		if s.models[spec.ID()] == nil {
			d, err := s.deployLocked(spec)
			if err != nil {
				problems[key] = err.Error()
				continue
			}
			fresh = append(fresh, d)
		}
		kept.Models = append(kept.Models, spec)
	}
	for _, spec := range put.Functions {
		key := state.ObjectKey{Kind: string(api.KindFunction), Name: spec.Name}
		delete(s.troubles, key)
		if _, err := policyOf(&spec); err != nil {
			problems[key] = err.Error()
			continue
		}
		kept.Functions = append(kept.Functions, spec)
	}
	if err := s.installLocked(&kept, fresh, sourceApply); err != nil {
		s.log.Error("what others have declared is not all in force", zap.Error(err))
	}
	for _, k := range drop {
		s.dropLocked(k)
	}
	for k, why := range problems {
		s.troubles[k] = why
		s.log.Error("an object in the store is not in force", zap.String("kind", k.Kind), zap.String("name", k.Name), zap.String("reason", why))
	}
}

// misfitLocked says why a model of the store cannot be here.
func (s *Server) misfitLocked(spec *api.ModelSpec) string {
	if f := s.families[spec.Name]; f != nil && f.source != sourceApply && len(f.versions) > 0 {
		return fmt.Sprintf("model %s is declared in the store, and comes from the watched directory %s here: that one serves; remove one of the two", spec.ID(), f.source)
	}
	if spec.Device != "" && s.devices[spec.Device] == nil {
		return fmt.Sprintf("model %s needs the device %q, which this gateway has not: expected %s", spec.ID(), spec.Device, s.deviceNames())
	}
	return ""
}

// retryMisfits takes in the models of the store that a watched directory kept out, and keeps out no more.
func (s *Server) retryMisfits() {
	s.mu.Lock()
	defer s.mu.Unlock()
	var put manifest.Set
	for _, spec := range s.misfits {
		if s.misfitLocked(&spec) == "" {
			put.Models = append(put.Models, spec)
		}
	}
	if len(put.Models) > 0 && !s.stopping {
		s.takeOverLocked(put, nil, map[state.ObjectKey]string{})
		s.settleLocked()
	}
}

// dropLocked deletes what others have deleted.
func (s *Server) dropLocked(k state.ObjectKey) {
	switch api.Kind(k.Kind) {
	case api.KindFunction:
		if f := s.functions[k.Name]; f != nil && f.source == sourceApply {
			s.dropFunctionLocked(k.Name)
			s.implyLocked()
		}
	case api.KindTraffic:
		if f := s.families[k.Name]; f != nil && f.traffic != nil {
			s.dropTrafficLocked(k.Name)
		}
	case api.KindModel:
		id, err := api.ParseModelRef(k.Name)
		if d := s.models[id]; err == nil && d != nil && d.life.source == sourceApply {
			s.disownLocked(d)
			s.retire(d)
		}
	}
}

// begin reads the store at the start, and applies what --config declares. A store that does not answer is waited for a little; then what
// --config declares is served without it, and made durable when it comes.
func (s *Server) begin(ctx context.Context, set *manifest.Set) error {
	ctx = asConfig(ctx)
	s.sweepBefore(len(set.Models))
	if s.objects != nil {
		within := ctx
		if s.objects.Shared() { // a file answers, however large it is
			var cancel context.CancelFunc
			within, cancel = context.WithTimeout(ctx, firstSync)
			defer cancel()
		}
		err := s.resync(within)
		if err != nil && !s.objects.Shared() {
			return fmt.Errorf("--store: %w", err)
		}
		if err != nil {
			s.log.Warn("the store does not answer: what was declared before is not known, and only what --config declares is served until it does", zap.String("store", s.objects.Name()), zap.Error(err))
		}
	}
	s.lookAround() // what --config declares may need models that lie there
	err := s.applyConfig(ctx, set)
	if err == nil || len(s.watching) == 0 {
		return err
	}
	select { // what was copied there a moment ago is taken at the second look
	case <-time.After(cmp.Or(s.cfg.ModelsEvery, modelsEvery)):
	case <-ctx.Done():
	}
	s.lookAround()
	return s.applyConfig(ctx, set)
}

// applyConfig applies what --config declares; without the store, if that is away.
func (s *Server) applyConfig(ctx context.Context, set *manifest.Set) error {
	if s.objects == nil || s.synced.Load() {
		_, err := s.Apply(ctx, set, false)
		var away *api.Error
		if s.objects == nil || !s.objects.Shared() || !errors.As(err, &away) || away.Code != api.Unavailable {
			return err
		}
		s.log.Warn("the store has gone: what --config declares is stored when it comes back", zap.Error(err))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	e, err := s.planApplyLocked(ctx, set)
	if err != nil {
		return err
	}
	s.unsaved = set
	err = e.install()
	s.settleLocked()
	return err
}

// resync is catchUp with its lock.
func (s *Server) resync(ctx context.Context) error {
	s.declaring.Lock()
	defer s.declaring.Unlock()
	if s.unsaved == nil {
		if err := s.catchUp(ctx, nil); err != nil {
			return err
		}
		s.retryMisfits()
		return s.restore(ctx)
	}
	// Nothing of what is declared here is in the store yet. It is read as if there were nothing, and what --config says comes on top.
	all, err := s.objects.Changes(ctx, 0)
	if err != nil {
		return err
	}
	put, _, problems := decodeObjects(all.Objects)
	s.mu.Lock()
	s.takeOverLocked(put, nil, problems)
	for _, o := range all.Objects {
		s.revisions[o.ObjectKey] = o.Revision
	}
	s.revision = all.Revision
	s.synced.Store(true)
	s.settleLocked()
	set := s.unsaved
	s.mu.Unlock()
	_, err = s.changeHeld(asConfig(ctx), false, func() (*edit, error) {
		e, err := s.planApplyLocked(asConfig(ctx), set)
		if err == nil {
			s.addUnsavedLocked(ctx, e, set)
		}
		return e, err
	})
	var refused *api.Error
	if err == nil || errors.As(err, &refused) && refused.Code != api.Unavailable {
		s.unsaved = nil // it is stored, or contradicts what is there
	}
	return err
}

// addUnsavedLocked adds to an edit what of the set is in force already and not in the store.
func (s *Server) addUnsavedLocked(ctx context.Context, e *edit, set *manifest.Set) {
	n := 0
	missing := func(kind api.Kind, name string) bool {
		c := e.changes[n]
		n++
		if _, stored := s.revisions[state.ObjectKey{Kind: string(kind), Name: name}]; stored || c.Action != api.Unchanged {
			return false
		}
		e.events = append(e.events, s.event(asConfig(ctx), string(api.Created), c, ""))
		return true
	}
	for _, m := range set.Models {
		if missing(api.KindModel, m.ID().String()) {
			e.put.Models = append(e.put.Models, m)
		}
	}
	for _, f := range set.Functions {
		if missing(api.KindFunction, f.Name) {
			e.put.Functions = append(e.put.Functions, f)
		}
	}
	for _, t := range set.Traffic {
		if missing(api.KindTraffic, t.Model) {
			e.put.Traffic = append(e.put.Traffic, t)
		}
	}
}

// keepInSync takes in what other gateways declare.
func (s *Server) keepInSync(ctx context.Context) {
	wait := syncEvery
	t := time.NewTimer(wait)
	defer t.Stop()
	away := !s.synced.Load()
	for {
		select {
		case <-t.C:
		case <-ctx.Done():
			return
		}
		err := s.resync(ctx)
		switch {
		case err == nil && away:
			s.log.Info("the store answers again")
			away = false
		case err != nil && !away && ctx.Err() == nil:
			s.log.Warn("the store does not answer: what other gateways declare is not seen", zap.Error(err))
			away = true
		}
		if wait = syncEvery; err != nil {
			wait = cmp.Or(min(2*wait, syncBackoff), syncEvery)
		}
		t.Reset(wait)
	}
}
