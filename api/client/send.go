package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// MaxAnswerBytes bounds an answer that is not a stream.
const MaxAnswerBytes = 1 << 30 //xebec:limit an answer that the Go client reads

const octets = "application/octet-stream"

// Retry says how requests are tried again. The zero value has the defaults.
type Retry struct {
	// Attempts is how often a request is sent at most: 3 if 0; 1 for no retries.
	Attempts int
	// Base and Cap bound the random pause before attempt n+1: Base·2ⁿ⁻¹, at most Cap. 50 ms and 2 s if 0.
	Base, Cap time.Duration
	// Budget is for all requests of a client: each failure takes one of its tokens, ten successes give one back, and nothing is sent again while
	// half of them or fewer are left. So a gateway that is down gets few requests beyond those of its callers. 10 if 0.
	Budget float64
}

const refill = 0.1

type budget struct {
	Retry
	mu     sync.Mutex
	tokens float64
}

func newBudget(r Retry) *budget {
	if r.Attempts == 0 {
		r.Attempts = 3
	}
	if r.Base == 0 {
		r.Base = 50 * time.Millisecond
	}
	if r.Cap == 0 {
		r.Cap = 2 * time.Second
	}
	if r.Budget == 0 {
		r.Budget = 10
	}
	return &budget{Retry: r, tokens: r.Budget}
}

func (b *budget) succeeded() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.tokens = min(b.tokens+refill, b.Budget)
}

// again reports whether a request may be sent once more, and after which pause. attempt counts from 1.
func (b *budget) again(e *Error, attempt int, once bool) (time.Duration, bool) {
	switch e.Code {
	case "overloaded", "no_replica", "shutting_down", "model_removed", "unavailable", "replica_lost", NotConnected:
	case ConnectionFailed:
		if once {
			return 0, false
		}
	default:
		return 0, false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.tokens = max(b.tokens-1, 0)
	if b.tokens <= b.Budget/2 || attempt >= b.Attempts {
		return 0, false
	}
	most := min(b.Base<<min(attempt-1, 20), b.Cap)
	return e.RetryAfter + rand.N(max(most, 1)), true
}

// request is one that may be sent several times.
type request struct {
	method, path string
	header       http.Header
	body         []byte
	once         bool // it counts each time that it is received
	noSLO        bool // it has no latency objective
}

func newRequest(function, action string, body any, context string) (*request, error) {
	if function == "" || strings.Trim(function, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" {
		return nil, fmt.Errorf("function %q: expected lower-case letters, digits and dashes", function)
	}
	r := &request{method: http.MethodPost, path: "/" + function, header: http.Header{}}
	if action != "" {
		r.path += "/" + action
	}
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return nil, fmt.Errorf("the request to %s: %w", r.path, err)
		}
		r.body = text
		r.header.Set("Content-Type", "application/json")
	}
	if context != "" {
		r.header.Set("Xebec-Context", context)
	}
	return r, nil
}

// read sends a request and reads the whole answer.
func (c *Client) read(ctx context.Context, r *request) (http.Header, []byte, error) {
	answer, err := c.send(ctx, r)
	if err != nil {
		return nil, nil, err
	}
	defer answer.Body.Close()
	body, err := readAll(answer.Body)
	if err != nil {
		return nil, nil, connectionError(ctx, err)
	}
	return answer.Header, body, nil
}

func readAll(r io.Reader) ([]byte, error) {
	body, err := io.ReadAll(io.LimitReader(r, MaxAnswerBytes+1))
	if err == nil && len(body) > MaxAnswerBytes {
		err = fmt.Errorf("the answer has more than %d bytes", MaxAnswerBytes)
	}
	return body, err
}

// send sends a request, again if that can help, and returns an answer with status 2xx, whose body the caller closes.
func (c *Client) send(ctx context.Context, r *request) (*http.Response, error) {
	for attempt := 1; ; attempt++ {
		answer, err := c.try(ctx, r)
		if err == nil {
			c.budget.succeeded()
			return answer, nil
		}
		e, ok := errors.AsType[*Error](err)
		if !ok {
			return nil, err
		}
		wait, again := c.budget.again(e, attempt, r.once)
		if deadline, ok := ctx.Deadline(); !again || ok && time.Until(deadline) <= wait {
			return nil, err
		}
		if c.pause(ctx, wait) != nil {
			return nil, err // what the gateway said tells more than that the context has ended
		}
	}
}

// try sends a request once.
func (c *Client) try(ctx context.Context, r *request) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, r.method, c.address+r.path, bytes.NewReader(r.body))
	if err != nil {
		return nil, err
	}
	for _, h := range []http.Header{c.header, r.header} {
		for name, values := range h {
			req.Header[name] = values
		}
	}
	if deadline, ok := ctx.Deadline(); ok && !r.noSLO {
		if ms := objective(time.Until(deadline)); ms > 0 {
			req.Header.Set("Xebec-Slo-Ms", strconv.FormatFloat(ms, 'f', 3, 64))
		}
	}
	answer, err := c.http.Do(req)
	if err != nil {
		return nil, connectionError(ctx, err)
	}
	if answer.StatusCode/100 == 2 {
		return answer, nil
	}
	defer answer.Body.Close()
	body, err := readAll(answer.Body)
	if err != nil {
		return nil, connectionError(ctx, err)
	}
	return nil, failure(answer.StatusCode, answer.Header, body)
}

// The largest objective that a gateway takes, and the part of a context's time that an answer may need for its way back.
const (
	maxObjective = 10 * time.Minute
	backPart     = 20
	maxBack      = 20 * time.Millisecond
)

// objective is the latency objective in milliseconds of a call whose context has this time left.
func objective(left time.Duration) float64 {
	left -= min(left/backPart, maxBack)
	return min(left, maxObjective).Seconds() * 1000
}

// connectionError says what an error of the transport means. If the context has ended, that is the reason.
func connectionError(ctx context.Context, err error) error {
	if ended := ctx.Err(); ended != nil {
		return fmt.Errorf("no answer before the context ended: %w", ended)
	}
	code := ConnectionFailed
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "dial" {
		code = NotConnected
	}
	return &Error{Code: code, Message: err.Error(), cause: err}
}

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
