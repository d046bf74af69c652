package deployment

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/api/manifest"
	"github.com/xebec-serving/xebec/containers"
	"github.com/xebec-serving/xebec/containers/containerstest"
	"github.com/xebec-serving/xebec/gateway/cache"
	"github.com/xebec-serving/xebec/gateway/control/capacity"
	"github.com/xebec-serving/xebec/scheduler/driver"
	"github.com/xebec-serving/xebec/worker/memory"
	"go.uber.org/goleak"
	"go.uber.org/zap"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// newHost makes a Host over a runtime whose replicas never connect.
func newHost(t *testing.T) *Host {
	t.Helper()
	clock := driver.NewClock()
	t.Cleanup(clock.Close)
	transport := memory.New(memory.Config{Now: clock.Now})
	t.Cleanup(func() {
		if err := transport.Close(); err != nil {
			t.Error(err)
		}
	})
	log := zap.NewNop()
	return &Host{
		Clock: clock, Transport: transport, Runtime: containerstest.Idle{}, Cache: cache.New(1 << 20), WorkDir: "/", Drain: 10 * time.Second, Log: log,
		Capacity: capacity.New(capacity.Config{CPU: 4, MemoryBytes: 1 << 30, Now: clock.Now, Life: context.Background(), Changed: func(string) {}, Log: log}),
		Changed:  func(string) {},
	}
}

// deploy makes a deployment of a manifest.
func deploy(t *testing.T, h *Host, text string) *Deployment {
	t.Helper()
	d, err := h.New(decoded(t, text))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(context.Background(), api.ShuttingDown); err != nil {
			t.Error(err)
		}
	})
	return d
}

