package busypoll

import (
	"fmt"
	"time"

	"github.com/xebec-serving/xebec/api"
)

const (
	// fewCores is the largest machine on which nothing spins: gateway and replica, which take turns, would spin while the other one, or the
	// client, needs the core.
	fewCores = 2 //xebec:limit cores on which `busy_poll` and `--busy-poll` are off

	// Of a new wait an eighth goes into the average.
	weight = 8
	// A wait counts as at most farBounds bounds, so one long pause among short waits changes little.
	farBounds = 4
	// After a spin in vain the side sleeps at once in the next 2, 4, … 1,024 waits: the more, the more spins were in vain than found
	// something. Waits may be short only because the side does not spin, and so leaves the core to those that it waits for.
	maxVain = 10
)

// Off says why nothing spins with this many cores; empty: it may.
func Off(cores int) (why string) {
	if cores > fewCores {
		return ""
	}
	return fmt.Sprintf("spinning takes more than %d cores, and there are %d", fewCores, cores)
}

// Estimator decides for one side. The zero value never spins. One goroutine uses it at a time.
type Estimator struct {
	bound   api.Nanos // the longest spin; 0: none
	mean    api.Nanos // of the waits
	began   api.Nanos // when the present wait began
	vain    int       // spins in vain, less those that found something; 0 to maxVain
	skip    int       // how many of the next waits have no spin
	waiting bool
	spun    bool // in the present wait
}

// New returns an estimator for spins of at most bound. It expects nothing soon until it has seen otherwise.
func New(bound time.Duration) Estimator {
	return Estimator{bound: api.Nanos(bound), mean: farBounds * api.Nanos(bound)}
}

// On reports whether the estimator may ever ask to spin. If not, its user need not read a clock.
func (e *Estimator) On() bool { return e.bound > 0 }

// Idle says that there is nothing to do at now. The side may spin until the time that it returns, at most once in a wait.
func (e *Estimator) Idle(now api.Nanos) (until api.Nanos) {
	if e.bound <= 0 || e.waiting {
		return now
	}
	e.waiting, e.began, e.spun = true, now, e.mean <= e.bound && e.skip == 0
	e.skip = max(e.skip-1, 0)
	if e.spun {
		return now + e.bound
	}
	return now
}

// Waiting reports whether Arrived is to be called for the next work.
func (e *Estimator) Waiting() bool { return e.waiting }

// Arrived says that work has come, which ends the wait.
func (e *Estimator) Arrived(now api.Nanos) {
	if !e.waiting {
		return
	}
	e.waiting = false
	wait := max(now-e.began, 0)
	switch {
	case e.spun && wait > e.bound:
		e.vain = min(e.vain+1, maxVain)
		e.skip = 1 << e.vain
	case e.spun:
		e.vain = max(e.vain-1, 0)
	}
	e.mean += (min(wait, farBounds*e.bound) - e.mean) / weight
}
