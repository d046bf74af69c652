package venv

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/containers"
)

const (
	// format changes whenever environments are made in another way.
	format = "1"
	// buildWithin bounds a build: the largest libraries take minutes to download and unpack.
	buildWithin = 30 * time.Minute //xebec:limit time to build an environment
	// maxBytes and maxFiles bound an environment. PyTorch with its CUDA libraries takes about 6 GiB.
	maxBytes = 32 << 30 //xebec:limit bytes of an environment
	maxFiles = 500_000  //xebec:limit files of an environment
	// minFree is what a build leaves free on the disk.
	minFree = 1 << 30 //xebec:limit bytes that a build of an environment leaves free on the disk
	// measureEvery is how often a build that runs is measured.
	measureEvery = 2 * time.Second
	// lastLines of the installer are shown if it fails.
	lastLines = 12
	markName  = "environment.json"
)

// interpreter is the Python that environments are made with.
type interpreter struct {
	Path    string `json:"path"`
	Version string `json:"version"`
	Base    string `json:"base"`
	// Binding is the directory of its package xebec; empty: it has none.
	Binding string `json:"binding"`
	// Pip says that it has a pip which can install into another environment.
	Pip bool   `json:"pip"`
	uv  string // the program uv; empty: there is none
}

const askInterpreter = `import importlib.util, json, os, sys
found = importlib.util.find_spec("xebec")
binding = os.path.dirname(found.origin) if found and found.origin else ""
try:
    from importlib.metadata import version
    pip = tuple(map(int, version("pip").split(".")[:2])) >= (22, 3)
except Exception:
    pip = False
print(json.dumps({"path": sys.executable, "version": sys.version, "base": sys.base_prefix, "binding": binding, "pip": pip}))`

// interpreter asks the gateway's Python what it is, once.
func (r *Runtime) interpreter(ctx context.Context) (*interpreter, error) {
	r.mu.Lock()
	about := r.about
	r.mu.Unlock()
	if about != nil {
		return about, nil
	}
	python := r.cfg.Python
	if python == "" {
		python = "python3"
	}
	cmd := exec.CommandContext(ctx, python, "-I", "-c", askInterpreter)
	cmd.Env = r.inherited()
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("an environment cannot be built: ask %s for its version: %w", python, err)
	}
	about = &interpreter{}
	if err := json.Unmarshal(bytes.TrimSpace(out), about); err != nil {
		return nil, fmt.Errorf("an environment cannot be built: %s is no Python: %w", python, err)
	}
	if about.uv, err = exec.LookPath("uv"); err != nil {
		about.uv = ""
	}
	r.mu.Lock()
	r.about = about
	r.mu.Unlock()
	return about, nil
}

// passed are the variables that say where packages come from.
var passed = []string{
	"PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS", "PIP_NO_INDEX", "PIP_TRUSTED_HOST", "PIP_CERT", "PIP_CLIENT_CERT", "PIP_PROXY", "PIP_DEFAULT_TIMEOUT", "PIP_RETRIES",
	"UV_INDEX_URL", "UV_EXTRA_INDEX_URL", "UV_DEFAULT_INDEX", "UV_INDEX", "UV_FIND_LINKS", "UV_NO_INDEX", "UV_NATIVE_TLS", "UV_HTTP_TIMEOUT",
	"SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy",
}

// inherited picks variables of the gateway.
func (r *Runtime) inherited(more ...string) (env []string) {
	for _, entry := range r.cfg.Environ {
		if name, _, _ := strings.Cut(entry, "="); slices.Contains(append(more, "PATH", "HOME", "LANG", "LC_ALL"), name) {
			env = append(env, entry)
		}
	}
	return env
}

// key names an environment by everything that goes into it.
func (r *Runtime) key(want *requirements, about *interpreter) (string, error) {
	h := sha256.New()
	put := func(what string, text []byte) { fmt.Fprintf(h, "%s %d\n%s\n", what, len(text), text) }
	put("format", []byte(format))
	put("python", fmt.Appendf(nil, "%s %s %s %t", about.Path, about.Version, about.Base, r.cfg.AllowBuild))
	for _, name := range slices.Sorted(maps.Keys(want.files)) {
		put("file "+name, want.files[name])
	}
	for _, name := range want.wheels {
		sum := sha256.New()
		if err := want.copyWheel(name, sum); err != nil {
			return "", err
		}
		put("wheel "+name, sum.Sum(nil))
	}
	err := fs.WalkDir(r.cfg.Binding, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := fs.ReadFile(r.cfg.Binding, name)
		put("binding "+name, text)
		return err
	})
	return hex.EncodeToString(h.Sum(nil))[:32], err
}

