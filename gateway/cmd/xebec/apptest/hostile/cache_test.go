package hostile

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// A full prediction cache, bodies that stall and answers that are not read fit into a small machine together, each at its default.
func TestFullCacheBesideBodiesAndAnswersInLittleMemory(t *testing.T) {
	t.Parallel()
	const (
		machine = 400 << 20
		text    = 40 << 10 // a body that is cached, with an answer of the same size
		clients = 12
		upload  = 40 << 20
		answer  = 15_000_000
	)
	g := inMemory(t, machine, "--config", cached(t))
	g.until("the function answers", func() bool {
		a, _ := ask(g.dial(g.functions), 10)
		return a != nil && a.StatusCode == 200
	})
	number := func(series string) int64 {
		v, err := strconv.ParseFloat(g.metric(series), 64)
		if err != nil {
			t.Fatalf("%s: %v", series, err)
		}
		return int64(v)
	}
	c := g.dial(g.functions)
	answers := bufio.NewReader(c)
	for i := range 2 * machine / 8 / text {
		g.send(c, fmt.Sprintf("POST /f/predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/octet-stream\r\nContent-Length: %d\r\n\r\n%0*d", text, text, i))
		a, err := http.ReadResponse(answers, nil)
		if err != nil {
			t.Fatal(err)
		}
		if n, err := io.Copy(io.Discard, a.Body); err != nil || a.StatusCode != 200 || n < text {
			t.Fatalf("status %d, %d bytes, %v", a.StatusCode, n, err)
		}
	}
	most, used := number("xebec_cache_max_bytes"), number("xebec_cache_bytes")
	if most > machine/8 || used < most*3/4 {
		t.Errorf("the cache has %d bytes and at most %d: expected it to be full, and an eighth of %d", used, most, machine)
	}
	var all sync.WaitGroup
	for range clients {
		reads, sends := g.dial(g.functions), g.dial(g.functions)
		if err := reads.(*net.TCPConn).SetReadBuffer(64 << 10); err != nil {
			t.Fatal(err)
		}
		all.Go(func() {
			_, _ = io.WriteString(reads, wanting(answer))
			_, _ = reads.Read(make([]byte, 1)) // an answer has begun, or is refused
		})
		all.Go(func() {
			_, _ = fmt.Fprintf(sends, "POST /f/predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", upload)
			part := strings.Repeat("x", 1<<20)
			for sent := 0; sent < upload-1; sent += len(part) {
				if _, err := io.WriteString(sends, part[:min(len(part), upload-1-sent)]); err != nil {
					return // refused
				}
			}
		})
	}
	all.Wait()
	g.ports(func(_, address string) { g.alive(g.dial(address)) })
	peak := g.kilobytes("VmHWM")
	t.Logf("%d KiB at most, %d of them in the cache", peak, used>>10)
	if peak > machine>>10 {
		t.Errorf("the gateway took %d KiB: expected at most %d", peak, machine>>10)
	}
}

// cached writes a manifest as answering does, of a model whose predictions are cached.
func cached(t *testing.T) string {
	t.Helper()
	path := answering(t)
	manifest, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(strings.Replace(string(manifest), "cache: off\n", "", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
