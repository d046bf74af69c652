package server

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/api/manifest"
	"github.com/xebec-serving/xebec/containers"
	"go.uber.org/goleak"
	"go.uber.org/zap"
)

func TestMain(m *testing.M) {
	// netpoll's pollers and Hertz's clock live as long as the process.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/cloudwego/netpoll.(*defaultPoll).Wait"),
		goleak.IgnoreAnyFunction("github.com/bytedance/gopkg/util/gopool.(*worker).run.func1"), goleak.IgnoreAnyFunction("github.com/cloudwego/hertz/pkg/protocol.UpdateServerDate.func1"),
		goleak.IgnoreAnyFunction("net/http.(*persistConn).readLoop"), goleak.IgnoreAnyFunction("net/http.(*persistConn).writeLoop"))
}

// idleRuntime runs replicas that never connect.
type idleRuntime struct {
	launched chan containers.Launch
}

func (r *idleRuntime) Start(_ context.Context, l containers.Launch) (containers.Instance, error) {
	r.launched <- l
	return &idleInstance{gone: make(chan struct{})}, nil
}

func (r *idleRuntime) Close() error { return nil }

type idleInstance struct {
	once sync.Once
	gone chan struct{}
}

func (i *idleInstance) PID() int                { return 1 }
func (i *idleInstance) Exited() <-chan struct{} { return i.gone }
func (i *idleInstance) Exit() containers.Exit   { return containers.Exit{At: time.Now()} }
func (i *idleInstance) Signal(bool) error {
	i.once.Do(func() { close(i.gone) })
	return nil
}

const model = `
kind: Model
name: m
version: "1"
inputs:  [{name: input, dtype: float32, shape: [4]}]
outputs: [{name: output, dtype: int64, shape: []}]
run: {command: [python, model.py], env: {A: b}}
replicas: {min: 1, max: 2}
`

const fn = `
---
kind: Function
name: f
models: [m]
slo: 20ms
default: -1
`

