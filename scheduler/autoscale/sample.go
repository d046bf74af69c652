package autoscale

import "github.com/xebec-serving/xebec/api"

// Config is what an operator says of a model version: api.ReplicaBounds in the scaler's terms. A value that makes no sense is taken as the
// nearest that does, or as the default; it is for the specification's checks to tell people.
type Config struct {
	// Min and Max bound the replicas; with Min 0 the model may sleep.
	Min, Max int
	// IdleNanos is how long a model with Min 0 keeps its last replica without a query.
	IdleNanos int64
	// WindowNanos is the stable window; the panic window is a tenth of it. DelayNanos is how long less must have been needed before a
	// replica goes; less than a panic window counts as one.
	WindowNanos, DelayNanos int64
	// Utilization is the part of a replica's capacity that is planned with where there are up to four; more are planned with a larger part, and
	// few that serve few queries within the objective with a smaller one.
	Utilization float64
	// Up and Down limit how fast. At any time no more replicas are asked for than Up times those that are ready (one, if none is), rounded
	// up. Of the replicas that were asked for, 1/Down, rounded down, but at least one, are asked for until a panic window later. Neither
	// depends on how often the scaler is asked.
	Up, Down float64
}

// Sample is what one tick sees of one model version. Counters only grow; a counter that has gone back means that the version began anew.
type Sample struct {
	Now    api.Nanos
	Config Config
	// Ready replicas take batches, Starting ones will; Wanted is how many were asked for last, by a scaler or by a person.
	Ready, Starting, Wanted int
	// Unknown: nothing could be read this time, and nothing below means anything. The scaler then decides nothing.
	Unknown bool
	// Arrived counts queries, also those that were refused; Refused those that were because there was not enough (overloaded, late, no replica).
	Arrived, Refused uint64
	// LastArrival is when the last query came; 0: none has.
	LastArrival api.Nanos
	// Queued is what waits, InFlight what replicas hold.
	Queued, InFlight int
	// SLONanos is the tightest objective of the functions that ask the version; 0: none.
	SLONanos int64
	// What is known of a replica, the mean over the ready ones: a batch of n is expected to take InterceptNanos + n × SlopeNanos, and Cap
	// queries go in one. A cap that has not settled says what was tried, not what can be done: give what is configured instead.
	// Known: it has shown enough batches. A scaler remembers it while there is no replica.
	Known                      bool
	InterceptNanos, SlopeNanos float64
	Cap                        int
	// StartNanos is what the start of a replica takes, as measured; 0: unknown.
	StartNanos int64
	// ExpectedRate is what an operator's hint says is to come, in queries per second; 0: no hint holds now.
	ExpectedRate float64
}

// Decision is how many replicas a version is to have, and what that stands on.
type Decision struct {
	Replicas int
	Reason   Reason
	// Rate is the arrival rate that was planned for, in queries per second, Capacity what one of so many replicas serves within the
	// objective at the utilization that is planned with; 0: not known.
	Rate, Capacity float64
	// Panic: of what came in the last stable window there was, at some time, twice as much as the replicas that were ready are planned to
	// serve. While it lasts no replica goes.
	Panic bool
}

// Reason says why a decision is what it is: what was needed, or what kept the replicas from being as many as needed.
type Reason uint8

const (
	// Steady: there are as many replicas as there were; another number would do, but not by enough to be worth it.
	Steady Reason = iota
	// NoData: nothing could be read, so nothing changes.
	NoData
	// Rate: the mean arrival rate of the stable window needs so many.
	Rate
	// Rush: the arrival rate of the panic window does, which is higher.
	Rush
	// Burst: the most that came in a sixtieth of the stable window does.
	Burst
	// Trend: the rate rises, and when a replica that is started now is ready so many will be needed.
	Trend
	// Backlog: what waits has to be worked off within the objective.
	Backlog
	// Expected: an operator's hint says what is to come.
	Expected
	// Crowded: the profile is not known yet, and the replicas that there are do not keep up.
	Crowded
	// Waking: a query came and there was no replica.
	Waking
	// Sleeping: nobody asked for as long as the model is kept without.
	Sleeping
	// Learning: the scaler has not looked for a whole stable window yet, and takes nothing away.
	Learning
	// Delayed: fewer would do, but within the delay more were needed.
	Delayed
	// Panicking: fewer would do, but a rush began within the stable window.
	Panicking
	// LimitedUp: more are needed than may be asked for at once.
	LimitedUp
	// LimitedDown: fewer are needed than may be left at once.
	LimitedDown
	// AtMin: fewer would do.
	AtMin
	// AtMax: more are needed.
	AtMax

	reasons
)

var reasonNames = [reasons]string{
	Steady: "steady", NoData: "no data", Rate: "rate", Rush: "rush", Burst: "burst", Trend: "trend", Backlog: "backlog", Expected: "expected",
	Crowded: "crowded", Waking: "waking", Sleeping: "sleeping", Learning: "learning", Delayed: "delayed", Panicking: "panicking",
	LimitedUp: "limited up", LimitedDown: "limited down", AtMin: "at min", AtMax: "at max",
}

// String is the reason's name, as metrics and people are shown it.
func (r Reason) String() string {
	if r >= reasons {
		return "unknown"
	}
	return reasonNames[r]
}