func decoded(t *testing.T, text string) api.ModelSpec {
	t.Helper()
	set, err := manifest.Decode("test.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return set.Models[0]
}

const sleeper = "kind: Model\nname: m\nversion: \"1\"\ninputs: [{name: input, dtype: float32, shape: [4]}]\noutputs: [{name: output, dtype: int32, shape: []}]\n" +
	"run: {command: [python, model.py]}\nreplicas: {min: 0, max: 1}\n"

// brokenRuntime starts nothing, and trying again is no use.
type brokenRuntime struct{ containerstest.Idle }

func (brokenRuntime) Start(context.Context, containers.Launch) (containers.Instance, error) {
	return nil, noSuchCommand{errors.New("no such command")}
}

type noSuchCommand struct{ error }

func (noSuchCommand) Permanent() bool { return true }

// A deployed spec is equal to the declared one, and shares equal parts with the one before it.
func TestSpecsShareEqualParts(t *testing.T) {
	const text = "kind: Model\nname: %s\nversion: \"%s\"\ninputs: [{name: %s, dtype: float32, shape: [64]}]\noutputs: [{name: output, dtype: int64, shape: []}]\n" +
		"run: {command: [python, %s], env: {A: b}}\npreload: [numpy]\nreplicas: {min: 0, max: 1}\n"
	var h Host
	kept := make([]api.ModelSpec, 0, 4)
	for _, of := range [][]any{{"a", "1", "input", "model.py"}, {"b", "1", "input", "model.py"}, {"b", "2", "other", "model.py"}, {"c", "2", "other", "other.py"}} {
		spec := decoded(t, fmt.Sprintf(text, of...))
		got := h.compact(spec)
		if !reflect.DeepEqual(got, spec) {
			t.Errorf("declared %+v\nkept %+v", spec, got)
		}
		kept = append(kept, got)
	}
	same := func(i, j int) [3]bool {
		a, b := &kept[i], &kept[j]
		return [3]bool{&a.Inputs[0] == &b.Inputs[0], &a.Run.Command[0] == &b.Run.Command[0], &a.Preload[0] == &b.Preload[0]}
	}
	if got, want := [][3]bool{same(0, 1), same(1, 2), same(2, 3)}, [][3]bool{{true, true, true}, {false, true, true}, {true, false, true}}; !reflect.DeepEqual(got, want) {
		t.Errorf("inputs, command and preload are shared: %v, expected %v", got, want)
	}
	if kept[0].Inputs[0].Name != "input" || kept[0].Run.Command[1] != "model.py" || kept[0].Version != "1" {
		t.Errorf("the first has changed with the others: %+v", kept[0])
	}
}

func TestReplicaStatesHaveTheSameNamesInBothPackages(t *testing.T) {
	for state, want := range map[containers.State]api.ReplicaState{
		containers.Starting: api.ReplicaStarting, containers.Running: api.ReplicaRunning, containers.Ready: api.ReplicaReady,
		containers.BackingOff: api.ReplicaBackoff, containers.Failed: api.ReplicaFailed, containers.Stopping: api.ReplicaStopping,
	} {
		if state.String() != string(want) {
			t.Errorf("package containers says %s, package api %s", state, want)
		}
	}
}

// A version that has failed says why, also when it has no replicas any more.
func TestAFailureIsRememberedWithoutReplicas(t *testing.T) {
	d := deploy(t, newHost(t), sleeper)
	d.Serve(false)
	for replica := range uint64(crashLoop) {
		d.logs.Add(1000+replica, containers.Stderr, "  File \"model.py\", line 1")
		d.logs.Add(1000+replica, containers.Stderr, fmt.Sprintf("ModuleNotFoundError: No module named 'sklearn%d'", replica))
		d.logs.Add(1000+replica, containers.System, "replica ended")
		d.event(containers.Event{Kind: containers.Exited, Replica: 1000 + replica, Reason: "exited with code 1 after 0.3 s"})
	}
	m := d.Status()
	const want = "0 of 0 replicas are ready; exited with code 1 after 0.3 s: ModuleNotFoundError: No module named 'sklearn2'"
	if c := m.Conditions[0]; m.State != api.ModelFailed || c.Reason != "ReplicasFail" || !strings.HasSuffix(c.Message, want) {
		t.Errorf("%s, %s: %q, expected %q", m.State, c.Reason, c.Message, want)
	}
}

// Replicas that were lost with their reaper, however many, are no failures of the version.
func TestLostReplicasAreNoFailures(t *testing.T) {
	d := deploy(t, newHost(t), sleeper)
	for replica := range uint64(2 * crashLoop) {
		d.event(containers.Event{Kind: containers.Exited, Replica: 1000 + replica, Reason: "ended with its reaper", Exit: containers.Exit{Code: -1, Cause: containers.Lost}})
	}
	if m := d.Status(); m.State == api.ModelFailed || d.Failing() {
		t.Errorf("%s, %+v, failing: %v", m.State, m.Conditions[0], d.Failing())
	}
}

// Queries wait for a version that has failed once and has fallen asleep: the next query starts it at once.
func TestAFailureBeforeTheSleepTurnsNoQueryAway(t *testing.T) {
	h := newHost(t)
	h.Runtime = brokenRuntime{}
	failed := make(chan struct{}, 1)
	h.Changed = func(string) { failed <- struct{}{} }
	d := deploy(t, h, sleeper)
	d.Load(1)
	<-failed
	if d.Asked() != 1 || !d.Failing() || !d.model.Down.Load() {
		t.Fatalf("%d replicas are wanted, a launch has failed: %v, queries are turned away meanwhile: %v", d.Asked(), d.Failing(), d.model.Down.Load())
	}
	d.Serve(false)
	if d.Asked() != 0 || d.model.Down.Load() {
		t.Errorf("asleep, %d replicas are wanted, and queries are turned away: %v", d.Asked(), d.model.Down.Load())
	}
}

// Labels for a model without replicas wait in memory of their own. When there are too many, the oldest are dropped.
func TestLessonsWaitBounded(t *testing.T) {
	d := &Deployment{}
	input, context, label := []byte("input 0000"), []byte("user 0000"), []byte(`"label 0000"`)
	for i := range maxLessons + 10 {
		for _, b := range [][]byte{input, context, label} {
			text := []byte(fmt.Sprintf("%04d", i))
			copy(b[strings.IndexByte(string(b), ' ')+1:], text) // the caller's memory is used again
		}
		d.teach([]api.Value{{Data: input, Dims: []int64{1}}}, context, label)
	}
	l := &d.lessons
	if len(l.queries) != maxLessons || len(l.labels) != maxLessons || l.busy != 0 {
		t.Fatalf("%d queries and %d labels wait, %d replicas learn: expected %d, %d and none", len(l.queries), len(l.labels), l.busy, maxLessons, maxLessons)
	}
	for i, q := range l.queries {
		n := fmt.Sprintf("%04d", i+10)
		if string(q.Inputs[0].Data) != "input "+n || string(q.Context) != "user "+n || string(l.labels[i]) != `"label `+n+`"` || q.Inputs[0].Dims[0] != 1 {
			t.Fatalf("place %d has %s, %s, %s: expected those of %s", i, q.Inputs[0].Data, q.Context, l.labels[i], n)
		}
	}
}

// adviser is a runtime whose replicas have no network.
type adviser struct{ containerstest.Idle }

func (adviser) Advise(l containers.Launch, text string) []string {
	if l.Model.Name == "m" && strings.Contains(text, "unreachable") {
		return []string{"set run.network"}
	}
	return nil
}

// What a runtime knows of a model's error stands below it.
func TestLastErrorWithAdvice(t *testing.T) {
	h := newHost(t)
	h.Runtime = adviser{}
	d := deploy(t, h, sleeper)
	for _, tc := range []struct{ said, want string }{
		{"", ""},
		{"model_error: ValueError", "model_error: ValueError"},
		{"model_error: unreachable\nTraceback\n", "model_error: unreachable\nTraceback\nset run.network"},
	} {
		d.mu.Lock()
		d.launches = map[uint64]*launch{7: {lastError: tc.said}}
		d.mu.Unlock()
		if got := d.replicaStatus(containers.Status{Replica: 7}, nil).LastError; got != tc.want {
			t.Errorf("%q: %q, expected %q", tc.said, got, tc.want)
		}
	}
	d.mu.Lock()
	d.launches = nil
	d.mu.Unlock()
}

// A model that calls others may wait for one that starts, however fast it is itself.
func TestTimeoutOfAModelThatCalls(t *testing.T) {
	for _, c := range []struct {
		calls         []string
		timeout, want time.Duration
	}{{nil, 0, 0}, {nil, time.Second, time.Second}, {[]string{"f"}, 0, api.DefaultModelTimeout}, {[]string{"f"}, time.Second, time.Second}} {
		spec := api.ModelSpec{Calls: c.calls, Timeout: c.timeout}.WithDefaults()
		if got := time.Duration(laneConfig(&spec, 0).TimeoutNanos); got != c.want {
			t.Errorf("calls %v, timeout %v: %v", c.calls, c.timeout, got)
		}
	}
}
