package containers

import "time"

// Backoff says how long a replica that ended waits for its next attempt. The delay doubles with every failure in a row,
// from First to Max, and half of it is drawn by lot, so that replicas that fell together do not come back together
// ("equal jitter": Brooker, Exponential Backoff And Jitter, AWS Architecture Blog, 2015).
type Backoff struct {
	First, Max time.Duration
	// Healthy is how long a replica must have been ready for its end to count as the first failure again.
	Healthy time.Duration
	// After LongAfter failures in a row nobody is about to mend it, and the delay is Long; 0: it never is.
	LongAfter int
	Long      time.Duration
}

// DefaultBackoff restarts nearly at once the first time, for a crash may be a single bad batch, then every half minute, often enough for a
// person who has just repaired the model, and after some minutes of that every five.
var DefaultBackoff = Backoff{First: 100 * time.Millisecond, Max: 30 * time.Second, Healthy: 30 * time.Second, LongAfter: 15, Long: 5 * time.Minute}

// After is the arithmetic of a failure: of how many failures in a row this is now the last, and the delay until the next
// attempt. failures is how many there were before, healthy how long the replica was ready (0: never), u a number drawn
// uniformly from [0, 1). With First = 100 ms and u = 0.5, five failures in a row give 75, 150, 300, 600 and 1200 ms.
func (b Backoff) After(failures int, healthy time.Duration, u float64) (int, time.Duration) {
	if failures < 0 || healthy > 0 && healthy >= b.Healthy {
		failures = 0
	}
	delay := b.First
	for i := 0; i < failures && delay < b.Max; i++ {
		if delay > b.Max/2 {
			delay = b.Max // doubling would pass it, or overflow
			break
		}
		delay *= 2
	}
	delay = min(delay, b.Max)
	if b.LongAfter > 0 && failures >= b.LongAfter {
		delay = b.Long
	}
	half := delay / 2
	return failures + 1, half + time.Duration(u*float64(delay-half))
}
