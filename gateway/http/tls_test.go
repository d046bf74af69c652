package http

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/xebec-serving/xebec/api"
	"github.com/xebec-serving/xebec/gateway/query/querytest"
	"github.com/xebec-serving/xebec/scheduler"
)

// withTLS gives the port a certificate; trust is what clients need for it.
func withTLS() (change func(*fixture), trust *tls.Config) {
	s := httptest.NewUnstartedServer(nil) // for its certificate only
	s.StartTLS()
	defer s.Close()
	pool := x509.NewCertPool()
	pool.AddCert(s.Certificate())
	config := &tls.Config{Certificates: s.TLS.Certificates, NextProtos: []string{"h2", "http/1.1"}}
	return func(f *fixture) { f.tls = config }, &tls.Config{RootCAs: pool, ServerName: "example.com"}
}

// maxBody is small: HTTP/1.1 clients of encrypted connections see a refusal only if the rest of what they send can be dropped.
const maxBody = 160 << 10

func smallBodies(f *fixture) { f.limits = func(l *Limits) { l.BodyBytes = maxBody } }

// ways are the protocols in which a port can be asked, beside HTTP/1.1 in clear text.
func ways(t *testing.T, submit func(it *scheduler.Item), test func(t *testing.T, f *fixture, scheme string, c *http.Client)) {
	for _, name := range []string{"h2c", "h2", "https"} {
		t.Run(name, func(t *testing.T) {
			secure, trust := withTLS()
			switch name {
			case "h2c":
				transport := &http2.Transport{AllowHTTP: true, DialTLSContext: func(ctx context.Context, network, addr string, _ *tls.Config) (net.Conn, error) {
					var d net.Dialer
					return d.DialContext(ctx, network, addr)
				}}
				t.Cleanup(transport.CloseIdleConnections)
				test(t, serve(t, querytest.Bytes, submit, smallBodies), "http", &http.Client{Transport: transport, Timeout: time.Minute})
			case "h2":
				transport := &http2.Transport{TLSClientConfig: trust}
				t.Cleanup(transport.CloseIdleConnections)
				test(t, serve(t, querytest.Bytes, submit, secure, smallBodies), "https", &http.Client{Transport: transport, Timeout: time.Minute})
			case "https":
				transport := &http.Transport{TLSClientConfig: trust}
				t.Cleanup(transport.CloseIdleConnections)
				test(t, serve(t, querytest.Bytes, submit, secure, smallBodies), "https", &http.Client{Transport: transport, Timeout: time.Minute})
			}
		})
	}
}

func ask(t *testing.T, c *http.Client, url, body string, header ...string) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), "POST", url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/octet-stream")
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
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

// TestProtocols: predictions and refusals are the same in every protocol of the port.
func TestProtocols(t *testing.T) {
	echo := func(it *scheduler.Item) { querytest.End(it, api.OK, bytes.Clone(it.Inputs[0].Data)) }
	ways(t, echo, func(t *testing.T, f *fixture, scheme string, c *http.Client) {
		url := scheme + "://" + f.addr
		var all sync.WaitGroup
		for i := range 64 {
			all.Go(func() {
				body := fmt.Sprint("input ", i) + strings.Repeat("x", i*2<<10)
				res, text := ask(t, c, url+"/f/predict", body, "X-Request-Id", fmt.Sprint("request-", i))
				if m := decode(t, text); res.StatusCode != 200 || fmt.Sprint(m["output"]) != "map[b64:"+base64.StdEncoding.EncodeToString([]byte(body))+"]" {
					t.Errorf("query %d: status %d, %.100s", i, res.StatusCode, text)
				}
				if got := res.Header.Get("X-Request-Id"); got != fmt.Sprint("request-", i) {
					t.Errorf("query %d: request id %q", i, got)
				}
			})
		}
		all.Wait()
		for _, r := range []struct {
			path, body string
			header     []string
			status     int
		}{
			{"/none/predict", "a", nil, 404},
			{"/f/..%2fnoop/predict", "a", nil, 400},
			{"/f/predict", strings.Repeat("x", maxBody+1), nil, 413},
			{"/f/predict", "not gzip", []string{"Content-Encoding", "gzip"}, 400},
			{"/f/predict", "a", []string{"Content-Encoding", "unknown"}, 415},
			{"/f/predict", "a", []string{"Origin", "https://evil.example"}, 403},
			{"/healthz", "a", nil, 405},
		} {
			res, text := ask(t, c, url+r.path, r.body, r.header...)
			if m := decode(t, text); res.StatusCode != r.status || m["code"] == nil && m["cause"] == nil || res.Header.Get("X-Request-Id") == "" {
				t.Errorf("%s %.10s: status %d, %.200s, header %v: expected %d", r.path, r.body, res.StatusCode, text, res.Header, r.status)
			}
		}
		if res, err := c.Head(url + "/healthz"); err != nil || res.StatusCode != 200 {
			t.Errorf("HEAD: %v %v", res, err)
		}
	})
}

