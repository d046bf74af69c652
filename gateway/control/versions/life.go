package versions

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/control/deployment"
	"github.com/xebec-serving/xebec/gateway/query"
	"github.com/xebec-serving/xebec/gateway/registry"
	"go.uber.org/zap"
)

// look takes in what has happened to a family, and decides which version serves.
func (s *State) look(f *Family) {
	for _, v := range f.Versions {
		s.observe(f, v)
		s.rouse(f, v)
	}
	m := s.Registry(f)
	aspired := registry.Aspired(m)
	serving := registry.Serving(m)
	for name, v := range f.Versions {
		v.aspired = aspired[name]
		if v.State == registry.Declared { // queries wait for a version that is to serve and waits for the old one to end
			v.Model().Closed.Store(name != serving || !aspired[name] || v.qualifies())
		}
	}
	s.serve(f, serving)
	m.Serving = serving
	spare := registry.Spare(m)
	for name, v := range f.Versions {
		if is := name == spare; is != v.Spare() {
			v.SetSpare(is)
			s.touch(f.Name)
		}
	}
	if slices.ContainsFunc(m.Versions, func(v registry.Version) bool { return v.Asleep }) {
		if next := f.Versions[registry.Successor(m)]; next != nil && next.ID().Version != serving {
			next.Awaken() // it takes over when it has a replica
		}
	}
	s.rule(f)
	s.outdated = s.outdated || f.Traffic != nil // rules come into force and go with replicas
}

// act takes the steps that a family can take now.
func (s *State) act(f *Family) {
	for _, a := range registry.Next(s.Registry(f)) {
		v := f.Versions[a.Version]
		switch a.Do {
		case registry.Load:
			s.load(f, v)
		case registry.Resume:
			s.move(v, registry.Available, "")
		case registry.Unload:
			// Queries that wait for a version that has not come up must not keep it: another version may have to wait until it is
			// gone. Nor must the queries of its own validation.
			hopeless := v.State == registry.Validating || v.State == registry.Loading && v.Ready() == 0
			v.resumable = v.State == registry.Available // others have to be validated again
			v.gaveWay = v.State == registry.Loading && v.failing() && f.Spec().Transition == api.TransitionResources
			s.move(v, registry.Draining, whyLeaves(v))
			s.drain(v, hopeless)
		}
		s.touch(f.Name)
	}
}

// whyLeaves says why a version is unloaded, if that is not just because another one has taken over.
func whyLeaves(v *Version) string {
	if !v.gaveWay {
		return ""
	}
	last, _ := v.StartsFail()
	return fmt.Sprintf("it does not start (%s), and another version has its room: it is tried again when the model's traffic rules change, or when no other version is left", last)
}

// serve makes a version the one that serves.
func (s *State) serve(f *Family, version string) {
	if version == f.Serving {
		return
	}
	if old := f.Versions[f.Serving]; f.Serving != "" {
		if s.opened && (old == nil || old.State == registry.Available || old.State == registry.Draining) {
			f.Before = f.Serving // the order in which versions load at the start means nothing
		}
		if old != nil && old.Ready() == 0 {
			f.left = old
		}
		s.c.cfg.Log.Info("another version serves", zap.String("model", f.Name), zap.String("version", version), zap.String("before", f.Before))
	}
	f.Serving, s.outdated = version, true
}

// handOver gives the queries of a version that cannot answer to the one that has replaced it in the table.
func (s *State) handOver(f *Family) {
	left := f.left
	if left == nil {
		return
	}
	f.left = nil
	c := s.c
	c.cfg.Background(func() {
		c.cfg.Path.HandOver(left.Model())
		if c.cfg.Path.Quiesce(c.cfg.Life) == nil {
			c.cfg.Path.HandOver(left.Model()) // of requests that used the table before
		}
	})
}

// wakeEvery is the delay before a version is woken again that could not be woken. It doubles with each time that this fails.
const (
	wakeFirst = time.Second     //xebec:limit first delay before a version is woken again that did not start
	wakeMost  = 5 * time.Minute //xebec:limit longest such delay
)

