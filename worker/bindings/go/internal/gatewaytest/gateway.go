//go:build linux && (amd64 || arm64 || loong64 || ppc64le || riscv64)

package gatewaytest

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/shm"
	"github.com/xebec-serving/xebec/worker/wire"
)

// Patience is how long a test waits for an expected event. It only bounds a test that fails.
const Patience = 20 * time.Second

// Entries is the size of the rings.
const Entries = 16

// What a launch's environment has besides the gateway's address.
const (
	Token   = "secret"
	Model   = "m"
	Version = "1"
)

// Gateway is one connection.
type Gateway struct {
	Socket string        // the address for the worker
	Hello  wire.Hello    // what the worker sent
	Major  uint16        // the version that Welcome answers; 0: the worker's
	Mode   uint32        // the mode that Welcome answered
	Sig    api.Signature // what Welcome announces
	Lines  *Lines        // what the model may call; nil: nothing

	// Number is the generation sent last. OffA and OffB are where the next blocks will lie.
	Number     uint32
	OffA, OffB uint64

	t        testing.TB
	listener *net.UnixListener
	conn     *net.UnixConn
	parser   wire.Parser
	a, b     *shm.Segment
	producer *shm.Producer
	consumer *shm.Consumer
	batch    uint64
	waiting  uint64 // requests without an answer
	served   chan error
}

var names atomic.Uint64

// New listens for one worker of a model with these inputs and outputs. It is closed at the end of the test.
func New(t testing.TB, inputs, outputs []api.TensorSpec) *Gateway {
	t.Helper()
	name := fmt.Sprintf("@xebec-go-test-%d-%d", os.Getpid(), names.Add(1))
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: name, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	g := &Gateway{t: t, listener: listener, Socket: name, Sig: api.Signature{Inputs: inputs, Outputs: outputs}}
	t.Cleanup(func() {
		listener.Close()
		g.HangUp()
		if g.served != nil {
			g.Wait(func(error) {})
		}
		g.unmap()
	})
	return g
}

// Env is the environment that the gateway gives to a worker.
func (g *Gateway) Env() []string {
	return []string{"XEBEC_SOCKET=" + g.Socket, "XEBEC_TOKEN=" + Token, "XEBEC_MODEL=" + Model, "XEBEC_VERSION=" + Version}
}

// HangUp closes the connection.
func (g *Gateway) HangUp() {
	if g.conn != nil {
		g.conn.Close()
		g.conn = nil
	}
}

func (g *Gateway) unmap() {
	if g.a == nil {
		return
	}
	if err := errors.Join(g.a.Close(), g.b.Close()); err != nil {
		g.t.Error(err)
	}
	g.a, g.b = nil, nil
}

// Run starts the worker and waits for its HELLO. serve runs the worker until it ends.
func (g *Gateway) Run(serve func() error) {
	g.t.Helper()
	served := make(chan error, 1)
	g.served = served
	go func() { served <- serve() }()
	g.accept()
}

// Start brings a worker to the state ready, with segments of a mebibyte.
func (g *Gateway) Start(serve func() error) {
	g.t.Helper()
	g.Run(serve)
	g.Welcome()
	if g.Mode&wire.ModeLines != 0 {
		g.SendLines(g.Lines)
	}
	g.Segments(1 << 20)
	g.Ready()
}

// Wait waits for the end of the worker and passes its error to check.
func (g *Gateway) Wait(check func(error)) {
	g.t.Helper()
	served := g.served
	g.served = nil
	select {
	case err := <-served:
		check(err)
	case <-time.After(Patience):
		g.t.Fatal("the worker did not end")
	}
}

// WantEnd waits for the end of the worker, which must return this error.
func (g *Gateway) WantEnd(want error) {
	g.t.Helper()
	g.Wait(func(err error) {
		if !errors.Is(err, want) {
			g.t.Errorf("the worker ended with %v, expected %v", err, want)
		}
	})
}

// Drain ends the worker in order.
func (g *Gateway) Drain() {
	g.t.Helper()
	g.Send(wire.AppendDrain(nil))
	g.WantEnd(nil)
}

func (g *Gateway) accept() {
	g.t.Helper()
	if err := g.listener.SetDeadline(time.Now().Add(Patience)); err != nil {
		g.t.Fatal(err)
	}
	conn, err := g.listener.AcceptUnix()
	if err != nil {
		g.t.Fatal(err)
	}
	g.conn = conn
	if err := g.Hello.Decode(g.Frame(wire.TypeHello)); err != nil {
		g.t.Fatal(err)
	}
}

// read waits for bytes. It returns false at the end of the stream.
func (g *Gateway) read() bool {
	g.t.Helper()
	if err := g.conn.SetReadDeadline(time.Now().Add(Patience)); err != nil {
		g.t.Fatal(err)
	}
	n, err := g.conn.Read(g.parser.Space())
	if n == 0 {
		if errors.Is(err, os.ErrDeadlineExceeded) {
			g.t.Fatal("nothing came from the worker")
		}
		return false
	}
	g.parser.Advance(n)
	return true
}

