package grpc

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	pb "github.com/xebec-serving/xebec/api/inferencepb"
	"github.com/xebec-serving/xebec/gateway/query"
	"github.com/xebec-serving/xebec/gateway/query/querytest"
)

// rude is a client that writes frames itself.
type rude struct {
	t      *testing.T
	conn   net.Conn
	framer *http2.Framer
	block  bytes.Buffer
	hpack  *hpack.Encoder
}

func (f *fixture) rude() *rude {
	f.t.Helper()
	c, err := net.Dial("tcp", f.conn.Target())
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { c.Close() })
	r := &rude{t: f.t, conn: c, framer: http2.NewFramer(c, c)}
	r.framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	r.hpack = hpack.NewEncoder(&r.block)
	if _, err := io.WriteString(c, http2.ClientPreface); err != nil {
		f.t.Fatal(err)
	}
	r.must(r.framer.WriteSettings())
	return r
}

func (r *rude) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

// call begins a call of a method, with further header fields.
func (r *rude) call(stream uint32, method string, more ...[2]string) {
	r.t.Helper()
	r.block.Reset()
	fields := [][2]string{{":method", "POST"}, {":scheme", "http"}, {":path", method}, {":authority", "x"}, {"content-type", "application/grpc"}, {"te", "trailers"}}
	for _, f := range append(fields, more...) {
		r.must(r.hpack.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]}))
	}
	r.must(r.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: r.block.Bytes(), EndHeaders: true}))
}

// message sends the beginning of a message of so many bytes.
func (r *rude) message(stream uint32, length int, part []byte, end bool) {
	r.t.Helper()
	r.must(r.framer.WriteData(stream, end, append(binary.BigEndian.AppendUint32([]byte{0}, uint32(length)), part...)))
}

// closed waits until the server closes the connection.
func (r *rude) closed() {
	r.t.Helper()
	r.must(r.conn.SetReadDeadline(time.Now().Add(30 * time.Second)))
	if _, err := io.Copy(io.Discard, r.conn); errors.Is(err, os.ErrDeadlineExceeded) {
		r.t.Error("the connection was not closed within 30 s")
	}
}

// status waits for the end of a stream and returns its status and message.
func (r *rude) status(stream uint32) (code, message string) {
	r.t.Helper()
	r.must(r.conn.SetReadDeadline(time.Now().Add(30 * time.Second)))
	for {
		f, err := r.framer.ReadFrame()
		r.must(err)
		if h, ok := f.(*http2.MetaHeadersFrame); ok && h.StreamID == stream && h.StreamEnded() {
			for _, f := range h.Fields {
				switch f.Name {
				case "grpc-status":
					code = f.Value
				case "grpc-message":
					message = f.Value
				}
			}
			return code, message
		}
	}
}

const modelInfer, modelStreamInfer = "/inference.GRPCInferenceService/ModelInfer", "/inference.GRPCInferenceService/ModelStreamInfer"

func (f *fixture) wasRefused(want Reason) {
	f.t.Helper()
	select {
	case got := <-f.refused:
		if got != want {
			f.t.Errorf("refused for the reason %d, want %d", got, want)
		}
	case <-time.After(30 * time.Second):
		f.t.Error("no connection was refused")
	}
}

// impatient limits do not wait for rates.
func impatient(c *Config, _ *query.Model) {
	c.Limits.MinRate, c.Limits.RateGrace, c.Limits.HeaderTimeout = 1<<20, time.Millisecond, time.Millisecond
}

