package local_test

import (
	"bytes"
	"testing"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/worker"
	"github.com/xebec-serving/xebec/worker/local"
	"github.com/xebec-serving/xebec/worker/wire"
	"github.com/xebec-serving/xebec/worker/workertest"
)

// reserve asks for a slot, and if the segment has none yet has it grow by a batch.
func (st *stage) reserve(t *testing.T, n int) api.Slot {
	t.Helper()
	to := st.Replica.(worker.Reserver)
	s := to.Reserve(n)
	if s == nil {
		b := st.Send(workertest.Texts("grow")...)
		req := st.w.Next()
		if req.Generation != 2 {
			t.Errorf("the batch after a reservation without room is in generation %d", req.Generation)
		}
		st.w.Respond(st.echo(req))
		st.WantTexts(b, "grow")
		s = to.Reserve(n)
	}
	if s == nil || len(s.Bytes()) != n {
		t.Fatalf("%d bytes cannot be reserved", n)
	}
	return s
}

func text(b []byte) []api.Value { return []api.Value{{Data: b}} }

// What lies in a slot stays there when the replica ends, and can be sent to another one.
func TestSlotOutlivesItsReplica(t *testing.T) {
	everyWay(t, func(t *testing.T, poller local.Poller, capabilities uint32) {
		st := newStage(t, poller, capabilities, workertest.Text(), 1, 0)
		s := st.reserve(t, 100<<10)
		copy(s.Bytes(), bytes.Repeat([]byte("s"), 100<<10))
		st.w.Close()
		st.End()
		b := st.honest.Send(text(s.Bytes()))
		st.honest.WantTexts(b, string(bytes.Repeat([]byte("s"), 100<<10)))
		if n := st.honest.Replica.Stats().InPlace; n != 0 {
			t.Errorf("%d inputs of another replica's segment count as in place", n)
		}
		if st.Replica.(worker.Reserver).Reserve(1) != nil {
			t.Error("a replica that has ended gives memory")
		}
		s.Free()
		st.unaffected(t)
	})
}

// The descriptor of a batch whose input is in place spans table and slot; the slot is not in the block's own room.
func TestSlotOnTheWire(t *testing.T) {
	everyWay(t, func(t *testing.T, poller local.Poller, capabilities uint32) {
		st := newStage(t, poller, capabilities, workertest.Text(), 2, 0)
		s := st.reserve(t, 1<<20)
		copy(s.Bytes(), "begins")
		b := st.Send(text([]byte("copied")), text(s.Bytes()))
		req := st.w.Next()
		if req.InLen < 1<<20 {
			t.Errorf("a block of %d bytes for an input of %d", req.InLen, 1<<20)
		}
		rows := st.w.Inputs(req)
		if got := rows[1][0].Data; string(rows[0][0].Data) != "copied" || len(got) != 1<<20 || !bytes.HasPrefix(got, []byte("begins")) {
			t.Errorf("the worker reads %d and %d bytes", len(rows[0][0].Data), len(got))
		}
		st.w.Respond(st.w.Outputs(req, workertest.Column{text(nil), text(nil)}))
		st.WantOK(b)
		if n := st.Replica.Stats().InPlace; n != 1 {
			t.Errorf("%d inputs in place, expected 1", n)
		}
		s.Free()
		st.w.Close()
		st.End()
		st.unaffected(t)
	})
}

// Batches that need nearly all of the largest segment still fit: slots give way. Slots have a bound of their own.
func TestSlotsGiveWay(t *testing.T) {
	const max = 8 << 20
	st := newStage(t, local.RuntimePoller, wire.CapRing, workertest.Text(), 1, max)
	to := st.Replica.(worker.Reserver)
	if to.Reserve(max/4+1) != nil {
		t.Error("a slot is larger than a quarter of the largest segment")
	}
	s := st.reserve(t, 1<<20)
	large := bytes.Repeat([]byte("x"), max-(64<<10))
	b := st.Send(text(large))
	req := st.w.Next()
	if rows := st.w.Inputs(req); !bytes.Equal(rows[0][0].Data, large) {
		t.Errorf("the worker reads %d bytes", len(rows[0][0].Data))
	}
	st.w.Respond(workertest.Answer(req))
	st.Wait(b)
	if to.Reserve(1<<20) != nil {
		t.Error("a segment that batches need as a whole has slots")
	}
	s.Free()
	st.w.Close()
	st.End()
	st.unaffected(t)
}
