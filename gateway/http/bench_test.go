//go:build !race

package http

import (
	"context"
	"fmt"
	"net"
	"testing"
)

// BenchmarkHTTP is a request over a connection, to a model that answers at once: small JSON, and a raw body that is borrowed.
func BenchmarkHTTP(b *testing.B) {
	for _, c := range []struct{ name, header, body string }{
		{"json", "", `{"input":[1,2,3,4.25]}`},
		{"raw", "Content-Type: application/octet-stream\r\n", string(make([]byte, 16))},
	} {
		b.Run(c.name, func(b *testing.B) {
			_, p := newWire(b, "single", 1, false)
			ln, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				b.Fatal(err)
			}
			s, err := New(Config{Path: p, Listener: ln, Limits: DefaultLimits(), Dialects: dialects(), Ready: ready})
			if err != nil {
				b.Fatal(err)
			}
			go s.Serve()
			defer s.Shutdown(context.Background())
			conn, err := net.Dial("tcp", ln.Addr().String())
			if err != nil {
				b.Fatal(err)
			}
			defer conn.Close()
			request := []byte(fmt.Sprintf("POST /f/predict HTTP/1.1\r\nHost: x\r\n%sContent-Length: %d\r\n\r\n%s", c.header, len(c.body), c.body))
			answer := make([]byte, 4096)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := conn.Write(request); err != nil {
					b.Fatal(err)
				}
				if _, err := conn.Read(answer); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
