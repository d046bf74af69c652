package autoscale

import "github.com/xebec-serving/xebec/api"

// Config is the operator's configuration of a model version: api.ReplicaBounds in the scaler's terms. An invalid value
// is replaced by the nearest valid one or the default. The specification's validation reports it.
type Config struct {
	// Min and Max bound the replicas; with Min 0 the model may sleep.
	Min, Max int
	// IdleNanos is how long a model with Min 0 keeps its last replica without a query.
	IdleNanos int64
	// WindowNanos is the stable window; the panic window is a tenth of it. DelayNanos is how long less must have been
	// needed before a replica is removed, at least a panic window.
	WindowNanos, DelayNanos int64
	// Utilization is the planned part of a replica's capacity with up to four replicas. More replicas are planned with
	// a larger part, and few replicas that serve few queries within the objective with a smaller one.
	Utilization float64
	// Up and Down limit the speed. No more replicas are asked for than Up times those that are ready (one, if none is),
	// rounded up. Of the replicas that were asked for, at least 1/Down, rounded down but at least one, are kept until a
	// panic window later. Neither depends on how often the scaler is called.
	Up, Down float64
}

// Sample is what one tick sees of one model version. Counters only grow; a counter that has gone back was restarted.
type Sample struct {
	Now    api.Nanos
	Config Config
	// Ready replicas take batches, Starting ones will. Wanted is how many were asked for last, by a scaler or an
	// operator.
	Ready, Starting, Wanted int
	// Unknown: nothing could be read this time, and the fields below are meaningless. The scaler then changes nothing.
	Unknown bool
	// Arrived counts queries, including refused ones. Refused counts those refused for lack of capacity (overloaded,
	// late, no replica).
	Arrived, Refused uint64
	// LastArrival is when the last query arrived; 0: none has.
	LastArrival api.Nanos
	// Queued queries wait, InFlight ones are held by replicas.
	Queued, InFlight int
	// Streams: each query in flight holds one of its replica's Concurrency places until its stream ends.
	Streams bool
	// SLONanos is the tightest objective of the functions that use the version; 0: none.
	SLONanos int64
	// The profile of a replica, the mean over the ready ones: a batch of n, at most Cap, is expected to take
	// InterceptNanos + n × SlopeNanos. A cap that has not settled says what was tried, not what is possible: give the
	// configured maximum instead. Known: enough batches have been seen. A scaler remembers the profile while there is
	// no replica.
	Known                      bool
	InterceptNanos, SlopeNanos float64
	Cap                        int
	// Concurrency is how many batches each replica evaluates at once; 0 means 1.
	Concurrency int
	// StartNanos is the measured duration of a replica's start; 0: unknown.
	StartNanos int64
	// ExpectedRate is the rate of an operator's hint, in queries per second; 0: no hint applies now.
	ExpectedRate float64
}

// Decision is the number of replicas that a version is to have, and the reason.
type Decision struct {
	Replicas int
	Reason   Reason
	// Rate is the arrival rate that was planned for, in queries per second. Capacity is what one of the decided number
	// of replicas serves within the objective at the planned utilization; 0: unknown.
	Rate, Capacity float64
	// Panic: at some time in the last stable window twice as much arrived as the ready replicas are planned to serve.
	// During a panic no replica is removed.
	Panic bool
}

// Reason says why a decision is as it is: what was needed, or what kept the number from being as needed.
type Reason uint8

const (
	// Steady: the number stays. Another number would do, but not by enough to be worth the change.
	Steady Reason = iota
	// NoData: nothing could be read, so nothing changes.
	NoData
	// Rate: the mean arrival rate of the stable window determines the number.
	Rate
	// Rush: the arrival rate of the panic window, which is higher, determines the number.
	Rush
	// Burst: the largest number of arrivals in a sixtieth of the stable window determines the number.
	Burst
	// Trend: the rate rises. The rate expected when a replica started now is ready determines the number.
	Trend
	// Backlog: the queue has to be worked off within the objective.
	Backlog
	// Expected: an operator's hint says so.
	Expected
	// Crowded: there is no profile, and the replicas do not keep up.
	Crowded
	// Occupied: open streams, and those that wait, determine the number.
	Occupied
	// Waking: a query arrived and there was no replica.
	Waking
	// Sleeping: no query arrived for the model's idle time.
	Sleeping
	// Learning: the scaler has not observed a whole stable window, and removes no replica.
	Learning
	// Delayed: fewer would do, but more were needed within the delay.
	Delayed
	// Panicking: fewer would do, but a rush began within the stable window.
	Panicking
	// LimitedUp: more are needed than may be asked for at once.
	LimitedUp
	// LimitedDown: fewer are needed than may be kept at once.
	LimitedDown
	// AtMin: fewer would do.
	AtMin
	// AtMax: more are needed.
	AtMax

	reasons
)

var reasonNames = [reasons]string{
	Steady: "steady", NoData: "no data", Rate: "rate", Rush: "rush", Burst: "burst", Trend: "trend", Backlog: "backlog", Expected: "expected",
	Crowded: "crowded", Occupied: "occupied", Waking: "waking", Sleeping: "sleeping", Learning: "learning", Delayed: "delayed", Panicking: "panicking",
	LimitedUp: "limited up", LimitedDown: "limited down", AtMin: "at min", AtMax: "at max",
}

// String returns the reason's name, as shown in metrics and to operators.
func (r Reason) String() string {
	if r >= reasons {
		return "unknown"
	}
	return reasonNames[r]
}
