package process

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/xebec-serving/xebec/containers"
	"github.com/xebec-serving/xebec/containers/cgroup"
)

// Runtime starts replicas as processes of this host. It is a [containers.Runtime].
type Runtime struct {
	environ []string
	zygotes *zygotes
	root    string // of /proc and /sys, for cgroups
	memory  int64  // Config.MemoryBytes
	hidden  []string
	noHost  string
	sockets string
	models  string
	delays  delays
	// root0: this process is root's. Then uids is the block of its replicas' users, claimed on first use.
	root0       bool
	claiming    sync.Once
	uids, claim int

	limiting sync.Mutex
	manager  *cgroup.Manager // nil before the first launch that needs it

	mu     sync.Mutex
	link   *link // to the current reaper; nil before the first launch and after a reaper's death
	closed bool
	// wanted is the argument of the last Preload call until preload has processed it. preloading: preload runs.
	wanted     []containers.Launch
	preloading bool
}

var (
	_ containers.Runtime       = (*Runtime)(nil)
	_ containers.Preloader     = (*Runtime)(nil)
	_ containers.LimitReporter = (*Runtime)(nil)
	_ containers.QuietReporter = (*Runtime)(nil)
	_ containers.Adviser       = (*Runtime)(nil)
)

var errRuntimeClosed = errors.New("processes can no longer be started: the gateway is stopping")

// New returns a Runtime. Its workers inherit from this process's environment the variables listed at [Inherited]. The
// reaper starts with the first launch.
func New(cfg Config) (*Runtime, error) {
	if !armed.Load() {
		return nil, errors.New("process.MaybeReaper was not called: call it first in main (and in TestMain); otherwise a second copy of the program would run instead of the reaper")
	}
	environ := os.Environ()
	r := &Runtime{environ: environ, zygotes: newZygotes(environ), root: "/", memory: max(0, cfg.MemoryBytes), noHost: cfg.NoHostNetwork, sockets: cfg.Sockets, models: cfg.Models, root0: os.Geteuid() == 0, claim: -1, delays: delays{replyWait, hurryEvery, lowEnd}}
	for _, path := range cfg.Hidden {
		if path, err := filepath.Abs(path); err == nil && path != "/" {
			r.hidden = append(r.hidden, path)
		}
		if target, err := filepath.EvalSymlinks(path); err == nil && target != path {
			r.hidden = append(r.hidden, target)
		}
	}
	return r, nil
}

// Check implements [containers.Checker].
func (r *Runtime) Check(_ context.Context, l containers.Launch) error {
	if len(l.Command) == 0 {
		return launchErrorf(os.ErrInvalid, "the command is empty: expected a program and its arguments")
	}
	env, err := workerEnv("", r.environ, l.Env)
	if err == nil {
		_, err = resolve(l.Dir, l.Command[0], lookupEnv(env, "PATH"))
	}
	return err
}

// Start implements [containers.Runtime]. An error that is a [*containers.LaunchError] needs an operator; any other may be
// temporary.
func (r *Runtime) Start(ctx context.Context, l containers.Launch) (containers.Instance, error) {
	if len(l.Command) == 0 {
		return nil, launchErrorf(os.ErrInvalid, "the command is empty: expected a program and its arguments")
	}
	if l.Isolation.Network && !l.Isolation.Granted && r.noHost != "" {
		return nil, launchErrorf(os.ErrPermission, "run.network: %s", r.noHost)
	}
	// Find errors before anything is started: the messages are better here.
	env, err := workerEnv("", r.environ, l.Env)
	if err != nil {
		return nil, err
	}
	path, err := resolve(l.Dir, l.Command[0], lookupEnv(env, "PATH"))
	if err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	k, err := r.reaper()
	if err != nil {
		return nil, err
	}
	in, err := r.fork(ctx, k, path, l)
	if in == nil && err == nil {
		in, err = k.launch(ctx, r.environ, path, l)
	}
	if err != nil {
		return nil, err
	}
	return in, nil
}

// QuietUnsupported returns nil if quiet launches start quietly, or why their priority stays the gateway's own (where the kernel
// groups processes by session, the session's group is lowered anyway). It starts the reaper, which tests this. Where replicas have
// control groups, these make them quiet.
func (r *Runtime) QuietUnsupported() error {
	k, err := r.reaper()
	if err != nil {
		return err
	}
	if k.cannotBeQuiet != nil && (r.memory == 0 || r.cgroups().Unsupported(cgroup.CPU) != nil) {
		return fmt.Errorf("replicas load at the priority of serving replicas and slow them down, because this process is not allowed to %w. "+
			"Give it the capability CAP_SYS_NICE, or a limit of niceness that covers its own (systemd: LimitNICE=+0; ulimit -e 20)", k.cannotBeQuiet)
	}
	return nil
}

// Zygotes returns the processes of the zygotes that can fork, 8 at most. They hold their memory whether or not anything
// was forked from them.
func (r *Runtime) Zygotes() (pids []int) { return r.zygotes.pids() }

// reaper returns the link to a running reaper and starts one if there is none.
func (r *Runtime) reaper() (*link, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil, errRuntimeClosed
	}
	if r.link != nil {
		select {
		case <-r.link.lost:
			<-r.link.done // wait for its workers: they may hold what the next ones need
			r.link = nil
		default:
			return r.link, nil
		}
	}
	var nonce [8]byte
	if _, err := rand.Read(nonce[:]); err != nil {
		return nil, fmt.Errorf("start the reaper: %w", err)
	}
	k, err := startReaper(hex.EncodeToString(nonce[:]), reaperEnviron(r.environ))
	if err != nil {
		return nil, err
	}
	k.confined, k.isolation, k.delays = r.confined, r.isolation, r.delays
	r.link = k
	return k, nil
}

// Close ends every replica and all its descendants: SIGTERM, a second, SIGKILL.
func (r *Runtime) Close() error {
	r.mu.Lock()
	r.closed = true
	k := r.link
	r.mu.Unlock()
	r.zygotes.close()
	var err error
	if k != nil {
		err = k.close()
	}
	r.zygotes.running.Wait()
	r.limiting.Lock()
	defer r.limiting.Unlock()
	if r.manager != nil {
		r.manager.Close()
	}
	r.claiming.Do(func() {}) // from here on there is no launch that could claim
	if r.claim >= 0 {
		_ = unix.Close(r.claim)
		r.claim = -1
	}
	return err
}
