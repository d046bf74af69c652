package local_test

import (
	"encoding/binary"
	"slices"
	"testing"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/shm"
	"github.com/xebec-serving/xebec/worker/wire"
	"github.com/xebec-serving/xebec/worker/workertest"
)

// The fuzzer's bytes are a program of a hostile worker: an operation, then its operands.
const (
	opSend      = iota // the gateway sends a batch; operand: queries
	opTake             // the worker takes a request, if there is one
	opAnswer           // it answers the oldest request that it has taken, correctly
	opLie              // it answers with one field of the response changed; operands: field, value
	opAgain            // it repeats its last answer
	opMore             // it answers NEED_MORE; operand: need
	opPush             // it pushes 64 arbitrary bytes into the ring, or sends them as a RESPONSE
	opTail             // it moves its tail; operand: signed byte
	opSleep            // it writes its head and its sleep counter; operand: value
	opBell             // it rings
	opWrite            // it writes bytes to the socket; operands: length, bytes
	opBlock            // it writes into the block of the oldest request; operands: offset, value
	opText             // it answers with an error's text
	opReady            // it sends READY; operand: generation
	opLeaving          // it sends LEAVING
	opFDs              // it sends descriptors
	opHalfClose        // it closes its half
	opSettle           // it waits until the gateway has handled what it did, if that can be observed
	opDrain            // the gateway sends DRAIN
	opFeedback         // the gateway has feedback; operand: queries
	opAccuracy         // the gateway asks for the accuracy
	opCount
)

// FuzzHostileWorker drives a worker against a Replica by arbitrary bytes. Whatever the worker does, the gateway does
// not crash, every batch is accounted for, and Gone comes exactly once.
func FuzzHostileWorker(f *testing.F) {
	for _, mode := range []byte{0, 1, 2, 3} {
		for _, program := range [][]byte{
			{opSend, 1, opTake, opAnswer, opSettle, opSend, 3, opSend, 0, opTake, opTake, opAnswer, opAnswer},
			{opSend, 2, opTake, opLie, 4, 9, opSettle},
			{opSend, 2, opTake, opAnswer, opAgain, opSettle},
			{opSend, 1, opTake, opMore, 20, opSettle, opTake, opAnswer, opSend, 1, opTake, opMore, 255},
			{opSend, 1, opTake, opMore, 23, opSettle, opTake, opAnswer, opReady, 2, opAnswer},
			{opSend, 1, opTail, 0xff, opBell, opTail, 3, opBell},
			{opSend, 1, opTake, opBlock, 0, 0xff, opAnswer, opSend, 1, opTake, opBlock, 8, 0xfe, opText, opLeaving, opDrain},
			{opWrite, 8, 7, 0, 0, 0, 2, 0, 0, 0, opWrite, 2, 0, 0, opSleep, 7, opFDs, opBell, opHalfClose},
			append([]byte{opSend, 1, opTake, opPush}, make([]byte, 64)...),
			{opFeedback, 2, opAccuracy, opSend, 1, opTake, opAnswer, opTake, opAnswer, opFeedback, 1, opTake, opText, opTake, opAnswer},
			{opAccuracy, opTake, opBlock, 64, 0xff, opAnswer, opFeedback, 0, opTake, opMore, 20, opSend, 1},
			{opSend, 1, opFeedback, 1, opTake, opMore, 23, opTake, opAnswer, opReady, 2, opTake, opLie, 2, 1, opDrain},
		} {
			f.Add(append([]byte{mode}, program...))
		}
	}
	f.Fuzz(func(t *testing.T, program []byte) {
		if len(program) == 0 {
			return
		}
		mode, caps := program[0], wire.CapContexts|wire.CapFeedback|wire.CapAccuracy
		if mode&1 != 0 {
			caps |= wire.CapRing
		}
		poller := workertest.Pollers[mode>>1&1]
		sig := workertest.Text()
		sig.Outputs = append(sig.Outputs, workertest.Spec("boxes", api.Float32, -1, 2), workertest.Spec("n", api.Int64))
		g := workertest.NewHub(t, poller, 4<<20)
		l := g.Expect(sig, 3)
		h := &hostile{program: program[1:], w: workertest.StartRaw(t, g.Socket, l.Token(), caps), s: workertest.NewSession(t, l)}
		h.run()
		h.w.Close()
		end := h.s.End()
		for id, begun := range h.s.Left() {
			if begun != end.Begun(id) {
				t.Errorf("Begun(%d) is not stable", id)
			}
		}
	})
}

// hostile runs one program.
type hostile struct {
	program []byte
	w       *workertest.Raw
	s       *workertest.Session
	taken   []wire.Request
	last    wire.Response
	// asked: side requests were sent, so batch IDs are no longer the numbers on the wire.
	asked bool
	// unclear: later answers may go unseen, because they became part of a frame or lie behind a tail.
	unclear bool
}

func (h *hostile) byte() byte {
	if len(h.program) == 0 {
		return 0
	}
	b := h.program[0]
	h.program = h.program[1:]
	return b
}

// value widens a byte to a number worth trying: small numbers, powers of two and their neighbours, all ones.
func (h *hostile) value() uint64 {
	b := h.byte()
	switch {
	case b < 64:
		return uint64(b)
	case b < 128:
		return 1 << (b - 64)
	case b < 192:
		return 1<<(b-128) - 1
	}
	return -uint64(255-b) * 8
}

