package http

import (
	"github.com/cloudwego/hertz/pkg/app"
	"github.com/cloudwego/hertz/pkg/protocol/consts"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/dialect"
	"github.com/xebec-serving/xebec/gateway/http/coding"
)

// decodeBody replaces the request's body by the one without content codings, so that handlers never see them. The caller
// frees it after the handlers; it is nil if the body had none.
func decodeBody(c *app.RequestContext, codings []byte, limit int) (*coding.Body, *api.Error) {
	if len(codings) == 0 {
		return nil, nil
	}
	body, err := coding.Decode(codings, c.Request.Body(), limit)
	if err != nil {
		return nil, dialect.Error(err)
	}
	c.Request.Header.Del(headerContentEncoding)
	if body != nil {
		c.Request.SetBodyRaw(body.Bytes)
	}
	return body, nil
}

// decodeStatus is the status of a body that was not decoded, and says which codings are.
func decodeStatus(c *app.RequestContext, e *api.Error) int {
	if e.Code != api.Unsupported {
		return e.Code.HTTPStatus()
	}
	c.Response.Header.Set(headerAcceptEncoding, coding.Supported) // RFC 9110, section 12.5.3
	return consts.StatusUnsupportedMediaType
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
