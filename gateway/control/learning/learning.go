package learning

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/internal/numerals"
	"github.com/xebec-serving/xebec/gateway/internal/state"
	"github.com/xebec-serving/xebec/gateway/learned"
	"github.com/xebec-serving/xebec/gateway/selection"
)

// maxExported bounds the states of an export. A hundred thousand small ones are as large as a body of the admin API may be.
const maxExported = 100_000 //xebec:limit states in an export of what was learned

// Config is what Learning needs of the gateway.
type Config struct {
	Table *learned.Table
	// Spec returns a declared function.
	Spec func(function string) (*api.FunctionSpec, bool)
	// Refusing returns why no change may be made now, or nil.
	Refusing func() error
	// Notes keep the history; nil: it is only the present.
	Notes state.Notes
	Log   *zap.Logger
}

// Learning is safe for concurrent use.
type Learning struct {
	cfg     Config
	sampler sampler
}

// New makes a Learning. Run takes its samples.
func New(cfg Config) *Learning {
	return &Learning{cfg: cfg, sampler: sampler{last: map[string]sampled{}}}
}

// function returns a declared function, or an error if nothing can be learned in it.
func (l *Learning) function(name string) (*api.FunctionSpec, error) {
	spec, ok := l.cfg.Spec(name)
	if !ok {
		return nil, api.Errorf(api.NotFound, "no function %q", name)
	}
	if l.cfg.Table.Learning(name) == nil {
		return nil, api.Errorf(api.Conflict, "function %s has the policy %s, which does not learn: see %q", name, spec.Policy.Name, "xebec describe function "+name)
	}
	return spec, nil
}

// ExportLearned implements the admin API.
func (l *Learning) ExportLearned(ctx context.Context, function string, which api.LearnedSelection) (api.LearnedState, error) {
	spec, err := l.function(function)
	if err == nil {
		err = checkSelection(which)
	}
	if err != nil {
		return api.LearnedState{}, err
	}
	e, err := l.cfg.Table.Export(ctx, function, learned.Which{Context: which.Context, All: which.All, Most: maxExported})
	if err != nil {
		return api.LearnedState{}, explain(function, which.Context, err)
	}
	out := api.LearnedState{
		Version: api.LearnedStateVersion, Function: function, Policy: spec.Policy, Candidates: e.Candidates, All: which.All, Value: e.Value,
		States: make([]api.LearnedContext, len(e.States)),
	}
	if e.Policy != spec.Policy.Name { // declared again meanwhile
		out.Policy = api.PolicySpec{Name: e.Policy}
	}
	for i, s := range e.States {
		c := api.LearnedContext{Rows: make([]api.LearnedRow, len(s.Rows))}
		c.SetContext(s.Context)
		for k, row := range s.Rows {
			c.Rows[k] = api.LearnedRow{
				Candidate: e.Candidates[k], Count: row[selection.SlotCount], LossSum: row[selection.SlotLoss], Own: row[selection.FirstOwnSlot:],
			}
		}
		out.States[i] = c
	}
	return out, nil
}

// ImportLearned implements the admin API.
func (l *Learning) ImportLearned(ctx context.Context, function string, s api.LearnedState, dryRun bool) (api.LearnedChange, error) {
	out := api.LearnedChange{Function: function, DryRun: dryRun}
	spec, err := l.function(function)
	if err != nil {
		return out, err
	}
	edit, err := editOf(spec, &s)
	if err != nil {
		return out, api.Errorf(api.InvalidArgument, "%w", err)
	}
	if s.Function != function {
		out.Notes = append(out.Notes, "it was learned in the function "+s.Function)
	}
	if !s.Policy.Equal(spec.Policy) {
		out.Notes = append(out.Notes, "it was learned under "+s.Policy.String()+", and the function has "+spec.Policy.String())
	}
	if dryRun {
		out.States = len(edit.States)
		if err := l.cfg.Table.Fits(function, edit); err != nil {
			return out, explain(function, "", err)
		}
		return out, nil
	}
	out.States, err = l.replace(ctx, function, "", edit, api.LearnedImport)
	return out, err
}

