package local_test

import (
	"strings"
	"testing"

	"github.com/xebec-serving/xebec/worker/local"
	"github.com/xebec-serving/xebec/worker/wire"
	"github.com/xebec-serving/xebec/worker/workertest"
)

const grownInput = 6 << 20 // more than a first segment has

// grown is a stage whose segments have grown for one batch that has ended, and the replica has been looked at since.
func grown(t *testing.T, poller local.Poller, capabilities uint32) (*stage, *local.Replica) {
	st := newStage(t, poller, capabilities, workertest.Text(), 2, 0)
	b := st.Send(workertest.Texts(strings.Repeat("x", grownInput))...)
	st.w.ReadSegments()
	st.w.Ready()
	st.w.Respond(st.w.Outputs(st.w.Next(), workertest.Texts("y")))
	st.WantOK(b)
	r := st.Replica.(*local.Replica)
	r.LookIdle() // a batch has ended since the segments grew
	return st, r
}

// Segments that grew become small again when no batch has come for a while, and grow again when one does.
func TestIdleSegmentsShrink(t *testing.T) {
	everyWay(t, func(t *testing.T, poller local.Poller, capabilities uint32) {
		st, r := grown(t, poller, capabilities)
		before, number := len(st.w.A.Bytes()), st.w.Segments.Generation
		b, req := st.take("busy")
		r.LookIdle() // a batch is outstanding
		r.LookIdle()
		st.w.Respond(st.echo(req))
		st.WantTexts(b, "busy")
		r.LookIdle() // one has ended since
		r.LookIdle()
		st.w.ReadSegments()
		if now := len(st.w.A.Bytes()); now >= before || st.w.Segments.Generation != number+1 {
			t.Errorf("generation %d of %d bytes after %d of %d", st.w.Segments.Generation, now, number, before)
		}
		large := strings.Repeat("y", grownInput)
		first, second := st.Send(workertest.Texts("small")...), st.Send(workertest.Texts(large)...) // they wait for READY
		st.w.Ready()
		req = st.w.Next()
		if req.Batch != first.ID || req.Generation != number+1 {
			t.Fatalf("batch %d of generation %d: expected batch %d of %d", req.Batch, req.Generation, first.ID, number+1)
		}
		st.w.Respond(st.echo(req))
		st.WantTexts(first, "small")
		st.w.ReadSegments() // the second one needs larger segments
		st.w.Ready()
		st.w.Respond(st.w.Outputs(st.w.Next(), workertest.Texts("y")))
		st.WantOK(second)
		st.w.Close()
		st.End()
		st.unaffected(t)
	})
}

// A batch that comes while the segments shrink, and does not fit the small ones, makes them grow at once.
func TestSegmentsShrinkBeforeALargeBatch(t *testing.T) {
	everyWay(t, func(t *testing.T, poller local.Poller, capabilities uint32) {
		st, r := grown(t, poller, capabilities)
		r.LookIdle()
		st.w.ReadSegments()
		b := st.Send(workertest.Texts(strings.Repeat("y", grownInput))...)
		st.w.Ready()
		st.w.ReadSegments()
		st.w.Ready()
		st.w.Respond(st.w.Outputs(st.w.Next(), workertest.Texts("y")))
		st.WantOK(b)
		st.w.Close()
		st.End()
		st.unaffected(t)
	})
}

// A worker of version 1 keeps the segments that it has.
func TestSegmentsOfVersion1DoNotShrink(t *testing.T) {
	eachPoller(t, func(t *testing.T, g *workertest.Hub) {
		l := g.Expect(workertest.Text(), 2)
		w := workertest.DialRaw(t, g.Socket)
		t.Cleanup(w.Close)
		w.Version = 1
		w.Hello(l.Token(), wire.CapRing)
		w.ReadWelcome()
		w.ReadSegments()
		w.Ready()
		s := workertest.NewSession(t, l)
		b := s.Send(workertest.Texts(strings.Repeat("x", grownInput))...)
		w.ReadSegments()
		w.Ready()
		req := w.Next()
		w.Respond(w.Outputs(req, workertest.Texts("y")))
		s.WantTexts(b, "y")
		for range 3 {
			s.Replica.(*local.Replica).LookIdle()
		}
		b = s.Send(workertest.Texts("z")...)
		if req := w.Next(); req.Generation != 2 {
			t.Errorf("a batch of generation %d, expected 2", req.Generation)
		} else {
			w.Respond(w.Outputs(req, workertest.Texts("y")))
		}
		s.WantTexts(b, "y")
		w.Close()
		s.End()
	})
}
