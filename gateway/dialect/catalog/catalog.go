package catalog

import (
	"strconv"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/dialect"
	"github.com/xebec-serving/xebec/gateway/internal/tensorjson"
	"github.com/xebec-serving/xebec/gateway/query"
)

// Dialect is the list of models. Since is what clients of OpenAI read as the time at which each was created: the start of the gateway.
type Dialect struct{ Since time.Time }

var _ dialect.Guide = Dialect{}

// Routes are those of the list, and of its entries.
func (d Dialect) Routes(p *query.Path) []dialect.Route {
	s := &service{p, d}
	return []dialect.Route{
		{Method: "GET", Path: "/v1/models", Serve: s.list},
		{Method: "GET", Path: "/v1/models/{name}", Serve: s.model},
	}
}

// AppendError appends {"error", "code"}: texts, as TensorFlow Serving and KServe have them.
func (Dialect) AppendError(dst []byte, e *api.Error) []byte {
	dst = tensorjson.AppendString(append(dst, `{"error":`...), e.Message)
	return append(append(append(dst, `,"code":"`...), e.Code.String()...), `"}`...)
}

// NoRoute says which paths there are.
func (Dialect) NoRoute(string) string {
	return "expected /v1/models or /v1/models/{name}; the admin API, which also has such paths, is on the admin port"
}

type service struct {
	path    *query.Path
	dialect Dialect
}

func (s *service) list(x dialect.Exchange) {
	var a dialect.Answer
	a.Reset(200)
	names := s.path.Names()
	a.Body = append(a.Body, `{"object":"list","data":[`...)
	for i, n := range names {
		if i > 0 {
			a.Body = append(a.Body, ',')
		}
		a.Body = append(s.appendOpenAI(append(a.Body, '{'), n), '}')
	}
	a.Body = append(a.Body, `],"models":[`...)
	for i, n := range names {
		if i > 0 {
			a.Body = append(a.Body, ',')
		}
		a.Body = tensorjson.AppendString(a.Body, n.Name)
	}
	a.Body = append(a.Body, "]}"...)
	x.Answer(&a)
}

func (s *service) model(x dialect.Exchange) {
	n, err := s.path.Named(x.Param("name"), "")
	if err != nil {
		dialect.Fail(x, s.dialect, err)
		return
	}
	var a dialect.Answer
	a.Reset(200)
	a.Body = s.appendOpenAI(append(a.Body, '{'), n)
	a.Body = tensorjson.AppendString(append(a.Body, `,"name":`...), n.Name)
	a.Body = strconv.AppendBool(append(a.Body, `,"ready":`...), n.Available())
	a.Body = append(a.Body, `,"model_version_status":[`...)
	if n.Function != nil {
		a.Body = appendStatus(a.Body, functionVersion, n.Available(), "no model of the function has a replica that is ready")
	} else {
		first := true
		for _, version := range s.path.Versions(n.Model.ID.Name) {
			m, err := s.path.Model(n.Model.ID.Name, version)
			if err != nil || m.Closed.Load() && m != n.Model {
				continue // it was removed meanwhile, or is not loaded
			}
			if !first {
				a.Body = append(a.Body, ',')
			}
			first = false
			a.Body = appendStatus(a.Body, version, m.Available(), "no replica of the version is ready")
		}
	}
	a.Body = append(a.Body, "]}"...)
	x.Answer(&a)
}

// functionVersion stands for the version that functions do not have: clients of TensorFlow Serving wait until one is available.
const functionVersion = "1"

// appendStatus appends an element of model_version_status.
func appendStatus(dst []byte, version string, available bool, why string) []byte {
	dst = tensorjson.AppendString(append(dst, `{"version":`...), version)
	if available {
		return append(dst, `,"state":"AVAILABLE","status":{"error_code":"OK","error_message":""}}`...)
	}
	dst = append(dst, `,"state":"LOADING","status":{"error_code":"UNAVAILABLE","error_message":`...)
	return append(tensorjson.AppendString(dst, why), "}}"...)
}

// appendOpenAI appends the members of OpenAI's model object.
func (s *service) appendOpenAI(dst []byte, n query.Named) []byte {
	dst = tensorjson.AppendString(append(dst, `"id":`...), n.Name)
	dst = strconv.AppendInt(append(dst, `,"object":"model","created":`...), s.dialect.Since.Unix(), 10)
	return append(dst, `,"owned_by":"xebec"`...)
}
