package coding

import (
	"bytes"
	"strconv"
	"sync"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// Coding is a coding of answers.
type Coding uint8

// The codings of answers, the preferred one last. Each is fast enough to pay off between machines of one data centre.
const (
	Identity Coding = iota
	Gzip
	Zstd
	codings
)

// String is the value of Content-Encoding.
func (c Coding) String() string { return [codings]string{"identity", "gzip", "zstd"}[c] }

// CompressFrom is the size from which an answer is compressed: a smaller one fits into a packet.
const CompressFrom = 1 << 10 //xebec:limit answers of at least this size are compressed, if the client asks for that

// Choose returns the coding of an answer to a request with this Accept-Encoding (RFC 9110, section 12.5.3): the one with
// the highest weight of those that we have, or Identity. Malformed members count as absent.
func Choose(accept []byte) Coding {
	if len(accept) == 0 {
		return Identity
	}
	const unnamed = -1
	weights, any := [codings]int{unnamed, unnamed, unnamed}, unnamed
	for len(accept) > 0 {
		member := accept
		if end := bytes.IndexByte(accept, ','); end >= 0 {
			member, accept = accept[:end], accept[end+1:]
		} else {
			accept = nil
		}
		name, weight := member, 1000
		if end := bytes.IndexByte(member, ';'); end >= 0 {
			name = member[:end]
			var ok bool
			if weight, ok = parseWeight(member[end+1:]); !ok {
				continue
			}
		}
		switch name = bytes.TrimSpace(name); {
		case is(name, "gzip"), is(name, "x-gzip"):
			weights[Gzip] = weight
		case is(name, "zstd"):
			weights[Zstd] = weight
		case is(name, "identity"):
			weights[Identity] = weight
		case is(name, "*"):
			any = weight
		}
	}
	best, most := Identity, max(weights[Identity], 0)
	for c := Gzip; c < codings; c++ {
		weight := weights[c]
		if weight == unnamed {
			weight = any
		}
		if weight > 0 && weight >= most {
			best, most = c, weight
		}
	}
	return best
}

// is compares a name with one in lower case.
func is(name []byte, lower string) bool {
	if len(name) != len(lower) {
		return false
	}
	for i := range len(name) {
		c := name[i]
		if 'A' <= c && c <= 'Z' {
			c |= 0x20
		}
		if c != lower[i] {
			return false
		}
	}
	return true
}

// parseWeight reads "q=0.5" in thousandths.
func parseWeight(b []byte) (int, bool) {
	b = bytes.TrimSpace(b)
	if len(b) < 3 || b[0]|0x20 != 'q' || b[1] != '=' || len(b) > len("q=0.000") {
		return 0, false
	}
	q, err := strconv.ParseFloat(string(b[2:]), 64)
	if err != nil || !(q >= 0 && q <= 1) {
		return 0, false
	}
	return int(q*1000 + 0.5), true
}

// Compress compresses a body. The result belongs to the caller, who calls Free; it is nil if it would not be shorter.
func Compress(c Coding, body []byte) *Body {
	if c == Identity {
		return nil
	}
	running <- struct{}{}
	defer func() { <-running }()
	out := bodies.Get().(*Body)
	if c == Zstd {
		out.Bytes = zstdEncoder().EncodeAll(body, out.Bytes[:0])
	} else {
		out.Bytes = appendGzip(out.Bytes[:0], body)
	}
	if len(out.Bytes) >= len(body) {
		out.Free()
		return nil
	}
	return out
}

// encoderWindow is small: it bounds what each of the encoders keeps.
const encoderWindow = 512 << 10

var zstdEncoder = sync.OnceValue(func() *zstd.Encoder {
	e, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(cap(running)),
		zstd.WithWindowSize(encoderWindow), zstd.WithLowerEncoderMem(true), zstd.WithAllLitEntropyCompression(true)) // numbers have few different bytes
	if err != nil {
		panic(err) // the options are constants
	}
	return e
})

// gzipWriter compresses into a slice.
type gzipWriter struct {
	*gzip.Writer
	to slice
}

type slice []byte

func (s *slice) Write(p []byte) (int, error) {
	*s = append(*s, p...)
	return len(p), nil
}

func gzipWriters(level int) *sync.Pool {
	return &sync.Pool{New: func() any {
		w := new(gzipWriter)
		w.Writer, _ = gzip.NewWriterLevel(&w.to, level) // the level exists
		return w
	}}
}

// repeating are fast writers that look for repetitions, and store what has none as it is. counting are faster ones that only
// give frequent bytes short codes: lists of numbers have no repetitions, but few different bytes.
var repeating, counting = gzipWriters(gzip.BestSpeed), gzipWriters(gzip.HuffmanOnly)

func appendGzip(dst, body []byte) []byte {
	dst = gzipWith(repeating, dst, body)
	if len(dst) > len(body)/4*3 {
		dst = gzipWith(counting, dst[:0], body)
	}
	return dst
}

func gzipWith(writers *sync.Pool, dst, body []byte) []byte {
	w := writers.Get().(*gzipWriter)
	w.to = dst
	w.Reset(&w.to)
	_, _ = w.Write(body) // appending does not fail
	_ = w.Close()
	dst, w.to = w.to, nil
	writers.Put(w)
	return dst
}
