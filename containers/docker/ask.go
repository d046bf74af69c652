package docker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/moby/moby/client"
)

const (
	// givenUpWithin is how long the requests that make a container may still take after the launch is cancelled. The
	// engine may have received them, and it is better to know the container than to find it later.
	givenUpWithin = 5 * time.Second
	// silentWithin bounds a clean-up request while the engine does not answer. What is left is removed when it does.
	silentWithin = 2 * time.Second
	// slowAfter is when a replica's log says that it waits for the engine.
	slowAfter = 2 * time.Second
)

// errNoAnswer means that the engine accepted a request and did not answer in time.
type errNoAnswer struct {
	host   string
	within time.Duration
}

func (e *errNoAnswer) Error() string {
	return fmt.Sprintf("the Docker engine at %s does not answer: no answer within %v", e.host, e.within)
}

// ask makes a request with a time limit, and records whether the engine answers.
func (r *Runtime) ask(ctx context.Context, within time.Duration, request func(ctx context.Context) error) error {
	call, done := context.WithTimeout(ctx, within)
	defer done()
	err := request(call)
	switch {
	case err == nil:
		r.noteAnswer()
	case ctx.Err() == nil && call.Err() != nil && errors.Is(err, context.DeadlineExceeded):
		r.noteNoAnswer()
		return &errNoAnswer{r.host, within}
	case ctx.Err() == nil && !client.IsErrConnectionFailed(err):
		r.noteAnswer() // a refusal is an answer
	}
	return err
}

func (r *Runtime) noteAnswer() { r.silent.Store(false) }

// noteNoAnswer records that the engine did not answer in time: the next launch contacts it again first, and calls that
// can do without it do not wait.
func (r *Runtime) noteNoAnswer() {
	r.silent.Store(true)
	r.lostContact()
}

// slow writes to the replica's log that it waits for the engine, unless answered is called within slowAfter.
func (r *Runtime) slow(to io.Writer) (answered func()) {
	timer := time.AfterFunc(slowAfter, func() {
		logTo(to, "the Docker engine at %s does not answer: this replica has been waiting for it for %v", r.host, slowAfter)
	})
	return func() { timer.Stop() }
}

// lasting returns a context for requests whose outcome must be known. They have createWithin in total, and
// givenUpWithin from the moment that ctx ends.
func lasting(ctx context.Context) (context.Context, context.CancelFunc) {
	calls, done := context.WithTimeout(context.WithoutCancel(ctx), createWithin)
	stop := context.AfterFunc(ctx, func() {
		timer := time.NewTimer(givenUpWithin)
		defer timer.Stop()
		select {
		case <-timer.C:
			done()
		case <-calls.Done():
		}
	})
	return calls, func() { stop(); done() }
}

// logWriter is a replica's log: the replica's output and messages about it. It serialises writes, and discards them
// after hush.
type logWriter struct {
	mu sync.Mutex
	w  io.Writer // nil: discard
}

func (v *logWriter) Write(b []byte) (int, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.w == nil {
		return len(b), nil
	}
	return v.w.Write(b)
}

func (v *logWriter) stop() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.w = nil
}
