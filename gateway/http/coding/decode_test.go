package coding

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/flate"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zlib"
	"github.com/klauspost/compress/zstd"

	"github.com/xebec-serving/xebec/api"
)

// encoders write each coding as clients do.
var encoders = []struct {
	name, coding string
	open         func(io.Writer) io.WriteCloser
}{
	{"gzip", "gzip", func(w io.Writer) io.WriteCloser { return gzip.NewWriter(w) }},
	{"x-gzip", "X-GZip", func(w io.Writer) io.WriteCloser { return gzip.NewWriter(w) }},
	{"zlib", "deflate", func(w io.Writer) io.WriteCloser { return zlib.NewWriter(w) }},
	{"bare deflate", "deflate", func(w io.Writer) io.WriteCloser { f, _ := flate.NewWriter(w, 6); return f }},
	{"zstd stream", "zstd", func(w io.Writer) io.WriteCloser { z, _ := zstd.NewWriter(w, zstd.WithEncoderConcurrency(1)); return z }},
	{"zstd whole", "zstd", func(w io.Writer) io.WriteCloser { return &whole{w: w} }},
	{"brotli", "br", func(w io.Writer) io.WriteCloser { return brotli.NewWriterLevel(w, 4) }},
	{"s2", "s2", func(w io.Writer) io.WriteCloser { return s2.NewWriter(w, s2.WriterConcurrency(1)) }},
	{"snappy", "x-snappy-framed", func(w io.Writer) io.WriteCloser { return snappy.NewBufferedWriter(w) }},
}

// whole compresses at once, so that the frame announces its size.
type whole struct {
	w   io.Writer
	all []byte
}

func (e *whole) Write(p []byte) (int, error) { e.all = append(e.all, p...); return len(p), nil }
func (e *whole) Close() error {
	z, _ := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1))
	defer z.Close()
	_, err := e.w.Write(z.EncodeAll(e.all, nil))
	return err
}

func encode(t testing.TB, open func(io.Writer) io.WriteCloser, body []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w := open(&out)
	if _, err := w.Write(body); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func noise(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{7}).Read(b) // never fails
	return b
}

func code(err error) api.Code {
	var e *api.Error
	if errors.As(err, &e) {
		return e.Code
	}
	return api.OK
}

func TestBodiesOfEachCodingAreDecoded(t *testing.T) {
	for _, e := range encoders {
		for _, body := range [][]byte{{7}, []byte(`{"input":[1,2,3,4.5]}`), noise(5000), bytes.Repeat([]byte("abcdefgh "), 100_000), noise(3 << 20)} {
			packed := encode(t, e.open, body)
			received := bytes.Clone(packed)
			for range 2 { // the second time with pooled decoders
				got, err := Decode([]byte(e.coding), packed, 4<<20)
				if err != nil || !bytes.Equal(got.Bytes, body) {
					t.Errorf("%s, %d bytes: %v", e.name, len(body), err)
					break
				}
				got.Free()
			}
			if !bytes.Equal(received, packed) {
				t.Errorf("%s: Decode changed the body", e.name)
			}
		}
	}
}

