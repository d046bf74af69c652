package workertest

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/worker"
)

// Cases that depend on the gateway's side alone. Bindings are not tested by them.
var transportCases = []testCase{
	{name: "withdrawn", run: testWithdrawn},
	{name: "used once", run: testUsedOnce},
	{name: "isolated", run: testIsolated},
	{name: "info", run: testInfo},
	{name: "send from events", run: testSendFromEvents},
	{name: "batches are reused", run: testBatchesAreReused},
	{name: "kill", run: testKill},
	{name: "kill in a batch", rich: true, run: testKillInABatch},
	{name: "kill from an event", run: testKillFromAnEvent},
	{name: "late answer", rich: true, run: testLateAnswer},
	{name: "hangs in feedback", rich: true, run: testHangsInFeedback},
	{name: "oldest labels give way", rich: true, run: testOldestLabelsGiveWay},
	{name: "many callers", run: testManyCallers},
	{name: "two replicas", run: testTwoReplicas},
	{name: "close", rich: true, run: testClose},
}

// A withdrawn launch admits no worker and has no events.
func testWithdrawn(t *testing.T, su *suite) {
	g, start := su.open(t, 0)
	l := g.Expect(Text(), 1)
	if !l.Withdraw() {
		t.Error("a launch whose worker has not connected cannot be withdrawn")
	}
	if l.Withdraw() {
		t.Error("a launch was withdrawn twice")
	}
	if err := start(t, append(l.Env, model(Echo))).Wait(); err == nil {
		t.Error("a worker whose launch was withdrawn ended without an error")
	}
	g.Close()
	if n := l.Events.count(); n != 0 {
		t.Errorf("%d events of a launch that was withdrawn", n)
	}
}

// A second worker with the same environment is refused, and the first is not affected.
func testUsedOnce(t *testing.T, su *suite) {
	g, start := su.open(t, 0)
	l := g.Expect(Text(), 1)
	env := append(l.Env, model(Markers))
	p := start(t, env)
	r := &running{NewSession(t, l), g, p}
	r.WantTexts(r.Send(Texts("first")...), "first")
	if err := start(t, env).Wait(); err == nil {
		t.Error("a second worker with the same environment ended without an error")
	}
	r.WantTexts(r.Send(Texts("still first")...), "still first")
	r.stop()
}

// A worker that runs in a container connects and serves like any other.
func testIsolated(t *testing.T, su *suite) {
	g, start := su.open(t, 0)
	l := Expect(t, g.Transport, worker.Expectation{Signature: Text(), Depth: 1, Isolated: true})
	p := start(t, append(l.Env, model(Markers)))
	r := &running{NewSession(t, l), g, p}
	r.WantTexts(r.Send(Texts("x")...), "x")
	r.stop()
}

// Info never changes. Info and Stats can be read after Gone.
func testInfo(t *testing.T, su *suite) {
	r := su.start(t, Text(), 1, 0, model(Markers), EnvFeedback+"=1")
	before := r.Replica.Info()
	if _, ok := r.Replica.(worker.Learner); !ok {
		t.Errorf("%T with %+v is no Learner", r.Replica, before.Capabilities)
	}
	r.WantTexts(r.Send(Texts("x")...), "x")
	r.stop()
	if after := r.Replica.Info(); after != before {
		t.Errorf("%+v when it is gone, %+v before", after, before)
	}
	r.wantServed(1, 1)
}

// Batches are sent from within Ready and Done, as a lane does.
func testSendFromEvents(t *testing.T, su *suite) {
	const depth, rounds = 2, 200
	g, start := su.open(t, 0)
	l := g.Expect(Text(), depth)
	var batches []*api.Batch // used by events only, which never overlap
	send := func(r worker.Replica) {
		if n := len(batches); n < rounds {
			b := &api.Batch{ID: uint64(n + 1), Queries: []*api.Query{{Inputs: Texts(fmt.Sprint("text ", n))[0], Deadline: api.Never}}}
			batches = append(batches, b)
			if err := r.Send(b); err != nil {
				t.Errorf("send batch %d: %v", b.ID, err)
			}
		}
	}
	l.Events.OnReady = func(r worker.Replica) {
		for range depth {
			send(r)
		}
	}
	l.Events.OnDone = func(r worker.Replica, _ *api.BatchResult) { send(r) }
	p := start(t, append(l.Env, model(Echo)))
	for id := range uint64(rounds) {
		if res := l.Events.WaitDone(t, id+1); res.Code != api.OK || res.EvalNanos < 0 || res.WorkNanos < 0 {
			t.Fatalf("%+v", res)
		}
	}
	s := NewSession(t, l)
	s.sent = map[uint64]*api.Batch{}
	for i, b := range batches {
		s.sent[b.ID], s.last = b, b.ID
		s.WantTexts(b, fmt.Sprint("text ", i))
	}
	(&running{s, g, p}).stop()
}

