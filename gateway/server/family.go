package server

import (
	"context"
	"slices"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/registry"
	"go.uber.org/zap"
)

// sourceApply is the source of what was applied or deployed, and is kept in the store; the others are watched directories.
const sourceApply = "apply"

// family is all versions of one model, and how its queries are divided between them. Guarded by Server.mu.
type family struct {
	name     string
	source   string // who declares its versions
	versions map[string]*deployment
	traffic  *api.TrafficSpec // nil: nobody has declared any
	serving  string           // the version that answers; empty: none ever has
	before   string           // the one that did before
	rules    rules
}

// life is where a version is in its life. Guarded by Server.mu.
type life struct {
	source  string
	state   registry.State
	since   time.Time
	reason  string
	aspired bool
	gone    bool // no source declares it any more
	// stopping: what was accepted is answered, and the replicas are ending.
	stopping bool
	// resumable: it was available before it was to be unloaded.
	resumable bool
	// anew: a rejected version has been declared again, and is tried again when nothing of it runs any more.
	anew bool
	// qualifying and draining count the attempts, so that one that is overtaken does nothing.
	qualifying, draining int
	unqualify            context.CancelFunc // ends the attempt under way
	validation           *api.ValidationStatus
}

// familyLocked returns the family of the name, made when it is not there.
func (s *Server) familyLocked(name string) *family {
	f := s.families[name]
	if f == nil {
		f = &family{name: name, versions: map[string]*deployment{}}
		s.families[name] = f
	}
	return f
}

// adoptLocked puts a new deployment where its family is.
func (s *Server) adoptLocked(d *deployment, source string) {
	f := s.familyLocked(d.id.Name)
	f.source, f.versions[d.id.Version] = source, d
	s.outdated = true
	d.life = life{source: source, since: time.Now()}
	d.model.Closed.Store(true)
	s.models[d.id] = d
	s.touchLocked(d.id.Name)
}

// disownLocked forgets a deployment; whoever calls retires it after the next table is published.
func (s *Server) disownLocked(d *deployment) {
	delete(s.models, d.id)
	s.outdated = true
	if d.life.unqualify != nil {
		d.life.unqualify()
	}
	f := s.families[d.id.Name]
	if f == nil || f.versions[d.id.Version] != d {
		return
	}
	delete(f.versions, d.id.Version)
	if len(f.versions) == 0 && f.traffic == nil {
		delete(s.families, f.name)
	}
	s.touchLocked(d.id.Name)
}

// touchLocked has the family looked at in the next step.
func (s *Server) touchLocked(name string) { s.touched[name] = true }

// spec is what is declared of the family's traffic, or the default.
func (f *family) spec() *api.TrafficSpec {
	if f.traffic != nil {
		return f.traffic
	}
	spec := api.TrafficSpec{Model: f.name}.WithDefaults()
	return &spec
}

// modelLocked is the family as the registry sees it.
func (s *Server) modelLocked(f *family) *registry.Model {
	m := &registry.Model{Traffic: f.spec(), Serving: f.serving, Default: api.VersionPolicy{All: true}}
	if f.source != sourceApply {
		m.Default = api.VersionPolicy{Latest: 1}
	}
	for name, d := range f.versions {
		m.Versions = append(m.Versions, registry.Version{
			Name: name, State: d.life.state, Named: s.named[d.id], Gone: d.life.gone, Troubled: d.troubled(),
			Resumable: d.life.state == registry.Draining && !d.life.stopping && d.life.resumable, Asleep: f.sleepsBeside(d),
		})
	}
	slices.SortFunc(m.Versions, func(a, b registry.Version) int { return api.CompareVersions(a.Name, b.Name) })
	return m
}

// crashing versions lose their replicas as soon as they have them.
func (d *deployment) crashing() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.model.Ready.Load() == 0 && d.failures >= crashLoop
}

// sleepsBeside reports whether an available version has no replica while the one that serves has.
func (f *family) sleepsBeside(d *deployment) bool {
	old := f.versions[f.serving]
	return d.life.state == registry.Available && d.model.Ready.Load() == 0 && old != nil && old != d && old.answersNow()
}

// answersNow reports whether a version is available and has a replica.
func (d *deployment) answersNow() bool {
	return d.life.state == registry.Available && d.model.Ready.Load() > 0
}

// relievesLocked reports whether a version takes over from one that is awake as soon as it is available.
func (s *Server) relievesLocked(f *family, d *deployment) bool {
	if old := f.versions[f.serving]; old == nil || old == d || !old.answersNow() {
		return false
	}
	m := s.modelLocked(f)
	for i := range m.Versions {
		if v := &m.Versions[i]; v.Name == d.id.Version {
			v.State, v.Troubled = registry.Available, false
		}
	}
	return registry.Successor(m) == d.id.Version
}

