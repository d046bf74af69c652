package venv

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"sync"
	"time"

	"github.com/xebec-serving/xebec/containers"
)

const (
	// maxBuilds bounds the builds at once: each unpacks archives on the machine that serves.
	maxBuilds = 4 //xebec:limit environments that are built at once
	// firstDelay and lastDelay bound how long a build that failed is not tried again.
	firstDelay = 15 * time.Second
	lastDelay  = 10 * time.Minute //xebec:limit longest delay before an environment that could not be built is built again
)

// Config is what a Runtime needs.
type Config struct {
	// Dir is where environments lie. If it is empty, none is built, and a model that needs one does not start.
	Dir string
	// Python is the interpreter that environments are made with; python3 when empty.
	Python string
	// Binding has the files of the Python package xebec.
	Binding fs.FS
	// AllowBuild lets packages be built from source, which runs their code.
	AllowBuild bool
	// Environ is the gateway's environment.
	Environ []string
}

// Runtime builds the environments of launches, and passes them on to another runtime. It is a [containers.Runtime].
type Runtime struct {
	cfg   Config
	inner containers.Runtime
	room  chan struct{} // one for each build
	life  context.Context
	end   context.CancelFunc

	mu     sync.Mutex
	builds map[string]*build
	failed map[string]failure
	about  *interpreter // once it is known
	wanted []containers.Launch
	busy   sync.WaitGroup
}

// failure is why an environment could not be built.
type failure struct {
	err   error
	delay time.Duration
	until time.Time
}

// build is one that runs. Its fields are guarded by the Runtime's lock, but for done.
type build struct {
	waiting map[*waiter]struct{}
	cancel  context.CancelFunc
	done    chan struct{} // closed when err is set
	err     error
	last    string // the last line of the installer
}

// waiter is a launch that waits. Lines of the installer go to it.
type waiter struct{ to io.Writer }

var (
	_ containers.Runtime       = (*Runtime)(nil)
	_ containers.Chooser       = (*Runtime)(nil)
	_ containers.Preloader     = (*Runtime)(nil)
	_ containers.QuietReporter = (*Runtime)(nil)
)

// New returns a Runtime in front of another one, which it owns from then on.
func New(cfg Config, inner containers.Runtime) *Runtime {
	r := &Runtime{cfg: cfg, inner: inner, room: make(chan struct{}, maxBuilds), builds: map[string]*build{}, failed: map[string]failure{}}
	r.life, r.end = context.WithCancel(context.Background())
	return r
}

// Start implements [containers.Runtime].
func (r *Runtime) Start(ctx context.Context, l containers.Launch) (containers.Instance, error) {
	python, err := r.environment(ctx, l)
	if err != nil {
		return nil, err
	}
	return r.inner.Start(ctx, in(l, python))
}

// Python returns the interpreter of the launch's environment, for a caller that starts the launch by other means. It builds the environment if it
// is not there, and says so in the launch's Stderr. It is empty if the launch needs none.
func (r *Runtime) Python(ctx context.Context, l containers.Launch) (string, error) {
	return r.environment(ctx, l)
}

// in is a launch in an environment, whose interpreter is python; empty: it has none of its own.
func in(l containers.Launch, python string) containers.Launch {
	if python != "" {
		l.Command = append([]string{python}, l.Command[1:]...)
	}
	return l
}

// environment returns the interpreter of the launch's environment, which it builds if it is not there; empty: it needs none.
func (r *Runtime) environment(ctx context.Context, l containers.Launch) (python string, err error) {
	if !l.Environment || l.Image != "" || len(l.Command) == 0 {
		return "", nil
	}
	want, err := readRequirements(l.Dir)
	if want == nil || err != nil {
		return "", err
	}
	if r.cfg.Dir == "" {
		return "", refused("%s needs an environment, and this gateway has no directory to keep one in: start it with --data-dir, or name an environment in the model's field python", l.Dir)
	}
	about, err := r.interpreter(ctx)
	if err != nil {
		return "", err
	}
	key, err := r.key(want, about)
	if err != nil {
		return "", err
	}
	dir := filepath.Join(r.cfg.Dir, key)
	if complete(dir) {
		used(dir)
		return pythonOf(dir), nil
	}
	if err := r.await(ctx, key, dir, want, about, l); err != nil {
		return "", err
	}
	return pythonOf(dir), nil
}

