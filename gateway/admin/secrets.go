package admin

import (
	"context"
	"slices"

	"github.com/cloudwego/hertz/pkg/app"
	"go.uber.org/zap"

	"github.com/xebec-serving/xebec/api"
)

// secrets reports whether a call asks for the values of environment variables, by ?secrets=true. Such a call is audited.
func (h *handlers) secrets(ctx context.Context, c *app.RequestContext, what string) (bool, error) {
	q, err := query(c, "secrets")
	if err != nil {
		return false, err
	}
	value, given := q["secrets"]
	if given && value != "true" && value != "false" {
		return false, api.Errorf(api.InvalidArgument, "the query parameter secrets=%.40q: expected true or false", value)
	}
	asked := value == "true"
	if asked && h.options.Log != nil {
		caller := api.CallerOf(ctx)
		h.options.Log.Named("audit").Info("secrets are read", append([]zap.Field{
			zap.String("user", caller.Name), zap.String("address", caller.Address), zap.String("what", what),
		}, identity(c)...)...)
	}
	return asked, err
}

// shown returns models as an answer has them: without the values of environment variables, unless these were asked for.
func shown(models []api.ModelStatus, secrets bool) []api.ModelStatus {
	if !secrets {
		models = slices.Clone(models)
		for i := range models {
			models[i].Spec = models[i].Spec.WithoutSecrets()
		}
	}
	return notNil(models)
}
