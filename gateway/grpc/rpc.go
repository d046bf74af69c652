package grpc

import (
	"context"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/dialect"
	"github.com/xebec-serving/xebec/gateway/query"
)

// rpc is what all calls that ask a function or a model share. A call embeds it and is its owner.
type rpc struct {
	dialect.Call
	server  *Server
	options dialect.Options
	name    string // memory of the name that was asked for last
	version string
	done    chan struct{} // capacity 1: answered
	failure *failure      // instead of an answer
	flow    *flow         // of a model that streams, if the call takes a stream
	held    int           // bytes of the budget
	dead    bool          // submitting has panicked
}

func (c *rpc) init(s *Server, owner query.Owner) {
	c.server, c.done = s, make(chan struct{}, 1)
	c.Init(s.cfg.Path, owner)
}

// reset is for Released.
func (c *rpc) reset() {
	select {
	case <-c.done: // its caller has left
	default:
	}
	c.failure, c.flow = nil, nil
	if c.held > 0 {
		c.server.cfg.Memory.Return(c.held)
		c.held = 0
	}
}

// reserve takes room for the message while the call lasts.
func (c *rpc) reserve(n int) error {
	if n < heldStep {
		return nil
	}
	if !c.server.cfg.Memory.Reserve(n) {
		return api.Errorf(api.Overloaded, "the bodies of other requests take all of the memory for bodies (--body-memory): send the request again later")
	}
	c.held += n
	return nil
}

// texts keeps the names of what is asked, without memory for those that are as before.
func (c *rpc) texts(name, version []byte) (string, string) {
	if c.name != string(name) {
		c.name = string(name)
	}
	if c.version != string(version) {
		c.version = string(version)
	}
	return c.name, c.version
}

// wayBack is the part of a call's deadline that is kept for the answer's way to the caller: a tenth, at most 5 ms.
func wayBack(left time.Duration) time.Duration { return min(left/10, 5*time.Millisecond) }

// prepare sets the options of metadata, and the deadline. micros is the deadline of a parameter of the protocol; 0: there is none. The call must have
// been addressed.
func (c *rpc) prepare(ctx context.Context, m *metaData, micros int64) error {
	if m != nil {
		if err := c.options.Headers(m); err != nil {
			return err
		}
	}
	within := time.Duration(0)
	if micros > 0 && !c.options.HasSLO() {
		within = time.Duration(min(micros, query.MaxSLO.Microseconds())) * time.Microsecond
	}
	at, ok := ctx.Deadline()
	left := time.Until(at)
	if ok && left <= 0 {
		return context.DeadlineExceeded
	}
	if ok && !c.options.HasSLO() {
		left = max(left-wayBack(left), 1)
		own := within
		if fn := c.Function(); fn != nil && own == 0 {
			own = fn.SLO
		}
		if own == 0 || left < own {
			within = left
		}
	}
	if within > 0 {
		c.Within(within)
	}
	return c.options.Apply(&c.Request)
}

// ask submits the call and waits for its answer. Without an error the caller must call Release.
func (c *rpc) ask(ctx context.Context) error {
	c.Retain()
	c.server.gather.submit(&c.Call, c)
	select {
	case <-c.done:
		if c.dead {
			return status.Error(codes.Internal, "internal error")
		}
		return nil
	case <-ctx.Done():
		if c.flow != nil {
			c.flow.leave()
		}
		c.Cancel()
		c.Delivered()
		c.Release()
		return status.FromContextError(ctx.Err()).Err()
	}
}

// Reply implements [dialect.Replier].
func (c *rpc) Reply(*dialect.Call) { c.done <- struct{}{} }

// broken implements submitter.
func (c *rpc) broken() {
	c.dead = true
	c.Request.Delivered()
	c.done <- struct{}{}
}

// failWith makes the answer an error.
func (c *rpc) failWith(code api.Code, message string) api.Code {
	c.failure = &failure{code: code, message: message, retry: c.RetryAfter()}
	return code
}

// room takes room for a large answer, or makes the answer a refusal.
func (c *rpc) room(n int) bool {
	if n < largeAnswer {
		return true
	}
	if !c.server.cfg.Memory.Reserve(n) {
		c.failure = &failure{code: api.Overloaded, message: "the gateway has no memory for another answer now: send the request again later"}
		return false
	}
	c.held += n
	return true
}

// largeAnswer is the size from which an answer needs room, as in HTTP.
const largeAnswer = 64 << 10
