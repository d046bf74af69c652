package declarations

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/api/manifest"
	"github.com/xebec-serving/xebec/gateway/control/deployment"
	"github.com/xebec-serving/xebec/gateway/control/functions"
	"github.com/xebec-serving/xebec/gateway/control/versions"
	"github.com/xebec-serving/xebec/gateway/internal/state"
	"go.uber.org/zap"
)

const (
	// syncEvery is how often a shared store is read: two intervals and a change are well below a second.
	syncEvery = 250 * time.Millisecond //xebec:limit interval between reads of a shared store
	// syncBackoff is the longest time between attempts while the store is away.
	syncBackoff = 5 * time.Second //xebec:limit longest interval between reads while the store is unreachable
	// firstSync is how long the start waits for a store that does not answer, before it serves what --config declares without it.
	firstSync = 3 * time.Second //xebec:limit how long a start waits for Redis
)

// asConfig names --config as the caller.
func asConfig(ctx context.Context) context.Context {
	return api.WithCaller(ctx, api.Caller{Name: "--config"})
}

// Begin reads the store at the start, and applies what --config declares. A store that does not answer is waited for briefly. Then
// what --config declares is served without it, and made durable when the store is back.
func (d *Declarations) Begin(ctx context.Context, set *manifest.Set) error {
	ctx = asConfig(ctx)
	d.cfg.ManyModels(len(set.Models))
	if d.cfg.Store != nil {
		within := ctx
		if d.cfg.Store.Shared() { // a file answers, however large it is
			var cancel context.CancelFunc
			within, cancel = context.WithTimeout(ctx, firstSync)
			defer cancel()
		}
		err := d.resync(within)
		if err != nil && !d.cfg.Store.Shared() {
			return fmt.Errorf("--store: %w", err)
		}
		if err != nil {
			d.cfg.Log.Warn("the store does not answer: what was declared before is not known, and only what --config declares is served until it does", zap.String("store", d.cfg.Store.Name()), zap.Error(err))
		}
	}
	d.scanWatched() // what --config declares may need models that lie there
	err := d.applyConfig(ctx, set)
	if err == nil || len(d.watching) == 0 {
		return err
	}
	select { // a directory that was copied there a moment ago is taken at the second look
	case <-time.After(cmp.Or(d.cfg.WatchEvery, watchEvery)):
	case <-ctx.Done():
	}
	d.scanWatched()
	return d.applyConfig(ctx, set)
}

// Run watches directories, reads the store if others write to it, and ends roll-outs, until ctx ends. It returns at once;
// background runs what the end of the gateway waits for.
func (d *Declarations) Run(ctx context.Context, background func(func())) {
	d.watch(ctx)
	background(func() { d.superviseRollouts(ctx) })
	if d.shared() {
		background(func() { d.keepInSync(ctx) })
	}
}

// applyConfig applies what --config declares; without the store, if that is away.
func (d *Declarations) applyConfig(ctx context.Context, set *manifest.Set) error {
	if err := d.takeDigestsOf(ctx, set, false, true); err != nil {
		return err
	}
	d.keepBytes(set)
	if d.cfg.Store == nil || d.synced.Load() {
		_, err := d.apply(ctx, set, false)
		var away *api.Error
		if !d.shared() || !errors.As(err, &away) || away.Code != api.Unavailable {
			return err
		}
		d.cfg.Log.Warn("the store has gone: what --config declares is stored when it comes back", zap.Error(err))
	}
	s := d.cfg.Catalog.Lock()
	defer d.cfg.Catalog.Unlock()
	e, err := d.planApply(ctx, s, set)
	if err != nil {
		return err
	}
	d.unsaved = set
	err = e.install(s)
	d.settle(s)
	return err
}

// Reapply applies again what --config declares, or nothing of it.
func (d *Declarations) Reapply(ctx context.Context, set *manifest.Set) ([]api.Change, error) {
	return d.Apply(asConfig(ctx), set, false)
}

// keepInSync takes in what other gateways declare, until ctx ends.
func (d *Declarations) keepInSync(ctx context.Context) {
	wait := syncEvery
	t := time.NewTimer(wait)
	defer t.Stop()
	away := !d.synced.Load()
	for {
		select {
		case <-t.C:
		case <-ctx.Done():
			return
		}
		err := d.resync(ctx)
		switch {
		case err == nil && away:
			d.cfg.Log.Info("the store answers again")
			away = false
		case err != nil && !away && ctx.Err() == nil:
			d.cfg.Log.Warn("the store does not answer: what other gateways declare is not seen", zap.Error(err))
			away = true
		}
		if wait = syncEvery; err != nil {
			wait = cmp.Or(min(2*wait, syncBackoff), syncEvery)
		}
		t.Reset(wait)
	}
}

