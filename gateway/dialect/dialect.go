package dialect

import (
	"errors"
	"strconv"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/query"
)

// Dialect is a protocol of clients.
type Dialect interface {
	// Routes are those that the dialect serves. Their requests go to p.
	Routes(p *query.Path) []Route
	// AppendError appends the body of an answer that has failed. The transport calls it for errors that no route's function sees: a
	// path that no route has, at or below one of the dialect's.
	AppendError(dst []byte, e *api.Error) []byte
}

// Route is a method, a path and the function that serves them.
type Route struct {
	Method string
	// Path begins with a slash. A segment {name} matches any text; a route with a literal segment goes before it.
	Path string
	// Serve calls Answer or Submit of its Exchange, once.
	Serve func(Exchange)
}

// Exchange is one request of a client, and the way to answer it, while the route's function runs.
type Exchange interface {
	// Param is the text that a segment {name} of the route has matched.
	Param(name string) string
	// Header is the value of a header field; nil: there is none. Names have their canonical form: "Xebec-Context".
	Header(name string) []byte
	// Body is the whole body.
	Body() []byte
	// Answer answers at once. The answer is the caller's again when it returns.
	Answer(a *Answer)
	// Submit submits the call's request. The call's answer is written after Settled has rendered it, before or after Submit returns.
	Submit(c *Call)
}

// Answer is what a dialect has rendered.
type Answer struct {
	Status      int
	ContentType string // empty: the transport's default
	Fields      []Field
	Body        []byte
	// Wire is memory that transports may use to put the answer together. Dialects leave it alone.
	Wire []byte
}

// Field is a header field of an answer.
type Field struct {
	Name  string
	Value []byte
}

// JSON is the content type of most answers.
const JSON = "application/json"

var retryAfter = Field{"Retry-After", []byte("1")}

// Reset makes it an empty answer of this status, in JSON, and keeps its memory. Every dialect says with status 503 that the client may come
// again.
func (a *Answer) Reset(status int) {
	a.Status, a.ContentType, a.Fields, a.Body = status, JSON, a.Fields[:0], a.Body[:0]
	if status == 503 {
		a.Fields = append(a.Fields, retryAfter)
	}
}

// Call is the part of a request's state that all dialects have. A dialect's state embeds it by value, and implements the other two methods
// of [query.Owner], Settled and Released.
type Call struct {
	query.Request
	// Answer is written by Settled.
	Answer Answer

	to Replier
}

// Replier writes answers.
type Replier interface {
	// Reply writes the call's answer, which is valid until it returns, or as long as it retains the call. It never blocks, and calls
	// Delivered when the client has its answer.
	Reply(c *Call)
}

// Submit submits the request, with the way of its answer. It is for transports: dialects call their Exchange's.
func (c *Call) Submit(to Replier) {
	c.to = to
	c.Request.Submit()
}

// Deliver sends the answer.
func (c *Call) Deliver() {
	to := c.to
	c.to = nil // a call in its pool keeps no connection
	to.Reply(c)
}

// Fail answers with an error, in the dialect's shape.
func Fail(x Exchange, d Dialect, err error) {
	e := Error(err)
	var a Answer
	a.Reset(e.Code.HTTPStatus())
	a.Body = d.AppendError(a.Body, e)
	x.Answer(&a)
}

// Error is err as an error with a code. What has none is a defect, of which clients learn nothing more.
func Error(err error) *api.Error {
	var e *api.Error
	if errors.As(err, &e) {
		return e
	}
	return &api.Error{Code: api.Internal, Message: "internal error", Err: err}
}

// SLO reads the header Xebec-Slo-Ms, with which clients of any dialect may set how long their queries may take. 0: it is not there.
func SLO(x Exchange) (time.Duration, error) {
	v := x.Header("Xebec-Slo-Ms")
	if len(v) == 0 {
		return 0, nil
	}
	const most = query.MaxSLO
	ms, err := strconv.ParseFloat(string(v), 64)
	if err != nil || !(ms > 0) || ms > most.Seconds()*1000 {
		return 0, api.Errorf(api.InvalidArgument, "header Xebec-Slo-Ms: %q: expected milliseconds above 0 and up to %.0f", v, most.Seconds()*1000)
	}
	return max(time.Duration(ms*1e6), 1), nil
}
