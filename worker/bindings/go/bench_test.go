//go:build linux && (amd64 || arm64 || loong64 || ppc64le || riscv64)

package xebec

import (
	"context"
	"testing"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/worker/bindings/go/internal/gatewaytest"
	"github.com/xebec-serving/xebec/worker/wire"
)

var (
	pixels = []api.TensorSpec{{Name: "input", DType: api.Float32, Shape: []int64{64}}}
	digit  = []api.TensorSpec{{Name: "output", DType: api.Int64}}
)

// first answers the first pixel of each query.
func first(_ context.Context, b *Batch) error {
	in, out := Input[float32](b, "input"), Output[int64](b, "output")
	for i := range out {
		out[i] = int64(in[64*i])
	}
	return nil
}

// steady returns a function that sends the same batch of 64 queries and waits for its answer.
func steady(tb testing.TB, g *gatewaytest.Gateway, batch gatewaytest.Columns, outCap uint64) func() {
	g.Request(wire.KindPredict, batch, outCap)
	r := g.Response()
	request := wire.Request{Generation: g.Number, Kind: wire.KindPredict, Count: r.Count, InOff: r.OutOff, OutOff: r.OutOff, OutCap: outCap}
	request.InLen = g.OffA - request.InOff // A and B have the same layout, and this was the first batch
	id := r.Batch
	return func() {
		id++
		request.Batch = id
		g.Put(&request)
		if r := g.Response(); r.Status != wire.StatusOK || r.Batch != id {
			tb.Fatalf("response %+v: %s", r, g.Block(r))
		}
	}
}

func fixedBatch() gatewaytest.Columns {
	var data [][]byte
	for i := range 64 {
		data = append(data, append(f32(float32(i)), make([]byte, 252)...))
	}
	return gatewaytest.Columns{gatewaytest.Values(data...)}
}

func raggedBatch() gatewaytest.Columns {
	var texts []string
	for range 64 {
		texts = append(texts, "forty bytes of text, which is not too many")
	}
	return gatewaytest.Columns{gatewaytest.Texts(texts...)}
}

// copying echoes texts.
func copying(_ context.Context, b *Batch) error {
	for i := range b.Len() {
		b.SetBytes("answer", i, b.Bytes("text", i))
	}
	return nil
}

func benchmark(b *testing.B, in, out []api.TensorSpec, predict func(context.Context, *Batch) error, batch gatewaytest.Columns, options ...Option) {
	g := gatewaytest.New(b, in, out)
	g.Start(serving(g, predict, options...))
	round := steady(b, g, batch, 1<<16)
	b.ReportAllocs()
	for b.Loop() {
		round()
	}
	g.Drain()
}

func BenchmarkFixed64x64(b *testing.B) { benchmark(b, pixels, digit, first, fixedBatch()) }
func BenchmarkRagged64(b *testing.B)   { benchmark(b, text, answers, copying, raggedBatch()) }
func BenchmarkSocketFixed(b *testing.B) {
	benchmark(b, pixels, digit, first, fixedBatch(), WithSocketDescriptors())
}