func TestCodingsOfABody(t *testing.T) {
	body := []byte(strings.Repeat("xebec ", 100))
	gz, zs := encoders[0].open, encoders[5].open
	packed := encode(t, gz, body)
	twice := encode(t, zs, packed)
	for _, c := range []struct {
		codings string
		body    []byte
		want    api.Code
	}{
		{"", body, api.OK}, {"identity", body, api.OK}, {" , ", body, api.OK},
		{"gzip", packed, api.OK}, {" GZIP ,", packed, api.OK}, {"identity, gzip", packed, api.OK},
		{"gzip, zstd", twice, api.OK}, // gzip was applied first
		{"zstd, gzip", twice, api.InvalidArgument}, {"gzip", body, api.InvalidArgument}, {"gzip, zstd", packed, api.InvalidArgument},
		{"gzip, gzip, gzip", packed, api.Unsupported}, {"compress", packed, api.Unsupported}, {"gzip;q=1", packed, api.Unsupported},
		{"dcb", packed, api.Unsupported}, {strings.Repeat("x", 10_000), packed, api.Unsupported},
	} {
		got, err := Decode([]byte(c.codings), c.body, 1<<20)
		if code(err) != c.want {
			t.Errorf("%.40q: %v, want %v", c.codings, err, c.want)
		}
		if err == nil && got != nil && !bytes.Equal(got.Bytes, body) || err == nil && got == nil && len(c.body) != len(body) {
			t.Errorf("%q: decoded to %+v", c.codings, got)
		}
		if err != nil && len(err.Error()) > 250 {
			t.Errorf("%.40q: the error has %d bytes", c.codings, len(err.Error()))
		}
	}
	if got, err := Decode([]byte("gzip"), nil, 1<<20); got != nil || err != nil {
		t.Errorf("an empty body: %v %v, want nothing to decode", got, err)
	}
}

func TestBrokenBodiesAreRefused(t *testing.T) {
	body := bytes.Repeat([]byte(`{"input":[1,2,3,4.5]} `), 50)
	for _, e := range encoders {
		packed := encode(t, e.open, body)
		for n := 1; n < len(packed); n++ {
			if got, err := Decode([]byte(e.coding), packed[:n], 1<<20); err == nil && e.coding != "s2" && e.coding != "x-snappy-framed" {
				t.Errorf("%s: %d of %d bytes are taken as %d bytes", e.name, n, len(packed), len(got.Bytes))
			} else if err != nil && code(err) != api.InvalidArgument {
				t.Errorf("%s: %d of %d bytes: %v", e.name, n, len(packed), err)
			}
		}
		if _, err := Decode([]byte(e.coding), append(bytes.Clone(packed), "more"...), 1<<20); code(err) != api.InvalidArgument {
			t.Errorf("%s with bytes after its end: %v", e.name, err)
		}
	}
	packed := encode(t, encoders[0].open, body)
	if _, err := Decode([]byte("gzip"), append(bytes.Clone(packed), packed...), 1<<20); code(err) != api.InvalidArgument {
		t.Errorf("two members of gzip: %v", err)
	}
}

// TestBombs: a body that expands is refused with 413 before it takes more memory than the limit, in each coding, on its own and
// inside another.
func TestBombs(t *testing.T) {
	const limit = 8 << 20
	zeros := make([]byte, 64<<20)
	for _, e := range encoders {
		bomb := encode(t, e.open, zeros)
		bombs := map[string][]byte{e.coding: bomb}
		// Stacked, the inner coding expands to no more than a large bomb of the outer one.
		bombs["zstd, "+e.coding] = bomb
		bombs[e.coding+", gzip"] = encode(t, encoders[0].open, bomb)
		for codings, body := range bombs {
			taken := allocated(func() {
				if got, err := Decode([]byte(codings), body, limit); code(err) != api.TooLarge {
					t.Errorf("%s, %d bytes: %v %v, want too large", codings, len(body), got != nil, err)
				}
			})
			if taken > 6*limit { // all that the growing buffer had, most of it garbage, and a window of up to 16 MiB
				t.Errorf("%s: %d bytes were allocated for a limit of %d", codings, taken, limit)
			}
		}
	}
}

