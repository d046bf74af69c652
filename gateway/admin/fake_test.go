package admin

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/cloudwego/hertz/pkg/common/hlog"
	"go.uber.org/goleak"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/api/manifest"
)

func TestMain(m *testing.M) {
	hlog.SetLevel(hlog.LevelFatal) // it prints every route of every engine
	// Hertz keeps one goroutine for the Date header until the program ends.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/cloudwego/hertz/pkg/protocol.UpdateServerDate.func1"))
}

var testTime = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// fakeControl is a gateway with one model in two versions and one function. It records its arguments.
type fakeControl struct {
	mu      sync.Mutex
	applied *manifest.Set
	dryRun  bool
	dir     string
	command []string
	deleted []string
	query   api.LogQuery
	// moved records calls of Promote and Rollback, asked those of History; caller is the caller of the last change.
	moved  []string
	asked  []string
	caller api.Caller
	// seen is the seen argument of the last change.
	seen []api.ObjectRevision
	// nothing makes Export return an empty set.
	nothing bool
	// env is the environment of the models. With it, Export has one of them.
	env map[string]api.EnvValue
	// unread makes every model that is asked for by name one that is not known yet.
	unread bool
	// err is the error of every method, if set.
	err error
	// lines provides the future lines for Logs; logsErr is its error.
	lines   chan api.LogLine
	logsErr error
}

func (f *fakeControl) Apply(ctx context.Context, set *manifest.Set, dryRun bool, seen ...api.ObjectRevision) ([]api.Change, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.applied, f.dryRun, f.caller, f.seen = set, dryRun, api.CallerOf(ctx), seen
	var changes []api.Change
	for _, m := range set.Models {
		changes = append(changes, api.Change{Kind: api.KindModel, Name: m.Name, Version: m.Version, Action: api.Created})
	}
	for _, fn := range set.Functions {
		changes = append(changes, api.Change{Kind: api.KindFunction, Name: fn.Name, Action: api.Updated})
	}
	for i := range set.Traffic {
		changes = append(changes, api.Change{Kind: api.KindTraffic, Name: set.Traffic[i].Model, Action: api.Updated})
	}
	return changes, f.err
}

func (f *fakeControl) Deploy(_ context.Context, q api.Deployment) ([]api.Change, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.dir = q.Dir
	return []api.Change{{Kind: api.KindModel, Name: "digits-svm", Version: "1", Action: api.Unchanged}}, f.err
}

func (f *fakeControl) Inspect(_ context.Context, dir string, command []string, emit func(api.LogLine) error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.dir, f.command = dir, command
	if f.err != nil {
		return f.err
	}
	if err := emit(api.LogLine{Time: testTime, Replica: 7, Stream: "stderr", Text: "loading"}); err != nil {
		return err
	}
	if f.logsErr != nil {
		return f.logsErr
	}
	return emit(api.LogLine{Time: testTime, Replica: 7, Stream: "stdout", Text: "{}"})
}

func model(version string) api.ModelStatus {
	return api.ModelStatus{
		Spec: api.ModelSpec{
			Name: "digits-svm", Version: version,
			Inputs:  []api.TensorSpec{{Name: "input", DType: api.Float32, Shape: []int64{64}}},
			Outputs: []api.TensorSpec{{Name: "output", DType: api.Int64}},
			Run:     api.RunSpec{Command: []string{"python", "model.py"}},
		}.WithDefaults(),
		State: api.ModelReady, Serving: version == "2", ServingVersion: "2", Created: testTime,
		Replicas: []api.ReplicaStatus{{ID: 1, PID: 42, State: api.ReplicaReady, Since: testTime}},
	}
}

func function() api.FunctionStatus {
	return api.FunctionStatus{
		Spec:     api.FunctionSpec{Name: "digits", Models: []string{"digits-svm"}}.WithDefaults(),
		Revision: 5, Ready: true, Models: []string{"digits-svm@2"}, Created: testTime,
	}
}

func (f *fakeControl) Models(_ context.Context, name string) ([]api.ModelStatus, error) {
	if f.err != nil {
		return nil, f.err
	}
	if f.unread && name != "" {
		return nil, api.Errorf(api.Unavailable, "model %q is not known yet: %w", name, &api.UnreadError{Why: "a watched directory of models has not been read yet"})
	}
	switch name {
	case "", "digits-svm":
		all := []api.ModelStatus{model("1"), model("2")}
		for i := range all {
			all[i].Spec.Run.Env = f.env
		}
		return all, nil
	case "single", "unchanged":
		m := model("1")
		m.Spec.Name, m.Revision = name, 6
		return []api.ModelStatus{m}, nil
	}
	return nil, api.Errorf(api.NotFound, "no model %q", name)
}

