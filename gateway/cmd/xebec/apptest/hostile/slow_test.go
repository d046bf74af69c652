package hostile

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// Connections that send nothing, or a header byte by byte, end after the flags' times, while a body that flows steadily may take
// longer than any of them.
func TestSlowClients(t *testing.T) {
	const every = 50 * time.Millisecond
	t.Parallel()
	g := serve(t, "--first-byte-timeout", "3s", // long enough that a busy machine has written the others' first bytes
		"--header-timeout", "500ms", "--idle-timeout", "600ms")
	g.ports(func(port, address string) {
		silent, slow, idle := g.dial(address), g.dial(address), g.dial(address)
		if _, err := io.WriteString(idle, next); err != nil {
			t.Fatal(err)
		}
		tick := time.NewTicker(every)
		defer tick.Stop()
		go func() { // a byte now and then does not help
			for _, b := range []byte("GET /healthz HTTP/1.1\r\nHost: localhost\r\nA: " + strings.Repeat("a", 1000)) {
				if _, err := slow.Write([]byte{b}); err != nil {
					return
				}
				<-tick.C
			}
		}()
		if rest, err := io.ReadAll(silent); err != nil || len(rest) > 0 {
			t.Errorf("%s: a silent connection ended with %q, %v: expected its end without an answer", port, rest, err)
		}
		refusal(t, port+", a slow header", slow, 408)
		r := bufio.NewReader(idle)
		if answer, err := http.ReadResponse(r, nil); err != nil || answer.StatusCode != 200 {
			t.Errorf("%s: %v, %v", port, answer, err)
		}
		if rest, err := io.ReadAll(r); err != nil || strings.Contains(string(rest), "HTTP/") {
			t.Errorf("%s: an idle connection ended with %q, %v", port, rest, err)
		}
		g.steady(port, address, every)
	})
	for _, series := range []string{`{port="functions",reason="first_byte_timeout"}`, `{port="functions",reason="header_timeout"}`, `{port="admin",reason="header_timeout"}`} {
		g.until("counts "+series, func() bool { return g.metric("xebec_edge_refused_total"+series) == "1" })
	}
}

// steady sends a body that takes twice as long as a header may.
func (g *gateway) steady(port, address string, every time.Duration) {
	g.t.Helper()
	const parts, size = 20, 4 << 10
	c := g.dial(address)
	fmt.Fprintf(c, "POST /none/x/y/z HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n", parts*size)
	tick := time.NewTicker(every)
	defer tick.Stop()
	for range parts {
		if _, err := io.WriteString(c, strings.Repeat(" ", size)); err != nil {
			g.t.Errorf("%s: a steady body was cut: %v", port, err)
			return
		}
		<-tick.C
	}
	answer, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil || answer.StatusCode != 404 {
		g.t.Errorf("%s: a steady body is answered %v, %v: expected 404, since there is no such route", port, answer, err)
	}
}