func (h *hostile) run() {
	for step := 0; len(h.program) > 0 && step < 200; step++ {
		h.step(h.byte() % opCount)
	}
}

func (h *hostile) step(op byte) {
	switch op {
	case opSend:
		var queries [][]api.Value
		for i := range h.byte()%8 + 1 {
			queries = append(queries, workertest.Texts(string(make([]byte, int(i)*100)))[0])
		}
		_ = h.s.TrySend(h.s.NewBatch(queries...)) // refused at full depth, or after the worker's end
	case opTake:
		if req, ok := h.w.Poll(); ok && req.Kind != wire.KindDiscard && req.OutCap > 0 {
			h.taken = append(h.taken, req)
		}
	case opAnswer:
		h.answer(func(*wire.Response) {})
	case opLie:
		field, value := h.byte(), h.value()
		h.answer(func(res *wire.Response) { lie(res, field, value) })
	case opAgain:
		h.w.Respond(h.last)
	case opMore:
		need := h.value()
		h.answer(func(res *wire.Response) { res.Status, res.Need, res.OutLen = wire.StatusNeedMore, need, 0 })
	case opText:
		h.answer(func(res *wire.Response) { res.Status = wire.StatusModelError + wire.Status(h.byte()%2) })
	case opSettle:
		if !h.unclear && !h.asked && h.last.Batch != 0 && h.last.Status != wire.StatusNeedMore {
			h.s.Events.WaitDoneOrGone(h.s.TB, h.last.Batch)
		}
	case opFeedback:
		h.asked = true
		var pairs []string
		for i := range int(h.byte()%8) + 1 {
			pairs = append(pairs, string(make([]byte, i*100)), "1")
		}
		h.s.FeedbackTexts(pairs...)
	case opAccuracy:
		h.asked = true
		h.s.Accuracy()
	case opDrain:
		h.s.Replica.Drain()
	default:
		h.speak(op)
	}
}

// speak does what needs no request.
func (h *hostile) speak(op byte) {
	h.unclear = h.unclear || op == opPush || op == opTail || op == opSleep || op == opWrite
	switch op {
	case opPush:
		var d shm.Descriptor
		for i := range d {
			d[i] = h.byte()
		}
		if h.w.Ring() {
			h.w.Producer.Push(&d)
			h.w.Bell()
		} else {
			h.w.Write(append([]byte{byte(wire.TypeResponse), 0, 0, 0, 64, 0, 0, 0}, d[:]...))
		}
	case opTail:
		h.w.Tail().Add(uint64(int8(h.byte())))
	case opSleep:
		value := h.value()
		h.w.Head().Store(value)
		binary.LittleEndian.PutUint32(h.w.B.Bytes()[384:], uint32(value))
	case opBell:
		h.w.Write(wire.AppendBell(nil))
	case opWrite:
		n := min(int(h.byte()), len(h.program))
		h.w.Write(h.program[:n])
		h.program = h.program[n:]
	case opBlock:
		at, value := h.value(), h.value()
		if len(h.taken) > 0 {
			if req := h.taken[0]; req.Generation == h.w.Segments.Generation {
				h.w.Word(req, at%(req.OutCap-8), value)
			}
		}
	case opReady:
		h.w.Write((&wire.Ready{Generation: uint32(h.value())}).Append(nil))
	case opLeaving:
		h.w.Write((&wire.Leaving{Reason: "so"}).Append(nil))
	case opFDs:
		h.w.SendFDs(wire.AppendBell(nil), int(h.byte()%4)+1)
	case opHalfClose:
		_ = h.w.Conn.CloseWrite() // the gateway may have hung up
	}
}

// answer answers the oldest request, with one change.
func (h *hostile) answer(change func(*wire.Response)) {
	if len(h.taken) == 0 {
		return
	}
	req := h.taken[0]
	h.taken = slices.Delete(h.taken, 0, 1)
	if req.Generation != h.w.Segments.Generation {
		return // its block is unmapped
	}
	if req.Kind == wire.KindFeedback || req.Kind == wire.KindAccuracy {
		res := workertest.Answer(req)
		if req.Kind == wire.KindAccuracy {
			res = h.w.Accuracy(req, 0.5)
		}
		change(&res)
		h.last = res
		h.w.Respond(res)
		return
	}
	rows := make(workertest.Column, req.Count)
	for i := range rows {
		rows[i] = []api.Value{{Data: []byte("text")}, {Data: make([]byte, 8), Dims: []int64{1, 2}}, {Data: make([]byte, 8)}}
	}
	res := workertest.Answer(req)
	if sc := wire.NewSchema(h.w.Welcome.Signature.Outputs); sc.Size(rows) <= req.OutCap {
		res = h.w.Outputs(req, rows)
	}
	change(&res)
	h.last = res
	h.w.Respond(res)
}

func lie(res *wire.Response, field byte, value uint64) {
	switch field % 10 {
	case 0:
		res.Batch = value
	case 1:
		res.Generation = uint32(value)
	case 2:
		res.Kind = wire.Kind(value)
	case 3:
		res.Status = wire.Status(value)
	case 4:
		res.Count = uint32(value)
	case 5:
		res.Flags = uint32(value)
	case 6:
		res.OutOff = value
	case 7:
		res.OutLen = value
	case 8:
		res.Need = value
	case 9:
		res.WorkNanos = value
	}
}
