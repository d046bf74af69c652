package workertest

import (
	"fmt"
	"math"
	"strings"
	"syscall"
	"testing"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/worker"
)

// A worker is not sent what it did not declare.
func testCapabilities(t *testing.T, su *suite) {
	r := su.start(t, Text(), 1, 0, model(Markers))
	if got := r.Replica.Info().Capabilities; got != (worker.Capabilities{}) {
		t.Errorf("%+v, expected none", got)
	}
	r.FeedbackTexts("x", "true").Want(api.Unsupported)
	if a := r.Accuracy(); a.Wait() != api.Unsupported || !math.IsNaN(a.value) {
		t.Errorf("accuracy %v, %v", a.value, a.code)
	}
	r.stop()
	r = su.start(t, Text(), 1, 0, model(Markers), EnvFeedback+"=1", EnvContexts+"=1", EnvConfidences+"=1")
	if got, want := r.Replica.Info().Capabilities, (worker.Capabilities{Feedback: true, Accuracy: true, Contexts: true, Confidences: true}); got != want {
		t.Errorf("%+v, expected %+v", got, want)
	}
	r.stop()
}

// A model learns and reports its accuracy. Failures of either do no harm.
func testFeedback(t *testing.T, su *suite) {
	r := su.start(t, Text(), 2, 0, model(Markers), EnvFeedback+"=1")
	unknown := r.Accuracy()
	unknown.Want(api.ModelError)
	wantText := func(told *LearnerCall, what, part string) {
		t.Helper()
		if text := told.Detail(); !strings.HasPrefix(text, what) || !strings.Contains(text, part) || r.Replica.Stats().LastError != text {
			t.Errorf("detail %q, LastError %q: expected both to begin with %q and to have %q", text, r.Replica.Stats().LastError, what, part)
		}
	}
	wantText(unknown, "accuracy: ", "no feedback yet")
	r.FeedbackTexts("a", "true", "b", "false", "c", `"true"`).Want(api.OK)
	r.FeedbackTexts("d", "true").Want(api.OK)
	r.Accuracy().WantValue(0.5)
	failed := r.FeedbackTexts("e", `"panic"`)
	failed.Want(api.ModelError)
	wantText(failed, "feedback: ", "the label panic")
	r.WantTexts(r.Send(Texts("still here")...), "still here")
	r.Accuracy().WantValue(0.5)
	r.Feedback(r.NewBatch(Texts("one", "two")...), "true").Want(api.InvalidArgument)
	r.Feedback(r.NewBatch()).Want(api.InvalidArgument)
	if got, want := r.Replica.Stats().Feedback, (worker.FeedbackCounts{Batches: 2, Labels: 4, Failed: 1}); got != want {
		t.Errorf("%+v, expected %+v", got, want)
	}
	r.wantServed(1, 1) // feedback does not count
	r.stop()
}

// Inputs, contexts and labels arrive unchanged, also if segments must grow for them.
func testFeedbackValues(t *testing.T, su *suite) {
	const max = 8 << 20
	r := su.start(t, Text(), 2, max, model(Markers), EnvFeedback+"=1", EnvContexts+"=1")
	b := r.NewBatch(Texts("one", "", "three")...)
	b.Queries[0].Context, b.Queries[2].Context = []byte("user-17"), []byte("ü")
	r.Feedback(b, `{"a":[1,2.5]}`, "null", `"größer"`).Want(api.OK)
	r.WantTexts(r.Send(Texts("told")...), `one/user-17/{"a":[1,2.5]};//null;three/ü/"größer"`)
	large := strings.Repeat("x", 3<<20)
	told := r.FeedbackTexts(large, "1")
	r.WantTexts(r.Send(Texts("while segments grow")...), "while segments grow")
	told.Want(api.OK)
	r.WantTexts(r.Send(Texts("told")...), large+"//1")
	r.FeedbackTexts(strings.Repeat("x", max), "1").Want(api.TooLarge)
	r.FeedbackTexts("small", "2").Want(api.OK)
	r.WantTexts(r.Send(Texts("told")...), "small//2")
	r.stop()
}

// Feedback among predictions: each call and each batch has its own answer.
func testFeedbackAmongPredictions(t *testing.T, su *suite) {
	const depth = 3
	r := su.start(t, Text(), depth, 0, model(Markers), EnvFeedback+"=1")
	var flying []*api.Batch
	var told []*LearnerCall
	for i := range 60 {
		if len(flying) == depth {
			r.WantTexts(flying[0], string(flying[0].Queries[0].Inputs[0].Data))
			flying = flying[1:]
		}
		flying = append(flying, r.Send(Texts(fmt.Sprint("text ", i))...))
		if i%4 == 0 {
			told = append(told, r.FeedbackTexts(fmt.Sprint("label ", i), "true"))
		}
		if i%20 == 0 {
			r.Accuracy().Wait()
		}
	}
	for _, b := range flying {
		r.WantTexts(b, string(b.Queries[0].Inputs[0].Data))
	}
	for _, t := range told {
		t.Want(api.OK)
	}
	r.Accuracy().WantValue(1)
	r.stop()
}

// SIGTERM during feedback: the worker finishes what it has; what waits is lost.
func testStopInFeedback(t *testing.T, su *suite) {
	g := newGate(t)
	r := su.start(t, Text(), 2, 0, model(Markers), EnvFeedback+"=1")
	first, second := r.FeedbackTexts("x", fmt.Sprintf("%q", g.marker())), r.FeedbackTexts("y", "true")
	g.reached()
	if err := r.process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	r.Replica.Drain()
	g.open()
	first.Want(api.OK)
	if end := r.End(); end.Violation {
		t.Errorf("%+v", end)
	}
	second.Want(api.ReplicaLost)
	if err := r.process.Wait(); err != nil {
		t.Errorf("the worker: %v", err)
	}
}

// A worker is killed in feedback: the predictions behind it had not begun.
func testKilledInFeedback(t *testing.T, su *suite) {
	g := newGate(t)
	r := su.start(t, Text(), 2, 0, model(Markers), EnvFeedback+"=1")
	told := []*LearnerCall{r.FeedbackTexts("x", fmt.Sprintf("%q", g.marker())), r.FeedbackTexts("y", "true"), r.Accuracy()}
	g.reached()
	first, second := r.Send(Texts("one")...), r.Send(Texts("two")...)
	if err := r.process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if end := r.End(); end.Violation {
		t.Errorf("%+v", end)
	}
	g.open()
	for _, t := range told {
		t.Want(api.ReplicaLost)
	}
	if left := r.Left(); len(left) != 2 || left[first.ID] || left[second.ID] {
		t.Errorf("left %v: expected both, neither begun", left)
	}
	if err := r.process.Wait(); err == nil {
		t.Error("the worker exited with 0, expected SIGKILL")
	}
}
