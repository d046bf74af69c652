package http

import (
	"context"
	"slices"
	"strings"

	"github.com/cloudwego/hertz/pkg/app"
	"github.com/cloudwego/hertz/pkg/app/server"
	"github.com/cloudwego/hertz/pkg/protocol/consts"

	"github.com/xebec-serving/xebec/api"
)

// CompleteMethods is called after all routes of a port have been registered. HEAD is then answered wherever GET is, as GET
// without its body; OPTIONS says which methods a path has, or with the target * the server; other methods are refused with
// 405 and the header Allow. noRoute answers requests for other paths.
func CompleteMethods(h *server.Hertz, noRoute app.HandlerFunc, refuse Refuse) {
	for _, r := range h.Routes() {
		if r.Method == consts.MethodGet {
			h.Handle(consts.MethodHead, r.Path, r.HandlerFunc)
		}
	}
	table := newMethodTable(h)
	ofServer := func(c *app.RequestContext) bool { return isOptions(c) && string(c.Request.Header.RequestURI()) == "*" }
	h.NoRoute(func(ctx context.Context, c *app.RequestContext) {
		if ofServer(c) {
			options(c, table.all())
			return
		}
		noRoute(ctx, c)
	})
	h.NoMethod(func(_ context.Context, c *app.RequestContext) { // a route with one parameter matches * too
		if ofServer(c) {
			options(c, table.all())
			return
		}
		allow := table.allow(string(c.Path()))
		if isOptions(c) {
			options(c, allow)
			return
		}
		c.Response.Header.Set("Allow", allow)
		refuse(c, api.Errorf(api.Unsupported, "%.20s is not a method of %.100s: expected %s", c.Method(), c.Path(), allow), consts.StatusMethodNotAllowed)
	})
}

func isOptions(c *app.RequestContext) bool { return string(c.Method()) == consts.MethodOptions }

func options(c *app.RequestContext, allow string) {
	c.Response.Header.Set("Allow", allow)
	c.Response.SetStatusCode(consts.StatusNoContent)
}

// methodTable has the methods of each path.
type methodTable []methodsOf

type methodsOf struct {
	segments []string // as in a route of Hertz: ":name" matches any text
	method   string
}

func newMethodTable(h *server.Hertz) methodTable {
	var t methodTable
	for _, r := range h.Routes() {
		t = append(t, methodsOf{strings.Split(r.Path, "/"), r.Method})
	}
	return t
}

// all is the value of Allow for the server.
func (t methodTable) all() string { return t.join(func(methodsOf) bool { return true }) }

// allow is the value of Allow for a path.
func (t methodTable) allow(path string) string {
	segments := strings.Split(path, "/")
	return t.join(func(m methodsOf) bool {
		return slices.EqualFunc(m.segments, segments, func(want, got string) bool {
			return want == got || strings.HasPrefix(want, ":") && got != ""
		})
	})
}

func (t methodTable) join(takes func(methodsOf) bool) string {
	all := []string{consts.MethodOptions}
	for _, m := range t {
		if takes(m) {
			all = append(all, m.method)
		}
	}
	slices.Sort(all)
	return strings.Join(slices.Compact(all), ", ")
}
