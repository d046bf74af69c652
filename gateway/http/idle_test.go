//go:build !race

package http

import (
	"bytes"
	"io"
	"net"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/xebec-serving/xebec/gateway/query/querytest"
)

// A connection of HTTP/2 that waits for a request holds little memory, whatever frames its client sends and takes: a connection
// keeps a buffer for the largest of each.
func TestAllocatedByIdleConnectionsOfHTTP2(t *testing.T) {
	const (
		many = 200
		most = 72 << 10 // with this test's end of it
	)
	f := serve(t, querytest.Bytes, querytest.Echo)
	f.askInFrames()
	before := inUse()
	for range many {
		f.askInFrames()
	}
	each := (int64(inUse()) - int64(before)) / many
	t.Logf("%d bytes for each connection, with the client's end", each)
	if each > most {
		t.Errorf("%d bytes for each connection: expected at most %d", each, most)
	}
}

// inUse returns the bytes of live objects and stacks.
func inUse() uint64 {
	debug.FreeOSMemory() // collects; twice, for what pools keep for one collection
	debug.FreeOSMemory()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc + m.StackInuse
}

// askInFrames opens a connection, has one large request answered, in frames as large as the server takes them, and leaves it open.
func (f *fixture) askInFrames() {
	c, err := net.Dial("tcp", f.addr)
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { c.Close() })
	fail := func(err error) {
		if err != nil {
			f.t.Fatal(err)
		}
	}
	fr := http2.NewFramer(c, c)
	fr.SetMaxReadFrameSize(1 << 20)
	_, err = io.WriteString(c, http2.ClientPreface)
	fail(err)
	fail(fr.WriteSettings(http2.Setting{ID: http2.SettingMaxFrameSize, Val: 1 << 20}, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 20}))
	frameBytes, body := 16<<10, []byte(`{"input":"`+strings.Repeat("x", 500<<10)+`"}`)
	for sent := false; ; {
		frame, err := fr.ReadFrame()
		fail(err)
		switch frame := frame.(type) {
		case *http2.SettingsFrame:
			if v, ok := frame.Value(http2.SettingMaxFrameSize); ok {
				frameBytes = int(v)
			}
		case *http2.WindowUpdateFrame: // the connection's window
			if sent {
				continue
			}
			sent = true
			var head bytes.Buffer
			h := hpack.NewEncoder(&head)
			for _, p := range [][2]string{{":method", "POST"}, {":scheme", "http"}, {":authority", "localhost"}, {":path", "/f/predict"}, {"content-type", "application/json"}, {"accept", "application/octet-stream"}} {
				fail(h.WriteField(hpack.HeaderField{Name: p[0], Value: p[1]}))
			}
			fail(fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: head.Bytes(), EndHeaders: true}))
			for len(body) > 0 {
				n := min(len(body), frameBytes)
				fail(fr.WriteData(1, n == len(body), body[:n]))
				body = body[n:]
			}
			fail(fr.WriteWindowUpdate(0, 1<<20))
		case *http2.DataFrame:
			if frame.StreamEnded() {
				return
			}
		}
	}
}