// Frame waits for the next frame, which must be of this type.
func (g *Gateway) Frame(want wire.Type) []byte {
	g.t.Helper()
	for {
		typ, payload, ok, err := g.parser.Next()
		if err != nil {
			g.t.Fatal(err)
		}
		if ok {
			if typ != want {
				g.t.Fatalf("the worker sent %v, expected %v", typ, want)
			}
			return payload
		}
		if !g.read() {
			g.t.Fatalf("the worker hung up, expected %v", want)
		}
	}
}

// Send writes bytes to the socket.
func (g *Gateway) Send(frame []byte) {
	g.t.Helper()
	if _, err := g.conn.Write(frame); err != nil {
		g.t.Fatal(err)
	}
}

// Welcome answers HELLO with every mode that the worker supports.
func (g *Gateway) Welcome() {
	g.t.Helper()
	g.Mode = g.Hello.Capabilities & (wire.ModeRing | wire.ModeContexts)
	if g.Major == 0 {
		g.Major = g.Hello.Major
	}
	if g.Major >= 2 {
		g.Mode |= g.Hello.Capabilities & (wire.ModeParameters | wire.ModeCalls | wire.ModeStreams)
		if g.Lines != nil {
			g.Mode |= g.Hello.Capabilities & wire.ModeLines
		}
	}
	m := wire.Welcome{Major: g.Major, Mode: g.Mode, Replica: 1, Model: Model, Version: Version, Signature: g.Sig}
	g.Send(m.Append(nil))
}

// Segments sends the next generation. Both segments have this size.
func (g *Gateway) Segments(sizeBytes uint64) {
	g.t.Helper()
	g.unmap()
	g.Number++
	var err error
	if g.a, err = shm.Create(shm.RoleA, g.Number, Entries, sizeBytes); err != nil {
		g.t.Fatal(err)
	}
	if g.b, err = shm.Create(shm.RoleB, g.Number, Entries, sizeBytes); err != nil {
		g.t.Fatal(err)
	}
	g.producer, g.consumer = shm.NewProducer(g.a, g.b), shm.NewConsumer(g.a, g.b)
	g.OffA, g.OffB = shm.SlabOffset(Entries), shm.SlabOffset(Entries)
	m := wire.Segments{Generation: g.Number, Entries: Entries, SizeA: uint64(len(g.a.Bytes())), SizeB: uint64(len(g.b.Bytes()))}
	if _, _, err := g.conn.WriteMsgUnix(m.Append(nil), unix.UnixRights(g.a.FD(), g.b.FD()), nil); err != nil {
		g.t.Fatal(err)
	}
	if err := errors.Join(g.a.CloseFD(), g.b.CloseFD()); err != nil {
		g.t.Fatal(err)
	}
}

// Ready waits for READY of the generation sent last.
func (g *Gateway) Ready() {
	g.t.Helper()
	var m wire.Ready
	if err := m.Decode(g.Frame(wire.TypeReady)); err != nil || m.Generation != g.Number {
		g.t.Fatalf("READY %+v, %v", m, err)
	}
}

// Columns is a batch: section, then query.
type Columns [][]api.Value

// Len implements wire.Values, as At does.
func (c Columns) Len() int { return len(c[0]) }

// At implements wire.Values.
func (c Columns) At(i, s int) *api.Value { return &c[s][i] }

// Values is a column of these data.
func Values(data ...[]byte) (vs []api.Value) {
	for _, d := range data {
		vs = append(vs, api.Value{Data: d})
	}
	return vs
}

// Texts is a column of these texts.
func Texts(texts ...string) (vs []api.Value) {
	for _, s := range texts {
		vs = append(vs, api.Value{Data: []byte(s)})
	}
	return vs
}

// Request writes a batch to A, grants outCap bytes of B and sends the descriptor. more are the sections of the input
// block behind the inputs. in is nil for ACCURACY.
func (g *Gateway) Request(kind wire.Kind, in Columns, outCap uint64, more ...api.TensorSpec) wire.Request {
	g.t.Helper()
	g.batch++
	r := wire.Request{Batch: g.batch, Generation: g.Number, Kind: kind, OutOff: g.OffB, OutCap: outCap, BudgetMicros: 1500}
	if in != nil {
		schema := wire.NewSchema(append(append([]api.TensorSpec{}, g.Sig.Inputs...), more...))
		n, err := schema.Write(g.a.Bytes()[g.OffA:], in)
		if err != nil {
			g.t.Fatal(err)
		}
		r.Count, r.InOff, r.InLen = uint32(in.Len()), g.OffA, n
		g.OffA += (n + 63) &^ 63
	}
	g.OffB += (outCap + 63) &^ 63
	g.Put(&r)
	return r
}

// Predict is Request for a batch of texts.
func (g *Gateway) Predict(outCap uint64, texts ...string) wire.Request {
	g.t.Helper()
	return g.Request(wire.KindPredict, Columns{Texts(texts...)}, outCap)
}

// Put sends a request unchanged.
func (g *Gateway) Put(r *wire.Request) {
	g.t.Helper()
	g.waiting++
	if g.Mode&wire.ModeRing == 0 {
		g.Send(r.Append(nil))
		return
	}
	var d shm.Descriptor
	r.Put((*[wire.DescriptorBytes]byte)(&d))
	g.producer.Push(&d)
	if g.producer.ShouldRing() {
		g.Send(wire.AppendBell(nil))
	}
}

