package h2

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cloudwego/hertz/pkg/app"
	hertz "github.com/cloudwego/hertz/pkg/app/server"
	"github.com/cloudwego/hertz/pkg/network/standard"
	"github.com/cloudwego/hertz/pkg/protocol"
	"github.com/cloudwego/hertz/pkg/protocol/suite"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// server is a Hertz engine with HTTP/2 over TLS.
type server struct {
	addr     string
	pool     *x509.CertPool
	reserved atomic.Int64
	room     int64
	served   atomic.Int64
	draining atomic.Bool
	waits    chan struct{} // capacity 1: a request to /wait has begun
	ended    chan int64    // capacity 1: it has ended, with so many bytes reserved
}

func start(t *testing.T, change func(*Options)) *server {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &server{addr: ln.Addr().String(), room: 1 << 40, waits: make(chan struct{}, 1), ended: make(chan int64, 1)}
	o := Options{
		BodyBytes: 1 << 20, HeaderBytes: 16 << 10, IdleTimeout: time.Minute, WriteTimeout: time.Minute, BodyGrace: time.Minute, MinRate: 1 << 10,
		Refuse: func(c *app.RequestContext, status int, message string) {
			c.Response.SetStatusCode(status)
			c.Response.SetBodyString(message)
		},
		Draining: s.draining.Load,
		Reserve: func(n int) bool {
			if s.reserved.Add(int64(n)) > s.room {
				s.reserved.Add(int64(-n))
				return false
			}
			return true
		},
		Return: func(n int) { s.reserved.Add(int64(-n)) },
		CheckTarget: func(target []byte) error {
			if bytes.Contains(target, []byte("..")) {
				return errors.New("the target has dots")
			}
			return nil
		},
	}
	if change != nil {
		change(&o)
	}
	certificate := httptest.NewUnstartedServer(nil) // for its certificate only
	certificate.StartTLS()
	s.pool = x509.NewCertPool()
	s.pool.AddCert(certificate.Certificate())
	config := &tls.Config{Certificates: certificate.TLS.Certificates, NextProtos: []string{"h2"}}
	certificate.Close()

	h := hertz.New(hertz.WithListener(ln), hertz.WithTransport(standard.NewTransporter), hertz.WithTLS(config), hertz.WithALPN(true), hertz.WithExitWaitTime(0), hertz.WithDisablePrintRoute(true))
	h.AddProtocol(suite.HTTP2, factory(o))
	h.POST("/echo/:name", func(_ context.Context, c *app.RequestContext) {
		s.served.Add(1)
		c.Response.Header.Set("X-Name", c.Param("name"))
		c.Response.Header.Set("X-Field", string(c.Request.Header.Peek("X-Field")))
		c.Response.Header.Set("Connection", "keep-alive")
		c.Data(200, "application/octet-stream", append([]byte(string(c.Host())+" "), c.Request.Body()...))
	})
	h.HEAD("/head", func(_ context.Context, c *app.RequestContext) {
		c.Response.SkipBody = true
		c.Response.Header.SetContentLength(5)
	})
	h.POST("/wait", func(ctx context.Context, c *app.RequestContext) {
		select {
		case s.waits <- struct{}{}:
		default:
		}
		<-ctx.Done()
		select {
		case s.ended <- s.reserved.Load():
		default:
		}
	})
	done := make(chan error, 1)
	go func() { done <- h.Run() }()
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_ = h.Shutdown(ctx) // connections of clients that went away need not be waited for
		ln.Close()
		<-done
	})
	return s
}

func (s *server) client(t *testing.T) *http.Client {
	transport := &http2.Transport{TLSClientConfig: &tls.Config{RootCAs: s.pool, ServerName: "example.com"}}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

func (s *server) post(t *testing.T, c *http.Client, path string, body io.Reader) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), "POST", "https://"+s.addr+path, body)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Field", "value")
	res, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res, string(text)
}

// unsized hides a body's length.
type unsized struct{ io.Reader }

func TestRequests(t *testing.T) {
	s := start(t, nil)
	c := s.client(t)
	big := strings.Repeat("x", 1<<20)
	for _, body := range []struct {
		name string
		body io.Reader
		want string
	}{
		{"none", nil, ""}, {"small", strings.NewReader("abc"), "abc"}, {"largest", strings.NewReader(big), big},
		{"unknown length", unsized{strings.NewReader("abc")}, "abc"}, {"largest of unknown length", unsized{strings.NewReader(big)}, big},
	} {
		res, text := s.post(t, c, "/echo/n%20m?q=1", body.body)
		if want := s.addr + " " + body.want; res.StatusCode != 200 || text != want {
			t.Errorf("%s: status %d, %.60q (%d bytes)", body.name, res.StatusCode, text, len(text))
		}
		if res.Proto != "HTTP/2.0" || res.Header.Get("X-Name") != "n m" || res.Header.Get("X-Field") != "value" || res.Header.Get("Connection") != "" {
			t.Errorf("%s: %s %v", body.name, res.Proto, res.Header)
		}
	}
	if res, _ := s.post(t, c, "/none", nil); res.StatusCode != 404 {
		t.Errorf("no route: status %d", res.StatusCode)
	}
	res, err := c.Head("https://" + s.addr + "/head")
	if err != nil || res.StatusCode != 200 || res.ContentLength != 5 {
		t.Errorf("HEAD: %v, %+v", err, res)
	}
	if n := s.reserved.Load(); n != 0 {
		t.Errorf("%d bytes are still reserved", n)
	}
}

