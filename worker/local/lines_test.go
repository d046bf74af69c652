package local_test

import (
	"errors"
	"io"
	"net"
	"testing"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/worker"
	"github.com/xebec-serving/xebec/worker/local"
	"github.com/xebec-serving/xebec/worker/wire"
	"github.com/xebec-serving/xebec/worker/workertest"
)

// calling connects a worker whose model calls others. The channel has its lines.
func calling(t *testing.T, g *workertest.Hub, capabilities uint32) (*workertest.Session, *workertest.Raw, *workertest.Asker, chan worker.Line) {
	lines := make(chan worker.Line, 2*worker.MaxLines)
	l := workertest.Expect(t, g.Transport, worker.Expectation{Signature: workertest.Text(), Depth: 2, Lines: func(l worker.Line) { lines <- l }})
	w := workertest.DialRaw(t, g.Socket)
	t.Cleanup(w.Close)
	w.Hello(l.Token(), capabilities|wire.CapLines)
	w.ReadWelcome()
	if w.Welcome.Mode&wire.ModeLines == 0 {
		t.Fatalf("WELCOME has mode %#x: expected lines", w.Welcome.Mode)
	}
	asker := w.ReadLines()
	t.Cleanup(func() { asker.Conn.Close() })
	w.ReadSegments()
	w.Ready()
	return workertest.NewSession(t, l), w, asker, lines
}

// A worker gets lines to the gateway that it was launched by, as many as there may be, and another one for each that has closed.
func TestLines(t *testing.T) {
	everyWay(t, func(t *testing.T, poller local.Poller, capabilities uint32) {
		_, _, asker, lines := calling(t, workertest.NewHub(t, poller, 0), capabilities)
		var given []worker.Line
		for range worker.MaxLines {
			theirs := asker.Ask()
			if theirs == nil {
				t.Fatalf("line %d was refused", len(given))
			}
			defer theirs.Close()
			line := receive(t, lines)
			defer line.Conn.Close()
			given = append(given, line)
			if _, err := theirs.Write([]byte("hello")); err != nil {
				t.Fatal(err)
			}
			heard := make([]byte, 5)
			if _, err := io.ReadFull(line.Conn, heard); err != nil || string(heard) != "hello" {
				t.Fatalf("the gateway's end has %q, %v", heard, err)
			}
		}
		if asker.Ask() != nil {
			t.Error("one line too many was given")
		}
		given[7].Closed()
		if again := asker.Ask(); again == nil {
			t.Error("no line was given in place of one that has closed")
		} else {
			again.Close()
			receive(t, lines).Conn.Close()
		}
	})
}

// A model that is not declared to call others gets no lines, and neither does a worker that does not know them.
func TestNoLines(t *testing.T) {
	g := workertest.NewHub(t, "", 0)
	for _, c := range []struct {
		lines        func(worker.Line)
		capabilities uint32
	}{{nil, wire.CapLines}, {func(worker.Line) {}, 0}} {
		l := workertest.Expect(t, g.Transport, worker.Expectation{Signature: workertest.Text(), Depth: 1, Lines: c.lines})
		w := workertest.StartRaw(t, g.Socket, l.Token(), c.capabilities)
		t.Cleanup(w.Close)
		if w.Welcome.Mode&wire.ModeLines != 0 {
			t.Errorf("WELCOME has mode %#x: expected no lines", w.Welcome.Mode)
		}
	}
}

// A worker that says something else where it asks for lines gets no more, and goes on.
func TestNonsenseInsteadOfAsking(t *testing.T) {
	everyWay(t, func(t *testing.T, poller local.Poller, capabilities uint32) {
		s, w, asker, _ := calling(t, workertest.NewHub(t, poller, 0), capabilities)
		if _, err := asker.Conn.Write([]byte{1, 2}); err != nil {
			t.Fatal(err)
		}
		for {
			if _, err := asker.Conn.Read(make([]byte, 1)); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatalf("the socket did not end: %v", err)
			}
		}
		b := s.Send(workertest.Texts("on")...)
		req := w.Next()
		w.Respond(w.Outputs(req, w.Inputs(req)))
		s.WantTexts(b, "on")
	})
}

