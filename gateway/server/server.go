package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	hertz "github.com/cloudwego/hertz/pkg/app/server"
	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/containers"
	"github.com/xebec-serving/xebec/containers/snapshot"
	"github.com/xebec-serving/xebec/containers/venv"
	"github.com/xebec-serving/xebec/gateway/cache"
	"github.com/xebec-serving/xebec/gateway/control/capacity"
	"github.com/xebec-serving/xebec/gateway/control/declarations"
	"github.com/xebec-serving/xebec/gateway/control/deployment"
	"github.com/xebec-serving/xebec/gateway/control/functions"
	"github.com/xebec-serving/xebec/gateway/control/learning"
	"github.com/xebec-serving/xebec/gateway/control/measured"
	"github.com/xebec-serving/xebec/gateway/control/status"
	"github.com/xebec-serving/xebec/gateway/control/versions"
	"github.com/xebec-serving/xebec/gateway/http"
	"github.com/xebec-serving/xebec/gateway/inferlog"
	"github.com/xebec-serving/xebec/gateway/internal/accept"
	"github.com/xebec-serving/xebec/gateway/internal/browser"
	"github.com/xebec-serving/xebec/gateway/internal/state"
	"github.com/xebec-serving/xebec/gateway/learned"
	"github.com/xebec-serving/xebec/gateway/query"
	"github.com/xebec-serving/xebec/scheduler/driver"
	"github.com/xebec-serving/xebec/worker"
	"go.uber.org/zap"
)

// closeStoreWithin bounds how long the end waits for a store that takes the last deltas.
const closeStoreWithin = 5 * time.Second //xebec:limit last write to the store when the gateway stops

// Server is a gateway. Its parts are in packages of their own; a Server only makes them, in order, and takes them down.
type Server struct {
	cfg        Config
	log        *zap.Logger
	started    time.Time
	life       context.Context // ends when the gateway begins to stop
	endLife    context.CancelFunc
	background sync.WaitGroup // what the end waits for
	serving    atomic.Bool    // the ports are open
	ending     atomic.Bool    // the ports are being closed
	emptied    atomic.Bool    // the catalog has nothing any more, because the gateway stops
	closers    []func() error // in the order in which things were made

	runtime    containers.Runtime
	transport  worker.Transport
	clock      *driver.Clock
	epoch      *driver.Epoch   // nil: planning is off
	store      state.Backend   // nil: nothing outlives the gateway
	handover   *state.Handover // the store if it is a file
	guest      state.Learned   // the store, for the process that this one has taken over from; nil: that one has it itself
	learned    *learned.Table
	inferences *inferlog.Log // nil: none is kept
	cache      *cache.Cache
	path       *query.Path
	lines      *lineServer
	capacity   *capacity.Capacity
	// environments are collected if the data directory has them; nil: there is no such directory, or another runtime.
	environments *venv.Runtime
	snapshots    *snapshot.Store // nil: replicas run from their models' directories
	host         *deployment.Host
	catalog      *versions.Catalog
	functions    *functions.Functions
	declared     *declarations.Declarations
	learning     *learning.Learning
	measured     *measured.Keeper
	status       *status.Reader
	repository   *repository // status, as clients of the function and gRPC ports see it

	bodies      *http.Bodies // of requests to both ports
	refusals    struct{ functions, admin http.Refusals }
	hosts       browser.Hosts    // that browsers may name
	functionTLS *tls.Config      // nil: clear text
	function    *accept.Listener // nil: no port
	ownPort     bool             // no supervisor has the function port too
	admin       *adminListener
	grpc        grpcPort
	http        *http.Server
	polled      atomic.Pointer[http.Server] // http, for scrapes: they may come before it serves
	adminHTTP   *hertz.Hertz
	ports       sync.WaitGroup
	portStopped chan error // the failure of a port; see Failed

	dir        dataDir
	before     *predecessor // nil: this process takes over from none
	succession succession
	underWay   underWay
}

