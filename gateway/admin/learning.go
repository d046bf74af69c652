package admin

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/cloudwego/hertz/pkg/app"

	"github.com/xebec-serving/xebec/api"
)

// Learning shows and edits what the policies of functions have learned. Like [Control] it is safe for concurrent use. The error is api.NotFound
// if there is no such function, and api.Conflict if its policy does not learn.
type Learning interface {
	// ExportLearned returns states of a function. The error is api.NotFound for a context without a state of its own.
	ExportLearned(ctx context.Context, function string, which api.LearnedSelection) (api.LearnedState, error)
	// ImportLearned replaces states of a function by those given, and lets all other contexts begin again if s.All is set. The error is
	// api.InvalidArgument if they do not fit its policy or candidates. With dryRun it only finds out.
	ImportLearned(ctx context.Context, function string, s api.LearnedState, dryRun bool) (api.LearnedChange, error)
	// ResetLearned lets states of a function begin again.
	ResetLearned(ctx context.Context, function string, which api.LearnedSelection) (api.LearnedChange, error)
	// LearnedHistory returns how what was learned has changed, oldest first, up to now.
	LearnedHistory(ctx context.Context, function string) (api.LearnedHistory, error)
}

// learnedSelection reads which states are meant.
func learnedSelection(c *app.RequestContext) (name string, which api.LearnedSelection, err error) {
	if name, err = nameOf(c, "function", "context", "all"); err != nil {
		return "", which, err
	}
	q, err := query(c, "context", "all")
	if err != nil {
		return "", which, err
	}
	if which.All, err = q.boolean("all"); err != nil {
		return "", which, err
	}
	context, given := q["context"]
	if which.Context = context; given && context == "" {
		err = api.Errorf(api.InvalidArgument, "the query parameter context is empty: leave it out for the global state")
	}
	return name, which, err
}

// subjectOf names states for the audit.
func subjectOf(name string, which api.LearnedSelection) string {
	what := objectName(api.KindFunction, name, "") + ", what it has learned"
	switch {
	case which.All:
		what += " in all contexts"
	case which.Context != "":
		what += fmt.Sprintf(" in context %q", which.Context)
	}
	return what
}

func (h *handlers) exportLearned(ctx context.Context, c *app.RequestContext) (any, error) {
	name, which, err := learnedSelection(c)
	if err != nil {
		return nil, err
	}
	s, err := h.control.ExportLearned(ctx, name, which)
	if err != nil {
		return nil, err
	}
	body, err := json.Marshal(s)
	if err != nil {
		return nil, fmt.Errorf("cannot encode what was learned: %w", err)
	}
	if len(body) > MaxBodyBytes {
		return nil, api.Errorf(api.TooLarge, "what function %s has learned in %d states takes %d bytes, and an import accepts at most %d: export the global state or single contexts, or back up the store",
			name, len(s.States), len(body), MaxBodyBytes)
	}
	writeJSON(c, 200, body)
	return nil, nil
}

func (h *handlers) importLearned(ctx context.Context, c *app.RequestContext) (any, error) {
	name, err := nameOf(c, "function", "dry_run")
	if err != nil {
		return nil, err
	}
	q, err := query(c, "dry_run")
	if err != nil {
		return nil, err
	}
	dryRun, err := q.boolean("dry_run")
	if err != nil {
		return nil, err
	}
	var s api.LearnedState
	if err := jsonBody(c, &s, `what "xebec learn export" prints`); err != nil {
		return nil, err
	}
	setSubject(c, dryRun, subjectOf(name, api.LearnedSelection{All: s.All}))
	return orNothing(h.control.ImportLearned(ctx, name, s, dryRun))
}

func (h *handlers) resetLearned(ctx context.Context, c *app.RequestContext) (any, error) {
	name, which, err := learnedSelection(c)
	if err != nil {
		return nil, err
	}
	setSubject(c, false, subjectOf(name, which))
	return orNothing(h.control.ResetLearned(ctx, name, which))
}

// orNothing is a change, or nothing with its error.
func orNothing(change api.LearnedChange, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	return change, nil
}

func (h *handlers) learnedHistory(ctx context.Context, c *app.RequestContext) (any, error) {
	name, err := nameOf(c, "function")
	if err != nil {
		return nil, err
	}
	history, err := h.control.LearnedHistory(ctx, name)
	history.Samples = notNil(history.Samples)
	return history, err
}
