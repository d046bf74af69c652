package http

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/xebec-serving/xebec/gateway/dialect"
	"github.com/xebec-serving/xebec/gateway/dialect/native"
	"github.com/xebec-serving/xebec/gateway/dialect/oip"
	"github.com/xebec-serving/xebec/gateway/query"
	"github.com/xebec-serving/xebec/gateway/query/querytest"
)

// Which of the answers that are not read stay, and which are cut.
func TestRoomOfUnreadAnswers(t *testing.T) {
	type answer struct {
		bytes int64
		idle  time.Duration // since its client took a part
	}
	tests := []struct {
		what  string
		held  []answer
		bytes int64
		ok    bool
		cut   []int
	}{
		{"room is left", []answer{{60, time.Hour}}, 40, true, nil},
		{"the others flow", []answer{{60, stalledAfter - 1}, {30, 0}}, 40, false, nil},
		{"one answer has more than all of the room", nil, 500, true, nil},
		{"and must be alone", []answer{{1, 0}}, 500, false, nil},
		{"or alone but for those that stall", []answer{{1, time.Hour}}, 500, true, []int{0}},
		{"the largest that stalls is cut", []answer{{20, time.Hour}, {50, stalledAfter}, {30, 0}}, 40, true, []int{1}},
		{"of the same size, the one that stalls longest", []answer{{40, 3 * stalledAfter}, {40, 2 * stalledAfter}, {20, 0}}, 40, true, []int{0}},
		{"as many as are needed", []answer{{40, 3 * stalledAfter}, {40, 2 * stalledAfter}, {20, 0}}, 70, true, []int{0, 1}},
		{"none where that makes too little room", []answer{{20, time.Hour}, {80, 0}}, 40, false, nil},
	}
	for _, test := range tests {
		u, now, cut := &unread{limit: 100}, time.Unix(1e9, 0), []int(nil)
		var held []*heldAnswer
		for i, a := range test.held {
			h := u.take(a.bytes, now, func() { cut = append(cut, i) })
			if h == nil {
				t.Fatalf("%s: answer %d has no room", test.what, i)
			}
			h.Took(now.Add(-a.idle))
			held = append(held, h)
		}
		if full := u.full(test.bytes, now); full == test.ok || len(cut) > 0 {
			t.Errorf("%s: full %v, cut %v: expected %v, and that nothing is cut", test.what, full, cut, !test.ok)
		}
		h := u.take(test.bytes, now, func() { t.Errorf("%s: the new one is cut", test.what) })
		slices.Sort(cut)
		if (h != nil) != test.ok || !slices.Equal(cut, test.cut) {
			t.Errorf("%s: room %v, cut %v: expected %v, %v", test.what, h != nil, cut, test.ok, test.cut)
		}
		h.Release()
		for _, h := range held {
			h.Release()
		}
		if u.used != 0 || len(u.held) != 0 {
			t.Errorf("%s: %d bytes and %d answers are left", test.what, u.used, len(u.held))
		}
	}
}

