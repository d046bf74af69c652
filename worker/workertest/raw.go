package workertest

import (
	"cmp"
	"encoding/binary"
	"errors"
	"math"
	"net"
	"slices"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/shm"
	"github.com/xebec-serving/xebec/worker/wire"
)

// Raw is a worker without a binding. Its methods follow the protocol; its fields are there to break it. It is used by
// one goroutine.
type Raw struct {
	Version uint16 // of the protocol, for Hello; 0 means the highest
	// Concurrency and Binding are for Hello; 0 means 1, and "" raw/1.
	Concurrency uint16
	Binding     string
	// Other is called for a frame that Poll does not handle, if it is set.
	Other func(wire.Type)
	TB    TB
	Conn  *net.UnixConn

	Welcome  wire.Welcome
	Segments wire.Segments
	A, B     *shm.Segment
	Consumer *shm.Consumer
	Producer *shm.Producer

	parser wire.Parser
	fds    []int
}

// DialRaw connects and sends nothing.
func DialRaw(tb TB, socket string) *Raw {
	tb.Helper()
	c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		tb.Fatalf("connect to the gateway: %v", err)
	}
	c.SetDeadline(time.Now().Add(patience))
	return &Raw{TB: tb, Conn: c}
}

// StartRaw connects, sends HELLO with these capabilities and continues until READY.
func StartRaw(tb TB, socket string, token string, capabilities uint32) *Raw {
	tb.Helper()
	w := DialRaw(tb, socket)
	w.Hello(token, capabilities)
	w.ReadWelcome()
	w.ReadSegments()
	w.Ready()
	return w
}

// Hello sends HELLO.
func (w *Raw) Hello(token string, capabilities uint32) {
	m := wire.Hello{Major: cmp.Or(w.Version, wire.Major), Capabilities: capabilities, Token: token, Model: Model.Name, Version: Model.Version, Binding: cmp.Or(w.Binding, "raw/1"), Concurrency: w.Concurrency}
	w.Write(m.Append(nil))
}

// Write sends bytes. It ignores errors: the next read notices a gateway that has hung up.
func (w *Raw) Write(p []byte) {
	w.Conn.Write(p)
}

// Read reads once into the parser and collects descriptors. Without wait it returns syscall.EAGAIN if there is nothing
// to read. At the end of the stream it returns net.ErrClosed.
func (w *Raw) Read(wait bool) error {
	raw, err := w.Conn.SyscallConn()
	if err != nil {
		return err
	}
	space, oob := w.parser.Space(), make([]byte, 64)
	var n, oobn int
	var rerr error
	err = raw.Read(func(fd uintptr) bool {
		n, oobn, _, _, rerr = syscall.Recvmsg(int(fd), space, oob, syscall.MSG_DONTWAIT|syscall.MSG_CMSG_CLOEXEC)
		return rerr != syscall.EAGAIN || !wait
	})
	switch {
	case err != nil:
		return err
	case rerr == syscall.ECONNRESET || rerr == nil && n == 0:
		return net.ErrClosed
	case rerr != nil:
		return rerr
	}
	if messages, err := syscall.ParseSocketControlMessage(oob[:oobn]); err == nil {
		for i := range messages {
			if fds, err := syscall.ParseUnixRights(&messages[i]); err == nil {
				w.fds = append(w.fds, fds...)
			}
		}
	}
	w.parser.Advance(n)
	return nil
}

// Frame waits for the next frame. The payload is valid until the next read.
func (w *Raw) Frame() (wire.Type, []byte, error) {
	for {
		t, payload, ok, err := w.parser.Next()
		if ok || err != nil {
			return t, payload, err
		}
		if err := w.Read(true); err != nil {
			return 0, nil, err
		}
	}
}

// Want waits for a frame of type t.
func (w *Raw) Want(t wire.Type) []byte {
	w.TB.Helper()
	got, payload, err := w.Frame()
	if err != nil || got != t {
		w.TB.Fatalf("waiting for %v: %v, %v", t, got, err)
	}
	return payload
}

