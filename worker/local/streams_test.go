package local_test

import (
	"bytes"
	"encoding/binary"
	"strings"
	"testing"
	"time"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/worker"
	"github.com/xebec-serving/xebec/worker/wire"
	"github.com/xebec-serving/xebec/worker/workertest"
)

// reader is a query's stream. Its channels have room for all that a test makes.
type reader struct {
	opened chan api.Source
	took   chan string
	full   chan bool // what Full answers; closed: false
}

func newReader() *reader {
	return &reader{make(chan api.Source, 1), make(chan string, 1000), make(chan bool, 1000)}
}

func (r *reader) Open(from api.Source)                { r.opened <- from }
func (r *reader) Take(outputs []api.Value, _ float64) { r.took <- string(outputs[0].Data) }
func (r *reader) Full() bool                          { return <-r.full }
func (r *reader) Cancelled()                          {}
func (r *reader) End(api.Code, string)                {}

const patience = 20 * time.Second

func receive[T any](t *testing.T, c chan T) (v T) {
	t.Helper()
	select {
	case v = <-c:
	case <-time.After(patience):
		t.Fatal("nothing came")
	}
	return v
}

func (r *reader) want(t *testing.T, texts ...string) {
	t.Helper()
	for _, want := range texts {
		if got := receive(t, r.took); got != want {
			t.Errorf("the stream has %q: expected %q", got, want)
		}
	}
}

// streaming connects a worker that answers in streams, several at once.
func streaming(t *testing.T, g *workertest.Hub, capabilities uint32) (*workertest.Session, *workertest.Raw) {
	l := workertest.Expect(t, g.Transport, worker.Expectation{Signature: workertest.Text(), Depth: 2, Streams: true})
	w := workertest.DialRaw(t, g.Socket)
	t.Cleanup(w.Close)
	w.Concurrency = 8
	w.Hello(l.Token(), capabilities|wire.CapStreams)
	w.ReadWelcome()
	if w.Welcome.Mode&wire.ModeStreams == 0 {
		t.Fatalf("WELCOME has mode %#x: expected streams", w.Welcome.Mode)
	}
	w.ReadSegments()
	w.Ready()
	return workertest.NewSession(t, l), w
}

// begin sends one query with a reader, which may be nil.
func begin(s *workertest.Session, text string, r api.Stream) *api.Batch {
	b := s.NewBatch(workertest.Texts(text)...)
	if r != nil {
		b.Queries[0].Stream = r
	}
	if err := s.TrySend(b); err != nil {
		s.TB.Fatalf("%v", err)
	}
	return b
}

// outputs answers a request of a stream with these outputs.
func outputs(w *workertest.Raw, req wire.Request, status wire.Status, texts ...string) {
	var rows workertest.Column
	for _, text := range texts {
		rows = append(rows, []api.Value{{Data: []byte(text)}})
	}
	res := workertest.Answer(req)
	if len(texts) > 0 {
		res = w.Outputs(req, rows)
	}
	res.Status, res.Count = status, uint32(len(texts))
	w.Respond(res)
}

func wantKind(t *testing.T, req wire.Request, kind wire.Kind) wire.Request {
	t.Helper()
	if req.Kind != kind {
		t.Fatalf("the gateway sent %v for batch %d: expected %v", req.Kind, req.Batch, kind)
	}
	return req
}

// each runs f with both pollers, over rings and over frames.
func each(t *testing.T, f func(t *testing.T, g *workertest.Hub, capabilities uint32)) {
	eachPoller(t, func(t *testing.T, g *workertest.Hub) {
		t.Run("ring", func(t *testing.T) { f(t, g, wire.CapRing) })
		t.Run("frames", func(t *testing.T) { f(t, g, 0) })
	})
}

