package server

import (
	"errors"
	"testing"
	"time"
)

// TestShared: an answer that took long is shared for twenty times as long, at most a second; one that took little is not, and neither is an error.
func TestShared(t *testing.T) {
	clock := time.Unix(1000, 0)
	now := func() time.Time { return clock }
	var s shared[int]
	made := 0
	var failure error
	ask := func(takes time.Duration, want int) {
		t.Helper()
		got, err := s.get(now, func() (int, error) {
			made++
			clock = clock.Add(takes)
			return made, failure
		})
		if got != want || !errors.Is(err, failure) {
			t.Errorf("got %d %v, want %d %v", got, err, want, failure)
		}
	}
	ask(time.Microsecond, 1)
	ask(5*time.Millisecond, 2)
	ask(0, 2)
	clock = clock.Add(100*time.Millisecond - 1)
	ask(0, 2)
	clock = clock.Add(1)
	ask(time.Minute, 3) // long, but not for twenty minutes
	clock = clock.Add(time.Second - 1)
	ask(0, 3)
	clock = clock.Add(1)
	ask(5*time.Millisecond, 4)
	s.forget()
	ask(5*time.Millisecond, 5)
	clock = clock.Add(time.Hour)
	failure = errors.New("it fails")
	ask(5*time.Millisecond, 6)
	failure = nil
	ask(5*time.Millisecond, 7)
}
