package http

import (
	"context"

	"github.com/cloudwego/hertz/pkg/app"

	"github.com/xebec-serving/xebec/api/spec"
	"github.com/xebec-serving/xebec/gateway/dialect"
	"github.com/xebec-serving/xebec/gateway/docs"
)

// Description serves the description of the HTTP API. It is the same at both ports: its servers say which port has a path.
func Description() func(dialect.Exchange) { return dialect.Document("application/yaml", spec.OpenAPI) }

// DocsPage serves the page that shows functions and routes, at /docs of both ports.
func DocsPage() func(dialect.Exchange) {
	page, policy := docs.Page(spec.OpenAPI)
	return dialect.Document("text/html; charset=utf-8", page, dialect.Field{Name: "Content-Security-Policy", Value: []byte(policy)},
		dialect.Field{Name: "X-Content-Type-Options", Value: []byte("nosniff")}, dialect.Field{Name: "Referrer-Policy", Value: []byte("no-referrer")})
}

// Handler makes a handler of a route that answers at once, for engines other than a Server's.
func Handler(serve func(dialect.Exchange)) app.HandlerFunc {
	return func(_ context.Context, c *app.RequestContext) { serve(&exchange{c: c}) }
}
