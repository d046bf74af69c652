package admin

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/cloudwego/hertz/pkg/app"
	"go.uber.org/zap"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/api/manifest"
	"github.com/xebec-serving/xebec/gateway/internal/numerals"
)

const (
	// maxAuditNames and maxAuditErrorBytes limit a line about thousands of objects.
	maxAuditNames      = 50
	maxAuditErrorBytes = 500
	// aboutKey is the key of the call's subject in the request context.
	aboutKey = "xebec.about"
)

// subject is what a call would change.
type subject struct {
	what   []string
	dryRun bool
}

// setSubject records what a call would change, for the audit. A dry run changes nothing and is not logged.
func setSubject(c *app.RequestContext, dryRun bool, what ...string) {
	c.Set(aboutKey, subject{what, dryRun})
}

// audited logs one line for each call of next: the caller, what was requested, and the outcome. Refused calls are also
// logged, because attempts matter when investigating a failure.
func (h *handlers) audited(action string, next handler) handler {
	if h.options.Log == nil {
		return next
	}
	log := h.options.Log.Named("audit")
	return func(ctx context.Context, c *app.RequestContext) (any, error) {
		value, err := next(ctx, c)
		of, _ := c.Value(aboutKey).(subject)
		if of.dryRun {
			return value, err
		}
		caller := api.CallerOf(ctx)
		fields := append([]zap.Field{
			zap.String("user", caller.Name), zap.String("address", caller.Address), zap.String("action", action), zap.Strings("what", truncateList(of.what)),
		}, identity(c)...)
		if err != nil {
			code := api.Internal
			var known *api.Error
			if errors.As(err, &known) {
				code = known.Code
			}
			message := err.Error()
			if len(message) > maxAuditErrorBytes {
				message = strings.ToValidUTF8(message[:maxAuditErrorBytes], "") + "…"
			}
			log.Warn("refused or failed", append(fields, zap.String("outcome", code.String()), zap.String("error", message))...)
			return value, err
		}
		changes, _ := value.(api.Changes)
		outcomes := make([]string, len(changes.Changes))
		if learned, ok := value.(api.LearnedChange); ok {
			outcomes = append(outcomes, numerals.Count(learned.States, "state")+" replaced")
		}
		for i, ch := range changes.Changes {
			outcomes[i] = objectName(ch.Kind, ch.Name, ch.Version) + " " + string(ch.Action)
		}
		log.Info("changed", append(fields, zap.String("outcome", api.OK.String()), zap.Strings("changes", truncateList(outcomes)))...)
		return value, nil
	}
}

func truncateList(all []string) []string {
	if len(all) <= maxAuditNames {
		return all
	}
	return append(all[:maxAuditNames:maxAuditNames], fmt.Sprintf("… and %d more", len(all)-maxAuditNames))
}

// objectName returns a name such as "Model digits@3" or "Function digits".
func objectName(kind api.Kind, name, version string) string {
	if version != "" {
		name += "@" + version
	}
	return string(kind) + " " + name
}

// namesOf returns the names of a set's objects.
func namesOf(set *manifest.Set) []string {
	all := make([]string, 0, set.Len())
	for i := range set.Models {
		all = append(all, objectName(api.KindModel, set.Models[i].Name, set.Models[i].Version))
	}
	for i := range set.Functions {
		all = append(all, objectName(api.KindFunction, set.Functions[i].Name, ""))
	}
	for i := range set.Traffic {
		all = append(all, objectName(api.KindTraffic, set.Traffic[i].Model, ""))
	}
	return all
}
