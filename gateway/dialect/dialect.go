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
	// Routes returns the routes that the dialect serves. Their requests go to p.
	Routes(p *query.Path) []Route
	// AppendError appends the body of an error answer. The transport calls it for errors outside all routes' functions:
	// an unknown path at or below one of the dialect's paths.
	AppendError(dst []byte, e *api.Error) []byte
}

// Guide is a dialect that says which paths there are to a caller of one that no route takes, as a clause without a full stop. The transport asks
// it about paths that are nearer to its routes than to those of other dialects.
type Guide interface {
	NoRoute(path string) string
}

// Owner is a dialect whose protocol has paths that the dialect does not serve. The transport answers requests to them in the dialect's form of errors.
type Owner interface {
	// Owns returns the beginnings of these paths.
	Owns() []string
}

// Route is a method, a path and the function that serves them.
type Route struct {
	Method string
	// Path begins with a slash. A segment {name} matches any text; a literal segment takes precedence over it. A path that
	// begins with /{function} addresses a function, whose declaration says which web pages may use it.
	Path string
	// Serve calls Answer or Submit of its Exchange exactly once.
	Serve func(Exchange)
	// NonBlocking: Serve parses and submits, and waits for nothing: neither a lock that another part holds for long, nor the store, nor an
	// answer; it borrows no body below 32 KiB. A transport may call it on a goroutine that serves many connections.
	NonBlocking bool
	// Reserve returns memory for the body of a request of this type to a function, of n bytes, which Serve will borrow, or nil: any will
	// do. A transport may call it for large bodies without a content coding, when their head has come. It must not block. If it reports waits,
	// there will be memory soon, and give is called once with it, or with nil if there is none after all; give must not block, and reports
	// false if its caller waits no more. Reserve is for paths that begin with /{function}, and may be nil.
	Reserve func(function, contentType []byte, n int, give func(api.Slot) bool) (_ api.Slot, waits bool)
}

// Exchange is a client's request, and the means to answer it. It is valid while the route's function runs.
type Exchange interface {
	// Param returns the text that the route's segment {name} has matched.
	Param(name string) string
	// HasQuery reports whether the query string has a parameter of this name.
	HasQuery(name string) bool
	// Header returns the value of a header field, or nil if the request has none. Names have their canonical form, for
	// example "Xebec-Context". X-Request-Id is there in every request of a connection: the transport makes those that
	// clients do not send.
	Header(name string) []byte
	// Body returns the whole body, without content codings.
	Body() []byte
	// Answer answers at once. The caller owns a again when it returns.
	Answer(a *Answer)
	// TakesParts reports whether the answer of a call may come in parts, which needs HTTP/1.1.
	TakesParts() bool
	// Submit submits the call's request. The transport writes the call's answer after Settled has rendered it, before or
	// after Submit returns.
	Submit(c *Call)
}

// Answer is a rendered answer.
type Answer struct {
	Status      int
	ContentType string // empty: the transport's default
	Fields      []Field
	// Transport has fields that the transport adds. Dialects must not use it, and Reset keeps it.
	Transport []Field
	Body      []byte
	// Wire is memory in which a transport may assemble the answer. Dialects must not use it.
	Wire []byte

	retry [8]byte // the value of Retry-After
}

// Field is a header field of an answer.
type Field struct {
	Name  string
	Value []byte
}

// JSON is the content type of most answers.
const JSON = "application/json"

var retryAfter = Field{"Retry-After", []byte("1")}

// Reset makes a an empty JSON answer with this status and keeps its memory. With status 503 it adds a Retry-After header,
// in every dialect.
func (a *Answer) Reset(status int) {
	a.Status, a.ContentType, a.Fields, a.Body = status, JSON, a.Fields[:0], a.Body[:0]
	if status == 503 {
		a.Fields = append(a.Fields, retryAfter)
	}
}

// RetryAfter tells the client of an answer with status 503 when to come again: the time is rounded up to seconds, and is at least
// one.
func (a *Answer) RetryAfter(d time.Duration) {
	if d <= time.Second {
		return
	}
	seconds := int64((min(d, maxRetryAfter) + time.Second - 1) / time.Second)
	for i := range a.Fields {
		if f := &a.Fields[i]; f.Name == retryAfter.Name {
			f.Value = strconv.AppendInt(a.retry[:0], seconds, 10)
		}
	}
}

// maxRetryAfter bounds what a model with slow starts makes clients wait.
const maxRetryAfter = time.Hour //xebec:limit longest Retry-After

// Call is the part of a request's state that all dialects share. A dialect's state embeds it by value and implements the
// other two methods of [query.Owner], Settled and Released.
type Call struct {
	query.Request
	// Answer is written by Settled.
	Answer Answer
	// Identity is filled by the transport before it submits the call, so Settled can read it.
	Identity Identity

	to        Replier
	flow      Flow // nil: the answer has one part
	sink      Sink
	rendering rendering
	fields    factFields
	streamed  *Streamed // of a model that answers in streams, else nil
}

// Replier writes answers.
type Replier interface {
	// Reply writes the call's answer, which is valid until Reply returns, or longer if it retains the call. Reply never
	// blocks. It calls Delivered when the client has its answer.
	Reply(c *Call)
}

// Refuser is a Replier that bounds the memory of answers.
type Refuser interface {
	// Refuses reports whether it has no room for an answer with the call's outputs. Then the call's Answer is a refusal.
	Refuses(c *Call) bool
}

// Refused reports whether the transport has no room for the answer, and has made the refusal. A dialect's Settled asks before it renders
// outputs, and returns the call's code if so. A dialect that does not ask is refused later, and its text was in vain.
func (c *Call) Refused() bool {
	r, ok := c.to.(Refuser)
	return ok && r.Refuses(c)
}

// Submit submits the request; to writes its answer. It is for transports: a dialect calls its Exchange's Submit. cork is that of a
// goroutine that serves many connections, or nil.
func (c *Call) Submit(to Replier, cork *query.Cork) {
	c.to, c.flow, c.sink, c.rendering.defaults = to, nil, nil, nil
	c.Identify(&c.Identity)
	c.Request.SubmitCorked(cork)
}

// Deliver sends the answer, or its first part.
func (c *Call) Deliver() {
	if c.streamed != nil {
		c.streamed.deliver()
		return
	}
	c.send()
}

func (c *Call) send() {
	to := c.to
	c.to = nil // a call in its pool keeps no connection
	to.Reply(c)
}

// Fail answers with an error in the dialect's format.
func Fail(x Exchange, d Dialect, err error) {
	e := *Error(err) // a copy: the error may be shared
	e.RequestID = string(x.Header("X-Request-Id"))
	var a Answer
	a.Reset(e.Code.HTTPStatus())
	a.Body = d.AppendError(a.Body, &e)
	x.Answer(&a)
}

// Error returns err as an error with a code. An error without a code is a defect, whose text clients do not see.
func Error(err error) *api.Error {
	var e *api.Error
	if errors.As(err, &e) {
		return e
	}
	return &api.Error{Code: api.Internal, Message: "internal error", Err: err}
}

// SLO reads the header Xebec-Slo-Ms, by which clients of any dialect set a request's latency objective. It returns 0
// without the header.
func SLO(x interface{ Header(name string) []byte }) (time.Duration, error) {
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
