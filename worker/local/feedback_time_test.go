package local_test

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/worker"
	"github.com/xebec-serving/xebec/worker/local"
	"github.com/xebec-serving/xebec/worker/wire"
	"github.com/xebec-serving/xebec/worker/workertest"
)

// timed is a hub with a fake clock and one raw worker.
type timed struct {
	*workertest.Session
	w   *workertest.Raw
	now atomic.Int64
}

func newTimed(t *testing.T, e worker.Expectation) *timed {
	t.Helper()
	st := &timed{}
	st.now.Store(1e9)
	hub, err := local.Listen(local.Config{Socket: "@" + t.Name(), Now: func() api.Nanos { return api.Nanos(st.now.Load()) }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := hub.Close(); err != nil {
			t.Error(err)
		}
	})
	l := workertest.Expect(t, hub, e)
	st.w = workertest.StartRaw(t, "@"+t.Name(), l.Token(), wire.CapRing|learner)
	t.Cleanup(st.w.Close)
	st.Session = workertest.NewSession(t, l)
	return st
}

// The time that a prediction waits behind feedback is not part of its evaluation time, so the scheduler's profile does
// not learn it.
func TestFeedbackIsNoEvaluationTime(t *testing.T) {
	st := newTimed(t, worker.Expectation{Signature: workertest.Text(), Depth: 2})
	told := st.FeedbackTexts("x", "1")
	feedback := st.w.Next()
	b := st.Send(workertest.Texts("behind")...)
	predict := st.w.Next()
	st.now.Add(10e9)
	st.w.Respond(workertest.Answer(feedback))
	told.Want(api.OK)
	st.now.Add(2e9)
	st.w.Respond(st.w.Outputs(predict, st.w.Inputs(predict)))
	if res := st.Wait(b); res.EvalNanos != 2e9 {
		t.Errorf("evaluated in %d ns, expected 2 s: the 10 s before are feedback's", res.EvalNanos)
	}
	st.w.Close()
	st.End()
}

// A worker that always has predictions gets feedback after a while, for a tenth of its time.
func TestFeedbackAmongMorePredictions(t *testing.T) {
	st := newTimed(t, worker.Expectation{Signature: workertest.Text(), Depth: 2})
	answer := func(req wire.Request) { st.w.Respond(st.w.Outputs(req, st.w.Inputs(req))) }
	flying := make(chan *api.Batch, 3)
	flying <- st.Send(workertest.Texts("x")...)
	flying <- st.Send(workertest.Texts("x")...)
	told := []*workertest.LearnerCall{st.FeedbackTexts("x", "1"), st.FeedbackTexts("x", "2")}
	renewed := make(chan struct{})
	// The lane sends from within Done.
	st.Events.OnDone = func(r worker.Replica, _ *api.BatchResult) {
		b := st.NewBatch(workertest.Texts("x")...)
		if err := st.TrySend(b); err != nil {
			t.Error(err)
		}
		flying <- b
		renewed <- struct{}{}
	}
	var fedAt []int64
	const step, learns = 10e6, 30e6
	for len(fedAt) < 2 {
		req := st.w.Next()
		if req.Kind == wire.KindFeedback {
			fedAt = append(fedAt, st.now.Load())
			st.now.Add(learns)
			st.w.Respond(workertest.Answer(req))
			told[len(fedAt)-1].Want(api.OK)
			continue
		}
		if st.now.Load() > 10e9 {
			t.Fatalf("feedback came at %v, and no more for 9 s", fedAt)
		}
		st.now.Add(step)
		answer(req)
		<-renewed
		st.WantOK(<-flying)
	}
	if waited := fedAt[0] - 1e9; waited < 50e6 || waited > 50e6+3*step {
		t.Errorf("the first came after %d ms, expected 50 and the predictions in front", waited/1e6)
	}
	if rested := fedAt[1] - fedAt[0] - learns; rested < 9*learns || rested > 9*learns+3*step {
		t.Errorf("the second came %d ms after the first, which took 30, expected 270 and the predictions in front", rested/1e6)
	}
	st.w.Close()
	st.End()
}

// A worker that takes too long for feedback is ended. Time that predictions in front of it take does not count.
func TestFeedbackThatHangs(t *testing.T) {
	const timeout = time.Hour // the timer itself never fires: the test calls its function
	st := newTimed(t, worker.Expectation{Signature: workertest.Text(), Depth: 2, FeedbackTimeout: timeout})
	front := st.Send(workertest.Texts("in front")...)
	predict := st.w.Next()
	told := st.FeedbackTexts("x", "1")
	st.now.Add(60e6) // long enough to be sent behind the prediction, once something happens
	asked := st.Accuracy()
	accuracy := st.w.Next()
	st.now.Add(int64(5 * timeout))
	st.Replica.(*local.Replica).SideOverdue() // the prediction hangs, which is the scheduler's concern
	st.w.Respond(st.w.Outputs(predict, st.w.Inputs(predict)))
	st.WantTexts(front, "in front")
	st.now.Add(int64(timeout) - 1)
	st.Replica.(*local.Replica).SideOverdue()
	st.w.Respond(st.w.Accuracy(accuracy, 1))
	asked.WantValue(1)
	if req := st.w.Next(); req.Kind != wire.KindFeedback {
		t.Fatalf("%+v", req)
	}
	st.now.Add(int64(timeout) - 1)
	st.Replica.(*local.Replica).SideOverdue()
	if told.Ended() {
		t.Error("ended before the timeout")
	}
	st.now.Add(int64(5 * timeout)) // the gateway was paused: it must read what has arrived first
	st.Replica.(*local.Replica).SideOverdue()
	st.now.Add(100e6 - 1)
	st.Replica.(*local.Replica).SideOverdue()
	if told.Ended() {
		t.Error("ended at the first check after the timeout")
	}
	st.now.Add(1)
	st.Replica.(*local.Replica).SideOverdue()
	if end := st.End(); end.Violation || !strings.Contains(end.Reason, "no answer to FEEDBACK for 1h") {
		t.Errorf("%+v", end)
	}
	told.Want(api.ReplicaLost)
}

// The real timer fires.
func TestFeedbackThatHangsByTheClock(t *testing.T) {
	eachPoller(t, func(t *testing.T, g *workertest.Hub) {
		l := workertest.Expect(t, g.Transport, worker.Expectation{Signature: workertest.Text(), Depth: 2, FeedbackTimeout: time.Millisecond})
		w := workertest.StartRaw(t, g.Socket, l.Token(), wire.CapRing|learner)
		defer w.Close()
		s := workertest.NewSession(t, l)
		told, waiting := s.FeedbackTexts("x", "1"), s.FeedbackTexts("y", "2")
		if end := s.End(); end.Violation || !strings.Contains(end.Reason, "no answer") {
			t.Errorf("%+v", end)
		}
		told.Want(api.ReplicaLost)
		waiting.Want(api.ReplicaLost)
	})
}
