package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/api/manifest"
	"github.com/xebec-serving/xebec/containers"
	"github.com/xebec-serving/xebec/gateway/cache"
	"github.com/xebec-serving/xebec/gateway/inferlog"
	"github.com/xebec-serving/xebec/gateway/internal/obs"
	"github.com/xebec-serving/xebec/gateway/internal/state"
	"github.com/xebec-serving/xebec/gateway/learned"
	"github.com/xebec-serving/xebec/gateway/query"
	"github.com/xebec-serving/xebec/gateway/registry/watch"
	"github.com/xebec-serving/xebec/gateway/selection"
	"github.com/xebec-serving/xebec/scheduler/driver"
	"github.com/xebec-serving/xebec/worker/local"
	"go.uber.org/zap"
)

// DefaultCacheBytes holds a million answers of small models, and leaves a small machine most of its memory.
const DefaultCacheBytes = 256 << 20

// Config is how a gateway runs. Its zero value serves nothing on the default addresses.
type Config struct {
	// Listen and Admin are the addresses of the function port and the admin port; 127.0.0.1:1337 and 127.0.0.1:1338 when
	// empty. On other addresses than loopback the admin port needs AdminTokenFile and TLS.
	Listen, Admin string
	// DataDir holds what the gateway keeps, and the socket that workers connect to; when empty nothing is kept and the
	// socket has an abstract name, which vanishes with the gateway.
	DataDir string
	// Python is the interpreter that "python" means in commands of models that name no environment; python3 when empty.
	Python string
	// Manifests are files or directories to apply at the start; in directories also the model directories below.
	Manifests []string
	// MaxBodyBytes bounds a request's body; 64 MiB when 0.
	MaxBodyBytes int64
	// LogLevel is debug, info, warn or error; info when empty. Ignored when Logger is set.
	LogLevel string
	Logger   *zap.Logger
	// DrainTimeout bounds how long requests and replicas may take to finish when the gateway stops; 10 s when 0.
	DrainTimeout time.Duration
	// Epoch is how often the planner decides which models answer whom and how; 10 ms when 0, never when negative.
	Epoch time.Duration
	// Devices names the devices that models may share and then use in turns. Nil: the NVIDIA devices of this machine, as gpu0
	// and so on.
	Devices []string
	// CacheBytes bounds the prediction cache, everything in it counted; 256 MiB when 0, no cache when negative.
	CacheBytes int64
	// Store is where what is declared and what policies learn is kept: a file, or redis://[USER:PASSWORD@]HOST:PORT[/DB], which several gateways may
	// share. Empty: the file state.db in DataDir, or nowhere without one.
	Store string
	// FeedbackWindow is how many of the last queries feedback can be joined with; 65,536 when 0, none when negative.
	FeedbackWindow int
	// Contexts is how many contexts of each function have their policy state in memory, the others wait in the store; 16,384
	// when 0.
	Contexts int
	// Models are directories that are watched for model directories NAME/VERSION, looked at every ModelsEvery (1 s when 0).
	Models      []string
	ModelsEvery time.Duration
	// InferenceLog is the directory of the inference log; empty: none is kept, whatever functions declare. InferenceLogBytes bounds it; 1 GiB
	// when 0.
	InferenceLog      string
	InferenceLogBytes int64
	// AdminTokenFile has the tokens that the admin port asks for, AdminCert and AdminKey are its certificate and key in PEM: all three are
	// needed where Admin is not a loopback address.
	AdminTokenFile, AdminCert, AdminKey string
	// Version is the program's, for people.
	Version string
	// Poller and Reply choose how answers of workers are awaited and how clients are answered; empty means the faster way.
	Poller local.Poller
	Reply  query.ReplyMode
	// NodeCPU and NodeMemoryBytes are what this machine has for replicas, in cores and bytes; 0: what is found.
	NodeCPU         float64
	NodeMemoryBytes int64
	// Docker is this host's container engine, unix:///PATH. Empty: as DOCKER_HOST says, else the usual socket.
	Docker string
	// Runtime runs replicas; processes, and containers for those with an image, when nil.
	Runtime containers.Runtime
	// Started is told the addresses once both ports listen.
	Started func(listen, admin string)
}

