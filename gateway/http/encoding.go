package http

import (
	"context"

	"github.com/cloudwego/hertz/pkg/app"
	"github.com/cloudwego/hertz/pkg/protocol/consts"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/dialect"
	"github.com/xebec-serving/xebec/gateway/http/coding"
)

// serveDecoded calls the handlers with the body without its content codings, so that no handler sees them.
func (p *port) serveDecoded(ctx context.Context, c *app.RequestContext, a *about) {
	encoded := c.Request.Body()
	reserved := coding.Room(len(encoded), p.bodyBytes) // more than it will be
	if p.memory != nil && !p.memory.Reserve(reserved) {
		c.Response.Header.Set("Retry-After", "1")
		e := api.Errorf(api.Overloaded, "the bodies of other requests take all of the memory for bodies (--body-memory): send the request again later")
		p.refuse(c, e, e.Code.HTTPStatus())
		c.Abort()
		return
	}
	body, err := coding.Decode(a.codings, encoded, p.bodyBytes)
	size := 0
	if body != nil {
		size = len(body.Bytes)
		c.Request.SetBodyRaw(body.Bytes)
	}
	if p.memory != nil {
		p.memory.Return(reserved - size)
		cn, _ := c.GetConn().(*conn)
		if cn != nil {
			cn.decoded = size
		}
		defer func() {
			left := size
			if cn != nil {
				left, cn.decoded = cn.decoded, 0
			}
			p.memory.Return(left)
		}()
	}
	if err != nil {
		e := dialect.Error(err)
		status := e.Code.HTTPStatus()
		if e.Code == api.Unsupported {
			c.Response.Header.Set(headerAcceptEncoding, coding.Supported) // RFC 9110, section 12.5.3
			status = consts.StatusUnsupportedMediaType
		}
		p.refuse(c, e, status)
		c.Abort()
		return
	}
	c.Request.Header.Del(headerContentEncoding)
	c.Next(ctx)
	if body != nil {
		c.Request.ResetBody()
		body.Free()
	}
}

// compressBody compresses the answer that Hertz will write, if the client accepts that and it is worth it. An answer with
// an ETag stays as it is: the tag names these bytes, and operators send it back in If-Match.
func compressBody(c *app.RequestContext, accept coding.Coding) {
	r := &c.Response
	body := r.BodyBytes()
	if len(body) < coding.CompressFrom || r.IsBodyStream() || len(r.Header.Peek(headerContentEncoding)) > 0 || len(r.Header.Peek("ETag")) > 0 {
		return
	}
	r.Header.Add(headerVary, headerAcceptEncoding)
	if out := coding.Compress(accept, body); out != nil {
		r.SetBody(out.Bytes)
		r.Header.Set(headerContentEncoding, accept.String())
		out.Free()
	}
}
