package docker

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/xebec-serving/xebec/containers"
)

const (
	// maxWarm bounds the containers that wait with imported modules. Each holds its libraries' memory, within its model's limits,
	// whether or not a query comes.
	maxWarm = 8 //xebec:limit containers that wait with imported modules
	// warmIdle is how long a container must have waited before one for another model may take its place.
	warmIdle = time.Minute //xebec:limit time after which a container that waits may be replaced by another model's
	// warmImport bounds the imports: minutes on a cold disk.
	warmImport = 5 * time.Minute //xebec:limit imports of a container that is to wait
	// warmPatience is the age of an importing container at which launches stop waiting for it.
	warmPatience = 30 * time.Second //xebec:limit age of a container, still importing, at which launches stop waiting for it
	// warmAnswer bounds the answer to a launch, which takes milliseconds.
	warmAnswer = 5 * time.Second //xebec:limit answer of a container that waits, to a launch
	// maxWarmRequest is the largest request that xebec._warm reads, maxWarmMessage exceeds its answers.
	maxWarmRequest, maxWarmMessage = 64 << 10, 16 << 10
	// heldBytes bounds what a waiting container has printed and its replica's log will begin with.
	heldBytes = 4 << 10

	warmModule = "xebec._warm"
)

// warmBackoff is how soon a container that could not import is tried again.
var warmBackoff = containers.Backoff{First: time.Second, Max: 5 * time.Minute, Healthy: time.Minute}

// perLaunch are the variables that differ between launches of one model. A waiting container gets them with its launch. A name that ends
// in '*' is a prefix.
var perLaunch = []string{"XEBEC_*", envCUDA, "NVIDIA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"}

// warmth is a Runtime's set of waiting containers. A container that waits becomes the next replica of its model, so each replica has a
// container of its own, with its limits, whichever way it started. There is one for each announced model without a replica.
type warmth struct {
	dir string // for their sockets; empty: no container waits

	mu     sync.Mutex
	places map[string]*warmPlace
}

// warmPlace is what is known of one model version.
type warmPlace struct {
	launch   containers.Launch // as announced
	waiting  *warm             // nil: none waits
	replicas int               // of this key, running or starting
	since    time.Time         // when waiting was set
	failures int
	next     time.Time // no attempt before
	err      error     // of the last attempt
}

// warm is one container that imports, or waits.
type warm struct {
	ready chan struct{} // closed when it waits, or never will, in which case err says why
	err   error
	born  time.Time
	in    *instance
	conn  *net.UnixConn
	pid   int // of the process that has imported
	argv  []string
	// out and errs hold what it prints until it has a launch.
	out, errs heldOutput
	// cancel ends it, unless a launch has taken it.
	cancel context.CancelFunc
	taken  atomic.Bool
}

// heldOutput keeps the beginning of an output until it is known where it goes.
type heldOutput struct {
	mu   sync.Mutex
	held []byte
	w    io.Writer
}

func (h *heldOutput) Write(b []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.w != nil {
		return h.w.Write(b)
	}
	h.held = append(h.held, b[:min(len(b), heldBytes-len(h.held))]...)
	return len(b), nil
}

// to passes on what was held, and all that comes.
func (h *heldOutput) to(w io.Writer) {
	if w == nil {
		w = io.Discard
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.w = w; len(h.held) > 0 {
		_, _ = w.Write(h.held)
	}
	h.held = nil
}

func (h *heldOutput) String() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return strings.TrimSpace(string(h.held))
}

// template returns what a container can be made of before its launch is known, and a key that is equal for launches that can become it, if its
// image has the bytes that the launch is to have.
// ok is false if there is no such container: devices are chosen for each launch.
func template(l containers.Launch) (t containers.Launch, key string, ok bool) {
	if len(l.Preload) == 0 || l.Image == "" {
		return t, "", false
	}
	t = containers.Launch{Model: l.Model, Image: l.Image, ImageDigest: l.ImageDigest, Dir: l.Dir, Command: l.Command, Preload: l.Preload, Limits: l.Limits}
	for _, entry := range l.Env {
		name, value, _ := strings.Cut(entry, "=")
		if name == envGPUs && value != "" {
			return t, "", false
		}
		varies := slices.ContainsFunc(perLaunch, func(pattern string) bool {
			prefix, wild := strings.CutSuffix(pattern, "*")
			return name == pattern || wild && strings.HasPrefix(name, prefix)
		})
		if !varies && !slices.Contains(l.Secret, name) {
			t.Env = append(t.Env, entry)
		}
	}
	env := slices.Clone(t.Env)
	slices.Sort(env)
	// A directory that another one has replaced under its name is not the one that a waiting container has mounted.
	var dir unix.Stat_t
	_ = unix.Stat(t.Dir, &dir) // without one the engine says so
	return t, fmt.Sprintf("%v %q %q %d:%d %q %q %v %q", t.Model, t.Image, t.Dir, dir.Dev, dir.Ino, t.Command, t.Preload, t.Limits, env), true
}

