package hostile

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"

	"golang.org/x/net/http2"
)

// Many clients send requests that an evaluation without an end keeps in the queue: one or eight on each connection, or as streams of HTTP/2. What
// the gateway keeps of those that wait for their answers counts against the memory of bodies, as bodies do.
func TestRequestsInFlightShareTheBudget(t *testing.T) {
	t.Parallel()
	const (
		clients     = 2000
		ahead       = 8
		connections = 20 // of HTTP/2, with 100 streams each
		text        = 60_000
		budget      = 32 << 20
		most        = 256 << 20
	)
	body := func(input string) string { return `{"input": "` + input + `"}` }
	request := func(body string) string {
		return fmt.Sprintf("POST /f/predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	}
	large := body(strings.Repeat("x", text))
	pipelining := func(ahead int) func(g *gateway, ended *sync.WaitGroup) {
		all := strings.Repeat(request(large), ahead)
		return func(g *gateway, ended *sync.WaitGroup) {
			for range clients {
				c := g.dial(g.functions)
				ended.Go(func() { _, _ = io.WriteString(c, all) }) // ends when all is received, when a request is refused, or with the test
			}
		}
	}
	for protocol, begin := range map[string]func(g *gateway, ended *sync.WaitGroup){
		"HTTP/1.1":            pipelining(1),
		"HTTP/1.1, pipelined": pipelining(ahead),
		"HTTP/2": func(g *gateway, ended *sync.WaitGroup) {
			ctx, cancel := context.WithCancel(t.Context())
			g.t.Cleanup(cancel)
			for range connections {
				c := g.dial(g.functions)
				transport := &http2.Transport{AllowHTTP: true, StrictMaxConcurrentStreams: true, DialTLSContext: func(context.Context, string, string, *tls.Config) (net.Conn, error) { return c, nil }}
				g.t.Cleanup(transport.CloseIdleConnections)
				for range clients / connections {
					ended.Go(func() {
						r, err := http.NewRequestWithContext(ctx, "POST", "http://"+g.functions+"/f/predict", strings.NewReader(large))
						if err != nil {
							g.t.Error(err)
							return
						}
						r.Header.Set("Content-Type", "application/json")
						if answer, err := transport.RoundTrip(r); err == nil {
							answer.Body.Close()
						}
					})
				}
			}
		},
	} {
		t.Run(protocol, func(t *testing.T) {
			t.Parallel()
			var ended sync.WaitGroup
			t.Cleanup(ended.Wait)
			g := serve(t, "--config", answering(t), "--max-body", "1MiB", "--body-memory", fmt.Sprint(budget), "--drain-timeout", "1s")
			g.until("the function answers", func() bool {
				answer, _ := ask(g.dial(g.functions), 10)
				return answer != nil && answer.StatusCode == 200
			})
			g.send(g.dial(g.functions), request(body("hang"))) // what is before it in the queue may be answered
			begin(g, &ended)
			g.until("each request has room, waits for it in the kernel, or is refused", func() bool {
				n := g.metric(`xebec_edge_refused_total{port="functions",reason="body_memory"}`)
				return n != "" && n != "0" && g.metric("xebec_http_bodies_waiting") == "0"
			})
			peak := g.kilobytes("VmHWM")
			t.Logf("%d KiB at most; %s requests refused", peak, g.metric(`xebec_edge_refused_total{port="functions",reason="body_memory"}`))
			if peak > most>>10 {
				t.Errorf("the gateway took %d KiB: expected at most %d", peak, most>>10)
			}
		})
	}
}