// complete reports whether an environment can be used.
func complete(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, markName))
	return err == nil
}

// build makes an environment in dir. Only one process does at a time.
func (r *Runtime) build(ctx context.Context, dir string, want *requirements, about *interpreter, quiet bool, report func(string)) error {
	select {
	case r.room <- struct{}{}:
		defer func() { <-r.room }()
	default:
		report("waits until another environment is built")
		select {
		case r.room <- struct{}{}:
			defer func() { <-r.room }()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if err := os.MkdirAll(r.cfg.Dir, 0o755); err != nil {
		return fmt.Errorf("make a directory for environments: %w", err)
	}
	unlock, err := lock(ctx, dir+".lock")
	if err != nil {
		return err
	}
	defer unlock()
	if complete(dir) {
		return nil
	}
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("remove what is left of an environment: %w", err)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, buildWithin, fmt.Errorf("it took longer than %v", buildWithin))
	defer cancel()
	b := &builder{r: r, dir: dir, want: want, about: about, report: report, quiet: quiet, began: time.Now()}
	if err := b.run(ctx); err != nil {
		return errors.Join(err, os.RemoveAll(dir))
	}
	return nil
}

// builder is one build.
type builder struct {
	r      *Runtime
	dir    string
	want   *requirements
	about  *interpreter
	report func(string)
	quiet  bool // the installer has the lowest priority
	began  time.Time
}

func (b *builder) run(ctx context.Context) error {
	if err := b.stage(); err != nil {
		return fmt.Errorf("the environment cannot be built: %w", err)
	}
	b.report(fmt.Sprintf("building %s, once for these requirements", filepath.Base(b.dir)))
	stop := b.measure(ctx)
	err := b.install(stop.ctx)
	if over := stop.end(); over != nil {
		err = fmt.Errorf("the environment cannot be built: %w", over)
	}
	if err != nil {
		return err
	}
	if err := b.addBinding(); err != nil {
		return fmt.Errorf("put the worker binding into the environment: %w", err)
	}
	if err := os.RemoveAll(filepath.Join(b.dir, "tmp")); err != nil {
		return err
	}
	b.report(fmt.Sprintf("built in %v", time.Since(b.began).Round(100*time.Millisecond)))
	return b.mark()
}

// stage makes the directories, and copies the files that the installer reads.
func (b *builder) stage() error {
	for _, sub := range []string{"venv", "tmp", "requirements"} {
		if err := os.MkdirAll(filepath.Join(b.dir, sub), 0o755); err != nil {
			return err
		}
	}
	place := func(name string) (string, error) {
		path := filepath.Join(b.dir, "requirements", filepath.FromSlash(name))
		return path, os.MkdirAll(filepath.Dir(path), 0o755)
	}
	for name, text := range b.want.files {
		path, err := place(name)
		if err == nil {
			err = os.WriteFile(path, text, 0o644)
		}
		if err != nil {
			return err
		}
	}
	for _, name := range b.want.wheels {
		path, err := place(name)
		if err != nil {
			return err
		}
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
		if err != nil {
			return err
		}
		if err := errors.Join(b.want.copyWheel(name, f), f.Close()); err != nil {
			return err
		}
	}
	return nil
}

// install runs uv, or venv and pip. Packages are compiled by the gateway's Python: that of the environment would run what packages bring
// along for its start.
func (b *builder) install(ctx context.Context) error {
	venv, python := filepath.Join(b.dir, "venv"), pythonOf(b.dir)
	only := []string{"--only-binary", ":all:"}
	if b.r.cfg.AllowBuild {
		only = nil
	}
	if b.about.uv == "" {
		make, pip := []string{b.about.Path, "-m", "venv", venv}, []string{python, "-m", "pip"}
		if b.about.Pip { // unpacking another one takes seconds
			make, pip = append(make, "--without-pip"), []string{b.about.Path, "-m", "pip", "--python", python}
		}
		if err := b.step(ctx, "make the environment", false, make...); err != nil {
			return err
		}
		pip = append(pip, "install", "--no-cache-dir", "--no-input", "--disable-pip-version-check", "--progress-bar", "off")
		return b.step(ctx, "install the requirements", true, slices.Concat(pip, only, []string{"-r", containers.RequirementsFile})...)
	}
	cache := []string{"--cache-dir", filepath.Join(b.dir, "tmp", "uv")}
	if err := b.step(ctx, "make the environment", false, append([]string{b.about.uv, "venv", "--allow-existing", "--no-python-downloads", "--python", b.about.Path, venv}, cache...)...); err != nil {
		return err
	}
	uv := slices.Concat([]string{b.about.uv, "pip", "install", "--python", python, "--link-mode", "copy", "-r", containers.RequirementsFile}, cache, only)
	if err := b.step(ctx, "install the requirements", true, uv...); err != nil {
		return err
	}
	return b.step(ctx, "compile the packages", false, b.about.Path, "-m", "compileall", "-qq", filepath.Join(venv, "lib"))
}

// step runs one program of the build to its end.
func (b *builder) step(ctx context.Context, what string, network bool, command ...string) error {
	out := &lines{report: b.report}
	env := append(b.r.inherited(passed...), "VIRTUAL_ENV=", "TMPDIR=", "TEMP="+filepath.Join(b.dir, "tmp"), "PYTHONNOUSERSITE=1", "PYTHONUNBUFFERED=1")
	inst, err := b.r.inner.Start(ctx, containers.Launch{
		Model: api.ModelID{Name: "environment", Version: "1"}, Dir: filepath.Join(b.dir, "requirements"), Command: command, Env: env,
		Writable:  []string{filepath.Join(b.dir, "venv"), filepath.Join(b.dir, "tmp")},
		Isolation: containers.Isolation{Network: network, Granted: true}, Quiet: b.quiet, Stdout: out, Stderr: out,
	})
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	select {
	case <-inst.Exited():
	case <-ctx.Done():
		if err := inst.Signal(false); err != nil {
			return err
		}
		<-inst.Exited()
		return fmt.Errorf("the environment cannot be built: %w", context.Cause(ctx))
	}
	if exit := inst.Exit(); exit.Code != 0 {
		return fmt.Errorf("the environment cannot be built: %s: %s %s:\n%s%s", what, filepath.Base(command[0]), exit, out.tail(), b.advice(what, out.tail()))
	}
	return nil
}

// advice says what a person can do about the installer's last lines.
func (b *builder) advice(what, said string) string {
	switch {
	case what == "make the environment" && strings.Contains(said, "ensurepip"):
		return "\nThe gateway's Python cannot make environments: install the package python3-venv, or uv"
	case !b.r.cfg.AllowBuild && (strings.Contains(said, "No matching distribution") || strings.Contains(said, "no usable wheels") || strings.Contains(said, "has no wheels")):
		return "\nOnly wheels are installed. If this package has none for this Python, choose another release, or let the gateway build packages: serve --allow-build"
	}
	return ""
}

// mark says that the environment is complete.
func (b *builder) mark() error {
	text, err := json.MarshalIndent(map[string]any{
		"python": b.about.Path, "version": b.about.Version, "built": b.began.UTC().Format(time.RFC3339), "files": slices.Sorted(maps.Keys(b.want.files)), "wheels": b.want.wheels,
	}, "", "  ")
	if err != nil {
		return err
	}
	unix.Sync() // thousands of files: what the marker says is on the disk when the marker is
	path := filepath.Join(b.dir, markName)
	if err := os.WriteFile(path+".new", append(text, '\n'), 0o644); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// lock takes a lock that ends with the process.
func lock(ctx context.Context, path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil && !still(f, path) { // its environment was collected meanwhile
			if err := f.Close(); err != nil {
				return nil, err
			}
			if f, err = os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600); err != nil {
				return nil, err
			}
			continue
		}
		if err == nil || errors.Is(err, unix.ENOLCK) || errors.Is(err, unix.ENOTSUP) { // a file system without locks
			return func() { _ = f.Close() }, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), f.Close())
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, errors.Join(ctx.Err(), f.Close())
		}
	}
}

// lines reports each line of an installer, and keeps the last ones.
type lines struct {
	report func(string)
	mu     sync.Mutex
	rest   []byte
	last   []string
}

// maxLine is where a line of an installer is cut.
const maxLine = 1024

var _ io.Writer = (*lines)(nil)

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range p {
		if c != '\n' {
			if len(l.rest) < maxLine {
				l.rest = append(l.rest, c)
			}
			continue
		}
		if line := strings.TrimSpace(strings.ToValidUTF8(string(l.rest), "\uFFFD")); line != "" {
			l.last = append(l.last[max(0, len(l.last)-lastLines+1):], line)
			l.report(line)
		}
		l.rest = l.rest[:0]
	}
	return len(p), nil
}

func (l *lines) tail() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.last, "\n")
}
