package admin

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/cloudwego/hertz/pkg/app"

	"github.com/xebec-serving/xebec/api"
)

const (
	// DefaultHistory fills a screen or two.
	DefaultHistory = 50
	// MaxHistory bounds the size of one answer.
	MaxHistory = 1000 //xebec:limit history entries in one answer
)

func (h *handlers) traffics(ctx context.Context, c *app.RequestContext) (any, error) {
	if _, err := query(c); err != nil {
		return nil, err
	}
	h.noteUnread(c)
	all, err := h.control.Traffic(ctx, "")
	return api.TrafficList{Traffic: notNil(all)}, err
}

func (h *handlers) traffic(ctx context.Context, c *app.RequestContext) (any, error) {
	name, err := nameOf(c, "model")
	if err != nil {
		return nil, err
	}
	one, err := h.control.Traffic(ctx, name)
	if len(one) == 1 && err == nil {
		tag(c, one[0].Revision)
	}
	return api.TrafficList{Traffic: notNil(one)}, err
}

// trafficOf returns a model's traffic for its description, or nil if the model has been deleted meanwhile.
func (h *handlers) trafficOf(ctx context.Context, model string) (*api.TrafficStatus, error) {
	one, err := h.control.Traffic(ctx, model)
	switch {
	case err != nil && !isUnknown(err):
		return nil, err
	case err != nil || len(one) == 0:
		return nil, nil
	}
	return &one[0], nil
}

func (h *handlers) deleteTraffic(ctx context.Context, c *app.RequestContext) (any, error) {
	name, err := nameOf(c, "model")
	if err != nil {
		return nil, err
	}
	expected, err := expectedRevision(c, api.KindTraffic, api.ModelID{Name: name})
	if err != nil {
		return nil, err
	}
	setSubject(c, false, objectName(api.KindTraffic, name, ""))
	changes, err := h.control.Delete(ctx, api.KindTraffic, api.ModelID{Name: name}, expected...)
	return api.Changes{Changes: notNil(changes)}, err
}

func (h *handlers) promote(ctx context.Context, c *app.RequestContext) (any, error) {
	name, err := nameOf(c, "model")
	if err != nil {
		return nil, err
	}
	var request struct {
		Version *string `json:"version"`
	}
	if err = jsonBody(c, &request, `{} or {"version": "4"}`); err != nil {
		return nil, err
	}
	version, err := optionalVersion("version", request.Version)
	if err != nil {
		return nil, err
	}
	expected, err := expectedRevision(c, api.KindTraffic, api.ModelID{Name: name})
	if err != nil {
		return nil, err
	}
	setSubject(c, false, objectName(api.KindModel, name, version))
	changes, err := h.control.Promote(ctx, name, version, expected...)
	return api.Changes{Changes: notNil(changes)}, err
}

func (h *handlers) rollback(ctx context.Context, c *app.RequestContext) (any, error) {
	name, err := nameOf(c, "model")
	if err != nil {
		return nil, err
	}
	var request struct {
		To     *string `json:"to"`
		Reason string  `json:"reason"`
	}
	if err = jsonBody(c, &request, `{} or {"to": "3", "reason": "…"}`); err != nil {
		return nil, err
	}
	to, err := optionalVersion("to", request.To)
	if err != nil {
		return nil, err
	}
	reason := strings.TrimSpace(request.Reason)
	if len(reason) > api.MaxReasonBytes || !utf8.ValidString(reason) || strings.ContainsFunc(reason, unicode.IsControl) {
		return nil, api.Errorf(api.InvalidArgument, "reason %.60q: expected one line of at most %d bytes", reason, api.MaxReasonBytes)
	}
	expected, err := expectedRevision(c, api.KindTraffic, api.ModelID{Name: name})
	if err != nil {
		return nil, err
	}
	setSubject(c, false, strings.TrimSuffix(fmt.Sprintf("%s: %s", objectName(api.KindModel, name, to), reason), ": "))
	changes, err := h.control.Rollback(ctx, name, to, reason, expected...)
	return api.Changes{Changes: notNil(changes)}, err
}

// optionalVersion checks a version that may be omitted but not empty: "" is most likely a lost value.
func optionalVersion(field string, given *string) (string, error) {
	if given == nil {
		return "", nil
	}
	if err := api.CheckVersion(*given); err != nil {
		return "", api.Errorf(api.InvalidArgument, "%s: %w", field, err)
	}
	return *given, nil
}

func (h *handlers) history(ctx context.Context, c *app.RequestContext) (any, error) {
	return h.events(ctx, c, "")
}

func (h *handlers) historyOf(ctx context.Context, c *app.RequestContext) (any, error) {
	name, err := nameOf(c, "model or function", "limit")
	if err != nil {
		return nil, err
	}
	return h.events(ctx, c, name)
}

func (h *handlers) events(ctx context.Context, c *app.RequestContext, name string) (any, error) {
	q, err := query(c, "limit")
	if err != nil {
		return nil, err
	}
	limit := DefaultHistory
	if given, ok := q["limit"]; ok {
		if limit, err = strconv.Atoi(given); err != nil || limit < 1 || limit > MaxHistory {
			return nil, api.Errorf(api.InvalidArgument, "the query parameter limit=%.20q: expected 1 to %d", given, MaxHistory)
		}
	}
	events, err := h.control.History(ctx, name, limit)
	if err == nil && len(events) == 0 && name != "" {
		err = h.exists(ctx, name)
	}
	if err != nil {
		return nil, err
	}
	out := api.History{Events: notNil(events)}
	if name != "" {
		models, err := h.control.Models(ctx, name)
		if err != nil && !isNotFound(err) {
			return nil, err
		}
		for i := range models {
			if m := models[i].Measured; m != nil {
				out.Measured = append(out.Measured, *m)
			}
		}
	}
	return out, nil
}

// exists returns an error if neither a model nor a function has the name. Rules can outlive the versions of their model.
func (h *handlers) exists(ctx context.Context, name string) error {
	if _, err := h.control.Models(ctx, name); !isNotFound(err) {
		return err
	}
	if _, err := h.control.Functions(ctx, name); !isNotFound(err) {
		return err
	}
	if _, err := h.control.Traffic(ctx, name); !isNotFound(err) {
		return err
	}
	return api.Errorf(api.NotFound, "no model or function %q, now or in the history", name)
}

// export answers all declarations as YAML, or as JSON if the Accept header names it.
func (h *handlers) export(ctx context.Context, c *app.RequestContext) (any, error) {
	secrets, err := h.secrets(ctx, c, "all declarations")
	if err != nil {
		return nil, err
	}
	set, err := h.control.Export(ctx)
	if err != nil {
		return nil, err
	}
	for i := range set.Models {
		if !secrets {
			set.Models[i] = set.Models[i].WithoutSecrets() // the set is a copy
		}
	}
	encode, contentType := set.YAML, "application/yaml"
	if strings.Contains(string(c.Request.Header.Peek("Accept")), "application/json") {
		encode, contentType = set.JSON, "application/json"
	}
	body := []byte("# Nothing is declared.\n") // the empty set has no YAML
	if set.Len() > 0 || contentType != "application/yaml" {
		if body, err = encode(); err != nil {
			return nil, fmt.Errorf("cannot encode the declarations: %w", err)
		}
	}
	c.Response.Header.Set("Cache-Control", "no-store")
	c.Response.Header.Set("X-Content-Type-Options", "nosniff")
	c.Data(200, contentType, body)
	return nil, nil
}
