package coding

import (
	"bytes"
	"errors"
	"io"
	"runtime"
	"slices"
	"sync"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/flate"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zlib"
	"github.com/klauspost/compress/zstd"

	"github.com/xebec-serving/xebec/api"
)

// Limits of decoding.
const (
	// MaxRatio refuses bodies that were made to expand. Numbers, text and pictures shrink to a tenth at best.
	MaxRatio = 100 //xebec:limit times that a body with a Content-Encoding expands
	// RatioFrom is the size up to which a body may expand more: that is no harm, and zeros do.
	RatioFrom = 1 << 20 //xebec:limit decoded bytes from which that ratio counts
	// MaxStacked is enough for a proxy that compresses what a client has compressed.
	MaxStacked = 2 //xebec:limit codings of one body, applied one after the other
	// keepBytes is the capacity up to which buffers, and the decoders that filled them, are kept for later bodies.
	keepBytes = 1 << 20 //xebec:limit decoded body whose memory is kept for later ones
	// perProcessor bounds the decoders and encoders that run at a time: some have windows of 16 MiB. They never wait for a
	// client, so more of them would only share the processors.
	perProcessor = 2 //xebec:limit bodies being decoded or compressed at a time, for each processor
)

// Supported is the value of Accept-Encoding in the answer to a request whose coding is not supported.
const Supported = "gzip, deflate, zstd, br, s2, x-snappy-framed"

// Body is a body in pooled memory.
type Body struct{ Bytes []byte }

var bodies = sync.Pool{New: func() any { return new(Body) }}

// Free returns the memory. The caller must not use Bytes any more.
func (b *Body) Free() {
	if cap(b.Bytes) <= keepBytes {
		b.Bytes = b.Bytes[:0]
		bodies.Put(b)
	}
}

// running has a token for each decoder and encoder that runs.
var running = make(chan struct{}, perProcessor*runtime.GOMAXPROCS(0))

// Decode decodes a body that has these content codings: the value of Content-Encoding, in which the coding that was
// applied last stands last. The result has at most limit bytes and belongs to the caller, who calls Free. It is nil,
// without an error, if the value names no coding but identity, or if the body is empty. body is only read.
func Decode(codings, body []byte, limit int) (*Body, error) {
	chain, err := parse(codings)
	if err != nil || len(chain) == 0 || len(body) == 0 {
		return nil, err
	}
	running <- struct{}{}
	defer func() { <-running }()
	allowed := Room(len(body), limit)
	var decoded *Body
	for i := len(chain) - 1; i >= 0; i-- {
		next := bodies.Get().(*Body)
		next.Bytes, err = chain[i].decode(next.Bytes[:0], body, allowed)
		if decoded != nil {
			decoded.Free()
		}
		if err != nil {
			next.Free()
			return nil, failure(chain[i].name, err, allowed, limit)
		}
		decoded, body = next, next.Bytes
	}
	return decoded, nil
}

// Room is how large a body of so many bytes may be when it is decoded, where limit bounds all bodies.
func Room(bytes, limit int) int { return min(limit, max(RatioFrom, MaxRatio*bytes)) }

// failure says why a body was not decoded.
func failure(coding string, err error, allowed, limit int) error {
	switch {
	case !errors.Is(err, errTooLarge):
		return api.Errorf(api.InvalidArgument, "the body is not %s, as its Content-Encoding says: %w", coding, err)
	case allowed < limit:
		return api.Errorf(api.TooLarge, "the body expands more than %d times when it is decoded (%s), beyond %d bytes: send it without a Content-Encoding", MaxRatio, coding, allowed)
	}
	return api.Errorf(api.TooLarge, "the body has more than %d bytes when it is decoded (%s): --max-body is the limit", limit, coding)
}

// format is a coding that bodies may have. decode appends to dst, which is empty, at most limit bytes; more is errTooLarge.
type format struct {
	name   string
	decode func(dst, src []byte, limit int) ([]byte, error)
}

var formats = map[string]*format{}

func init() {
	for _, f := range []*format{
		{"gzip", decodeGzip}, {"deflate", decodeDeflate}, {"zstd", decodeZstd}, {"br", decodeBrotli}, {"s2", decodeS2}, {"x-snappy-framed", decodeS2},
	} {
		formats[f.name] = f
	}
	formats["x-gzip"] = formats["gzip"] // RFC 9110, section 8.4.1.3
}

func parse(codings []byte) ([]*format, error) {
	var chain []*format
	for name := range bytes.SplitSeq(codings, []byte(",")) {
		name = bytes.ToLower(bytes.TrimSpace(name))
		if len(name) == 0 || string(name) == "identity" {
			continue
		}
		f := formats[string(name)]
		if f == nil {
			return nil, api.Errorf(api.Unsupported, "Content-Encoding %.40q is not supported: expected one of %s", name, Supported)
		}
		if len(chain) == MaxStacked {
			return nil, api.Errorf(api.Unsupported, "the body has more than %d content codings: send it with one", MaxStacked)
		}
		chain = append(chain, f)
	}
	return chain, nil
}

var (
	errTooLarge = errors.New("too large")
	errTrailing = errors.New("there are bytes after its end")
)

// firstBytes is the capacity of the first buffer for a body: what compresses well is not copied often, and what does not
// wastes little.
func firstBytes(src []byte, limit int) int { return min(max(4*len(src), 4<<10), limit+1) }

