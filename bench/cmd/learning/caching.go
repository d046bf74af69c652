package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/xebec-serving/xebec/bench/internal/gateway"
	"github.com/xebec-serving/xebec/bench/internal/runner"
	"github.com/xebec-serving/xebec/bench/loadgen"
)

// Caching is the measurement of section 4.2: feedback by input to an ensemble of four models, with and without the prediction cache.
type Caching struct {
	Models []Trained `json:"models"`
	Images int       `json:"images"`
	// Joins are rounds of feedback alone, whose inputs were predicted shortly before. Whole are rounds of complete observations: a query with
	// a new input, then its feedback.
	Joins []CacheRound `json:"joins"`
	Whole []CacheRound `json:"queries_with_feedback"`
}

// CacheRound is one run without the cache and one with it: counted observations per second.
type CacheRound struct {
	Without float64 `json:"without_per_second"`
	With    float64 `json:"with_per_second"`
}

func (r CacheRound) ratio() float64   { return r.With / r.Without }
func (r CacheRound) with() float64    { return r.With }
func (r CacheRound) without() float64 { return r.Without }

const (
	cachingRounds = 3
	// feedbackBatch is the number of observations in a request.
	feedbackBatch = 16
	// teachers is the number of concurrent clients: enough to keep the ensemble's members in batches.
	teachers       = 16
	cachedFunction = "ensemble"
	// busyPause is how long a client waits when the gateway has too much pending feedback.
	busyPause = time.Millisecond
)

func measureCaching(ctx context.Context, cfg config) (*Caching, error) {
	e, err := load(cfg.models, "cache")
	if err != nil {
		return nil, err
	}
	out := &Caching{Models: e.Models, Images: cfg.scaled(e.Queries)}
	clients := map[bool]*teaching{}
	for _, cached := range []bool{false, true} {
		g, err := startGateway(ctx, cfg, func(_ string, m *manifestText) {
			for _, name := range e.names() {
				m.model(cfg, e, name, cached)
			}
			m.function(cachedFunction, e.names(), "exp4", patient)
		})
		if err != nil {
			return nil, err
		}
		defer g.Stop()
		t := &teaching{gateway: g, e: e, images: out.Images}
		if err := t.concurrently(ctx, t.askAll); err != nil {
			return nil, fmt.Errorf("cache %v: %w", cached, err)
		}
		clients[cached] = t
	}
	for i := range cachingRounds {
		order := runner.Alternate(i, false, true)
		joins, err := compareCaches(ctx, clients, order, cfg.lasting(3*time.Second), (*teaching).joinOnly)
		if err != nil {
			return nil, err
		}
		whole, err := compareCaches(ctx, clients, order, cfg.lasting(3*time.Second), (*teaching).observe)
		if err != nil {
			return nil, err
		}
		out.Joins, out.Whole = append(out.Joins, joins), append(out.Whole, whole)
		runner.Logf("    observations/s without the cache and with it: feedback alone %.0f and %.0f (%.1f×), queries with feedback %.0f and %.0f (%.1f×)",
			joins.Without, joins.With, joins.ratio(), whole.Without, whole.With, whole.ratio())
	}
	return out, nil
}