// New makes a gateway. Start starts it; a gateway that is not started holds nothing.
func New(cfg Config) *Server {
	cfg = cfg.withDefaults()
	s := &Server{cfg: cfg, log: cfg.Logger, portStopped: make(chan error, 3), bodies: http.NewBodies(cfg.bodyMemory())}
	s.life, s.endLife = context.WithCancel(context.Background())
	s.succession.init()
	return s
}

// Run starts a gateway, serves until ctx ends, and stops it as Stop does. started, if not nil, is called with the addresses of the two
// ports once both listen. Run returns nil after an orderly end.
func Run(ctx context.Context, cfg Config, started func(listen, admin string)) error {
	s := New(cfg)
	if err := s.Start(ctx); err != nil {
		return err
	}
	if started != nil {
		started(s.Listen(), s.Admin())
	}
	select {
	case <-ctx.Done():
		return s.Stop(context.Background(), context.Background())
	case err := <-s.Failed():
		return errors.Join(err, s.Stop(ctx, context.Background()))
	case <-s.Superseded():
		return s.Stop(ctx, context.Background())
	}
}

// Start makes the gateway's parts, reads the store, applies what Config.Manifests declare and opens the ports. When it returns nil
// the gateway serves; models may still be loading (see Ready). When it returns an error nothing is left behind. ctx bounds the
// start only.
func (s *Server) Start(ctx context.Context) (err error) {
	defer func() {
		if err != nil {
			s.before.giveUp(err)
			s.endCanary()
			err = errors.Join(err, s.stop(context.Background()), s.close())
		}
	}()
	s.started = time.Now()
	set, err := s.loadManifests()
	if err != nil {
		return err
	}
	if s.cfg.Takeover {
		if err := s.meet(ctx); err != nil {
			return err
		}
	}
	if err := s.listen(); err != nil {
		return err
	}
	if err := s.make(); err != nil {
		return err
	}
	publishing, stopPublishing := context.WithCancel(context.Background())
	var publisher sync.WaitGroup
	publisher.Go(func() { s.catalog.Run(publishing) })
	s.onClose(func() error { stopPublishing(); publisher.Wait(); return nil })

	if s.before != nil {
		s.capacity.KeepAtLeast(floors(s.before.welcome.Replicas))
	}
	if s.before == nil { // else the process before this one still measures: see takeStore
		s.beginMeasured(ctx)
	}
	if err := s.declared.Begin(ctx, set); err != nil {
		return err
	}
	declared := len(set.Models)
	var afterBodies func()
	if s.cfg.ReleaseMemory {
		afterBodies = releaseMemory
		limit := newHeapLimiter()
		releaseMemory()
		r := &releaser{log: s.log, limit: limit, idle: func() bool { return s.capacity.Awake() == 0 && s.path.Open() == 0 }}
		s.inBackground(func() { r.run(s.life) })
	}
	s.inBackground(func() { s.bodies.Run(s.life, afterBodies) })
	s.declared.Run(s.life, s.inBackground)
	s.inBackground(func() { s.capacity.Run(s.life) })
	s.inBackground(func() { s.learning.Run(s.life) })
	s.inBackground(func() { s.measured.Run(s.life) })
	s.inBackground(func() { s.functions.Run(s.life, s.catalog) })
	s.inBackground(func() { s.collectSnapshots(s.life) })
	if s.before != nil {
		if err := s.takeOver(ctx); err != nil {
			return err
		}
	}
	s.serving.Store(true)
	if err := s.serve(); err != nil {
		return err
	}
	if s.before != nil {
		s.tookOver()
	} else if err := s.listenForSuccessor(); err != nil {
		return err
	}
	s.logBusyPoll()
	s.log.Info("serving", zap.String("functions", s.Listen()), zap.String("admin", s.Admin()), zap.String("grpc", s.GRPC()), zap.Int("models", declared), zap.String("version", s.cfg.Version))
	return nil
}

