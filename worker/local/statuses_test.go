package local_test

import (
	"encoding/binary"
	"testing"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/worker/wire"
	"github.com/xebec-serving/xebec/worker/workertest"
)

// answerWithStatuses answers a batch of texts with these statuses.
func answerWithStatuses(w *workertest.Raw, req wire.Request, statuses ...uint16) {
	outs := append(append([]api.TensorSpec(nil), w.Welcome.Signature.Outputs...), wire.StatusSection, wire.BytesSection)
	var rows workertest.Column
	for _, status := range statuses {
		rows = append(rows, []api.Value{{Data: []byte("out")}, {Data: binary.LittleEndian.AppendUint16(nil, status)}, {Data: []byte("why")}})
	}
	n, err := wire.NewSchema(outs).Write(w.Granted(req), rows)
	if err != nil {
		w.TB.Fatalf("%v", err)
	}
	res := workertest.Answer(req)
	res.OutLen, res.Flags = n, wire.FlagStatuses
	w.Respond(res)
}

// connect starts a worker without a binding that speaks this version of the protocol.
func connect(t *testing.T, g *workertest.Hub, version uint16) (*workertest.Session, *workertest.Raw) {
	l := g.Expect(workertest.Text(), 2)
	w := workertest.DialRaw(t, g.Socket)
	t.Cleanup(w.Close)
	w.Version = version
	w.Hello(l.Token(), wire.CapRing)
	w.ReadWelcome()
	if w.Welcome.Major != min(version, wire.Major) {
		t.Errorf("WELCOME has version %d for a worker that speaks %d", w.Welcome.Major, version)
	}
	w.ReadSegments()
	w.Ready()
	return workertest.NewSession(t, l), w
}

// A status that does not exist fails its batch, and the worker goes on.
func TestUnknownStatusOfAQuery(t *testing.T) {
	eachPoller(t, func(t *testing.T, g *workertest.Hub) {
		s, w := connect(t, g, wire.Major+7) // a newer worker gets this gateway's version
		b := s.Send(workertest.Texts("a", "b")...)
		answerWithStatuses(w, w.Next(), 0, 3)
		s.WantCode(b, api.BadOutput, "status of query 1 is 3")
		b = s.Send(workertest.Texts("a", "b")...)
		answerWithStatuses(w, w.Next(), 1, 0)
		s.WantOK(b)
		if a, b := b.Queries[0], b.Queries[1]; a.Status != api.InvalidInput || a.Detail != "why" || b.Status != api.OK || string(b.Outputs[0].Data) != "out" {
			t.Errorf("%v %q and %v %q, expected a refusal and an answer", a.Status, a.Detail, b.Status, b.Outputs[0].Data)
		}
		w.Close()
		s.End()
	})
}

// Version 1 has no statuses of queries.
func TestStatusesInVersion1(t *testing.T) {
	eachPoller(t, func(t *testing.T, g *workertest.Hub) {
		s, w := connect(t, g, 1)
		b := s.Send(workertest.Texts("a")...)
		res := w.Outputs(w.Next(), workertest.Column{{{Data: []byte("out")}}})
		w.Respond(res)
		s.WantTexts(b, "out")
		s.Send(workertest.Texts("b")...)
		answerWithStatuses(w, w.Next(), 0)
		s.WantViolation("version 1")
	})
}
