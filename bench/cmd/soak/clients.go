package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/xebec-serving/xebec/bench/internal/runner"
)

// player plays until the context ends.
type player func(context.Context)

// players are all that plays against the gateway.
func (w *world) players(t *tally) []player {
	players := []player{w.operate(t), w.kill(t)}
	for i := range 4 {
		players = append(players, w.ask(t, i, "echo", 1<<7, time.Millisecond))
	}
	players = append(players,
		w.ask(t, 10, "big", 600<<10, 20*time.Millisecond),
		w.ask(t, 11, "naps", 1<<7, 2500*time.Millisecond),
		w.ask(t, 12, "rolling", 1<<7, 5*time.Millisecond),
		w.ask(t, 13, "both", 1<<4, 5*time.Millisecond),
		w.ask(t, 14, "trouble", 1<<4, 50*time.Millisecond),
	)
	for i := range 2 {
		players = append(players, w.attack(t, i))
	}
	return players
}

// client is one connection that checks what it reads. Each request must get exactly one answer.
type client struct {
	conn   net.Conn
	reader *bufio.Reader
	addr   string
}

const (
	answerWithin = 20 * time.Second // longer than every objective and a cold start
	maxAnswer    = 4 << 20
)

func (c *client) close() {
	if c.conn != nil {
		c.conn.Close()
		c.conn = nil
	}
}

// send returns the answer to one request. An error means that the connection broke.
func (c *client) send(ctx context.Context, addr, path, contentType string, body []byte) (status int, answer []byte, err error) {
	if c.conn != nil && c.addr != addr {
		c.close()
	}
	if c.conn == nil {
		var d net.Dialer
		if c.conn, err = d.DialContext(ctx, "tcp", addr); err != nil {
			c.conn = nil
			return 0, nil, err
		}
		c.addr, c.reader = addr, bufio.NewReader(c.conn)
	}
	defer func() {
		if err != nil {
			c.close()
		}
	}()
	if err := c.conn.SetDeadline(time.Now().Add(answerWithin)); err != nil {
		return 0, nil, err
	}
	head := "POST " + path + " HTTP/1.1\r\nHost: " + addr + "\r\nContent-Type: " + contentType + "\r\nContent-Length: " + strconv.Itoa(len(body)) + "\r\n\r\n"
	buffers := net.Buffers{[]byte(head), body}
	if _, err := buffers.WriteTo(c.conn); err != nil {
		return 0, nil, err
	}
	res, err := http.ReadResponse(c.reader, nil)
	if err != nil {
		return 0, nil, err
	}
	defer res.Body.Close()
	answer, err = io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	if err != nil {
		return 0, nil, err
	}
	if c.reader.Buffered() > 0 {
		return 0, nil, errDouble
	}
	if res.Close {
		c.close()
	}
	return res.StatusCode, answer, nil
}

var errDouble = errors.New("more bytes than one answer")

// answerOf is an answer of a function whose output is bytes.
type answerOf struct {
	QueryID json.Number     `json:"query_id"`
	Output  json.RawMessage `json:"output"`
	Default bool            `json:"default"`
	Code    string          `json:"code"` // of an error
}

// ask sends queries to a function, with a pause after each, and checks that each answer is what was sent.
func (w *world) ask(t *tally, number int, function string, size int, pause time.Duration) player {
	return func(ctx context.Context) {
		random := rand.New(rand.NewPCG(w.cfg.seed, 100+uint64(number)))
		c := &client{}
		defer c.close()
		input := make([]byte, size)
		for n := 0; runner.Sleep(ctx, pause) == nil; n++ {
			fill(random, input)
			allowed, label := w.prepare(function, random, input)
			g := w.now()
			status, answer, err := c.send(ctx, g.Addr, "/"+function+"/predict", "application/octet-stream", input)
			if ctx.Err() != nil {
				return
			}
			if err != nil {
				t.broken(function, err, w.killed(g))
				continue
			}
			var got answerOf
			if err := json.Unmarshal(answer, &got); err != nil {
				t.wrong(function, fmt.Sprintf("status %d, not JSON: %.200q", status, answer))
				continue
			}
			t.answered(function, status, got.Code)
			switch {
			case status == 200 && (got.Default || !equal(got.Output, input)):
				t.wrong(function, fmt.Sprintf("sent %.40q: got %.200s", input, answer))
			case status != 200 && !slices.Contains(allowed, status):
				t.wrong(function, fmt.Sprintf("sent %.40q: status %d, %.200s", input, status, answer))
			case status == 200 && label:
				w.teach(ctx, t, c, g.Addr, function, got)
			}
		}
	}
}

// prepare changes the input to what the function is there for, and returns the statuses that may come beside 200.
func (w *world) prepare(function string, random *rand.Rand, input []byte) (allowed []int, label bool) {
	// 502: a replica was killed twice under the same query. 503: no replica. 504: it came too late.
	allowed = []int{502, 503, 504}
	switch function {
	case "trouble":
		copy(input, []string{"panic", "error", "bad", "die", "fine "}[random.IntN(5)])
	case "both":
		label = random.IntN(4) == 0
	case "rolling":
		allowed = append(allowed, 404) // it is deployed after the start
	}
	return allowed, label
}

func fill(random *rand.Rand, input []byte) {
	for i := range input {
		input[i] = 'A' + byte(random.IntN(26))
	}
}

func equal(output json.RawMessage, input []byte) bool {
	var got struct {
		B64 []byte `json:"b64"`
	}
	return json.Unmarshal(output, &got) == nil && bytes.Equal(got.B64, input)
}

// teach sends the right label for a query. Its status says whether it counted.
func (w *world) teach(ctx context.Context, t *tally, c *client, addr, function string, a answerOf) {
	body := fmt.Appendf(nil, `{"query_id": %s, "label": %s}`, a.QueryID, a.Output)
	status, answer, err := c.send(ctx, addr, "/"+function+"/feedback", "application/json", body)
	if err != nil || ctx.Err() != nil {
		return // the gateway was killed; the queries notice
	}
	t.answered("feedback", status, "")
	if !slices.Contains([]int{200, 202, 404, 410, 503}, status) {
		t.wrong("feedback", fmt.Sprintf("status %d, %.200s", status, answer))
	}
}

// isRefused reports whether nothing listened: the gateway is starting again.
func isRefused(err error) bool { return errors.Is(err, syscall.ECONNREFUSED) }
