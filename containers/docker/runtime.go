package docker

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"
	"go.uber.org/zap"

	"github.com/xebec-serving/xebec/containers"
)

const (
	// defaultHost is the engine's address unless DOCKER_HOST names another.
	defaultHost = "unix:///var/run/docker.sock"
	// maxCreates bounds containers that are being created and started at once: this loads the disk and the kernel, and
	// more at a time are slower.
	maxCreates = 4 //xebec:limit containers that are created at a time
	// callWithin bounds a request to the engine, createWithin those that set up a container, which can take long on a
	// slow disk.
	callWithin   = 15 * time.Second //xebec:limit answer of the engine
	createWithin = time.Minute      //xebec:limit creation and start of a container
	// closeGrace is how long replicas have to end by themselves when the Runtime is closed, closeWait how long Close
	// waits after it has killed them. silentWait replaces closeWait if the engine does not answer and the processes
	// have been signalled directly.
	closeGrace = time.Second
	closeWait  = 15 * time.Second
	silentWait = signalWithin + silentWithin + time.Second
	// recursiveMajor and recursiveMinor are the engine's API version from which a read-only mount covers file systems
	// mounted below it.
	recursiveMajor, recursiveMinor = 1, 44
)

// Config configures a Runtime. Owner is required.
type Config struct {
	// Host is the engine's socket, "unix:///path". If empty it is DOCKER_HOST, or unix:///var/run/docker.sock.
	Host string
	// Owner names the gateway in its containers' labels. It must be the same at each start, and differ from all other
	// gateways on this engine.
	Owner string
	// MemoryBytes bounds the memory of each container whose launch does not (Limits.MemoryBytes); 0: there is no such
	// bound.
	MemoryBytes int64
	// Sockets is a directory for the sockets of containers that wait with imported modules (Launch.Preload); empty: none waits. It is
	// made if it is missing. What lies in it belongs to the Runtime.
	Sockets string
	// Logger receives messages about the engine and about orphaned containers; nil: none.
	Logger *zap.Logger
}

// Runtime starts replicas as containers of a Docker engine on this host. It is a [containers.Runtime].
type Runtime struct {
	host string // as operators write it
	// hostErr is why the engine that the environment names cannot be used.
	hostErr error
	me      owner
	log     *zap.Logger
	engine  *client.Client
	memory  int64 // Config.MemoryBytes

	// starting ends when the Runtime is closed, life when it gives up the remaining replicas.
	starting, life       context.Context
	stopStarts, giveUp   context.CancelFunc
	creates              chan struct{} // one token for each container that is being set up
	contacting           chan struct{} // held while making contact
	launches, supervised sync.WaitGroup

	silent atomic.Bool // the last request with a time limit was not answered in time

	mu        sync.Mutex
	closed    bool
	attempts  int   // to make contact, for callers that wait while another one tries
	failed    error // the error of the last attempt
	sweeping  bool  // sweepLater runs
	inContact bool  // the engine answered, orphans are removed, and nothing has failed since
	noInit    bool  // this engine has no init
	known     map[string]struct{}
	instances map[*instance]struct{}
	pulls     map[string]chan struct{} // by image, closed at the pull's end

	warmth warmth
}

var (
	_ containers.Runtime       = (*Runtime)(nil)
	_ containers.Sweeper       = (*Runtime)(nil)
	_ containers.Preloader     = (*Runtime)(nil)
	_ containers.LimitReporter = (*Runtime)(nil)
	_ containers.Checker       = (*Runtime)(nil)
	_ containers.ImageResolver = (*Runtime)(nil)
)

// Unenforced implements [containers.LimitReporter]: the engine enforces every limit.
func (r *Runtime) Unenforced(containers.Limits) []string { return nil }

