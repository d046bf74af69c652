package local_test

import (
	"context"
	"fmt"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/worker"
	xebec "github.com/xebec-serving/xebec/worker/bindings/go"
	"github.com/xebec-serving/xebec/worker/local"
	"github.com/xebec-serving/xebec/worker/wire"
	"github.com/xebec-serving/xebec/worker/workertest"
)

// learner is the capabilities of a worker that takes feedback and knows its accuracy.
const learner = wire.CapFeedback | wire.CapAccuracy

// The wire format of side requests: one sequence of numbers for all kinds, a grant for an error's text, contexts and
// labels in their places.
func TestFeedbackOnTheWire(t *testing.T) {
	everyWay(t, func(t *testing.T, poller local.Poller, capabilities uint32) {
		st := newStage(t, poller, capabilities|learner|wire.CapContexts, workertest.Text(), 2, 0)
		b, predict := st.take("asked")
		if got := st.w.Inputs(predict); len(got[0]) != 2 || string(got[0][1].Data) != "" {
			t.Errorf("inputs %q, expected an empty context behind the text", texts(got))
		}
		st.w.Respond(st.echo(predict))
		st.WantTexts(b, "asked")

		fed := &api.Batch{ID: 99, Pad: 5} // neither counts
		for _, inputs := range workertest.Texts("one", "two") {
			fed.Queries = append(fed.Queries, &api.Query{Inputs: inputs, Context: []byte("user")})
		}
		told := st.Feedback(fed, "1", `"x"`)
		req := st.w.Next()
		if req.Kind != wire.KindFeedback || req.Count != 2 || req.Batch <= predict.Batch || req.OutCap < 4096 {
			t.Errorf("%+v: expected FEEDBACK of 2, a number above %d, a grant of 4096 or more", req, predict.Batch)
		}
		if got := fmt.Sprintf("%s", texts(st.w.Inputs(req))); got != `[[one user 1] [two user "x"]]` {
			t.Errorf("the block has %s", got)
		}
		st.w.Respond(workertest.Answer(req))
		told.Want(api.OK)

		asked := st.Accuracy()
		last := st.w.Next()
		if last.Kind != wire.KindAccuracy || last.Count != 0 || last.InOff != 0 || last.InLen != 0 || last.Batch <= req.Batch || last.OutCap < 4096 {
			t.Errorf("%+v: expected ACCURACY without a block, a number above %d, a grant of 4096 or more", last, req.Batch)
		}
		st.w.Respond(st.w.Accuracy(last, 0.75))
		asked.WantValue(0.75)

		b, predict = st.take("again")
		if predict.Batch <= last.Batch {
			t.Errorf("batch %d after %d", predict.Batch, last.Batch)
		}
		st.w.Respond(st.echo(predict))
		st.WantTexts(b, "again")
		st.w.Close()
		st.End()
		st.unaffected(t)
	})
}

func texts(rows workertest.Column) (out [][]string) {
	for _, row := range rows {
		var cells []string
		for _, v := range row {
			cells = append(cells, string(v.Data))
		}
		out = append(out, cells)
	}
	return out
}

