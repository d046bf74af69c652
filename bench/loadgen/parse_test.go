package loadgen

import (
	"bufio"
	"bytes"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"testing"
)

func TestParseHeader(t *testing.T) {
	const ok = "HTTP/1.1 200 OK\r\nServer: hertz\r\nContent-Type: application/json\r\nContent-Length: 5\r\n\r\n"
	for _, c := range []struct {
		name, in string
		want     response
		ok       bool
		err      error
	}{
		{"whole", ok + "hello", response{200, len(ok), 5, false}, true, nil},
		{"body to come", ok, response{200, len(ok), 5, false}, true, nil},
		{"nothing yet", "", response{}, false, nil},
		{"cut in the status line", "HTTP/1.1 20", response{}, false, nil},
		{"cut before the empty line", ok[:len(ok)-2], response{}, false, nil},
		{"names in any case", "HTTP/1.1 404 Not Found\r\ncontent-LENGTH:3\r\nCONNECTION:  Close \r\n\r\n", response{404, 65, 3, true}, true, nil},
		{"no reason", "HTTP/1.1 503\r\nContent-Length: 0\r\n\r\n", response{503, 35, 0, false}, true, nil},
		{"204 needs no length", "HTTP/1.1 204 No Content\r\n\r\n", response{204, 27, 0, false}, true, nil},
		{"200 needs one", "HTTP/1.1 200 OK\r\n\r\n", response{}, false, errLength},
		{"two lengths", "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n", response{}, false, errLength},
		{"negative", "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", response{}, false, errLength},
		{"a sign", "HTTP/1.1 200 OK\r\nContent-Length: +1\r\n\r\n", response{}, false, errLength},
		{"huge", "HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n", response{}, false, errLength},
		{"too large", "HTTP/1.1 200 OK\r\nContent-Length: " + strconv.Itoa(maxBodyBytes+1) + "\r\n\r\n", response{}, false, errLength},
		{"chunked", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", response{}, false, errEncoding},
		{"another protocol", "HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n", response{}, false, errStatusLine},
		{"interim", "HTTP/1.1 100 Continue\r\n\r\n", response{}, false, errStatusLine},
		{"status of four digits", "HTTP/1.1 2000 OK\r\nContent-Length: 0\r\n\r\n", response{}, false, errStatusLine},
		{"no colon", "HTTP/1.1 200 OK\r\nContent-Length 0\r\n\r\n", response{}, false, errField},
		{"endless", "HTTP/1.1 200 OK\r\n" + strings.Repeat("X: y\r\n", maxHeaderBytes/6+1), response{}, false, errHeaderTooLong},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, ok, err := parseHeader([]byte(c.in))
			if !errors.Is(err, c.err) || ok != c.ok || (ok && r != c.want) {
				t.Errorf("got %+v, %v, %v, want %+v, %v, %v", r, ok, err, c.want, c.ok, c.err)
			}
		})
	}
}

// For any input the parser stays within it, gives the same result for more bytes, and agrees with net/http about the status and length of
// what it accepts.
func FuzzParseHeader(f *testing.F) {
	f.Add([]byte("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"))
	f.Add([]byte("HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n"))
	f.Add([]byte("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"))
	f.Add([]byte("HTTP/1.1 999 \r\n:\r\n\r\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, ok, err := parseHeader(data)
		if ok && err != nil {
			t.Fatalf("both a response and an error: %+v, %v", r, err)
		}
		if !ok {
			return
		}
		if r.headerBytes > len(data) || r.bodyBytes < 0 || r.bodyBytes > maxBodyBytes || r.status < 200 || r.status > 599 {
			t.Fatalf("out of bounds: %+v of %d bytes", r, len(data))
		}
		if again, ok, err := parseHeader(append(bytes.Clone(data), "more"...)); !ok || err != nil || again != r {
			t.Fatalf("with more bytes: %+v, %v, %v, before %+v", again, ok, err, r)
		}
		resp, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(data[:r.headerBytes])), nil)
		if err != nil {
			return // net/http is stricter about names and values
		}
		resp.Body.Close()
		if resp.StatusCode != r.status {
			t.Fatalf("status %d, net/http says %d", r.status, resp.StatusCode)
		}
		if resp.ContentLength >= 0 && r.status != 204 && r.status != 304 && resp.ContentLength != int64(r.bodyBytes) {
			t.Fatalf("length %d, net/http says %d", r.bodyBytes, resp.ContentLength)
		}
	})
}
