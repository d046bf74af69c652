package server

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/containers"
	"github.com/xebec-serving/xebec/containers/node"
	"github.com/xebec-serving/xebec/gateway/dialect"
	"github.com/xebec-serving/xebec/gateway/http"
	"github.com/xebec-serving/xebec/gateway/learned"
	"github.com/xebec-serving/xebec/gateway/query"
	"github.com/xebec-serving/xebec/gateway/takeover"
	"github.com/xebec-serving/xebec/scheduler/driver"
	"github.com/xebec-serving/xebec/worker"
	"github.com/xebec-serving/xebec/worker/local"
	"go.uber.org/zap"
)

const (
	// maxDefaultCacheBytes holds a million answers of small models.
	maxDefaultCacheBytes = 256 << 20 //xebec:limit prediction cache, or an eighth of the memory if that is less; `--cache`
	// cacheShare leaves a small machine, whose bodies and answers take up to a quarter of the memory each, enough for the rest.
	cacheShare = 8
	// NoPort as an address opens no port: the gateway is used in process only.
	NoPort = "none"
)

// Config is how a gateway runs. Its zero value serves nothing on the default addresses.
type Config struct {
	// Listen and Admin are the addresses of the function port and the admin port; 127.0.0.1:1337 and 127.0.0.1:1338 when
	// empty, none when NoPort. On other addresses than loopback the admin port needs AdminTokenFile and TLS.
	Listen, Admin string
	// GRPC is the address of the gRPC port, which has the certificate of the function port; DefaultGRPC when empty, if nothing else listens there; none when NoPort.
	GRPC string
	// Listeners are ports that are open already, for example by systemd. They replace the addresses above, and the gateway closes
	// them. The rules for the admin port hold for its real address.
	Listeners Listeners
	// Connections bounds the client connections of the function port; 16,384 when 0. Each takes two descriptors.
	Connections int
	// DataDir holds what the gateway keeps, and the socket that workers connect to. When empty nothing is kept, and the
	// socket has an abstract name, which vanishes with the gateway.
	DataDir string
	// Takeover lets the gateway take over from the one that runs with DataDir, which then ends: it gets that one's listening sockets,
	// store and knowledge, and no request fails.
	Takeover bool
	// Canary, with Takeover, lets this process first serve a share of the new connections of the function port. If it is worse than the
	// old one Start fails, and the old one goes on; nil: it takes over at once.
	Canary *Canary
	// StartSuccessor starts a process of a program that takes over from this gateway: this process's own program where binary is empty; canary is to be its Config.Canary.
	// The gateway owns the process then: it waits for its end, and kills it, with its process group if it leads one, if it does not ask to
	// take over. Nil: `xebec upgrade` is refused.
	StartSuccessor func(binary string, canary *Canary) (*os.Process, error)
	// Python is the interpreter that "python" means in commands of models that name no environment; python3 when empty. A path is
	// relative to the process's directory, a name without a slash is looked up in PATH.
	Python string
	// Program is the path of the program that "xebec" means in commands of models: the one with `xebec table`. Empty: one in PATH.
	Program string
	// SnapshotLimitBytes is the largest directory of a version of which a copy is kept in DataDir; 2 GiB when 0, none when negative. A
	// version without a copy runs from its directory, and does not start when the files in there have changed.
	SnapshotLimitBytes int64
	// LiveModels lets replicas run from their models' directories as they are: versions have no digests, and an edit counts at the next
	// start of a replica. It is for a gateway that lives as long as its user edits.
	LiveModels bool
	// AllowBuild lets the packages that models ask for be built from source, which runs their code with the network. Otherwise only wheels are
	// installed.
	AllowBuild bool
	// Manifests are files or directories to apply at the start; in directories also the model directories below.
	Manifests []string
	// MaxBodyBytes bounds a request's body; 64 MiB when 0.
	MaxBodyBytes int64
	// Logger receives the gateway's log; nothing is logged when nil.
	Logger *zap.Logger
	// DrainTimeout bounds how long requests and replicas may take to finish when the gateway stops; 10 s when 0.
	DrainTimeout time.Duration
	// LameDuck is how long Run and Stop quiesce before they drain; not at all when 0.
	LameDuck time.Duration
	// Epoch is the period of the planner; 10 ms when 0, no planning when negative.
	Epoch time.Duration
	// Devices names the devices that models may share and then use in turns. Nil: the NVIDIA devices of this machine, as gpu0
	// and so on.
	Devices []string
	// CacheBytes bounds the prediction cache, everything in it counted. When 0 it is 256 MiB, or an eighth of the machine's memory or
	// of the control group's limit if that is less; no cache when negative.
	CacheBytes int64
	// Store is where declarations and what policies learn are kept: a file, or redis://[USER:PASSWORD@]HOST:PORT[/DB], which
	// several gateways may share. Empty: the file state.db in DataDir, or nowhere without one.
	Store string
	// FeedbackWindow is how many of the last queries feedback can be joined with; 65,536 when 0, none when negative.
	FeedbackWindow int
	// FeedbackBytes bounds the inputs and predictions that are remembered for feedback, for models and policies that learn from them;
	// 64 MiB when 0, none when negative.
	FeedbackBytes int64
	// Contexts is how many contexts of each function have their policy state in memory, the others wait in the store; 16,384
	// when 0.
	Contexts int
	// Models are directories that are watched for model directories NAME/VERSION, scanned every ModelsEvery (1 s when 0).
	Models      []string
	ModelsEvery time.Duration
	// Stores are the URLs of index documents of models, looked at every StoresEvery (15 s when 0). They need DataDir.
	Stores      []string
	StoresEvery time.Duration
	// InferenceLog is the directory of the inference log; empty: none is kept, whatever functions declare. InferenceLogBytes
	// bounds it; 1 GiB when 0.
	InferenceLog      string
	InferenceLogBytes int64
	// AdminTokenFile has the tokens that the admin port asks for, AdminCert and AdminKey are its certificate and key in PEM:
	// all three are needed where Admin is not a loopback address.
	AdminTokenFile, AdminCert, AdminKey string
	// ModelControl lets clients of the function port that have a token of AdminTokenFile load and unload models by the Open Inference
	// Protocol. It needs AdminTokenFile.
	ModelControl bool
	// FirstByteTimeout bounds the time from accept to a connection's first byte (30 s when 0), HeaderTimeout that from a request's
	// first byte to the end of its header (10 s), IdleTimeout that between requests (3 min). Negative: no bound.
	FirstByteTimeout, HeaderTimeout, IdleTimeout time.Duration
	// MinRate is how many bytes a second of a body must come, and of an answer must be taken; 16 KiB when 0, any when negative.
	MinRate int64
	// BodyMemoryBytes bounds the bodies of requests in flight, of both ports together; when 0 a quarter of the machine's memory or
	// of the control group's limit, no bound when negative.
	BodyMemoryBytes int64
	// Cert and Key are the certificate and the key of the function port in PEM; without them it speaks clear text. ClientCA has
	// the authorities of clients' certificates, which every client must then have. All are read again when they change.
	Cert, Key, ClientCA string
	// AllowedHosts are host names by which browsers reach the function port, beside loopback names and addresses: that of a
	// proxy that passes on Host, for example. *.example.com stands for every name below example.com. On the admin port
	// they count for the routes that need no token.
	AllowedHosts []string
	// ReadyRequires are functions without which the gateway is not ready; "all" means all that are declared.
	ReadyRequires []string
	// Version is the program's, for people.
	Version string
	// Poller and Reply choose how answers of workers are awaited and how clients are answered; empty means the faster way.
	Poller local.Poller
	Reply  http.ReplyMode
	// BusyPoll is how long what waits for clients and for answers of replicas may spin before it sleeps, while it expects something; not at
	// all when 0. On few cores it is off.
	BusyPoll time.Duration
	// Cores is how many cores count for BusyPoll and for that of models; 0: GOMAXPROCS, or the control group's limit if it is less.
	Cores int
	// Dialects are served at the function port beside the native one and the Open Inference Protocol.
	Dialects []dialect.Dialect
	// NodeCPU and NodeMemoryBytes are what this machine has for replicas, in cores and bytes; 0: what is detected.
	NodeCPU         float64
	NodeMemoryBytes int64
	// Docker is this host's container engine, unix:///PATH. Empty: as DOCKER_HOST says, else the usual socket.
	Docker string
	// Runtime runs replicas; processes, and containers for models with an image, when nil. What it cannot do of what models ask
	// for (package containers names the capabilities) is logged once, or shown by describe. The gateway closes it.
	Runtime containers.Runtime
	// Backoff is how long replicas that have ended wait for their next start; containers.DefaultBackoff when zero.
	Backoff containers.Backoff
	// Transport makes what replicas are reached through, on the gateway's clock; shared memory of this host when nil. Runtime
	// must start workers that it can reach. The gateway closes it.
	Transport func(now func() api.Nanos) (worker.Transport, error)
	// ReleaseMemory returns freed memory to the system at the start and while no model is awake, and sets the runtime's memory limit
	// unless GOMEMLIMIT does. It concerns the whole process; a program that embeds a gateway decides for itself.
	ReleaseMemory bool
}