// compareCaches gives feedback in one way to both gateways.
func compareCaches(ctx context.Context, clients map[bool]*teaching, order []bool, duration time.Duration, way func(*teaching, context.Context, *client, int) error) (r CacheRound, err error) {
	for _, cached := range order {
		t := clients[cached]
		rate, err := t.rate(ctx, duration, func(ctx context.Context, c *client, teacher int) error {
			for ctx.Err() == nil {
				if err := way(t, ctx, c, teacher); err != nil && ctx.Err() == nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return r, fmt.Errorf("cache %v: %w", cached, err)
		}
		if cached {
			r.With = rate
		} else {
			r.Without = rate
		}
	}
	return r, nil
}

// teaching sends feedback to one gateway.
type teaching struct {
	gateway *gateway.Gateway
	e       *experiment
	images  int
	next    atomic.Uint64 // number of the last new observation
}

// concurrently runs all teachers and waits for them. The first failure ends the others.
func (t *teaching) concurrently(ctx context.Context, work func(ctx context.Context, c *client, teacher int) error) error {
	c := newClient(t.gateway.Addr, teachers)
	defer c.close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	errs := make([]error, teachers)
	var running sync.WaitGroup
	for i := range errs {
		running.Go(func() {
			if errs[i] = work(ctx, c, i); errs[i] != nil {
				cancel()
			}
		})
	}
	running.Wait()
	return errors.Join(errs...)
}

// rate returns how many observations a second the gateway counts while the teachers work. The first eighth is not measured.
func (t *teaching) rate(ctx context.Context, duration time.Duration, work func(ctx context.Context, c *client, teacher int) error) (float64, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- t.concurrently(ctx, work) }()
	var at [2]time.Time
	var count [2]float64
	for i, wait := range []time.Duration{duration / 8, duration} {
		select {
		case err := <-done: // early, so it has failed
			return 0, errors.Join(err, ctx.Err())
		case <-time.After(wait):
		}
		var err error
		if count[i], err = feedbackCounted(ctx, t.gateway, cachedFunction); err != nil {
			cancel()
			return 0, errors.Join(err, <-done)
		}
		at[i] = time.Now()
	}
	cancel()
	return (count[1] - count[0]) / at[1].Sub(at[0]).Seconds(), <-done
}

// askAll queries every image once. All models must take part, so that feedback finds their predictions.
func (t *teaching) askAll(ctx context.Context, c *client, teacher int) error {
	for i := teacher; i < t.images; i += teachers {
		got, err := c.predict(ctx, cachedFunction, t.e.rows[i], "")
		if err == nil {
			err = t.complete(&got)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// complete returns an error if a model had no part in the answer.
func (t *teaching) complete(p *prediction) error {
	if p.missing(len(t.e.Models)) > 0 {
		return fmt.Errorf("a query to %s: only %v took part", cachedFunction, p.Models)
	}
	return nil
}

// joinOnly gives feedback for images that were queried before.
func (t *teaching) joinOnly(ctx context.Context, c *client, _ int) error {
	from := int(t.next.Add(feedbackBatch)) % t.images
	body := []byte(`{"feedback_batch":[`)
	for k := range feedbackBatch {
		i := (from + k) % t.images
		body = appendFeedback(body, k, appendPixels(nil, t.e.rows[i]), t.e.labels[i])
	}
	return t.teach(ctx, c, append(body, `]}`...))
}

// observe queries new images and gives feedback for them.
func (t *teaching) observe(ctx context.Context, c *client, _ int) error {
	last := t.next.Add(feedbackBatch)
	queries, feedback := []byte(`{"input_batch":[`), []byte(`{"feedback_batch":[`)
	for k := range feedbackBatch {
		number := last - uint64(k)
		i := int(number % uint64(t.images))
		input := appendPixels(nil, marked(t.e.rows[i], number))
		if k > 0 {
			queries = append(queries, ',')
		}
		queries = append(queries, input...)
		feedback = appendFeedback(feedback, k, input, t.e.labels[i])
	}
	var got struct {
		Predictions []prediction `json:"batch_predictions"`
	}
	if err := c.post(ctx, cachedFunction+"/predict", loadgen.JSON, append(queries, `]}`...), "", &got); err != nil {
		return err
	}
	if len(got.Predictions) != feedbackBatch {
		return fmt.Errorf("%d predictions for %d queries", len(got.Predictions), feedbackBatch)
	}
	for i := range got.Predictions {
		if err := t.complete(&got.Predictions[i]); err != nil {
			return err
		}
	}
	return t.teach(ctx, c, append(feedback, `]}`...))
}

// marked returns the image with a number in its first eight pixels, so faint that it hardly affects any model.
func marked(pixels []byte, number uint64) []byte {
	out := append([]byte(nil), pixels...)
	for k := range 8 {
		out[k] = byte(number >> (4 * k) & 15)
	}
	return out
}

// appendPixels appends an image as JSON.
func appendPixels(to, pixels []byte) []byte {
	to = append(to, '[')
	for i, pixel := range pixels {
		if i > 0 {
			to = append(to, ',')
		}
		to = strconv.AppendUint(to, uint64(pixel), 10)
	}
	return append(to, ']')
}

// appendFeedback appends one observation by input, the k-th of a batch.
func appendFeedback(body []byte, k int, input []byte, label int64) []byte {
	if k > 0 {
		body = append(body, ',')
	}
	return fmt.Appendf(body, `{"input":%s,"label":%d}`, input, label)
}

// teach sends a batch of feedback. If too much feedback is pending it pauses; any other feedback that does not count is an error.
func (t *teaching) teach(ctx context.Context, c *client, body []byte) error {
	var answer struct {
		Results []told `json:"feedback_results"`
	}
	if err := c.post(ctx, cachedFunction+"/feedback", loadgen.JSON, body, "", &answer); err != nil {
		return err
	}
	if len(answer.Results) == 0 {
		return errors.New("the answer to a batch of feedback is empty")
	}
	for _, r := range answer.Results {
		switch r.Status {
		case counted, pending:
		case busy:
			_ = runner.Sleep(ctx, busyPause) // the caller checks ctx
			return nil
		default:
			return fmt.Errorf("feedback to %s: %q, expected %q, %q or %q", cachedFunction, r.Status, counted, pending, busy)
		}
	}
	return nil
}
