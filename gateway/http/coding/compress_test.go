package coding

import (
	"bytes"
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
		if out := Compress(c, noise(5000)); out != nil {
			t.Errorf("%v: noise became %d bytes of 5000", c, len(out.Bytes))
		}
	}
	if Compress(Identity, text) != nil {
		t.Error("identity has a compressed body")
	}
}