// troubled versions have no replica although they should, or cannot get one: others are preferred.
func (d *deployment) troubled() bool {
	if d.life.state == registry.Available && d.spec().Replicas.Min > 0 {
		return d.model.Ready.Load() == 0
	}
	if d.model.Ready.Load() > 0 {
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.failures >= crashLoop
}

// stepRounds bounds how often what a step has changed leads to more steps at once. Each round is one step of a version's life.
const stepRounds = 8

// stepAllLocked lets every family that something has happened to take its next steps, and publishes what follows, if it is anything: of ten
// thousand models a table takes a tenth of a second, and one that falls asleep changes nothing in it. What serves is
// published before anything is unloaded: traffic leaves a version before its replicas do.
func (s *Server) stepAllLocked() {
	for range stepRounds {
		names := sortedNames(s.touched)
		clear(s.touched)
		families := make([]*family, 0, len(names))
		for _, name := range names {
			if f := s.families[name]; f != nil && !s.stopping {
				families = append(families, f)
				s.lookLocked(f)
			}
		}
		if s.outdated {
			s.publishLocked()
			s.outdated = false
		}
		for _, o := range s.orphans {
			o.d.lane.RemoveFunction(o.queue)
		}
		s.orphans = nil
		for _, f := range families {
			s.actLocked(f)
		}
		if len(s.touched) == 0 {
			return
		}
	}
	s.changed() // the rest is for the next time
}

// answering is the version that a model's name means: the one that serves, or where none does the newest, which says so. It is nil where
// there is none.
func (f *family) answering() *deployment {
	if d := f.versions[f.serving]; d != nil {
		return d
	}
	var newest *deployment
	for _, d := range f.versions {
		if newest == nil || api.CompareVersions(d.id.Version, newest.id.Version) > 0 {
			newest = d
		}
	}
	return newest
}

// lookLocked takes in what has happened to a family, and decides who serves.
func (s *Server) lookLocked(f *family) {
	for _, d := range f.versions {
		s.observeLocked(f, d)
	}
	m := s.modelLocked(f)
	aspired := registry.Aspired(m)
	serving := registry.Serving(m)
	for v, d := range f.versions {
		d.life.aspired = aspired[v]
		if d.life.state == registry.Declared { // what is to serve and waits for the old one to end: queries wait for it
			d.model.Closed.Store(v != serving || !aspired[v] || d.qualifies())
		}
	}
	s.serveLocked(f, serving)
	if slices.ContainsFunc(m.Versions, func(v registry.Version) bool { return v.Asleep }) {
		if next := f.versions[registry.Successor(m)]; next != nil && next.id.Version != serving {
			s.capacity.awaken(next) // it takes over when it has a replica
		}
	}
	s.ruleLocked(f)
	s.outdated = s.outdated || f.traffic != nil // rules come and go with replicas
}

// actLocked takes the steps that a family can take now.
func (s *Server) actLocked(f *family) {
	for _, a := range registry.Next(s.modelLocked(f)) {
		d := f.versions[a.Version]
		switch a.Do {
		case registry.Load:
			s.loadLocked(f, d)
		case registry.Resume:
			s.moveLocked(d, registry.Available, "")
		case registry.Unload:
			// Whoever waits for one that has not come up must not keep it, for another may have to wait until it is gone; nor must what it is
			// asked to be validated.
			hopeless := d.life.state == registry.Validating || d.life.state == registry.Loading && d.model.Ready.Load() == 0
			d.life.resumable = d.life.state == registry.Available // others have to prove themselves again
			s.moveLocked(d, registry.Draining, "")
			s.drain(d, hopeless)
		}
		s.touchLocked(f.name)
	}
}

// serveLocked makes a version the one that serves.
func (s *Server) serveLocked(f *family, version string) {
	if version == f.serving {
		return
	}
	if old := f.versions[f.serving]; f.serving != "" {
		if s.opened && (old == nil || old.life.state == registry.Available || old.life.state == registry.Draining) {
			f.before = f.serving // and not in what order versions were loaded at the start
		}
		s.log.Info("another version serves", zap.String("model", f.name), zap.String("version", version), zap.String("before", f.before))
	}
	f.serving, s.outdated = version, true
}

// observeLocked moves a version on as far as what it waits for has happened.
func (s *Server) observeLocked(f *family, d *deployment) {
	l := &d.life
	switch {
	case l.state == registry.Loading && s.loadedLocked(f, d):
		s.moveLocked(d, registry.Validating, "")
		if d.qualifies() {
			s.qualify(d)
		} else {
			s.moveLocked(d, registry.Available, "")
		}
	case l.state == registry.Loading && d.asked.Load() == 0: // whom it is to relieve has woken since, or there was no room
		s.capacity.load(d, s.wantedLocked(f, d))
	case l.state == registry.Draining && l.stopping && d.empty():
		l.stopping = false
		s.moveLocked(d, registry.Declared, l.reason)
	case l.state == registry.Rejected && l.stopping && d.empty():
		l.stopping = false
	}
	if l.state == registry.Rejected && l.anew && !l.stopping {
		l.anew = false
		s.moveLocked(d, registry.Declared, "")
	}
	if l.gone && !l.stopping && !s.named[d.id] && (l.state == registry.Declared || l.state == registry.Rejected) {
		s.disownLocked(d)
		s.retire(d)
	}
}

// loadedLocked reports whether a version that is being loaded has the replicas it needs to take over: the first one will do where nobody
// else serves, or where others fail.
func (s *Server) loadedLocked(f *family, d *deployment) bool {
	ready, wanted := int(d.model.Ready.Load()), s.wantedLocked(f, d)
	if granted := int(d.asked.Load()); granted > 0 {
		wanted = min(wanted, granted) // there is no room for more
	}
	if wanted == 0 || ready >= wanted {
		return true
	}
	if ready == 0 {
		return false
	}
	d.mu.Lock()
	failing := d.failures > 0
	d.mu.Unlock()
	serving := f.versions[f.serving]
	return failing || serving == nil || serving == d || serving.life.state != registry.Available
}

// empty reports whether none of its processes is left.
func (d *deployment) empty() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.launches) == 0
}

