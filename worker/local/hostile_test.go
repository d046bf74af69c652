package local_test

import (
	"bytes"
	"math"
	"strings"
	"testing"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/shm"
	"github.com/xebec-serving/xebec/worker/local"
	"github.com/xebec-serving/xebec/worker/wire"
	"github.com/xebec-serving/xebec/worker/workertest"
)

// A response that contradicts its request ends the worker and affects no other.
func TestResponsesThatContradict(t *testing.T) {
	for _, c := range []struct {
		name, want string
		change     func(res *wire.Response, req wire.Request)
	}{
		{"unknown batch", "not outstanding", func(res *wire.Response, _ wire.Request) { res.Batch += 7 }},
		{"batch 0", "not outstanding", func(res *wire.Response, _ wire.Request) { res.Batch = 0 }},
		{"newer generation", "contradicts", func(res *wire.Response, _ wire.Request) { res.Generation++ }},
		{"generation 0", "contradicts", func(res *wire.Response, _ wire.Request) { res.Generation = 0 }},
		{"kind FEEDBACK", "contradicts", func(res *wire.Response, _ wire.Request) { res.Kind = wire.KindFeedback }},
		{"kind GRANT", "GRANT", func(res *wire.Response, _ wire.Request) { res.Kind = wire.KindGrant }},
		{"kind 0", "kind 0", func(res *wire.Response, _ wire.Request) { res.Kind = 0 }},
		{"status", "unknown status 77", func(res *wire.Response, _ wire.Request) { res.Status = 77 }},
		{"count too high", "contradicts", func(res *wire.Response, _ wire.Request) { res.Count++ }},
		{"count 0", "contradicts", func(res *wire.Response, _ wire.Request) { res.Count = 0 }},
		{"count of all ones", "contradicts", func(res *wire.Response, _ wire.Request) { res.Count = math.MaxUint32 }},
		{"flags", "unknown flags", func(res *wire.Response, _ wire.Request) { res.Flags = 1 << 9 }},
		{"offset", "contradicts", func(res *wire.Response, _ wire.Request) { res.OutOff += 64 }},
		{"offset 0", "contradicts", func(res *wire.Response, _ wire.Request) { res.OutOff = 0 }},
		{"offset of all ones", "contradicts", func(res *wire.Response, _ wire.Request) { res.OutOff = math.MaxUint64 }},
		{"length over the grant", "contradicts", func(res *wire.Response, req wire.Request) { res.OutLen = req.OutCap + 1 }},
		{"length that wraps", "contradicts", func(res *wire.Response, _ wire.Request) { res.OutLen = -res.OutOff }},
		{"a need without NEED_MORE", "need", func(res *wire.Response, _ wire.Request) { res.Need = 1 }},
		{"NEED_MORE without a need", "need", func(res *wire.Response, _ wire.Request) { res.Status = wire.StatusNeedMore }},
		{"NEED_MORE of what was granted", "NEED_MORE", func(res *wire.Response, req wire.Request) {
			res.Status, res.Need = wire.StatusNeedMore, req.OutCap
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			everyWay(t, func(t *testing.T, poller local.Poller, capabilities uint32) {
				st := newStage(t, poller, capabilities, workertest.Text(), 2, 0)
				first, req := st.take("one")
				behind := st.Send(workertest.Texts("two")...)
				res := st.echo(req)
				c.change(&res, req)
				st.w.Respond(res)
				st.WantViolation(c.want)
				if code := st.w.WantRefused(); code != wire.RefusedViolation {
					t.Errorf("REFUSED %d, expected %d", code, wire.RefusedViolation)
				}
				if left := st.Left(); len(left) != 2 || !left[first.ID] || left[behind.ID] {
					t.Errorf("left %v: expected batch %d begun and batch %d not", left, first.ID, behind.ID)
				}
				st.unaffected(t)
			})
		})
	}
}

