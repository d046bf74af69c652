package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/cloudwego/hertz/pkg/app"
	"github.com/cloudwego/hertz/pkg/route"
	"go.uber.org/zap"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/api/manifest"
)

// MaxBodyBytes is the largest body of any call. The server must be configured with this limit.
const MaxBodyBytes = manifest.MaxBytes

// handler answers one call with a value to encode as JSON, or an error. A nil value means that it has already answered.
type handler func(ctx context.Context, c *app.RequestContext) (any, error)

type handlers struct {
	control   Control
	options   Options
	followers atomic.Int32
}

// Register adds the routes to r. The server should have the limit [MaxBodyBytes] and detect clients that disconnect.
// Otherwise a log follower that has disconnected is noticed only at the next line.
func Register(r route.IRoutes, control Control, o Options) {
	h := &handlers{control: control, options: o}
	guard := h.guard
	r.POST("/v1/apply", guard(h.audited("apply", h.apply)))
	r.POST("/v1/deploy", guard(h.audited("deploy", h.deploy)))
	r.POST("/v1/inspect", guard(h.audited("inspect", h.inspect)))
	r.POST("/v1/uploads", guard(h.audited("upload", h.beginUpload)))
	r.PUT("/v1/uploads/:upload", guard(h.uploadPart))
	r.POST("/v1/uploads/:upload", guard(h.audited("upload", h.finishUpload)))
	r.GET("/v1/models", guard(h.models))
	r.GET("/v1/models/:name", guard(h.model))
	r.DELETE("/v1/models/:name", guard(h.audited("delete", h.deleteModel)))
	r.GET("/v1/models/:name/logs", guard(h.logs))
	r.POST("/v1/models/:name/promote", guard(h.audited("promote", h.promote)))
	r.POST("/v1/models/:name/rollback", guard(h.audited("rollback", h.rollback)))
	r.GET("/v1/functions", guard(h.functions))
	r.GET("/v1/functions/:name", guard(h.function))
	r.DELETE("/v1/functions/:name", guard(h.audited("delete", h.deleteFunction)))
	r.GET("/v1/traffic", guard(h.traffics))
	r.GET("/v1/traffic/:name", guard(h.traffic))
	r.DELETE("/v1/traffic/:name", guard(h.audited("delete", h.deleteTraffic)))
	r.GET("/v1/learned/:name", guard(h.exportLearned))
	r.PUT("/v1/learned/:name", guard(h.audited("import learned", h.importLearned)))
	r.DELETE("/v1/learned/:name", guard(h.audited("reset learned", h.resetLearned)))
	r.GET("/v1/learned/:name/history", guard(h.learnedHistory))
	r.GET("/v1/history", guard(h.history))
	r.GET("/v1/history/:name", guard(h.historyOf))
	r.GET("/v1/export", guard(h.export))
	r.GET("/v1/describe/model/:name", guard(h.describeModel))
	r.GET("/v1/describe/function/:name", guard(h.describeFunction))
	r.GET("/v1/describe/gateway", guard(h.describeGateway))
	r.GET("/v1/describe/scheduler", guard(h.describeScheduler))
	r.GET("/v1/version", guard(h.version))
	r.GET("/v1/profile/:name", guard(h.profile))
	h.registerClipper(r)
}

// NoRoute answers requests without a route with the API's form of errors. Use it as the server's NoRoute.
func NoRoute(_ context.Context, c *app.RequestContext) {
	writeError(c, api.Errorf(api.NotFound, "%s %.100q is not part of the admin API: see api/spec/openapi.yaml; functions are called on the function port", c.Method(), c.Path()))
}

// Refuse answers a request that reaches no handler of the API, in its form of errors.
func Refuse(c *app.RequestContext, e *api.Error, status int) {
	writeErrorAs(c, status, e.Code.String(), e.Message)
}

// requestID returns the request's X-Request-Id, which the port's first middleware has validated or made.
func requestID(c *app.RequestContext) string { return string(c.Request.Header.Peek("X-Request-Id")) }

// identity has the fields that name a request in the log.
func identity(c *app.RequestContext) []zap.Field {
	var fields []zap.Field
	if id := requestID(c); id != "" {
		fields = append(fields, zap.String("request_id", id))
	}
	if trace := c.Response.Header.Peek("Traceparent"); len(trace) > 0 { // a valid one is already in the answer
		fields = append(fields, zap.ByteString("traceparent", trace))
	}
	return fields
}

