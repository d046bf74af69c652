package query

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cloudwego/hertz/pkg/app"
	"github.com/cloudwego/hertz/pkg/app/server"
	"github.com/cloudwego/hertz/pkg/common/hlog"
	"github.com/cloudwego/hertz/pkg/network"
	"github.com/cloudwego/hertz/pkg/protocol/consts"
	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/dialect/oip"
)

// Limits bound what a client can make the gateway hold.
type Limits struct {
	BodyBytes    int           // larger bodies are refused with 413
	HeaderBytes  int           // all headers of a request
	Connections  int           // open at a time; more are closed at once
	ReadTimeout  time.Duration // silence in the middle of a request
	WriteTimeout time.Duration // a client that does not take its answer
	IdleTimeout  time.Duration // silence between requests
}

// DefaultLimits suit a gateway that faces its apps.
func DefaultLimits() Limits {
	return Limits{BodyBytes: 64 << 20, HeaderBytes: 64 << 10, Connections: 16384, ReadTimeout: 30 * time.Second, WriteTimeout: 30 * time.Second, IdleTimeout: 3 * time.Minute}
}

// HTTP serves the function port. This file, and no other, touches Hertz's contexts.
type HTTP struct {
	g        *Path
	limits   Limits
	hertz    *server.Hertz
	served   chan struct{}
	draining atomic.Bool
	// transport is Hertz's, which it makes when it is made itself.
	transport network.Transporter

	mu    sync.Mutex
	conns map[*conn]struct{}
}

// quiet silences Hertz, once: what matters is in answers and metrics, and a client must not be able to fill a log.
var quiet sync.Once

// NewHTTP makes the server on a listener of its own. Serve starts it.
func NewHTTP(g *Path, ln net.Listener, limits Limits) *HTTP {
	h := &HTTP{g: g, limits: limits, conns: map[*conn]struct{}{}, served: make(chan struct{})}
	quiet.Do(func() { hlog.SetLevel(hlog.LevelFatal) })
	h.hertz = server.New(
		server.WithListener(ln), server.WithHostPorts(ln.Addr().String()), server.WithTransport(h.newTransporter),
		server.WithMaxRequestBodySize(limits.BodyBytes), server.WithMaxKeepBodySize(limits.BodyBytes), server.WithMaxHeaderBytes(limits.HeaderBytes),
		server.WithReadTimeout(limits.ReadTimeout), server.WithWriteTimeout(limits.WriteTimeout), server.WithIdleTimeout(limits.IdleTimeout),
		server.WithExitWaitTime(0), server.WithDisablePrintRoute(true), server.WithDisablePreParseMultipartForm(true),
		server.WithRedirectTrailingSlash(false), server.WithHandleMethodNotAllowed(true), server.WithDisableHeaderNamesNormalizing(false),
	)
	e := h.hertz
	e.Name = "xebec"
	e.Use(RefuseAmbiguousFraming)
	e.POST("/:function/predict", h.predict)
	e.POST("/:function/feedback", h.feedback)
	e.POST("/:function/update", h.feedback) // Clipper's name
	e.GET("/v2", h.serverMetadata)
	e.GET("/v2/health/live", h.live)
	e.GET("/v2/health/ready", h.ready)
	for _, prefix := range []string{"/v2/models/:model", "/v2/models/:model/versions/:version"} {
		e.GET(prefix, h.modelMetadata)
		e.GET(prefix+"/ready", h.modelReady)
		e.POST(prefix+"/infer", h.infer)
	}
	e.GET("/healthz", h.live)
	e.GET("/readyz", h.ready)
	e.NoRoute(h.noRoute)
	e.NoMethod(func(_ context.Context, c *app.RequestContext) {
		h.fail(c, api.Errorf(api.Unsupported, "%s is not a method of %s", c.Method(), c.Path()), consts.StatusMethodNotAllowed)
	})
	return h
}

// Serve answers until Shutdown. It returns after the listener has been closed.
func (h *HTTP) Serve() error {
	defer close(h.served)
	return h.hertz.Run()
}

// Shutdown stops accepting, waits until every accepted request is answered or ctx is done, and closes the connections. Answers
// that are given meanwhile end their connection.
func (h *HTTP) Shutdown(ctx context.Context) error {
	h.draining.Store(true)
	stopping, cancel := context.WithCancel(context.Background())
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		_ = h.hertz.Shutdown(stopping) // the listener at once, then it waits for connections to be idle
		h.stopTransport(stopping)
	}()
	err := h.drain(ctx)
	h.mu.Lock()
	var open []*conn
	for c := range h.conns {
		open = append(open, c)
	}
	h.mu.Unlock()
	for _, c := range open {
		c.nc.Close()
	}
	cancel()
	<-stopped
	<-h.served
	return err
}