// A response that contradicts its FEEDBACK or ACCURACY ends the worker, and the request ends as ReplicaLost.
func TestSideAnswersThatContradict(t *testing.T) {
	for _, c := range []struct {
		name, want string
		kind       wire.Kind
		change     func(res *wire.Response, req wire.Request)
	}{
		{"PREDICT for FEEDBACK", "contradicts", wire.KindFeedback, func(res *wire.Response, _ wire.Request) { res.Kind = wire.KindPredict }},
		{"ACCURACY for FEEDBACK", "contradicts", wire.KindFeedback, func(res *wire.Response, _ wire.Request) { res.Kind = wire.KindAccuracy }},
		{"fewer labels", "contradicts", wire.KindFeedback, func(res *wire.Response, _ wire.Request) { res.Count-- }},
		{"another generation", "contradicts", wire.KindFeedback, func(res *wire.Response, _ wire.Request) { res.Generation++ }},
		{"another block", "contradicts", wire.KindFeedback, func(res *wire.Response, _ wire.Request) { res.OutOff += 64 }},
		{"more than was granted", "contradicts", wire.KindFeedback, func(res *wire.Response, req wire.Request) { res.OutLen = req.OutCap + 1 }},
		{"outputs of FEEDBACK", "must not have outputs", wire.KindFeedback, func(res *wire.Response, _ wire.Request) { res.OutLen = 64 }},
		{"NEED_MORE for FEEDBACK", "must not have outputs", wire.KindFeedback, func(res *wire.Response, req wire.Request) {
			res.Status, res.Need = wire.StatusNeedMore, req.OutCap+1
		}},
		{"confidences of FEEDBACK", "must not have outputs", wire.KindFeedback, func(res *wire.Response, _ wire.Request) { res.Flags = wire.FlagConfidences }},
		{"a text with UNSUPPORTED", "must not have outputs", wire.KindFeedback, func(res *wire.Response, _ wire.Request) {
			res.Status, res.OutLen = wire.StatusUnsupported, 5
		}},
		{"FEEDBACK for ACCURACY", "contradicts", wire.KindAccuracy, func(res *wire.Response, _ wire.Request) { res.Kind = wire.KindFeedback }},
		{"a count for ACCURACY", "contradicts", wire.KindAccuracy, func(res *wire.Response, _ wire.Request) { res.Count = 1 }},
		{"NEED_MORE for ACCURACY", "must not have outputs", wire.KindAccuracy, func(res *wire.Response, _ wire.Request) {
			res.Status, res.Need = wire.StatusNeedMore, 1<<20
		}},
		{"confidences of ACCURACY", "must not have outputs", wire.KindAccuracy, func(res *wire.Response, _ wire.Request) { res.Flags = wire.FlagConfidences }},
		{"all ones", "contradicts", wire.KindAccuracy, func(res *wire.Response, _ wire.Request) { res.OutLen = math.MaxUint64 }},
	} {
		t.Run(c.name, func(t *testing.T) {
			everyWay(t, func(t *testing.T, poller local.Poller, capabilities uint32) {
				st := newStage(t, poller, capabilities|learner, workertest.Text(), 2, 0)
				var told *workertest.LearnerCall
				if c.kind == wire.KindFeedback {
					told = st.FeedbackTexts("a", "1", "b", "2")
				} else {
					told = st.Accuracy()
				}
				req := st.w.Next()
				behind := st.Send(workertest.Texts("behind")...)
				res := workertest.Answer(req)
				c.change(&res, req)
				st.w.Respond(res)
				st.WantViolation(c.want)
				told.Want(api.ReplicaLost)
				if left := st.Left(); len(left) != 1 || left[behind.ID] {
					t.Errorf("left %v: expected batch %d, not begun", left, behind.ID)
				}
				st.unaffected(t)
			})
		})
	}
}

// A second response to one request is a violation too.
func TestSideAnswersOutOfPlace(t *testing.T) {
	everyWay(t, func(t *testing.T, poller local.Poller, capabilities uint32) {
		st := newStage(t, poller, capabilities|learner, workertest.Text(), 2, 0)
		told := st.FeedbackTexts("a", "1")
		req := st.w.Next()
		st.w.Respond(workertest.Answer(req))
		told.Want(api.OK)
		st.w.Respond(workertest.Answer(req))
		st.WantViolation("")
		st.unaffected(t)
	})
}

// An accuracy outside of 0 to 1 is the model's error, not a violation.
func TestInvalidAccuracies(t *testing.T) {
	everyWay(t, func(t *testing.T, poller local.Poller, capabilities uint32) {
		st := newStage(t, poller, capabilities|learner, workertest.Text(), 2, 0)
		for _, value := range []float64{math.NaN(), math.Inf(1), math.Inf(-1), -0.001, 1.001, math.MaxFloat64} {
			asked := st.Accuracy()
			st.w.Respond(st.w.Accuracy(st.w.Next(), value))
			asked.Want(api.BadOutput)
			if text := st.Replica.Stats().LastError; !strings.Contains(text, "expected a number from 0 to 1") {
				t.Errorf("%v: LastError %q", value, text)
			}
		}
		for _, length := range []uint64{0, 8, 64, 71} {
			asked := st.Accuracy()
			res := st.w.Accuracy(st.w.Next(), 0.5)
			res.OutLen = length
			st.w.Respond(res)
			asked.Want(api.BadOutput)
		}
		for _, value := range []float64{0, 1, math.Copysign(0, -1)} {
			asked := st.Accuracy()
			st.w.Respond(st.w.Accuracy(st.w.Next(), value))
			asked.WantValue(value)
		}
		for status, code := range map[wire.Status]api.Code{wire.StatusModelError: api.ModelError, wire.StatusBadOutput: api.BadOutput, wire.StatusUnsupported: api.ModelError} {
			for _, told := range []*workertest.LearnerCall{st.Accuracy(), st.FeedbackTexts("x", "1")} {
				res := workertest.Answer(st.w.Next())
				res.Status = status
				st.w.Respond(res)
				told.Want(code)
			}
		}
		st.w.Close()
		st.End()
		st.unaffected(t)
	})
}

