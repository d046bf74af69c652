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
	s, _ := to.Reserve(n, nil)
	if s == nil {
		b := st.Send(workertest.Texts("grow")...)
		req := st.w.Next()
		if req.Generation != 2 {
			t.Errorf("the batch after a reservation without room is in generation %d", req.Generation)
		}
		st.w.Respond(st.echo(req))
		st.WantTexts(b, "grow")
		s, _ = to.Reserve(n, nil)
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
		if s, _ := st.Replica.(worker.Reserver).Reserve(1, nil); s != nil {
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
	if s, _ := to.Reserve(max/4+1, nil); s != nil {
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
	if s, _ := to.Reserve(1<<20, nil); s != nil {
		t.Error("a segment that batches need as a whole has slots")
	}
	s.Free()
	st.w.Close()
	st.End()
	st.unaffected(t)
}

// An input that finds no slot waits while the segment grows for it, and for one that another input leaves. What waits gets them in order, and
// none when the replica ends. Inputs of which few fit do not wait.
func TestSlotIsAwaited(t *testing.T) {
	everyWay(t, func(t *testing.T, poller local.Poller, capabilities uint32) {
		const max, slots = 16 << 20, 4 << 20
		st := newStage(t, poller, capabilities, workertest.Text(), 2, max)
		to := st.Replica.(worker.Reserver)
		type answer struct {
			asker int
			slot  api.Slot
		}
		given := make(chan answer, 8)
		asker := func(i int, takes bool) func(api.Slot) bool {
			return func(s api.Slot) bool { given <- answer{i, s}; return takes }
		}
		if s, waits := to.Reserve(slots/32+1, asker(0, true)); s != nil || waits {
			t.Errorf("an input that is too large to wait: slot %v, waits %v", s, waits)
		}
		st.w.ReadSegments()
		if s, waits := to.Reserve(slots/32, asker(1, true)); s != nil || !waits {
			t.Fatalf("while the segment grows: slot %v, waits %v", s, waits)
		}
		st.w.Ready()
		first := <-given
		if first.asker != 1 || first.slot == nil || len(first.slot.Bytes()) != slots/32 {
			t.Fatalf("the larger segment gave %+v", first)
		}
		held := []api.Slot{first.slot}
		for {
			s, waits := to.Reserve(slots/32, asker(2, false))
			if waits {
				break
			}
			if s == nil {
				t.Fatalf("no slot after %d, and none soon", len(held))
			}
			held = append(held, s)
		}
		if len(held) != 32 {
			t.Errorf("%d slots, expected 32", len(held))
		}
		if s, waits := to.Reserve(100, nil); s != nil || waits {
			t.Errorf("without a give: slot %v, waits %v", s, waits)
		}
		for _, i := range []int{3, 4} {
			if _, waits := to.Reserve(slots/32, asker(i, true)); !waits {
				t.Fatal("it does not wait")
			}
		}
		held[0].Free()
		if a, b := <-given, <-given; a.asker != 2 || b.asker != 3 || b.slot == nil || len(given) > 0 {
			t.Errorf("%+v, %+v and %d more, expected 2, which waits no more, and 3", a, b, len(given))
		} else {
			held[0] = b.slot
		}
		st.w.Close()
		st.End()
		if last := <-given; last.asker != 4 || last.slot != nil {
			t.Errorf("the end gave %+v", last)
		}
		if s, waits := to.Reserve(100, asker(5, true)); s != nil || waits {
			t.Errorf("after the end: slot %v, waits %v", s, waits)
		}
		for _, s := range held {
			s.Free()
		}
		st.unaffected(t)
	})
}

// A worker that is asked to end gets no segments for inputs.
func TestNoSlotsWhileDraining(t *testing.T) {
	everyWay(t, func(t *testing.T, poller local.Poller, capabilities uint32) {
		st := newStage(t, poller, capabilities, workertest.Text(), 2, 0)
		st.Replica.Drain()
		if s, waits := st.Replica.(worker.Reserver).Reserve(1, func(api.Slot) bool { return true }); s != nil || waits {
			t.Errorf("slot %v, waits %v", s, waits)
		}
		st.w.Close()
		st.End()
		st.unaffected(t)
	})
}
