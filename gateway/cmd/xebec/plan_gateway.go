package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/cmd/xebec/capacity"
	"github.com/xebec-serving/xebec/scheduler"
)

// planSamples is how many batches a replica must have evaluated before its profile is planned with.
const planSamples = 16

// planTarget fills in what the gateway knows of a function or model, where the flags do not say it. It returns what is to be noted, and the
// functions that ask the model.
func (c *cli) planTarget(ctx context.Context, o *planOptions, q *capacity.Question) (notes, functions []string, err error) {
	id, err := api.ParseModelRef(o.target)
	if err != nil {
		return nil, nil, usageError{err}
	}
	m, askedBy, err := c.planModel(ctx, id)
	if err != nil {
		return nil, nil, planWithout(err)
	}
	for i := range askedBy {
		functions = append(functions, askedBy[i].Spec.Name)
	}
	if err := planObjective(o, q, m, askedBy); err != nil {
		return nil, nil, err
	}
	if o.profile == "" {
		var note string
		if q.Model.Profile, note, err = planProfile(m); err != nil {
			return nil, nil, err
		}
		if note != "" {
			notes = append(notes, note)
		}
	}
	q.Model.Config = planConfig(&m.Spec)
	if !o.changed("start") && m.Capacity != nil && m.Capacity.StartMS > 0 {
		q.Model.StartNanos = int64(m.Capacity.StartMS * 1e6)
	}
	if err := planBounds(o, q, &m.Spec.Replicas); err != nil {
		return nil, nil, err
	}
	notes = append(notes, fmt.Sprintf("planned for model %s, asked by %s", m.Spec.ID(), orDash(strings.Join(functions, ", "))))
	if m.Spec.Device != "" {
		notes = append(notes, fmt.Sprintf("it shares the device %s in turns: this is planned as if it had it alone, and one per replica", m.Spec.Device))
	}
	return notes, functions, nil
}

