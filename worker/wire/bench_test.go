package wire

import (
	"testing"

	"github.com/xebec-serving/xebec/api"
)

func fixedBatch(count, itemBytes int) (*Schema, columns) {
	values := make(columns, 1)
	for range count {
		values[0] = append(values[0], api.Value{Data: make([]byte, itemBytes)})
	}
	return NewSchema([]api.TensorSpec{{Name: "input", DType: api.Float32, Shape: []int64{int64(itemBytes / 4)}}}), values
}

func BenchmarkWriteFixed64x256(b *testing.B) {
	sc, values := fixedBatch(64, 256)
	block := make([]byte, sc.Size(values))
	var boxed Values = values
	b.SetBytes(int64(len(block)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := sc.Write(block, boxed); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkCopy64x256 is the lower bound of the benchmark above: the same copies and nothing else.
func BenchmarkCopy64x256(b *testing.B) {
	_, values := fixedBatch(64, 256)
	block := make([]byte, 64*256)
	b.SetBytes(int64(len(block)))
	for b.Loop() {
		for i := range values[0] {
			copy(block[i*256:], values[0][i].Data)
		}
	}
}

func raggedBatch() (*Schema, columns) {
	values := make(columns, 1)
	for i := range 64 {
		values[0] = append(values[0], api.Value{Data: make([]byte, 100+i)})
	}
	return NewSchema([]api.TensorSpec{BytesSection}), values
}

func BenchmarkWriteRagged64(b *testing.B) {
	sc, values := raggedBatch()
	block := make([]byte, sc.Size(values))
	var boxed Values = values
	b.ReportAllocs()
	for b.Loop() {
		if _, err := sc.Write(block, boxed); err != nil {
			b.Fatal(err)
		}
	}
}

func benchmarkRead(b *testing.B, sc *Schema, values columns) {
	block := make([]byte, sc.Size(values))
	if _, err := sc.Write(block, values); err != nil {
		b.Fatal(err)
	}
	var r Reader
	var dims [api.MaxRank]int64
	arena := make([]byte, 0, len(block))
	b.ReportAllocs()
	for b.Loop() {
		if err := sc.Open(&r, block, 64); err != nil {
			b.Fatal(err)
		}
		arena = arena[:0]
		for i := range 64 {
			var err error
			if arena, _, _, err = r.AppendItem(arena, i, 0, dims[:0]); err != nil {
				b.Fatal(err)
			}
		}
	}
}

func BenchmarkReadFixed64x256(b *testing.B) {
	sc, values := fixedBatch(64, 256)
	benchmarkRead(b, sc, values)
}

func BenchmarkReadRagged64(b *testing.B) {
	sc, values := raggedBatch()
	benchmarkRead(b, sc, values)
}

func BenchmarkBuildRagged64(b *testing.B) {
	sc, values := raggedBatch()
	block := make([]byte, sc.Size(values))
	var w Builder
	b.ReportAllocs()
	for b.Loop() {
		buildRagged(b, &w, sc, block, values)
	}
}

func buildRagged(tb testing.TB, w *Builder, sc *Schema, block []byte, values columns) {
	if err := w.Begin(sc, block, 64); err != nil {
		tb.Fatal(err)
	}
	for i := range values[0] {
		dst, err := w.Item(0, i, len(values[0][i].Data), nil)
		if err != nil {
			tb.Fatal(err)
		}
		copy(dst, values[0][i].Data)
	}
	if _, _, err := w.Finish(); err != nil {
		tb.Fatal(err)
	}
}

func BenchmarkDescriptors(b *testing.B) {
	var d [DescriptorBytes]byte
	b.ReportAllocs()
	for b.Loop() {
		goldenRequest.Put(&d)
		var r Request
		if err := r.Get(&d); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkParseResponses(b *testing.B) {
	var stream []byte
	for range 32 {
		stream = goldenResponse.Append(AppendBell(stream))
	}
	var p Parser
	b.ReportAllocs()
	for b.Loop() {
		parseResponses(b, &p, stream)
	}
}

func parseResponses(tb testing.TB, p *Parser, stream []byte) {
	p.Advance(copy(p.Space(), stream))
	var r Response
	for {
		_, payload, ok, err := p.Next()
		if err != nil {
			tb.Fatal(err)
		}
		if !ok {
			return
		}
		if err := r.Decode(payload); err != nil {
			tb.Fatal(err)
		}
	}
}
