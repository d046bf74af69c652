package deployment

import (
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/containers"
	"github.com/xebec-serving/xebec/containers/snapshot"
	"github.com/xebec-serving/xebec/gateway/cache"
	"github.com/xebec-serving/xebec/gateway/control/capacity"
	"github.com/xebec-serving/xebec/gateway/internal/obs"
	"github.com/xebec-serving/xebec/gateway/query"
	"github.com/xebec-serving/xebec/scheduler/driver"
	"github.com/xebec-serving/xebec/worker"
	"go.uber.org/zap"
)

// Host is what all deployments of a gateway share. Its exported fields are set before the first New and not changed.
type Host struct {
	Clock *driver.Clock
	// Transport connects workers, Runtime starts them.
	Transport worker.Transport
	Runtime   containers.Runtime
	Capacity  *capacity.Capacity
	// Cache has CacheBytes for all versions; 0 or less: nothing is cached.
	Cache      *cache.Cache
	CacheBytes int64
	// Devices are those that versions may share, by name.
	Devices map[string]*driver.Device
	// Python is the interpreter that "python" means in commands of models that name no environment; python3 when empty.
	Python string
	// Program is what "xebec" means in commands of models: the program that ships workers of its own. Empty: the word means nothing special.
	Program string
	// CheckEnvironment says what is wrong with the Python packages that a directory asks for. Nil: nothing is checked.
	CheckEnvironment func(dir string) error
	// Snapshots keep the files of versions. Nil: replicas run from the models' directories as they are.
	Snapshots *snapshot.Store
	// Digested is called when a version that was declared without a digest has got one. It must not block.
	Digested func(id api.ModelID, digest string)
	// Pinned is called when a replica of a version without an image's digest is ready, with the digest that the version has from now on. It must not
	// block.
	Pinned func(id api.ModelID, digest string)
	// NoHostNetwork says why no model may have the host's network; empty: they may.
	NoHostNetwork string
	// Cores is how many cores this machine, or its control group, lets gateway and replicas use: with few, no replica spins.
	Cores int
	// WorkDir is where processes of models without a directory run.
	WorkDir string
	// Drain bounds how long replicas may take to end.
	Drain time.Duration
	// Backoff is how long replicas that have ended wait for their next start; containers.DefaultBackoff when zero.
	Backoff containers.Backoff
	// Lines takes the connections on which the code of a model calls others: those that calls names. Nil: models call no others. The connection
	// is its own.
	Lines func(model string, calls []string, l worker.Line)
	// Recall is called with each new deployment; nil: nothing is recalled. It must not block.
	Recall func(*Deployment)
	// Changed is called when something happened to a replica of the model. It must not block: pollers call it.
	Changed func(model string)
	Log     *zap.Logger

	replicas, keys atomic.Uint64
	inspections    atomic.Int32
	tally          tally

	mu       sync.Mutex
	similar  api.ModelSpec   // the last one that was deployed, which compact shares with
	preloads map[string]bool // the kinds of zygotes that the runtime was asked for
	lacking  map[string]bool // capabilities of the runtime that a model needs and whose lack was logged
	swept    bool            // what an earlier life of the gateway left has been looked for
}

// NextKey returns a number that no other function or version of the gateway has. The planner knows them by it.
func (h *Host) NextKey() uint64 { return h.keys.Add(1) }