func TestRefusals(t *testing.T) {
	s := start(t, nil)
	c := s.client(t)
	over := strings.Repeat("x", 1<<20+1)
	s.room = 3 << 20
	for _, r := range []struct {
		name, path string
		body       io.Reader
		status     int
	}{
		{"too large", "/echo/a", strings.NewReader(over), 413},
		{"too large, of unknown length", "/echo/a", unsized{strings.NewReader(over)}, 413},
		{"target", "/echo/a..b", nil, 400},
	} {
		if res, text := s.post(t, c, r.path, r.body); res.StatusCode != r.status || text == "" {
			t.Errorf("%s: status %d, %q", r.name, res.StatusCode, text)
		}
	}
	s.room = 1000
	if res, text := s.post(t, c, "/echo/a", strings.NewReader(strings.Repeat("x", 2000))); res.StatusCode != 503 || !strings.Contains(text, "memory") {
		t.Errorf("no room: status %d, %q", res.StatusCode, text)
	}
	if s.served.Load() != 0 || s.reserved.Load() != 0 {
		t.Errorf("%d requests were served, %d bytes are reserved", s.served.Load(), s.reserved.Load())
	}
}

// TestSlowBody: a body that does not come is cut; its request is not served.
func TestSlowBody(t *testing.T) {
	s := start(t, func(o *Options) { o.BodyGrace, o.MinRate = 10*time.Millisecond, 1<<30 })
	slow, stop := io.Pipe()
	defer stop.Close()
	go func() { _, _ = stop.Write([]byte("a")) }()
	if res, text := s.post(t, s.client(t), "/echo/a", slow); res.StatusCode != 408 || !strings.Contains(text, "slowly") || s.served.Load() != 0 {
		t.Errorf("status %d, %q, %d served", res.StatusCode, text, s.served.Load())
	}
}

// TestStalledBody: much that has come does not buy a long silence.
func TestStalledBody(t *testing.T) {
	s := start(t, func(o *Options) { o.BodyGrace = 50 * time.Millisecond })
	slow, stop := io.Pipe()
	defer stop.Close()
	go func() { _, _ = stop.Write(bytes.Repeat([]byte("a"), 600<<10)) }() // ten minutes at the lowest rate
	client := s.client(t)
	client.Timeout = time.Minute
	if res, text := s.post(t, client, "/echo/a", slow); res.StatusCode != 408 || s.served.Load() != 0 {
		t.Errorf("status %d, %q, %d served", res.StatusCode, text, s.served.Load())
	}
}

// TestUnreadAnswer: a client that opens no window for its answer loses the stream.
func TestUnreadAnswer(t *testing.T) {
	unread := make(chan struct{}, 1)
	s := start(t, func(o *Options) {
		o.BodyGrace = 50 * time.Millisecond
		o.Unread = func() { unread <- struct{}{} }
	})
	f, conn := s.frames(t)
	if err := errors.Join(conn.SetDeadline(time.Now().Add(time.Minute)), f.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})); err != nil {
		t.Fatal(err)
	}
	err := f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block("POST", "/echo/a"), EndHeaders: true})
	if err := errors.Join(err, f.WriteData(1, true, bytes.Repeat([]byte("a"), 10<<10))); err != nil {
		t.Fatal(err)
	}
	for {
		frame, err := f.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		if reset, ok := frame.(*http2.RSTStreamFrame); ok && reset.StreamID == 1 {
			break
		}
	}
	<-unread
}

// TestCancel: a request whose client leaves ends.
func TestCancel(t *testing.T) {
	s := start(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, "POST", "https://"+s.addr+"/wait", unsized{strings.NewReader("abc")})
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		<-s.waits
		cancel()
	}()
	if _, err := s.client(t).Do(req); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	if reserved := <-s.ended; reserved == 0 {
		t.Error("the body was given back before its handler had ended")
	}
}

