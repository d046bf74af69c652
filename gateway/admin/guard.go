package admin

import (
	"context"
	"net"
	"net/url"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/cloudwego/hertz/pkg/app"
	"go.uber.org/zap"

	"github.com/xebec-serving/xebec/api"
)

// Options say how the port is reached, and who is told of what it does.
type Options struct {
	// Log is told of each change that is asked for, and of requests without a token that is known; nil: nobody.
	Log *zap.Logger
	// Tokens are those of which every caller must show one; nil: none is asked for.
	Tokens *Tokens
	// AnyHost takes every Host header: the port is reached under names that nobody has told us. It counts only with Tokens: a page that
	// rebinds its name to our address has no token, and a browser adds none by itself.
	AnyHost bool
}

// Guard asks whoever wants next for a token, if one is asked for: for what the composition serves beside the admin API.
func (o Options) Guard(next app.HandlerFunc) app.HandlerFunc {
	return func(ctx context.Context, c *app.RequestContext) {
		if _, ok := o.admit(c); ok {
			next(ctx, c)
		}
	}
}

// admit returns the name of the caller's token. It answers callers that have none.
func (o Options) admit(c *app.RequestContext) (name string, ok bool) {
	if o.Tokens == nil {
		return "", true
	}
	name, refusal, detail := o.Tokens.Check(string(c.Request.Header.Peek("Authorization")))
	if refusal == nil {
		return name, true
	}
	if log, since, total := o.Tokens.refuse(); log && o.Log != nil {
		o.Log.Warn("refused on the admin port", zap.String("address", peer(c)), zap.NamedError("why", refusal), zap.Error(detail),
			zap.Uint64("requests", since), zap.Uint64("requests_ever", total))
	}
	c.Response.Header.Set("WWW-Authenticate", `Bearer realm="xebec"`)
	writeErrorAs(c, 401, "unauthorized", refusal.Error())
	return "", false
}

// guard refuses requests that a web page could have sent and those without a token, and answers with what the handler returns. The
// handler's context says who asks.
func (h *handlers) guard(next handler) app.HandlerFunc {
	o := h.options
	anyHost := o.AnyHost && o.Tokens != nil
	return func(ctx context.Context, c *app.RequestContext) {
		header := &c.Request.Header
		if why := rejectReason(string(header.Host()), string(header.Peek("Origin")), string(header.Peek("Sec-Fetch-Site")), anyHost); why != "" {
			writeErrorAs(c, 403, "forbidden", why)
			return
		}
		name, ok := o.admit(c)
		if !ok {
			return
		}
		caller, err := callerOf(c, name)
		if err != nil {
			writeError(c, err)
			return
		}
		value, err := next(api.WithCaller(ctx, caller), c)
		write(c, value, err)
	}
}

// userHeader is by what callers say who they are; maxUserBytes is a name, a host and what a program calls itself.
const (
	userHeader   = "Xebec-User"
	maxUserBytes = 128
)

// callerOf is who sent a request. The name of a token counts more than what the caller says: it is proven.
func callerOf(c *app.RequestContext, token string) (api.Caller, error) {
	said := c.Request.Header.PeekAll(userHeader)
	caller := api.Caller{Name: token, Address: peer(c)}
	if len(said) > 1 {
		return caller, api.Errorf(api.InvalidArgument, "the header %s occurs %d times: expected once", userHeader, len(said))
	}
	if len(said) == 0 {
		return caller, nil
	}
	user := string(said[0])
	if len(user) > maxUserBytes || !utf8.ValidString(user) || strings.ContainsFunc(user, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return caller, api.Errorf(api.InvalidArgument, "the header %s %.60q: expected at most %d bytes of printable text, such as user@host", userHeader, user, maxUserBytes)
	}
	if caller.Name == "" {
		caller.Name = strings.TrimSpace(user)
	}
	return caller, nil
}

// peer is the address that a request came from, without the port, which says nothing once the connection is gone.
func peer(c *app.RequestContext) string {
	address := c.RemoteAddr().String()
	if host, _, err := net.SplitHostPort(address); err == nil {
		return host
	}
	return address
}

// foreign says why a request with these headers is not taken for one of a program, on this machine unless anyHost is set, or "".
//
// A browser sets Host from the page's own idea of the address, Origin on everything that is not a plain navigation or image
// load, and Sec-Fetch-Site on everything; a page can set none of the three.
func rejectReason(host, origin, fetchSite string, anyHost bool) string {
	if !anyHost && !loopback(host) {
		return "the Host header is not a loopback name or address: the admin port is for programs on this machine, such as xebec --admin 127.0.0.1:1338"
	}
	if origin != "" {
		u, err := url.Parse(origin)
		if err != nil || u.Host == "" || !strings.EqualFold(u.Host, host) {
			return "the request comes from a page of another origin: the admin port does not answer web pages"
		}
	}
	switch fetchSite {
	case "", "none", "same-origin":
		return ""
	}
	return "the request comes from a page of another site: the admin port does not answer web pages"
}

// loopback reports whether host, with or without a port, is localhost or a loopback address.
func loopback(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	} else {
		host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	}
	if strings.EqualFold(host, "localhost") {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}
