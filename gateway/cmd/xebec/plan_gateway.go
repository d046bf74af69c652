package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/forecast"
	"github.com/xebec-serving/xebec/gateway/internal/numerals"
	"github.com/xebec-serving/xebec/scheduler"
)

// planTarget completes a question with what the gateway reports about a function or model, unless flags say it. It
// returns notes, the functions that ask the model, and what was measured of it.
func (c *cli) planTarget(ctx context.Context, o *planOptions, q *forecast.Question) (notes, functions []string, measured *api.MeasuredStatus, err error) {
	id, err := api.ParseModelRef(o.target)
	if err != nil {
		return nil, nil, nil, usageError{err}
	}
	m, askedBy, err := c.planModel(ctx, id)
	if err != nil {
		return nil, nil, nil, orPlanWithout(err)
	}
	for i := range askedBy {
		functions = append(functions, askedBy[i].Spec.Name)
	}
	slo, coldStart := forecast.ObjectiveOf(askedBy)
	if o.slo == 0 {
		if q.Model.SLONanos = int64(slo); slo == 0 {
			return nil, nil, nil, fmt.Errorf("model %s has no objective, because no function asks it: give one, such as --slo 50ms", m.Spec.ID())
		}
	}
	if !o.changed("cold-start") {
		q.Model.ColdStartNanos = int64(coldStart)
	}
	if o.profile == "" {
		var remembered uint64
		if q.Model.Profile, remembered, err = forecast.ProfileOf(m); err != nil {
			return nil, nil, nil, profileHint(err, m.Measured)
		}
		if remembered > 0 {
			note := fmt.Sprintf("its replicas have evaluated fewer than %d batches: the profile is that of earlier ones, from %d batches", forecast.MinBatches, remembered)
			if k := m.Capacity.Profile; !k.At.IsZero() {
				note += ", measured " + ago(time.Since(k.At))
				if k.Kept {
					note += ", before the gateway started"
				}
			}
			notes = append(notes, note)
		}
	}
	if m.Measured != nil && m.Measured.Accuracy != nil {
		a := m.Measured.Accuracy
		notes = append(notes, fmt.Sprintf("by feedback it is right in %s of its answers (%s, %s)", numerals.Percent(a.Accuracy), numerals.Count(a.Labels, "label"), ago(time.Since(a.At))))
	}
	q.Model.Config = scheduler.ConfigOf(&m.Spec)
	if !o.changed("start") && m.Capacity != nil && m.Capacity.StartMS > 0 {
		q.Model.StartNanos = int64(m.Capacity.StartMS * 1e6)
	}
	if err := o.bounds(q, &m.Spec.Replicas); err != nil {
		return nil, nil, nil, err
	}
	notes = append(notes, fmt.Sprintf("planned for model %s, which %s", m.Spec.ID(), asking(functions)))
	if m.Spec.Device != "" {
		notes = append(notes, fmt.Sprintf("the model shares the device %s: the plan assumes that each replica has a device to itself", m.Spec.Device))
	}
	return notes, functions, m.Measured, nil
}

// asking is "function digits asks".
func asking(functions []string) string {
	switch len(functions) {
	case 0:
		return "no function asks"
	case 1:
		return "function " + functions[0] + " asks"
	}
	return "functions " + strings.Join(functions, ", ") + " ask"
}

// planModel finds the model version that a name means: the one that answers a function, or the one of a model that
// serves.
func (c *cli) planModel(ctx context.Context, id api.ModelID) (*api.ModelStatus, []api.FunctionStatus, error) {
	var remote *remoteError
	if id.Version == "" {
		var f api.FunctionDescription
		err := c.get(ctx, "/v1/describe/function/"+id.Name, &f)
		switch {
		case err == nil:
			m, err := onlyModel(&f)
			return m, []api.FunctionStatus{f.Function}, err
		case !errors.As(err, &remote) || remote.Code != api.NotFound.String():
			return nil, nil, err
		}
	}
	var d api.ModelDescription
	if err := c.get(ctx, "/v1/describe/model/"+id.Name, &d); err != nil {
		if errors.As(err, &remote) && remote.Code == api.NotFound.String() {
			return nil, nil, &remoteError{ErrorInfo: api.ErrorInfo{Code: remote.Code, Message: fmt.Sprintf("there is no function or model %q: %q and %q list them", id.Name, "xebec get functions", "xebec get models")}}
		}
		return nil, nil, err
	}
	for i := range d.Models {
		m := &d.Models[i]
		if id.Version == m.Spec.Version || id.Version == "" && (m.Serving || len(d.Models) == 1) {
			return m, d.Functions, nil
		}
	}
	var has []string
	for i := range d.Models {
		has = append(has, d.Models[i].Spec.ID().String())
	}
	problem := fmt.Sprintf("there is no model %s: expected one of %s", id, strings.Join(has, ", "))
	if id.Version == "" {
		problem = fmt.Sprintf("no version of model %s serves: name one of %s", id.Name, orDash(strings.Join(has, ", ")))
	}
	return nil, nil, &remoteError{ErrorInfo: api.ErrorInfo{Code: api.NotFound.String(), Message: problem}}
}