// Preload implements [containers.Preloader]: for each announced model one container imports its modules and waits, up to maxWarm. It
// becomes the model's next replica. When that has ended another one imports. Those of models that are not announced any more end.
func (r *Runtime) Preload(launches []containers.Launch) {
	if r.warmth.dir == "" {
		return
	}
	r.warmth.mu.Lock()
	defer r.warmth.mu.Unlock()
	announced := map[string]containers.Launch{}
	for _, l := range launches {
		if t, key, ok := template(l); ok {
			announced[key] = t
		}
	}
	for key, p := range r.warmth.places {
		if _, ok := announced[key]; !ok {
			p.end()
			delete(r.warmth.places, key)
		}
	}
	for key, t := range announced {
		if p := r.warmth.places[key]; p != nil {
			p.launch = t // its image may have been pinned
		} else {
			r.warmth.places[key] = &warmPlace{launch: t}
		}
		r.warmUp(key)
	}
}

// Zygotes implements [containers.Preloader]: the processes that wait.
func (r *Runtime) Zygotes() (pids []int) {
	r.warmth.mu.Lock()
	defer r.warmth.mu.Unlock()
	for _, p := range r.warmth.places {
		if p.waiting == nil {
			continue
		}
		select {
		case <-p.waiting.ready:
			if p.waiting.err == nil && p.waiting.pid > 0 {
				pids = append(pids, p.waiting.pid)
			}
		default: // it still imports, so its memory is not known yet
		}
	}
	return pids
}

// end ends the container that waits. The caller holds the lock.
func (p *warmPlace) end() {
	if p.waiting != nil {
		p.waiting.cancel()
		p.waiting = nil
	}
}

// warmUp makes a container that waits if the model has no replica, and there is room. The caller holds the lock of warmth.
func (r *Runtime) warmUp(key string) {
	p, now := r.warmth.places[key], time.Now()
	if p == nil || p.waiting != nil || p.replicas > 0 || now.Before(p.next) || !r.warmth.room(now) {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return
	}
	ctx, cancel := context.WithCancel(r.starting)
	w := &warm{ready: make(chan struct{}), born: now, cancel: cancel}
	p.waiting, p.since = w, now
	r.launches.Add(1)
	l := p.launch
	go func() {
		defer r.launches.Done()
		r.wait(ctx, key, p, w, l)
	}()
}

// room reports whether another container may wait. Where there are too many it ends the one that has waited longest, if that is long.
func (h *warmth) room(now time.Time) bool {
	count := 0
	var oldest *warmPlace
	for _, p := range h.places {
		if p.waiting == nil {
			continue
		}
		count++
		if now.Sub(p.since) >= warmIdle && (oldest == nil || p.since.Before(oldest.since)) {
			oldest = p
		}
	}
	if count < maxWarm {
		return true
	}
	if oldest == nil {
		return false
	}
	oldest.end()
	return true
}

// wait is the goroutine of a container until it waits, and starts the one that notices its end.
func (r *Runtime) wait(ctx context.Context, key string, p *warmPlace, w *warm, l containers.Launch) {
	w.err = r.startWarm(ctx, l, w)
	close(w.ready)
	failed := func(err error, healthy time.Duration) {
		r.warmth.mu.Lock()
		defer r.warmth.mu.Unlock()
		if p.waiting != w || r.starting.Err() != nil {
			return // a launch has taken it, or it is not needed
		}
		var delay time.Duration
		p.waiting = nil
		p.failures, delay = warmBackoff.After(p.failures, healthy, mathrand.Float64())
		p.err, p.next = err, time.Now().Add(delay)
		r.log.Warn("no container waits with a model's modules", zap.Stringer("model", l.Model), zap.Error(err), zap.Duration("next_attempt_in", delay))
		timer := time.AfterFunc(delay, func() {
			r.warmth.mu.Lock()
			defer r.warmth.mu.Unlock()
			if r.warmth.places[key] == p {
				r.warmUp(key)
			}
		})
		context.AfterFunc(r.starting, func() { timer.Stop() })
	}
	if w.err != nil {
		failed(w.err, 0)
		return
	}
	since := time.Now()
	r.supervised.Go(func() {
		stop := context.AfterFunc(ctx, func() {
			if !w.taken.Load() {
				_ = w.in.Signal(false)
			}
		})
		defer stop()
		<-w.in.exited
		failed(fmt.Errorf("the container that waited has ended: %v%s", w.in.exit, said(&w.errs)), max(1, time.Since(since)))
	})
}