// TestProtocolsDrain: Shutdown answers what was accepted, and ends idle connections.
func TestProtocolsDrain(t *testing.T) {
	items := make(chan *scheduler.Item, 1)
	ways(t, func(it *scheduler.Item) { items <- it }, func(t *testing.T, f *fixture, scheme string, c *http.Client) {
		answered := make(chan int)
		go func() {
			res, _ := ask(t, c, scheme+"://"+f.addr+"/f/predict", "abc")
			answered <- res.StatusCode
		}()
		it := <-items
		ended := make(chan error)
		go func() { ended <- f.shutdown(t.Context()) }()
		for !f.s.draining.Load() {
			<-time.After(time.Millisecond)
		}
		querytest.End(it, api.OK, []byte("abc"))
		if status := <-answered; status != 200 {
			t.Errorf("the accepted request gets status %d", status)
		}
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// TestHTTP2Cancels: a client that resets its stream has its query cancelled.
func TestHTTP2Cancels(t *testing.T) {
	items := make(chan *scheduler.Item, 1)
	secure, trust := withTLS()
	f := serve(t, querytest.Bytes, func(it *scheduler.Item) { items <- it }, secure, func(f *fixture) { f.lane.Cancelled = make(chan uint64, 1) })
	transport := &http2.Transport{TLSClientConfig: trust}
	defer transport.CloseIdleConnections()
	ctx, cancel := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, "POST", "https://"+f.addr+"/f/predict", strings.NewReader("abc"))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/octet-stream")
	left := make(chan struct{})
	go func() {
		defer close(left)
		if _, err := transport.RoundTrip(req); err == nil {
			t.Error("a cancelled request was answered")
		}
	}()
	it := <-items
	cancel()
	<-left
	<-f.lane.Cancelled
	querytest.End(it, api.Cancelled, nil)
}

// TestHandshakeTime: a client that does not finish its handshake is cut, and others are served meanwhile.
func TestHandshakeTime(t *testing.T) {
	secure, trust := withTLS()
	f := serve(t, querytest.Bytes, func(it *scheduler.Item) { querytest.End(it, api.OK, []byte("x")) }, secure, func(f *fixture) {
		f.limits = func(l *Limits) { l.FirstByteTimeout = 2 * time.Second }
	})
	silent, _ := f.raw()
	transport := &http2.Transport{TLSClientConfig: trust}
	defer transport.CloseIdleConnections()
	if res, text := ask(t, &http.Client{Transport: transport}, "https://"+f.addr+"/f/predict", "abc"); res.StatusCode != 200 {
		t.Errorf("status %d, %s", res.StatusCode, text)
	}
	if n, err := silent.Read(make([]byte, 1)); n != 0 || err == nil {
		t.Errorf("read %d bytes, error %v", n, err)
	}
}