// make makes the parts, each from those before it.
func (s *Server) make() error {
	cfg := s.cfg
	err := s.openDir()
	if err != nil {
		return err
	}
	dir := s.dir
	workDir, err := os.Getwd()
	if err != nil {
		return fmt.Errorf("find the working directory: %w", err)
	}
	sockets := ""
	if cfg.Transport == nil {
		var remove func()
		if sockets, remove, err = dir.replicaSockets(); err != nil {
			return err
		}
		s.onClose(func() error { remove(); return nil })
	}
	if s.runtime = cfg.Runtime; s.runtime == nil {
		if err := cfg.checkPython(); err != nil {
			return err
		}
		if s.runtime, s.environments, err = newRuntime(cfg, dir, sockets, s.log); err != nil {
			return err
		}
	}
	s.onClose(s.runtime.Close)
	s.clock = driver.NewClock()
	s.onClose(func() error { s.clock.Close(); return nil })
	if cfg.Epoch > 0 {
		s.epoch = driver.NewEpoch(s.clock, cfg.Epoch)
		s.onClose(func() error { s.epoch.Close(); return nil })
	}
	if cfg.Transport != nil {
		s.transport, err = cfg.Transport(s.clock.Now)
	} else {
		s.transport, err = sharedMemory(cfg, dir, sockets, s.clock.Now)
	}
	if err != nil {
		return err
	}
	s.onClose(s.transport.Close)
	if s.snapshots, err = openSnapshots(cfg, dir); err != nil {
		return err
	}
	stores, err := openStores(cfg, dir)
	if err != nil {
		return err
	}
	if err := s.openStore(dir); err != nil {
		return err
	}
	if err := s.openInferenceLog(); err != nil {
		return err
	}
	s.cache = cache.New(cfg.CacheBytes)
	s.path = query.New(query.Config{
		Now: s.clock.Now, Cache: s.cache, Timers: driver.NewTimers(s.clock), FeedbackWindow: cfg.FeedbackWindow, FeedbackBytes: cfg.FeedbackBytes,
		Unread: func() string { return s.declared.Unread() },
	})
	s.lines = &lineServer{start: s.startLines}
	s.onClose(s.lines.close)
	s.makeControl(workDir, stores)
	return nil
}