// Following is how the declarations reach a store that they share.
type Following struct {
	// Away means that the last call failed. Errors counts the calls that failed.
	Away        bool
	Errors      uint64
	LastError   string
	LastErrorAt time.Time
	LastSuccess time.Time
}

// Following returns how the declarations reach the store. A store that is not shared is read once, and never away.
func (d *Declarations) Following() Following {
	if f := d.following.Load(); f != nil {
		return *f
	}
	return Following{}
}

// follows notes the outcome of a call. Its caller holds declaring. The end of the gateway says nothing about the store; the end of the
// time that a start waits does.
func (d *Declarations) follows(ctx context.Context, err error) {
	if !d.shared() || err != nil && errors.Is(ctx.Err(), context.Canceled) {
		return
	}
	f := d.Following()
	if f.Away = err != nil; f.Away {
		f.Errors++
		f.LastError, f.LastErrorAt = err.Error(), time.Now()
	} else {
		f.LastSuccess = time.Now()
	}
	d.following.Store(&f)
}

// resync takes in what the store has, and stores what it lacks.
func (d *Declarations) resync(ctx context.Context) (err error) {
	d.declaring.Lock()
	defer d.declaring.Unlock()
	defer func() { d.follows(ctx, err) }()
	if d.unsaved != nil {
		err := d.saveUnsaved(ctx)
		if err == nil {
			d.searchCreated(ctx)
		}
		return err
	}
	if err := d.catchUp(ctx, nil); err != nil {
		return err
	}
	d.searchCreated(ctx)
	d.retryDisplaced()
	defer d.storeMarks()
	return d.restore(ctx)
}

// catchUp takes in what other gateways have changed in the store. theirs, if not nil, receives which objects. Its caller holds
// declaring.
func (d *Declarations) catchUp(ctx context.Context, theirs map[state.ObjectKey]uint64) error {
	changes, err := d.cfg.Store.Changes(ctx, d.ledger.storeRevision())
	if err != nil {
		return err
	}
	if changes.Revision == d.ledger.storeRevision() && !changes.Complete {
		d.synced.Store(true)
		return nil
	}
	if theirs != nil {
		for _, o := range changes.Objects {
			if d.ledger.of(o.ObjectKey) != o.Revision {
				theirs[o.ObjectKey] = o.Revision
			}
		}
	}
	s := d.cfg.Catalog.Lock()
	defer d.cfg.Catalog.Unlock()
	if s.Stopping() {
		return nil
	}
	objects := changes.Objects
	var absent []state.ObjectKey
	if changes.Complete {
		objects, absent = d.complete(s, changes)
	}
	put, drop, problems := decodeObjects(withoutMarks(objects))
	d.cfg.ManyModels(len(put.Models))
	d.takeOver(s, put, append(drop, absent...), problems)
	d.takeMarks(s, objects, changes.Complete)
	for _, o := range objects {
		if o.Data == nil {
			d.ledger.take(o.ObjectKey, 0)
		} else {
			d.ledger.take(o.ObjectKey, o.Revision)
		}
	}
	d.ledger.setStoreRevision(changes.Revision)
	d.synced.Store(true)
	d.settle(s)
	return nil
}

// complete returns what follows from all that the store has: the objects that are news, and those that are gone. A store that
// went back, because it lost its memory or an older replica took its place, knows nothing of later revisions. What it had taken
// then and does not have any more is lost, not gone: it is kept, and stored again.
func (d *Declarations) complete(s *versions.State, c state.Changes) (news []state.Object, gone []state.ObjectKey) {
	if was := d.ledger.storeRevision(); c.Revision < was {
		_, lost := d.ledger.loseAfter(c.Revision)
		d.cfg.Log.Warn("the store has gone back: what it has lost is kept, and stored again", zap.Uint64("revision", c.Revision), zap.Uint64("was", was), zap.Int("lost", lost))
	}
	for _, o := range c.Objects {
		if !d.ledger.isLost(o.ObjectKey) {
			news = append(news, o)
		}
	}
	for _, k := range d.absent(s, c.Objects) {
		if !d.ledger.isLost(k) {
			gone = append(gone, k)
			d.ledger.take(k, 0)
		}
	}
	return news, gone
}