// stopTransport asks until it has stopped: a shutdown that overtakes the start finds nothing to stop.
func (h *HTTP) stopTransport(ctx context.Context) {
	again := time.NewTicker(5 * time.Millisecond)
	defer again.Stop()
	for {
		_ = h.transport.Shutdown(ctx)
		select {
		case <-h.served:
			return
		case <-again.C:
		}
	}
}

func (h *HTTP) drain(ctx context.Context) error {
	for h.g.open.Load() > 0 {
		select {
		case <-h.g.empty:
		case <-ctx.Done():
			return fmt.Errorf("%d requests were not answered when the time to drain was over", h.g.Open())
		}
	}
	return nil
}

// track takes a new connection in, or reports that there are too many.
func (h *HTTP) track(c *conn) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.conns) >= h.limits.Connections {
		return false
	}
	h.conns[c] = struct{}{}
	return true
}

func (h *HTTP) untrack(c *conn) {
	h.mu.Lock()
	delete(h.conns, c)
	h.mu.Unlock()
}

// predict is POST /{function}/predict.
func (h *HTTP) predict(_ context.Context, c *app.RequestContext) {
	g := h.g
	cl := g.newCall()
	fn := g.table.Load().Functions[c.Param("function")]
	if fn == nil {
		cl.drop()
		h.fail(c, api.Errorf(api.NotFound, "no function %q: `xebec get functions` lists those that exist", c.Param("function")), 0)
		return
	}
	slo := api.Nanos(fn.SLO)
	if v := c.Request.Header.Peek("Xebec-Slo-Ms"); len(v) > 0 {
		var err error
		if slo, err = parseSLO(v); err != nil {
			cl.drop()
			h.fail(c, err, 0)
			return
		}
	}
	cl.begin(fn, slo)
	var err error
	if isRaw(c.Request.Header.ContentType()) {
		cl.native.Has = 0
		err = cl.rawInput(c.Request.Body())
	} else {
		err = cl.native.Parse(c.Request.Body(), cl.model.Signature.Inputs, cl)
	}
	if err == nil {
		err = cl.options(c.Request.Header.Peek("Xebec-Context"))
	}
	if err != nil {
		fn.Stats.Refuse(api.InvalidArgument)
		cl.drop()
		h.failBody(c, err)
		return
	}
	cl.route()
	h.answer(c, cl)
}

// feedback is POST /{function}/feedback.
func (h *HTTP) feedback(_ context.Context, c *app.RequestContext) {
	inputs := h.g.newCall() // where inputs are parsed to
	defer inputs.drop()
	fn := h.g.table.Load().Functions[c.Param("function")]
	if fn == nil {
		h.fail(c, api.Errorf(api.NotFound, "no function %q: `xebec get functions` lists those that exist", c.Param("function")), 0)
		return
	}
	f := feedbackCalls.Get().(*feedbackCall)
	defer feedbackCalls.Put(f)
	status, err := h.g.feedback(fn, inputs, c.Request.Body(), c.Request.Header.Peek("Xebec-Context"), f)
	if err != nil {
		if asError(err).Code == api.InvalidArgument {
			fn.Learning.Refused.Add(1)
			h.failBody(c, err)
			return
		}
		h.fail(c, err, 0)
		return
	}
	answerJSON(c, status, f.out)
}