// makeControl makes what decides: capacity, versions, functions, declarations, and the status of all of them.
func (s *Server) makeControl(workDir string, stores []declarations.Store) {
	cfg := s.cfg
	devices := map[string]*driver.Device{}
	for _, name := range cfg.Devices {
		devices[name] = driver.NewDevice()
	}
	s.capacity = capacity.New(capacity.Config{
		CPU: cfg.NodeCPU, MemoryBytes: cfg.NodeMemoryBytes, Now: s.clock.Now, Life: s.life, Log: s.log,
		Preloaded: func() []int { return s.host.Preloaded() },
		Changed:   func(model string) { s.catalog.Changed(model) },
	})
	s.host = &deployment.Host{
		Clock: s.clock, Transport: s.transport, Runtime: s.runtime, Capacity: s.capacity, Cache: s.cache, CacheBytes: cfg.CacheBytes, Devices: devices,
		Python: cfg.Python, Program: cfg.Program, Snapshots: s.snapshots, CheckEnvironment: venv.Check, Digested: func(id api.ModelID, digest string) { s.declared.Digested(id, digest) }, Pinned: func(id api.ModelID, digest string) { s.declared.Pinned(id, digest) }, Cores: cfg.cores(), NoHostNetwork: noHostNetwork(cfg), Lines: s.lines.add, WorkDir: workDir, Drain: cfg.DrainTimeout, Backoff: cfg.Backoff, Log: s.log,
		Changed: func(model string) { s.catalog.Changed(model) },
	}
	s.measured = s.newMeasured()
	s.host.Recall = s.recall
	s.host.CheckRuntime()
	s.catalog = versions.New(versions.Config{
		Host: s.host, Path: s.path, Learned: s.learned, Life: s.life, Background: s.inBackground, Drain: cfg.DrainTimeout, Log: s.log,
		SourcesRead: func() bool { return s.declared.SourcesRead() },
		Unserved:    func(id api.ModelID) { s.declared.NoteUnserved(id) },
		Removed:     s.measured.Removed,
	})
	s.functions = functions.New(functions.Config{
		Path: s.path, Learned: s.learned, Epoch: s.epoch, Devices: devices, NextKey: s.host.NextKey, Inferences: s.inferences,
		Judged: func(d *deployment.Deployment) (labels, losses float64, at time.Time) { return s.measured.Judged(d) },
	})
	s.catalog.Attach(s.functions)
	hostname, err := os.Hostname()
	if err != nil {
		hostname = "unknown"
	}
	s.declared = declarations.New(declarations.Config{
		Catalog: s.catalog, Functions: s.functions, Host: s.host, Capacity: s.capacity, Store: s.store,
		Watch: cfg.Models, WatchEvery: cfg.ModelsEvery, Stores: stores, Identity: fmt.Sprintf("%s, process %d, %s", hostname, os.Getpid(), s.Admin()),
		Started: s.started, Life: s.life, Background: s.inBackground, Serving: s.serving.Load, Log: s.log,
		ManyModels: func(n int) {
			if cfg.ReleaseMemory && !s.serving.Load() {
				compactBefore(n)
			}
		},
	})
	s.learning = learning.New(s.learningConfig())
	s.status = status.New(status.Config{
		Catalog: s.catalog, Functions: s.functions, Declarations: s.declared, Capacity: s.capacity, Path: s.path, Cache: s.cache,
		Learned: s.learned, Clock: s.clock, Epoch: s.epoch, Inferences: s.inferences, Measured: s.measured, Store: s.store, CacheBytes: cfg.CacheBytes,
		ReadyRequires: cfg.ReadyRequires, Version: cfg.Version, DataDir: cfg.DataDir, Listen: s.Listen(), Admin: s.Admin(), GRPC: s.GRPC(), Started: s.started,
		AcceptErrors: s.acceptErrors, EdgeRefused: s.edgeRefused, Loops: s.loops, Replicas: s.host.Replicas, Upgrade: s.Upgrade, BusyPoll: cfg.busyPollStatus(),
	})
	s.repository = &repository{Reader: s.status, server: s}
}

func (s *Server) openStore(dir dataDir) error {
	where := s.cfg.Store
	if where == "" {
		where = dir.store()
	}
	if where != "" {
		if err := s.openStoreAt(where); err != nil {
			return fmt.Errorf("--store: %w", err)
		}
		s.onClose(s.store.Close)
	}
	later := s.before != nil && s.handover != nil
	s.learned = learned.New(learned.Config{Store: s.store, Contexts: s.cfg.Contexts, Log: s.log, Later: later})
	s.onClose(func() error {
		ctx, cancel := context.WithTimeout(context.Background(), closeStoreWithin)
		defer cancel()
		if err := s.learned.Close(ctx); err != nil {
			s.log.Warn("what was learned last is not in the store", zap.Error(err))
		}
		return nil
	})
	return nil
}

// openStoreAt opens a file, or a server.
func (s *Server) openStoreAt(where string) (err error) {
	switch {
	case s.before != nil:
		if s.store, s.handover, err = s.before.store(where); err == nil && s.handover != nil {
			s.guest = s.handover.Guest()
		}
	case strings.Contains(where, "://"):
		s.store, err = state.Open(where)
	default:
		if s.handover, err = state.OwnFile(where); err == nil {
			s.store = s.handover
		}
	}
	return err
}

// openDir opens the data directory, or takes it over.
func (s *Server) openDir() (err error) {
	if s.before != nil {
		set := 0
		if s.before.welcome.Second {
			set = 1
		}
		s.dir, err = inheritDataDir(s.cfg.DataDir, s.before.take(fileLock), set)
	} else {
		s.dir, err = openDataDir(s.cfg.DataDir)
	}
	if err == nil && s.dir.lock != nil {
		s.onClose(s.dir.lock.Close)
	}
	if err == nil {
		s.dir.warnOpen(s.log)
	}
	return err
}