func (c Config) withDefaults() Config {
	if c.Listen == "" {
		c.Listen = "127.0.0.1:1337"
	}
	if c.Admin == "" {
		c.Admin = "127.0.0.1:1338"
	}
	if c.MaxBodyBytes == 0 {
		c.MaxBodyBytes = int64(query.DefaultLimits().BodyBytes)
	}
	if c.DrainTimeout == 0 {
		c.DrainTimeout = 10 * time.Second
	}
	if c.Version == "" {
		c.Version = "dev"
	}
	if c.Epoch == 0 {
		c.Epoch = driver.DefaultEpoch
	}
	if c.Devices == nil {
		c.Devices = nvidiaDevices()
	}
	if c.CacheBytes == 0 {
		c.CacheBytes = DefaultCacheBytes
	}
	if c.FeedbackWindow == 0 {
		c.FeedbackWindow = query.DefaultJoins
	}
	if c.Contexts == 0 {
		c.Contexts = learned.DefaultContexts
	}
	return c
}

// Server is a running gateway.
type Server struct {
	cfg     Config
	log     *zap.Logger
	clock   *driver.Clock
	runtime containers.Runtime
	hub     *local.Hub
	gw      *query.Gateway
	http    *query.HTTP
	workDir string
	started time.Time
	listen  string
	admin   string

	replicas atomic.Uint64
	keys     atomic.Uint64 // what the planner knows functions and models by
	draining atomic.Bool
	serving  atomic.Bool   // the ports are open
	refresh  chan struct{} // capacity 1: the table is to be published anew
	ending   sync.WaitGroup

	identity string          // of this gateway, for the history
	life     context.Context // ends when the gateway begins to stop
	endLife  context.CancelFunc
	watching []*watched
	notes    struct {
		sync.Mutex
		models map[string]bool
	}
	inferences *inferlog.Log // nil: none
	capacity   *capacity

	qualified, rejected, rolledOut, retreated atomic.Uint64

	// declaring is held while what is declared is changed, also while the store is asked; before mu.
	declaring sync.Mutex
	objects   state.Backend // nil: what is declared is lost with the gateway
	synced    atomic.Bool   // the store has been read
	unsaved   *manifest.Set // what --config declares, until the store takes it

	mu        sync.Mutex
	models    map[api.ModelID]*deployment
	families  map[string]*family
	touched   map[string]bool      // families that something has happened to
	named     map[api.ModelID]bool // versions that functions name
	alike     api.ModelSpec        // the last one that was deployed: see compactLocked
	functions map[string]*function
	outdated  bool                       // the table in force is not what would be published now
	orphans   []orphan                   // queues of functions that were deleted, until the next table is published
	revision  uint64                     // of the store, as it is known here
	revisions map[state.ObjectKey]uint64 // of each object there, or by count
	count     uint64                     // of the changes of a gateway without a store: see firstCount
	lost      map[state.ObjectKey]bool   // objects that the store had taken, and has no more
	events    []api.HistoryEvent
	troubles  map[state.ObjectKey]string        // objects of the store that are not in force
	misfits   map[state.ObjectKey]api.ModelSpec // models of the store whose names are a watched directory's
	swept     bool                              // containers of an earlier life have been looked for
	preloads  map[string]bool                   // the zygotes that were asked for
	opened    bool                              // the first models are there: what is loaded from now on is loaded quietly
	devices   map[string]*driver.Device
	epoch     *driver.Epoch    // nil: planning is off
	planned   *driver.Topology // what the epoch was told last
	cache     *cache.Cache
	learned   *learned.Table
	store     state.Store // nil: what is learned is lost with the gateway
	stopping  bool        // nothing is declared or deleted any more
}

// function is a declared function with what it counts and has learned.
type function struct {
	spec    api.FunctionSpec
	source  string // as a family's
	created time.Time
	stats   *endpoint
	rate    *rate // as it is shown
	key     uint64
	choice  *driver.Choice // among its candidates; nil until it has any
	lanes   []*driver.Lane // of the candidates that choice is for

	policy   selection.Policy
	learned  *learned.Function
	learning *obs.Learning
	declared []string // the candidates that losses and averages are of
	losses   []obs.Loss
	averages *query.Averages // nil: outputs are labels
	shadows  map[string]*shadow
}

// shadow is a model that sees a part of a function's queries. For the planner it is a function of its own, with the least weight.
type shadow struct {
	key    uint64
	choice *driver.Choice
	lane   *driver.Lane // that choice is for
}

