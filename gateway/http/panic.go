package http

import (
	"errors"
	"runtime/debug"

	"github.com/cloudwego/hertz/pkg/app"

	"github.com/xebec-serving/xebec/api"
)

// Panic is a defect: the handler of a request has panicked.
type Panic struct {
	Method, Path, RequestID string
	Value                   any
	Stack                   []byte
}

const (
	maxPanicPathBytes = 256     //xebec:limit bytes of the path that the log shows of a request whose handler panicked
	maxPanicStack     = 8 << 10 //xebec:limit bytes of the stack that the log shows of it
)

// recovered is deferred around handlers. It ends the request of a handler that has panicked: with 500 in the port's format of errors, and with
// its connection, because what of the request the handler has passed on is not known. An answer that has begun is cut off.
func (p *port) recovered(c *app.RequestContext, a *about) {
	v := recover()
	if v == nil {
		return
	}
	stack := debug.Stack()
	c.Set(panickedKey, true)
	c.Abort()
	if unanswered(c) {
		c.Response.Reset()
		p.refuse(c, api.Errorf(api.Internal, "internal error"), api.Internal.HTTPStatus())
		p.complete(c, a)
	} else {
		c.Response.HijackWriter(cutOff{})
	}
	c.Response.SetConnectionClose()
	if p.panicked != nil {
		path := c.Path()
		p.panicked(Panic{
			Method: string(c.Method()), Path: string(path[:min(len(path), maxPanicPathBytes)]), RequestID: string(a.RequestID),
			Value: v, Stack: stack[:min(len(stack), maxPanicStack)],
		})
	}
}

// unanswered reports whether nothing of the answer has been written.
func unanswered(c *app.RequestContext) bool {
	w := c.Response.GetHijackWriter()
	if w == nil {
		return true
	}
	_, expected := w.(hijacked)
	cn, own := c.GetConn().(*conn)
	return expected && own && cn.retract()
}

const panickedKey = "xebec.panicked"

// panicked reports whether a request's handler has panicked. Its body may still be read by what has its queries.
func panicked(c *app.RequestContext) bool {
	_, is := c.Get(panickedKey)
	return is
}

// cutOff ends an answer that has begun without completing it, so that the client sees that it is not whole.
type cutOff struct{}

var errCutOff = errors.New("the handler of the request has panicked")

func (cutOff) Write([]byte) (int, error) { return 0, errCutOff }
func (cutOff) Flush() error              { return errCutOff }
func (cutOff) Finalize() error           { return errCutOff }
