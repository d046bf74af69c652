package http

import (
	"context"

	"github.com/cloudwego/hertz/pkg/app"

	"github.com/xebec-serving/xebec/api/spec"
	"github.com/xebec-serving/xebec/gateway/dialect"
)

// Description serves the description of the HTTP API. It is the same at both ports: its servers say which port has a path.
func Description() func(dialect.Exchange) { return dialect.Document("application/yaml", spec.OpenAPI) }

// Handler makes a handler of a route that answers at once, for engines other than a Server's.
func Handler(serve func(dialect.Exchange)) app.HandlerFunc {
	return func(_ context.Context, c *app.RequestContext) { serve(&exchange{c: c}) }
}