func (s *Server) openInferenceLog() (err error) {
	if s.cfg.InferenceLog == "" {
		return nil
	}
	if s.inferences, err = inferlog.Open(inferlog.Config{Dir: s.cfg.InferenceLog, MaxBytes: s.cfg.InferenceLogBytes, Locked: s.before.take(fileLog), Log: s.log}); err != nil {
		return fmt.Errorf("--inference-log: %w", err)
	}
	s.onClose(func() error {
		ctx, cancel := context.WithTimeout(context.Background(), closeStoreWithin)
		defer cancel()
		if err := s.inferences.Close(ctx); err != nil {
			s.log.Warn("the last records of the inference log are lost", zap.Error(err))
		}
		return nil
	})
	return nil
}

// Shutdown stops accepting requests, answers those that were accepted as far as ctx allows, and takes everything down. It returns
// nil after an orderly end.
func (s *Server) Shutdown(ctx context.Context) error {
	return s.shutdown(ctx, context.Background())
}

// shutdown is Shutdown with a bound for the replicas' end, besides Config.DrainTimeout.
func (s *Server) shutdown(ctx, replicas context.Context) error {
	s.ending.Store(true)
	successor := s.succession.settle()
	if successor != nil && s.http != nil {
		within, cancel := s.awaitingClients(ctx)
		err := s.http.AwaitClosed(within)
		cancel()
		if err != nil {
			s.log.Info("closing the connections that are left", zap.Error(err))
			s.http.CloseQuiet(ctx) // before Shutdown, in which Hertz closes what looks idle to it
		}
	}
	s.status.SetDraining()
	var calls sync.WaitGroup
	calls.Go(func() { s.shutdownGRPC(ctx) })
	if s.http != nil {
		if err := s.http.Shutdown(ctx); err != nil {
			s.log.Warn(err.Error())
		}
	}
	calls.Wait()
	if successor != nil {
		s.passOn(successor)
	}
	if successor == nil && s.measured != nil { // the store is the successor's
		s.measured.Flush(context.Background()) // which bounds itself
	}
	err := s.stop(replicas)
	if s.adminHTTP != nil {
		now, cancel := context.WithTimeout(context.Background(), time.Millisecond)
		defer cancel()
		_ = s.adminHTTP.Shutdown(now) // its followers are cut off; there is nothing to wait for
		_ = s.admin.Close()           // in case it had not begun to serve
	}
	s.ports.Wait()
	s.log.Info("stopped")
	err = errors.Join(err, s.close())
	s.succession.end(successor)
	return err
}

// idleClosing is the part of the drain timeout after which connections without a request are closed. The rest is for the requests that
// come at that moment.
const idleClosing = 0.75

// awaitingClients bounds how long the end waits for clients to send the last request of their connections.
func (s *Server) awaitingClients(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, time.Duration(idleClosing*float64(s.cfg.DrainTimeout)))
}

// stop ends every version at once.
func (s *Server) stop(within context.Context) error {
	s.endLife()
	if s.catalog == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(within, s.cfg.DrainTimeout)
	defer cancel()
	s.catalog.BeginStop()
	release := s.declared.Hold() // a change that is being stored ends first; the store bounds how long that takes
	s.emptied.Store(true)
	all := s.catalog.Stop()
	release()
	errs := make([]error, len(all))
	var wg sync.WaitGroup
	for i, v := range all {
		wg.Go(func() { errs[i] = v.Close(ctx, api.ShuttingDown) })
	}
	wg.Wait()
	s.background.Wait()
	return errors.Join(errs...)
}

// close takes down what was made, the last first.
func (s *Server) close() error {
	var errs []error
	for i := len(s.closers) - 1; i >= 0; i-- {
		errs = append(errs, s.closers[i]())
	}
	s.closers = nil
	return errors.Join(errs...)
}

func (s *Server) onClose(f func() error) { s.closers = append(s.closers, f) }

// inBackground runs work that the end of the gateway waits for.
func (s *Server) inBackground(work func()) { s.background.Go(work) }