// Without room a large answer is replaced by a refusal in the dialect's shape, whichever goroutine writes it. Small answers need none.
func TestAnswersWithoutRoomAreRefused(t *testing.T) {
	secure, trust := withTLS()
	clear := func(*fixture) {}
	waits := func(f *fixture) { f.reply = ReplyWait }
	tests := map[string]struct {
		change func(*fixture)
		client http.RoundTripper
	}{
		"HTTP/1.1":                    {clear, &http.Transport{DisableCompression: true}},
		"HTTP/1.1, compressed":        {clear, &http.Transport{}},
		"HTTP/1.1, its handler waits": {waits, &http.Transport{DisableCompression: true}},
		"HTTP/1.1, closing":           {clear, &http.Transport{DisableKeepAlives: true, DisableCompression: true}},
		"HTTP/1.1 over TLS":           {secure, &http.Transport{TLSClientConfig: trust, DisableCompression: true}},
		"HTTP/2":                      {secure, &http2.Transport{TLSClientConfig: trust, DisableCompression: true}},
		"HTTP/2 in clear": {clear, &http2.Transport{AllowHTTP: true, DisableCompression: true, DialTLSContext: func(ctx context.Context, network, address string, _ *tls.Config) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, address)
		}}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			f := serve(t, querytest.Bytes, echoed, func(f *fixture) { f.bodies = NewBodies(1 << 20) }, test.change)
			defer test.client.(interface{ CloseIdleConnections() }).CloseIdleConnections()
			scheme := "http://"
			if f.tls != nil {
				scheme = "https://"
			}
			ask := func(path, contentType string, bytes int) (status int, retry, text string) {
				body := strings.Repeat("x", bytes)
				if contentType == "application/json" {
					body = `{"inputs": [{"name": "input", "datatype": "BYTES", "shape": [1], "data": ["` + body + `"]}]}`
				}
				request, err := http.NewRequestWithContext(t.Context(), "POST", scheme+f.addr+path, strings.NewReader(body))
				if err != nil {
					t.Fatal(err)
				}
				request.Header.Set("Content-Type", contentType)
				answer, err := test.client.RoundTrip(request)
				if err != nil {
					t.Fatalf("%s with %d bytes: %v", path, bytes, err)
				}
				defer answer.Body.Close()
				return answer.StatusCode, answer.Header.Get("Retry-After"), textOf(t, answer)
			}
			const raw = "application/octet-stream"
			if status, _, _ := ask("/f/predict", raw, 200<<10); status != 200 {
				t.Fatalf("a large answer with room: %d", status)
			}
			var all *heldAnswer
			f.wait(func(int) bool { // the answer before may still have its room
				all = f.s.cfg.Bodies.unread.take(1<<20, time.Now(), func() { t.Error("it is cut") })
				return all != nil
			})
			all.Took(time.Now().Add(time.Hour)) // it does not stall
			if status, _, _ := ask("/f/predict", raw, 1000); status != 200 {
				t.Errorf("a small answer is refused with %d", status)
			}
			medium := 503 // a goroutine would wait for the client
			if name == "HTTP/1.1" || name == "HTTP/1.1, compressed" {
				medium = 200 // until the socket does not take it
			}
			if status, _, _ := ask("/f/predict", raw, 10_000); status != medium {
				t.Errorf("an answer of 10 kB: %d, expected %d", status, medium)
			}
			if status, retry, text := ask("/f/predict", raw, 200<<10); status != 503 || retry == "" || !strings.Contains(text, `"code":"overloaded"`) {
				t.Errorf("%d, Retry-After %q, %.200s", status, retry, text)
			}
			if status, retry, text := ask("/v2/models/m/infer", "application/json", 200<<10); status != 503 || retry == "" || !strings.HasPrefix(text, `{"error":"`) {
				t.Errorf("%d, Retry-After %q, %.200s", status, retry, text)
			}
			all.Release()
			if status, _, _ := ask("/f/predict", raw, 200<<10); status != 200 {
				t.Errorf("after room is left again: %d", status)
			}
		})
	}
}

// refusing passes a dialect's calls on to a transport without room, which keeps what they have rendered.
type refusing struct {
	dialect.Dialect
	rendered int
}

func (d *refusing) Routes(p *query.Path) (routes []dialect.Route) {
	for _, r := range d.Dialect.Routes(p) {
		serve := r.Serve
		r.Serve = func(x dialect.Exchange) { serve(&refusingExchange{x, d, make(chan struct{})}) }
		routes = append(routes, r)
	}
	return routes
}

type refusingExchange struct {
	dialect.Exchange
	to   *refusing
	done chan struct{}
}

func (x *refusingExchange) Submit(c *dialect.Call) {
	c.Retain()
	c.Submit(x, nil)
	<-x.done
	x.to.rendered = cap(c.Answer.Body)
	x.Answer(&c.Answer)
	c.Delivered()
	c.Release()
}

func (x *refusingExchange) Refuses(c *dialect.Call) bool {
	c.Answer.Reset(503)
	return true
}

func (x *refusingExchange) Reply(*dialect.Call) { close(x.done) }

// A dialect renders no outputs for which there is no room.
func TestRefusedAnswersAreNotRendered(t *testing.T) {
	f := serve(t, querytest.Bytes, echoed)
	for _, test := range []struct {
		d                 dialect.Dialect
		path, media, body string
	}{
		{native.Dialect{}, "/f/predict", "application/octet-stream", "%s"},
		{oip.Dialect{}, "/v2/models/m/infer", "application/json", `{"inputs": [{"name": "input", "datatype": "BYTES", "shape": [1], "data": ["%s"]}]}`},
	} {
		d := &refusing{Dialect: test.d}
		a, err := dialect.NewLocal(f.p, d).Do(t.Context(), &dialect.Message{
			Method: "POST", Path: test.path, Header: map[string]string{"Content-Type": test.media}, Body: fmt.Appendf(nil, test.body, strings.Repeat("x", 10_000)),
		})
		if err != nil {
			t.Fatal(err)
		}
		if a.Status != 503 || d.rendered >= 10_000 {
			t.Errorf("%s: status %d, %d bytes rendered: expected 503, and none of the output", test.path, a.Status, d.rendered)
		}
	}
}

func textOf(t *testing.T, answer *http.Response) string {
	t.Helper()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