// New makes the deployment of a valid spec. It has no replicas and its model is closed.
func (h *Host) New(spec api.ModelSpec) (*Deployment, error) {
	spec = h.compact(spec)
	d := &Deployment{h: h, id: spec.ID(), created: time.Now(), key: h.NextKey(), logs: containers.NewLogs()}
	d.current.Store(&spec)
	d.preloads = h.preloadKind(&spec)
	d.lane = driver.NewLane(laneConfig(&spec, 0), h.Clock)
	if spec.Device != "" {
		d.lane.AttachDevice(h.Devices[spec.Device])
	}
	direct := d.lane.AddFunction(1)
	d.model = query.NewModel(spec.ID(), spec.Signature(), d.lane, direct, new(obs.Endpoint))
	d.model.ColdStart, d.model.Streams, d.model.Task = directColdStart, spec.Stream, spec.Task
	d.model.Cache = h.Cache.Model()
	d.model.CacheOn.Store(spec.Cache == api.CacheOn)
	d.model.Sticky.Store(spec.Affinity == api.AffinityContext)
	d.model.Teach = d.teach
	d.model.Reserve = d.reserve
	d.model.Closed.Store(true)
	d.model.Wake = d.Wake
	var holding func(uint64, bool) int
	if spec.Stream {
		holding, d.streams = d.streamsOf, &streams{open: map[streamKey]struct{}{}}
	}
	set, err := containers.NewSet(containers.Config{
		Model: spec.ID(), Runtime: h.Runtime, Dir: d.dir(), Command: h.command(&spec), Image: spec.Run.Image, ImageDigest: d.ImageDigest, Preload: spec.Preload, Env: environment(&spec),
		Limits: limitsOf(&spec), Isolation: isolationOf(&spec), Environment: ownPython(&spec),
		Prepare: d.prepare, Place: d.place, Secrets: d.secrets, Event: d.event, NextReplica: func() uint64 { return h.replicas.Add(1) }, Logs: d.logs, ReadyWithin: spec.StartTimeout, Backoff: h.Backoff, Counts: h.tally.take(d.id), Grace: h.Drain, Quiet: d.quiet.Load, Holding: holding, Served: d.served,
	})
	if err != nil {
		h.tally.leave(d.id)
		d.lane.Close(api.ModelRemoved)
		d.lane.DetachDevice()
		return nil, err
	}
	d.set = set
	h.Capacity.Join(&d.Member, d, capacity.Joining{ID: d.id, Key: d.key, Lane: d.lane, Set: set, Model: d.model})
	if h.Recall != nil {
		h.Recall(d)
	}
	return d, nil
}

// directColdStart is how long requests that address a model may wait for its first replica.
const directColdStart = 30 * time.Second //xebec:limit wait for a first replica by requests that address a model

// ownPython reports whether the spec's command runs the gateway's own Python.
func ownPython(spec *api.ModelSpec) bool {
	return spec.Run.Image == "" && spec.Python == "" && (spec.Run.Command[0] == "python" || spec.Run.Command[0] == "python3")
}

// OwnPython reports whether the version runs the gateway's own Python, and so in an environment if its files ask for one.
func (d *Deployment) OwnPython() bool { return ownPython(d.Spec()) }

// command resolves "python" to the interpreter of the environment that the spec names, else to the gateway's own, and "xebec" to the
// gateway's program.
func (h *Host) command(spec *api.ModelSpec) []string {
	cmd := append([]string(nil), spec.Run.Command...)
	if spec.Run.Image != "" {
		return cmd
	}
	if cmd[0] == "xebec" && h.Program != "" {
		cmd[0] = h.Program
	}
	if cmd[0] != "python" && cmd[0] != "python3" {
		return cmd
	}
	switch {
	case spec.Python != "":
		env := spec.Python
		if !filepath.IsAbs(env) {
			env = filepath.Join(spec.Dir, env)
		}
		cmd[0] = filepath.Join(env, "bin", "python")
	case h.Python != "":
		cmd[0] = h.Python
	default:
		cmd[0] = "python3"
	}
	return cmd
}

// isolationOf is a spec's isolation as runtimes know it.
func isolationOf(m *api.ModelSpec) containers.Isolation {
	i := containers.Isolation{Network: m.Run.Network == api.NetworkHost}
	switch m.Run.Isolation {
	case api.IsolationStrict:
		i.Level = containers.IsolateStrict
	case api.IsolationNone:
		i.Level = containers.IsolateNone
	}
	return i
}

// apart reports whether a worker may run as another user in other namespaces, so that it needs a socket of its own.
func apart(m *api.ModelSpec) bool { return m.Run.Image != "" || m.Run.Isolation != api.IsolationNone }

// limitsOf are a spec's limits as runtimes know them.
func limitsOf(m *api.ModelSpec) containers.Limits {
	return containers.Limits{CPUMillis: int64(m.Limits.CPU * 1000), MemoryBytes: m.Limits.MemoryBytes, PIDs: m.Limits.PIDs}
}

// DeviceNames is for people.
func (h *Host) DeviceNames() string {
	if len(h.Devices) == 0 {
		return "none (`xebec serve --device NAME` declares one)"
	}
	names := make([]string, 0, len(h.Devices))
	for name := range h.Devices {
		names = append(names, name)
	}
	slices.Sort(names)
	return fmt.Sprintf("one of %s", joined(names))
}