// Other violations, each after one batch that was answered correctly.
func TestViolations(t *testing.T) {
	const both, ring, socket = 0, 1, 2
	frame := func(typ byte, payload ...byte) []byte {
		return append([]byte{typ, 0, 0, 0, byte(len(payload)), 0, 0, 0}, payload...)
	}
	for _, c := range []struct {
		name, want string
		mode       int
		do         func(st *stage, last wire.Response)
	}{
		{"duplicated response", "", both, func(st *stage, last wire.Response) { st.w.Respond(last) }},
		{"response twice to one request", "", both, func(st *stage, _ wire.Response) {
			_, req := st.take("x")
			res := st.echo(req)
			st.w.Respond(res)
			st.w.Respond(res)
		}},
		{"second NEED_MORE", "NEED_MORE", both, func(st *stage, _ wire.Response) {
			_, req := st.take("x")
			res := workertest.Answer(req)
			res.Status, res.Need = wire.StatusNeedMore, req.OutCap+1
			st.w.Respond(res)
			grant := st.w.Next()
			res = workertest.Answer(grant)
			res.Status, res.Need = wire.StatusNeedMore, grant.OutCap+1
			st.w.Respond(res)
		}},
		{"answer to a batch that waits for its GRANT", "not outstanding", both, func(st *stage, _ wire.Response) {
			_, req := st.take("x")
			st.take("y") // keeps the gateway from sending larger segments
			res := workertest.Answer(req)
			res.Status, res.Need = wire.StatusNeedMore, 8<<20
			st.w.Respond(res)
			st.w.Respond(workertest.Answer(req))
		}},
		{"tail backwards", "backwards", ring, func(st *stage, _ wire.Response) {
			_, _ = st.take("x")
			st.w.Tail().Store(0)
			st.w.Write(wire.AppendBell(nil))
		}},
		{"tail one too far", "shows 2 descriptors", ring, func(st *stage, _ wire.Response) {
			_, _ = st.take("x")
			st.w.Tail().Add(2)
			st.w.Write(wire.AppendBell(nil))
		}},
		{"tail of all ones", "at most 0", ring, func(st *stage, _ wire.Response) {
			st.w.Tail().Store(math.MaxUint64)
			st.w.Write(wire.AppendBell(nil))
		}},
		{"tail moves without a descriptor", "malformed", ring, func(st *stage, _ wire.Response) {
			_, _ = st.take("x")
			st.w.Tail().Add(1)
			st.w.Write(wire.AppendBell(nil))
		}},
		{"a reserved field of a descriptor", "reserved", ring, func(st *stage, _ wire.Response) {
			_, req := st.take("x")
			res := st.echo(req)
			var d shm.Descriptor
			res.Put((*[64]byte)(&d))
			d[63] = 1
			st.w.Producer.Push(&d)
			st.w.Bell()
		}},
		{"RESPONSE beside the ring", "RESPONSE", ring, func(st *stage, _ wire.Response) {
			_, req := st.take("x")
			res := st.echo(req)
			st.w.Write(res.Append(nil))
		}},
		{"RESPONSE too short", "RESPONSE", socket, func(st *stage, _ wire.Response) { st.w.Write(frame(0x11, 1, 2, 3)) }},
		{"unknown type", "0x7f", both, func(st *stage, _ wire.Response) { st.w.Write(frame(0x7f)) }},
		{"type of remote workers", "0x20", both, func(st *stage, _ wire.Response) { st.w.Write(frame(0x20)) }},
		{"reserved header byte", "reserved", both, func(st *stage, _ wire.Response) { st.w.Write([]byte{0x07, 1, 0, 0, 0, 0, 0, 0}) }},
		{"oversized frame", "65537", both, func(st *stage, _ wire.Response) { st.w.Write([]byte{0x07, 0, 0, 0, 1, 0, 1, 0}) }},
		{"a second HELLO", "0x02", both, func(st *stage, _ wire.Response) { st.w.Hello("again", 0) }},
		{"a frame of the gateway's", "0x10", both, func(st *stage, _ wire.Response) {
			st.w.Write((&wire.Request{Kind: wire.KindPredict, Count: 1}).Append(nil))
		}},
		{"READY of nothing", "READY", both, func(st *stage, _ wire.Response) { st.w.Ready() }},
		{"LEAVING cut short", "LEAVING", both, func(st *stage, _ wire.Response) { st.w.Write(frame(0x07, 9)) }},
		{"LEAVING twice", "LEAVING", both, func(st *stage, _ wire.Response) {
			m := (&wire.Leaving{Reason: "x"}).Append(nil)
			st.w.Write(append(m, m...))
		}},
		{"garbage", "", both, func(st *stage, _ wire.Response) { st.w.Write(bytes.Repeat([]byte{0xde, 0xad}, 5000)) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			everyWay(t, func(t *testing.T, poller local.Poller, capabilities uint32) {
				if c.mode == ring && capabilities == 0 || c.mode == socket && capabilities != 0 {
					return
				}
				st := newStage(t, poller, capabilities, workertest.Text(), 3, 0)
				b, req := st.take("well")
				res := st.echo(req)
				st.w.Respond(res)
				st.WantTexts(b, "well")
				c.do(st, res)
				st.WantViolation(c.want)
				st.unaffected(t)
			})
		})
	}
}

