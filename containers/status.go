package containers

import "time"

// State is a replica's state.
type State uint8

// The states. A replica goes Starting → Running → Ready → Stopping, and from each of these to BackingOff or Failed and
// back to Starting.
const (
	// Starting: the runtime is starting it.
	Starting State = iota + 1
	// Running: the process runs; its worker is not ready yet.
	Running
	// Ready: the owner called MarkReady.
	Ready
	// BackingOff: it ended and is restarted at NextAttempt.
	BackingOff
	// Failed: as BackingOff, after several consecutive failures or one that only a person can repair.
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

// lastLines is how many lines of a replica's output its status has: the end of a Python traceback.
const lastLines = 10

// Status is a replica as `describe` shows it.
type Status struct {
	// Replica is the number of the current launch, or of the last one.
	Replica uint64
	PID     int // 0 if no process runs
	State   State
	// Since is when State began.
	Since time.Time
	// Quiet says that it runs at the lowest priority, because it is not ready yet or cannot be raised.
	Quiet bool
	// Layers are those that isolate it, Missing says which it lacks and why: see [IsolationReporter].
	Layers, Missing []string
	// Restarts counts the launches after the first.
	Restarts int
	// NextAttempt is set in BackingOff and Failed.
	NextAttempt time.Time
	// LastExit says how the previous launch ended; empty if there was none.
	LastExit string
	// LastExitAt is when.
	LastExitAt time.Time
	// LastExitLines is what it wrote to stderr last.
	LastExitLines []string
	// Lines is the end of the current launch's output.
	Lines []Line
}

// Status describes every replica, including those that are ending, in the order of their first start.
func (s *Set) Status() []Status {
	s.mu.Lock()
	all := make([]Status, 0, len(s.slots))
	for _, sl := range s.slots {
		all = append(all, Status{
			Replica: sl.replica, PID: sl.pid, State: sl.state, Since: sl.since, Quiet: sl.quiet, Layers: sl.layers, Missing: sl.missing, Restarts: sl.restarts, NextAttempt: sl.next,
			LastExit: sl.lastExit, LastExitAt: sl.lastExitAt, LastExitLines: sl.lastExitLines,
		})
	}
	s.mu.Unlock()
	for i := range all {
		all[i].Lines = s.logs.TailOf(all[i].Replica, lastLines)
	}
	return all
}
