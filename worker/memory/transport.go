package memory

import (
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/worker"
)

// EnvLaunch is the environment variable that names a launch. A worker needs no other.
const EnvLaunch = "XEBEC_MEMORY_LAUNCH"

// Config configures a Transport. Now is required.
type Config struct {
	// Now reads the gateway's monotonic clock.
	Now func() api.Nanos
	// MaxBatchBytes bounds the inputs of one batch, and its outputs; [worker.MaxBatchBytes] when 0.
	MaxBatchBytes int
}

// Transport connects workers of this process. It is a [worker.Transport].
type Transport struct {
	cfg Config

	mu       sync.Mutex
	expected map[string]worker.Expectation
	live     map[*replica]struct{}
	closed   bool
}

var _ worker.Transport = (*Transport)(nil)

// New returns a Transport without workers.
func New(cfg Config) *Transport {
	if cfg.MaxBatchBytes == 0 {
		cfg.MaxBatchBytes = worker.MaxBatchBytes
	}
	return &Transport{cfg: cfg, expected: map[string]worker.Expectation{}, live: map[*replica]struct{}{}}
}

// Expect implements [worker.Transport].
func (t *Transport) Expect(e worker.Expectation) (env []string, withdraw func() (unused bool), err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return nil, nil, errClosed
	}
	token := rand.Text()
	t.expected[token] = e
	return []string{EnvLaunch + "=" + token}, func() bool {
		t.mu.Lock()
		defer t.mu.Unlock()
		_, unused := t.expected[token]
		delete(t.expected, token)
		return unused
	}, nil
}

var errClosed = errors.New("the gateway is shutting down")

// Close implements [worker.Transport].
func (t *Transport) Close() error {
	t.mu.Lock()
	t.closed = true
	var live []*replica
	for r := range t.live {
		live = append(live, r)
	}
	t.mu.Unlock()
	for _, r := range live {
		r.Kill(errClosed.Error())
	}
	for _, r := range live {
		<-r.reported
	}
	return nil
}

// Start launches a worker that serves m, as goroutines that connect with the launch in env. If the transport does not
// expect the launch, the worker ends at once and Wait says why.
func (t *Transport) Start(env []string, m Model) *Worker {
	var token string
	for _, entry := range env {
		if value, ok := strings.CutPrefix(entry, EnvLaunch+"="); ok {
			token = value
		}
	}
	t.mu.Lock()
	e, ok := t.expected[token]
	if !ok || t.closed {
		t.mu.Unlock()
		return endedWorker(fmt.Errorf("%s=%q: this launch is unknown or was used before", EnvLaunch, token))
	}
	delete(t.expected, token)
	r := newReplica(t, e, m)
	if m.Stream != nil && !e.Streams {
		t.mu.Unlock()
		err := fmt.Errorf("refused: the worker answers in streams, but %s is not declared so: add stream: true to its manifest", e.Model)
		e.Events.Gone(r.self, worker.End{Reason: err.Error()})
		return endedWorker(err)
	}
	t.live[r] = struct{}{}
	t.mu.Unlock()
	w := &Worker{r: r, ended: make(chan struct{})}
	go r.report()
	go func() {
		w.err = r.serve()
		close(w.ended)
	}()
	return w
}

// endedWorker is a worker that never served.
func endedWorker(err error) *Worker {
	ended := make(chan struct{})
	close(ended)
	return &Worker{ended: ended, err: err}
}

// Worker is a launched worker as a supervisor sees it.
type Worker struct {
	r     *replica // nil if it never connected
	ended chan struct{}
	err   error
}

// ErrKilled is what Wait returns after Kill.
var ErrKilled = errors.New("killed")

// Stop tells the worker to stop, as SIGTERM does. The worker reports Leaving, serves until it is drained, and ends.
func (w *Worker) Stop() {
	if w.r != nil {
		w.r.leave("it was told to stop")
	}
}

// Kill ends the worker at once, as SIGKILL does.
func (w *Worker) Kill() {
	if w.r != nil {
		w.r.crash(ErrKilled)
	}
}

// Ended is closed when the worker has ended.
func (w *Worker) Ended() <-chan struct{} { return w.ended }

// Wait blocks until the worker has ended and its model's function has returned. It returns nil after an orderly end.
func (w *Worker) Wait() error {
	<-w.ended
	return w.err
}

// Exit is an error with which a model's function ends its worker during a call, as a process exits with this status.
type Exit int

// Error implements error.
func (e Exit) Error() string { return fmt.Sprintf("exit status %d", int(e)) }

// ExitCode returns the status.
func (e Exit) ExitCode() int { return int(e) }