func said(h *heldOutput) string {
	if text := h.String(); text != "" {
		return ": " + text
	}
	return ""
}

// startWarm makes the container and returns when it waits.
func (r *Runtime) startWarm(ctx context.Context, l containers.Launch, w *warm) error {
	dir, ln, err := r.warmth.listen()
	if err != nil {
		return err
	}
	defer func() { // the container has its own mount of the socket, and connects once
		_ = ln.Close()
		os.Remove(dir)
	}()
	l.Env = append(slices.Clone(l.Env), envSocket+"="+ln.Addr().String())
	l.Stdout, l.Stderr = &w.out, &w.errs
	v := &logWriter{w: l.Stderr}
	l.Stderr = v
	if w.in, err = r.startAs(ctx, l, v, w); err != nil {
		v.stop()
		return err
	}
	err = w.await(ctx, ln)
	if err != nil {
		_ = w.in.Signal(false)
		<-w.in.exited
		if exit := w.in.exit; ctx.Err() == nil && exit.Cause == containers.OutOfMemory {
			return fmt.Errorf("its imports ended: %v", exit)
		}
		return fmt.Errorf("%w%s", err, said(&w.errs))
	}
	return nil
}

// listen makes a socket in a directory that only this user can enter. The engine mounts it.
func (h *warmth) listen() (dir string, ln *net.UnixListener, err error) {
	var b [4]byte
	rand.Read(b[:]) // never fails since Go 1.24
	dir = filepath.Join(h.dir, hex.EncodeToString(b[:]))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", nil, err
	}
	path := filepath.Join(dir, "s")
	if ln, err = net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"}); err == nil {
		err = os.Chmod(path, 0o666) // the container's user is another one
	}
	if err != nil {
		if ln != nil {
			_ = ln.Close()
		}
		os.Remove(dir)
		return "", nil, fmt.Errorf("a socket for a container that is to wait: %w", err)
	}
	return dir, ln, nil
}

// command returns what the container runs while it waits, for the command that its replica is to run.
func (w *warm) command(argv, modules []string) ([]string, error) {
	w.argv = argv
	if len(argv) < 2 || !strings.HasPrefix(filepath.Base(argv[0]), "python") || strings.HasPrefix(argv[1], "-") && (argv[1] != "-m" || len(argv) < 3) {
		return nil, launchErrorf(os.ErrInvalid, "preload needs a command [python, FILE, …] or [python, -m, MODULE, …], but the container runs %q: set run.command", argv)
	}
	return slices.Concat([]string{argv[0], "-m", warmModule}, modules), nil
}

// await waits until the container's process has connected and imported.
func (w *warm) await(ctx context.Context, ln *net.UnixListener) error {
	ctx, done := context.WithTimeout(ctx, warmImport)
	defer done()
	defer context.AfterFunc(ctx, func() { _ = ln.SetDeadline(time.Unix(1, 0)) })()
	ended := make(chan struct{})
	defer close(ended)
	go func() {
		select {
		case <-w.in.exited:
			_ = ln.SetDeadline(time.Unix(1, 0))
		case <-ended:
		}
	}()
	conn, err := ln.AcceptUnix()
	if err != nil {
		return errors.New("it did not connect: is its xebec package as new as this gateway? (containers/images/build.sh makes new images)")
	}
	w.conn = conn
	if raw, err := conn.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) {
			if peer, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
				w.pid = int(peer.Pid)
			}
		})
	}
	said, err := w.read(ctx, warmImport)
	if err == nil && !said.Ready {
		err = errors.New("it did not report that it is ready")
	}
	if err != nil {
		conn.Close()
	}
	return err
}

// warmMessage is a message of xebec._warm.
type warmMessage struct {
	Ready   bool   `json:"ready"`
	Started bool   `json:"started"`
	Error   string `json:"error"`
}

func (w *warm) read(ctx context.Context, within time.Duration) (m warmMessage, err error) {
	if err := w.conn.SetReadDeadline(time.Now().Add(within)); err != nil {
		return m, err
	}
	defer context.AfterFunc(ctx, func() { w.conn.SetReadDeadline(time.Unix(1, 0)) })()
	buf := make([]byte, maxWarmMessage)
	n, err := w.conn.Read(buf)
	switch {
	case ctx.Err() != nil:
		return m, ctx.Err()
	case err != nil:
		return m, fmt.Errorf("it did not answer: %w", err)
	}
	if err := json.Unmarshal(buf[:n], &m); err != nil {
		return m, fmt.Errorf("its answer is not JSON: %w", err)
	}
	if m.Error != "" {
		return m, errors.New(m.Error)
	}
	return m, nil
}

