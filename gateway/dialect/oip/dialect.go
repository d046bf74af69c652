package oip

import (
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/dialect"
	"github.com/xebec-serving/xebec/gateway/query"
)

// Dialect is the protocol over REST.
type Dialect struct {
	// Version is the server's version. Ready reports whether the server is ready, and if not why. Both are for the
	// protocol's server documents.
	Version string
	Ready   func() (bool, string)
}

var _ dialect.Guide = Dialect{}

// extensions are the served extensions of the protocol.
var extensions = []string{"binary_tensor_data"}

// jsonLength is the header field with the length of the JSON that precedes binary tensors.
const jsonLength = "Inference-Header-Content-Length"

// Routes returns the routes of models and of the server's documents.
func (d Dialect) Routes(p *query.Path) []dialect.Route {
	s := &service{dialect: d, path: p}
	s.calls.New = func() any { return s.newCall() }
	live, ready := dialect.Health(d.Ready, nil, nil)
	routes := []dialect.Route{
		{Method: "GET", Path: "/v2", Serve: s.serverMetadata},
		{Method: "GET", Path: "/v2/health/live", Serve: live},
		{Method: "GET", Path: "/v2/health/ready", Serve: ready},
	}
	for _, model := range []string{"/v2/models/{model}", "/v2/models/{model}/versions/{version}"} {
		routes = append(routes,
			dialect.Route{Method: "GET", Path: model, Serve: s.modelMetadata},
			dialect.Route{Method: "GET", Path: model + "/ready", Serve: s.modelReady},
			dialect.Route{Method: "POST", Path: model + "/infer", Serve: s.infer, NonBlocking: true})
	}
	return routes
}

// AppendError appends the protocol's error object.
func (Dialect) AppendError(dst []byte, e *api.Error) []byte { return AppendError(dst, e.Message) }

// NoRoute says which paths there are. Clients of other servers list models by the repository extension, and load and unload them.
func (Dialect) NoRoute(path string) string {
	if strings.HasPrefix(path, "/v2/repository") {
		return `the repository extension is not served; models are listed by GET /v1/models of the admin port, and by "xebec get models"`
	}
	return "expected /v2, /v2/health/live, /v2/health/ready, or /v2/models/{model}[/versions/{version}][/ready or /infer]"
}

// service is the dialect on one path.
type service struct {
	dialect Dialect
	path    *query.Path
	calls   sync.Pool
}

// call is the state of one infer request.
type call struct {
	dialect.Call
	service *service
	parsed  Request
	id      []byte // memory of parsed.ID
	length  []byte // memory for the header field with the JSON's length
}

func (s *service) newCall() *call {
	c := &call{service: s}
	c.Init(s.path, c)
	return c
}

// Released returns the call to its pool.
func (c *call) Released() { c.service.calls.Put(c) }

// infer serves POST /v2/models/{model}[/versions/{version}]/infer.
func (s *service) infer(x dialect.Exchange) {
	c := s.calls.Get().(*call)
	c.Open()
	defer c.Request.Abandon()
	slo, jsonLen, err := c.address(x)
	if err != nil {
		c.Drop()
		dialect.Fail(x, s.dialect, err)
		return
	}
	if err := c.parsed.Parse(x.Body(), jsonLen, &c.Model().Signature, c, s.path.MaxBatch()); err != nil {
		c.Refuse()
		dialect.Fail(x, s.dialect, err)
		return
	}
	if c.parsed.ID != nil { // the answer echoes it, after the body is gone
		c.id = append(c.id[:0], c.parsed.ID...)
		c.parsed.ID = c.id
	}
	if err := c.passOptions(x.Header("Xebec-Context")); err != nil {
		c.Refuse()
		dialect.Fail(x, s.dialect, err)
		return
	}
	switch micros := c.parsed.TimeoutMicros; {
	case slo > 0:
		c.Within(slo)
	case micros > 0:
		c.Within(time.Duration(min(micros, query.MaxSLO.Microseconds())) * time.Microsecond)
	}
	x.Submit(&c.Call)
}

// passOptions passes the request's parameters on, if there are some that are not the protocol's own, and its context: the
// header's, or else the sequence's name.
func (c *call) passOptions(context []byte) error {
	if len(context) == 0 {
		context = c.parsed.Sequence
	}
	if len(c.parsed.Parameters)+len(context) == 0 {
		return nil
	}
	if len(c.parsed.Parameters) > 0 {
		if err := c.SetParameters(c.parsed.Parameters); err != nil {
			return err
		}
	}
	return c.SetContext(context, nil)
}

// address finds the model, and reads the headers.
func (c *call) address(x dialect.Exchange) (slo time.Duration, jsonLen int, err error) {
	if err := c.AskModel(x.Param("model"), x.Param("version")); err != nil {
		return 0, 0, err
	}
	if slo, err = dialect.SLO(x); err != nil {
		return 0, 0, err
	}
	v := x.Header(jsonLength)
	if len(v) == 0 {
		return slo, WholeBody, nil
	}
	body := len(x.Body())
	if jsonLen, err = strconv.Atoi(string(v)); err != nil || jsonLen < 0 || jsonLen > body {
		return 0, 0, api.Errorf(api.InvalidArgument, "header %s: %q is not a length within the body of %d bytes", jsonLength, v, body)
	}
	return slo, jsonLen, nil
}

// Settled renders the protocol's answer. The queries of a request share one tensor, so if one query has no output the
// request fails.
func (c *call) Settled() api.Code {
	a, code := &c.Answer, c.Code()
	if c.Refused() {
		return code
	}
	a.Reset(code.HTTPStatus())
	if code != api.OK {
		a.RetryAfter(c.RetryAfter())
		a.Body = AppendError(a.Body, c.Reason())
		return code
	}
	m := c.Model()
	body, jsonLen, err := AppendResponse(a.Body, m.ID.Name, m.ID.Version, &c.parsed, &m.Signature, c.Len(), c.output)
	if err != nil {
		e := dialect.Error(err)
		a.Reset(e.Code.HTTPStatus())
		a.Body = AppendError(a.Body, e.Message)
		return e.Code
	}
	a.Body = body
	if jsonLen > 0 {
		a.ContentType = "application/octet-stream"
		c.length = strconv.AppendInt(c.length[:0], int64(jsonLen), 10)
		a.Fields = append(a.Fields, dialect.Field{Name: jsonLength, Value: c.length})
	}
	return code
}

func (c *call) output(query, tensor int) *api.Value { return &c.Query(query).Outputs[tensor] }

func (s *service) serverMetadata(x dialect.Exchange) {
	x.Answer(&dialect.Answer{Status: 200, ContentType: dialect.JSON, Body: AppendServerMetadata(nil, "xebec", s.dialect.Version, extensions)})
}

func (s *service) modelMetadata(x dialect.Exchange) {
	m, err := s.path.Model(x.Param("model"), x.Param("version"))
	if err != nil {
		dialect.Fail(x, s.dialect, err)
		return
	}
	x.Answer(&dialect.Answer{Status: 200, ContentType: dialect.JSON, Body: AppendModelMetadata(nil, m.ID.Name, s.path.Versions(m.ID.Name), "xebec", &m.Signature)})
}

func (s *service) modelReady(x dialect.Exchange) {
	m, err := s.path.Model(x.Param("model"), x.Param("version"))
	if err == nil && !m.Available() {
		err = api.Errorf(api.Unavailable, "model %s has no replica that is ready", m.ID)
	}
	if err != nil {
		dialect.Fail(x, s.dialect, err)
		return
	}
	x.Answer(&dialect.Answer{Status: 200})
}
