package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/xebec-serving/xebec/bench/internal/gateway"
	"github.com/xebec-serving/xebec/bench/loadgen"
)

const (
	// patience is the deadline of queries that wake a model. A query that fails then has failed and is not just late.
	patience = 20 * time.Second
	// pollEvery is how often the gateway is asked for a model's status, pollAllEvery for its own. With ten thousand models the latter
	// takes memory, which is what is measured.
	pollEvery    = 20 * time.Millisecond
	pollAllEvery = 250 * time.Millisecond
	// asleepWithin is far more than a model with a short idle time needs to fall asleep.
	asleepWithin = time.Minute
	// maxAnswerBytes bounds what is read of an answer.
	maxAnswerBytes = 64 << 10
)

// asker queries a gateway like an application, over kept connections.
type asker struct {
	client *http.Client
	base   string
}

func newAsker(g *gateway.Gateway) *asker {
	transport := &http.Transport{MaxIdleConnsPerHost: atOnce}
	return &asker{&http.Client{Timeout: 2 * patience, Transport: transport}, "http://" + g.Addr}
}

func (a *asker) close() { a.client.CloseIdleConnections() }

// asked is one query, from when it was sent until its whole answer had arrived.
type asked struct {
	began, done time.Time
	text        []byte
}

func (q *asked) millis() float64 { return millis(q.done.Sub(q.began)) }

func millis(d time.Duration) float64 { return d.Seconds() * 1e3 }

// post sends a query. An answer with another status than 200 is an error.
func (a *asker) post(ctx context.Context, path string, body []byte) (*asked, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, a.base+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", loadgen.JSON)
	req.Header.Set("Xebec-Slo-Ms", strconv.FormatInt(patience.Milliseconds(), 10))
	q := &asked{began: time.Now()}
	res, err := a.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	q.text, err = io.ReadAll(io.LimitReader(res.Body, maxAnswerBytes))
	q.done = time.Now()
	if err != nil {
		return nil, err
	}
	if res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("POST %s: status %d, %.300s", path, res.StatusCode, q.text)
	}
	return q, nil
}

// function queries a function whose right answer is 0.
func (a *asker) function(ctx context.Context, name string, body []byte) (*asked, error) {
	q, err := a.post(ctx, "/"+name+"/predict", body)
	if err != nil {
		return nil, err
	}
	var answer struct {
		Output  *float64 `json:"output"`
		Default bool     `json:"default"`
	}
	if err := json.Unmarshal(q.text, &answer); err != nil || answer.Output == nil || *answer.Output != 0 || answer.Default {
		return nil, fmt.Errorf("function %s answered %.300s: expected the output 0, and no default", name, q.text)
	}
	return q, nil
}

// model queries a model without a function by the Open Inference Protocol. The right answer is 0.
func (a *asker) model(ctx context.Context, name string, body []byte) (*asked, error) {
	q, err := a.post(ctx, "/v2/models/"+name+"/infer", body)
	if err != nil {
		return nil, err
	}
	var answer struct {
		Outputs []struct {
			Data []float64 `json:"data"`
		} `json:"outputs"`
	}
	if err := json.Unmarshal(q.text, &answer); err != nil || len(answer.Outputs) != 1 || !slices.Equal(answer.Outputs[0].Data, []float64{0}) {
		return nil, fmt.Errorf("model %s answered %.300s: expected one output, 0", name, q.text)
	}
	return q, nil
}
