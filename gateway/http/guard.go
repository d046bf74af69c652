package http

import (
	"github.com/cloudwego/hertz/pkg/app"
	"github.com/cloudwego/hertz/pkg/protocol/consts"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/dialect"
	"github.com/xebec-serving/xebec/gateway/internal/browser"
)

// guard reports whether a request is served. If not it has answered the request: a browser sent it for a page that may not
// use the gateway, or asks what a page may send. Requests of programs have neither of two headers and pass at once,
// whatever their Host is: a proxy may pass on any.
func (s *Server) guard(c *app.RequestContext, x *exchange) bool {
	a := &x.about
	if len(a.origin) == 0 && len(a.site) == 0 {
		return true
	}
	p := page{origin: string(a.origin), site: string(a.site), host: string(c.Request.Header.Host()), origins: a.origins}
	name, method := s.functions.function(c.Path()), string(c.Method())
	var cors *api.CORSSpec
	if name != "" {
		if fn := s.cfg.Path.Function(name); fn != nil {
			cors = fn.CORS
		}
		if p.origin != "" { // what the answer says depends on it
			c.Response.Header.Set("Vary", "Origin")
		}
	}
	preflight := name != "" && method == consts.MethodOptions && len(c.Request.Header.Peek("Access-Control-Request-Method")) > 0
	allowed, every := cors.Allows(p.origin)
	switch {
	case allowed && p.origins == 1 && preflight:
		setFields(c, preflightFields(cors, p.origin, every))
		c.Response.SetStatusCode(consts.StatusNoContent)
		return false
	case allowed && p.origins == 1:
		fields := answerFields(cors, p.origin, every)
		setFields(c, fields)
		x.fields = append(fields, vary) // for answers that Hertz does not write
		return true
	}
	e := s.refusal(&p, name, method, preflight)
	if e != nil {
		s.refuse(c, e, e.Code.HTTPStatus())
	}
	return e == nil
}

// page is what a browser says of the page that sends a request.
type page struct {
	origin, site, host string
	origins            int // how many Origin fields there are
}

// refusal returns why a page may not send a request, or nil if it may. function is the one that the request asks.
func (s *Server) refusal(p *page, function, method string, preflight bool) *api.Error {
	if p.origins > 1 {
		return api.Errorf(api.Forbidden, "the request has %d Origin headers: expected one", p.origins)
	}
	if p.origin != "" && !preflight && !s.knownHost(p.host) {
		return api.Errorf(api.Forbidden, "the Host header %.100q is not one of this gateway's: a page reaches it by a loopback name or address; behind a proxy, add the host to --allowed-hosts", p.host)
	}
	if p.origin != "" && browser.SameOrigin(p.origin, p.host) || p.origin == "" && !browser.CrossSite(p.site) {
		return nil
	}
	if !preflight && (method == consts.MethodGet || method == consts.MethodHead || method == consts.MethodOptions) {
		return nil // it changes nothing, and the browser does not show the answer to the page
	}
	what := "the request comes from a page of another origin"
	if p.origin != "" {
		what = "the request comes from a page of " + p.origin[:min(len(p.origin), 100)]
	}
	if function == "" {
		return api.Errorf(api.Forbidden, "%s: pages can call functions whose cors.origins has their origin, not models", what)
	}
	return api.Errorf(api.Forbidden, "%s: function %.63q does not list it in cors.origins", what, function)
}

// knownHost reports whether a page may name this host. A page that rebinds its own name to the gateway's address names
// itself, never an address.
func (s *Server) knownHost(host string) bool {
	return browser.Loopback(host) || !s.loopback && browser.Address(host) || s.cfg.AllowedHosts.Has(host)
}

func setFields(c *app.RequestContext, fields []dialect.Field) {
	for i := range fields {
		c.Response.Header.Set(fields[i].Name, string(fields[i].Value))
	}
}