// Outputs come in order, and the worker has its turn when the reader has room.
func TestStream(t *testing.T) {
	each(t, func(t *testing.T, g *workertest.Hub, capabilities uint32) {
		s, w := streaming(t, g, capabilities)
		r := newReader()
		b := begin(s, "x", r)
		outputs(w, wantKind(t, w.Next(), wire.KindPredict), wire.StatusMore, "a")
		from := receive(t, r.opened)
		if string(b.Queries[0].Outputs[0].Data) != "a" {
			t.Errorf("the first output is %q", b.Queries[0].Outputs[0].Data)
		}
		from.Resume()
		outputs(w, wantKind(t, w.Next(), wire.KindGrant), wire.StatusMore, "b", "c")
		r.full <- false
		req := wantKind(t, w.Next(), wire.KindGrant) // at once
		r.want(t, "b", "c")
		outputs(w, req, wire.StatusMore, "d")
		r.full <- true
		r.want(t, "d")
		if req, ok := w.Poll(); ok {
			t.Errorf("%v for a reader that is full", req.Kind)
		}
		from.Resume()
		outputs(w, wantKind(t, w.Next(), wire.KindGrant), wire.StatusOK, "e", "f")
		s.WantOK(b)
		r.want(t, "e", "f")
		from.Resume() // too late, and without effect
		from.Cancel()
		b = begin(s, "y", newReader())
		outputs(w, wantKind(t, w.Next(), wire.KindPredict), wire.StatusOK, "whole")
		s.WantTexts(b, "whole")
		w.Close()
		s.End()
	})
}

// Who wants no stream gets its first output, and the worker is told.
func TestStreamThatNobodyReads(t *testing.T) {
	each(t, func(t *testing.T, g *workertest.Hub, capabilities uint32) {
		s, w := streaming(t, g, capabilities)
		b := begin(s, "x", nil)
		outputs(w, w.Next(), wire.StatusMore, "a")
		outputs(w, wantKind(t, w.Next(), wire.KindDiscard), wire.StatusOK)
		s.WantTexts(b, "a")
		w.Close()
		s.End()
	})
}

// A stream can be cancelled in the gateway's turn, by DISCARD, and in the worker's, by CANCEL; whatever the worker then answers is dropped.
func TestCancelledStreams(t *testing.T) {
	each(t, func(t *testing.T, g *workertest.Hub, capabilities uint32) {
		s, w := streaming(t, g, capabilities)
		r := newReader()
		b := begin(s, "x", r)
		outputs(w, w.Next(), wire.StatusMore, "a")
		from := receive(t, r.opened)
		from.Cancel()
		outputs(w, wantKind(t, w.Next(), wire.KindDiscard), wire.StatusOK)
		s.WantOK(b)

		for _, answer := range []wire.Status{wire.StatusOK, wire.StatusMore} {
			r := newReader()
			b := begin(s, "x", r)
			outputs(w, w.Next(), wire.StatusMore, "a")
			from := receive(t, r.opened)
			from.Resume()
			req := wantKind(t, w.Next(), wire.KindGrant)
			from.Cancel()
			from.Cancel() // once is enough
			var m wire.Cancel
			if err := m.Decode(w.Want(wire.TypeCancel)); err != nil || m.Batch != req.Batch {
				t.Fatalf("CANCEL for %d, %v: expected %d", m.Batch, err, req.Batch)
			}
			if answer == wire.StatusOK {
				outputs(w, req, answer)
			} else {
				r.full <- false
				outputs(w, req, answer, "b")
				outputs(w, wantKind(t, w.Next(), wire.KindDiscard), wire.StatusOK)
			}
			s.WantOK(b)
		}
		w.Close()
		s.End()
	})
}

// withdrawable is a reader whose caller may leave before the first output.
type withdrawable struct {
	*reader
	sent chan api.Source
	left bool
}

func (r *withdrawable) Sent(from api.Source) (wanted bool) {
	r.sent <- from
	return !r.left
}

// A stream that is withdrawn before its first output, while the worker has it or before it gets it, is cancelled at once; an output that crosses
// the CANCEL is the first one, and the rest is discarded.
func TestWithdrawnStreams(t *testing.T) {
	each(t, func(t *testing.T, g *workertest.Hub, capabilities uint32) {
		s, w := streaming(t, g, capabilities)
		cancelled := func(req wire.Request) {
			t.Helper()
			var m wire.Cancel
			if err := m.Decode(w.Want(wire.TypeCancel)); err != nil || m.Batch != req.Batch {
				t.Fatalf("CANCEL for %d, %v: expected %d", m.Batch, err, req.Batch)
			}
		}
		for _, c := range []struct {
			answer wire.Status
			want   api.Code
		}{{wire.StatusOK, api.Cancelled}, {wire.StatusModelError, api.Cancelled}, {wire.StatusMore, api.OK}} {
			r := &withdrawable{reader: newReader(), sent: make(chan api.Source, 1)}
			b := begin(s, "x", r)
			req := w.Next()
			from := receive(t, r.sent)
			from.Resume() // there is nothing to resume
			from.Cancel()
			from.Cancel() // once is enough
			cancelled(req)
			if c.answer == wire.StatusMore {
				outputs(w, req, c.answer, "a")
				outputs(w, wantKind(t, w.Next(), wire.KindDiscard), wire.StatusOK)
			} else {
				outputs(w, req, c.answer)
			}
			s.WantCode(b, c.want, "")
		}
		r := &withdrawable{reader: newReader(), sent: make(chan api.Source, 1), left: true}
		b := begin(s, "x", r)
		req := w.Next()
		cancelled(req)
		outputs(w, req, wire.StatusOK)
		s.WantCode(b, api.Cancelled, "")
		w.Close()
		s.End()
	})
}