func (h *handlers) apply(ctx context.Context, c *app.RequestContext) (any, error) {
	q, err := query(c, "dry_run", "base")
	if err != nil {
		return nil, err
	}
	dryRun, err := q.boolean("dry_run")
	if err != nil {
		return nil, err
	}
	base := q["base"]
	if base != "" {
		if base, err = absolute("base", base); err != nil {
			return nil, err
		}
	}
	body, err := bodyOf(c, "application/yaml", "application/x-yaml", "text/yaml", "application/json")
	if err != nil {
		return nil, err
	}
	set, expected, err := manifest.DecodeRequest("manifest", body)
	if err != nil {
		return nil, api.Errorf(api.InvalidArgument, "%w", err)
	}
	if expected, err = expectedOf(c, set, expected); err != nil {
		return nil, err
	}
	set.SetDir(base)
	if err := set.CheckDirs(); err != nil {
		return nil, api.Errorf(api.InvalidArgument, "%w", err)
	}
	setSubject(c, dryRun, namesOf(set)...)
	changes, err := h.control.Apply(ctx, set, dryRun, expected...)
	if err != nil {
		return nil, err
	}
	return api.Changes{Changes: notNil(changes), DryRun: dryRun}, nil
}

func (h *handlers) deploy(ctx context.Context, c *app.RequestContext) (any, error) {
	if _, err := query(c); err != nil {
		return nil, err
	}
	if err := rejectIfMatch(c, "a model directory declares a model and a function"); err != nil {
		return nil, err
	}
	var request api.Deployment
	if err := jsonBody(c, &request, `{"dir": "/absolute/path"}`); err != nil {
		return nil, err
	}
	dir, err := absolute("dir", request.Dir)
	if err != nil {
		return nil, err
	}
	request.Dir = dir
	setSubject(c, request.DryRun, dir)
	changes, err := h.control.Deploy(ctx, request)
	if err != nil {
		return nil, err
	}
	return api.Changes{Changes: notNil(changes), DryRun: request.DryRun}, nil
}

// unreadHeader says on a list why it may lack objects, and on an error that the request can be sent again when everything has been read.
const unreadHeader = "Xebec-Unread"

// noteUnread marks the answer with a list as incomplete while not everything that is declared has been read.
func (h *handlers) noteUnread(c *app.RequestContext) {
	if h.options.Unread == nil {
		return
	}
	if why := h.options.Unread(); why != "" {
		c.Response.Header.Set(unreadHeader, why)
	}
}

func (h *handlers) models(ctx context.Context, c *app.RequestContext) (any, error) {
	secrets, err := h.secrets(ctx, c, "models")
	if err != nil {
		return nil, err
	}
	h.noteUnread(c)
	models, err := h.control.Models(ctx, "")
	return api.ModelList{Models: shown(models, secrets)}, err
}

func (h *handlers) model(ctx context.Context, c *app.RequestContext) (any, error) {
	name, err := nameOf(c, "model", "secrets")
	if err != nil {
		return nil, err
	}
	secrets, err := h.secrets(ctx, c, "Model "+name)
	if err != nil {
		return nil, err
	}
	models, err := h.control.Models(ctx, name)
	if len(models) == 1 && err == nil {
		tag(c, models[0].Revision)
	}
	return api.ModelList{Models: shown(models, secrets)}, err
}

func (h *handlers) functions(ctx context.Context, c *app.RequestContext) (any, error) {
	if _, err := query(c); err != nil {
		return nil, err
	}
	h.noteUnread(c)
	functions, err := h.control.Functions(ctx, "")
	return api.FunctionList{Functions: notNil(functions)}, err
}

func (h *handlers) function(ctx context.Context, c *app.RequestContext) (any, error) {
	name, err := nameOf(c, "function")
	if err != nil {
		return nil, err
	}
	functions, err := h.control.Functions(ctx, name)
	if len(functions) == 1 && err == nil {
		tag(c, functions[0].Revision)
	}
	return api.FunctionList{Functions: notNil(functions)}, err
}

func (h *handlers) deleteModel(ctx context.Context, c *app.RequestContext) (any, error) {
	name, err := nameOf(c, "model", "version")
	if err != nil {
		return nil, err
	}
	id := api.ModelID{Name: name, Version: c.Query("version")}
	if c.QueryArgs().Has("version") {
		if err = api.CheckVersion(id.Version); err != nil {
			return nil, api.Errorf(api.InvalidArgument, "%w", err)
		}
	} else if err = rejectIfMatch(c, "this deletes all versions of a model: name one with ?version="); err != nil {
		return nil, err
	}
	expected, err := expectedRevision(c, api.KindModel, id)
	if err != nil {
		return nil, err
	}
	setSubject(c, false, objectName(api.KindModel, id.Name, id.Version))
	changes, err := h.control.Delete(ctx, api.KindModel, id, expected...)
	return api.Changes{Changes: notNil(changes)}, err
}