// The caller may reuse a batch as soon as it is reported done: the transport no longer reads it.
func testBatchesAreReused(t *testing.T, su *suite) {
	const rounds = 50
	g, start := su.open(t, 0)
	l := g.Expect(Text(), 1)
	b := &api.Batch{ID: 1, Queries: []*api.Query{{Inputs: []api.Value{{Data: []byte("000")}}, Deadline: api.Never}}}
	var got []string
	l.Events.OnReady = func(r worker.Replica) {
		if err := r.Send(b); err != nil {
			t.Errorf("send: %v", err)
		}
	}
	l.Events.OnDone = func(r worker.Replica, res *api.BatchResult) {
		got = append(got, string(b.Queries[0].Outputs[0].Data))
		if b.ID == rounds {
			return
		}
		copy(b.Queries[0].Inputs[0].Data, fmt.Sprintf("%03d", b.ID))
		b.ID++
		if err := r.Send(b); err != nil {
			t.Errorf("send batch %d: %v", b.ID, err)
		}
	}
	p := start(t, append(l.Env, model(Echo)))
	l.Events.WaitDone(t, rounds)
	s := NewSession(t, l)
	for id := range uint64(rounds) {
		s.sent[id+1], s.last = b, rounds
	}
	(&running{s, g, p}).stop()
	for i, text := range got {
		if text != fmt.Sprintf("%03d", i) {
			t.Errorf("the output of batch %d is %q", i+1, text)
		}
	}
}

// Kill ends a replica once, with its reason.
func testKill(t *testing.T, su *suite) {
	r := su.start(t, Text(), 1, 0, model(Markers))
	r.WantTexts(r.Send(Texts("x")...), "x")
	r.Replica.Kill("enough")
	r.Replica.Kill("more than enough")
	if end := r.End(); end.Reason != "enough" || end.Violation {
		t.Errorf("%q, violation %v: expected the reason of the first Kill", end.Reason, end.Violation)
	}
	if err := r.process.Wait(); err == nil {
		t.Error("a worker that was killed ended without an error")
	}
	r.Replica.Drain() // does nothing
	r.Replica.Kill("again")
}

// A replica is killed in a batch: that one had begun, and the transport touches neither batch any more.
func testKillInABatch(t *testing.T, su *suite) {
	g := newGate(t)
	r := su.start(t, Text(), 2, 0, model(Markers))
	first, second := r.Send(Texts(g.marker())...), r.Send(Texts("behind")...)
	g.reached()
	r.Replica.Kill("it hangs")
	r.End()
	if left := r.Left(); len(left) != 2 || !left[first.ID] {
		t.Errorf("left %v: expected both, and batch %d begun", left, first.ID)
	}
	first.Queries[0].Outputs, second.Queries[0].Outputs = nil, nil
	g.open()
	_ = r.process.Wait()
	if first.Queries[0].Outputs != nil || second.Queries[0].Outputs != nil {
		t.Error("outputs were written after Gone")
	}
}

// Kill may be called from within an event.
func testKillFromAnEvent(t *testing.T, su *suite) {
	g, start := su.open(t, 0)
	l := g.Expect(Text(), 1)
	l.Events.OnDone = func(r worker.Replica, _ *api.BatchResult) { r.Kill("from Done") }
	p := start(t, append(l.Env, model(Echo)))
	s := NewSession(t, l)
	s.Send(Texts("x")...)
	if end := s.End(); end.Reason != "from Done" {
		t.Errorf("%q, expected the reason of the Kill", end.Reason)
	}
	_ = p.Wait()
}

// Batches that were sent before Drain are answered.
func testLateAnswer(t *testing.T, su *suite) {
	g := newGate(t)
	r := su.start(t, Text(), 2, 0, model(Markers))
	first, second := r.Send(Texts(g.marker())...), r.Send(Texts("behind")...)
	g.reached()
	r.Replica.Drain()
	g.open()
	r.End()
	r.TB = t
	for b, want := range map[*api.Batch]string{first: g.marker(), second: "behind"} {
		if res, ok := r.Events.Result(b.ID); !ok || res.Code != api.OK || string(b.Queries[0].Outputs[0].Data) != want {
			t.Errorf("batch %d: %+v, %v", b.ID, res, ok)
		}
	}
	if err := r.process.Wait(); err != nil {
		t.Errorf("the worker: %v", err)
	}
}

// A worker that takes too long for feedback is ended.
func testHangsInFeedback(t *testing.T, su *suite) {
	gate := newGate(t)
	g, start := su.open(t, 0)
	l := Expect(t, g.Transport, worker.Expectation{Signature: Text(), Depth: 1, FeedbackTimeout: time.Millisecond})
	p := start(t, append(l.Env, model(Markers), EnvFeedback+"=1"))
	s := NewSession(t, l)
	told := s.FeedbackTexts("x", fmt.Sprintf("%q", gate.marker()))
	if end := s.End(); end.Violation {
		t.Errorf("%q is a violation, expected a timeout", end.Reason)
	}
	told.Want(api.ReplicaLost)
	gate.remove()
	if err := p.Wait(); err == nil {
		t.Error("a worker that was killed for hanging ended without an error")
	}
}