func allocated(do func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	do()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// TestRatio: below RatioFrom a body may expand as it likes, above it MaxRatio holds; the limit always holds.
func TestRatio(t *testing.T) {
	open := encoders[0].open
	for _, c := range []struct {
		name string
		body []byte
		max  int
		want api.Code
	}{
		{"a mebibyte of zeros", make([]byte, RatioFrom), 64 << 20, api.OK},
		{"one byte more", make([]byte, RatioFrom+1), 64 << 20, api.TooLarge},
		{"ratio 80", append(make([]byte, 80*40_000), noise(40_000)...), 64 << 20, api.OK},
		{"as many bytes as the limit", noise(1000), 1000, api.OK},
		{"one byte above the limit", noise(1001), 1000, api.TooLarge},
	} {
		got, err := Decode([]byte("gzip"), encode(t, open, c.body), c.max)
		if code(err) != c.want || err == nil && !bytes.Equal(got.Bytes, c.body) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
	}
}

// TestWhatABodyAnnounces: sizes that a header claims take no memory.
func TestWhatABodyAnnounces(t *testing.T) {
	frame := func(descriptor ...byte) []byte { return append([]byte{0x28, 0xb5, 0x2f, 0xfd}, descriptor...) }
	block := []byte{0x09, 0, 0, 'x'} // raw, last, one byte
	for _, c := range []struct {
		name, coding string
		body         []byte
		want         api.Code
	}{
		{"zstd, a window of 8 MiB", "zstd", append(frame(0, (23-10)<<3), block...), api.OK},
		{"zstd, a window of 16 MiB", "zstd", append(frame(0, (24-10)<<3), block...), api.InvalidArgument},
		{"zstd, a window of 2 TiB", "zstd", append(frame(0, 31<<3), block...), api.InvalidArgument},
		{"zstd, content of an exbibyte", "zstd", append(binary.LittleEndian.AppendUint64(frame(0xe0), 1<<60), block...), api.TooLarge},
		{"zstd, content of 512 KiB", "zstd", append(binary.LittleEndian.AppendUint32(frame(0xa0), 512<<10), block...), api.InvalidArgument},
		{"s2, a chunk of 16 MiB", "s2", append([]byte("\xff\x06\x00\x00S2sTwO"), 0, 0xff, 0xff, 0xff), api.InvalidArgument},
		{"br, a window of 16 MiB", "br", []byte{0x0f, 0xff, 0xff, 0x7f, 0x01}, api.InvalidArgument},
	} {
		taken := allocated(func() {
			if _, err := Decode([]byte(c.coding), c.body, 64<<20); code(err) != c.want {
				t.Errorf("%s: %v, want %v", c.name, err, c.want)
			}
		})
		if taken > 20<<20 {
			t.Errorf("%s: %d bytes were allocated", c.name, taken)
		}
	}
}

// FuzzDecode: any bytes in any coding end in a body within the limit or in an error with a code, and a body that was encoded
// comes back.
func FuzzDecode(f *testing.F) {
	for i, e := range encoders {
		f.Add(e.coding, encode(f, e.open, []byte(`{"input":[1,2,3,4.5]}`)))
		f.Add(e.coding+", "+encoders[len(encoders)-1-i].coding, encode(f, encoders[len(encoders)-1-i].open, encode(f, e.open, make([]byte, 3000))))
		f.Add(e.coding, encode(f, e.open, make([]byte, 3<<20)))
	}
	f.Add("identity, br,,", []byte("x"))
	f.Fuzz(func(t *testing.T, codings string, body []byte) {
		const limit = 2 << 20
		got, err := Decode([]byte(codings), body, limit)
		switch {
		case err != nil:
			if c := code(err); c != api.TooLarge && c != api.InvalidArgument && c != api.Unsupported {
				t.Fatalf("code %v: %v", c, err)
			}
		case got != nil:
			if len(got.Bytes) > limit {
				t.Fatalf("%d bytes, more than %d", len(got.Bytes), limit)
			}
			got.Free()
		}
		e := encoders[len(body)%len(encoders)]
		got, err = Decode([]byte(e.coding), encode(t, e.open, body), max(len(body), 1))
		if err != nil || got != nil && !bytes.Equal(got.Bytes, body) {
			t.Fatalf("%s of %d bytes does not come back: %v", e.name, len(body), err)
		}
	})
}