func (f *fakeControl) Functions(_ context.Context, name string) ([]api.FunctionStatus, error) {
	if f.err != nil {
		return nil, f.err
	}
	if name != "" && name != "digits" {
		return nil, api.Errorf(api.NotFound, "no function %q", name)
	}
	all := []api.FunctionStatus{function()}
	if name == "" {
		other := function()
		other.Spec.Name, other.Spec.Models = "other", []string{"another"}
		all = append(all, other)
	}
	return all, nil
}

func (f *fakeControl) Gateway(context.Context) (api.GatewayStatus, error) {
	return api.GatewayStatus{Version: "v1.2.3", GoVersion: "go1.26", PID: 7, Listen: "127.0.0.1:1337", Ready: true, Models: 2, Functions: 1}, f.err
}

func (f *fakeControl) Scheduler(context.Context) (api.SchedulerStatus, error) {
	return api.SchedulerStatus{
		State: api.SchedulerAwake, EpochMicros: 10000, Epochs: 12, PlannedAt: testTime, PlanMicros: 40, PlanP99Micros: 90,
		Functions: []api.FunctionPlanStatus{{Name: "digits", Weight: 1, QueriesPerSecond: 100, SLOMicros: 20000, Candidates: []api.CandidateStatus{{Model: "digits-svm@2", Evaluated: 1, Gain: 1}}}, {Name: "new", Weight: 2}},
		Models:    []api.ModelPlanStatus{{Model: "digits-svm@2", Execution: "whole"}},
	}, f.err
}

func (f *fakeControl) Delete(_ context.Context, kind api.Kind, id api.ModelID, seen ...api.ObjectRevision) ([]api.Change, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.seen = seen
	f.deleted = append(f.deleted, string(kind)+" "+id.String())
	return []api.Change{{Kind: kind, Name: id.Name, Version: id.Version, Action: api.Deleted}}, f.err
}

func traffic() api.TrafficStatus {
	return api.TrafficStatus{
		Spec:     api.TrafficSpec{Model: "digits-svm", Serving: "2", Split: &api.VersionShare{Version: "1", Percent: 10}},
		Revision: 7, Declared: true, Serving: "2", Arms: []api.ArmStatus{{Version: "2", Rule: "serving", Share: 0.9}, {Version: "1", Rule: "split", Share: 0.1}},
	}
}

func (f *fakeControl) Traffic(_ context.Context, name string) ([]api.TrafficStatus, error) {
	if f.err != nil {
		return nil, f.err
	}
	if name != "" && name != "digits-svm" {
		return nil, api.Errorf(api.NotFound, "no model %q", name)
	}
	return []api.TrafficStatus{traffic()}, nil
}

func (f *fakeControl) move(ctx context.Context, what, model, version string, seen []api.ObjectRevision) ([]api.Change, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.moved, f.caller, f.seen = append(f.moved, what), api.CallerOf(ctx), seen
	return []api.Change{{Kind: api.KindTraffic, Name: model, Version: version, Action: api.Updated}}, f.err
}

func (f *fakeControl) Promote(ctx context.Context, model, version string, seen ...api.ObjectRevision) ([]api.Change, error) {
	return f.move(ctx, "promote "+model+"@"+version, model, version, seen)
}

func (f *fakeControl) Rollback(ctx context.Context, model, to, reason string, seen ...api.ObjectRevision) ([]api.Change, error) {
	return f.move(ctx, "rollback "+model+"@"+to+" "+reason, model, to, seen)
}

func (f *fakeControl) History(_ context.Context, name string, limit int) ([]api.HistoryEvent, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = append(f.asked, fmt.Sprintf("%s %d", name, limit))
	if f.err != nil || name == "unknown" || name == "unchanged" {
		return nil, f.err
	}
	return []api.HistoryEvent{{Revision: 7, Time: testTime, By: "ann@laptop (127.0.0.1)", Action: "promoted", Kind: api.KindTraffic, Name: "digits-svm", Version: "2"}}, nil
}

func (f *fakeControl) Export(context.Context) (*manifest.Set, error) {
	if f.err != nil {
		return nil, f.err
	}
	if f.nothing {
		return &manifest.Set{}, nil
	}
	set := &manifest.Set{Functions: []api.FunctionSpec{function().Spec}}
	if f.env != nil {
		m := model("1").Spec
		m.Run.Env = f.env
		set.Models = []api.ModelSpec{m}
	}
	return set, nil
}

func (f *fakeControl) Logs(ctx context.Context, q api.LogQuery, emit func(api.LogLine) error) error {
	f.mu.Lock()
	f.query = q
	f.mu.Unlock()
	if f.err != nil {
		return f.err
	}
	for i := range min(q.Lines, 2) {
		if err := emit(api.LogLine{Time: testTime, Version: "1", Replica: uint64(i + 1), Stream: "stdout", Text: "line"}); err != nil {
			return err
		}
	}
	for q.Follow {
		select {
		case line, more := <-f.lines:
			if !more {
				return f.logsErr
			}
			if err := emit(line); err != nil {
				return err
			}
		case <-ctx.Done():
			return nil
		}
	}
	return f.logsErr
}