func (h *handlers) deleteFunction(ctx context.Context, c *app.RequestContext) (any, error) {
	name, err := nameOf(c, "function")
	if err != nil {
		return nil, err
	}
	expected, err := expectedRevision(c, api.KindFunction, api.ModelID{Name: name})
	if err != nil {
		return nil, err
	}
	setSubject(c, false, objectName(api.KindFunction, name, ""))
	changes, err := h.control.Delete(ctx, api.KindFunction, api.ModelID{Name: name}, expected...)
	return api.Changes{Changes: notNil(changes)}, err
}

func (h *handlers) describeModel(ctx context.Context, c *app.RequestContext) (any, error) {
	name, err := nameOf(c, "model", "secrets")
	if err != nil {
		return nil, err
	}
	secrets, err := h.secrets(ctx, c, "Model "+name)
	if err != nil {
		return nil, err
	}
	models, err := h.control.Models(ctx, name)
	if err != nil {
		return nil, err
	}
	functions, err := h.control.Functions(ctx, "")
	if err != nil {
		return nil, err
	}
	users := slices.DeleteFunc(functions, func(f api.FunctionStatus) bool {
		return !slices.ContainsFunc(f.Spec.Refs(), func(ref string) bool {
			id, err := api.ParseModelRef(ref)
			return err == nil && id.Name == name
		})
	})
	traffic, err := h.trafficOf(ctx, name)
	return api.ModelDescription{Models: shown(models, secrets), Traffic: traffic, Functions: notNil(users)}, err
}

func (h *handlers) describeFunction(ctx context.Context, c *app.RequestContext) (any, error) {
	name, err := nameOf(c, "function", "secrets")
	if err != nil {
		return nil, err
	}
	secrets, err := h.secrets(ctx, c, "Function "+name)
	if err != nil {
		return nil, err
	}
	functions, err := h.control.Functions(ctx, name)
	if err != nil {
		return nil, err
	}
	if len(functions) != 1 {
		return nil, api.Errorf(api.NotFound, "no function %q", name)
	}
	d := api.FunctionDescription{Function: functions[0], Models: []api.ModelStatus{}}
	for _, ref := range d.Function.Models {
		id, err := api.ParseModelRef(ref)
		if err != nil {
			continue
		}
		versions, err := h.control.Models(ctx, id.Name)
		if err != nil && !isUnknown(err) { // it may have been deleted since the function was read
			return nil, err
		}
		for _, m := range versions {
			if m.Spec.ID() == id {
				d.Models = append(d.Models, m)
			}
		}
	}
	d.Models = shown(d.Models, secrets)
	return d, nil
}

func (h *handlers) describeGateway(ctx context.Context, c *app.RequestContext) (any, error) {
	if _, err := query(c); err != nil {
		return nil, err
	}
	return h.control.Gateway(ctx)
}

func (h *handlers) describeScheduler(ctx context.Context, c *app.RequestContext) (any, error) {
	if _, err := query(c); err != nil {
		return nil, err
	}
	s, err := h.control.Scheduler(ctx)
	s.Functions, s.Models, s.Devices = notNil(s.Functions), notNil(s.Models), notNil(s.Devices)
	for i := range s.Functions {
		s.Functions[i].Candidates = notNil(s.Functions[i].Candidates)
	}
	for i := range s.Models {
		s.Models[i].Replicas = notNil(s.Models[i].Replicas)
	}
	for i := range s.Devices {
		s.Devices[i].Tenants = notNil(s.Devices[i].Tenants)
	}
	return s, err
}

func (h *handlers) version(ctx context.Context, c *app.RequestContext) (any, error) {
	if _, err := query(c); err != nil {
		return nil, err
	}
	status, err := h.control.Gateway(ctx)
	return api.VersionInfo{Version: status.Version, GoVersion: status.GoVersion}, err
}

// nameOf returns the checked name in the path. It fails if the query string has other parameters than those given.
func nameOf(c *app.RequestContext, what string, parameters ...string) (string, error) {
	if _, err := query(c, parameters...); err != nil {
		return "", err
	}
	name := c.Param("name")
	if err := api.CheckName(what, name); err != nil {
		return "", api.Errorf(api.InvalidArgument, "%w", err)
	}
	return name, nil
}

// parameters are the parameters of the query string.
type parameters map[string]string

// query rejects unknown and duplicate parameters: a misspelt dry_run must not apply.
func query(c *app.RequestContext, known ...string) (parameters, error) {
	q := parameters{}
	var err error
	c.QueryArgs().VisitAll(func(key, value []byte) {
		name := string(key)
		switch _, twice := q[name]; {
		case err != nil:
		case !slices.Contains(known, name):
			expected := "expected none"
			if len(known) > 0 {
				expected = "expected " + strings.Join(known, ", ")
			}
			err = api.Errorf(api.InvalidArgument, "unknown query parameter %.40q: %s", name, expected)
		case twice:
			err = api.Errorf(api.InvalidArgument, "duplicate query parameter %q", name)
		}
		q[name] = string(value)
	})
	return q, err
}