// Grant answers a NEED_MORE to r with room for need bytes in the newest generation.
func (g *Gateway) Grant(r wire.Request, need uint64) wire.Request {
	g.t.Helper()
	r.Kind, r.Generation, r.InOff, r.InLen, r.OutOff, r.OutCap = wire.KindGrant, g.Number, 0, 0, g.OffB, need
	g.OffB += (need + 63) &^ 63
	g.Put(&r)
	return r
}

// Discard answers a NEED_MORE to r with DISCARD.
func (g *Gateway) Discard(r wire.Request) wire.Request {
	g.t.Helper()
	discard := wire.Request{Batch: r.Batch, Generation: g.Number, Kind: wire.KindDiscard}
	g.Put(&discard)
	return discard
}

// Response waits for the next response.
func (g *Gateway) Response() (r wire.Response) {
	g.t.Helper()
	if g.Mode&wire.ModeRing == 0 {
		if err := r.Decode(g.Frame(wire.TypeResponse)); err != nil {
			g.t.Fatal(err)
		}
		g.waiting--
		return r
	}
	var d shm.Descriptor
	g.pop(&d)
	g.waiting--
	if err := r.Get((*[wire.DescriptorBytes]byte)(&d)); err != nil {
		g.t.Fatal(err)
	}
	return r
}

func (g *Gateway) pop(d *shm.Descriptor) {
	g.t.Helper()
	for {
		some, err := g.consumer.Pop(d, g.waiting)
		if err != nil {
			g.t.Fatal(err)
		}
		if some {
			return
		}
		if !g.consumer.PrepareSleep() {
			continue
		}
		if !g.read() {
			g.t.Fatal("the worker hung up instead of answering")
		}
		g.consumer.Wake()
		if typ, _, ok, err := g.parser.Next(); ok || err != nil {
			g.t.Fatalf("the worker sent %v (%v) instead of an answer", typ, err)
		}
	}
}

// Answer waits for the response to r and checks the fields that every response must have.
func (g *Gateway) Answer(r wire.Request, want wire.Status) wire.Response {
	g.t.Helper()
	res := g.Response()
	if res.Batch != r.Batch || res.Generation != r.Generation || res.OutOff != r.OutOff || res.OutLen > r.OutCap {
		g.t.Fatalf("request %+v\nanswered by %+v", r, res)
	}
	if r.Kind <= wire.KindAccuracy && (res.Kind != r.Kind || res.Count != r.Count) {
		g.t.Fatalf("request %+v\nanswered by %+v", r, res)
	}
	if res.Status != want {
		g.t.Fatalf("status %v, expected %v: %.300s", res.Status, want, g.Block(res))
	}
	return res
}

// Block is the output block of a response.
func (g *Gateway) Block(res wire.Response) []byte {
	return g.b.Bytes()[res.OutOff : res.OutOff+res.OutLen]
}

// Outputs reads the outputs of a response that has them: section, then query. Confidences come after them if the
// response has them, then statuses and their texts.
func (g *Gateway) Outputs(res wire.Response) Columns {
	g.t.Helper()
	specs := append([]api.TensorSpec{}, g.Sig.Outputs...)
	if res.Flags&wire.FlagConfidences != 0 {
		specs = append(specs, wire.ConfidenceSection)
	}
	if res.Flags&wire.FlagStatuses != 0 {
		specs = append(specs, wire.StatusSection, wire.BytesSection)
	}
	var r wire.Reader
	if err := wire.NewSchema(specs).Open(&r, g.Block(res), int(res.Count)); err != nil {
		g.t.Fatal(err)
	}
	got := make(Columns, len(specs))
	for s := range specs {
		for i := range int(res.Count) {
			data, dims, err := r.Item(i, s, nil)
			if err != nil {
				g.t.Fatal(err)
			}
			got[s] = append(got[s], api.Value{Data: bytes.Clone(data), Dims: dims})
		}
	}
	return got
}

// WantTexts waits for an OK to r whose first output is these texts.
func (g *Gateway) WantTexts(r wire.Request, want ...string) wire.Response {
	g.t.Helper()
	res := g.Answer(r, wire.StatusOK)
	got := g.Outputs(res)[0]
	if len(got) != len(want) {
		g.t.Fatalf("%d outputs, expected %d", len(got), len(want))
	}
	for i := range want {
		if string(got[i].Data) != want[i] {
			g.t.Errorf("output %d is %.40q, expected %.40q", i, got[i].Data, want[i])
		}
	}
	return res
}

// WantText waits for an answer of this status whose text contains want.
func (g *Gateway) WantText(r wire.Request, status wire.Status, want string) {
	g.t.Helper()
	res := g.Answer(r, status)
	if got := string(g.Block(res)); !bytes.Contains([]byte(got), []byte(want)) || want == "" && got != "" || res.Flags != 0 {
		g.t.Errorf("text %.300q, expected %q", got, want)
	}
}