// Run serves until ctx ends, then drains and takes everything down. It returns nil after an orderly end.
func Run(ctx context.Context, cfg Config) error {
	cfg = cfg.withDefaults()
	if runtime.GOMAXPROCS(0) < 2 {
		runtime.GOMAXPROCS(2) // with one P the poller and its work take turns: 5–15 ms at the 99th percentile
	}
	log, done, err := logger(cfg)
	if err != nil {
		return err
	}
	defer done()
	return newServer(cfg, log).run(ctx)
}

func newServer(cfg Config, log *zap.Logger) *Server {
	s := &Server{
		cfg: cfg, log: log, started: time.Now(), refresh: make(chan struct{}, 1),
		models: map[api.ModelID]*deployment{}, functions: map[string]*function{}, devices: map[string]*driver.Device{},
		families: map[string]*family{}, touched: map[string]bool{}, named: map[api.ModelID]bool{}, troubles: map[state.ObjectKey]string{}, misfits: map[state.ObjectKey]api.ModelSpec{},
		revisions: map[state.ObjectKey]uint64{}, lost: map[state.ObjectKey]bool{},
	}
	s.count = firstCount(s.started)
	s.notes.models = map[string]bool{}
	s.life, s.endLife = context.WithCancel(context.Background())
	for _, dir := range cfg.Models {
		if abs, err := filepath.Abs(dir); err == nil {
			dir = abs
		}
		s.watching = append(s.watching, &watched{dir: dir, watcher: watch.New(watch.Config{Dir: dir, Every: cfg.ModelsEvery, Log: log})})
	}
	for _, name := range cfg.Devices {
		s.devices[name] = driver.NewDevice()
	}
	return s
}

func (s *Server) run(ctx context.Context) (err error) {
	cfg := s.cfg
	set, err := loadAll(cfg.Manifests)
	if err != nil {
		return err
	}
	fn, admin, err := listeners(cfg)
	if err != nil {
		return err
	}
	defer fn.Close()
	defer admin.Close()
	s.listen, s.admin = fn.Addr().String(), admin.Addr().String()
	if s.identity, err = os.Hostname(); err != nil {
		s.identity = "unknown"
	}
	s.identity = fmt.Sprintf("%s, process %d, %s", s.identity, os.Getpid(), s.admin)

	socket, err := s.makeDataDir()
	if err != nil {
		return err
	}
	if s.workDir, err = os.Getwd(); err != nil {
		return fmt.Errorf("find the working directory: %w", err)
	}
	if s.runtime = cfg.Runtime; s.runtime == nil {
		if s.runtime, err = s.newRuntimes(); err != nil {
			return err
		}
	}
	defer func() { err = errors.Join(err, s.runtime.Close()) }()

	s.clock = driver.NewClock()
	defer s.clock.Close()
	s.capacity = newCapacity(s)
	if cfg.Epoch > 0 {
		s.epoch = driver.NewEpoch(s.clock, cfg.Epoch)
		defer s.epoch.Close()
	}
	doors, removeDoors, err := s.doors()
	if err != nil {
		return fmt.Errorf("make a directory for the sockets of containers: %w", err)
	}
	defer removeDoors()
	if s.hub, err = local.Listen(local.Config{Socket: socket, Doors: doors, Now: s.clock.Now, Poller: cfg.Poller}); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.hub.Close()) }()
	if err := s.openStore(); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.closeStore()) }()
	if err := s.openInferenceLog(); err != nil {
		return err
	}
	defer s.closeInferenceLog()
	s.cache = cache.New(cfg.CacheBytes)
	s.gw = query.New(query.Config{
		Version: cfg.Version, Now: s.clock.Now, Ready: s.ready, Reply: cfg.Reply,
		Cache: s.cache, Timers: driver.NewTimers(s.clock), Joins: cfg.FeedbackWindow,
	})
	defer s.gw.Close()
	limits := query.DefaultLimits()
	limits.BodyBytes = int(cfg.MaxBodyBytes)
	s.http = query.NewHTTP(s.gw, fn, limits)
	adminHTTP := s.newAdmin(admin)

	publishing, stopPublishing := context.WithCancel(context.Background())
	var publisher sync.WaitGroup
	publisher.Add(1)
	go func() { defer publisher.Done(); s.keepPublishing(publishing) }()
	defer publisher.Wait()
	defer stopPublishing()

	if err := s.begin(ctx, set); err != nil {
		return errors.Join(err, s.stop())
	}
	declared := len(set.Models) // the set itself is not needed any more, and goes with what reading it took
	giveBack()
	s.watchModels(s.life)
	s.background(func() { s.supervise(s.life) })
	s.background(func() { s.capacity.run(s.life) })
	s.background(func() { s.tidyUp(s.life) })
	if s.objects != nil && s.objects.Shared() {
		s.background(func() { s.keepInSync(s.life) })
	}
	s.serving.Store(true)
	served := make(chan error, 2)
	var serving sync.WaitGroup
	serving.Add(2)
	go func() { defer serving.Done(); served <- s.http.Serve() }()
	go func() { defer serving.Done(); served <- adminHTTP.Run() }()
	s.log.Info("serving", zap.String("functions", s.listen), zap.String("admin", s.admin), zap.Int("models", declared), zap.String("version", cfg.Version))
	if cfg.Started != nil {
		cfg.Started(s.listen, s.admin)
	}
	select {
	case <-ctx.Done():
		s.log.Info("stopping: no new requests; those accepted are answered", zap.Duration("at_most", cfg.DrainTimeout))
	case err = <-served:
		err = errors.Join(errors.New("a port stopped serving"), err)
	}
	s.draining.Store(true)
	drain, cancel := context.WithTimeout(context.Background(), cfg.DrainTimeout)
	defer cancel()
	if derr := s.http.Shutdown(drain); derr != nil {
		s.log.Warn(derr.Error())
	}
	err = errors.Join(err, s.stop())
	now, done := context.WithTimeout(context.Background(), time.Millisecond)
	defer done()
	_ = adminHTTP.Shutdown(now) // its followers are cut off; there is nothing to wait for
	admin.Close()               // in case it had not begun to serve
	serving.Wait()
	s.log.Info("stopped")
	return err
}

