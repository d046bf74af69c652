package server

import (
	"sync"
	"time"
)

const (
	// sharedFrom is how long an answer takes to make that is worth sharing: with few models every caller gets its own, which is of the moment.
	sharedFrom = time.Millisecond
	// sharedRest is for how many times the time that an answer took it is given to other callers, so that all callers together take about a twentieth of a
	// processor. An answer of 1,000 models takes about 5 ms.
	sharedRest = 20
	sharedMost = time.Second //xebec:limit age of a repository index or of statistics of all models; with few models there is no age
)

// shared bounds the cost of a question that anybody may ask, and whose answer takes long where there are many models: callers wait for one answer, and get the same one for a
// while. Callers do not change it.
type shared[T any] struct {
	mu    sync.Mutex
	value T
	until time.Time
}

// get returns the answer, by make if the last one is too old. An error is not shared.
func (s *shared[T]) get(now func() time.Time, make func() (T, error)) (T, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	began := now()
	if began.Before(s.until) {
		return s.value, nil
	}
	value, err := make()
	ended := now()
	took := ended.Sub(began)
	if err != nil || took < sharedFrom {
		s.forgetLocked()
		return value, err
	}
	s.value, s.until = value, ended.Add(min(sharedRest*took, sharedMost))
	return value, nil
}

// forget makes the next caller get a new answer.
func (s *shared[T]) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forgetLocked()
}

func (s *shared[T]) forgetLocked() {
	var none T
	s.value, s.until = none, time.Time{}
}
