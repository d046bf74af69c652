package versions

import (
	"context"
	"iter"
	"slices"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/control/deployment"
	"github.com/xebec-serving/xebec/gateway/query"
	"github.com/xebec-serving/xebec/gateway/registry"
)

// Applied is the source of versions and functions that were applied or deployed, and are kept in the store. Every other source
// is the path of a watched directory.
const Applied = "apply"

// Family is all versions of one model, and how queries are divided between them. Guarded by the Catalog's lock.
type Family struct {
	Name     string
	Source   string // where its versions are declared
	Versions map[string]*Version
	Traffic  *api.TrafficSpec // nil: none is declared
	Serving  string           // the version that answers; empty: none ever has
	Before   string           // the version that answered before it
	rules    rules
	// left is a version without replicas that another one has replaced. Its queries are handed over once the table says so.
	left *Version
}

// Version is one version of a model and where it is in its life. Guarded by the Catalog's lock, except for what it embeds.
type Version struct {
	*deployment.Deployment
	Source string
	State  registry.State
	Gone   bool // its source does not declare it any more

	since   time.Time
	reason  string
	aspired bool
	// stopping: its accepted queries are answered, and its replicas are ending.
	stopping bool
	// resumable: it was available before it was to be unloaded.
	resumable bool
	// gaveWay: it did not start, and another version has its room (transition: resources).
	gaveWay bool
	// unserved: it was declared by this process, or the store says so, as one that has never served. served: it has since.
	unserved, served bool
	noted            bool // what became of it was told to Config.Unserved
	tried            bool // it was loaded
	// proving: a version that may sleep is to show first that it can have a replica.
	proving bool
	// wakes counts the times that it was woken in vain since a replica was last ready, and wakeAt is when it is woken again.
	wakes  int
	wakeAt time.Time
	// redeclared: a rejected version was declared again, and is tried again when none of its processes is left.
	redeclared bool
	// qualifying and draining count the attempts, so that an attempt that was overtaken does nothing.
	qualifying, draining int
	unqualify            context.CancelFunc // ends the attempt under way
	recent               *query.Recent      // collects while it loads beside a version that serves
	validation           *api.ValidationStatus
	rehearsal            *api.RehearsalStatus
}

// Spec is what is declared of the family's traffic, or the default.
func (f *Family) Spec() *api.TrafficSpec {
	if f.Traffic != nil {
		return f.Traffic
	}
	spec := api.TrafficSpec{Model: f.Name}.WithDefaults()
	return &spec
}

// Answering is the version that the model's name means: the one that serves, or where none does the newest one. Nil: there is
// no version.
func (f *Family) Answering() *Version {
	if v := f.Versions[f.Serving]; v != nil {
		return v
	}
	var newest *Version
	for _, v := range f.Versions {
		if newest == nil || api.CompareVersions(v.ID().Version, newest.ID().Version) > 0 {
			newest = v
		}
	}
	return newest
}

// InForce is the version that serves; empty while it is not available yet.
func (f *Family) InForce() string {
	if v := f.Versions[f.Serving]; v != nil && v.State != registry.Available {
		return ""
	}
	return f.Serving
}

// Family returns the family of a model; nil: there is none.
func (s *State) Family(model string) *Family { return s.families[model] }

// Families are all families, in no order.
func (s *State) Families() iter.Seq2[string, *Family] {
	return func(yield func(string, *Family) bool) {
		for name, f := range s.families {
			if !yield(name, f) {
				return
			}
		}
	}
}

// FamilyNames are the names of all families, sorted.
func (s *State) FamilyNames() []string { return sortedNames(s.families) }

// Version returns a version; nil: there is none.
func (s *State) Version(id api.ModelID) *Version { return s.versions[id] }

// Versions are all versions, in no order.
func (s *State) Versions() iter.Seq2[api.ModelID, *Version] {
	return func(yield func(api.ModelID, *Version) bool) {
		for id, v := range s.versions {
			if !yield(id, v) {
				return
			}
		}
	}
}

// Len is the number of versions.
func (s *State) Len() int { return len(s.versions) }

// Resolve finds the version that "name", "name@version" or "name@label" means; nil: there is none.
func (s *State) Resolve(ref string) *Version {
	id, err := api.ParseModelRef(ref)
	if err != nil {
		return nil
	}
	f := s.families[id.Name]
	switch {
	case f == nil:
		return nil
	case id.Version == "":
		return f.Answering()
	}
	if v := f.Versions[id.Version]; v != nil || f.Traffic == nil {
		return v
	}
	return f.Versions[f.Traffic.Labels[id.Version]]
}

// family returns the family of the name, made when there is none.
func (s *State) family(name string) *Family {
	f := s.families[name]
	if f == nil {
		f = &Family{Name: name, Versions: map[string]*Version{}}
		s.families[name] = f
	}
	return f
}