// TestRequestsAtATime: streams of all connections share a bound, and what ends makes room.
func TestRequestsAtATime(t *testing.T) {
	s := start(t, func(o *Options) { o.Requests = 2 })
	f, conn := s.frames(t)
	for i := range uint32(2) {
		open(t, f, 2*i+1, "POST", "/wait")
		<-s.waits
	}
	client := s.client(t)
	if res, text := s.post(t, client, "/echo/a", strings.NewReader("abc")); res.StatusCode != 503 || s.served.Load() != 0 {
		t.Errorf("status %d, %q, %d served", res.StatusCode, text, s.served.Load())
	}
	conn.Close()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for { // when the server has noticed
		if res, _ := s.post(t, client, "/echo/a", strings.NewReader("abc")); res.StatusCode == 200 {
			return
		}
		select {
		case <-tick.C:
		case <-t.Context().Done():
			t.Fatal("there is no room after the requests ended")
		}
	}
}

// TestDraining: while the gateway drains, an answer tells the client to leave.
func TestDraining(t *testing.T) {
	s := start(t, nil)
	f, conn := s.frames(t)
	s.draining.Store(true)
	open(t, f, 1, "POST", "/echo/a")
	for {
		frame, err := f.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		if away, ok := frame.(*http2.GoAwayFrame); ok && away.ErrCode == http2.ErrCodeNo {
			break
		}
	}
	conn.Close()
}

// TestFloods: a connection that floods is bounded or closed, and others are served.
func TestFloods(t *testing.T) {
	for _, flood := range []struct {
		name   string
		closes bool // always; otherwise only if the server falls behind
		one    func(f *http2.Framer, i int) error
	}{
		{"resets", false, func(f *http2.Framer, i int) error {
			id := uint32(2*i + 1)
			return errors.Join(f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block("POST", "/wait"), EndHeaders: true}), f.WriteRSTStream(id, http2.ErrCodeCancel))
		}},
		{"CONTINUATION", true, func(f *http2.Framer, i int) error {
			if i == 0 {
				return f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block("POST", "/wait")})
			}
			return f.WriteContinuation(1, false, bytes.Repeat(field("x-flood", strings.Repeat("y", 1000)), 8))
		}},
		{"pings", false, func(f *http2.Framer, i int) error { return f.WritePing(false, [8]byte{}) }},
		{"settings", false, func(f *http2.Framer, i int) error { return f.WriteSettings() }},
	} {
		t.Run(flood.name, func(t *testing.T) {
			s := start(t, nil)
			f, conn := s.frames(t)
			// Nothing is read: the server must not queue answers without a bound.
			if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
				t.Fatal(err)
			}
			var err error
			for i := 0; i < 20_000 && err == nil; i++ {
				err = flood.one(f, i)
			}
			if err == nil && flood.closes {
				t.Error("20,000 frames were taken")
			}
			if res, text := s.post(t, s.client(t), "/echo/a", strings.NewReader("abc")); res.StatusCode != 200 {
				t.Errorf("another connection: status %d, %q", res.StatusCode, text)
			}
		})
	}
}

// TestHeaderBound: header fields above the bound are refused.
func TestHeaderBound(t *testing.T) {
	s := start(t, nil)
	req, err := http.NewRequest("POST", "https://"+s.addr+"/echo/a", nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 40 {
		req.Header.Set(fmt.Sprintf("X-%d", i), strings.Repeat("y", 1000))
	}
	res, err := s.client(t).Do(req)
	if err == nil {
		res.Body.Close()
		if res.StatusCode != 431 {
			t.Errorf("status %d", res.StatusCode)
		}
	}
	if s.served.Load() != 0 {
		t.Error("the request was served")
	}
}

// frames opens a connection for frames made by hand.
func (s *server) frames(t *testing.T) (*http2.Framer, net.Conn) {
	t.Helper()
	conn, err := tls.Dial("tcp", s.addr, &tls.Config{RootCAs: s.pool, ServerName: "example.com", NextProtos: []string{"h2"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
		t.Fatal(err)
	}
	f := http2.NewFramer(conn, conn)
	if err := f.WriteSettings(); err != nil {
		t.Fatal(err)
	}
	return f, conn
}

func open(t *testing.T, f *http2.Framer, id uint32, method, path string) {
	t.Helper()
	if err := f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block(method, path), EndHeaders: true, EndStream: true}); err != nil {
		t.Fatal(err)
	}
}

func block(method, path string) []byte {
	return bytes.Join([][]byte{field(":method", method), field(":scheme", "https"), field(":authority", "example.com"), field(":path", path)}, nil)
}

// field encodes one header field, without the table.
func field(name, value string) []byte {
	var b bytes.Buffer
	e := hpack.NewEncoder(&b)
	e.SetMaxDynamicTableSize(0)
	b.Reset()
	_ = e.WriteField(hpack.HeaderField{Name: name, Value: value, Sensitive: true}) // a buffer takes everything
	return bytes.Clone(b.Bytes())
}

// factory makes the server for Hertz.
type factory Options

func (f factory) New(core suite.Core) (protocol.Server, error) { return New(core, Options(f)), nil }
