package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"time"

	"github.com/xebec-serving/xebec/bench/internal/runner"
)

// attack is what a hostile client sends. The server must answer with a status below, or close the connection.
type attack struct {
	name string
	// send writes to the connection; its error only means that the server has closed it.
	send func(conn net.Conn, host string) error
	// expect are the statuses that may be answered. None: only that the server stays up matters.
	expect string
}

// text is an attack that is one write.
func text(format string) func(net.Conn, string) error {
	return func(c net.Conn, host string) error {
		_, err := io.WriteString(c, strings.ReplaceAll(format, "HOST", host))
		return err
	}
}

// flood writes a head, and then the same part over and over.
func flood(head, part string, times int) func(net.Conn, string) error {
	return func(c net.Conn, host string) error {
		if err := text(head)(c, host); err != nil {
			return err
		}
		many := strings.Repeat(part, 64)
		for range times / 64 {
			if _, err := io.WriteString(c, many); err != nil {
				return err
			}
		}
		return nil
	}
}

var attacks = []attack{
	{"silence", func(net.Conn, string) error { return nil }, ""},
	{"half a request line", text("POST /echo/pre"), ""},
	{"half a header", text("POST /echo/predict HTTP/1.1\r\nHost: HOST\r\nContent-Le"), ""},
	{"half a body", text("POST /echo/predict HTTP/1.1\r\nHost: HOST\r\nContent-Length: 60000000\r\n\r\nabc"), ""},
	{"no HTTP", text("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"), "400"},
	{"header flood", flood("GET /healthz HTTP/1.1\r\nHost: HOST\r\n", "X-Flood: 0123456789012345678901234567890123456789\r\n", 64<<10), "400 431"},
	{"trailer flood", flood("POST /echo/predict HTTP/1.1\r\nHost: HOST\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n", "X-Flood: 0123456789012345678901234567890123456789\r\n", 64<<10), "400 404 413 431"},
	{"chunk size", text("POST /echo/predict HTTP/1.1\r\nHost: HOST\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n"), "400 404 413"},
	{"two lengths", text("POST /echo/predict HTTP/1.1\r\nHost: HOST\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd"), "400"},
	{"length and chunks", text("POST /echo/predict HTTP/1.1\r\nHost: HOST\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"), "400"},
	{"deep JSON", text("POST /echo/predict HTTP/1.1\r\nHost: HOST\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: 40000\r\n\r\n" + strings.Repeat("[", 40000)), "400 404"},
	{"pipelined, unread", flood("", "GET /healthz HTTP/1.1\r\nHost: HOST\r\n\r\n", 4<<10), ""},
	{"a path upwards", text("POST /echo/..%2fnaps/predict HTTP/1.1\r\nHost: HOST\r\nConnection: close\r\nContent-Length: 1\r\n\r\na"), "400 404"},
	{"an unknown function", text("POST /none/predict HTTP/1.1\r\nHost: HOST\r\nConnection: close\r\nContent-Length: 1\r\n\r\na"), "404 503"},
}

// attack opens connections to both ports, sends what no good client sends, reads a little, and leaves without a goodbye.
func (w *world) attack(t *tally, number int) player {
	return func(ctx context.Context) {
		random := rand.New(rand.NewPCG(w.cfg.seed, 200+uint64(number)))
		for runner.Sleep(ctx, time.Duration(5+random.IntN(30))*time.Millisecond) == nil {
			a := &attacks[random.IntN(len(attacks))]
			g := w.now()
			addr := g.Addr
			if random.IntN(3) == 0 {
				addr = g.Admin
			}
			status, err := a.run(addr, time.Duration(random.IntN(300))*time.Millisecond)
			switch {
			case err != nil:
				t.broken(attackName, err, w.killed(g))
			case status == "" || a.expect == "" || strings.Contains(a.expect, status):
				t.attacked(a.name)
			default:
				t.wrong(attackName, fmt.Sprintf("%s on %s: status %s, expected %s", a.name, addr, status, a.expect))
			}
		}
	}
}

// run returns the status of the first answer, "" if there was none within patience. An error means that nothing listens.
func (a *attack) run(addr string, patience time.Duration) (status string, err error) {
	c, err := net.DialTimeout("tcp", addr, 5*time.Second)
	if err != nil {
		return "", err
	}
	defer c.Close()
	_ = c.(*net.TCPConn).SetLinger(0) // leave with a reset
	if err := c.SetDeadline(time.Now().Add(patience + time.Second)); err != nil {
		return "", err
	}
	_ = a.send(c, addr) // the server may close early: what it answered counts
	if err := c.SetReadDeadline(time.Now().Add(patience)); err != nil {
		return "", nil
	}
	head := make([]byte, len("HTTP/1.1 200"))
	if _, err := io.ReadFull(c, head); err != nil {
		return "", nil
	}
	return string(head[len(head)-3:]), nil
}