// TestHalfSent: what comes too slowly ends its call: a message of which a part has come, on streams too, and one that never begins. Other calls go on, on the
// same connection too.
func TestHalfSent(t *testing.T) {
	good, err := proto.Marshal(request("m", floats(1, 2, 3, 4), 4))
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		send func(r *rude)
		want string
	}{
		"a part":              {func(r *rude) { r.call(1, modelInfer); r.message(1, 1<<20, make([]byte, 100), false) }, "100 of the message's 1048576 bytes have come"},
		"a part, on a stream": {func(r *rude) { r.call(1, modelStreamInfer); r.message(1, 1<<20, make([]byte, 100), false) }, "100 of the message's 1048576 bytes have come"},
		"two bytes":           {func(r *rude) { r.call(1, modelInfer); r.must(r.framer.WriteData(1, false, []byte{0, 0})) }, "--min-rate"},
		"nothing":             {func(r *rude) { r.call(1, modelInfer) }, "--header-timeout"},
		"nothing of another":  {func(r *rude) { r.call(1, "/inference.GRPCInferenceService/ServerLive") }, "--header-timeout"},
		"nothing of ours":     {func(r *rude) { r.call(1, "/xebec.v1.Functions/Predict") }, "--header-timeout"},
		"nothing for streams": {func(r *rude) { r.call(1, "/xebec.v1.Functions/PredictStream") }, "--header-timeout"},
	} {
		t.Run(name, func(t *testing.T) {
			f := serve(t, querytest.Floats4, querytest.Sum, impatient)
			r := f.rude()
			c.send(r)
			if code, message := r.status(1); code != fmt.Sprint(uint32(codes.DeadlineExceeded)) || !strings.Contains(message, c.want) {
				t.Errorf("status %s %q, want %d %q", code, message, codes.DeadlineExceeded, c.want)
			}
			f.wasRefused(TooSlow)
			_ = r.framer.WriteData(1, true, make([]byte, 1000)) // of a call that is over
			r.call(3, modelInfer)
			r.message(3, len(good), good, true)
			if code, message := r.status(3); code != "0" {
				t.Errorf("the next call on the connection: %s %q", code, message)
			}
			if _, err := f.oip.ModelInfer(f.ctx(), request("m", floats(1, 2, 3, 4), 4)); err != nil {
				t.Errorf("another client: %v", err)
			}
			if f.server.Connections() != 2 {
				t.Errorf("%d connections, want 2", f.server.Connections())
			}
		})
	}
}

// TestSlowForEver: a connection whose calls are slow again and again ends.
func TestSlowForEver(t *testing.T) {
	f := serve(t, querytest.Floats4, querytest.Sum, impatient, func(c *Config, _ *query.Model) { c.Refused = func(Reason) {} })
	r := f.rude()
	r.must(r.conn.SetReadDeadline(time.Now().Add(30 * time.Second)))
	for i := range uint32(maxSlowCalls) {
		r.call(2*i+1, modelInfer)
		r.message(2*i+1, 1<<20, make([]byte, 100), false)
	}
	ended := 0
	for ended < maxSlowCalls { // in any order
		frame, err := r.framer.ReadFrame()
		if err != nil {
			t.Fatalf("the connection has ended with %d slow calls: %v", ended, err)
		}
		if h, ok := frame.(*http2.MetaHeadersFrame); ok && h.StreamEnded() {
			ended++
		}
	}
	r.call(101, modelInfer)
	r.message(101, 1<<20, make([]byte, 100), false)
	r.closed()
}

// TestAStreamMayWait: a call of ModelStreamInfer without a request is no half-sent message.
func TestAStreamMayWait(t *testing.T) {
	f := serve(t, querytest.Floats4, querytest.Sum, impatient)
	s, err := f.oip.ModelStreamInfer(f.ctx())
	if err != nil {
		t.Fatal(err)
	}
	r := f.rude()
	r.call(1, modelInfer)
	r.status(1) // the server has looked at all connections
	if err := errors.Join(s.Send(request("m", floats(1, 2, 3, 4), 4)), s.CloseSend()); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Recv(); err != nil {
		t.Error(err)
	}
}