// infer is POST /v2/models/{model}[/versions/{version}]/infer.
func (h *HTTP) infer(_ context.Context, c *app.RequestContext) {
	g := h.g
	cl := g.newCall()
	m, err := h.address(c, cl)
	slo := api.Nanos(0)
	if v := c.Request.Header.Peek("Xebec-Slo-Ms"); err == nil && len(v) > 0 {
		slo, err = parseSLO(v)
	}
	if err != nil {
		cl.drop()
		h.failOIP(c, err)
		return
	}
	body, jsonLen := c.Request.Body(), oip.WholeBody
	if v := c.Request.Header.Peek("Inference-Header-Content-Length"); len(v) > 0 {
		if jsonLen, err = strconv.Atoi(string(v)); err != nil || jsonLen < 0 || jsonLen > len(body) {
			cl.drop()
			h.failOIP(c, api.Errorf(api.InvalidArgument, "header Inference-Header-Content-Length: %q is not a length within the body of %d bytes", v, len(body)))
			return
		}
	}
	cl.arrived = g.cfg.Now()
	cl.model, cl.queue, cl.stats, cl.slo = m, m.Direct, m.Stats, slo
	cl.render = renderOIP
	if err := cl.oip.Parse(body, jsonLen, &m.Signature, cl, g.cfg.MaxBatch); err != nil {
		m.Stats.Refuse(api.InvalidArgument)
		cl.drop()
		h.failOIP(c, err)
		return
	}
	// The id is echoed when the answer is rendered, and the body is Hertz's again long before.
	cl.text = append(cl.text[:0], cl.oip.ID...)
	if cl.oip.ID != nil {
		cl.oip.ID = cl.text
	}
	if slo == 0 {
		cl.slo = directDeadline
		if micros := cl.oip.TimeoutMicros; micros > 0 {
			cl.slo = api.Nanos(min(micros, maxSLO.Microseconds()) * 1000)
		}
	}
	h.answer(c, cl)
}

// answer submits the call. Where the connection allows, the handler is done then and the completion side answers; else it
// waits here.
func (h *HTTP) answer(c *app.RequestContext, cl *call) {
	cn, ok := c.GetConn().(*conn)
	if ok {
		cn.settle()
	}
	if ok && h.g.cfg.Reply == ReplyAsync && !h.draining.Load() && !c.Request.Header.ConnectionClose() && c.Request.Header.IsHTTP11() {
		cl.conn = cn
		c.Response.HijackWriter(hijacked{})
		cn.expect(cl)
		if !cl.borrowed {
			cl.submit(0)
			return
		}
		cl.submit(handlerRef)
		cl.giveBack()
		cl.unrefHandler()
		return
	}
	if ok {
		cn.call.Store(cl)
	}
	cl.submit(handlerRef)
	<-cl.done
	if ok {
		cn.call.Store(nil)
	}
	c.Response.SetStatusCode(cl.status)
	c.Response.Header.SetContentType(cl.contentType())
	if cl.jsonLen > 0 {
		c.Response.Header.Set("Inference-Header-Content-Length", strconv.Itoa(cl.jsonLen))
	}
	if cl.retryAfter {
		c.Response.Header.Set("Retry-After", "1")
	}
	c.Response.SetBody(cl.out)
	if cl.borrowed {
		cl.giveBack()
	}
	cl.unrefHandler()
}

// RefuseAmbiguousFraming is a middleware that refuses requests whose length two parsers could read differently: the seed of
// request smuggling. Hertz keeps only what it understood, so the raw header lines are looked at.
func RefuseAmbiguousFraming(_ context.Context, c *app.RequestContext) {
	lengths, encodings := 0, 0
	for raw := c.Request.Header.RawHeaders(); len(raw) > 0; {
		line := raw
		if end := bytes.IndexByte(raw, '\n'); end >= 0 {
			line, raw = raw[:end], raw[end+1:]
		} else {
			raw = nil
		}
		switch {
		case hasName(line, "content-length:"):
			lengths++
		case hasName(line, "transfer-encoding:"):
			encodings++
		}
	}
	if lengths+encodings <= 1 {
		return
	}
	e := api.Errorf(api.InvalidArgument, "the request has %d Content-Length and %d Transfer-Encoding headers: send one of them, once", lengths, encodings)
	c.Response.SetConnectionClose()
	answerJSON(c, e.Code.HTTPStatus(), appendError(nil, queryError, e))
	c.Abort()
}

// hasName compares the start of a header line with a name in lower case.
func hasName(line []byte, name string) bool {
	if len(line) < len(name) {
		return false
	}
	for i := range len(name) {
		if line[i]|0x20 != name[i]|0x20 {
			return false
		}
	}
	return true
}

func parseSLO(v []byte) (api.Nanos, error) {
	ms, err := strconv.ParseFloat(string(v), 64)
	if err != nil || !(ms > 0) || ms > maxSLO.Seconds()*1000 {
		return 0, api.Errorf(api.InvalidArgument, "header Xebec-Slo-Ms: %q: expected milliseconds above 0 and up to %.0f", v, maxSLO.Seconds()*1000)
	}
	return api.Nanos(ms * 1e6), nil
}

