package admin

import (
	"context"
	"net"
	"net/url"
	"strings"

	"github.com/cloudwego/hertz/pkg/app"
)

// guard refuses requests that a web page could have sent, and answers with what the handler returns.
func guard(h handler) app.HandlerFunc {
	return func(ctx context.Context, c *app.RequestContext) {
		if why := foreign(string(c.Request.Header.Host()), string(c.Request.Header.Peek("Origin")), string(c.Request.Header.Peek("Sec-Fetch-Site"))); why != "" {
			writeErrorAs(c, 403, "forbidden", why)
			return
		}
		value, err := h(ctx, c)
		write(c, value, err)
	}
}

// foreign says why a request with these headers is not taken for one of a program on this machine, or "".
//
// A browser sets Host from the page's own idea of the address, Origin on everything that is not a plain navigation or image
// load, and Sec-Fetch-Site on everything; a page can set none of the three.
func foreign(host, origin, fetchSite string) string {
	if !loopback(host) {
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