// onlyModel is the model of a function that has one.
func onlyModel(f *api.FunctionDescription) (*api.ModelStatus, error) {
	ids := make([]string, len(f.Models))
	for i := range f.Models {
		ids[i] = f.Models[i].Spec.ID().String()
	}
	var problem string
	switch len(ids) {
	case 1:
		return &f.Models[0], nil
	case 0:
		problem = "no version of its models is loaded; give --profile and --slo instead"
	default:
		problem = fmt.Sprintf("it asks several models: plan for each of %s with its share of the queries", strings.Join(ids, ", "))
	}
	return nil, &remoteError{ErrorInfo: api.ErrorInfo{Code: api.InvalidArgument.String(), Message: fmt.Sprintf("cannot plan for function %s: %s", f.Function.Spec.Name, problem)}}
}

// profileHint adds what the user can do about a missing profile.
func profileHint(err error, m *api.MeasuredStatus) error {
	orGive := "or give the time of a batch, such as --profile 2ms+0.1ms"
	if m != nil && len(m.Elsewhere) > 0 {
		e := &m.Elsewhere[0]
		orGive = fmt.Sprintf("or plan with what was measured on other hardware (%s): --profile %s", e.Hardware, batchTime(&e.Latency))
	}
	switch {
	case errors.Is(err, forecast.ErrTooFewBatches):
		return fmt.Errorf("%w; send it %d queries or more, several at a time (\"xebec replay\", a request with \"input_batch\"), %s", err, forecast.MinBatches, orGive)
	case errors.Is(err, forecast.ErrSingleQueries):
		return fmt.Errorf("%w; send several queries at a time (\"xebec replay\", a request with \"input_batch\"), %s", err, orGive)
	case errors.Is(err, forecast.ErrNoBatchTimes):
		return fmt.Errorf("%w; if it is older than this program, upgrade it, %s", err, orGive)
	}
	return err
}

// bounds overrides the question's bounds with those of the model, except where a flag is given.
func (o *planOptions) bounds(q *forecast.Question, r *api.ReplicaBounds) error {
	flags := q.Bounds
	b := forecast.BoundsOf(r, flags)
	if o.changed("min") {
		b.Min = flags.Min
	}
	switch {
	case o.changed("max"):
		b.Max = flags.Max
	case r.Scales():
		b.Max = max(b.Max, b.Min)
	}
	if o.changed("idle") {
		b.IdleNanos = flags.IdleNanos
	}
	if o.changed("window") {
		b.WindowNanos = flags.WindowNanos
	}
	if o.changed("delay") {
		b.DelayNanos = flags.DelayNanos
	}
	if o.changed("utilization") {
		b.Utilization = flags.Utilization
	}
	if b.Max > 0 && b.Min > b.Max {
		return usagef("--max %d is less than the model's replicas.min, %d: give --min too", b.Max, b.Min)
	}
	q.Bounds = b
	return nil
}

// orPlanWithout adds to an unreachable gateway how to plan without one.
func orPlanWithout(err error) error {
	var remote *remoteError
	if errors.As(err, &remote) || errors.Is(err, context.Canceled) || errors.As(err, new(usageError)) {
		return err
	}
	return fmt.Errorf("%w\nor plan without a gateway: xebec plan --profile 2ms+0.1ms --slo 50ms --rate 2000", err)
}
