package main

import (
	"bytes"
	"strings"
	"sync"
	"testing"
)

// stuck is a pipe that is not read until it is opened.
type stuck struct {
	open chan struct{}
	mu   sync.Mutex
	got  bytes.Buffer
}

func (s *stuck) Write(p []byte) (int, error) {
	<-s.open
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.got.Write(p)
}

func TestALogThatNobodyReadsHoldsUpNobody(t *testing.T) {
	out := &stuck{open: make(chan struct{})}
	w := newAsyncWriter(out)
	for range 3 * maxPendingLogLines { // returns although nothing is read
		w.Write([]byte("line\n"))
	}
	close(out.open)
	for w.pending() > 0 {
		w.Write([]byte("again\n"))
	}
	w.close()
	text := out.got.String()
	if !strings.Contains(text, "log lines were dropped") || strings.Count(text, "line\n") < maxPendingLogLines {
		t.Errorf("%d lines came, and of the rest nothing is said", strings.Count(text, "line\n"))
	}
}

// pending is how many dropped lines have not been told of.
func (w *asyncWriter) pending() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.dropped
}