// caused is a replica that has made a query: the batch, the query and the time that it was told.
type caused [3]int64

func (c *caused) CalleeStarts(batch uint64, query int, nanos int64) {
	*c = caused{int64(batch), int64(query), nanos}
}

// starts is a query that is told of a call.
type starts int64

func (s *starts) CalleeStarts(nanos int64) { *s = starts(nanos) }

// What a call belongs to is what the gateway knows of the batch, whatever the worker says.
func TestOrigin(t *testing.T) {
	everyWay(t, func(t *testing.T, poller local.Poller, capabilities uint32) {
		s, w, asker, lines := calling(t, workertest.NewHub(t, poller, 0), capabilities)
		theirs := asker.Ask()
		defer theirs.Close()
		line := receive(t, lines)
		defer line.Conn.Close()
		b := s.NewBatch(workertest.Texts("a", "b", "c")...)
		for i, q := range b.Queries {
			q.Deadline, q.Context = workertest.Now()+api.Nanos(i+1)*1e12, []byte("ann")
			q.Call = &api.Identity{RequestID: []byte{byte('p' + i)}, Chain: []byte([]string{"x y", "", "z"}[i])}
		}
		if err := s.TrySend(b); err != nil {
			t.Fatal(err)
		}
		req := w.Next()
		var o api.Origin
		for i, q := range b.Queries {
			if !line.From.Origin(req.Batch, i, &o) || o.Deadline != q.Deadline || string(o.Call.RequestID) != string(q.Call.RequestID) ||
				string(o.Call.Chain) != string(q.Call.Chain) || string(o.Context) != "ann" {
				t.Errorf("query %d: %+v", i, o)
			}
		}
		if !line.From.Origin(req.Batch, -1, &o) || o.Deadline != b.Queries[2].Deadline || string(o.Call.RequestID) != "p" || string(o.Call.Chain) != "x y,z" {
			t.Errorf("the batch: %+v", o)
		}
		if !line.From.Origin(req.Batch, 1000, &o) || string(o.Call.RequestID) != "r" {
			t.Errorf("a query behind the last one, as padding is: %+v", o)
		}
		for _, batch := range []uint64{0, req.Batch + 1, 1 << 63} {
			if line.From.Origin(batch, 0, &o) || o.Deadline != 0 || len(o.Call.RequestID)+len(o.Context)+len(o.Call.Chain) > 0 {
				t.Errorf("batch %d: %+v", batch, o)
			}
		}
		var told caused
		var starting [3]starts
		for i := range starting {
			b.Queries[i].Call.Starting = &starting[i]
		}
		b.Queries[1].Call.Cause = api.Cause{Replica: &told, Batch: 17, Query: -1}
		line.From.CalleeStarts(req.Batch+1, -1, 5)
		line.From.CalleeStarts(req.Batch, 0, 5)
		line.From.CalleeStarts(req.Batch, 1, 7)
		if starting != [3]starts{5, 7, 0} {
			t.Errorf("of calls that wait for replicas the queries were told %d", starting)
		}
		if told != (caused{17, -1, 7}) {
			t.Errorf("the cause of a query was told %+v", told)
		}
		w.Respond(w.Outputs(req, w.Inputs(req)))
		s.WantTexts(b, "a", "b", "c")
		if line.From.Origin(req.Batch, 0, &o) {
			t.Errorf("the batch after its answer: %+v", o)
		}
		w.Close()
		s.End()
		if line.From.Origin(req.Batch, 0, &o) {
			t.Errorf("the batch after the worker's end: %+v", o)
		}
		if _, err := asker.Conn.Read(make([]byte, 1)); !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) {
			t.Errorf("the socket for lines after the worker's end: %v", err)
		}
	})
}