// Several streams take turns without waiting for each other.
func TestInterleavedStreams(t *testing.T) {
	each(t, func(t *testing.T, g *workertest.Hub, capabilities uint32) {
		s, w := streaming(t, g, capabilities)
		const n = 8
		var readers [n]*reader
		var batches [n]*api.Batch
		for i := range readers {
			readers[i] = newReader()
			close(readers[i].full)
			batches[i] = begin(s, "x", readers[i])
			outputs(w, w.Next(), wire.StatusMore, "first")
		}
		if err := s.TrySend(s.NewBatch(workertest.Texts("one too many")...)); err == nil {
			t.Errorf("the replica took a batch beyond the worker's concurrency")
		}
		for _, r := range readers {
			receive(t, r.opened).Resume()
		}
		left := map[uint64]int{}
		for range n * 5 {
			req := wantKind(t, w.Next(), wire.KindGrant)
			if left[req.Batch]++; left[req.Batch] == 5 {
				outputs(w, req, wire.StatusOK)
			} else {
				outputs(w, req, wire.StatusMore, "more")
			}
		}
		for i, b := range batches {
			s.WantOK(b)
			readers[i].want(t, "more", "more", "more", "more")
		}
		w.Close()
		s.End()
	})
}

// An output that does not fit makes the segments grow while the turns of all other streams are the gateway's, and all go on.
func TestSegmentsGrowBetweenTurns(t *testing.T) {
	each(t, func(t *testing.T, g *workertest.Hub, capabilities uint32) {
		s, w := streaming(t, g, capabilities)
		first, second := newReader(), newReader()
		close(second.full)
		a, b := begin(s, "a", first), begin(s, "b", second)
		outputs(w, w.Next(), wire.StatusMore, "a1")
		outputs(w, w.Next(), wire.StatusMore, "b1")
		paused := receive(t, first.opened)
		receive(t, second.opened).Resume()
		large := strings.Repeat("x", 8<<20)
		req := wantKind(t, w.Next(), wire.KindGrant)
		res := workertest.Answer(req)
		res.Status, res.Need, res.Count = wire.StatusNeedMore, uint64(len(large)+1024), 1
		w.Respond(res)
		req = wantKind(t, w.Next(), wire.KindGrant)
		if req.Generation != 2 {
			t.Errorf("the GRANT is of generation %d: expected new segments", req.Generation)
		}
		outputs(w, req, wire.StatusMore, large)
		outputs(w, wantKind(t, w.Next(), wire.KindGrant), wire.StatusOK)
		s.WantOK(b)
		second.want(t, large)
		paused.Resume()
		outputs(w, wantKind(t, w.Next(), wire.KindGrant), wire.StatusOK, "a2")
		s.WantOK(a)
		first.want(t, "a2")
		w.Close()
		s.End()
	})
}

// Streams that are silent after large outputs leave room in the segment for the outputs of others: new segments would wait for all of them.
func TestSilentStreamsLeaveRoom(t *testing.T) {
	each(t, func(t *testing.T, g *workertest.Hub, capabilities uint32) {
		s, w := streaming(t, g, capabilities)
		large := strings.Repeat("x", len(w.B.Bytes())/5)
		for range w.Concurrency {
			r := newReader()
			close(r.full)
			begin(s, "a", r)
			req := wantKind(t, w.Next(), wire.KindPredict)
			if req.OutCap < uint64(len(large)) {
				res := workertest.Answer(req)
				res.Status, res.Need, res.Count = wire.StatusNeedMore, uint64(len(large)+1024), 1
				w.Respond(res)
				req = wantKind(t, w.Next(), wire.KindGrant)
			}
			outputs(w, req, wire.StatusMore, large)
			receive(t, r.opened).Resume() // its turn is the worker's, which is silent
			wantKind(t, w.Next(), wire.KindGrant)
		}
		w.Close()
		s.End()
	})
}

