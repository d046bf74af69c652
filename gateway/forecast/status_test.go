package forecast

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/scheduler/autoscale"
)

// TestProfileOf: the profile is the mean over the replicas with enough batches. If there is none, it is what the
// gateway remembers.
func TestProfileOf(t *testing.T) {
	replica := func(samples uint64, intercept, slope float64) api.ReplicaStatus {
		return api.ReplicaStatus{Profile: api.Profile{Samples: samples, InterceptMicros: intercept, SlopeMicros: slope}}
	}
	known := func(intercept, meanBatch float64) *api.KnownProfile {
		return &api.KnownProfile{InterceptMicros: intercept, SlopeMicros: 100, Batches: 40, MeanBatch: meanBatch}
	}
	for _, c := range []struct {
		name       string
		replicas   []api.ReplicaStatus
		before     *api.KnownProfile
		want       Profile
		remembered uint64
		err        error
	}{
		{"two of three", []api.ReplicaStatus{replica(16, 1000, 100), replica(99, 3000, 200), replica(3, 1e6, 1e6)}, known(1, 1), Profile{FixedNanos: 2e6, EachNanos: 150e3}, 0, nil},
		{"none", nil, nil, Profile{}, 0, ErrTooFewBatches},
		{"too few", []api.ReplicaStatus{replica(15, 1000, 100)}, nil, Profile{}, 0, ErrTooFewBatches},
		{"an old gateway", []api.ReplicaStatus{replica(100, 0, 0)}, nil, Profile{}, 0, ErrNoBatchTimes},
		{"only batches of one", []api.ReplicaStatus{replica(100, 700, 0)}, nil, Profile{}, 0, ErrSingleQueries},
		{"nonsense", []api.ReplicaStatus{replica(100, -5, 1)}, nil, Profile{}, 0, ErrNoBatchTimes},
		{"asleep", nil, known(1000, 3), Profile{FixedNanos: 1e6, EachNanos: 100e3}, 40, nil},
		{"just woken", []api.ReplicaStatus{replica(3, 1e6, 1e6)}, known(1000, 3), Profile{FixedNanos: 1e6, EachNanos: 100e3}, 40, nil},
		{"asleep after batches of one", nil, &api.KnownProfile{InterceptMicros: 700, Batches: 40, MeanBatch: 1}, Profile{}, 0, ErrSingleQueries},
		{"asleep, and nonsense", nil, known(-5, 3), Profile{}, 0, ErrTooFewBatches},
	} {
		m := api.ModelStatus{Spec: api.ModelSpec{Name: "m", Version: "1", Batching: api.BatchingSpec{Max: 64}}, Replicas: c.replicas, Capacity: &api.CapacityStatus{Profile: c.before}}
		p, remembered, err := ProfileOf(&m)
		if p != c.want || remembered != c.remembered || !errors.Is(err, c.err) || err != nil && !strings.HasPrefix(err.Error(), "model m@1: ") {
			t.Errorf("%s: got %+v, %d, %v; want %+v, %d, %v", c.name, p, remembered, err, c.want, c.remembered, c.err)
		}
	}
}

// TestBoundsOf: what a model declares overrides the defaults. A fixed number of replicas is not a bound.
func TestBoundsOf(t *testing.T) {
	spec := api.ReplicaBounds{Min: 2, Max: 6, Idle: time.Minute, Window: 30 * time.Second, Delay: time.Second, Utilization: 0.5, Up: 4, Down: 3}
	want := autoscale.Config{Min: 2, Max: 6, IdleNanos: 60e9, WindowNanos: 30e9, DelayNanos: 1e9, Utilization: 0.5, Up: 4, Down: 3}
	if got := BoundsOf(&spec, bounds); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	spec.Min, spec.Max = 4, 4
	if got := BoundsOf(&spec, bounds); got.Min != bounds.Min || got.Max != bounds.Max {
		t.Errorf("of a model with a fixed number of replicas: %+v", got)
	}
	if got := BoundsOf(&api.ReplicaBounds{Min: 1, Max: 1}, bounds); got != bounds {
		t.Errorf("of a model that declares nothing: %+v, want %+v", got, bounds)
	}
}

func TestObjectiveOf(t *testing.T) {
	function := func(slo, coldStart time.Duration) api.FunctionStatus {
		return api.FunctionStatus{Spec: api.FunctionSpec{SLO: slo, ColdStart: coldStart}}
	}
	slo, coldStart := ObjectiveOf([]api.FunctionStatus{function(100, 5), function(20, 7), function(50, 9)})
	if slo != 20 || coldStart != 7 {
		t.Errorf("got %v and %v, want 20ns and 7ns", slo, coldStart)
	}
	if slo, coldStart = ObjectiveOf(nil); slo != 0 || coldStart != 0 {
		t.Errorf("without functions: %v and %v, want 0", slo, coldStart)
	}
}
