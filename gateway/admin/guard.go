package admin

import (
	"context"
	"net"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/cloudwego/hertz/pkg/app"
	"go.uber.org/zap"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/internal/browser"
)

// Options configure access to the port and its logging.
type Options struct {
	// Unread returns why not everything that is declared is known yet, or "". nil means that it is known.
	Unread func() string
	// Ended returns why nothing can be asked any more, or nil. nil means that this does not happen.
	Ended func() error
	// Log receives each requested change, and requests without a valid token; nil means no logging.
	Log *zap.Logger
	// Tokens are the valid tokens; every caller must send one. nil means that no token is required.
	Tokens *Tokens
	// AnyHost accepts every Host header, because the port is reached under unknown names. It has an effect only with
	// Tokens: a page that rebinds its name to our address has no token, and a browser does not add one. The handlers of
	// [Options.Public] need no token, and none is asked for where the port is not on a loopback address.
	AnyHost bool
	// Uploads takes models' files of other hosts; nil: none are taken.
	Uploads Uploads
	// AllowedHosts are hosts that handlers of [Options.Public] accept beside loopback ones, for a proxy on this machine
	// that passes on the Host of its clients.
	AllowedHosts browser.Hosts
}

// Public makes a handler that any program may use without a token: scrapers, probes, and readers of the description. On a
// loopback address it refuses a foreign Host, which a page has that rebinds its name to our address. A request without
// Host (HTTP/1.0) is no browser's.
func (o Options) Public(next app.HandlerFunc) app.HandlerFunc {
	return func(ctx context.Context, c *app.RequestContext) {
		host := string(c.Request.Header.Host())
		if !o.AnyHost && host != "" && !browser.Loopback(host) && !o.AllowedHosts.Has(host) {
			writeErrorAs(c, 403, "forbidden", "the Host header "+strconv.Quote(clip(host))+" is not a loopback name or address: behind a proxy, add the host to --allowed-hosts")
			return
		}
		next(ctx, c)
	}
}

// clip bounds what an error quotes of a header.
func clip(s string) string { return s[:min(len(s), 80)] }

// admit returns the name of the caller's token. Without a valid token it answers the request and returns false.
func (o Options) admit(c *app.RequestContext) (name string, ok bool) {
	if o.Tokens == nil {
		return "", true
	}
	name, refusal, detail := o.Tokens.Check(string(c.Request.Header.Peek("Authorization")))
	if refusal == nil {
		return name, true
	}
	if log, since, total := o.Tokens.refuse(); log && o.Log != nil {
		o.Log.Warn("refused on the admin port", append([]zap.Field{zap.String("address", peer(c)), zap.NamedError("why", refusal), zap.Error(detail),
			zap.Uint64("requests", since), zap.Uint64("requests_ever", total)}, identity(c)...)...)
	}
	c.Response.Header.Set("WWW-Authenticate", `Bearer realm="xebec"`)
	writeErrorAs(c, 401, "unauthorized", refusal.Error())
	return "", false
}

// guard refuses requests that a web page could have sent and those without a valid token, and writes what the handler
// returns. The handler's context has the caller.
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
		if o.Ended != nil {
			if err := o.Ended(); err != nil {
				writeError(c, err)
				return
			}
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

// userHeader is the header in which callers name themselves. maxUserBytes is enough for a user, a host and a program.
const (
	userHeader   = "Xebec-User"
	maxUserBytes = 128
)

// callerOf returns the sender of a request. A token's name takes precedence over the header, because it is
// authenticated.
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

// peer returns the address of the request's connection, without the port, which is useless after the connection has
// closed.
func peer(c *app.RequestContext) string {
	address := c.RemoteAddr().String()
	if host, _, err := net.SplitHostPort(address); err == nil {
		return host
	}
	return address
}

// rejectReason returns why a request with these headers is not accepted as one of a program (on this machine, unless
// anyHost is set), or "" if it is.
//
// A browser sets Host from the page's address, Origin on everything except plain navigation and image loads, and
// Sec-Fetch-Site on everything. A page can set none of them.
func rejectReason(host, origin, fetchSite string, anyHost bool) string {
	if !anyHost && !browser.Loopback(host) {
		return "the Host header is not a loopback name or address: the admin port is for programs on this machine, such as xebec --admin 127.0.0.1:1338"
	}
	if origin != "" && !browser.SameOrigin(origin, host) {
		return "the request comes from a page of another origin: the admin port does not answer web pages"
	}
	if browser.CrossSite(fetchSite) {
		return "the request comes from a page of another site: the admin port does not answer web pages"
	}
	return ""
}
