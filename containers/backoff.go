package containers

import "time"

// Backoff computes how long a replica that ended waits for its next attempt. The delay doubles with every consecutive
// failure, from First to Max. Half of it is random, so that replicas that failed together do not restart together
// ("equal jitter": Brooker, Exponential Backoff And Jitter, AWS Architecture Blog, 2015).
type Backoff struct {
	First, Max time.Duration
	// Healthy is how long a replica must have been ready for its end to count as the first failure again, unless it has answered a batch.
	Healthy time.Duration
	// After LongAfter consecutive failures the delay is Long, because the model is not being repaired; 0 means never.
	LongAfter int
	Long      time.Duration
}

// DefaultBackoff restarts almost at once after the first failure, which may be a single bad batch, then every half
// minute, which is often enough for a person who has just repaired the model, and after some minutes of that every five
// minutes.
var DefaultBackoff = Backoff{
	First:     100 * time.Millisecond, //xebec:limit first delay of a restart
	Max:       30 * time.Second,       //xebec:limit longest delay of a restart
	Healthy:   30 * time.Second,
	LongAfter: 15,              //xebec:limit failures in a row after which the delay is longer
	Long:      5 * time.Minute, //xebec:limit this longer delay
}

// After returns the number of consecutive failures, including this one, and the delay until the next attempt. failures
// is the number before, healthy how long the replica was ready (0: never), u a uniform random number from [0, 1). With
// First = 100 ms and u = 0.5, five consecutive failures give 75, 150, 300, 600 and 1200 ms.
func (b Backoff) After(failures int, healthy time.Duration, u float64) (int, time.Duration) {
	if failures < 0 || healthy > 0 && healthy >= b.Healthy {
		failures = 0
	}
	delay := b.First
	for i := 0; i < failures && delay < b.Max; i++ {
		if delay > b.Max/2 {
			delay = b.Max // doubling would exceed it, or overflow
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
