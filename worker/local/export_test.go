package local

import (
	"testing"
	"time"
)

// ShortenHandshake shortens the handshake's timeouts for the duration of a test.
func ShortenHandshake(tb testing.TB, hello, ready time.Duration) {
	oldHello, oldReady := helloTimeout, readyTimeout
	helloTimeout, readyTimeout = hello, ready
	tb.Cleanup(func() { helloTimeout, readyTimeout = oldHello, oldReady })
}

// MaxIdleBytes is how many bytes a worker may send without completing a frame.
const MaxIdleBytes = maxIdleBytes

// MaxFeedbackWaiting is how many feedback batches wait at a replica.
const MaxFeedbackWaiting = maxFeedbackWaiting

// LookIdle does what the timer does that looks for segments that are larger than needed.
func (r *Replica) LookIdle() { r.lookIdle() }

// SideOverdue does what the timer of a side request does.
func (r *Replica) SideOverdue() { r.sideOverdue() }

// MaxDetailBytes bounds a worker's text.
const MaxDetailBytes = maxDetailBytes

// MaxSpins is how many spins one wake-up may have.
const MaxSpins = maxSpins

// MaxDoors bounds open doors.
const MaxDoors = maxDoors
