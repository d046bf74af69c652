package wire

import (
	"bytes"
	"encoding/json"
	"os"
	"testing"

	"github.com/xebec-serving/xebec/api"
)

// goldenBytes returns every vector of a kind, as seeds.
func goldenBytes(f *testing.F, kind string) (all [][]byte) {
	raw, err := os.ReadFile(goldenFile)
	if err != nil {
		f.Fatal(err)
	}
	var set goldenSet
	if err := json.Unmarshal(raw, &set); err != nil {
		f.Fatal(err)
	}
	for _, v := range append(set.Vectors, set.Refused...) {
		if v.Kind == kind {
			all = append(all, v.bytes(f))
		}
	}
	return all
}

// FuzzParser parses a stream in one piece and in many, which must give the same frames.
func FuzzParser(f *testing.F) {
	for _, b := range append(goldenBytes(f, "frame"), goldenBytes(f, "stream")...) {
		f.Add(b, 3)
	}
	f.Fuzz(func(t *testing.T, stream []byte, piece int) {
		parse := func(piece int) (frames []byte, err error) {
			var p Parser
			for rest := stream; len(rest) > 0; {
				space := p.Space()
				n := copy(space[:min(piece, len(space))], rest)
				if n == 0 {
					t.Fatal("no space")
				}
				p.Advance(n)
				rest = rest[n:]
				for {
					typ, payload, ok, err := p.Next()
					if err != nil {
						return frames, err
					}
					if !ok {
						break
					}
					frames = append(append(frames, byte(typ)), payload...)
				}
			}
			if len(p.buf) > HeaderBytes+MaxPayload {
				t.Fatalf("the buffer grew to %d bytes", len(p.buf))
			}
			return frames, nil
		}
		whole, err := parse(1 << 20)
		pieces, err2 := parse(1 + piece&0x3fff)
		if !bytes.Equal(whole, pieces) || (err == nil) != (err2 == nil) {
			t.Errorf("whole: %x, %v\npieces: %x, %v", whole, err, pieces, err2)
		}
	})
}

// FuzzMessage decodes one payload as one type. A message that decodes must be the same after encoding and decoding it
// again.
func FuzzMessage(f *testing.F) {
	for _, b := range goldenBytes(f, "frame") {
		f.Add(b[0], b[min(8, len(b)):])
	}
	f.Fuzz(func(t *testing.T, typ byte, payload []byte) {
		m := newMessage(Type(typ).String())
		if m == nil || len(payload) > MaxPayload || m.Decode(payload) != nil {
			return
		}
		if h, ok := m.(*helloJSON); ok && h.Signature != nil && CheckSignature(h.Signature) != nil {
			return // a name that is too long to send
		}
		if w, ok := m.(*welcomeJSON); ok && CheckSignature(&w.Signature) != nil {
			return
		}
		again := m.Append(nil)[HeaderBytes:]
		if !bytes.Equal(again, payload) && len(payload) < maxTextBytes {
			t.Errorf("%x\nencoded again:\n%x", payload, again)
		}
		if err := m.Decode(again); err != nil {
			t.Errorf("the encoded message does not decode: %v", err)
		}
	})
}

func FuzzRequest(f *testing.F) {
	for _, b := range goldenBytes(f, "request") {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var r Request
		if r.Decode(b) != nil {
			return
		}
		var d [DescriptorBytes]byte
		if r.Put(&d); !bytes.Equal(d[:], b) {
			t.Errorf("%x\nencoded again:\n%x", b, d)
		}
	})
}

func FuzzResponse(f *testing.F) {
	for _, b := range goldenBytes(f, "response") {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var r Response
		if r.Decode(b) != nil {
			return
		}
		var d [DescriptorBytes]byte
		if r.Put(&d); !bytes.Equal(d[:], b) {
			t.Errorf("%x\nencoded again:\n%x", b, d)
		}
	})
}

// fuzzSpecs reads a schema: two bytes per section for type and rank, then a byte per dimension.
func fuzzSpecs(b []byte) (specs []api.TensorSpec) {
	for len(b) >= 2 && len(specs) < MaxTensors+2 {
		s := api.TensorSpec{DType: api.DType(1 + b[0]%13)}
		rank := int(b[1] % 5)
		for b = b[2:]; rank > 0 && len(b) > 0; rank-- {
			s.Shape = append(s.Shape, int64(int8(b[0])%9))
			if last := &s.Shape[len(s.Shape)-1]; *last < 0 {
				*last = -1
			}
			b = b[1:]
		}
		specs = append(specs, s)
	}
	return specs
}

// FuzzReader reads arbitrary bytes as a block of any schema: no panic, nothing outside of the block, and never more
// bytes in all than the block has.
func FuzzReader(f *testing.F) {
	schemas := [][]byte{{8, 0}, {12, 0}, {10, 1, 0xff}, {10, 2, 0xff, 3}, {12, 1, 2}, {8, 0, 8, 0}, {10, 2, 2, 2, 12, 0, 1, 1, 3}}
	for _, b := range goldenBytes(f, "block") {
		for _, s := range schemas {
			f.Add(s, b, uint8(2))
		}
	}
	f.Fuzz(func(t *testing.T, schema, block []byte, count uint8) {
		sc := NewSchema(fuzzSpecs(schema))
		var r Reader
		if err := sc.Open(&r, block, int(count)); err != nil {
			return
		}
		total := 0
		var arena []byte
		values := make(columns, sc.Sections())
		broken := false
		for s := range values {
			for i := range int(count) {
				out, data, dims, err := r.AppendItem(arena[:0], i, s, nil)
				arena = out
				if _, _, err2 := r.Item(i, s, nil); (err == nil) != (err2 == nil) {
					t.Fatalf("Item and AppendItem disagree: %v, %v", err, err2)
				}
				total += len(data)
				broken = broken || err != nil
				values[s] = append(values[s], api.Value{Data: bytes.Clone(data), Dims: dims})
			}
		}
		if total > len(block) {
			t.Fatalf("%d bytes read from a block of %d", total, len(block))
		}
		if broken || count == 0 || sc.Sections() == 0 {
			return
		}
		again := make([]byte, sc.Size(values))
		if _, err := sc.Write(again, values); err != nil {
			t.Fatalf("a block that was read cannot be written: %v", err)
		}
		if err := sc.Open(&r, again, int(count)); err != nil {
			t.Fatalf("a block that was written cannot be read: %v", err)
		}
	})
}