func (t *Table) model(c *app.RequestContext) (*Model, error) {
	name, version := c.Param("model"), c.Param("version")
	m := t.Models[name]
	if version != "" {
		m = t.Versions[api.ModelID{Name: name, Version: version}]
	}
	if m == nil {
		if version != "" {
			name += "@" + version
		}
		return nil, api.Errorf(api.NotFound, "no model %q", name)
	}
	return m, nil
}

// address finds the version that a request addresses: by its version or label, or by the model's rules.
func (h *HTTP) address(c *app.RequestContext, cl *call) (*Model, error) {
	t := h.g.table.Load()
	m, err := t.model(c)
	if err != nil || c.Param("version") != "" {
		return m, err
	}
	cl.direct = t.Tees[m.ID.Name]
	if r := t.Routes[m.ID.Name]; r != nil {
		cl.arm = &r.Rule.Serving
		if other, _ := cl.decide(m, r); other {
			cl.arm, cl.direct = &r.Rule.Other, nil
			return r.Model, nil
		}
	}
	return m, nil
}

func (h *HTTP) serverMetadata(_ context.Context, c *app.RequestContext) {
	answerJSON(c, 200, appendServerMetadata(nil, h.g.cfg.Version))
}

func (h *HTTP) modelMetadata(_ context.Context, c *app.RequestContext) {
	t := h.g.table.Load()
	m, err := t.model(c)
	if err != nil {
		h.failOIP(c, err)
		return
	}
	answerJSON(c, 200, appendModelMetadata(nil, m, t))
}

func (h *HTTP) modelReady(_ context.Context, c *app.RequestContext) {
	m, err := h.g.table.Load().model(c)
	if err == nil && !m.serves() && (m.Closed.Load() || !m.Asleep.Load()) {
		err = api.Errorf(api.Unavailable, "model %s has no replica that is ready", m.ID)
	}
	if err != nil {
		h.failOIP(c, err)
		return
	}
	c.SetStatusCode(200)
}

func (h *HTTP) live(_ context.Context, c *app.RequestContext) {
	answerJSON(c, 200, []byte(`{"live":true}`))
}

func (h *HTTP) ready(_ context.Context, c *app.RequestContext) {
	if ok, why := h.g.cfg.Ready(); !ok {
		answerJSON(c, 503, appendReadiness(nil, false, why))
		return
	}
	answerJSON(c, 200, appendReadiness(nil, true, ""))
}

func (h *HTTP) noRoute(_ context.Context, c *app.RequestContext) {
	err := api.Errorf(api.NotFound, "no route %s: functions are called by POST /{function}/predict", c.Path())
	if bytes.HasPrefix(c.Path(), []byte("/v2")) {
		h.failOIP(c, err)
		return
	}
	h.fail(c, err, 0)
}

// fail answers in the native error shape; status 0 means the code's own.
func (h *HTTP) fail(c *app.RequestContext, err error, status int) {
	e := asError(err)
	if status == 0 {
		status = e.Code.HTTPStatus()
	}
	closeAfter(c, e)
	answerJSON(c, status, appendError(nil, queryError, e))
}

// failBody says whether it was the JSON that was wrong or what it means.
func (h *HTTP) failBody(c *app.RequestContext, err error) {
	e, kind := asError(err), queryError
	if !isRaw(c.Request.Header.ContentType()) && !json.Valid(c.Request.Body()) {
		kind = jsonError
	}
	closeAfter(c, e)
	answerJSON(c, e.Code.HTTPStatus(), appendError(nil, kind, e))
}

func (h *HTTP) failOIP(c *app.RequestContext, err error) {
	e := asError(err)
	closeAfter(c, e)
	answerJSON(c, e.Code.HTTPStatus(), appendErrorOIP(nil, e.Message))
}

func closeAfter(c *app.RequestContext, e *api.Error) {
	if c.Request.Header.ConnectionClose() {
		c.Response.SetConnectionClose()
	}
	if e.Code == api.Overloaded || e.Code == api.Unavailable {
		c.Response.Header.Set("Retry-After", "1")
	}
}

func answerJSON(c *app.RequestContext, status int, body []byte) {
	c.Response.SetStatusCode(status)
	c.Response.Header.SetContentType("application/json")
	c.Response.SetBody(body)
}

func statusText(status int) string {
	if status == 499 {
		return "Client Closed Request"
	}
	return http.StatusText(status)
}
