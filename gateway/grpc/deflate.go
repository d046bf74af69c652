package grpc

import (
	"compress/zlib"
	"io"
	"sync"

	"google.golang.org/grpc/encoding"
)

// deflate is the coding of that name, which is zlib's format (RFC 1950). grpcio's clients have it beside gzip.
type deflate struct{ writers, readers sync.Pool }

func init() { encoding.RegisterCompressor(new(deflate)) } // a compressor is one for the whole process, as that of gzip

func (*deflate) Name() string { return "deflate" }

type deflateWriter struct {
	*zlib.Writer
	pool *sync.Pool
}

func (w *deflateWriter) Close() error {
	err := w.Writer.Close()
	w.pool.Put(w)
	return err
}

func (d *deflate) Compress(w io.Writer) (io.WriteCloser, error) {
	if z, ok := d.writers.Get().(*deflateWriter); ok {
		z.Reset(w)
		return z, nil
	}
	return &deflateWriter{zlib.NewWriter(w), &d.writers}, nil
}

type deflateReader struct {
	io.ReadCloser
	pool *sync.Pool
}

// Read returns the reader to the pool at the end.
func (r *deflateReader) Read(b []byte) (int, error) {
	if r.pool == nil {
		return 0, io.EOF
	}
	n, err := r.ReadCloser.Read(b)
	if err == io.EOF {
		pool := r.pool
		r.pool = nil
		pool.Put(r.ReadCloser)
	}
	return n, err
}

// Close is called by the library, whose bound on the decompressed message may have cut it off.
func (r *deflateReader) Close() error { return nil }

func (d *deflate) Decompress(r io.Reader) (io.Reader, error) {
	if z, ok := d.readers.Get().(io.ReadCloser); ok {
		if err := z.(zlib.Resetter).Reset(r, nil); err != nil {
			d.readers.Put(z)
			return nil, err
		}
		return &deflateReader{z, &d.readers}, nil
	}
	z, err := zlib.NewReader(r)
	if err != nil {
		return nil, err
	}
	return &deflateReader{z, &d.readers}, nil
}