// absent are the objects that are declared here and that the store does not have.
func (d *Declarations) absent(s *versions.State, objects []state.Object) (absent []state.ObjectKey) {
	stored := make(map[state.ObjectKey]bool, len(objects))
	for _, o := range objects {
		stored[o.ObjectKey] = true
	}
	check := func(kind api.Kind, name string) {
		if k := (state.ObjectKey{Kind: string(kind), Name: name}); !stored[k] {
			absent = append(absent, k)
		}
	}
	for id, v := range s.Versions() {
		if v.Source == versions.Applied {
			check(api.KindModel, id.String())
		}
	}
	d.cfg.Functions.Each(func(name string, f functions.Declared) {
		if f.Source == versions.Applied {
			check(api.KindFunction, name)
		}
	})
	for name, f := range s.Families() {
		if f.Traffic != nil {
			check(api.KindTraffic, name)
		}
	}
	return absent
}

// restore stores again what the store has lost.
func (d *Declarations) restore(ctx context.Context) error {
	lost := d.ledger.lostObjects()
	if len(lost) == 0 {
		return nil
	}
	ctx = api.WithCaller(ctx, api.Caller{Name: "restore"})
	_, err := d.changeHeld(ctx, false, func(s *versions.State) (*edit, error) {
		e := &edit{install: func(*versions.State) error { d.ledger.restored(); return nil }}
		add := func(kind api.Kind, id api.ModelID) {
			c := api.Change{Kind: kind, Name: id.Name, Version: id.Version, Action: api.Created}
			e.changes, e.events = append(e.changes, c), append(e.events, d.event(ctx, "restored", c, "the store had lost it"))
		}
		for _, k := range d.ledger.lostObjects() {
			id, err := api.ParseModelRef(k.Name)
			if err != nil {
				continue
			}
			switch api.Kind(k.Kind) {
			case kindUnserved:
				if d.unserved[id] {
					e.unserved = append(e.unserved, id)
				}
			case api.KindModel:
				if v := s.Version(id); v != nil && v.Source == versions.Applied {
					e.put.Models = append(e.put.Models, *v.Spec())
					add(api.KindModel, id)
				}
			case api.KindFunction:
				if f, ok := d.cfg.Functions.Get(id.Name); ok && f.Source == versions.Applied {
					e.put.Functions = append(e.put.Functions, *f.Spec)
					add(api.KindFunction, id)
				}
			case api.KindTraffic:
				if f := s.Family(id.Name); f != nil && f.Traffic != nil {
					e.put.Traffic = append(e.put.Traffic, *f.Traffic)
					add(api.KindTraffic, id)
				}
			}
		}
		return e, nil
	})
	return err
}

// saveUnsaved stores what --config declares while the store was away. Nothing of what is declared here is in the store yet, so the
// store is read as if nothing were declared, and what --config says comes on top.
func (d *Declarations) saveUnsaved(ctx context.Context) error {
	all, err := d.cfg.Store.Changes(ctx, 0)
	if err != nil {
		return err
	}
	put, _, problems := decodeObjects(withoutMarks(all.Objects))
	s := d.cfg.Catalog.Lock()
	d.takeOver(s, put, nil, problems)
	d.takeMarks(s, all.Objects, true)
	for _, o := range all.Objects {
		d.ledger.take(o.ObjectKey, o.Revision)
	}
	d.ledger.setStoreRevision(all.Revision)
	d.synced.Store(true)
	d.settle(s)
	set := d.unsaved
	d.cfg.Catalog.Unlock()
	_, err = d.changeHeld(asConfig(ctx), false, func(s *versions.State) (*edit, error) {
		e, err := d.planApply(asConfig(ctx), s, set)
		if err == nil {
			d.addUnsaved(ctx, e, set)
		}
		return e, err
	})
	var refused *api.Error
	if err == nil || errors.As(err, &refused) && refused.Code != api.Unavailable {
		d.unsaved = nil // it is stored, or contradicts what is stored
	}
	return err
}

// addUnsaved adds to an edit what of the set is in force already and not in the store.
func (d *Declarations) addUnsaved(ctx context.Context, e *edit, set *manifest.Set) {
	n := 0
	missing := func(kind api.Kind, name string) bool {
		c := e.changes[n]
		n++
		if d.Revision(kind, name) != 0 || c.Action != api.Unchanged {
			return false
		}
		e.events = append(e.events, d.event(asConfig(ctx), string(api.Created), c, ""))
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

// decodeObjects reads what the store has. An object that cannot be read is a problem, and stays as it is.
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
			problems[o.ObjectKey] = fmt.Sprintf("%s %s in the store declares another object, and is passed over: another program writes to the store", strings.ToLower(o.Kind), o.Name)
			continue
		}
		put.Append(set)
	}
	return put, drop, problems
}

