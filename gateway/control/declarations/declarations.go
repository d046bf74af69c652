package declarations

import (
	"context"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/api/manifest"
	"github.com/xebec-serving/xebec/gateway/control/capacity"
	"github.com/xebec-serving/xebec/gateway/control/deployment"
	"github.com/xebec-serving/xebec/gateway/control/functions"
	"github.com/xebec-serving/xebec/gateway/control/versions"
	"github.com/xebec-serving/xebec/gateway/internal/state"
	"github.com/xebec-serving/xebec/gateway/registry/watch"
	"go.uber.org/zap"
)

// Config is what Declarations need of the gateway.
type Config struct {
	Catalog   *versions.Catalog
	Functions *functions.Functions
	Host      *deployment.Host
	Capacity  *capacity.Capacity
	// Store keeps what is declared; nil: it is lost with the gateway.
	Store state.Backend
	// Watch are directories of models, looked at every WatchEvery; 1 s when 0.
	Watch      []string
	WatchEvery time.Duration
	// Stores are sources of models on other hosts.
	Stores []Store
	// Identity names this gateway in the history.
	Identity string
	Started  time.Time
	// Life ends when the gateway begins to stop.
	Life context.Context
	// Background runs work that the end of the gateway waits for. Nil: digests that are taken at a first start are not stored.
	Background func(func())
	// Serving reports whether the ports are open. Before that, models that cannot run here are accepted with a warning.
	Serving func() bool
	// ManyModels is called before so many models are made of what a parser has read.
	ManyModels func(n int)
	Log        *zap.Logger
}

// Declarations is everything that is declared, and the only place where that changes.
type Declarations struct {
	cfg    Config
	ledger ledger

	// declaring is held while declarations change, also while the store is asked. It is taken before the catalog's lock.
	declaring sync.Mutex
	refusing  atomic.Pointer[api.Error]
	synced    atomic.Bool               // the store has been read
	reported  atomic.Pointer[string]    // the last problem of the store that was logged
	read      atomic.Bool               // everything has been read: see Unread
	following atomic.Pointer[Following] // written by the holder of declaring
	unsaved   *manifest.Set             // what --config declares, until the store takes it; guarded by declaring

	// Guarded by the catalog's lock.
	watching  []*watched
	problems  map[state.ObjectKey]string        // objects of the store that are not in force, and why
	displaced map[state.ObjectKey]api.ModelSpec // models of the store that whyDisplaced keeps out
	edited    map[api.ModelID]string            // versions of which --config has other files, and how they differ
	unserved  map[api.ModelID]bool              // versions that the store marks as having never served

	marks struct { // of versions that have never served
		sync.Mutex
		pending map[api.ModelID]bool // those whose mark may have to change
		storing bool                 // a job that stores them runs
	}

	rolledOut, retreated atomic.Uint64
}

// New makes Declarations without any. Begin reads the store.
func New(cfg Config) *Declarations {
	d := &Declarations{cfg: cfg, problems: map[state.ObjectKey]string{}, displaced: map[state.ObjectKey]api.ModelSpec{}, unserved: map[api.ModelID]bool{}}
	d.ledger.init(cfg.Store != nil, cfg.Started)
	for _, dir := range cfg.Watch {
		if abs, err := filepath.Abs(dir); err == nil {
			dir = abs
		}
		d.watching = append(d.watching, &watched{dir: dir, source: watch.New(watch.Config{Dir: dir, Every: cfg.WatchEvery, Log: cfg.Log})})
	}
	for _, store := range cfg.Stores {
		d.watching = append(d.watching, &watched{dir: store.Name(), source: store})
	}
	return d
}

// Refuse lets every change that is asked for fail with this error, until it is nil again. A change that is being stored ends first.
// What other gateways declare is still taken in.
func (d *Declarations) Refuse(why *api.Error) { d.refusing.Store(why) }

// Hold keeps changes from being made until the returned function is called. A change that is being stored ends first.
func (d *Declarations) Hold() (release func()) {
	d.declaring.Lock()
	return d.declaring.Unlock
}

// shared reports whether other gateways write to the store.
func (d *Declarations) shared() bool { return d.cfg.Store != nil && d.cfg.Store.Shared() }
