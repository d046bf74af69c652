package workertest

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/worker"
)

// LearnerCall is one call of a Learner and its end. Session.End checks that each ended once.
type LearnerCall struct {
	tb    TB
	times atomic.Int32
	ended chan struct{}
	code  api.Code
	value float64
	text  string
}

func (s *Session) tell() (*LearnerCall, func(float64, api.Code, string)) {
	t := &LearnerCall{tb: s.TB, ended: make(chan struct{})}
	s.told = append(s.told, t)
	return t, func(value float64, code api.Code, detail string) {
		if t.times.Add(1) == 1 {
			t.value, t.code, t.text = value, code, detail
			close(t.ended)
		}
	}
}

// Feedback sends the replica labels, one per query of b.
func (s *Session) Feedback(b *api.Batch, labels ...string) *LearnerCall {
	t, done := s.tell()
	raw := make([][]byte, len(labels))
	for i, label := range labels {
		raw[i] = []byte(label)
	}
	l, ok := s.Replica.(worker.Learner)
	if !ok { // the same answer as that of a Learner without the capability
		done(0, api.Unsupported, "the replica is no Learner")
		return t
	}
	l.Feedback(b, raw, func(code api.Code, detail string) { done(0, code, detail) })
	return t
}

// FeedbackTexts sends the replica labels for texts: text, label, text, label …
func (s *Session) FeedbackTexts(pairs ...string) *LearnerCall {
	var texts, labels []string
	for i := 0; i < len(pairs); i += 2 {
		texts, labels = append(texts, pairs[i]), append(labels, pairs[i+1])
	}
	b := &api.Batch{}
	for _, inputs := range Texts(texts...) {
		b.Queries = append(b.Queries, &api.Query{Inputs: inputs})
	}
	return s.Feedback(b, labels...)
}

// Accuracy asks the replica for its accuracy.
func (s *Session) Accuracy() *LearnerCall {
	t, done := s.tell()
	l, ok := s.Replica.(worker.Learner)
	if !ok {
		done(math.NaN(), api.Unsupported, "the replica is no Learner")
		return t
	}
	l.Accuracy(done)
	return t
}

// Wait blocks until the call has ended and returns its code.
func (t *LearnerCall) Wait() api.Code {
	t.tb.Helper()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-t.ended:
	case <-timer.C:
		t.tb.Fatalf("waiting for the end of a Learner call: no answer for %v", patience)
	}
	return t.code
}

// Detail waits for the end and returns its text.
func (t *LearnerCall) Detail() string {
	t.tb.Helper()
	t.Wait()
	return t.text
}

// Want waits for an end with this code.
func (t *LearnerCall) Want(code api.Code) {
	t.tb.Helper()
	if got := t.Wait(); got != code {
		t.tb.Fatalf("the call of the Learner ended in %v, expected %v", got, code)
	}
}

// WantValue waits for an accuracy.
func (t *LearnerCall) WantValue(value float64) {
	t.tb.Helper()
	if t.Want(api.OK); t.value != value {
		t.tb.Fatalf("the accuracy is %v, expected %v", t.value, value)
	}
}

// Ended reports whether the call has ended.
func (t *LearnerCall) Ended() bool { return t.times.Load() > 0 }