// takeOver installs what came from the store. The gateway that stored it has judged it; what cannot be in force here is a problem
// of this gateway.
func (d *Declarations) takeOver(s *versions.State, put manifest.Set, drop []state.ObjectKey, problems map[state.ObjectKey]string) {
	for _, k := range drop {
		delete(d.problems, k)
		delete(d.displaced, k)
	}
	var fresh []*deployment.Deployment
	kept := manifest.Set{Traffic: put.Traffic}
	for _, spec := range put.Models {
		key := state.ObjectKey{Kind: string(api.KindModel), Name: spec.ID().String()}
		delete(d.problems, key)
		delete(d.displaced, key)
		if why := d.whyDisplaced(s, &spec); why != "" {
			problems[key], d.displaced[key] = why, spec
			continue
		}
		if v := s.Version(spec.ID()); v != nil && v.Spec().Fixed(&spec) != "" { // it was deleted, and another one has its name
			s.Remove(v)
		}
		if s.Version(spec.ID()) == nil {
			f, err := d.cfg.Host.New(spec)
			if err != nil {
				problems[key] = err.Error()
				continue
			}
			fresh = append(fresh, f)
		}
		kept.Models = append(kept.Models, spec)
	}
	for _, spec := range put.Functions {
		key := state.ObjectKey{Kind: string(api.KindFunction), Name: spec.Name}
		delete(d.problems, key)
		if _, err := functions.PolicyOf(&spec); err != nil {
			problems[key] = err.Error()
			continue
		}
		if slices.Contains(api.LaterReservedNames, spec.Name) {
			d.cfg.Log.Warn("a function has a name that is reserved by now: it keeps answering at its own paths, and should be declared under another name", zap.String("function", spec.Name))
		}
		kept.Functions = append(kept.Functions, spec)
	}
	if err := d.put(s, &kept, fresh, versions.Applied); err != nil {
		d.cfg.Log.Error("what others have declared is not all in force", zap.Error(err))
	}
	for _, k := range drop {
		d.drop(s, k)
	}
	for k, why := range problems {
		d.problems[k] = why
		d.cfg.Log.Error("an object in the store is not in force", zap.String("kind", k.Kind), zap.String("name", k.Name), zap.String("reason", why))
	}
}

// whyDisplaced returns why a model of the store cannot be in force here; empty: it can.
func (d *Declarations) whyDisplaced(s *versions.State, spec *api.ModelSpec) string {
	if f := s.Family(spec.Name); f != nil && f.Source != versions.Applied && len(f.Versions) > 0 {
		return fmt.Sprintf("model %s is declared in the store, and comes from the watched directory %s here: that one serves; remove one of the two", spec.ID(), f.Source)
	}
	if spec.Device != "" && d.cfg.Host.Devices[spec.Device] == nil {
		return fmt.Sprintf("model %s needs the device %q, which this gateway does not have: expected %s", spec.ID(), spec.Device, d.cfg.Host.DeviceNames())
	}
	if err := d.checkNetwork(spec); err != nil {
		return fmt.Sprintf("model %s is declared in the store: %v", spec.ID(), err)
	}
	return ""
}

// retryDisplaced takes in the models of the store that nothing displaces any more.
func (d *Declarations) retryDisplaced() {
	s := d.cfg.Catalog.Lock()
	defer d.cfg.Catalog.Unlock()
	var put manifest.Set
	for _, spec := range d.displaced {
		if d.whyDisplaced(s, &spec) == "" {
			put.Models = append(put.Models, spec)
		}
	}
	if len(put.Models) > 0 && !s.Stopping() {
		d.takeOver(s, put, nil, map[state.ObjectKey]string{})
		d.settle(s)
	}
}

// drop deletes what another gateway has deleted.
func (d *Declarations) drop(s *versions.State, k state.ObjectKey) {
	switch api.Kind(k.Kind) {
	case api.KindFunction:
		if f, ok := d.cfg.Functions.Get(k.Name); ok && f.Source == versions.Applied {
			d.cfg.Functions.Drop(s, k.Name)
			d.implyFunctions(s)
		}
	case api.KindTraffic:
		if f := s.Family(k.Name); f != nil && f.Traffic != nil {
			s.DropTraffic(k.Name)
		}
	case api.KindModel:
		id, err := api.ParseModelRef(k.Name)
		if v := s.Version(id); err == nil && v != nil && v.Source == versions.Applied {
			s.Remove(v)
		}
	}
}
