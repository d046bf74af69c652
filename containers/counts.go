package containers

import (
	"fmt"
	"iter"
	"sync/atomic"
)

// Cause is why a replica ended, in a word. Metrics have it as a label, so the set is closed and small: the details are in
// [Exit] and [Event].
type Cause uint8

// The causes.
const (
	// ExitedByItself: with an exit code, whatever it was, although it was wanted.
	ExitedByItself Cause = iota + 1
	// Signalled: a signal ended it that the gateway did not send. Where memory has no limit that the kernel enforces, this may have
	// been the kernel for want of memory.
	Signalled
	// OutOfMemory: the kernel killed it, or one of its processes, for want of memory, whether it was wanted or not.
	OutOfMemory
	// Unready: it was killed because it was not ready in time.
	Unready
	// Hung: it was killed because it did not take or answer a batch in time.
	Hung
	// Violation: it was killed because it broke the worker protocol.
	Violation
	// Stayed: it was killed because it had disconnected or asked to leave, and went on.
	Stayed
	// Lost: it ended out of sight, because its reaper died or its container engine went away, or its launch did so. It is no
	// failure of the model.
	Lost
	// NotStarted: it could not be started.
	NotStarted
	// Stopped: it was not wanted any more.
	Stopped
	causes
)

var causeNames = [causes]string{
	ExitedByItself: "exited", Signalled: "killed", OutOfMemory: "oom", Unready: "unready", Hung: "hung", Violation: "violation", Stayed: "stayed", Lost: "lost",
	NotStarted: "not_started", Stopped: "stopped",
}

// String is the cause's name in metrics.
func (c Cause) String() string {
	if c == 0 || c >= causes {
		return fmt.Sprintf("cause(%d)", uint8(c))
	}
	return causeNames[c]
}

// cause says why the replica ended, as far as its Exit tells.
func (e Exit) cause() Cause {
	switch {
	case e.Cause != 0:
		return e.Cause
	case e.Signal != 0:
		return Signalled
	default:
		return ExitedByItself
	}
}

// cause says why an attempt ended. asked: the replica was not wanted any more. The caller holds set.mu.
func (l *attempt) cause(exit Exit, asked bool) Cause {
	switch own := exit.cause(); {
	case own == OutOfMemory:
		return own
	case l.killCause != 0 && exit.Signal == sigKill:
		return l.killCause
	case asked:
		return Stopped
	default:
		return own
	}
}

// Counts counts what happens to the replicas of a model version. No count ever falls. Consecutive Sets of a version can share
// one, so that it outlives them. The zero value is ready for use, by many goroutines.
type Counts struct {
	launches, restarts atomic.Uint64
	exits              [causes]atomic.Uint64
}

// Launched reports whether any replica was launched.
func (c *Counts) Launched() bool { return c.launches.Load() > 0 }

// Restarts is how many launches followed one that had ended while it was wanted.
func (c *Counts) Restarts() uint64 { return c.restarts.Load() }

// Exits is how many launches ended, by cause. Every cause is there.
func (c *Counts) Exits() iter.Seq2[Cause, uint64] {
	return func(yield func(Cause, uint64) bool) {
		for cause := ExitedByItself; cause < causes; cause++ {
			if !yield(cause, c.exits[cause].Load()) {
				return
			}
		}
	}
}