// READY for a generation that was not sent, while another one is awaited.
func TestReadyOfTheWrongGeneration(t *testing.T) {
	everyWay(t, func(t *testing.T, poller local.Poller, capabilities uint32) {
		st := newStage(t, poller, capabilities, workertest.Text(), 1, 0)
		st.Send(workertest.Texts(strings.Repeat("x", 3<<20))...)
		st.w.Want(wire.TypeSegments)
		st.w.Write((&wire.Ready{Generation: 3}).Append(nil))
		st.WantViolation("READY")
		st.unaffected(t)
	})
}

// A worker that rings often is served as long as the socket is read. One that floods its socket does not block other
// workers.
func TestFloods(t *testing.T) {
	everyWay(t, func(t *testing.T, poller local.Poller, capabilities uint32) {
		st := newStage(t, poller, capabilities, workertest.Text(), 2, 0)
		bells := bytes.Repeat(wire.AppendBell(nil), 4096)
		for range local.MaxIdleBytes / len(bells) / 2 {
			st.w.Write(bells)
			b, req := st.take("between")
			st.w.Respond(st.echo(req))
			st.WantTexts(b, "between")
		}
		flood := make(chan struct{})
		go func() {
			defer close(flood)
			for { // until the gateway has hung up
				if _, err := st.w.Conn.Write(bells); err != nil {
					return
				}
			}
		}()
		st.honest.WantTexts(st.honest.Send(workertest.Texts("beside a flood")...), "beside a flood")
		st.Replica.Kill("enough")
		st.End()
		<-flood
		st.unaffected(t)
	})
}

// The gateway keeps no descriptor that a worker sends. The check for leftovers would find them.
func TestDescriptorsFromTheWorker(t *testing.T) {
	everyWay(t, func(t *testing.T, poller local.Poller, capabilities uint32) {
		st := newStage(t, poller, capabilities, workertest.Text(), 2, 0)
		for range 20 {
			st.w.SendFDs(wire.AppendBell(nil), 3)
			b, req := st.take("x")
			st.w.Respond(st.echo(req))
			st.WantTexts(b, "x")
		}
		// Data behind a message with descriptors is read separately, and so is the end of the stream behind that.
		st.w.SendFDs((&wire.Leaving{Reason: "with descriptors"}).Append(nil), 3)
		st.w.Write(wire.AppendBell(nil))
		st.w.Close()
		if end := st.End(); end.Violation {
			t.Errorf("%+v", end)
		}
		st.unaffected(t)
	})
}