// WantRefused waits for REFUSED and returns its code. It returns 0 for a hang-up without it: a hang-up may overtake
// REFUSED if the gateway had unread bytes.
func (w *Raw) WantRefused() uint16 {
	w.TB.Helper()
	for {
		t, payload, err := w.Frame()
		if errors.Is(err, net.ErrClosed) {
			return 0
		}
		if err != nil {
			w.TB.Fatalf("waiting for REFUSED: %v", err)
		}
		if t == wire.TypeRefused {
			var m wire.Refused
			if err := m.Decode(payload); err != nil {
				w.TB.Fatalf("%v", err)
			}
			return m.Code
		}
	}
}

// ReadWelcome waits for WELCOME.
func (w *Raw) ReadWelcome() {
	w.TB.Helper()
	if err := w.Welcome.Decode(w.Want(wire.TypeWelcome)); err != nil {
		w.TB.Fatalf("%v", err)
	}
}

// ReadSegments waits for SEGMENTS and maps them. It unmaps the previous ones.
func (w *Raw) ReadSegments() {
	w.TB.Helper()
	w.mapSegments(w.Want(wire.TypeSegments))
}

func (w *Raw) mapSegments(payload []byte) {
	w.TB.Helper()
	if err := w.Segments.Decode(payload); err != nil || len(w.fds) != 2 {
		w.TB.Fatalf("SEGMENTS with %d descriptors: %v", len(w.fds), err)
	}
	w.unmap()
	m := &w.Segments
	var err error
	if w.A, err = shm.Open(w.fds[0], shm.RoleA, m.Generation, int(m.Entries), m.SizeA); err != nil {
		w.TB.Fatalf("%v", err)
	}
	if w.B, err = shm.Open(w.fds[1], shm.RoleB, m.Generation, int(m.Entries), m.SizeB); err != nil {
		w.TB.Fatalf("%v", err)
	}
	w.closeFDs()
	w.Consumer, w.Producer = shm.NewConsumer(w.B, w.A), shm.NewProducer(w.B, w.A)
}

// Ready sends READY for the mapped generation.
func (w *Raw) Ready() {
	m := wire.Ready{Generation: w.Segments.Generation}
	w.Write(m.Append(nil))
}

// Ring reports whether descriptors travel through the rings.
func (w *Raw) Ring() bool { return w.Welcome.Mode&wire.ModeRing != 0 }

// Poll returns the next request if there is one. It maps SEGMENTS that arrive meanwhile and answers READY.
func (w *Raw) Poll() (req wire.Request, ok bool) {
	w.TB.Helper()
	for {
		if w.Ring() {
			var d shm.Descriptor
			if some, err := w.Consumer.Pop(&d, uint64(w.Segments.Entries)); err != nil {
				w.TB.Fatalf("%v", err)
			} else if some {
				if err := req.Get((*[64]byte)(&d)); err != nil {
					w.TB.Fatalf("%v", err)
				}
				return req, true
			}
		}
		t, payload, ok, err := w.parser.Next()
		switch {
		case err != nil:
			w.TB.Fatalf("%v", err)
		case ok && t == wire.TypeSegments:
			w.mapSegments(payload)
			w.Ready()
		case ok && t == wire.TypeRequest:
			if err := req.Decode(payload); err != nil {
				w.TB.Fatalf("%v", err)
			}
			return req, true
		case ok:
			if w.Other != nil {
				w.Other(t)
			}
			return req, false
		case w.Read(false) != nil:
			return req, false
		}
	}
}

// Next waits for the next request.
func (w *Raw) Next() wire.Request {
	w.TB.Helper()
	for {
		if req, ok := w.Poll(); ok {
			return req
		}
		if w.Ring() && !w.Consumer.PrepareSleep() {
			continue
		}
		err := w.Read(true)
		if w.Ring() {
			w.Consumer.Wake()
		}
		if err != nil {
			w.TB.Fatalf("waiting for a request: %v", err)
		}
	}
}

// Answer returns the response to a request: OK without a block, to be changed by the test.
func Answer(req wire.Request) wire.Response {
	kind := req.Kind
	if kind == wire.KindGrant || kind == wire.KindDiscard {
		kind = wire.KindPredict
	}
	return wire.Response{Batch: req.Batch, Generation: req.Generation, Kind: kind, Count: req.Count, OutOff: req.OutOff}
}

// Accuracy writes the answer to ACCURACY into the block that req grants and returns the response.
func (w *Raw) Accuracy(req wire.Request, value float64) wire.Response {
	w.TB.Helper()
	row := []api.Value{{Data: binary.LittleEndian.AppendUint64(nil, math.Float64bits(value))}}
	n, err := wire.NewSchema([]api.TensorSpec{{DType: api.Float64}}).Write(w.Granted(req), Column{row})
	if err != nil {
		w.TB.Fatalf("%v", err)
	}
	res := Answer(req)
	res.OutLen = n
	return res
}

