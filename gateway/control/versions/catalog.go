package versions

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/control/deployment"
	"github.com/xebec-serving/xebec/gateway/learned"
	"github.com/xebec-serving/xebec/gateway/query"
	"github.com/xebec-serving/xebec/gateway/registry"
	"go.uber.org/zap"
)

// Functions is what a Catalog needs of the functions that use its models. Both methods are called with the Catalog's lock held.
type Functions interface {
	// Uses lists the models that functions use.
	Uses() []Use
	// Publish replaces the table that queries look models and functions up in.
	Publish(s *State)
}

// Use is one reference of a function to a model.
type Use struct {
	Ref    string // name, name@version or name@label
	SLO    time.Duration
	Weight float64
}

// Config is what a Catalog needs of the gateway.
type Config struct {
	Host *deployment.Host
	Path *query.Path
	// Learned keeps what learned roll-outs have learned.
	Learned *learned.Table
	// Life ends when the gateway begins to stop.
	Life context.Context
	// Background runs work that the end of the gateway waits for.
	Background func(func())
	// Drain bounds how long a version that is deleted may take to answer what it has accepted.
	Drain time.Duration
	// SourcesRead reports whether every source of versions has been read once. Until then replicas are started at full priority,
	// for nothing serves yet.
	SourcesRead func() bool
	// Unserved is called, with the Catalog's lock held, when a version that has never served fails to start or is rejected, and when it
	// serves after all. It must not block. Nil: it is not called.
	Unserved func(id api.ModelID)
	// Removed is called, with the Catalog's lock held, when a version is removed; may be nil. It must not block.
	Removed func(id api.ModelID)
	Log     *zap.Logger
}

// Catalog has all versions of all models, and moves them through their lives.
type Catalog struct {
	cfg       Config
	functions Functions

	refresh chan struct{} // capacity 1: Run is to take the next steps
	notes   struct {      // models whose replicas something happened to
		sync.Mutex
		models map[string]bool
	}
	validated, rejected atomic.Uint64

	mu    sync.Mutex
	state State
}

// State is what a Catalog knows. A *State is valid only while the Catalog's lock is held: between [Catalog.Lock] and
// [Catalog.Unlock]. So are the families and versions that it returns.
type State struct {
	c        *Catalog
	versions map[api.ModelID]*Version
	families map[string]*Family
	touched  map[string]bool      // families that something happened to
	named    map[api.ModelID]bool // versions that functions name: they stay loaded
	outdated bool                 // the published table is not what would be published now
	opened   bool                 // the first models are there: from now on replicas load quietly
	stopping bool                 // nothing is declared or deleted any more
}

// New makes an empty Catalog.
func New(cfg Config) *Catalog {
	c := &Catalog{cfg: cfg, refresh: make(chan struct{}, 1)}
	c.notes.models = map[string]bool{}
	c.state = State{c: c, versions: map[api.ModelID]*Version{}, families: map[string]*Family{}, touched: map[string]bool{}, named: map[api.ModelID]bool{}}
	return c
}

// Attach sets who uses the models. It is called once, before anything is declared.
func (c *Catalog) Attach(f Functions) { c.functions = f }

// Lock takes the Catalog's lock, and with it the state.
func (c *Catalog) Lock() *State {
	c.mu.Lock()
	return &c.state
}

// Unlock gives the lock back. The table follows from the state only after Settle.
func (c *Catalog) Unlock() { c.mu.Unlock() }

// Changed says that something happened to a replica of the model. It never blocks: pollers call it.
func (c *Catalog) Changed(model string) {
	c.notes.Lock()
	c.notes.models[model] = true
	c.notes.Unlock()
	c.kick()
}

func (c *Catalog) kick() {
	select {
	case c.refresh <- struct{}{}:
	default:
	}
}

// Run lets versions take their steps until ctx ends.
func (c *Catalog) Run(ctx context.Context) {
	for {
		select {
		case <-c.refresh:
			s := c.Lock()
			c.notes.Lock()
			for name := range c.notes.models {
				s.touch(name)
			}
			clear(c.notes.models)
			c.notes.Unlock()
			s.stepAll()
			s.opened = s.opened || c.cfg.SourcesRead() && len(s.Waiting()) == 0
			c.Unlock()
		case <-ctx.Done():
			return
		}
	}
}

// Stop closes every version at once; nothing is declared from now on.
func (c *Catalog) Stop() []*Version {
	s := c.Lock()
	defer c.Unlock()
	s.stopping = true
	all := make([]*Version, 0, len(s.versions))
	for _, v := range s.versions {
		all = append(all, v)
	}
	s.versions, s.families = map[api.ModelID]*Version{}, map[string]*Family{}
	return all
}

// BeginStop keeps changes that begin from now on from being made.
func (c *Catalog) BeginStop() {
	c.Lock().stopping = true
	c.Unlock()
}