// boolean treats a parameter without a value as true.
func (q parameters) boolean(name string) (bool, error) {
	value, given := q[name]
	switch {
	case !given, value == "false", value == "0":
		return false, nil
	case value == "", value == "true", value == "1":
		return true, nil
	}
	return false, api.Errorf(api.InvalidArgument, "the query parameter %s=%.40q: expected true or false", name, value)
}

func absolute(what, dir string) (string, error) {
	switch {
	case dir == "":
		return "", api.Errorf(api.InvalidArgument, "%s is empty: expected the absolute path of a directory", what)
	case !filepath.IsAbs(dir) || strings.IndexByte(dir, 0) >= 0 || len(dir) > api.MaxPathBytes:
		return "", api.Errorf(api.InvalidArgument, "%s %.100q: expected the absolute path of a directory", what, dir)
	}
	return filepath.Clean(dir), nil
}

// bodyOf returns the body if it has one of the given types. A web page cannot send any of these types to another origin
// without asking.
func bodyOf(c *app.RequestContext, types ...string) ([]byte, error) {
	given := string(c.ContentType())
	mediaType, _, err := mime.ParseMediaType(given)
	if err != nil || !slices.Contains(types, mediaType) {
		return nil, api.Errorf(api.InvalidArgument, "Content-Type %.60q: expected %s", given, strings.Join(types, ", "))
	}
	body, err := c.Body()
	if err != nil {
		return nil, api.Errorf(api.InvalidArgument, "the body could not be read: %w", err)
	}
	if len(body) > MaxBodyBytes {
		return nil, api.Errorf(api.TooLarge, "the body has %d bytes: expected at most %d", len(body), MaxBodyBytes)
	}
	return body, nil
}

// jsonBody decodes a body of one JSON object into request. example is for error messages.
func jsonBody(c *app.RequestContext, request any, example string) error {
	body, err := bodyOf(c, "application/json")
	if err != nil {
		return err
	}
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.DisallowUnknownFields()
	if err = dec.Decode(request); err != nil {
		return api.Errorf(api.InvalidArgument, `the body is not %s: %w`, example, err)
	}
	if _, err = dec.Token(); !errors.Is(err, io.EOF) {
		return api.Errorf(api.InvalidArgument, `the body has more than one JSON value: expected %s`, example)
	}
	return nil
}

// isUnknown reports whether there is no such object, as far as is known.
func isUnknown(err error) bool {
	var failed *api.Error
	return isNotFound(err) || errors.As(err, &failed) && failed.Code == api.Unavailable
}

func isNotFound(err error) bool {
	var failed *api.Error
	return errors.As(err, &failed) && failed.Code == api.NotFound
}

// write answers with a value or an error.
func write(c *app.RequestContext, value any, err error) {
	if err != nil {
		writeError(c, err)
		return
	}
	if value == nil {
		return
	}
	body, err := json.Marshal(value)
	if err != nil {
		writeError(c, fmt.Errorf("cannot encode the answer as JSON: %w", err))
		return
	}
	writeJSON(c, 200, body)
}

func writeError(c *app.RequestContext, err error) {
	code := api.Internal
	var known *api.Error
	if errors.As(err, &known) {
		code = known.Code
	}
	info := api.ErrorInfo{Code: code.String(), Message: err.Error()}
	var declared manifest.Errors
	if errors.As(err, &declared) {
		info.Problems = declared.Problems()
	}
	var stale *api.StaleError
	if errors.As(err, &stale) {
		info.Stale = stale.Objects
	}
	var unread *api.UnreadError
	if errors.As(err, &unread) {
		c.Response.Header.Set(unreadHeader, unread.Why)
	}
	if code == api.Unavailable {
		c.Response.Header.Set("Retry-After", "1")
	}
	writeErrorInfo(c, code.HTTPStatus(), info)
}

func writeErrorAs(c *app.RequestContext, status int, code, message string) {
	writeErrorInfo(c, status, api.ErrorInfo{Code: code, Message: message})
}

func writeErrorInfo(c *app.RequestContext, status int, info api.ErrorInfo) {
	info.RequestID = requestID(c)
	body, _ := json.Marshal(api.ErrorBody{Error: info}) // only strings: cannot fail
	writeJSON(c, status, body)
}

func writeJSON(c *app.RequestContext, status int, body []byte) {
	c.Response.Header.Set("Cache-Control", "no-store")
	c.Response.Header.Set("X-Content-Type-Options", "nosniff")
	c.Data(status, "application/json", append(body, '\n'))
}

// notNil returns an empty list for nil, so that it is [] in JSON and not null.
func notNil[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}
