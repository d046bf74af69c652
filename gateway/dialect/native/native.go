package native

import (
	"encoding/json"
	"errors"
	"sync"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/dialect"
	"github.com/xebec-serving/xebec/gateway/internal/tensorjson"
	"github.com/xebec-serving/xebec/gateway/query"
)

// Dialect is the native dialect. It needs no configuration.
type Dialect struct{}

// Routes are those of functions.
func (Dialect) Routes(p *query.Path) []dialect.Route {
	s := &service{path: p}
	s.calls.New = func() any { return s.newCall() }
	s.feedbacks.New = func() any { return s.newFeedback() }
	return []dialect.Route{
		{Method: "POST", Path: "/{function}/predict", Serve: s.predict, NonBlocking: true, Reserve: s.reserve},
		{Method: "POST", Path: "/{function}/feedback", Serve: s.feedback},
		{Method: "POST", Path: "/{function}/update", Serve: s.feedback}, // Clipper's name
		{Method: "GET", Path: "/{function}", Serve: s.describe},
		{Method: "GET", Path: "/docs/functions", Serve: s.list},
	}
}

// service is the dialect on one path.
type service struct {
	path      *query.Path
	calls     sync.Pool
	feedbacks sync.Pool
}

// call is the state of one prediction request.
type call struct {
	dialect.Call
	service *service
	parsed  tensorjson.Request
	body    bodyKind
	form    formReader
	rawAnswer
}

func (s *service) newCall() *call {
	c := &call{service: s}
	c.Init(s.path, c)
	return c
}

// Released returns the call to its pool.
func (c *call) Released() { c.service.calls.Put(c) }

// predict serves POST /{function}/predict.
func (s *service) predict(x dialect.Exchange) {
	c := s.calls.Get().(*call)
	c.Open()
	defer c.Request.Abandon()
	if err := c.address(x); err != nil {
		c.Drop()
		if unlinked, ok := errors.AsType[*query.UnlinkedError](err); ok {
			s.answerUnlinked(x, unlinked.Function)
			return
		}
		dialect.Fail(x, Dialect{}, err)
		return
	}
	if err := c.read(x); err != nil {
		c.Refuse()
		switch _, unsupported := errors.AsType[*mediaError](err); {
		case unsupported:
			refuse(x, 415, err)
		case c.body == bodyJSON:
			failBody(x, asJSON(x, err))
		default:
			dialect.Fail(x, Dialect{}, err)
		}
		return
	}
	if err := c.accept(x); err != nil {
		c.Refuse()
		refuse(x, 406, err)
		return
	}
	x.Submit(&c.Call)
}

// accept reads how the caller wants the answer.
func (c *call) accept(x dialect.Exchange) error {
	accept := x.Header("Accept")
	if c.Model().Streams {
		return c.stream(x, accept)
	}
	if c.raw = rawKind(accept, c.outputMedia()); c.raw != "" {
		return c.checkRaw()
	}
	return nil
}

// address finds the function, and reads the request's latency objective.
func (c *call) address(x dialect.Exchange) error {
	if err := c.AskFunction(x.Param("function")); err != nil {
		return err
	}
	slo, err := dialect.SLO(x)
	if slo > 0 {
		c.Within(slo)
	}
	return err
}

// read reads the queries and the request's options.
func (c *call) read(x dialect.Exchange) error {
	kind := x.Header("Content-Type")
	var err error
	if c.body, err = bodyOf(kind, c.Model().Signature.Inputs); err != nil {
		return err
	}
	switch c.body {
	case bodyRaw:
		err = c.readRaw(x.Body())
	case bodyForm:
		err = c.readForm(kind, x.Body())
	case bodyCSV:
		err = c.readCSV(kind, x.Body())
	default:
		err = c.parsed.Parse(x.Body(), c.Model().Signature.Inputs, c)
	}
	if err != nil {
		return err
	}
	p := &c.parsed
	context := p.Context
	if v := x.Header("Xebec-Context"); len(v) > 0 {
		context = v
	}
	if p.Has&tensorjson.HasParameters != 0 {
		if err := c.SetParameters(p.Parameters); err != nil {
			return err
		}
	}
	if err := c.SetContext(context, p.Salt); err != nil || p.Has == 0 {
		return err
	}
	if p.Has&tensorjson.HasMinConfidence != 0 {
		if err := c.SetMinConfidence(p.MinConfidence); err != nil {
			return err
		}
	}
	if p.Has&tensorjson.HasTTL != 0 {
		c.SetTTL(api.Nanos(min(p.TTLMillis*1e6, float64(query.MaxSLO))))
	}
	if p.Has&tensorjson.HasModels != 0 {
		if err := c.Restrict(p.Models); err != nil {
			return err
		}
	}
	if p.Has&tensorjson.HasVersion != 0 {
		return c.RestrictVersion(p.Version)
	}
	return nil
}

// The two error names of Clipper.
const (
	jsonError  = "Json error"
	queryError = "Query processing error"
)

// AppendError appends Clipper's error object, with our code.
func (Dialect) AppendError(dst []byte, e *api.Error) []byte { return appendError(dst, queryError, e) }

func appendError(dst []byte, kind string, e *api.Error) []byte {
	dst = append(dst, `{"error":"`...)
	dst = append(dst, kind...)
	dst = append(dst, `","cause":`...)
	dst = tensorjson.AppendString(dst, e.Message)
	dst = append(dst, `,"code":"`...)
	dst = append(dst, e.Code.String()...)
	dst = append(dst, '"')
	if e.RequestID != "" {
		dst = append(dst, `,"request_id":`...)
		dst = tensorjson.AppendString(dst, e.RequestID)
	}
	return append(dst, '}')
}

// failBody answers with an error, and distinguishes bodies that are not JSON from bodies that are not a valid request.
func failBody(x dialect.Exchange, err error) {
	if isRaw(x.Header("Content-Type")) || json.Valid(x.Body()) {
		dialect.Fail(x, Dialect{}, err)
		return
	}
	dialect.Fail(x, malformed{}, err)
}

// malformed is the dialect with the error format for bodies that are not JSON.
type malformed struct{ Dialect }

func (malformed) AppendError(dst []byte, e *api.Error) []byte { return appendError(dst, jsonError, e) }
