package http

import (
	"bytes"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/query/querytest"
	"github.com/xebec-serving/xebec/scheduler"
)

// After a flood of HTTP/2 the gateway has the descriptors that it had before: of clients that reset each request at once, of those that leave
// with requests unanswered, with half a request, and that read nothing.
func TestDescriptorsAfterAFloodOfHTTP2(t *testing.T) {
	f := serve(t, querytest.Bytes, func(it *scheduler.Item) { querytest.End(it, api.OK, make([]byte, 32<<10)) })
	if status, _, body := f.post("/f/predict", "application/octet-stream", "x"); status != 200 { // from here on it has its pollers
		t.Fatal(status, body)
	}
	for _, flood := range []struct {
		what  string
		write func(fr *http2.Framer, head []byte)
	}{
		{"resets", func(fr *http2.Framer, head []byte) {
			for id := uint32(1); id < 400; id += 2 {
				_ = fr.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: head, EndHeaders: true})
				_ = fr.WriteRSTStream(id, http2.ErrCodeCancel)
			}
		}},
		{"requests", func(fr *http2.Framer, head []byte) {
			for id := uint32(1); id < 400; id += 2 {
				_ = fr.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: head, EndHeaders: true})
				_ = fr.WriteData(id, true, []byte("x"))
			}
		}},
		{"half a header", func(fr *http2.Framer, head []byte) {
			_ = fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: head[:len(head)/2]})
		}},
		{"half a body", func(fr *http2.Framer, head []byte) {
			_ = fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: head, EndHeaders: true})
			_ = fr.WriteData(1, false, []byte("x"))
		}},
	} {
		before := descriptors(t)
		var clients []net.Conn
		for range 50 {
			c, err := net.Dial("tcp", f.addr)
			if err != nil {
				t.Fatal(err)
			}
			clients = append(clients, c)
			var b, head bytes.Buffer
			h := hpack.NewEncoder(&head)
			h.SetMaxDynamicTableSize(0)
			head.Reset()
			for _, p := range [][2]string{{":method", "POST"}, {":scheme", "http"}, {":authority", "localhost"}, {":path", "/f/predict"}, {"content-type", "application/octet-stream"}} {
				_ = h.WriteField(hpack.HeaderField{Name: p[0], Value: p[1], Sensitive: true})
			}
			b.WriteString(http2.ClientPreface)
			fr := http2.NewFramer(&b, nil)
			_ = fr.WriteSettings()
			flood.write(fr, head.Bytes())
			_, _ = io.Copy(c, &b) // the gateway may close it first
		}
		for _, c := range clients {
			c.Close()
		}
		again, late := time.NewTicker(time.Millisecond), time.After(2*time.Minute)
		for waits := true; waits && descriptors(t) > before; {
			select {
			case <-again.C:
			case <-late:
				t.Errorf("%s: %d descriptors, %d before", flood.what, descriptors(t), before)
				waits = false
			}
		}
		again.Stop()
	}
}

func descriptors(t *testing.T) int {
	t.Helper()
	names, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(names)
}
