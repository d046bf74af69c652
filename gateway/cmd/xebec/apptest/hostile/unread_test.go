package hostile

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/net/http2"
)

// answering writes a manifest of a function f whose answers are as large as a request wants it.
func answering(t *testing.T) string {
	t.Helper()
	command, err := json.Marshal([]string{worker, "-mode", "markers"})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "models.yaml")
	text := fmt.Sprintf(`kind: Model
name: m
version: "1"
inputs:  [{name: input, dtype: bytes, shape: []}]
outputs: [{name: output, dtype: bytes, shape: []}]
run: {command: %s}
cache: off
---
kind: Function
name: f
models: [m]
slo: 60s
`, command)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// wanting is a request for an answer with so many bytes.
func wanting(bytes int) string {
	marker := fmt.Sprintf("big:%d", bytes)
	return fmt.Sprintf("POST /f/predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/octet-stream\r\nContent-Length: %d\r\n\r\n%s", len(marker), marker)
}

// ask reads a whole answer, and returns its status and how many bytes came.
func ask(c net.Conn, bytes int) (*http.Response, int64) {
	if _, err := io.WriteString(c, wanting(bytes)); err != nil {
		return nil, 0
	}
	answer, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return nil, 0
	}
	defer answer.Body.Close()
	n, _ := io.Copy(io.Discard, answer.Body)
	return answer, n
}

// Clients of HTTP/1.1 and HTTP/2 ask for large answers and do not read them. The gateway keeps what has room, refuses or cuts the others,
// and serves those that read.
func TestUnreadAnswersInLittleMemory(t *testing.T) {
	t.Parallel()
	const (
		machine = 400 << 20
		clients = 12
		size    = 15_000_000
	)
	g := inMemory(t, machine, "--config", answering(t))
	g.until("the function answers", func() bool {
		answer, _ := ask(g.dial(g.functions), 10)
		return answer != nil && answer.StatusCode == 200
	})
	for range clients {
		c := g.dial(g.functions)
		if err := c.(*net.TCPConn).SetReadBuffer(64 << 10); err != nil {
			t.Fatal(err)
		}
		g.send(c, wanting(size))
		if _, err := c.Read(make([]byte, 1)); err != nil {
			t.Errorf("a client that reads one byte: %v", err)
		}
		if answer, _ := ask(g.dial(g.functions), 10); answer == nil || answer.StatusCode != 200 {
			t.Fatalf("a small request is answered %v", answer)
		}
	}
	for range clients {
		transport := &http2.Transport{AllowHTTP: true, DialTLSContext: func(context.Context, string, string, *tls.Config) (net.Conn, error) { return g.dial(g.functions), nil }}
		t.Cleanup(transport.CloseIdleConnections)
		request, err := http.NewRequestWithContext(t.Context(), "POST", "http://"+g.functions+"/f/predict", strings.NewReader(fmt.Sprintf("big:%d", size)))
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Content-Type", "application/octet-stream")
		answer, err := transport.RoundTrip(request)
		if err != nil {
			t.Fatalf("HTTP/2: %v", err)
		}
		t.Cleanup(func() { answer.Body.Close() })
	}
	g.until("a client that reads gets its answer", func() bool {
		answer, n := ask(g.dial(g.functions), size)
		return answer != nil && answer.StatusCode == 200 && n >= size
	})
	g.ports(func(_, address string) { g.alive(g.dial(address)) })
	peak := g.kilobytes("VmHWM")
	t.Logf("%d KiB at most", peak)
	if peak > machine>>10 {
		t.Errorf("the gateway took %d KiB: expected at most %d", peak, machine>>10)
	}
}