// A worker that closes its half has ended. Its answers from before count.
func TestHalfClose(t *testing.T) {
	everyWay(t, func(t *testing.T, poller local.Poller, capabilities uint32) {
		st := newStage(t, poller, capabilities, workertest.Text(), 2, 0)
		b, req := st.take("x")
		st.Send(workertest.Texts("y")...)
		if res := st.echo(req); st.w.Ring() {
			st.w.Push(res) // without a bell
		} else {
			st.w.Respond(res)
		}
		if err := st.w.Conn.CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if end := st.End(); end.Violation {
			t.Errorf("%+v", end)
		}
		if res, ok := st.Events.Result(b.ID); !ok || res.Code != api.OK {
			t.Errorf("the batch that was answered: %+v, %v", res, ok)
		}
		if left := st.Left(); len(left) != 1 {
			t.Errorf("left %v, expected one", left)
		}
		st.unaffected(t)
	})
}

// The last answers of a worker that hangs up are checked like all others.
func TestViolationInTheLastAnswers(t *testing.T) {
	for _, poller := range workertest.Pollers {
		t.Run(string(poller), func(t *testing.T) {
			st := newStage(t, poller, wire.CapRing, workertest.Text(), 2, 0)
			_, req := st.take("x")
			res := st.echo(req)
			res.Count = 9
			st.w.Push(res)
			st.w.Close()
			st.WantViolation("contradicts")
			st.unaffected(t)
		})
	}
}

// A worker that answers without reading its socket is ended when the socket is full. Send never blocks.
func TestNeverReads(t *testing.T) {
	for _, poller := range workertest.Pollers {
		t.Run(string(poller), func(t *testing.T) {
			st := newStage(t, poller, 0, workertest.Text(), 1, 0)
			_, req := st.take("x") // the only request that it reads: the next ones can be guessed
			n := st.echo(req).OutLen
			for {
				res := workertest.Answer(req)
				res.OutLen = n
				st.w.Respond(res)
				if res, ended := st.doneOrGone(req.Batch); ended {
					break
				} else if res.Code != api.OK {
					t.Fatalf("batch %d: %+v", req.Batch, res)
				}
				req.Batch++
				if st.TrySend(st.NewBatch(workertest.Texts("x")...)) != nil {
					break
				}
			}
			st.WantViolation("does not read its socket")
			st.unaffected(t)
		})
	}
}

// doneOrGone waits for whichever comes first.
func (st *stage) doneOrGone(batch uint64) (res api.BatchResult, gone bool) {
	return st.Events.WaitDoneOrGone(st.TB, batch)
}

// A worker's text reaches operators cut to length, as valid UTF-8 and without control characters.
func TestTexts(t *testing.T) {
	everyWay(t, func(t *testing.T, poller local.Poller, capabilities uint32) {
		st := newStage(t, poller, capabilities, workertest.Text(), 1, 0)
		for _, status := range []wire.Status{wire.StatusModelError, wire.StatusBadOutput} {
			b, req := st.take(strings.Repeat("x", 40<<10))
			res := workertest.Answer(req)
			text := "raised \x1b[31m red\x00 \xff\xfe and\n\ttabs " + strings.Repeat("é", local.MaxDetailBytes)
			res.Status, res.OutLen = status, uint64(copy(st.w.Granted(req), text))
			st.w.Respond(res)
			code := map[wire.Status]api.Code{wire.StatusModelError: api.ModelError, wire.StatusBadOutput: api.BadOutput}[status]
			st.WantCode(b, code, "and\n\ttabs é")
			got := st.Wait(b).Detail
			if len(got) > 3*local.MaxDetailBytes || strings.ContainsAny(got, "\x1b\x00") || got != strings.ToValidUTF8(got, "") {
				t.Errorf("text of %d bytes: %.80q", len(got), got)
			}
			if st.Replica.Stats().LastError != got {
				t.Errorf("LastError %.80q", st.Replica.Stats().LastError)
			}
		}
		b, req := st.take("x")
		res := workertest.Answer(req)
		res.Status = wire.StatusUnsupported
		st.w.Respond(res)
		st.WantCode(b, api.ModelError, "does not support")
		st.w.Close()
		st.End()
		st.unaffected(t)
	})
}