// TestNoRoom: the beginnings of messages count against the budget. Where it has nothing left their connections end, and small calls of others do not.
func TestNoRoom(t *testing.T) {
	f := serve(t, querytest.Floats4, querytest.Sum, func(c *Config, _ *query.Model) { c.Memory.(*budget).limit.Store(256 << 10) })
	r := f.rude()
	r.call(1, modelInfer)
	r.message(1, 2<<20, make([]byte, 10<<10), false)
	for { // the window for a message of this size
		frame, err := r.framer.ReadFrame()
		r.must(err)
		if w, ok := frame.(*http2.WindowUpdateFrame); ok && w.StreamID == 1 {
			break
		}
	}
	part := make([]byte, 10<<10)
	for range 100 { // the server reads no more at some time
		_ = r.conn.SetWriteDeadline(time.Now().Add(30 * time.Second))
		if r.framer.WriteData(1, false, part) != nil {
			break
		}
	}
	eventually(t, "the budget is taken", func() bool { return f.memory.Full() || len(f.refused) > 0 })
	if _, err := f.oip.ModelInfer(f.ctx(), request("m", floats(1, 2, 3, 4), 4)); err != nil {
		t.Errorf("another client: %v", err)
	}
	f.wasRefused(NoRoom)
	large := request("m", make([]byte, 300<<10), 8, 4)
	_, err := f.oip.ModelInfer(f.ctx(), large)
	if got := codeOf(err); got != codes.ResourceExhausted && got != codes.Unavailable {
		t.Errorf("a message larger than the budget: %v", err)
	}
}

// TestUnread: a client that does not take its answers is disconnected.
func TestUnread(t *testing.T) {
	f := serve(t, querytest.Bytes, querytest.Echo, impatient)
	r := f.rude()
	m, err := proto.Marshal(&pb.ModelInferRequest{ModelName: "m", Inputs: []*pb.ModelInferRequest_InferInputTensor{{Name: "input", Datatype: "BYTES", Shape: []int64{}}},
		RawInputContents: [][]byte{append(binary.LittleEndian.AppendUint32(nil, 12<<10), make([]byte, 12<<10)...)}})
	if err != nil {
		t.Fatal(err)
	}
	for i := range uint32(20) { // together more than the client's window
		r.call(2*i+1, modelInfer)
		r.message(2*i+1, len(m), m, true)
	}
	f.wasRefused(Unread)
	r.closed()
}

// TestMessagesThatLie: lengths and contents that are not what they say are refused, one call at a time.
func TestMessagesThatLie(t *testing.T) {
	f := serve(t, querytest.Floats4, querytest.Sum)
	good, err := proto.Marshal(request("m", floats(1, 2, 3, 4), 4))
	if err != nil {
		t.Fatal(err)
	}
	r := f.rude()
	for i, c := range []struct {
		length  int
		part    []byte
		status  codes.Code
		message string
	}{
		{1<<32 - 1, nil, codes.ResourceExhausted, "larger than max"},
		{len(good), good[:len(good)-3], codes.Internal, "unexpected EOF"},
		{len(good) - 3, good[:len(good)-3], codes.InvalidArgument, "truncated"},
		{0, nil, codes.NotFound, "no function or model"},
		{3, []byte{0xff, 0xff, 0xff}, codes.InvalidArgument, "no protocol buffer"},
		{10, []byte("\x2a\xff\xff\xff\xff\xff\xff\xff\xff\x7f"), codes.InvalidArgument, "truncated"},
		{len(good), good, codes.OK, ""},
	} {
		id := uint32(2*i + 1)
		r.call(id, modelInfer)
		r.message(id, c.length, c.part, true)
		if code, message := r.status(id); code != fmt.Sprint(uint32(c.status)) || !strings.Contains(message, c.message) {
			t.Errorf("length %d, %d bytes: status %s %s, want %d %s", c.length, len(c.part), code, message, c.status, c.message)
		}
	}
	for _, garbage := range []string{"GET / HTTP/1.1\r\nHost: example\r\n\r\n", strings.Repeat("\x00", 100), http2.ClientPreface + strings.Repeat("\xff", 100)} {
		c, err := net.Dial("tcp", f.conn.Target())
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(c, garbage)
		(&rude{t: t, conn: c}).closed()
		c.Close()
	}
}
