package coding

import (
	"bytes"
	"strconv"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestChoose(t *testing.T) {
	for accept, want := range map[string]Coding{
		"": Identity, "gzip": Gzip, "zstd": Zstd, "GZip": Gzip, "x-gzip": Gzip, "br": Identity, "deflate, br": Identity,
		"gzip, deflate, br, zstd": Zstd, "gzip, deflate": Gzip, "zstd;q=0.5, gzip;q=0.8": Gzip, "gzip;q=0.5,zstd;q=0.5": Zstd,
		"gzip;q=0": Identity, "gzip;q=0.000, *;q=0": Identity, "*": Zstd, "*;q=0.1, zstd;q=0": Gzip, "zstd;q=0, *;q=0": Identity,
		"identity": Identity, "identity;q=1, gzip;q=0.5": Identity, "identity;q=0.5, gzip": Gzip, "identity;q=0": Identity, "identity, gzip": Gzip,
		"gzip ; q=1": Gzip, "gzip;q=2": Identity, "gzip;q=-1": Identity, "gzip;q=x": Identity, "gzip;q=NaN": Identity, "gzip;level=9": Identity, "gzip;q=0.0001": Identity,
		",,,": Identity, ";q=1": Identity, " gzip\t": Gzip, "gzip;Q=0.3": Gzip,
	} {
		if got := Choose([]byte(accept)); got != want {
			t.Errorf("%q: %v, want %v", accept, got, want)
		}
	}
}

// numbers is an answer as models give it: nothing repeats in it.
func numbers() []byte {
	var list []byte
	for i := range 1500 {
		list = strconv.AppendFloat(append(list, ','), float64(i)*0.61803398875, 'g', 8, 32)
	}
	return list
}

func TestCompressedBodiesComeBack(t *testing.T) {
	text := []byte(strings.Repeat(`{"output":[0.125,1,17]}`, 10_000))
	for _, c := range []Coding{Gzip, Zstd} {
		for range 2 {
			small := Compress(c, text)
			if small == nil || len(small.Bytes) >= len(text)/10 {
				t.Fatalf("%v: %v", c, small == nil)
			}
			back, err := Decode([]byte(c.String()), small.Bytes, len(text))
			if err != nil || !bytes.Equal(back.Bytes, text) {
				t.Errorf("%v: %v", c, err)
			}
			small.Free()
			back.Free()
		}
		if out := Compress(c, numbers()); out == nil || len(out.Bytes) > len(numbers())/2 {
			t.Errorf("%v does not halve a list of numbers", c)
		}
		if out := Compress(c, noise(5000)); out != nil {
			t.Errorf("%v: noise became %d bytes of 5000", c, len(out.Bytes))
		}
	}
	if Compress(Identity, text) != nil {
		t.Error("identity has a compressed body")
	}
}

// FuzzChoose: any Accept-Encoding ends in a coding that we have, and never in one that it names with weight 0 alone.
func FuzzChoose(f *testing.F) {
	f.Add([]byte("gzip;q=0.5, deflate, br, zstd;q=0.25, *;q=0"))
	f.Add([]byte(";,q=;gzip;q=1.0000"))
	f.Fuzz(func(t *testing.T, accept []byte) {
		if c := Choose(accept); c >= codings {
			t.Fatalf("%d", c)
		}
		if c := Choose(append(bytes.Clone(accept), ", gzip;q=0, zstd;q=0"...)); c != Identity {
			t.Fatalf("%q: %v although both are refused in the end", accept, c)
		}
	})
}

func BenchmarkCompress(b *testing.B) {
	body := numbers()
	for _, c := range []Coding{Gzip, Zstd} {
		b.Run(c.String(), func(b *testing.B) {
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			size := 0
			for b.Loop() {
				out := Compress(c, body)
				size = len(out.Bytes)
				out.Free()
			}
			b.ReportMetric(float64(len(body))/float64(size), "ratio")
		})
	}
}
