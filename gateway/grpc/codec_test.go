package grpc

import (
	"encoding/binary"
	"math"
	"sync/atomic"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/xebec-serving/xebec/api"
	pb "github.com/xebec-serving/xebec/api/inferencepb"
	"github.com/xebec-serving/xebec/gateway/query"
	"github.com/xebec-serving/xebec/gateway/query/querytest"
	"github.com/xebec-serving/xebec/scheduler"
)

// places give memory of a model, and know which input lies in it.
type places struct {
	none  atomic.Bool
	given atomic.Int64
	held  atomic.Int64
	last  atomic.Pointer[byte]
}

type place struct {
	of *places
	b  []byte
}

func (p *places) reserve(n int, _ func(api.Slot) bool) (api.Slot, bool) {
	if p.none.Load() {
		return nil, false
	}
	p.given.Add(1)
	p.held.Add(1)
	b := make([]byte, n)
	p.last.Store(&b[0])
	return &place{p, b}, false
}

func (p *place) Bytes() []byte { return p.b }
func (p *place) Free()         { p.of.held.Add(-1) }

// TestLargeContents: the contents of a large message of one query are copied once, to memory of the model if there is some, and read alike in every form.
func TestLargeContents(t *testing.T) {
	const n = 100_000
	sig := api.Signature{
		Inputs:  []api.TensorSpec{{Name: "input", DType: api.Float32, Shape: []int64{-1}}},
		Outputs: []api.TensorSpec{{Name: "output", DType: api.Int64}},
	}
	memory, inPlace := &places{}, atomic.Int64{}
	f := serve(t, sig, func(it *scheduler.Item) {
		data, total := it.Inputs[0].Data, float64(0)
		if len(data) > 0 && &data[0] == memory.last.Load() {
			inPlace.Add(1)
		}
		for ; len(data) > 0; data = data[4:] {
			total += float64(math.Float32frombits(binary.LittleEndian.Uint32(data)))
		}
		querytest.End(it, api.OK, querytest.Int64(int64(total)))
	}, func(_ *Config, m *query.Model) { m.Reserve = memory.reserve })
	x := make([]float32, n)
	want := int64(0)
	for i := range x {
		x[i] = float32(i % 7)
		want += int64(i % 7)
	}
	data := floats(x...)
	ask := func(name string, m *pb.ModelInferRequest, outputs ...int64) {
		t.Helper()
		a, err := f.oip.ModelInfer(f.ctx(), m)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			return
		}
		var got []byte
		for _, v := range outputs {
			got = append(got, querytest.Int64(v)...)
		}
		if a.Id != "7" || string(a.RawOutputContents[0]) != string(got) {
			t.Errorf("%s: answered %v, want %d", name, a, outputs)
		}
	}
	placed := func(name string, given, in int64) {
		t.Helper()
		if g, i := memory.given.Swap(0), inPlace.Swap(0); g != given || i != in {
			t.Errorf("%s: %d places were asked for, and %d inputs lay there; want %d and %d", name, g, i, given, in)
		}
	}
	ask("a model", request("m", data, 1, n), want)
	placed("a model", 1, 1)
	ask("a function", request("f", data, n), want)
	placed("a function", 1, 1)
	ask("two queries", request("m", data, 2, n/2), sumOf(x[:n/2]), sumOf(x[n/2:]))
	placed("two queries", 0, 0)
	memory.none.Store(true)
	ask("no place", request("m", data, 1, n), want)
	memory.none.Store(false)
	placed("no place", 0, 0)

	// The fields may come in any order: then the message is put together.
	r := request("m", data, 1, n)
	late := &pb.ModelInferRequest{Id: "7"}
	r.Id = ""
	message, err := proto.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	if message, err = (proto.MarshalOptions{}).MarshalAppend(message, late); err != nil {
		t.Fatal(err)
	}
	again := &pb.ModelInferRequest{}
	again.ProtoReflect().SetUnknown(message) // an empty message, followed by ours as it is
	ask("contents before the id", again, want)
	placed("contents before the id", 0, 0)

	// What is refused gives its memory back.
	if _, err := f.oip.ModelInfer(f.ctx(), request("m", data[:len(data)-4], 1, n)); err == nil {
		t.Error("contents that are too short were taken")
	}
	if _, err := f.oip.ModelInfer(f.ctx(), request("unknown", data, 1, n)); err == nil {
		t.Error("a model that is not there has answered")
	}
	stream, err := f.oip.ModelStreamInfer(f.ctx())
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := stream.Send(request("m", data, 1, n)); err != nil {
			t.Fatal(err)
		}
	}
	for range 3 {
		a, err := stream.Recv()
		if err != nil || a.ErrorMessage != "" || string(a.InferResponse.RawOutputContents[0]) != string(querytest.Int64(want)) {
			t.Fatalf("on a stream: %v %v", a, err)
		}
	}
	if err := stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "all places are free", func() bool { return memory.held.Load() == 0 })
}

func sumOf(x []float32) (total int64) {
	for _, v := range x {
		total += int64(v)
	}
	return total
}