// qualifies reports whether the version has something to prove before it may be asked.
func (d *deployment) qualifies() bool { return d.spec().Warmup != nil || d.spec().Validation != nil }

// wantedLocked is how many replicas the version is to have while it is loaded. One that may sleep is woken to be validated, and one that is to
// take over from one that is awake has to show that it can, with as many replicas as that one has.
func (s *Server) wantedLocked(f *family, d *deployment) int {
	bounds := d.spec().Replicas
	n := bounds.First()
	if d.life.state == registry.Available {
		return n
	}
	if s.relievesLocked(f, d) {
		return max(n, min(int(f.versions[f.serving].asked.Load()), bounds.Max), 1)
	}
	if n == 0 && d.qualifies() {
		return 1
	}
	return n
}

// loadLocked gives a version replicas.
func (s *Server) loadLocked(f *family, d *deployment) {
	s.moveLocked(d, registry.Loading, "")
	serving := f.versions[f.serving]
	d.quiet.Store(s.opened || serving != nil && serving != d && serving.model.Ready.Load() > 0)
	d.mu.Lock()
	d.failed, d.failures = false, 0
	d.mu.Unlock()
	s.capacity.load(d, s.wantedLocked(f, d))
}

// moveLocked makes a step in a version's life.
func (s *Server) moveLocked(d *deployment, to registry.State, reason string) {
	l := &d.life
	if l.state == registry.Validating && l.unqualify != nil {
		l.unqualify()
	}
	if l.state != to && !l.state.Next(to) {
		s.log.Error("a version took a step that does not exist", zap.Stringer("model", d.id), zap.Stringer("from", l.state), zap.Stringer("to", to))
	}
	l.state, l.since, l.reason = to, time.Now(), reason
	s.outdated = true
	d.model.Closed.Store(to == registry.Declared || to == registry.Rejected || (to == registry.Loading || to == registry.Validating) && d.qualifies())
	if to == registry.Available {
		d.quiet.Store(false) // a replica that is lost now is missed
		f := s.families[d.id.Name]
		s.capacity.serve(d, f != nil && s.relievesLocked(f, d))
	}
	s.log.Debug("version", zap.Stringer("model", d.id), zap.Stringer("state", to), zap.String("reason", reason))
}

// drain ends a version's replicas when it has answered what it had accepted, and nobody can have it in mind any more. Each query has a
// deadline, so that this comes. Of a hopeless version, which has never answered a caller, what was accepted is not waited for: it waits on, until
// the version is loaded again or its deadline.
func (s *Server) drain(d *deployment, hopeless bool) {
	d.life.draining++
	attempt := d.life.draining
	s.background(func() {
		s.awaitPublished()
		over := func() bool { return d.life.state != registry.Draining || d.life.draining != attempt || s.stopping }
		for range 2 { // the second time for those who addressed it in the first
			if hopeless {
				_ = s.gw.Quiesce(s.life) // fails when the gateway stops, which is looked at below
			} else {
				s.awaitIdle(s.life, d)
			}
			s.mu.Lock()
			if over() {
				s.mu.Unlock()
				return
			}
			d.model.Closed.Store(true) // who addresses it now is told at once
			s.mu.Unlock()
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if over() {
			return
		}
		d.life.stopping = true
		s.capacity.release(d)
		s.touchLocked(d.id.Name)
		s.changed()
	})
}

// awaitPublished returns when whoever holds the lock now has published a table that follows from what it does.
func (s *Server) awaitPublished() {
	s.mu.Lock()
	defer s.mu.Unlock()
}

// awaitIdle returns when no request can have the deployment in mind any more and it has answered what it had accepted, or ctx
// ends.
func (s *Server) awaitIdle(ctx context.Context, d *deployment) {
	slow := time.AfterFunc(s.cfg.DrainTimeout, func() {
		s.log.Info("a version waits for the last of its queries", zap.Stringer("model", d.id), zap.Duration("since", s.cfg.DrainTimeout))
	})
	defer slow.Stop()
	if s.gw.Quiesce(ctx) == nil {
		d.settle(ctx)
	}
}

// rejectLocked ends a version that may not serve.
func (s *Server) rejectLocked(d *deployment, reason string) {
	s.moveLocked(d, registry.Rejected, reason)
	d.life.stopping = true
	s.capacity.release(d)
	s.touchLocked(d.id.Name)
	s.log.Error("version rejected: it will not serve", zap.Stringer("model", d.id), zap.String("reason", reason))
}