// rouse wakes a version that could not be woken, and that queries do not wake because another version answers them: what was
// wrong may have been its host. It is called whenever the family is looked at.
func (s *State) rouse(f *Family, v *Version) {
	if v.Ready() > 0 {
		v.wakes, v.wakeAt = 0, time.Time{}
		return
	}
	if v.State != registry.Available || v.Asked() > 0 || !v.Crashing() || f.Serving == v.ID().Version || !s.preferred(f, v) {
		return
	}
	if v.wakeAt.IsZero() {
		delay := min(wakeFirst<<min(v.wakes, 20), wakeMost)
		v.wakes++
		v.wakeAt = time.Now().Add(delay)
		time.AfterFunc(delay, func() { s.c.Changed(f.Name) })
		return
	}
	if !time.Now().Before(v.wakeAt) {
		v.wakeAt = time.Time{}
		v.Awaken()
	}
}

// observe moves a version on as far as what it waits for has happened.
func (s *State) observe(f *Family, v *Version) {
	switch {
	case v.State == registry.Loading && s.loaded(f, v):
		recent := v.recent.Stop()
		s.move(v, registry.Validating, "")
		if v.qualifies() {
			s.qualify(v)
		} else if len(recent) > 0 {
			s.rehearse(v, recent)
		} else {
			s.move(v, registry.Available, "")
		}
	case v.State == registry.Loading && v.Asked() == 0: // the version that it takes over from has woken since, or there was no room
		v.Load(s.wanted(f, v))
	case v.State == registry.Draining && v.stopping && v.Empty():
		v.stopping = false
		s.move(v, registry.Declared, v.reason)
	case v.State == registry.Rejected && v.stopping && v.Empty():
		v.stopping = false
	}
	s.noteServed(v)
	if v.State == registry.Rejected && v.redeclared && !v.stopping {
		v.redeclared = false
		s.move(v, registry.Declared, "")
	}
	if v.Gone && !v.stopping && !s.named[v.ID()] && (v.State == registry.Declared || v.State == registry.Rejected) {
		s.Remove(v)
	}
}

// loaded reports whether a loading version has the replicas it needs to take over. The first one is enough where no other
// version serves, or where launches fail.
func (s *State) loaded(f *Family, v *Version) bool {
	ready, wanted := v.Ready(), s.wanted(f, v)
	if granted := v.Asked(); granted > 0 {
		wanted = min(wanted, granted) // there is no room for more
	}
	if wanted == 0 || ready >= wanted {
		return true
	}
	if ready == 0 {
		return false
	}
	serving := f.Versions[f.Serving]
	return v.Failing() || serving == nil || serving == v || serving.State != registry.Available
}

// takesOver reports whether the version takes over from one that is awake as soon as it is available.
func (s *State) takesOver(f *Family, v *Version) bool {
	if old := f.Versions[f.Serving]; old == nil || old == v || !old.answersNow() {
		return false
	}
	return s.preferred(f, v)
}

// preferred reports whether the version would serve if it were available.
func (s *State) preferred(f *Family, v *Version) bool {
	m := s.Registry(f)
	for i := range m.Versions {
		if r := &m.Versions[i]; r.Name == v.ID().Version {
			r.State, r.Troubled, r.Failing = registry.Available, false, false
		}
	}
	return registry.Successor(m) == v.ID().Version
}

// wanted is how many replicas a version is to have while it loads. One that may sleep is woken to be validated, or to prove itself. One that takes
// over from an awake version needs as many replicas as that one has.
func (s *State) wanted(f *Family, v *Version) int {
	bounds := v.Spec().Replicas
	n := bounds.First()
	if v.Spare() {
		n = 0
	}
	if v.State == registry.Available {
		return n
	}
	if s.takesOver(f, v) {
		return max(n, min(f.Versions[f.Serving].Asked(), bounds.Max), 1)
	}
	if n == 0 && (v.qualifies() || v.proving) {
		return 1
	}
	return n
}

// load gives a version replicas.
func (s *State) load(f *Family, v *Version) {
	s.move(v, registry.Loading, "")
	v.rehearsal, v.gaveWay = nil, false
	serving := f.Versions[f.Serving]
	v.SetQuiet(s.opened || serving != nil && serving != v && serving.Ready() > 0)
	s.collectFor(f, v)
	v.Retry()
	v.Load(s.wanted(f, v))
	v.tried = true
	if v.unserved && !v.served {
		time.AfterFunc(lateAfter, func() { s.c.Changed(f.Name) })
	}
}

