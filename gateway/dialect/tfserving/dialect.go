package tfserving

import (
	"strings"
	"sync"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/dialect"
	"github.com/xebec-serving/xebec/gateway/internal/tensorjson"
	"github.com/xebec-serving/xebec/gateway/query"
)

// Dialect is the protocol.
type Dialect struct{}

var _ dialect.Guide = Dialect{}

// Routes returns the routes below /v1/models/{model}. The document at that path itself belongs to several protocols and is not among them.
func (d Dialect) Routes(p *query.Path) []dialect.Route {
	s := &service{path: p}
	s.calls.New = func() any { return s.newCall() }
	routes := []dialect.Route{}
	for _, model := range []string{"/v1/models/{model}", "/v1/models/{model}/versions/{version}", "/v1/models/{model}/labels/{version}"} {
		routes = append(routes,
			dialect.Route{Method: "POST", Path: model, Serve: s.ask, NonBlocking: true},
			dialect.Route{Method: "GET", Path: model + "/metadata", Serve: s.metadata})
	}
	for _, kind := range []string{"versions", "labels"} {
		routes = append(routes, dialect.Route{Method: "GET", Path: "/v1/models/{model}/" + kind + "/{version}", Serve: s.status})
	}
	return routes
}

// AppendError appends the protocol's error object, with our code.
func (Dialect) AppendError(dst []byte, e *api.Error) []byte {
	return appendError(dst, e.Code, e.Message)
}

func appendError(dst []byte, code api.Code, message string) []byte {
	dst = tensorjson.AppendString(append(dst, `{"error":`...), message)
	dst = append(append(dst, `,"code":"`...), code.String()...)
	return append(dst, `"}`...)
}

// NoRoute says which paths there are.
func (Dialect) NoRoute(string) string {
	return "expected /v1/models, /v1/models/{model}[/versions/{version} or /labels/{label}][:predict, :classify, :regress or /metadata]"
}

// service is the dialect on one path.
type service struct {
	path  *query.Path
	calls sync.Pool
}

// verb is what a request does.
type verb uint8

const (
	predict verb = iota
	classify
	regress
)

// call is the state of one request.
type call struct {
	dialect.Call
	service *service
	verb    verb
	parsed  Request
	how     Reading // of a request to classify or regress
}

func (s *service) newCall() *call {
	c := &call{service: s}
	c.Init(s.path, c)
	return c
}

// Released returns the call to its pool.
func (c *call) Released() { c.service.calls.Put(c) }

// address splits what a path addresses: the verb is behind the last colon of its last segment.
func address(x dialect.Exchange) (name, version, verb string) {
	name, version = x.Param("model"), x.Param("version")
	last := &name
	if version != "" {
		last = &version
	}
	if i := strings.LastIndexByte(*last, ':'); i >= 0 {
		*last, verb = (*last)[:i], (*last)[i+1:]
	}
	return name, version, verb
}

// ask serves POST /v1/models/{model}[/versions/{version}|/labels/{label}]:{verb}.
func (s *service) ask(x dialect.Exchange) {
	name, version, do := address(x)
	c := s.calls.Get().(*call)
	c.Open()
	defer c.Request.Abandon()
	switch do {
	case "predict":
		c.verb = predict
	case "classify":
		c.verb = classify
	case "regress":
		c.verb = regress
	default:
		c.Drop()
		dialect.Fail(x, Dialect{}, unknownVerb(do))
		return
	}
	if err := c.AskNamed(name, version); err != nil {
		c.Drop()
		dialect.Fail(x, Dialect{}, NotFound(err, name, version))
		return
	}
	if err := c.read(x); err != nil {
		c.Refuse()
		dialect.Fail(x, Dialect{}, err)
		return
	}
	x.Submit(&c.Call)
}

func unknownVerb(do string) error {
	switch do {
	case "":
		return api.Errorf(api.InvalidArgument, "expected a verb behind the name: :predict, :classify or :regress")
	case "explain":
		return api.Errorf(api.Unsupported, "explain is not supported: models here have no explainers; a function whose model returns explanations can be asked by :predict")
	}
	return api.Errorf(api.NotFound, "no verb %.40q: expected :predict, :classify or :regress", do)
}

// NotFound says what is missing as TensorFlow Serving's clients expect it.
func NotFound(err error, name, version string) error {
	e := dialect.Error(err)
	if e.Code != api.NotFound {
		return err
	}
	which := "Latest(" + name + ")"
	if version != "" {
		which = "Specific(" + name + ", " + version + ")"
	}
	return api.Errorf(api.NotFound, "Servable not found for request: %s: %s", which, e.Message)
}

// read reads the body and the header fields.
func (c *call) read(x dialect.Exchange) error {
	function, inputs := c.Function() != nil, c.Model().Signature.Inputs
	if len(inputs) > tensorjson.MaxInputs {
		return api.Errorf(api.Internal, "the signature has more than %d inputs", tensorjson.MaxInputs)
	}
	var err error
	if c.verb == predict {
		err = c.parsed.Parse(x.Body(), function, inputs, c)
	} else {
		if c.verb == regress {
			c.how, err = ReadNumber(c.Model().Signature.Outputs)
		} else {
			c.how, err = ReadClasses(c.Model().Signature.Outputs)
		}
		if err != nil {
			return err
		}
		err = c.parsed.ParseExamples(x.Body(), function, inputs, c)
	}
	if err != nil {
		return err
	}
	if err := c.parsed.Options.Headers(x); err != nil {
		return err
	}
	return c.parsed.Options.Apply(&c.Request)
}