// Respond sends a response in the connection's mode, and rings if the gateway sleeps.
func (w *Raw) Respond(res wire.Response) {
	if !w.Ring() {
		w.Write(res.Append(nil))
		return
	}
	w.Push(res)
	w.Bell()
}

// Push puts a response into the ring without ringing.
func (w *Raw) Push(res wire.Response) {
	var d shm.Descriptor
	res.Put((*[64]byte)(&d))
	w.Producer.Push(&d)
}

// Bell rings if the gateway sleeps.
func (w *Raw) Bell() {
	if w.Producer.ShouldRing() {
		w.Write(wire.AppendBell(nil))
	}
}

// Column presents queries' values as a block's. It implements wire.Values.
type Column [][]api.Value

// Len implements wire.Values.
func (c Column) Len() int { return len(c) }

// At implements wire.Values.
func (c Column) At(i, s int) *api.Value { return &c[i][s] }

// Outputs writes outputs, one row per query, into the block that req grants and returns the response.
func (w *Raw) Outputs(req wire.Request, rows Column) wire.Response {
	w.TB.Helper()
	sc := wire.NewSchema(w.Welcome.Signature.Outputs)
	n, err := sc.Write(w.Granted(req), rows)
	if err != nil {
		w.TB.Fatalf("%v", err)
	}
	res := Answer(req)
	res.OutLen = n
	return res
}

// Granted is the output block of a request.
func (w *Raw) Granted(req wire.Request) []byte {
	return w.B.Bytes()[req.OutOff : req.OutOff+req.OutCap]
}

// Inputs reads a request's inputs. Each row also has the context if the worker is given contexts, and the label if the
// request is FEEDBACK.
func (w *Raw) Inputs(req wire.Request) (rows Column) {
	w.TB.Helper()
	var r wire.Reader
	sections := slices.Clone(w.Welcome.Signature.Inputs)
	if w.Welcome.Mode&wire.ModeContexts != 0 {
		sections = append(sections, wire.BytesSection)
	}
	if req.Kind == wire.KindFeedback {
		sections = append(sections, wire.BytesSection)
	}
	if err := wire.NewSchema(sections).Open(&r, w.A.Bytes()[req.InOff:req.InOff+req.InLen], int(req.Count)); err != nil {
		w.TB.Fatalf("%v", err)
	}
	for i := range int(req.Count) {
		row := make([]api.Value, len(sections))
		for s := range row {
			_, data, dims, err := r.AppendItem(nil, i, s, nil)
			if err != nil {
				w.TB.Fatalf("%v", err)
			}
			row[s] = api.Value{Data: data, Dims: dims}
		}
		rows = append(rows, row)
	}
	return rows
}

// Tail is the worker's tail cursor, for tests that falsify it.
func (w *Raw) Tail() *atomic.Uint64 { return (*atomic.Uint64)(unsafe.Pointer(&w.B.Bytes()[128])) }

// Head is the worker's head cursor: how many requests it claims to have taken.
func (w *Raw) Head() *atomic.Uint64 { return (*atomic.Uint64)(unsafe.Pointer(&w.B.Bytes()[256])) }

// Word writes a number into a request's output block, bypassing every check.
func (w *Raw) Word(req wire.Request, at, value uint64) {
	binary.LittleEndian.PutUint64(w.Granted(req)[at:], value)
}

// SendFDs sends bytes together with n copies of the standard input's descriptor.
func (w *Raw) SendFDs(p []byte, n int) {
	fds := make([]int, n)
	w.Conn.WriteMsgUnix(p, syscall.UnixRights(fds...), nil)
}

func (w *Raw) closeFDs() {
	for _, fd := range w.fds {
		syscall.Close(fd)
	}
	w.fds = nil
}

func (w *Raw) unmap() {
	if w.A != nil {
		w.A.Close()
	}
	if w.B != nil {
		w.B.Close()
	}
	w.A, w.B = nil, nil
}

// Close hangs up and releases everything.
func (w *Raw) Close() {
	w.Conn.Close()
	w.closeFDs()
	w.unmap()
}
