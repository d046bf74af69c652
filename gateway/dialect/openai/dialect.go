package openai

import (
	"strings"
	"sync"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/dialect"
	"github.com/xebec-serving/xebec/gateway/internal/tensorjson"
	"github.com/xebec-serving/xebec/gateway/query"
)

// Dialect is the protocol. Now is the clock of "created"; nil means time.Now.
type Dialect struct{ Now func() time.Time }

var (
	_ dialect.Guide = Dialect{}
	_ dialect.Owner = Dialect{}
)

// Routes are those of the three tasks.
func (d Dialect) Routes(p *query.Path) []dialect.Route {
	s := &service{path: p, now: d.Now}
	if s.now == nil {
		s.now = time.Now
	}
	s.calls.New = func() any { return s.newCall() }
	var routes []dialect.Route
	for _, r := range []struct {
		path string
		kind kind
	}{{"/v1/embeddings", embeddings}, {"/v1/completions", completions}, {"/v1/chat/completions", chat}} {
		routes = append(routes, dialect.Route{Method: "POST", Path: r.path, NonBlocking: true, Serve: func(x dialect.Exchange) { s.ask(x, r.kind) }})
	}
	return routes
}

// AppendError appends the protocol's error object.
func (Dialect) AppendError(dst []byte, e *api.Error) []byte {
	return appendError(dst, e.Code, e.Message)
}

func appendError(dst []byte, code api.Code, message string) []byte {
	dst = tensorjson.AppendString(append(dst, `{"error":{"message":`...), message)
	kind := "server_error"
	switch status := code.HTTPStatus(); {
	case status == 429:
		kind = "rate_limit_error"
	case status < 500:
		kind = "invalid_request_error"
	}
	dst = append(append(dst, `,"type":"`...), kind...)
	dst = append(append(dst, `","param":null,"code":"`...), code.String()...)
	return append(dst, `"}}`...)
}

// NoRoute says which paths there are. The status is 404: OpenAI's clients repeat requests that are answered with 501.
func (Dialect) NoRoute(path string) string {
	if strings.HasPrefix(path, withoutV1) {
		return "expected /v1" + withoutV1 + ": the base URL of OpenAI's clients ends in /v1"
	}
	return "of OpenAI's API there are GET /v1/models, and POST /v1/embeddings, /v1/completions and /v1/chat/completions"
}

// withoutV1 is what a client asks whose base URL lacks /v1. Its other paths may be those of functions.
const withoutV1 = "/chat/completions"

// Owns returns the other parts of OpenAI's API. No other protocol has these paths.
func (Dialect) Owns() []string {
	return []string{
		withoutV1,
		"/v1/assistants", "/v1/audio/", "/v1/batches", "/v1/chat/", "/v1/containers", "/v1/conversations", "/v1/engines/", "/v1/evals", "/v1/files",
		"/v1/fine_tuning/", "/v1/images/", "/v1/moderations", "/v1/organization/", "/v1/realtime", "/v1/responses", "/v1/threads", "/v1/uploads",
		"/v1/vector_stores", "/v1/videos",
	}
}

// service is the dialect on one path.
type service struct {
	path  *query.Path
	now   func() time.Time
	calls sync.Pool
}

// call is the state of one request.
type call struct {
	dialect.Call
	service *service
	kind    kind
	parsed  Request
	name    string // of the model, as the request has it
	created int64
	words   int // of the texts that were answered
}

func (s *service) newCall() *call {
	c := &call{service: s}
	c.Init(s.path, c)
	return c
}

// Released returns the call to its pool.
func (c *call) Released() { c.service.calls.Put(c) }

// ask serves all routes.
func (s *service) ask(x dialect.Exchange, k kind) {
	c := s.calls.Get().(*call)
	c.Open()
	defer c.Request.Abandon()
	c.kind, c.words, c.created = k, 0, s.now().Unix()
	name, err := c.parsed.Model(x.Body())
	if err == nil {
		c.name = string(name)
		err = c.AskNamed(c.name, "")
	}
	if err != nil {
		c.Drop()
		dialect.Fail(x, Dialect{}, err)
		return
	}
	if err := c.read(x); err != nil {
		c.Refuse()
		dialect.Fail(x, Dialect{}, err)
		return
	}
	x.Submit(&c.Call)
}

// read reads the body and the header fields.
func (c *call) read(x dialect.Exchange) error {
	m := c.Model()
	if m.Task != task[c.kind] {
		has := "has none"
		if m.Task != "" {
			has = "has task: " + m.Task
		}
		return api.Errorf(api.InvalidArgument, "model: %q cannot be asked here: its manifest needs task: %s, and %s", c.name, task[c.kind], has)
	}
	if err := c.parsed.Parse(x.Body(), c.kind, c.Function() != nil, c); err != nil {
		return err
	}
	if err := c.parsed.Options.Headers(x); err != nil {
		return err
	}
	if err := c.parsed.Options.Apply(&c.Request); err != nil {
		return err
	}
	if !m.Streams && !c.parsed.Stream {
		return nil
	}
	if c.Len() != 1 {
		return api.Errorf(api.InvalidArgument, "%s: a stream answers one text, found %d: send a request for each", inputMember[c.kind], c.Len())
	}
	c.parsed.Stream = c.parsed.Stream && x.TakesParts()
	c.Stream(&streaming{c}, !c.parsed.Stream)
	return nil
}