// awaitPublished returns when the caller that holds the lock now has published the table that follows from its change.
func (c *Catalog) awaitPublished() {
	c.Lock()
	defer c.Unlock()
}

// Stopping reports whether the gateway is stopping.
func (s *State) Stopping() bool { return s.stopping }

// Settle makes everything follow what is declared now: the table, the lanes' objectives, the zygotes, and the steps of versions.
func (s *State) Settle() {
	s.outdated = true
	uses := s.c.functions.Uses()
	s.nameVersions(uses)
	s.configure(uses)
	s.c.cfg.Host.FollowDeclared(s.c.cfg.Life, s.deployments(), s.c.cfg.Background)
	s.stepAll()
}

// Outdate has the table published by the next step.
func (s *State) Outdate() { s.outdated = true }

func (s *State) deployments() func(yield func(*deployment.Deployment) bool) {
	return func(yield func(*deployment.Deployment) bool) {
		for _, v := range s.versions {
			if !yield(v.Deployment) {
				return
			}
		}
	}
}

// touch has the family looked at in the next step.
func (s *State) touch(name string) { s.touched[name] = true }

// stepRounds bounds how often the result of one step leads to more steps at once. Each round is one step of a version's life.
const stepRounds = 8

// stepAll lets every touched family take its next steps, and publishes the table if it changed: for ten thousand models that
// takes a tenth of a second, and a version that falls asleep changes nothing in it. The table is published before anything is
// unloaded, so that traffic leaves a version before its replicas do.
func (s *State) stepAll() {
	for range stepRounds {
		names := sortedNames(s.touched)
		clear(s.touched)
		families := make([]*Family, 0, len(names))
		for _, name := range names {
			if f := s.families[name]; f != nil && !s.stopping {
				families = append(families, f)
				s.look(f)
			}
		}
		if s.outdated {
			s.c.functions.Publish(s)
			s.outdated = false
		}
		for _, f := range families {
			s.handOver(f)
			s.act(f)
		}
		if len(s.touched) == 0 {
			return
		}
	}
	s.c.kick() // the rest is for the next time
}

// nameVersions notes which versions functions name: they stay loaded.
func (s *State) nameVersions(uses []Use) {
	before := s.named
	s.named = map[api.ModelID]bool{}
	for _, u := range uses {
		if id, err := api.ParseModelRef(u.Ref); err == nil && id.Version != "" {
			if v := s.Resolve(u.Ref); v != nil {
				s.named[v.ID()] = true
			}
		}
	}
	for id := range before {
		if !s.named[id] {
			s.touch(id.Name)
		}
	}
	for id := range s.named {
		if !before[id] {
			s.touch(id.Name)
		}
	}
}

// configure gives every lane the objective and the weight that follow from the functions that use it.
func (s *State) configure(uses []Use) {
	slo, weight := map[*Version]time.Duration{}, map[*Version]float64{}
	for _, u := range uses {
		id, err := api.ParseModelRef(u.Ref)
		if err != nil {
			continue
		}
		f := s.families[id.Name]
		if f == nil {
			continue
		}
		for _, v := range f.Versions {
			if id.Version != "" && id.Version != v.ID().Version {
				continue
			}
			if slo[v] == 0 || u.SLO < slo[v] {
				slo[v] = u.SLO
			}
			weight[v] = max(weight[v], u.Weight)
		}
	}
	for _, v := range s.versions {
		v.Configure(slo[v], weight[v])
	}
}

// Waiting are the versions that are to answer and cannot yet. Where the one that was to answer does not start, they are those that take its
// place.
func (s *State) Waiting() (waiting []string) {
	for _, f := range s.families {
		for name, v := range f.Versions {
			if (name == f.Serving || s.named[v.ID()]) && v.coming() {
				waiting = append(waiting, v.ID().String())
			}
		}
		waiting = append(waiting, s.substitutes(f)...)
	}
	return waiting
}

// substitutes are the versions that are to take the place of one that was to serve and has failed to start, or was rejected. They may not
// be loading yet: the next step of the family has them loaded, or woken.
func (s *State) substitutes(f *Family) (coming []string) {
	failed := f.Versions[f.Serving]
	if failed == nil || failed.Ready() > 0 || !failed.Failed() && failed.State != registry.Rejected {
		return nil
	}
	aspired := registry.Aspired(s.Registry(f))
	for name, v := range f.Versions {
		if v == failed || !aspired[name] || v.Failed() {
			continue
		}
		asked := v.Asked() > 0 || v.Spare()
		switch v.State {
		case registry.Declared:
			coming = append(coming, v.ID().String())
		case registry.Loading, registry.Validating, registry.Available:
			if asked { // else there is no room, or it may sleep
				coming = append(coming, v.ID().String())
			}
		}
	}
	return coming
}

func sortedNames[T any](m map[string]T) []string {
	names := make([]string, 0, len(m))
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