// grow makes room for more, up to one byte beyond limit: with that byte a body is known to be too large.
func grow(b []byte, least, limit int) []byte {
	if cap(b) >= least {
		return b
	}
	return slices.Grow(b, min(max(least, 2*cap(b)), limit+1)-len(b))
}

// readAll appends what r has.
func readAll(dst []byte, r io.Reader, src []byte, limit int) ([]byte, error) {
	dst = grow(dst, firstBytes(src, limit), limit)
	for {
		if len(dst) > limit {
			return dst, errTooLarge
		}
		if len(dst) == cap(dst) {
			dst = grow(dst, cap(dst)+1, limit)
		}
		n, err := r.Read(dst[len(dst):min(cap(dst), limit+1)])
		dst = dst[:len(dst)+n]
		switch {
		case errors.Is(err, io.EOF):
			if len(dst) > limit {
				return dst, errTooLarge
			}
			return dst, nil
		case errors.Is(err, io.ErrUnexpectedEOF):
			return dst, errors.New("it ends too early")
		case err != nil:
			return dst, err
		}
	}
}

// stream is a pooled decoder of a coding that is read as a stream.
type stream[R io.Reader] struct {
	source bytes.Reader
	r      R
	made   bool
}

// run decodes src with a stream of the pool. reset prepares it to read the source.
func run[R io.Reader](pool *sync.Pool, reset func(*stream[R]) error, dst, src []byte, limit int) ([]byte, error) {
	s, _ := pool.Get().(*stream[R])
	if s == nil {
		s = new(stream[R])
	}
	s.source.Reset(src)
	err := reset(s)
	if err == nil {
		dst, err = readAll(dst, s.r, src, limit)
	}
	if err == nil && s.source.Len() > 0 {
		err = errTrailing
	}
	s.source.Reset(nil)
	if err == nil && len(dst) <= keepBytes { // else its window may be large, or its state in disorder
		pool.Put(s)
	}
	return dst, err
}

var gzips, zlibs, flates, brotlis, s2s sync.Pool

func decodeGzip(dst, src []byte, limit int) ([]byte, error) {
	return run(&gzips, func(s *stream[*gzip.Reader]) (err error) {
		if s.made {
			err = s.r.Reset(&s.source)
		} else {
			s.r, err = gzip.NewReader(&s.source)
			s.made = err == nil
		}
		if err == nil {
			s.r.Multistream(false) // a body of empty members would cost far more than it has bytes
		}
		return atStart(err)
	}, dst, src, limit)
}

// decodeDeflate decodes zlib's format (RFC 1950), which is what deflate means in HTTP, and also bare deflate (RFC 1951),
// which some clients send.
func decodeDeflate(dst, src []byte, limit int) ([]byte, error) {
	if len(src) < 2 || src[0]&0x0f != 8 || (int(src[0])<<8|int(src[1]))%31 != 0 {
		return run(&flates, func(s *stream[io.ReadCloser]) error {
			if s.made {
				return s.r.(flate.Resetter).Reset(&s.source, nil)
			}
			s.r, s.made = flate.NewReader(&s.source), true
			return nil
		}, dst, src, limit)
	}
	return run(&zlibs, func(s *stream[io.ReadCloser]) (err error) {
		if s.made {
			return atStart(s.r.(zlib.Resetter).Reset(&s.source, nil))
		}
		s.r, err = zlib.NewReader(&s.source)
		s.made = err == nil
		return atStart(err)
	}, dst, src, limit)
}

func decodeBrotli(dst, src []byte, limit int) ([]byte, error) {
	return run(&brotlis, func(s *stream[*brotli.Reader]) error {
		if s.made {
			return s.r.Reset(&s.source)
		}
		s.r, s.made = brotli.NewReader(&s.source), true
		return nil
	}, dst, src, limit)
}

// decodeS2 decodes the framed formats of S2 and of Snappy, which have no end mark.
func decodeS2(dst, src []byte, limit int) ([]byte, error) {
	return run(&s2s, func(s *stream[*s2.Reader]) error {
		if s.made {
			s.r.Reset(&s.source)
		} else {
			s.r, s.made = s2.NewReader(&s.source), true
		}
		return nil
	}, dst, src, limit)
}

// atStart explains an end where a header was expected.
func atStart(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("it ends too early")
	}
	return err
}

// zstdWindow is the window that a frame may announce, even if its body is small: encoders that do not know a body's size
// announce up to this much (RFC 9659).
const zstdWindow = 8 << 20 //xebec:limit window of a body with the coding zstd, unless the body may be larger

// zstds decode whole bodies: the output is the window, so what a frame announces takes no memory.
var zstds = sync.Pool{New: func() any {
	d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1))
	if err != nil {
		panic(err) // the option is a constant
	}
	return d
}}

func decodeZstd(dst, src []byte, limit int) ([]byte, error) {
	d := zstds.Get().(*zstd.Decoder)
	defer zstds.Put(d)
	if err := d.ResetWithOptions(nil, zstd.WithDecoderMaxMemory(uint64(max(limit, zstdWindow)))); err != nil {
		return dst, err
	}
	dst, err := d.DecodeAll(src, grow(dst, firstBytes(src, limit), limit))
	if errors.Is(err, zstd.ErrDecoderSizeExceeded) || err == nil && len(dst) > limit {
		return dst, errTooLarge
	}
	return dst, atStart(err)
}
