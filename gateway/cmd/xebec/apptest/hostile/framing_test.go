package hostile

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// refusal reads an answer that ends its connection: its header, and the error document that it must have.
func refusal(t *testing.T, what string, c net.Conn, status int) http.Header {
	t.Helper()
	r := bufio.NewReader(c)
	answer, err := http.ReadResponse(r, nil)
	if err != nil {
		t.Errorf("%s: no answer: %v", what, err)
		return http.Header{}
	}
	body, err := io.ReadAll(answer.Body)
	answer.Body.Close()
	var function struct{ Cause, Code string } // the documents of the two ports
	var admin struct {
		Error struct{ Message, Code string }
	}
	known := json.Unmarshal(body, &function) == nil && function.Code != "" && function.Cause != "" ||
		json.Unmarshal(body, &admin) == nil && admin.Error.Code != "" && admin.Error.Message != ""
	if err != nil || !known {
		t.Errorf("%s: the error document is %q, %v", what, body, err)
	}
	if answer.StatusCode != status || !answer.Close {
		t.Errorf("%s: answered %s, close %v: expected %d and the end", what, answer.Status, answer.Close, status)
	}
	if rest, _ := io.ReadAll(r); bytes.Contains(rest, []byte("HTTP/1.1")) { // a reset ends it as well
		t.Errorf("%s: after the refusal came %q", what, rest)
	}
	return answer.Header
}

// Requests that hide another one, or that a proxy could take for another one, are refused with their connection. The request
// behind them is not answered.
func TestFramingOfRequests(t *testing.T) {
	t.Parallel()
	g := serve(t, "--max-body", "1MiB")
	post := func(fields, body string) string {
		return "POST /v1/echo HTTP/1.1\r\nHost: localhost\r\n" + fields + "\r\n" + body
	}
	g.ports(func(port, address string) {
		var all sync.WaitGroup // side by side: the gateway waits a second for clients to leave
		for what, c := range map[string]struct {
			sent   string
			status int
		}{
			"identity":          {post("Transfer-Encoding: identity\r\n", next), 400},
			"xchunked":          {post("Transfer-Encoding: xchunked\r\n", "0\r\n\r\n"+next), 400},
			"gzip, chunked":     {post("Transfer-Encoding: gzip, chunked\r\n", "0\r\n\r\n"+next), 501},
			"chunked, identity": {post("Transfer-Encoding: chunked, identity\r\n", "0\r\n\r\n"+next), 400},
			"both lengths":      {post("Content-Length: 4\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n"+next), 400},
			"two Hosts":         {"GET /healthz HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n" + next, 400},
			"HTTP/9.9":          {"GET /healthz HTTP/9.9\r\nHost: localhost\r\n\r\n" + next, 505},
			"no version":        {"GET /healthz\r\n\r\n" + next, 400},
			"encoded slash":     {"POST /echo/..%2fnoop/predict HTTP/1.1\r\nHost: localhost\r\n\r\n" + next, 400},
			"dot segment":       {"GET /echo/../healthz HTTP/1.1\r\nHost: localhost\r\n\r\n" + next, 400},
			"long header":       {"GET /healthz HTTP/1.1\r\nHost: localhost\r\nA: " + strings.Repeat("a", 70<<10) + "\r\n\r\n" + next, 431},
			"unknown need":      {post("Expect: more\r\nContent-Length: 4\r\n", "1234"+next), 417},
			"too large":         {post("Expect: 100-continue\r\nContent-Length: 99999999\r\n", ""), 413},
		} {
			to := g.dial(address)
			all.Go(func() {
				_, _ = io.WriteString(to, c.sent) // the gateway may close first
				refusal(t, port+", "+what, to, c.status)
			})
		}
		all.Wait()
		g.answers(port, address)
	})
	g.until("refusals are counted", func() bool {
		n, _ := strconv.Atoi(g.metric(`xebec_edge_refused_total{port="functions",reason="framing"}`))
		return n > 8
	})
}

// answers: what RFC 9112 allows is understood.
func (g *gateway) answers(port, address string) {
	g.t.Helper()
	for what, sent := range map[string]string{
		"chunk extensions":  "POST /v1/none/x/y/z HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n2;a=b\r\n{}\r\n0;c\r\nT: u\r\n\r\n",
		"absolute form":     "GET http://localhost/none/x/y/z HTTP/1.1\r\nHost: localhost\r\n\r\n",
		"body of two parts": "POST /v1/none/x/y/z HTTP/1.1\r\nHost: localhost\r\nContent-Length: 20000\r\n\r\n" + strings.Repeat(" ", 20000),
	} {
		c := g.dial(address)
		g.send(c, sent+next)
		r := bufio.NewReader(c)
		for i, want := range []int{404, 200} {
			answer, err := http.ReadResponse(r, nil)
			if err != nil {
				g.t.Errorf("%s, %s: answer %d: %v", port, what, i, err)
				break
			}
			_, _ = io.Copy(io.Discard, answer.Body)
			answer.Body.Close()
			if answer.StatusCode != want {
				g.t.Errorf("%s, %s: answer %d is %s, want %d", port, what, i, answer.Status, want)
			}
		}
	}
}
