package containers

import "time"

// State is where a replica stands.
type State uint8

// The states. The way is Starting → Running → Ready → Stopping, and from each to BackingOff or Failed and back to Starting.
const (
	// Starting: the runtime has been asked for it.
	Starting State = iota + 1
	// Running: the process runs, its worker is not ready yet.
	Running
	// Ready: the owner has said so by MarkReady.
	Ready
	// BackingOff: it ended and will be started again at NextAttempt.
	BackingOff
	// Failed: as BackingOff, after several failures in a row or one that only a person can mend.
	Failed
	// Stopping: it is being ended.
	Stopping
)

var stateNames = [...]string{Starting: "starting", Running: "running", Ready: "ready", BackingOff: "backoff", Failed: "failed", Stopping: "stopping"}

// String is the state's name in JSON and on the terminal.
func (s State) String() string {
	if int(s) >= len(stateNames) || s == 0 {
		return "unknown"
	}
	return stateNames[s]
}

// lastLines is how much of a replica's output goes into its status: the end of a Python trace-back.
const lastLines = 10

// Status is a replica as `describe` shows it.
type Status struct {
	// Replica is the number of the launch that runs, or of the last one.
	Replica uint64
	PID     int // 0 when no process runs
	State   State
	// Since is when State began.
	Since time.Time
	// Quiet: it runs at the lowest priority, because it is not ready yet or cannot be raised.
	Quiet bool
	// Restarts counts the launches after the first.
	Restarts int
	// NextAttempt is set in BackingOff and Failed.
	NextAttempt time.Time
	// LastExit says how the launch before this one ended, empty when there was none.
	LastExit string
	// LastExitAt is when.
	LastExitAt time.Time
	// LastExitLines is what it last wrote to stderr.
	LastExitLines []string
	// Lines is the end of what the present launch has written.
	Lines []Line
}

// Status describes every replica, those that are ending included, in the order in which they were first started.
func (s *Set) Status() []Status {
	s.mu.Lock()
	all := make([]Status, 0, len(s.slots))
	for _, sl := range s.slots {
		all = append(all, Status{
			Replica: sl.replica, PID: sl.pid, State: sl.state, Since: sl.since, Quiet: sl.quiet, Restarts: sl.restarts, NextAttempt: sl.next,
			LastExit: sl.lastExit, LastExitAt: sl.lastExitAt, LastExitLines: sl.lastExitLines,
		})
	}
	s.mu.Unlock()
	for i := range all {
		all[i].Lines = s.logs.TailOf(all[i].Replica, lastLines)
	}
	return all
}
