package scheduler

import "github.com/xebec-serving/xebec/api"

// Codes is the number of codes that a query can end with or be refused with, for arrays indexed by code.
const Codes = api.CodeCount

// Counters are totals since the machine was made; they never decrease.
type Counters struct {
	// Arrived counts every query handed over. Ended counts answers by code, GivenBack queries that were handed back without
	// one; their sum is Arrived minus the unanswered queries.
	Arrived   uint64
	Ended     [Codes]uint64
	GivenBack uint64
	// Batches counts batches that came back. Retries counts queries that were lost with a replica and tried again.
	// Isolated counts queries that were evaluated again alone because their batch failed.
	Batches, Retries, Isolated uint64
	// Reasons for refusals with Overloaded, and the number of queries let through as probes.
	QueueFull, RefusedEarly, Shed, Probes uint64
	// PassedOver counts waiting queries that were answered with Overloaded before their deadlines because they could no
	// longer be evaluated in time.
	PassedOver uint64
	// Kills counts replicas that the machine asked to kill.
	Kills uint64
	// Hedged counts queries that were sent to a second replica, HedgeWins those that the second replica answered first.
	Hedged, HedgeWins uint64
}

// Snapshot is a machine's state for metrics, for display and for the epoch planner.
type Snapshot struct {
	Now api.Nanos
	// Queued, Late and Retrying count waiting queries: in time, answered but worth evaluating, lost once. QueuedBytes
	// is the size of all their inputs.
	Queued, Late, Retrying, QueuedBytes int
	// Held counts queries that were accepted and not released: those that wait and those in flight.
	Held      int
	Closed    bool
	Execution Execution
	// NextWake is when the machine next has work without an event.
	NextWake  api.Nanos
	Counters  Counters
	Functions []FunctionSnapshot
	Replicas  []ReplicaSnapshot
}

// FunctionSnapshot is one attached function; Index -1 marks a free index.
type FunctionSnapshot struct {
	Index int32
	// Weight is the share in force, Attached the weight it was attached with.
	Weight   float64
	Attached float64
	Queued   int
	Earliest api.Nanos // the first deadline; Never when no query waits
	// Arrived counts its queries, refused ones included, and ArrivedBytes the bytes of their inputs. Shed is the part
	// that the plan refuses.
	Arrived, ArrivedBytes uint64
	Shed                  float64
}

// ReplicaState says whether a replica takes batches.
type ReplicaState uint8

const (
	// Serving: takes batches.
	Serving ReplicaState = iota
	// Draining: finishes the batches it has.
	Draining
	// Leaving: was killed or is broken, and has not been reported gone yet.
	Leaving
)

// ReplicaSnapshot is one replica. Replicas are listed in the order in which they became ready.
type ReplicaSnapshot struct {
	ID    ReplicaID
	State ReplicaState
	// Cap is the most queries of its next batch, Batches and Queries are what is outstanding.
	Cap, Batches, Queries int
	// Isolating reports whether Cap is lowered because single queries make batches fail.
	Isolating bool
	// Concurrency is how many batches it evaluates at once.
	Concurrency int
	// Learned is the cap that its controller allows, which a plan may lower. Settled reports whether it has reached its
	// limit.
	Learned int
	Settled bool
	// OldestAt is when its oldest outstanding batch was begun; Never when it has none.
	OldestAt api.Nanos
	// The latency profile: a batch of n is expected to take InterceptNanos + n × SlopeNanos. Presumed: too few batches were seen, but the profile
	// began with a [Prior], so that the line can be planned with.
	Samples        uint64
	InterceptNanos float64
	SlopeNanos     float64
	P99Nanos       int64
	Presumed       bool
}

// Snapshot writes the machine's state into s, reusing its lists.
func (m *Machine) Snapshot(s *Snapshot) {
	functions, replicas := s.Functions[:0], s.Replicas[:0]
	for i, f := range m.functions {
		fs := FunctionSnapshot{Index: -1, Earliest: api.Never}
		if f != nil {
			fs = FunctionSnapshot{Index: int32(i), Weight: f.share(), Attached: f.weight, Queued: f.queue.len() + f.atHome, Earliest: f.queue.first(), Arrived: f.arrived, ArrivedBytes: f.bytes, Shed: f.plan.Shed}
		}
		functions = append(functions, fs)
	}
	for _, r := range m.replicas {
		rs := ReplicaSnapshot{
			ID: r.id, Concurrency: r.concurrency, Cap: m.capOf(r), Isolating: m.isolates(r), Batches: len(r.flights), OldestAt: api.Never, Learned: r.controller.cap(), Settled: r.controller.settled(),
			Samples: r.profile.samples, InterceptNanos: r.profile.intercept, SlopeNanos: r.profile.slope, P99Nanos: r.profile.p99Nanos, Presumed: r.profile.presumed(),
		}
		switch {
		case r.leaving:
			rs.State = Leaving
		case r.draining:
			rs.State = Draining
		}
		for _, fl := range r.flights {
			rs.Queries += len(fl.items)
		}
		if len(r.flights) > 0 {
			rs.OldestAt = r.oldestAt
		}
		replicas = append(replicas, rs)
	}
	*s = Snapshot{
		Now: m.now, Queued: m.live + m.homes.waiting, Late: m.late.len(), Retrying: m.retries.len(), QueuedBytes: m.bytes,
		Held: m.held, Closed: m.closed, Execution: m.execution, NextWake: m.NextWake(), Counters: m.counters,
		Functions: functions, Replicas: replicas,
	}
}

// Held is the number of queries that were accepted and not released.
func (m *Machine) Held() int { return m.held }
