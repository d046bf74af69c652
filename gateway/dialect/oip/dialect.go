package oip

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/dialect"
	"github.com/xebec-serving/xebec/gateway/internal/tensorjson"
	"github.com/xebec-serving/xebec/gateway/query"
)

// Dialect is the protocol over REST.
type Dialect struct {
	// Version is the server's version. Ready reports whether the server is ready, and if not why. Both are for the
	// protocol's server documents.
	Version string
	Ready   func() (bool, string)
	// Repository is what extensions of the protocol need; nil: these are not served.
	Repository Repository
}

var _ dialect.Guide = Dialect{}

// extensions are the extensions of the protocol that are served without a Repository, moreExtensions those that need one.
var (
	extensions     = []string{"binary_tensor_data", "classification", "generate", "model_configuration", "parameters", "sequence"}
	moreExtensions = []string{"model_repository", "statistics"}
)

// jsonLength is the header field with the length of the JSON that precedes binary tensors.
const jsonLength = "Inference-Header-Content-Length"

// Routes returns the routes of models and of the server's documents.
func (d Dialect) Routes(p *query.Path) []dialect.Route {
	s := &service{dialect: d, path: p}
	s.calls.New = func() any { return s.newCall() }
	s.generations.New = func() any {
		g := &generation{service: s}
		g.Init(s.path, g)
		return g
	}
	live, ready := dialect.Health(d.Ready, nil, nil)
	routes := []dialect.Route{
		{Method: "GET", Path: "/v2", Serve: s.serverMetadata},
		{Method: "GET", Path: "/v2/health/live", Serve: live},
		{Method: "GET", Path: "/v2/health/ready", Serve: ready},
	}
	routes = append(routes, s.unsupportedRoutes()...)
	if d.Repository != nil {
		routes = append(routes,
			dialect.Route{Method: "GET", Path: "/v2/models/stats", Serve: s.statistics},
			dialect.Route{Method: "POST", Path: "/v2/repository/index", Serve: s.index},
			dialect.Route{Method: "POST", Path: "/v2/repository/models/{model}/load", Serve: s.setLoaded(true)},
			dialect.Route{Method: "POST", Path: "/v2/repository/models/{model}/unload", Serve: s.setLoaded(false)})
	}
	for _, model := range []string{"/v2/models/{model}", "/v2/models/{model}/versions/{version}"} {
		if d.Repository != nil {
			routes = append(routes, dialect.Route{Method: "GET", Path: model + "/stats", Serve: s.statistics})
		}
		routes = append(routes,
			dialect.Route{Method: "GET", Path: model + "/config", Serve: s.config},
			dialect.Route{Method: "GET", Path: model, Serve: s.modelMetadata},
			dialect.Route{Method: "GET", Path: model + "/ready", Serve: s.modelReady},
			dialect.Route{Method: "POST", Path: model + "/infer", Serve: s.infer, NonBlocking: true},
			dialect.Route{Method: "POST", Path: model + "/generate", Serve: s.generate(false), NonBlocking: true},
			dialect.Route{Method: "POST", Path: model + "/generate_stream", Serve: s.generate(true), NonBlocking: true})
	}
	return routes
}

// AppendError appends the protocol's error object.
func (Dialect) AppendError(dst []byte, e *api.Error) []byte {
	return AppendError(dst, e.Code, e.Message)
}

// NoRoute says which paths there are. Clients of other servers list models by the repository extension, and load and unload them.
func (Dialect) NoRoute(path string) string {
	if strings.HasPrefix(path, "/v2/repository") {
		return "expected /v2/repository/index or /v2/repository/models/{model}[/load or /unload]"
	}
	return "expected /v2, /v2/health/live, /v2/health/ready, or /v2/models/{model}[/versions/{version}][/ready, /infer, /generate, /generate_stream, /config or /stats]"
}

// service is the dialect on one path.
type service struct {
	dialect Dialect
	path    *query.Path
	calls   sync.Pool

	generations sync.Pool
}

// call is the state of one infer request.
type call struct {
	dialect.Call
	service *service
	parsed  Request
	id      []byte // memory of parsed.ID
	length  []byte // memory for the header field with the JSON's length

	appendFacts func([]byte) []byte // made once, so that answers allocate nothing
}

func (s *service) newCall() *call {
	c := &call{service: s}
	c.Init(s.path, c)
	c.appendFacts = c.AppendFacts
	return c
}

// Released returns the call to its pool.
func (c *call) Released() { c.service.calls.Put(c) }

// infer serves POST /v2/models/{model}[/versions/{version}]/infer.
func (s *service) infer(x dialect.Exchange) {
	c := s.calls.Get().(*call)
	c.Open()
	defer c.Request.Abandon()
	jsonLen, err := c.address(x)
	if err != nil {
		c.Drop()
		dialect.Fail(x, s.dialect, err)
		return
	}
	c.parsed.Function = c.Function() != nil
	if jsonLen == 0 || jsonLen == WholeBody && isRaw(x.Header("Content-Type"), x.Body()) {
		err = c.parsed.ParseRaw(x.Body(), &c.Model().Signature, c, s.path.MaxBatch())
	} else {
		err = c.parsed.Parse(x.Body(), jsonLen, &c.Model().Signature, c, s.path.MaxBatch())
	}
	if err != nil {
		c.Refuse()
		dialect.Fail(x, s.dialect, err)
		return
	}
	if c.parsed.ID != nil { // the answer echoes it, after the body is gone
		c.id = append(c.id[:0], c.parsed.ID...)
		c.parsed.ID = c.id
	}
	if err := c.applyOptions(x); err != nil {
		c.Refuse()
		dialect.Fail(x, s.dialect, err)
		return
	}
	x.Submit(&c.Call)
}

