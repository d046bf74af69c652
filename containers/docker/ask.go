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
	// givenUpWithin is how long the requests that make a container may still take when nobody wants it any more: they may have been heard,
	// and then it is better to know the container than to find it later.
	givenUpWithin = 5 * time.Second
	// hushedWithin bounds a request to clear up while the engine does not answer: what is left is removed when it does.
	hushedWithin = 2 * time.Second
	// slowAfter is when a replica's log says that the engine keeps it waiting.
	slowAfter = 2 * time.Second
)

// errNoAnswer is that an engine which may be there has said nothing in time.
type errNoAnswer struct {
	host   string
	within time.Duration
}

func (e *errNoAnswer) Error() string {
	return fmt.Sprintf("the Docker engine at %s does not answer: no word within %v", e.host, e.within)
}

// ask makes a request that has this time, and notes whether the engine answers.
func (r *Runtime) ask(ctx context.Context, within time.Duration, request func(ctx context.Context) error) error {
	call, done := context.WithTimeout(ctx, within)
	defer done()
	err := request(call)
	switch {
	case err == nil:
		r.heard()
	case ctx.Err() == nil && call.Err() != nil && errors.Is(err, context.DeadlineExceeded):
		r.unheard()
		return &errNoAnswer{r.host, within}
	case ctx.Err() == nil && !client.IsErrConnectionFailed(err):
		r.heard() // a refusal is an answer
	}
	return err
}

func (r *Runtime) heard() { r.silent.Store(false) }

// unheard notes that the engine has not answered in time: it is asked anew before the next launch, and not waited for where that can be done
// without.
func (r *Runtime) unheard() {
	r.silent.Store(true)
	r.lostContact()
}

// slow has the replica's log say that it waits for the engine, unless answered is called soon.
func (r *Runtime) slow(to io.Writer) (answered func()) {
	timer := time.AfterFunc(slowAfter, func() {
		tell(to, "the Docker engine at %s does not answer: this replica has been waiting for it for %v", r.host, slowAfter)
	})
	return func() { timer.Stop() }
}

// lasting is for requests after which it has to be known whether they were heard: they have createWithin, and when ctx ends
// givenUpWithin from then on.
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

// voice is a replica's log, which has its output as it comes and what is said about it: one at a time, and nothing when it is over.
type voice struct {
	mu sync.Mutex
	w  io.Writer // nil when nobody hears
}

func (v *voice) Write(b []byte) (int, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.w == nil {
		return len(b), nil
	}
	return v.w.Write(b)
}

func (v *voice) hush() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.w = nil
}