// New returns a Runtime. It does not contact the engine, which need not run yet.
func New(cfg Config) (*Runtime, error) {
	host := cfg.Host
	var hostErr error
	if host == "" {
		host = cmp.Or(os.Getenv(client.EnvOverrideHost), defaultHost)
	}
	if socket, ok := strings.CutPrefix(host, "unix://"); !ok || !filepath.IsAbs(socket) {
		hostErr = launchErrorf(os.ErrInvalid, "the Docker engine %s: expected unix:///path of an engine on this host, because replicas exchange batches with the gateway through memory that both map", host)
		if cfg.Host != "" {
			return nil, hostErr
		}
		host = defaultHost // other programs use DOCKER_HOST too, so it is an error only when an image is launched
	}
	if cfg.Owner == "" {
		return nil, errors.New("docker.Config.Owner is empty: expected a name that no other gateway on this engine has")
	}
	me, err := self(cfg.Owner)
	if err != nil {
		return nil, err
	}
	engine, err := client.New(client.WithHost(host), client.WithUserAgent("xebec"))
	if err != nil {
		return nil, fmt.Errorf("the Docker engine %s: %w", host, err)
	}
	r := &Runtime{
		host: host, hostErr: hostErr, me: me, log: cfg.Logger, engine: engine, memory: max(0, cfg.MemoryBytes),
		creates: make(chan struct{}, maxCreates), contacting: make(chan struct{}, 1),
		known: map[string]struct{}{}, instances: map[*instance]struct{}{}, pulls: map[string]chan struct{}{},
	}
	if r.log == nil {
		r.log = zap.NewNop()
	}
	r.warmth = warmth{dir: cfg.Sockets, places: map[string]*warmPlace{}}
	r.starting, r.stopStarts = context.WithCancel(context.Background())
	r.life, r.giveUp = context.WithCancel(context.Background())
	return r, nil
}

// Start implements [containers.Runtime]. An error that is a [*containers.LaunchError] needs an operator; any other may be
// temporary. A missing image is pulled first, which l.Stderr reports.
func (r *Runtime) Start(ctx context.Context, l containers.Launch) (containers.Instance, error) {
	r.mu.Lock()
	if r.closed {
		r.mu.Unlock()
		return nil, errClosed
	}
	r.launches.Add(1)
	r.mu.Unlock()
	defer r.launches.Done()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(r.starting, cancel)()

	v := &logWriter{w: l.Stderr}
	l.Stderr = v
	s, err := newSpec(l)
	if err != nil {
		return nil, err
	}
	in, release, err := r.claim(ctx, l, s)
	if in == nil && err == nil {
		in, err = r.startAs(ctx, l, v, nil)
	}
	if err != nil {
		v.stop()
		release()
	} else {
		r.supervised.Go(func() { // Start has not returned, so Close has not waited
			<-in.exited
			v.stop()
			release()
		})
	}
	if err != nil && r.starting.Err() != nil {
		return nil, errClosed
	}
	if err != nil {
		return nil, err // not an interface that holds a nil instance
	}
	return in, nil
}