// Canary is how a new process is tried before it takes over: with which share of the connections, and how long.
type Canary = takeover.Canary

// Listeners are open ports; nil: it is opened by its address.
type Listeners struct{ Functions, Admin net.Listener }

func (c Config) withDefaults() Config {
	if c.Listeners.Functions != nil {
		c.Listen = c.Listeners.Functions.Addr().String()
	}
	if c.Listeners.Admin != nil {
		c.Admin = c.Listeners.Admin.Addr().String()
	}
	if c.Connections == 0 {
		c.Connections = http.DefaultLimits().Connections
	}
	if c.Listen == "" {
		c.Listen = "127.0.0.1:1337"
	}
	if c.Admin == "" {
		c.Admin = "127.0.0.1:1338"
	}
	if c.MaxBodyBytes == 0 {
		c.MaxBodyBytes = int64(http.DefaultLimits().BodyBytes)
	}
	if c.Logger == nil {
		c.Logger = zap.NewNop()
	}
	if c.DrainTimeout == 0 {
		c.DrainTimeout = 10 * time.Second //xebec:limit time for an orderly stop; `--drain-timeout`
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
		found, _ := node.Detect() // what could not be read is 0, and capacity reports it
		c.CacheBytes = defaultCache(found.TotalBytes)
	}
	if c.SnapshotLimitBytes == 0 {
		c.SnapshotLimitBytes = defaultSnapshotLimit
	}
	if c.FeedbackWindow == 0 {
		c.FeedbackWindow = query.DefaultFeedbackWindow
	}
	if c.Contexts == 0 {
		c.Contexts = learned.DefaultContexts
	}
	if strings.Contains(c.Python, "/") { // replicas start in the directories of their models
		if path, err := filepath.Abs(c.Python); err == nil {
			c.Python = path
		}
	}
	return c
}