// await builds an environment, or waits for the build that runs.
func (r *Runtime) await(ctx context.Context, key, dir string, want *requirements, about *interpreter, l containers.Launch) error {
	w := &waiter{l.Stderr}
	r.mu.Lock()
	if f := r.failed[key]; time.Now().Before(f.until) {
		r.mu.Unlock()
		return &containers.LaunchError{Message: fmt.Sprintf("%v\nIt is built again in %v", f.err, time.Until(f.until).Round(time.Second)), Err: f.err}
	}
	b := r.builds[key]
	if b == nil {
		if r.life.Err() != nil {
			r.mu.Unlock()
			return errClosed
		}
		b = &build{waiting: map[*waiter]struct{}{}, done: make(chan struct{})}
		var building context.Context
		building, b.cancel = context.WithCancel(r.life)
		r.builds[key] = b
		r.busy.Go(func() { r.run(building, key, dir, b, want, about, l.Quiet) })
	}
	b.waiting[w] = struct{}{}
	last := b.last
	r.mu.Unlock()
	if last != "" {
		say(w.to, last)
	}
	select {
	case <-b.done:
		return b.err
	case <-ctx.Done():
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if delete(b.waiting, w); len(b.waiting) == 0 {
		b.cancel()
		if r.builds[key] == b {
			delete(r.builds, key) // a launch that comes now gets a build of its own
		}
	}
	return ctx.Err()
}

var errClosed = errors.New("environments can no longer be built: the gateway is stopping")

// run is the goroutine of a build.
func (r *Runtime) run(ctx context.Context, key, dir string, b *build, want *requirements, about *interpreter, quiet bool) {
	defer b.cancel()
	err := r.build(ctx, dir, want, about, quiet, func(line string) { r.report(b, line) })
	r.mu.Lock()
	if b.err = err; err != nil && ctx.Err() == nil {
		f := r.failed[key]
		f.delay = min(max(firstDelay, 2*f.delay), lastDelay)
		f.err, f.until = err, time.Now().Add(f.delay)
		r.failed[key] = f
		b.err = &containers.LaunchError{Message: err.Error(), Err: err}
	}
	if err == nil {
		delete(r.failed, key)
	}
	if r.builds[key] == b {
		delete(r.builds, key)
	}
	close(b.done)
	wanted := r.wanted
	r.mu.Unlock()
	if err == nil {
		r.preload(wanted)
	}
}

// report tells those who wait what the installer says.
func (r *Runtime) report(b *build, line string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	b.last = line
	for w := range b.waiting {
		say(w.to, line)
	}
}

// say writes a line to a replica's output, whose writer neither blocks nor fails.
func say(to io.Writer, line string) {
	if to != nil {
		_, _ = io.WriteString(to, containers.EnvironmentPrefix+line+"\n")
	}
}

// Chosen implements [containers.Chooser].
func (r *Runtime) Chosen(containers.Launch) containers.Runtime { return r.inner }

// Preload implements [containers.Preloader]. A launch whose environment is not there yet is announced when it is.
func (r *Runtime) Preload(launches []containers.Launch) {
	r.mu.Lock()
	r.wanted = launches
	r.mu.Unlock()
	r.preload(launches)
}

func (r *Runtime) preload(launches []containers.Launch) {
	p, ok := r.inner.(containers.Preloader)
	if !ok {
		return
	}
	var known []containers.Launch
	for _, l := range launches {
		if !l.Environment || l.Image != "" {
			known = append(known, l)
			continue
		}
		want, err := readRequirements(l.Dir)
		if err != nil {
			continue // its start says so
		}
		if want == nil {
			known = append(known, l)
			continue
		}
		r.mu.Lock()
		about := r.about
		r.mu.Unlock()
		if about == nil {
			continue // nothing has been built yet
		}
		if key, err := r.key(want, about); err == nil && complete(filepath.Join(r.cfg.Dir, key)) {
			known = append(known, in(l, pythonOf(filepath.Join(r.cfg.Dir, key))))
		}
	}
	p.Preload(known)
}

// Zygotes implements [containers.Preloader].
func (r *Runtime) Zygotes() []int {
	if p, ok := r.inner.(containers.Preloader); ok {
		return p.Zygotes()
	}
	return nil
}

// QuietUnsupported implements [containers.QuietReporter].
func (r *Runtime) QuietUnsupported() error {
	if q, ok := r.inner.(containers.QuietReporter); ok {
		return q.QuietUnsupported()
	}
	return nil
}

// Close implements [containers.Runtime]. Builds end at once.
func (r *Runtime) Close() error {
	r.end()
	err := r.inner.Close()
	r.busy.Wait()
	return err
}

// pythonOf is the interpreter of an environment.
func pythonOf(dir string) string { return filepath.Join(dir, "venv", "bin", "python") }
