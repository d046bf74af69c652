package local

import (
	"testing"
	"time"
)

// ShortenHandshake gives connections less time to speak for the length of a test.
func ShortenHandshake(tb testing.TB, hello, ready time.Duration) {
	oldHello, oldReady := helloTimeout, readyTimeout
	helloTimeout, readyTimeout = hello, ready
	tb.Cleanup(func() { helloTimeout, readyTimeout = oldHello, oldReady })
}

// MaxIdleBytes is how much a worker may send at once without a frame.
const MaxIdleBytes = maxIdleBytes

// MaxFeedbackWaiting is how many feedback batches wait at a replica.
const MaxFeedbackWaiting = maxFeedbackWaiting

// SideOverdue is what the timer of feedback does.
func (r *Replica) SideOverdue() { r.sideOverdue() }

// MaxDetailBytes bounds a worker's text.
const MaxDetailBytes = maxDetailBytes

// MaxDoors bounds the doors that are open at once.
const MaxDoors = maxDoors