// A confidence outside of 0 to 1 counts as none.
func TestInvalidConfidences(t *testing.T) {
	sure := []float64{0, 1, 0.25, math.NaN(), -0.001, 1.001, math.Inf(1), math.Inf(-1)}
	everyWay(t, func(t *testing.T, poller local.Poller, capabilities uint32) {
		sig := api.Signature{Inputs: []api.TensorSpec{workertest.Spec("in", api.Uint8)}, Outputs: []api.TensorSpec{workertest.Spec("out", api.Uint8)}}
		st := newStage(t, poller, capabilities|wire.CapConfidences, sig, 2, 0)
		var rows workertest.Column
		var queries [][]api.Value
		for i, c := range sure {
			queries = append(queries, []api.Value{{Data: []byte{byte(i)}}})
			rows = append(rows, []api.Value{{Data: []byte{byte(i)}}, {Data: le64(math.Float64bits(c))}})
		}
		b := st.Send(queries...)
		req := st.w.Next()
		n, err := wire.NewSchema([]api.TensorSpec{sig.Outputs[0], wire.ConfidenceSection}).Write(st.w.Granted(req), rows)
		if err != nil {
			t.Fatal(err)
		}
		res := workertest.Answer(req)
		res.OutLen, res.Flags = n, wire.FlagConfidences
		st.w.Respond(res)
		st.WantOK(b)
		for i, q := range b.Queries {
			want := sure[i]
			if i > 2 {
				want = math.NaN()
			}
			if q.Confidence != want && !(math.IsNaN(want) && math.IsNaN(q.Confidence)) {
				t.Errorf("confidence %v came through as %v, expected %v", sure[i], q.Confidence, want)
			}
		}
		st.w.Close()
		st.End()
		st.unaffected(t)
	})
}

func le64(bits uint64) []byte {
	b := make([]byte, 8)
	for i := range b {
		b[i] = byte(bits >> (8 * i))
	}
	return b
}

// A full queue drops its oldest batch, and a second question for the accuracy is refused. Side requests take no place
// in the pipeline.
func TestFeedbackBeyondTheQueue(t *testing.T) {
	everyWay(t, func(t *testing.T, poller local.Poller, capabilities uint32) {
		st := newStage(t, poller, capabilities|learner, workertest.Text(), 2, 0)
		told := []*workertest.LearnerCall{st.FeedbackTexts("x", "0")}
		with := st.w.Next()
		for i := range local.MaxFeedbackWaiting + 3 {
			told = append(told, st.FeedbackTexts("x", fmt.Sprint(i+1)))
		}
		asked := st.Accuracy()
		st.Accuracy().Want(api.Overloaded)
		for i := 1; i <= 3; i++ {
			told[i].Want(api.Overloaded)
		}
		if got := st.Replica.Stats().Feedback; got.Dropped != 3 {
			t.Errorf("%+v, expected 3 dropped", got)
		}
		first, second := st.Send(workertest.Texts("one")...), st.Send(workertest.Texts("two")...)
		if err := st.TrySend(st.NewBatch(workertest.Texts("three")...)); err == nil {
			t.Error("a third prediction was taken, the depth is 2")
		}
		st.w.Respond(workertest.Answer(with))
		told[0].Want(api.OK)
		for range 2 {
			st.w.Respond(st.echo(st.w.Next()))
		}
		st.WantTexts(first, "one")
		st.WantTexts(second, "two")
		st.w.Respond(st.w.Accuracy(st.w.Next(), 1)) // before the feedback that waits
		asked.WantValue(1)
		for i := 4; i < len(told); i++ {
			req := st.w.Next()
			if got := string(st.w.Inputs(req)[0][1].Data); got != fmt.Sprint(i) {
				t.Errorf("label %s, expected %d: in the order of their arrival", got, i)
			}
			st.w.Respond(workertest.Answer(req))
			told[i].Want(api.OK)
		}
		st.w.Close()
		st.End()
		st.unaffected(t)
	})
}