// startAs makes and starts a container: a replica's, or one that waits.
func (r *Runtime) startAs(ctx context.Context, l containers.Launch, v *logWriter, waits *warm) (*instance, error) {
	s, err := newSpec(l)
	if err != nil {
		return nil, err
	}
	answered := r.slow(v)
	err = r.contact(ctx)
	answered()
	if err != nil {
		return nil, err
	}
	img, err := r.image(ctx, l)
	if err != nil {
		return nil, err
	}
	if err := s.setImage(img); err != nil {
		return nil, err
	}
	s.command = l.Command
	if waits != nil {
		argv := l.Command
		if len(argv) == 0 {
			argv = img.command
		}
		if s.command, err = waits.command(argv, l.Preload); err != nil {
			return nil, err
		}
	}
	s.labels = r.me.labels()
	maps.Copy(s.labels, map[string]string{labelModel: l.Model.Name, labelVersion: l.Model.Version, labelReplica: replicaOf(l)})
	s.memory = cmp.Or(l.Limits.MemoryBytes, r.memory)
	s.recursive = atLeast(r.engine.ClientVersion(), recursiveMajor, recursiveMinor)

	select {
	case r.creates <- struct{}{}:
		defer func() { <-r.creates }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	r.mu.Lock()
	s.init = !r.noInit
	r.mu.Unlock()
	in, err := r.launch(ctx, s, v)
	if err != nil && s.init && strings.Contains(err.Error(), "docker-init") {
		r.log.Warn("the Docker engine has no init for its containers: zombies of replicas are not reaped", zap.String("engine", r.host), zap.Error(err))
		r.mu.Lock()
		r.noInit = true
		r.mu.Unlock()
		s.init = false
		in, err = r.launch(ctx, s, v)
	}
	return in, err
}

var notInName = regexp.MustCompile(`[^A-Za-z0-9_.-]+`)

// launch makes the container and starts it. If anything fails, no container is left that is not removed later.
func (r *Runtime) launch(ctx context.Context, s *spec, v *logWriter) (_ *instance, err error) {
	l := s.launch
	s.name = containerName(l)
	r.know(s.name)
	in := &instance{r: r, name: s.name, launch: l, logWriter: v, exited: make(chan struct{}), killing: make(chan struct{})}
	in.processCtx, in.cancelProcess = context.WithCancel(r.life)
	// The engine may receive a request that is given up, so each has the time that it needs, and ctx is checked in
	// between.
	calls, done := lasting(ctx)
	defer done()
	defer r.slow(v)()
	defer func() {
		if err != nil {
			if calls.Err() != nil {
				r.noteNoAnswer() // the engine may still complete the requests; the next contact checks
			}
			in.releaseProcess()
			in.closeOutput()
			r.discard(s.name)
		}
	}()
	refused := func(what string, err error) error {
		if ctx.Err() != nil && calls.Err() != nil {
			return ctx.Err()
		}
		return r.refused(what, l.Image, err)
	}
	created, err := r.engine.ContainerCreate(calls, s.options())
	if err != nil {
		return nil, refused("create a container", err)
	}
	in.id = created.ID
	if err := in.attach(calls); err != nil {
		return nil, refused("attach to a container", err)
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if _, err := r.engine.ContainerStart(calls, in.id, client.ContainerStartOptions{}); err != nil {
		return nil, refused("start a container", err)
	}
	info, err := r.engine.ContainerInspect(calls, in.id, client.ContainerInspectOptions{})
	if err != nil {
		return nil, refused("inspect a container", err)
	}
	in.image = imageOf(info, s)
	if info.Container.State != nil {
		in.setPID(info.Container.State.Pid)
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.instances[in] = struct{}{}
	r.supervised.Add(1)
	if in.pidfd != nil {
		r.supervised.Go(in.waitProcess)
	}
	go in.supervise()
	return in, nil
}

// containerName returns a unique name that begins with what an operator looks for.
func containerName(l containers.Launch) string {
	var b [4]byte
	rand.Read(b[:]) // never fails since Go 1.24
	return fmt.Sprintf("xebec-%s-%s-%s-%s", notInName.ReplaceAllString(l.Model.Name, "_"), notInName.ReplaceAllString(l.Model.Version, "_"), replicaOf(l), hex.EncodeToString(b[:]))
}

// replicaOf names a launch's replica; a container that waits was made before there was one.
func replicaOf(l containers.Launch) string {
	if l.Replica == 0 {
		return "warm"
	}
	return strconv.FormatUint(l.Replica, 10)
}

func (r *Runtime) know(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.known[name] = struct{}{}
}

// discard removes a container, running or not, if it exists. If that fails the container is forgotten, and removed as
// an orphan at the next contact.
func (r *Runtime) discard(name string) {
	within := callWithin
	if r.silent.Load() {
		within = silentWithin
	}
	if err := r.ask(context.Background(), within, func(ctx context.Context) error { return r.remove(ctx, name) }); err != nil {
		r.log.Warn("a container cannot be removed", zap.String("container", name), zap.Error(err))
		r.orphan(name)
		return
	}
	r.mu.Lock()
	delete(r.known, name)
	r.mu.Unlock()
}

// orphan forgets a container, so that the next contact removes it, and makes this contact as soon as the engine answers: perhaps no replica starts
// for long.
func (r *Runtime) orphan(name string) {
	r.mu.Lock()
	delete(r.known, name)
	r.inContact = false
	if !r.closed && !r.sweeping {
		r.sweeping = true
		r.supervised.Go(r.sweepLater) // Close has not begun to wait
	}
	r.mu.Unlock()
	r.log.Warn("a container is left behind, and will be removed at the next contact with the Docker engine", zap.String("container", name))
}

// sweepLater tries to remove what was left behind until it has, or the Runtime is closed.
func (r *Runtime) sweepLater() {
	for pause := pauseMax; ; pause = min(2*pause, sweepPause) {
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-r.starting.Done():
			timer.Stop()
			return
		}
		_ = r.Sweep(r.starting)
		r.mu.Lock()
		swept := r.inContact // another start may have swept, too
		r.sweeping = !swept
		r.mu.Unlock()
		if swept {
			return
		}
	}
}

// sweepPause is the longest pause between two attempts.
const sweepPause = 30 * time.Second

func (r *Runtime) remove(ctx context.Context, container string) error {
	_, err := r.engine.ContainerRemove(ctx, container, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
	if err == nil || isGone(err) {
		return nil
	}
	return err
}

// Close ends every replica: SIGTERM, a second, SIGKILL. It returns when their containers are removed.
func (r *Runtime) Close() error {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.stopStarts()
	r.launches.Wait()
	defer r.giveUp()

	gone := make(chan struct{})
	go func() { r.supervised.Wait(); close(gone) }()
	var err error
	if !r.endAll(true, gone, closeGrace) && !r.endAll(false, gone, silentWait) && (r.silent.Load() || !waited(gone, closeWait-silentWait)) {
		r.mu.Lock()
		err = fmt.Errorf("%d containers may still run, because the Docker engine at %s has not ended them: docker ps --filter label=%s shows them, "+
			"and this gateway removes them when it starts again", len(r.instances), r.host, labelGateway)
		r.mu.Unlock()
		r.giveUp()
		<-gone
	}
	return errors.Join(err, r.engine.Close())
}

// endAll signals all replicas and returns the result of waited.
func (r *Runtime) endAll(term bool, gone <-chan struct{}, within time.Duration) bool {
	r.mu.Lock()
	for in := range r.instances {
		go func() { _ = in.Signal(term) }() // it ends with its request, and Close reports what it could not do
	}
	r.mu.Unlock()
	return waited(gone, within)
}

// waited reports whether gone is closed in time.
func waited(gone <-chan struct{}, within time.Duration) bool {
	timer := time.NewTimer(within)
	defer timer.Stop()
	select {
	case <-gone:
		return true
	case <-timer.C:
		return false
	}
}

// atLeast compares an API version such as "1.41".
func atLeast(version string, major, minor int) bool {
	a, b, _ := strings.Cut(version, ".")
	x, err1 := strconv.Atoi(a)
	y, err2 := strconv.Atoi(b)
	return err1 == nil && err2 == nil && (x > major || x == major && y >= minor)
}

// imageOf is the image that a container was made from. Its name may have moved since the image was looked up; what the engine took counts.
func imageOf(info client.ContainerInspectResult, s *spec) containers.Image {
	id := fullID(info.Container.Image)
	if id == "" || id == s.image.id {
		return containers.Image{ID: s.image.id, Digest: s.image.digest(s.launch.Image)}
	}
	return containers.Image{ID: id, Digest: id}
}

// stateOf returns a container's state, never nil.
func stateOf(info client.ContainerInspectResult) container.State {
	if info.Container.State == nil {
		return container.State{}
	}
	return *info.Container.State
}
