//go:build !race

package wire

import (
	"testing"

	"github.com/xebec-serving/xebec/api"
)

// TestNoAllocation checks that a batch's way through the codec does not allocate.
func TestNoAllocation(t *testing.T) {
	fixed, fixedValues := fixedBatch(64, 256)
	ragged, raggedValues := raggedBatch()
	two := NewSchema([]api.TensorSpec{BytesSection, BytesSection, ConfidenceSection})
	block := make([]byte, 1<<16)
	var stream []byte
	for range 32 {
		stream = goldenResponse.Append(AppendBell(stream))
	}
	var (
		p    Parser
		w    Builder
		r    Reader
		dims [api.MaxRank]int64
		buf  []byte
		// Made once: converting a slice to an interface allocates.
		fixedBoxed, raggedBoxed Values = fixedValues, raggedValues
	)
	for name, f := range map[string]func(){
		"Write, fixed":  func() { mustWrite(t, fixed, block, fixedBoxed) },
		"Write, ragged": func() { mustWrite(t, ragged, block, raggedBoxed) },
		"Reader": func() {
			mustWrite(t, ragged, block, raggedBoxed)
			if err := ragged.Open(&r, block, 64); err != nil {
				t.Fatal(err)
			}
			buf = buf[:0]
			for i := range 64 {
				buf, _, _, _ = r.AppendItem(buf, i, 0, dims[:0])
			}
		},
		"Builder": func() { buildRagged(t, &w, ragged, block, raggedValues) },
		"Builder, two ragged sections": func() {
			if err := w.Begin(two, block, 64); err != nil {
				t.Fatal(err)
			}
			w.Fixed(2)
			for i := range 64 {
				for s := range 2 {
					if _, err := w.Item(s, i, 100, nil); err != nil {
						t.Fatal(err)
					}
				}
			}
			if _, kept, err := w.Finish(); err != nil || kept != nil {
				t.Fatal(err)
			}
		},
		"Parser":    func() { parseResponses(t, &p, stream) },
		"a READY":   func() { buf = (&Ready{Generation: 1}).Append(buf[:0]) },
		"a REQUEST": func() { buf = goldenRequest.Append(buf[:0]) },
	} {
		f()
		if n := testing.AllocsPerRun(100, f); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

func mustWrite(t *testing.T, sc *Schema, block []byte, values Values) {
	if _, err := sc.Write(block, values); err != nil {
		t.Fatal(err)
	}
}