// SetTraffic declares a model's traffic rules.
func (s *State) SetTraffic(spec *api.TrafficSpec) {
	f := s.family(spec.Model)
	f.Traffic = spec
	for _, v := range f.Versions {
		if v.State == registry.Declared { // one that did not start, and gave its room to another one, is tried again
			v.Retry()
			v.gaveWay = false
		}
	}
	s.touch(f.Name)
}

// DropTraffic deletes a model's traffic rules, which are declared.
func (s *State) DropTraffic(model string) {
	f := s.families[model]
	f.Traffic = nil
	if len(f.Versions) == 0 {
		delete(s.families, model)
	}
	s.touch(model)
}

// Adopt adds a new deployment as a version of its model.
func (s *State) Adopt(d *deployment.Deployment, source string) {
	v := &Version{Deployment: d, Source: source, since: time.Now()}
	f := s.family(d.ID().Name)
	f.Source, f.Versions[d.ID().Version] = source, v
	s.outdated = true
	d.Model().Closed.Store(true)
	s.versions[d.ID()] = v
	s.touch(d.ID().Name)
}

// Prove makes a new version that may sleep have one replica before it is available.
func (s *State) Prove(v *Version) {
	v.proving = v.State == registry.Declared && v.Spec().Replicas.First() == 0
}

// Update replaces the declaration of a version by one that differs in nothing that is fixed.
func (s *State) Update(v *Version, spec api.ModelSpec) {
	was := v.Spec()
	v.SetSpec(spec)
	f := s.families[v.ID().Name]
	s.touch(f.Name)
	switch v.State {
	case registry.Loading:
		v.Load(s.wanted(f, v))
	case registry.Available:
		v.Rebound()
	case registry.Validating:
		if !sameQualification(was, &spec) {
			s.qualify(v)
		}
		v.Load(s.wanted(f, v))
	case registry.Rejected:
		v.redeclared = true
	}
}

// Remove forgets a version and ends it once it has answered what it had accepted. The next table does not have it.
func (s *State) Remove(v *Version) {
	id := v.ID()
	delete(s.versions, id)
	if s.c.cfg.Removed != nil {
		s.c.cfg.Removed(id)
	}
	s.outdated = true
	if v.unqualify != nil {
		v.unqualify()
	}
	if f := s.families[id.Name]; f != nil && f.Versions[id.Version] == v {
		delete(f.Versions, id.Version)
		if len(f.Versions) == 0 && f.Traffic == nil {
			delete(s.families, f.Name)
		}
		s.touch(id.Name)
	}
	s.c.Discard(v.Deployment)
}

// Touch has a model looked at in the next step.
func (s *State) Touch(model string) { s.touch(model) }

// Registry is the family as package registry sees it.
func (s *State) Registry(f *Family) *registry.Model {
	m := &registry.Model{Traffic: f.Spec(), Serving: f.Serving, Default: api.VersionPolicy{Latest: 1}, Spare: f.Source == Applied}
	for name, v := range f.Versions {
		m.Versions = append(m.Versions, registry.Version{
			Name: name, State: v.State, Named: s.named[v.ID()], Gone: v.Gone, Troubled: v.troubled(), Failing: v.failing(),
			Resumable: v.State == registry.Draining && !v.stopping && v.resumable, Asleep: f.sleepsBeside(v),
			Unproven: s.Unserved(v),
		})
	}
	slices.SortFunc(m.Versions, func(a, b registry.Version) int { return api.CompareVersions(a.Name, b.Name) })
	return m
}

// sleepsBeside reports whether an available version has no replica while the one that serves has, or may have one sooner.
func (f *Family) sleepsBeside(v *Version) bool {
	old := f.Versions[f.Serving]
	return v.State == registry.Available && v.Ready() == 0 && old != nil && old != v && (old.answersNow() || v.Spare())
}

// answersNow reports whether the version is available and has a replica.
func (v *Version) answersNow() bool { return v.State == registry.Available && v.Ready() > 0 }

// troubled versions have no replica although they should, or cannot get one: others are preferred.
func (v *Version) troubled() bool {
	if v.State == registry.Available && v.Spec().Replicas.Min > 0 && !v.Spare() {
		return v.Ready() == 0
	}
	return v.Crashing()
}

// failing versions do not start: others are to be loaded.
func (v *Version) failing() bool {
	if v.State == registry.Loading && v.Ready() == 0 {
		return v.Failing() // nothing is lost if another one is loaded too early
	}
	return v.gaveWay || v.Crashing()
}

// coming reports whether the version is to answer, cannot yet, and has not failed to.
func (v *Version) coming() bool {
	switch v.State {
	case registry.Loading, registry.Validating:
		if v.Asked() == 0 {
			return false // there is no room
		}
	case registry.Available:
		if v.Asked() == 0 || v.Ready() > 0 {
			return false
		}
	default:
		return false
	}
	return !v.Failed()
}