// Feedback that needs larger segments waits for a batch boundary, as a prediction does, and predictions behind it wait
// for it.
func TestFeedbackGrowsSegments(t *testing.T) {
	everyWay(t, func(t *testing.T, poller local.Poller, capabilities uint32) {
		st := newStage(t, poller, capabilities|learner, workertest.Text(), 2, 0)
		large := strings.Repeat("x", 3<<20)
		told := st.FeedbackTexts(large, "1")
		st.w.ReadSegments()
		behind := st.Send(workertest.Texts("behind")...)
		st.w.Ready()
		req := st.w.Next()
		if req.Kind != wire.KindFeedback || req.Generation != 2 || string(st.w.Inputs(req)[0][0].Data) != large {
			t.Fatalf("%v of generation %d", req.Kind, req.Generation)
		}
		st.w.Respond(workertest.Answer(req))
		told.Want(api.OK)
		st.w.Respond(st.echo(st.w.Next()))
		st.WantTexts(behind, "behind")
		// Drained while it waits for larger segments: the request ends at once, and the worker receives nothing after
		// DRAIN.
		lost := st.FeedbackTexts(strings.Repeat(large, 5), "2")
		st.Replica.Drain()
		lost.Want(api.ReplicaLost)
		st.FeedbackTexts("x", "3").Want(api.ReplicaLost)
		st.w.Close()
		st.End()
		st.unaffected(t)
	})
}

// When a worker leaves and ends, every side request that it had or that waited ends once, as ReplicaLost.
func TestFeedbackOfAWorkerThatGoes(t *testing.T) {
	everyWay(t, func(t *testing.T, poller local.Poller, capabilities uint32) {
		st := newStage(t, poller, capabilities|learner, workertest.Text(), 2, 0)
		told := []*workertest.LearnerCall{st.FeedbackTexts("x", "0"), st.FeedbackTexts("y", "1"), st.Accuracy()}
		st.w.Next()
		st.w.Write((&wire.Leaving{Reason: "I must"}).Append(nil))
		st.Events.WaitLeaving(t)
		told = append(told, st.FeedbackTexts("z", "2"), st.Accuracy())
		st.w.Close()
		st.End()
		for _, told := range told {
			told.Want(api.ReplicaLost)
		}
		st.unaffected(t)
	})
}

// Many goroutines send side requests while batches come and go. Each request ends once, and no prediction suffers.
func TestFeedbackFromEverywhere(t *testing.T) {
	eachPoller(t, func(t *testing.T, g *workertest.Hub) {
		l := g.Expect(workertest.Text(), 2)
		var labels atomic.Uint64
		served := make(chan error, 1)
		go func() {
			served <- serveEcho(g.Socket, l.Token(), xebec.WithFeedback(func(_ context.Context, b *xebec.Batch) error {
				labels.Add(uint64(b.Len()))
				return nil
			}), xebec.WithAccuracy(func(context.Context) (float64, error) { return 0.5, nil }))
		}()
		s := workertest.NewSession(t, l)
		b := &api.Batch{Queries: []*api.Query{{Inputs: workertest.Texts("shared")[0]}}}
		var wg sync.WaitGroup
		var ended, taken, unknown atomic.Uint64
		const askers, each = 8, 40
		for range askers {
			wg.Go(func() {
				for range each {
					s.Replica.(worker.Learner).Feedback(b, [][]byte{[]byte("1")}, func(code api.Code, _ string) {
						ended.Add(1)
						switch code {
						case api.OK:
							taken.Add(1)
						case api.Overloaded, api.ReplicaLost:
						default:
							unknown.Add(1)
						}
					})
					s.Replica.(worker.Learner).Accuracy(func(value float64, code api.Code, _ string) {
						ended.Add(1)
						if code == api.OK && value != 0.5 {
							unknown.Add(1)
						}
					})
				}
			})
		}
		for i := range 300 {
			text := fmt.Sprint("text ", i)
			s.WantTexts(s.Send(workertest.Texts(text)...), text)
		}
		wg.Wait()
		s.Drain()
		if err := <-served; err != nil {
			t.Errorf("the worker: %v", err)
		}
		if got := ended.Load(); got != 2*askers*each {
			t.Errorf("%d ends, expected %d", got, 2*askers*each)
		}
		if labels.Load() != taken.Load() || taken.Load() != s.Replica.Stats().Feedback.Labels || unknown.Load() != 0 {
			t.Errorf("the model saw %d labels, %d were reported taken, the counts are %+v, and %d calls ended with an unexpected code", labels.Load(), taken.Load(), s.Replica.Stats().Feedback, unknown.Load())
		}
	})
}