// How a stream may end.
func TestEndsOfStreams(t *testing.T) {
	each(t, func(t *testing.T, g *workertest.Hub, capabilities uint32) {
		s, w := streaming(t, g, capabilities)
		text := func(req wire.Request, status wire.Status) {
			res := workertest.Answer(req)
			res.Status, res.Count, res.OutLen = status, 0, uint64(copy(w.Granted(req), "why"))
			w.Respond(res)
		}
		for _, begun := range []bool{false, true} {
			next := func() (*api.Batch, wire.Request) {
				r := newReader()
				b := begin(s, "x", r)
				req := w.Next()
				if begun {
					outputs(w, req, wire.StatusMore, "a")
					receive(t, r.opened).Resume()
					req = w.Next()
				}
				return b, req
			}
			b, req := next()
			text(req, wire.StatusModelError)
			s.WantCode(b, api.ModelError, "why")
			b, req = next()
			text(req, wire.StatusBadOutput)
			s.WantCode(b, api.BadOutput, "why")
			b, req = next()
			answerWithStatuses(w, req, 1)
			s.WantOK(b)
			if q := b.Queries[0]; q.Status != api.InvalidInput || q.Detail != "why" {
				t.Errorf("begun %v: %v %q, expected a refusal", begun, q.Status, q.Detail)
			}
			b, req = next()
			outputs(w, req, wire.StatusOK)
			if begun {
				s.WantOK(b)
			} else {
				s.WantCode(b, api.BadOutput, "without an output")
			}
		}
		w.Close()
		s.End()
	})
}

// needMore says that the outputs do not fit.
func needMore(w *workertest.Raw, req wire.Request) {
	res := workertest.Answer(req)
	res.Status, res.Need, res.Count = wire.StatusNeedMore, req.OutCap+1, 1
	w.Respond(res)
}

// Rules whose breach ends the worker.
func TestViolationsInStreams(t *testing.T) {
	for name, c := range map[string]struct {
		answer func(w *workertest.Raw, req wire.Request) // to the second turn
		part   string
	}{
		"no output": {func(w *workertest.Raw, req wire.Request) { outputs(w, req, wire.StatusMore) }, "MORE without an output"},
		"too many": {func(w *workertest.Raw, req wire.Request) {
			res := workertest.Answer(req)
			res.Status, res.Count = wire.StatusMore, wire.MaxStreamOutputs+1
			w.Respond(res)
		}, "257 outputs at once"},
		"statuses": {func(w *workertest.Raw, req wire.Request) {
			res := workertest.Answer(req)
			res.Status, res.Count, res.Flags = wire.StatusMore, 1, wire.FlagStatuses
			w.Respond(res)
		}, "a status in the middle"},
		"twice": {func(w *workertest.Raw, req wire.Request) {
			outputs(w, req, wire.StatusMore, "b")
			outputs(w, req, wire.StatusMore, "c")
		}, "impossible"},
		"unreadable": {func(w *workertest.Raw, req wire.Request) {
			res := workertest.Answer(req)
			res.Status, res.Count, res.OutLen = wire.StatusMore, 1, 64
			copy(w.Granted(req), bytes.Repeat([]byte{0xff}, 64))
			w.Respond(res)
		}, "cannot be read"},
		"need more twice": {func(w *workertest.Raw, req wire.Request) {
			needMore(w, req)
			needMore(w, w.Next())
		}, "NEED_MORE out of place"},
	} {
		t.Run(name, func(t *testing.T) {
			eachPoller(t, func(t *testing.T, g *workertest.Hub) {
				s, w := streaming(t, g, wire.CapRing)
				r := newReader()
				r.full <- true
				begin(s, "x", r)
				outputs(w, w.Next(), wire.StatusMore, "a")
				receive(t, r.opened).Resume()
				c.answer(w, w.Next())
				s.WantViolation(c.part)
			})
		})
	}
	eachPoller(t, func(t *testing.T, g *workertest.Hub) {
		s, w := streaming(t, g, wire.CapRing)
		begin(s, "x", newReader())
		outputs(w, w.Next(), wire.StatusMore, "a", "b")
		s.WantViolation("2 outputs at once")
	})
	eachPoller(t, func(t *testing.T, g *workertest.Hub) {
		s, w := connect(t, g, wire.Major)
		s.Send(workertest.Texts("x")...)
		outputs(w, w.Next(), wire.StatusMore, "a")
		s.WantViolation("MORE, which is for streams")
	})
}