// planModel finds the model version that a name means: of a function the one that answers it, of a model the one that serves.
func (c *cli) planModel(ctx context.Context, id api.ModelID) (*api.ModelStatus, []api.FunctionStatus, error) {
	var remote *remoteError
	if id.Version == "" {
		var f api.FunctionDescription
		err := c.get(ctx, "/v1/describe/function/"+id.Name, &f)
		switch {
		case err == nil:
			m, err := planOneModel(&f)
			return m, []api.FunctionStatus{f.Function}, err
		case !errors.As(err, &remote) || remote.Code != api.NotFound.String():
			return nil, nil, err
		}
	}
	var d api.ModelDescription
	if err := c.get(ctx, "/v1/describe/model/"+id.Name, &d); err != nil {
		if errors.As(err, &remote) && remote.Code == api.NotFound.String() {
			return nil, nil, &remoteError{api.ErrorInfo{Code: remote.Code, Message: fmt.Sprintf("there is no function and no model %q: %q and %q list them", id.Name, "xebec get functions", "xebec get models")}}
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
	return nil, nil, &remoteError{api.ErrorInfo{Code: api.NotFound.String(), Message: problem}}
}

func planOneModel(f *api.FunctionDescription) (*api.ModelStatus, error) {
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
		problem = fmt.Sprintf("it asks several models: plan for each of %s, with its part of the queries", strings.Join(ids, ", "))
	}
	return nil, &remoteError{api.ErrorInfo{Code: api.InvalidArgument.String(), Message: fmt.Sprintf("function %s cannot be planned for: %s", f.Function.Spec.Name, problem)}}
}

// planObjective takes the tightest one of the functions that ask the model.
func planObjective(o *planOptions, q *capacity.Question, m *api.ModelStatus, functions []api.FunctionStatus) error {
	var slo time.Duration
	for i := range functions {
		f := &functions[i].Spec
		if slo == 0 || f.SLO < slo {
			slo = f.SLO
			if !o.changed("cold-start") {
				q.Model.ColdStartNanos = int64(f.ColdStart)
			}
		}
	}
	if o.slo == 0 {
		if q.Model.SLONanos = int64(slo); slo == 0 {
			return fmt.Errorf("no function asks model %s, so that it has no objective: give one, as --slo 50ms", m.Spec.ID())
		}
	}
	return nil
}

// planProfile is the mean over the replicas that have shown enough; where none has, as of a model that sleeps, it is what the gateway
// remembers, and a note says so.
func planProfile(m *api.ModelStatus) (p capacity.Profile, note string, err error) {
	n, most, single := 0.0, uint64(0), m.Spec.Batching.Max > 1 // most: batches; single: of one query all of them, although larger ones may come
	add := func(intercept, slope float64, ones bool) {
		n++
		p.FixedNanos += intercept * 1e3
		p.EachNanos += slope * 1e3
		single = single && slope == 0 && ones
	}
	for i := range m.Replicas {
		r := &m.Replicas[i].Profile
		most = max(most, r.Samples)
		if r.Samples >= planSamples && planTimes(r.InterceptMicros, r.SlopeMicros) {
			add(r.InterceptMicros, r.SlopeMicros, m.Replicas[i].Queries <= m.Replicas[i].Batches)
		}
	}
	if m.Capacity != nil && n == 0 {
		if k := m.Capacity.Profile; k != nil && k.Batches >= planSamples && planTimes(k.InterceptMicros, k.SlopeMicros) {
			add(k.InterceptMicros, k.SlopeMicros, k.MeanBatch <= 1)
			note = fmt.Sprintf("no replica of it has evaluated %d batches now: its profile is what was known of those before, from %d batches", planSamples, k.Batches)
		}
	}
	switch {
	case n == 0 && most >= planSamples:
		return p, "", fmt.Errorf("the gateway does not say what a batch of model %s takes: is it of an older version than this program? Then say it, as --profile 2ms+0.1ms", m.Spec.ID())
	case n == 0:
		has := fmt.Sprintf("has evaluated %d", most)
		if len(m.Replicas) == 0 {
			has = "is there now, or was known before"
		}
		return p, "", fmt.Errorf("model %s has no profile yet: it takes %d batches of one replica, and none %s; ask it %d times or more, with several inputs at a time "+
			"(\"xebec invoke\", \"xebec replay\", a request with \"input_batch\"), or say what a batch takes, as --profile 2ms+0.1ms", m.Spec.ID(), planSamples, has, planSamples)
	}
	if single {
		return p, "", fmt.Errorf("all batches of model %s have had one query, so that nobody knows what larger ones take: send it several at a time (\"xebec replay\", a request with \"input_batch\"), "+
			"or say what a batch takes, as --profile 2ms+0.1ms", m.Spec.ID())
	}
	p.FixedNanos /= n
	p.EachNanos /= n
	return p, note, nil
}

// planTimes reports whether a batch can take so long.
func planTimes(interceptMicros, slopeMicros float64) bool {
	return interceptMicros >= 0 && slopeMicros >= 0 && interceptMicros+slopeMicros > 0
}

// planConfig is how the gateway schedules the model.
func planConfig(spec *api.ModelSpec) scheduler.Config {
	c := scheduler.DefaultConfig()
	c.MaxQueue = spec.Queue.Max
	c.Retry = spec.Retries()
	c.Batching = scheduler.Batching{
		Policy: scheduler.AIMD, MaxBatch: spec.Batching.Max, MaxBatchBytes: int(spec.Batching.MaxBytes), HoldNanos: int64(spec.Batching.Hold),
		ObjectiveNanos: int64(spec.Batching.Objective), Pad: spec.Batching.Pad,
	}
	switch spec.Batching.Policy {
	case api.BatchFixed:
		c.Batching.Policy = scheduler.Fixed
	case api.BatchNone:
		c.Batching.Policy = scheduler.None
	case api.BatchQuantile:
		c.Batching.Policy = scheduler.Quantile
	}
	return c
}

// planBounds takes the model's for those that no flag says. A number that is fixed says nothing of how it would be scaled.
func planBounds(o *planOptions, q *capacity.Question, r *api.ReplicaBounds) error {
	b := &q.Bounds
	if r.Scales() {
		if !o.changed("min") {
			b.Min = r.Min
		}
		if !o.changed("max") {
			b.Max = max(r.Max, b.Min)
		}
	}
	for _, d := range []struct {
		flag string
		of   *int64
		says time.Duration
	}{{"idle", &b.IdleNanos, r.Idle}, {"window", &b.WindowNanos, r.Window}, {"delay", &b.DelayNanos, r.Delay}} {
		if !o.changed(d.flag) && d.says > 0 {
			*d.of = int64(d.says)
		}
	}
	if !o.changed("utilization") && r.Utilization > 0 {
		b.Utilization = r.Utilization
	}
	if r.Up > 0 && r.Down > 0 {
		b.Up, b.Down = r.Up, r.Down
	}
	if b.Max > 0 && b.Min > b.Max {
		return usagef("--max %d is less than the model's replicas.min, %d: give --min too", b.Max, b.Min)
	}
	return nil
}