// move makes a step in a version's life.
func (s *State) move(v *Version, to registry.State, reason string) {
	if v.State == registry.Validating && v.unqualify != nil {
		v.unqualify()
	}
	if v.State != to && !v.State.Next(to) {
		s.c.cfg.Log.Error("a version took a step that does not exist", zap.Stringer("model", v.ID()), zap.Stringer("from", v.State), zap.Stringer("to", to))
	}
	if to != registry.Loading {
		v.recent.Stop()
	}
	v.State, v.since, v.reason = to, time.Now(), reason
	s.outdated = true
	v.Model().ClosedAs.Store(closedAs(to))
	v.Model().Closed.Store(to == registry.Declared || to == registry.Rejected || (to == registry.Loading || to == registry.Validating) && v.qualifies())
	if to == registry.Available {
		v.proving = false
		v.SetQuiet(false) // a replica that is lost now is missed
		f := s.families[v.ID().Name]
		v.Serve(f != nil && s.takesOver(f, v))
	}
	s.c.cfg.Log.Debug("version", zap.Stringer("model", v.ID()), zap.Stringer("state", to), zap.String("reason", reason))
}

// closedAs is why a version in a state answers nothing, if it does not.
func closedAs(is registry.State) uint32 {
	switch is {
	case registry.Loading, registry.Validating:
		return query.Unproved
	case registry.Rejected:
		return query.Rejected
	}
	return query.Unloaded
}

// drain ends a version's replicas once it has answered what it had accepted and no request can address it any more. Every query
// has a deadline, so that moment comes. A hopeless version has never answered a caller; its accepted queries are not waited for.
// They stay queued until the version is loaded again or until their deadline.
func (s *State) drain(v *Version, hopeless bool) {
	c := s.c
	v.draining++
	attempt := v.draining
	c.cfg.Background(func() {
		c.awaitPublished()
		overtaken := func(s *State) bool { return v.State != registry.Draining || v.draining != attempt || s.stopping }
		for range 2 { // the second time for requests that addressed it during the first
			if hopeless {
				_ = c.cfg.Path.Quiesce(c.cfg.Life) // fails when the gateway stops, which overtaken reports
			} else {
				c.awaitIdle(c.cfg.Life, v.Deployment)
			}
			over := overtaken(c.Lock())
			if !over {
				v.Model().Closed.Store(true) // a request that addresses it now is refused at once
			}
			c.Unlock()
			if over {
				return
			}
		}
		s := c.Lock()
		defer c.Unlock()
		if overtaken(s) {
			return
		}
		v.stopping = true
		v.Release()
		s.touch(v.ID().Name)
		c.kick()
	})
}

// awaitIdle returns when no request can address the deployment any more and it has answered what it had accepted, or when ctx
// ends.
func (c *Catalog) awaitIdle(ctx context.Context, d *deployment.Deployment) {
	slow := time.AfterFunc(c.cfg.Drain, func() {
		c.cfg.Log.Info("a version waits for the last of its queries", zap.Stringer("model", d.ID()), zap.Duration("since", c.cfg.Drain))
	})
	defer slow.Stop()
	if c.cfg.Path.Quiesce(ctx) == nil {
		d.Settle(ctx)
	}
}

// Discard ends a deployment that is in no table, or will not be in the next one, without waiting: it first answers what it has
// accepted. Its caller may hold the lock.
func (c *Catalog) Discard(d *deployment.Deployment) {
	c.cfg.Background(func() {
		c.awaitPublished()
		ctx, cancel := context.WithTimeout(context.Background(), c.cfg.Drain)
		defer cancel()
		c.awaitIdle(ctx, d) // what takes longer ends as "model removed"
		if err := d.Close(ctx, api.ModelRemoved); err != nil {
			c.cfg.Log.Error("model version did not end", zap.Stringer("model", d.ID()), zap.Error(err))
		}
	})
}

// reject ends a version that may not serve.
func (s *State) reject(v *Version, reason string) {
	s.move(v, registry.Rejected, reason)
	v.stopping = true
	v.Release()
	s.touch(v.ID().Name)
	s.c.cfg.Log.Error("version rejected: it will not serve", zap.Stringer("model", v.ID()), zap.String("reason", reason))
}

// qualifies reports whether the version has to be warmed up or validated before it may be asked.
func (v *Version) qualifies() bool { return v.warmsUp() || v.Spec().Validation != nil }

// warmsUp reports whether the version has recorded queries for its warm-up.
func (v *Version) warmsUp() bool { w := v.Spec().Warmup; return w != nil && w.Queries != "" }

func sameQualification(a, b *api.ModelSpec) bool {
	return reflect.DeepEqual(a.Warmup, b.Warmup) && reflect.DeepEqual(a.Validation, b.Validation)
}