// applyOptions sets the request's options. A sequence is a context, and timeout is a deadline, if the request does not name these itself.
func (c *call) applyOptions(x dialect.Exchange) error {
	o := &c.parsed.Options
	if err := o.Headers(x); err != nil {
		return err
	}
	if !o.HasContext() && len(c.parsed.Sequence) > 0 {
		o.SetContext(c.parsed.Sequence)
	}
	if micros := c.parsed.TimeoutMicros; micros > 0 && !o.HasSLO() {
		c.Within(time.Duration(min(micros, query.MaxSLO.Microseconds())) * time.Microsecond)
	}
	return o.Apply(&c.Request)
}

// address finds the function or model, and reads the length of the JSON.
func (c *call) address(x dialect.Exchange) (jsonLen int, err error) {
	if err := c.AskNamed(x.Param("model"), x.Param("version")); err != nil {
		return 0, err
	}
	v := x.Header(jsonLength)
	if len(v) == 0 {
		return WholeBody, nil
	}
	body := len(x.Body())
	n, err := strconv.ParseUint(string(v), 10, 63) // which takes digits only, and no sign
	if jsonLen = int(n); err != nil || jsonLen > body {
		return 0, api.Errorf(api.InvalidArgument, "header %s: %q is not a length within the body of %d bytes", jsonLength, v, body)
	}
	return jsonLen, nil
}

// Settled renders the protocol's answer. The queries of a request share one tensor, so if one query has neither an output nor a default the
// request fails.
func (c *call) Settled() api.Code {
	a, code := &c.Answer, c.Code()
	if c.Refused() {
		return code
	}
	if i := c.Failed(); i >= 0 {
		q := c.Query(i)
		if a.Reset(q.Code.HTTPStatus()); a.Status == 503 {
			a.RetryAfter(c.RetryAfter())
		}
		a.Body = AppendError(a.Body, q.Code, q.Reason())
		return code
	}
	a.Reset(200)
	m := c.Model()
	name, version := m.ID.Name, m.ID.Version
	var facts func([]byte) []byte
	if fn := c.Function(); fn != nil {
		name, version, facts = fn.Name, "", c.appendFacts
	}
	body, jsonLen, err := AppendResponse(a.Body, name, version, facts, &c.parsed, &m.Signature, c.Len(), c.output)
	if err != nil {
		e := dialect.Error(err)
		a.Reset(e.Code.HTTPStatus())
		a.Body = AppendError(a.Body, e.Code, e.Message)
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

func (c *call) output(query, tensor int) *api.Value {
	values, _ := c.Outputs(query) // Settled has seen that there are some
	return &values[tensor]
}

func (s *service) serverMetadata(x dialect.Exchange) {
	served := extensions
	if s.dialect.Repository != nil {
		served = append(slices.Clip(served), moreExtensions...)
	}
	x.Answer(&dialect.Answer{Status: 200, ContentType: dialect.JSON, Body: AppendServerMetadata(nil, "xebec", s.dialect.Version, served)})
}

func (s *service) modelMetadata(x dialect.Exchange) {
	n, err := s.path.Named(x.Param("model"), x.Param("version"))
	if err != nil {
		dialect.Fail(x, s.dialect, err)
		return
	}
	var versions []string // functions have none
	if n.Function == nil {
		versions = s.path.Versions(n.Model.ID.Name)
	}
	x.Answer(&dialect.Answer{Status: 200, ContentType: dialect.JSON, Body: AppendModelMetadata(nil, n.Name, versions, "xebec", &n.Model.Signature)})
}

// modelReady answers with the protocol's document, and says why a model is not ready.
func (s *service) modelReady(x dialect.Exchange) {
	n, err := s.path.Named(x.Param("model"), x.Param("version"))
	if err != nil {
		dialect.Fail(x, s.dialect, err)
		return
	}
	var a dialect.Answer
	ready := n.Available()
	if a.Reset(200); !ready {
		a.Reset(503)
	}
	a.Body = append(tensorjson.AppendString(append(a.Body, `{"name":`...), n.Name), `,"ready":`...)
	a.Body = strconv.AppendBool(a.Body, ready)
	switch {
	case ready:
	case n.Function != nil:
		a.Body = appendNotReady(a.Body, fmt.Sprintf("no model of the function %s has a replica that is ready", n.Name))
	default:
		a.Body = appendNotReady(a.Body, fmt.Sprintf("model %s has no replica that is ready", n.Model.ID))
	}
	a.Body = append(a.Body, '}')
	x.Answer(&a)
}

func appendNotReady(dst []byte, why string) []byte {
	dst = append(dst, `,"error":`...)
	dst = tensorjson.AppendString(dst, why)
	return append(append(append(dst, `,"code":"`...), api.Unavailable.String()...), '"')
}