// editOf checks what of a state does not depend on the policy. Rows are put in the order of the function's candidates.
func editOf(spec *api.FunctionSpec, s *api.LearnedState) (learned.Edit, error) {
	e := learned.Edit{Others: s.All, Value: s.Value}
	switch {
	case s.Version != api.LearnedStateVersion:
		return e, fmt.Errorf("version %d of the form: this gateway reads version %d", s.Version, api.LearnedStateVersion)
	case s.Policy.Name != spec.Policy.Name:
		return e, fmt.Errorf("it was learned by the policy %q, and function %s has %q: their numbers have different meanings", s.Policy.Name, spec.Name, spec.Policy.Name)
	}
	at := make([]int, len(spec.Models)) // of the function's candidates among those of the state
	var missing, unknown []string
	for i, ref := range spec.Models {
		if at[i] = slices.Index(s.Candidates, ref); at[i] < 0 {
			missing = append(missing, ref)
		}
	}
	for _, ref := range s.Candidates {
		if !slices.Contains(spec.Models, ref) {
			unknown = append(unknown, ref)
		}
	}
	if len(missing)+len(unknown) > 0 || len(s.Candidates) != len(spec.Models) {
		text := fmt.Sprintf("its candidates are %s, and those of function %s %s", list(s.Candidates), spec.Name, list(spec.Models))
		if len(missing) > 0 {
			text += "; it lacks " + list(missing)
		}
		if len(unknown) > 0 {
			text += "; the function does not have " + list(unknown)
		}
		return e, errors.New(text + ": declare the same models, import, and change them afterwards")
	}
	for i := range s.States {
		c := &s.States[i]
		context, err := c.ContextBytes()
		if err != nil {
			return e, err
		}
		if len(c.Rows) != len(s.Candidates) {
			return e, fmt.Errorf("states[%d] has %s: expected one for each of %d candidates", i, numerals.Count(len(c.Rows), "row"), len(s.Candidates))
		}
		saved := learned.Saved{Context: context, Rows: make([][]float64, len(at))}
		for k, from := range at {
			row := &c.Rows[from]
			if row.Candidate != s.Candidates[from] {
				return e, fmt.Errorf("states[%d].rows[%d] is of %q: expected %s, as in candidates", i, from, row.Candidate, s.Candidates[from])
			}
			saved.Rows[k] = append([]float64{row.Count, row.LossSum}, row.Own...)
		}
		e.States = append(e.States, saved)
	}
	if len(e.States) == 0 {
		return e, errors.New("it has no states")
	}
	return e, nil
}

// list names some of the refs.
func list(refs []string) string {
	const most = 8
	if more := len(refs) - most; more > 0 {
		return strings.Join(refs[:most], ", ") + fmt.Sprintf(" and %d more", more)
	}
	return strings.Join(refs, ", ")
}

// ResetLearned implements the admin API.
func (l *Learning) ResetLearned(ctx context.Context, function string, which api.LearnedSelection) (api.LearnedChange, error) {
	out := api.LearnedChange{Function: function}
	_, err := l.function(function)
	if err == nil {
		err = checkSelection(which)
	}
	if err != nil {
		return out, err
	}
	n, err := l.replace(ctx, function, which.Context, learned.Edit{States: []learned.Saved{{Context: which.Context}}, Others: which.All}, api.LearnedReset)
	if out.States = n; err == nil && n == 0 {
		err = explain(function, which.Context, learned.ErrNoContext)
	}
	return out, err
}

// checkSelection refuses a selection that contradicts itself. It is asked for functions that there are.
func checkSelection(which api.LearnedSelection) error {
	if which.All && which.Context != "" {
		return api.Errorf(api.InvalidArgument, "context and all exclude each other: expected one context, or all of them")
	}
	return nil
}

// replace makes an edit, and takes a sample of the result.
func (l *Learning) replace(ctx context.Context, function, context string, e learned.Edit, reason string) (int, error) {
	if err := l.cfg.Refusing(); err != nil {
		return 0, err
	}
	n, err := l.cfg.Table.Replace(ctx, function, e)
	if err != nil {
		return n, explain(function, context, err)
	}
	if context == "" {
		l.take(ctx, function, reason, api.CallerOf(ctx).String(), time.Now())
	}
	return n, nil
}

// explain gives an error of the table its code.
func explain(function, context string, err error) error {
	var refused *state.RefusedError
	switch {
	case errors.Is(err, learned.ErrNotFitting):
		return api.Errorf(api.InvalidArgument, "%w", err)
	case errors.Is(err, learned.ErrNoContext):
		return api.Errorf(api.NotFound, "function %s, context %q: %w", function, context, err)
	case errors.Is(err, learned.ErrNoFunction), errors.Is(err, learned.ErrElsewhere):
		return api.Errorf(api.Conflict, "function %s: %w", function, err)
	case errors.Is(err, learned.ErrTooMany):
		return api.Errorf(api.Conflict, "function %s: %w: an export has at most %d states; export the global state or single contexts, or back up the store", function, err, maxExported)
	case errors.As(err, &refused):
		return api.Errorf(api.Conflict, "function %s: %w", function, err)
	}
	return api.Errorf(api.Unavailable, "function %s: %w; some states may have changed: try again, which is safe", function, err)
}