// checkPython fails for an interpreter that no replica could run. If none is named, that is no error: a gateway may have models that need none.
func (c Config) checkPython() error {
	if c.Python == "" {
		return nil
	}
	if _, err := exec.LookPath(c.Python); err != nil {
		return fmt.Errorf("--python %s: %w: expected an interpreter, such as python3 or venv/bin/python", c.Python, errors.Unwrap(err))
	}
	return nil
}

// limits are those of connections to either port.
func (c Config) limits() http.Limits {
	l := http.DefaultLimits()
	l.BodyBytes, l.Connections = int(c.MaxBodyBytes), c.Connections
	for _, set := range []struct{ from, to *time.Duration }{{&c.FirstByteTimeout, &l.FirstByteTimeout}, {&c.HeaderTimeout, &l.HeaderTimeout}, {&c.IdleTimeout, &l.IdleTimeout}} {
		if *set.from != 0 {
			*set.to = max(*set.from, 0)
		}
	}
	if c.MinRate != 0 {
		l.MinRate = int(max(c.MinRate, 0))
	}
	return l
}

// bodyMemoryShare is the part of the memory that bodies may take by default.
const bodyMemoryShare = 4 //xebec:limit bodies in flight: a quarter of the memory; `--body-memory`

// bodyMemory returns the budget of bodies in flight; 0: there is none.
func (c Config) bodyMemory() int64 {
	if c.BodyMemoryBytes != 0 {
		return max(c.BodyMemoryBytes, 0)
	}
	found, _ := node.Detect() // what could not be read is 0, and capacity reports it
	return found.TotalBytes / bodyMemoryShare
}

// defaultCache returns the memory for the cache where the machine, or the control group, has total bytes; 0: that is not known.
func defaultCache(total int64) int64 {
	if total <= 0 {
		return maxDefaultCacheBytes
	}
	return min(maxDefaultCacheBytes, total/cacheShare)
}

// replicaMemory is what all replicas in processes together may take, and each container without a limit of its own, in bytes: what the
// machine, or the gateway's cgroup, has for replicas, or more where the operator says so. 0: it is not known. A smaller --node-memory is
// what the placement plans with: replicas that outgrow it are taken back, not killed.
func (c Config) replicaMemory() int64 {
	found, _ := node.Detect() // what could not be read is 0, and capacity reports it
	if found.MemoryBytes == 0 {
		return 0
	}
	return max(found.MemoryBytes, c.NodeMemoryBytes)
}

// nvidiaDevices are the devices that NVIDIA's driver shows: /dev/nvidia0 is gpu0.
func nvidiaDevices() []string {
	paths, err := filepath.Glob("/dev/nvidia[0-9]*")
	if err != nil {
		panic(err) // the pattern is ours
	}
	names := []string{} // not nil: there are none
	for _, p := range paths {
		var n int
		if _, err := fmt.Sscanf(filepath.Base(p), "nvidia%d", &n); err == nil {
			names = append(names, fmt.Sprintf("gpu%d", n))
		}
	}
	return names
}
