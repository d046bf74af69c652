package grpc

import (
	"encoding/binary"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	pb "github.com/xebec-serving/xebec/api/inferencepb"
	"github.com/xebec-serving/xebec/gateway/query"
	"github.com/xebec-serving/xebec/gateway/query/querytest"
)

// stalling is a proxy on the way of a client. It passes on all that comes but the rest of large messages, of which it passes the first frame.
type stalling struct {
	net.Listener
	to      string
	clients atomic.Int64 // connections, ever
	over    sync.WaitGroup
}

func (f *fixture) stalling() *stalling {
	f.t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		f.t.Fatal(err)
	}
	p := &stalling{Listener: ln, to: f.conn.Target()}
	p.over.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			p.clients.Add(1)
			p.over.Go(func() { p.serve(c) })
		}
	})
	f.t.Cleanup(func() { ln.Close(); p.over.Wait() })
	return p
}

func (p *stalling) serve(client net.Conn) {
	defer client.Close()
	server, err := net.Dial("tcp", p.to)
	if err != nil {
		return
	}
	defer server.Close()
	var sending sync.Mutex // to the client
	p.over.Go(func() {
		defer client.Close()
		for {
			frame, err := rawFrame(server)
			if err != nil {
				return
			}
			sending.Lock()
			_, err = client.Write(frame)
			sending.Unlock()
			if err != nil {
				return
			}
		}
	})
	if _, err := io.CopyN(server, client, int64(len(http2.ClientPreface))); err != nil {
		return
	}
	stalled := map[uint32]bool{}
	for {
		frame, err := rawFrame(client)
		if err != nil {
			return
		}
		stream := binary.BigEndian.Uint32(frame[5:])
		if length := len(frame) - 9; http2.FrameType(frame[3]) == http2.FrameData {
			if stalled[stream] { // it takes none of the connection's window
				sending.Lock()
				err := http2.NewFramer(client, nil).WriteWindowUpdate(0, uint32(max(length, 1)))
				sending.Unlock()
				if err != nil {
					return
				}
				continue
			}
			stalled[stream] = length >= 8<<10
		}
		if _, err := server.Write(frame); err != nil {
			return
		}
	}
}

// rawFrame reads a frame with its head.
func rawFrame(from io.Reader) ([]byte, error) {
	frame := make([]byte, 9)
	if _, err := io.ReadFull(from, frame); err != nil {
		return nil, err
	}
	frame = append(frame, make([]byte, int(frame[0])<<16|int(frame[1])<<8|int(frame[2]))...)
	_, err := io.ReadFull(from, frame[9:])
	return frame, err
}

// TestAStalledMessageEndsItsCall: of the calls of one client over one connection, those whose messages stall end, with a status that says why. The others go
// on, and so do later ones.
func TestAStalledMessageEndsItsCall(t *testing.T) {
	f := serve(t, querytest.Bytes, querytest.Echo, func(c *Config, _ *query.Model) { c.Limits.MinRate, c.Limits.RateGrace = 1<<20, time.Millisecond })
	proxy := f.stalling()
	client, err := grpc.NewClient(proxy.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	oip := pb.NewGRPCInferenceServiceClient(client)
	of := func(bytes int) *pb.ModelInferRequest {
		element := append([]byte{byte(bytes), byte(bytes >> 8), byte(bytes >> 16), 0}, make([]byte, bytes)...)
		return &pb.ModelInferRequest{ModelName: "m", Inputs: []*pb.ModelInferRequest_InferInputTensor{{Name: "input", Datatype: "BYTES", Shape: []int64{1}}}, RawInputContents: [][]byte{element}}
	}
	good, err := oip.ModelStreamInfer(f.ctx())
	if err != nil {
		t.Fatal(err)
	}
	goOn := func() {
		t.Helper()
		if err := good.Send(of(100)); err != nil {
			t.Fatal(err)
		}
		if _, err := good.Recv(); err != nil {
			t.Fatalf("another stream of the connection: %v", err)
		}
		if _, err := oip.ModelInfer(f.ctx(), of(100)); err != nil {
			t.Fatalf("another call of the connection: %v", err)
		}
	}
	stalls := func(what string, err error) {
		t.Helper()
		if s := status.Convert(err); s.Code() != codes.DeadlineExceeded || !strings.Contains(s.Message(), "of the message's") || !strings.Contains(s.Message(), "--min-rate") {
			t.Errorf("%s: %v", what, err)
		}
	}
	goOn()
	ended := make(chan error, 1)
	go func() {
		_, err := oip.ModelInfer(f.ctx(), of(1<<20))
		ended <- err
	}()
	goOn()
	stalls("a call", <-ended)
	bad, err := oip.ModelStreamInfer(f.ctx())
	if err != nil {
		t.Fatal(err)
	}
	if err := bad.Send(of(1 << 20)); err != nil {
		t.Fatal(err)
	}
	goOn()
	_, err = bad.Recv()
	stalls("a stream", err)
	goOn()
	if err := good.CloseSend(); err != nil {
		t.Fatal(err)
	}
	if _, err := good.Recv(); err != io.EOF {
		t.Errorf("the end of the stream that goes on: %v", err)
	}
	if n := proxy.clients.Load(); n != 1 {
		t.Errorf("%d connections, want 1", n)
	}
}