// started is a gateway over a runtime whose replicas never connect.
func started(t *testing.T, cfg Config) (*Server, *idleRuntime, string) {
	t.Helper()
	rt := &idleRuntime{launched: make(chan containers.Launch, 16)}
	ctx, cancel := context.WithCancel(context.Background())
	addr := make(chan string, 1)
	done := make(chan error, 1)
	cfg.Listen, cfg.Admin, cfg.Runtime, cfg.Logger = "127.0.0.1:0", "127.0.0.1:0", rt, zap.NewNop()
	cfg.Started = func(listen, _ string) { addr <- listen }
	s := newServer(cfg.withDefaults(), cfg.Logger)
	go func() { done <- s.run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	select {
	case a := <-addr:
		return s, rt, a
	case err := <-done:
		done <- err
		t.Fatal(err)
	}
	return nil, nil, ""
}

func decoded(t *testing.T, text string) *manifest.Set {
	t.Helper()
	set, err := manifest.Decode("test.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return set
}

func actions(changes []api.Change) string {
	var out []string
	for _, c := range changes {
		out = append(out, string(c.Kind)+" "+c.Name+" "+string(c.Action))
	}
	return strings.Join(out, ", ")
}

func TestApplySaysWhatItDid(t *testing.T) {
	s, rt, _ := started(t, Config{Python: "/opt/python"})
	ctx := context.Background()
	apply := func(text, want string, dryRun bool) {
		t.Helper()
		changes, err := s.Apply(ctx, decoded(t, text), dryRun)
		if err != nil || actions(changes) != want {
			t.Fatalf("apply: %s, %v; want %s", actions(changes), err, want)
		}
	}
	apply(model+fn, "Model m created, Function f created", true)
	if models, _ := s.Models(ctx, ""); len(models) != 0 {
		t.Fatalf("a dry run made %v", models)
	}
	apply(model+fn, "Model m created, Function f created", false)
	apply(model+fn, "Model m unchanged, Function f unchanged", false)
	apply(strings.Replace(model, "max: 2", "max: 3", 1), "Model m updated", false)
	apply(strings.Replace(model, `"1"`, `"2"`, 1), "Model m created", false)

	_, err := s.Apply(ctx, decoded(t, strings.Replace(model, "model.py", "other.py", 1)), false)
	if code(err) != api.Conflict || !strings.Contains(err.Error(), "another run") {
		t.Errorf("a changed version is answered %v", err)
	}
	if l := <-rt.launched; l.Command[0] != "/opt/python" || !strings.Contains(strings.Join(l.Env, " "), "A=b") {
		t.Errorf("launched %+v", l)
	}
}

func code(err error) api.Code {
	var e *api.Error
	if errors.As(err, &e) {
		return e.Code
	}
	return api.OK
}

func TestApplyIsAllOrNothing(t *testing.T) {
	s, _, _ := started(t, Config{})
	ctx := context.Background()
	for _, bad := range []string{
		strings.Replace(fn, "models: [m]", "models: [nobody]", 1),
		strings.Replace(fn, "models: [m]", `models: ["m@7"]`, 1),
		strings.Replace(fn, "default: -1", "default: [1, 2]", 1),
	} {
		set, err := manifest.Decode("test.yaml", []byte(model+bad))
		if err == nil {
			_, err = s.Apply(ctx, set, false)
		}
		if err == nil {
			t.Errorf("accepted %s", bad)
		}
		if models, _ := s.Models(ctx, ""); len(models) != 0 {
			t.Fatalf("left %v behind", models)
		}
	}
}

func TestANewVersionMustFitTheFunctionsThatWillUseIt(t *testing.T) {
	s, _, _ := started(t, Config{})
	ctx := context.Background()
	if _, err := s.Apply(ctx, decoded(t, model+fn), false); err != nil {
		t.Fatal(err)
	}
	second := strings.Replace(strings.Replace(model, `version: "1"`, `version: "2"`, 1), "dtype: int64, shape: []", "dtype: float32, shape: [3]", 1)
	if _, err := s.Apply(ctx, decoded(t, second), false); code(err) != api.InvalidArgument || !strings.Contains(err.Error(), "function f") {
		t.Errorf("a version whose outputs contradict f's default: %v", err)
	}
}

func TestTheSameModelInTwoPlacesIsRefused(t *testing.T) {
	dir := t.TempDir()
	var paths []string
	for _, name := range []string{"a.yaml", "b.yaml"} {
		paths = append(paths, filepath.Join(dir, name))
		if err := os.WriteFile(paths[len(paths)-1], []byte(model), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := loadAll(paths); err == nil || !strings.Contains(err.Error(), "declared twice") {
		t.Errorf("loadAll: %v", err)
	}
}

func TestDeleteKeepsWhatFunctionsNeed(t *testing.T) {
	s, _, _ := started(t, Config{})
	ctx := context.Background()
	if _, err := s.Apply(ctx, decoded(t, model+fn), false); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Delete(ctx, api.KindModel, api.ModelID{Name: "m"}); code(err) != api.Conflict {
		t.Errorf("deleting a model that is needed: %v", err)
	}
	if _, err := s.Delete(ctx, api.KindFunction, api.ModelID{Name: "nobody"}); code(err) != api.NotFound {
		t.Errorf("deleting nothing: %v", err)
	}
	for _, kind := range []api.Kind{api.KindFunction, api.KindModel} {
		name := map[api.Kind]string{api.KindFunction: "f", api.KindModel: "m"}[kind]
		if changes, err := s.Delete(ctx, kind, api.ModelID{Name: name}); err != nil || changes[0].Action != api.Deleted {
			t.Errorf("delete %s: %v %v", kind, changes, err)
		}
	}
	if models, _ := s.Models(ctx, ""); len(models) != 0 {
		t.Errorf("left %v", models)
	}
}

func TestReadinessNamesWhatItWaitsFor(t *testing.T) {
	s, _, addr := started(t, Config{})
	ready := func() (int, string) {
		t.Helper()
		resp, err := http.Get("http://" + addr + "/readyz")
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, _ := io.ReadAll(resp.Body)
		return resp.StatusCode, string(body)
	}
	if status, body := ready(); status != 200 {
		t.Errorf("with nothing declared: %d %s", status, body)
	}
	if _, err := s.Apply(context.Background(), decoded(t, model+fn), false); err != nil {
		t.Fatal(err)
	}
	if status, body := ready(); status != 503 || !strings.Contains(body, "m@1") {
		t.Errorf("with a replica that does not come: %d %s", status, body)
	}
}

func TestAFunctionWithoutReplicaAnswersItsDefaultAtTheDeadline(t *testing.T) {
	s, _, addr := started(t, Config{})
	if _, err := s.Apply(context.Background(), decoded(t, model+fn), false); err != nil {
		t.Fatal(err)
	}
	resp, err := http.Post("http://"+addr+"/f/predict", "application/json", strings.NewReader(`{"input":[1,2,3,4]}`))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	if resp.StatusCode != 200 || !strings.Contains(string(body), `"output":-1,"default":true,"default_explanation":"No connected models found for query"`) {
		t.Errorf("answer %d %s", resp.StatusCode, body)
	}
}

func TestConfigDirectories(t *testing.T) {
	dir := t.TempDir()
	write := func(path, text string) {
		t.Helper()
		path = filepath.Join(dir, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("functions.yaml", strings.Replace(fn, "name: f\n", "name: m\n", 1))
	write("models/m/xebec.yaml", model)
	write("models/n/xebec.yaml", strings.Replace(model, "name: m", "name: n", 1))
	write("models/.old/xebec.yaml", "not: read")
	set, err := loadAll([]string{dir})
	if err != nil {
		t.Fatal(err)
	}
	names := ""
	for _, f := range set.Functions {
		names += f.Name + " "
	}
	if len(set.Models) != 2 || names != "m n " || set.Models[0].Dir != filepath.Join(dir, "models", "m") {
		t.Errorf("models %v, functions %s", set.Models, names)
	}
	if set.Functions[0].SLO != 20*time.Millisecond {
		t.Errorf("the declared function was replaced by the implied one: %v", set.Functions[0])
	}
	if _, err := loadAll([]string{t.TempDir()}); err == nil || !strings.Contains(err.Error(), "neither manifests") {
		t.Errorf("an empty directory: %v", err)
	}
}

func TestStatesHaveTheSameNamesHereAndThere(t *testing.T) {
	for state, want := range map[containers.State]api.ReplicaState{
		containers.Starting: api.ReplicaStarting, containers.Running: api.ReplicaRunning, containers.Ready: api.ReplicaReady,
		containers.BackingOff: api.ReplicaBackoff, containers.Failed: api.ReplicaFailed, containers.Stopping: api.ReplicaStopping,
	} {
		if state.String() != string(want) {
			t.Errorf("containers says %s, api says %s", state, want)
		}
	}
}
