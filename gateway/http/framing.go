package http

import (
	"bytes"
	"context"

	"github.com/cloudwego/hertz/pkg/app"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/dialect"
)

// RefuseAmbiguousFraming is a middleware that refuses requests whose length two parsers could read differently, which
// would allow request smuggling. Hertz keeps only the headers that it understood, so the middleware checks the raw header
// lines. shape renders the refusal.
func RefuseAmbiguousFraming(shape dialect.Dialect) app.HandlerFunc {
	return func(_ context.Context, c *app.RequestContext) {
		if e := ambiguousFraming(c.Request.Header.RawHeaders()); e != nil {
			c.Response.SetConnectionClose()
			answerError(c, shape, e, e.Code.HTTPStatus())
			c.Abort()
		}
	}
}

func ambiguousFraming(raw []byte) *api.Error {
	lengths, encodings := 0, 0
	for len(raw) > 0 {
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
		return nil
	}
	return api.Errorf(api.InvalidArgument, "the request has %d Content-Length and %d Transfer-Encoding headers: send one of them, once", lengths, encodings)
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
