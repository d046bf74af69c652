package local_test

import (
	"math"
	"testing"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/worker/local"
	"github.com/xebec-serving/xebec/worker/wire"
	"github.com/xebec-serving/xebec/worker/workertest"
)

// A need that no segment can hold is answered with DISCARD, however large it is, and does not affect the grants of
// later batches.
func TestNeedsThatCannotBe(t *testing.T) {
	const max = 4 << 20
	everyWay(t, func(t *testing.T, poller local.Poller, capabilities uint32) {
		st := newStage(t, poller, capabilities, workertest.Text(), 2, max)
		for _, need := range []uint64{max, math.MaxUint64, math.MaxUint64 - 8191, 1 << 63, 1 << 40} {
			b, req := st.take("x")
			behind, second := st.take("behind")
			st.w.Respond(needing(req, need))
			discard := st.w.Next()
			if discard.Kind != wire.KindDiscard || discard.Batch != b.ID || discard.OutCap != 0 {
				t.Fatalf("%+v, expected DISCARD of batch %d", discard, b.ID)
			}
			st.w.Respond(workertest.Answer(discard))
			st.WantCode(b, api.TooLarge, "larger than a segment")
			st.w.Respond(st.echo(second))
			st.WantTexts(behind, "behind")
			if second.OutCap > 64<<10 || second.Generation != 1 {
				t.Errorf("a batch of one small query is granted %d bytes in generation %d", second.OutCap, second.Generation)
			}
		}
		st.w.Close()
		st.End()
		st.unaffected(t)
	})
}

// needing returns a NEED_MORE response.
func needing(req wire.Request, need uint64) wire.Response {
	res := workertest.Answer(req)
	res.Status, res.Need = wire.StatusNeedMore, need
	return res
}

// Responses to GRANT and DISCARD are checked like the first ones.
func TestSecondAnswersThatContradict(t *testing.T) {
	for _, c := range []struct {
		name   string
		need   uint64
		change func(res *wire.Response, first wire.Request)
	}{
		{"another block than a GRANT's", 64 << 10, func(res *wire.Response, _ wire.Request) { res.OutOff += 64 }},
		{"more than was granted", 64 << 10, func(res *wire.Response, _ wire.Request) { res.OutLen = math.MaxUint64 }},
		{"kind GRANT", 64 << 10, func(res *wire.Response, _ wire.Request) { res.Kind = wire.KindGrant }},
		{"the old generation", 6 << 20, func(res *wire.Response, first wire.Request) { res.Generation = first.Generation }},
		{"a block after DISCARD", math.MaxUint64, func(res *wire.Response, _ wire.Request) { res.OutLen = 1 }},
		{"an offset after DISCARD", math.MaxUint64, func(res *wire.Response, first wire.Request) { res.OutOff = first.OutOff }},
		{"NEED_MORE after DISCARD", math.MaxUint64, func(res *wire.Response, _ wire.Request) { res.Status, res.Need = wire.StatusNeedMore, 1 }},
	} {
		t.Run(c.name, func(t *testing.T) {
			everyWay(t, func(t *testing.T, poller local.Poller, capabilities uint32) {
				st := newStage(t, poller, capabilities, workertest.Text(), 1, 0)
				b, first := st.take("x")
				st.w.Respond(needing(first, c.need))
				second := st.w.Next()
				if second.Batch != b.ID || second.Kind == wire.KindPredict {
					t.Fatalf("%+v after NEED_MORE", second)
				}
				res := workertest.Answer(second)
				c.change(&res, first)
				st.w.Respond(res)
				st.WantViolation("")
				if left := st.Left(); len(left) != 1 || !left[b.ID] {
					t.Errorf("left %v, expected batch %d, begun", left, b.ID)
				}
				st.unaffected(t)
			})
		})
	}
}

// Batches that arrive while segments grow wait for these and are sent in order.
func TestSendWhileSegmentsGrow(t *testing.T) {
	everyWay(t, func(t *testing.T, poller local.Poller, capabilities uint32) {
		st := newStage(t, poller, capabilities, workertest.Text(), 3, 0)
		first, req := st.take("x")
		st.w.Respond(needing(req, 5<<20))
		st.w.ReadSegments()
		second, third := st.Send(workertest.Texts("two")...), st.Send(workertest.Texts("three")...)
		st.w.Ready()
		for _, want := range []*api.Batch{first, second, third} {
			req := st.w.Next()
			if req.Batch != want.ID || req.Generation != 2 {
				t.Fatalf("batch %d of generation %d, expected batch %d of 2", req.Batch, req.Generation, want.ID)
			}
			if req.Kind == wire.KindGrant && req.OutCap < 5<<20 {
				t.Errorf("granted %d bytes", req.OutCap)
			}
			if req.Kind == wire.KindGrant {
				st.w.Respond(st.w.Outputs(req, workertest.Texts("x")))
				continue
			}
			st.w.Respond(st.echo(req))
		}
		st.WantTexts(first, "x")
		st.WantTexts(second, "two")
		st.WantTexts(third, "three")
		st.w.Close()
		st.End()
		st.unaffected(t)
	})
}
