package forecast

import (
	"errors"
	"fmt"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/scheduler/autoscale"
)

// MinBatches is how many batches a replica must have evaluated before its profile is used.
const MinBatches = 16

// Why a gateway's status has no profile to plan with.
var (
	// ErrTooFewBatches: no replica has evaluated MinBatches batches, and none before it is remembered.
	ErrTooFewBatches = errors.New("it has no profile yet")
	// ErrSingleQueries: every batch had one query, so the time of larger ones is unknown.
	ErrSingleQueries = errors.New("all of its batches had one query, so the time of larger batches is unknown")
	// ErrNoBatchTimes: the gateway does not report them. It is older than this program.
	ErrNoBatchTimes = errors.New("the gateway does not report its batch times")
)

// ProfileOf is the mean over a model's replicas that have evaluated [MinBatches] batches. If there is none, for example
// because the model sleeps, it is what the gateway remembers of earlier ones, and remembered is the number of batches
// that this is from.
func ProfileOf(m *api.ModelStatus) (p Profile, remembered uint64, err error) {
	replicas, most := 0.0, uint64(0)
	single := m.Spec.Batching.Max > 1 // all batches had one query, although they could be larger
	add := func(intercept, slope float64, ones bool) {
		replicas++
		p.FixedNanos += intercept * 1e3
		p.EachNanos += slope * 1e3
		single = single && slope == 0 && ones
	}
	for i := range m.Replicas {
		r := &m.Replicas[i].Profile
		most = max(most, r.Samples)
		if r.Samples >= MinBatches && plausible(r.InterceptMicros, r.SlopeMicros) {
			add(r.InterceptMicros, r.SlopeMicros, m.Replicas[i].Queries <= m.Replicas[i].Batches)
		}
	}
	if m.Capacity != nil && replicas == 0 {
		if k := m.Capacity.Profile; k != nil && k.Batches >= MinBatches && plausible(k.InterceptMicros, k.SlopeMicros) {
			add(k.InterceptMicros, k.SlopeMicros, k.MeanBatch <= 1)
			remembered = k.Batches
		}
	}
	switch {
	case replicas == 0 && most >= MinBatches:
		return Profile{}, 0, fmt.Errorf("model %s: %w", m.Spec.ID(), ErrNoBatchTimes)
	case replicas == 0 && len(m.Replicas) == 0:
		return Profile{}, 0, fmt.Errorf("model %s: %w: a replica must evaluate %d batches, and it has none now", m.Spec.ID(), ErrTooFewBatches, MinBatches)
	case replicas == 0:
		return Profile{}, 0, fmt.Errorf("model %s: %w: a replica must evaluate %d batches, and the most so far is %d", m.Spec.ID(), ErrTooFewBatches, MinBatches, most)
	case single:
		return Profile{}, 0, fmt.Errorf("model %s: %w", m.Spec.ID(), ErrSingleQueries)
	}
	p.FixedNanos /= replicas
	p.EachNanos /= replicas
	return p, remembered, nil
}

func plausible(interceptMicros, slopeMicros float64) bool {
	return interceptMicros >= 0 && slopeMicros >= 0 && interceptMicros+slopeMicros > 0
}

// ObjectiveOf is the tightest SLO of the functions that ask a model, and the cold-start wait of that function. It is 0
// if there are no functions.
func ObjectiveOf(functions []api.FunctionStatus) (slo, coldStart time.Duration) {
	for i := range functions {
		if f := &functions[i].Spec; slo == 0 || f.SLO < slo {
			slo, coldStart = f.SLO, f.ColdStart
		}
	}
	return slo, coldStart
}

// BoundsOf overrides b with what a model declares. A model with a fixed number of replicas declares no Min and Max for
// scaling.
func BoundsOf(r *api.ReplicaBounds, b autoscale.Config) autoscale.Config {
	if r.Scales() {
		b.Min, b.Max = r.Min, r.Max
	}
	for _, d := range []struct {
		nanos    *int64
		declared time.Duration
	}{{&b.IdleNanos, r.Idle}, {&b.WindowNanos, r.Window}, {&b.DelayNanos, r.Delay}} {
		if d.declared > 0 {
			*d.nanos = int64(d.declared)
		}
	}
	if r.Utilization > 0 {
		b.Utilization = r.Utilization
	}
	if r.Up > 0 && r.Down > 0 {
		b.Up, b.Down = r.Up, r.Down
	}
	return b
}
