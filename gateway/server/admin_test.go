package server

import (
	"bufio"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// Each answer of both ports names its server and the request, those that stream and those to requests that are refused unread, too. Errors
// repeat the request's name.
func TestAnswersAreNamed(t *testing.T) {
	s, _, _ := started(t, Config{})
	mustApply(t, s, model, fn)
	admin, functions := s.Admin(), s.Listen()
	for _, c := range []struct {
		what, addr, request string
		status              int
		id                  string // empty: one that was made
	}{
		{"a list", admin, "GET /v1/models HTTP/1.1\r\nHost: localhost\r\nX-Request-Id: r1\r\n\r\n", 200, "r1"},
		{"logs, which stream", admin, "GET /v1/models/m/logs HTTP/1.1\r\nHost: localhost\r\nX-Request-Id: r2\r\n\r\n", 200, "r2"},
		{"logs as JSON", admin, "GET /v1/models/m/logs HTTP/1.1\r\nHost: localhost\r\nAccept: application/x-ndjson\r\n\r\n", 200, ""},
		{"a body that is too large", admin, "POST /v1/apply HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999\r\nX-Request-Id: r3\r\n\r\n", 413, "r3"},
		{"two lengths", admin, "POST /v1/apply HTTP/1.1\r\nHost: localhost\r\nX-Request-Id: r4\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", 400, "r4"},
		{"no request", admin, "nonsense\r\n\r\n", 400, ""},
		{"an invalid name", admin, "POST /v1/apply HTTP/1.1\r\nHost: localhost\r\nX-Request-Id: a b\r\nContent-Length: 99999999999\r\n\r\n", 413, ""},
		{"a body that is too large for a function", functions, "POST /f/predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999\r\nX-Request-Id: r5\r\n\r\n", 413, "r5"},
		{"no request on the function port", functions, "nonsense\r\n\r\n", 400, ""},
	} {
		conn, err := net.Dial("tcp", c.addr)
		if err != nil {
			t.Fatal(err)
		}
		if err := conn.SetDeadline(time.Now().Add(testTimeout)); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(conn, c.request); err != nil {
			t.Fatal(err)
		}
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatalf("%s: %v", c.what, err)
		}
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Errorf("%s: %v", c.what, err)
		}
		conn.Close()
		id := resp.Header.Get("X-Request-Id")
		if resp.StatusCode != c.status || resp.Header.Get("Server") != "xebec" || id == "" || c.id != "" && id != c.id {
			t.Errorf("%s is answered %d by %q with X-Request-Id %q: want %d by xebec with %q", c.what, resp.StatusCode, resp.Header.Get("Server"), id, c.status, c.id)
		}
		if len(resp.Header.Values("X-Request-Id")) > 1 || len(resp.Header.Values("Server")) > 1 {
			t.Errorf("%s has the fields %v: each once is wanted", c.what, resp.Header)
		}
		if resp.StatusCode < 400 {
			continue
		}
		if !strings.Contains(string(body), `"request_id":"`+id+`"`) || !json.Valid(body) {
			t.Errorf("%s is answered %s: want the request_id %q", c.what, body, id)
		}
	}
}