// The queue of labels is bounded. The oldest batches that wait are dropped, and each batch ends once.
func testOldestLabelsGiveWay(t *testing.T, su *suite) {
	gate := newGate(t)
	r := su.start(t, Text(), 1, 0, model(Markers), EnvFeedback+"=1")
	first := r.FeedbackTexts("x", fmt.Sprintf("%q", gate.marker()))
	gate.reached()
	const more = 200
	var all []*LearnerCall
	for i := range more {
		all = append(all, r.FeedbackTexts(fmt.Sprint("label ", i), "true"))
	}
	one, two := r.Accuracy(), r.Accuracy()
	two.Want(api.Overloaded)
	gate.open()
	first.Want(api.OK)
	one.Wait()
	dropped := 0
	for i, told := range all {
		switch code := told.Wait(); {
		case code == api.Overloaded && dropped == i:
			dropped++
		case code != api.OK:
			t.Errorf("batch of labels %d ended in %v after %d dropped ones: expected the oldest to be dropped", i, code, dropped)
		}
	}
	if got := r.Replica.Stats().Feedback; dropped == 0 || dropped == more || got.Dropped != uint64(dropped) || got.Batches != uint64(more-dropped+1) {
		t.Errorf("%d of %d were dropped, the counts are %+v", dropped, more, got)
	}
	r.stop()
}

// Replicas do not affect each other.
func testTwoReplicas(t *testing.T, su *suite) {
	g, start := su.open(t, 0)
	var all []*running
	for range 2 {
		l := g.Expect(Text(), 1)
		p := start(t, append(l.Env, model(Markers)))
		all = append(all, &running{NewSession(t, l), g, p})
	}
	one, two := all[0], all[1]
	if one.Replica == two.Replica {
		t.Fatal("two workers are one Replica")
	}
	one.WantTexts(one.Send(Texts("one")...), "one")
	one.Replica.Kill("enough")
	one.End()
	_ = one.process.Wait()
	two.WantTexts(two.Send(Texts("two")...), "two")
	two.stop()
}

// Close ends replicas that serve, that are busy and that are leaving, and returns after the last Gone.
func testClose(t *testing.T, su *suite) {
	gate := newGate(t)
	g, start := su.open(t, 0)
	var all []*running
	for range 3 {
		l := g.Expect(Text(), 1)
		p := start(t, append(l.Env, model(Markers)))
		all = append(all, &running{NewSession(t, l), g, p})
	}
	busy := all[1].Send(Texts(gate.marker())...)
	gate.reached()
	all[2].terminate()
	waiting := g.Expect(Text(), 1)
	g.Close()
	for i, r := range all {
		if !r.Events.isGone() {
			t.Errorf("replica %d was not gone when Close returned", i)
		}
	}
	gate.open()
	for i, r := range all {
		end := r.End()
		if left := r.Left(); end.Violation || len(left) != map[bool]int{true: 1}[i == 1] {
			t.Errorf("replica %d: %q, violation %v, left %v", i, end.Reason, end.Violation, left)
		}
		if err := r.process.Wait(); err == nil && i != 2 {
			t.Errorf("worker %d has lost its gateway and ended without an error", i)
		}
	}
	if !all[1].Left()[busy.ID] {
		t.Error("the batch in evaluation is not reported as begun")
	}
	if n := waiting.Events.count(); n != 0 {
		t.Errorf("%d events of a launch without a worker", n)
	}
}

// Several goroutines read statistics and send labels while batches come and go.
func testManyCallers(t *testing.T, su *suite) {
	r := su.start(t, Text(), 2, 0, model(Markers), EnvFeedback+"=1")
	l := r.Replica.(worker.Learner)
	b := &api.Batch{Queries: []*api.Query{{Inputs: Texts("x")[0]}}}
	var wg, ends sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 50 {
				ends.Add(2)
				l.Feedback(b, [][]byte{[]byte("true")}, func(code api.Code, _ string) {
					if code != api.OK && code != api.Overloaded {
						t.Errorf("feedback ended in %v", code)
					}
					ends.Done()
				})
				l.Accuracy(func(value float64, code api.Code, _ string) {
					if code == api.OK && value != 1 {
						t.Errorf("accuracy %v", value)
					}
					ends.Done()
				})
				r.Replica.Stats()
				r.Replica.Info()
			}
		})
	}
	for i := range 100 {
		text := fmt.Sprint("text ", i)
		r.WantTexts(r.Send(Texts(text)...), text)
	}
	wg.Wait()
	ends.Wait()
	r.stop()
	var refused *api.Error
	if err := r.Replica.Send(&api.Batch{ID: 1000, Queries: b.Queries}); !errors.As(err, &refused) || refused.Code != api.Unavailable {
		t.Errorf("Send after Gone: %v, expected Unavailable", err)
	}
}
