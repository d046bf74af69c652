package hostile

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
)

// Trailers have the bound of header fields: 32 MiB of them are refused at once, and not kept.
func TestTrailersTakeNoMemory(t *testing.T) {
	t.Parallel()
	g := serve(t, "--max-body", "1MiB")
	g.ports(func(port, address string) {
		before := g.kilobytes("VmHWM")
		c := g.dial(address)
		_, _ = io.WriteString(c, "POST /none/x/y/z HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n")
		part := []byte(strings.Repeat("Trailer-Field: "+strings.Repeat("x", 1000)+"\r\n", 1000))
		for range 32 {
			if _, err := c.Write(part); err != nil {
				break // refused, as it should be
			}
		}
		g.until(port+" refuses", func() bool {
			return g.metric(fmt.Sprintf("xebec_edge_refused_total{port=%q,reason=\"too_large\"}", port)) == "1"
		})
		if grown := g.kilobytes("VmHWM") - before; grown > 16<<10 {
			t.Errorf("%s: 32 MiB of trailers took %d KiB", port, grown)
		}
	})
}

// All connections of both ports share one budget of bodies. What it had no room for is refused, and what large bodies took goes
// back to the system.
func TestBodiesShareOneBudget(t *testing.T) {
	t.Parallel()
	g := serve(t, "--max-body", "8MiB", "--body-memory", "20MiB")
	const size = 8 << 20
	// begin asks whether a body has room. If it has, the connection holds it.
	begin := func(address string) (net.Conn, *http.Response) {
		c := g.dial(address)
		if _, err := fmt.Fprintf(c, "POST /none/x/y/z HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n", size); err != nil {
			t.Fatal(err)
		}
		answer, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatal(err)
		}
		return c, answer
	}
	hold := func(port, address string) (c net.Conn) {
		g.until(port+" has room", func() bool { // connections that ended may still have theirs
			var answer *http.Response
			c, answer = begin(address)
			return answer.StatusCode == 100
		})
		return c
	}
	g.ports(func(port, holds string) {
		held := []net.Conn{hold(port, holds), hold(port, holds)}
		g.ports(func(port, address string) {
			_, answer := begin(address)
			if answer.StatusCode != 503 || !answer.Close || answer.Header.Get("Retry-After") == "" {
				t.Errorf("%s: without room: %s, close %v, %v", port, answer.Status, answer.Close, answer.Header)
			}
		})
		for _, c := range held {
			c.Close()
		}
	})
	idle := g.kilobytes("VmRSS")
	var full []net.Conn
	for range 2 { // as much as has room
		c := hold("functions", g.functions)
		if _, err := io.WriteString(c, strings.Repeat("x", size-1)); err != nil {
			t.Fatal(err)
		}
		full = append(full, c)
	}
	g.until("the bodies are resident", func() bool { return g.kilobytes("VmRSS") > idle+12<<10 })
	for _, c := range full {
		c.Close()
	}
	g.until("their memory is given back", func() bool { return g.kilobytes("VmRSS") < idle+6<<10 })
}
