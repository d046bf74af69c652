package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/xebec-serving/xebec/bench/loadgen"
)

const (
	// maxAnswerBytes is far more than the names of sixteen models take.
	maxAnswerBytes = 64 << 10
	// answerWithin exceeds every objective here.
	answerWithin = 30 * time.Second
)

// client sends queries and feedback to a gateway. It is safe for concurrent use.
type client struct {
	http *http.Client
	base string
}

func newClient(addr string, connections int) *client {
	transport := &http.Transport{
		DialContext:        (&net.Dialer{Timeout: 5 * time.Second}).DialContext,
		MaxIdleConns:       connections,
		DisableCompression: true, MaxIdleConnsPerHost: connections,
	}
	return &client{&http.Client{Transport: transport, Timeout: answerWithin}, "http://" + addr}
}

func (c *client) close() { c.http.CloseIdleConnections() }

// prediction is a function's answer.
type prediction struct {
	QueryID     uint64   `json:"query_id"`
	Output      int64    `json:"output"`
	Default     bool     `json:"default"`
	Explanation string   `json:"default_explanation"`
	Confidence  float64  `json:"confidence"`
	Models      []string `json:"models"`  // had a part in the answer
	Late        []string `json:"late"`    // asked, but missed the deadline
	Failed      []string `json:"failed"`  // asked, but failed
	Dropped     []string `json:"dropped"` // not asked, because the plan had no room
}

// missing returns how many of the function's models had no part in the answer.
func (p *prediction) missing(of int) int { return of - len(p.Models) }

// predict sends one image to a function. context may be empty.
func (c *client) predict(ctx context.Context, function string, pixels []byte, context string) (p prediction, err error) {
	err = c.post(ctx, function+"/predict", loadgen.Binary, pixels, context, &p)
	for i, m := range p.Models { // name@version
		p.Models[i], _, _ = strings.Cut(m, "@")
	}
	return p, err
}

// told is the answer to feedback.
type told struct {
	Status string `json:"status"`
}

// The outcomes of feedback.
const (
	counted = "counted" // the policy has learned from it
	pending = "pending" // the policy will learn from it when the models have predicted
	busy    = "busy"    // rejected, because too much is pending
)

// feedback sends the label of a query's image.
func (c *client) feedback(ctx context.Context, function string, queryID uint64, label int64) error {
	var t told
	if err := c.post(ctx, function+"/feedback", loadgen.JSON, fmt.Appendf(nil, `{"query_id":%d,"label":%d}`, queryID, label), "", &t); err != nil {
		return err
	}
	if t.Status != counted {
		return fmt.Errorf("feedback of query %d to %s: %q, expected %q", queryID, function, t.Status, counted)
	}
	return nil
}

func (c *client) post(ctx context.Context, path, contentType string, body []byte, context string, into any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.base+"/"+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", contentType)
	if context != "" {
		req.Header.Set("Xebec-Context", context)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswerBytes))
	if err != nil {
		return fmt.Errorf("answer of /%s: %w", path, err)
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("/%s: status %d: %.300s", path, resp.StatusCode, data)
	}
	if err := json.Unmarshal(data, into); err != nil {
		return fmt.Errorf("answer of /%s: %w: %.300s", path, err, data)
	}
	return nil
}