// claim starts a launch in the container that waits for it. If it returns neither an instance nor an error, the launch needs a container
// that imports: none waits, or it could not be used, in which case stderr says why. release is called when the replica has ended, or was
// not started.
func (r *Runtime) claim(ctx context.Context, l containers.Launch, s *spec) (in *instance, release func(), err error) {
	_, key, ok := template(l)
	r.warmth.mu.Lock()
	p := r.warmth.places[key]
	if !ok || p == nil {
		r.warmth.mu.Unlock()
		return nil, func() {}, nil
	}
	w := p.waiting
	p.waiting = nil
	p.replicas++
	failed := p.err
	if w != nil {
		w.taken.Store(true)
		failed = nil
	}
	r.warmth.mu.Unlock()
	release = func() {
		r.warmth.mu.Lock()
		defer r.warmth.mu.Unlock()
		if p.replicas--; r.warmth.places[key] == p {
			r.warmUp(key)
		}
	}
	if w == nil && failed == nil {
		return nil, release, nil
	}
	if w != nil {
		if failed = w.launch(ctx, l, s); failed == nil {
			r.warmth.mu.Lock()
			p.failures, p.err = 0, nil
			r.warmth.mu.Unlock()
			return w.in, release, nil
		}
		w.discard()
	}
	if ctx.Err() != nil {
		return nil, release, ctx.Err()
	}
	logTo(l.Stderr, "xebec: this replica does not start from a container that waits, and imports everything itself: %v", failed)
	return nil, release, nil
}

// discard ends a container that a launch has taken and cannot use.
func (w *warm) discard() {
	w.taken.Store(false)
	w.cancel()
	select {
	case <-w.ready:
		if w.err == nil {
			_ = w.in.Signal(false) // cancel was in vain if it was taken when the Runtime was closed
		}
	default:
	}
}

// launch makes the waiting container a replica.
func (w *warm) launch(ctx context.Context, l containers.Launch, s *spec) error {
	late := time.NewTimer(time.Until(w.born.Add(warmPatience)))
	defer late.Stop()
	select {
	case <-w.ready:
	case <-ctx.Done():
		return ctx.Err()
	case <-late.C:
		return fmt.Errorf("it has been importing for %v", warmPatience)
	}
	if w.err != nil {
		return w.err
	}
	defer w.conn.Close()
	if err := w.in.hasImage(ctx, l); err != nil {
		return err
	}
	request := struct {
		Argv [][]byte `json:"argv"`
		Env  [][]byte `json:"env"`
	}{}
	for _, word := range w.argv[1:] {
		request.Argv = append(request.Argv, []byte(word))
	}
	for _, entry := range s.env {
		if !strings.HasPrefix(entry, envSocket+"=") {
			request.Env = append(request.Env, []byte(entry))
		}
	}
	body, err := json.Marshal(request)
	if err != nil {
		return err
	}
	if len(body) > maxWarmRequest {
		return fmt.Errorf("command and environment take %d bytes: expected at most %d", len(body), maxWarmRequest)
	}
	door, err := unix.Open(s.socket, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("the socket that was made for this replica: %w", err)
	}
	defer unix.Close(door)
	if err := w.conn.SetWriteDeadline(time.Now().Add(warmAnswer)); err != nil {
		return err
	}
	if _, _, err := w.conn.WriteMsgUnix(body, unix.UnixRights(door), nil); err != nil {
		return fmt.Errorf("it took no launch: %w", err)
	}
	m, err := w.read(ctx, warmAnswer)
	if err != nil {
		return err
	}
	if !m.Started {
		return errors.New("it did not start")
	}
	w.out.to(l.Stdout)
	w.errs.to(l.Stderr)
	return nil
}

// hasImage returns why a container that waits does not have the bytes of a launch's image: it was made before these were known, and the image's name
// meant others then.
func (in *instance) hasImage(ctx context.Context, l containers.Launch) error {
	if l.ImageDigest == "" || l.ImageDigest == in.launch.ImageDigest || l.ImageDigest == in.image.Digest || l.ImageDigest == in.image.ID {
		return nil
	}
	img, err := in.r.lookUp(ctx, l)
	if err != nil {
		return err
	}
	if img.id != in.image.ID {
		return fmt.Errorf("it was made from other bytes of the image %s (%s) than the version has (%s)", l.Image, in.image.ID, l.ImageDigest)
	}
	return nil
}
