//go:build !race

package coding

import (
	"strings"
	"testing"
)

// TestAllocsOfCoding: small bodies are decoded and compressed in pooled memory.
func TestAllocsOfCoding(t *testing.T) {
	body := []byte(strings.Repeat(`{"input":[1,2,3,4.5]}`, 100))
	for _, e := range encoders {
		packed, coding := encode(t, e.open, body), []byte(e.coding)
		once := func() {
			got, err := Decode(coding, packed, 1<<20)
			if err != nil {
				t.Fatal(err)
			}
			got.Free()
		}
		once()
		if n := testing.AllocsPerRun(200, once); n > 6 { // the list of codings; some decoders' tables
			t.Errorf("%s: %.1f allocations a body", e.name, n)
		}
	}
	for _, c := range []Coding{Gzip, Zstd} {
		if n := testing.AllocsPerRun(200, func() { Compress(c, body).Free() }); n > 1 {
			t.Errorf("%v: %.1f allocations an answer", c, n)
		}
	}
	accept := []byte("gzip;q=0.5, deflate, br, zstd;q=0.25")
	if n := testing.AllocsPerRun(200, func() { Choose(accept) }); n != 0 {
		t.Errorf("choosing takes %.1f allocations", n)
	}
}

func BenchmarkDecode(b *testing.B) {
	body := []byte(strings.Repeat(`{"input":[1,2,3,4.5]}`, 100))
	for _, e := range encoders {
		packed := encode(b, e.open, body)
		b.Run(e.name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(body)))
			for b.Loop() {
				got, err := Decode([]byte(e.coding), packed, 1<<20)
				if err != nil {
					b.Fatal(err)
				}
				got.Free()
			}
		})
	}
}
