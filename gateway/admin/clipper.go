package admin

import (
	"context"
	"errors"

	"github.com/cloudwego/hertz/pkg/app"
	"github.com/cloudwego/hertz/pkg/route"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/admin/clipper"
)

// registerClipper adds Clipper's management interface. Its paths may end in a slash.
func (h *handlers) registerClipper(r route.IRoutes) {
	ping := h.guard(func(_ context.Context, c *app.RequestContext) (any, error) {
		writeText(c, 200, "PONG")
		return nil, nil
	})
	for _, end := range []string{"", "/"} {
		r.GET("/admin/ping"+end, ping)
		for i := range clipper.Operations {
			r.POST("/admin/"+clipper.Operations[i].Name+end, h.guard(h.clipper(&clipper.Operations[i])))
		}
	}
}

// clipper answers one operation. Refusals of the port, which come before it, have the API's own form.
func (h *handlers) clipper(o *clipper.Operation) handler {
	return func(ctx context.Context, c *app.RequestContext) (any, error) {
		var a clipper.Answer
		do := func(ctx context.Context, c *app.RequestContext) (any, error) {
			body, err := clipperBody(c)
			if err != nil {
				return nil, err
			}
			a, err = o.Do(ctx, h.control, body)
			setSubject(c, false, a.Subject)
			return api.Changes{Changes: a.Changes}, err
		}
		if o.Changes {
			do = h.audited("clipper "+o.Name, do)
		}
		if _, err := do(ctx, c); err != nil {
			writeClipperError(c, err)
			return nil, nil
		}
		if !o.Changes {
			h.noteUnread(c)
			return a.Value, nil
		}
		writeText(c, 200, a.Text)
		return nil, nil
	}
}

func clipperBody(c *app.RequestContext) ([]byte, error) {
	if _, err := query(c); err != nil {
		return nil, err
	}
	if err := rejectIfMatch(c, "an operation of Clipper says nothing of revisions"); err != nil {
		return nil, err
	}
	return bodyOf(c, "application/json")
}

// writeClipperError answers with the text of an error. Whatever is wrong with a request has Clipper's status 400.
func writeClipperError(c *app.RequestContext, err error) {
	code := api.Internal
	if known, ok := errors.AsType[*api.Error](err); ok {
		code = known.Code
	}
	if unread, ok := errors.AsType[*api.UnreadError](err); ok {
		c.Response.Header.Set(unreadHeader, unread.Why)
	}
	status := code.HTTPStatus()
	switch code {
	case api.InvalidArgument, api.NotFound, api.Conflict:
		status = 400
	case api.Unavailable:
		c.Response.Header.Set("Retry-After", "1")
	}
	writeText(c, status, err.Error())
}

func writeText(c *app.RequestContext, status int, text string) {
	c.Response.Header.Set("Cache-Control", "no-store")
	c.Response.Header.Set("X-Content-Type-Options", "nosniff")
	c.Data(status, "text/plain; charset=utf-8", []byte(text))
}