// A worker that dies in the middle of a stream had begun it, also if it has not taken the last GRANT.
func TestWorkerDiesInAStream(t *testing.T) {
	for _, granted := range []bool{false, true} {
		each(t, func(t *testing.T, g *workertest.Hub, capabilities uint32) {
			s, w := streaming(t, g, capabilities)
			r := newReader()
			b := begin(s, "x", r)
			outputs(w, w.Next(), wire.StatusMore, "a")
			from := receive(t, r.opened)
			if granted {
				from.Resume()
			}
			w.Close()
			s.End()
			if left := s.Left(); !left[b.ID] {
				t.Errorf("granted %v: left behind: %v, expected batch %d as begun", granted, left, b.ID)
			}
			from.Resume()
			from.Cancel()
		})
	}
}

// A worker may answer in streams only if its model is declared so, and a worker that does not may serve such a model.
func TestStreamsAreDeclared(t *testing.T) {
	eachPoller(t, func(t *testing.T, g *workertest.Hub) {
		l := g.Expect(workertest.Text(), 1)
		w := workertest.DialRaw(t, g.Socket)
		w.Hello(l.Token(), wire.CapRing|wire.CapStreams)
		if code := w.WantRefused(); code != wire.RefusedSignature {
			t.Errorf("refused with code %d", code)
		}
		w.Close()
		l = workertest.Expect(t, g.Transport, worker.Expectation{Signature: workertest.Text(), Depth: 1, Streams: true})
		w = workertest.StartRaw(t, g.Socket, l.Token(), wire.CapRing)
		s := workertest.NewSession(t, l)
		b := begin(s, "x", newReader())
		w.Respond(w.Outputs(w.Next(), workertest.Column{{{Data: []byte("one")}}}))
		s.WantTexts(b, "one")
		w.Close()
		s.End()
	})
}

// Parameters and calls are sections that a worker asks for.
func TestParametersAndCalls(t *testing.T) {
	eachPoller(t, func(t *testing.T, g *workertest.Hub) {
		l := g.Expect(workertest.Text(), 1)
		w := workertest.StartRaw(t, g.Socket, l.Token(), wire.CapRing|wire.CapParameters|wire.CapCalls)
		s := workertest.NewSession(t, l)
		b := s.NewBatch(workertest.Texts("a", "b")...)
		b.Queries[0].Parameters = []byte(`{"top_k":3}`)
		b.Queries[0].Call = &api.Identity{RequestID: []byte("id"), TraceParent: []byte("00-1"), TraceState: []byte("x=y")}
		b.Queries[0].Deadline, b.Queries[1].Deadline = workertest.Now()+api.Nanos(time.Minute), api.Never
		if err := s.TrySend(b); err != nil {
			t.Fatal(err)
		}
		req := w.Next()
		schema := wire.NewSchema(append(w.Welcome.Signature.Inputs, wire.BytesSection, wire.BytesSection))
		var in wire.Reader
		if err := schema.Open(&in, w.A.Bytes()[req.InOff:req.InOff+req.InLen], 2); err != nil {
			t.Fatal(err)
		}
		item := func(i, section int) string {
			data, _, err := in.Item(i, section, nil)
			if err != nil {
				t.Fatal(err)
			}
			return string(data)
		}
		if a, b := item(0, 1), item(1, 1); a != `{"top_k":3}` || b != "{}" {
			t.Errorf("the parameters are %q and %q", a, b)
		}
		call, none := item(0, 2), item(1, 2)
		if left := binary.LittleEndian.Uint64([]byte(call)); left == 0 || left > 60e6 || call[8:] != "\x02\x00id\x04\x0000-1\x03\x00x=y" {
			t.Errorf("the call is %q", call)
		}
		if none != strings.Repeat("\x00", 14) {
			t.Errorf("a call of which nothing is known is %q", none)
		}
		w.Respond(w.Outputs(req, workertest.Column{{{Data: []byte("c")}}, {{Data: []byte("d")}}}))
		s.WantTexts(b, "c", "d")
		w.Close()
		s.End()
	})
}