// stop ends every deployment at once.
func (s *Server) stop() error {
	ctx, cancel := context.WithTimeout(context.Background(), s.cfg.DrainTimeout)
	defer cancel()
	s.endLife()
	s.mu.Lock()
	s.stopping = true
	s.mu.Unlock()
	s.declaring.Lock() // a change that is being stored comes to its end first; the store bounds how long that takes
	s.mu.Lock()
	all := make([]*deployment, 0, len(s.models))
	for _, d := range s.models {
		all = append(all, d)
	}
	s.models, s.families = map[api.ModelID]*deployment{}, map[string]*family{}
	s.mu.Unlock()
	s.declaring.Unlock()
	errs := make([]error, len(all))
	var wg sync.WaitGroup
	for i, d := range all {
		wg.Add(1)
		go func() { defer wg.Done(); errs[i] = d.close(ctx, api.ShuttingDown) }()
	}
	wg.Wait()
	s.ending.Wait()
	return errors.Join(errs...)
}

func listeners(cfg Config) (fn net.Listener, admin *adminListener, err error) {
	secure, err := cfg.adminSecurity()
	if err != nil {
		return nil, nil, err
	}
	if fn, err = net.Listen("tcp", cfg.Listen); err != nil {
		return nil, nil, fmt.Errorf("listen on the function port: %w; is another gateway running? --listen chooses another address", err)
	}
	if admin, err = secure.listen(cfg.Admin); err != nil {
		fn.Close()
		return nil, nil, err
	}
	return fn, admin, nil
}

// maxSocketPath is what fits sun_path with its final zero.
const maxSocketPath = 107

// makeDataDir returns the name of the workers' socket.
func (s *Server) makeDataDir() (string, error) {
	if s.cfg.DataDir == "" {
		return fmt.Sprintf("@xebec-%d-%d", os.Getpid(), time.Now().UnixNano()), nil
	}
	dir, err := filepath.Abs(s.cfg.DataDir)
	if err != nil {
		return "", fmt.Errorf("--data-dir %s: %w", s.cfg.DataDir, err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("--data-dir %s: %w: name a directory that can be made, or none to keep nothing", dir, err)
	}
	socket := filepath.Join(dir, "worker.sock")
	if len(socket) > maxSocketPath {
		return "", fmt.Errorf("--data-dir %s: the socket in it has a path of %d bytes, but the system takes %d: choose a shorter directory", dir, len(socket), maxSocketPath)
	}
	return socket, nil
}

func (s *Server) nextReplica() uint64 { return s.replicas.Add(1) }
