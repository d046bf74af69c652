package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/xebec-serving/xebec/bench/internal/results"
	"github.com/xebec-serving/xebec/bench/loadgen"
)

// stream is one function's load for a while.
type stream struct {
	function string
	rate     float64 // requests a second of an open loop, Poisson; 0: a closed loop
	clients  int     // connections
	duration time.Duration
	seed     uint64
	// fields are more lines of the requests' headers.
	fields []string
}

// played is what came of streams that ran side by side. Times count from before the first of them began.
type played struct {
	streams []heard
	cpu     CPU
}

// heard is what one stream saw.
type heard struct {
	stream
	trace      trace
	result     *loadgen.Result
	begin, end time.Duration // requests were due between these
}

// play runs streams side by side, each with a generator of one thread, and waits for the last answer.
func (b *bench) play(ctx context.Context, streams ...stream) (*played, error) {
	p := &played{streams: make([]heard, len(streams))}
	errs := make([]error, len(streams))
	before, err := readUsage(b.gateway.PID())
	if err != nil {
		return nil, err
	}
	began := time.Now()
	var running sync.WaitGroup
	for i, s := range streams {
		h := &p.streams[i]
		h.stream = s
		h.trace = make(trace, 0, int(s.rate*s.duration.Seconds()*1.2)) // a closed loop has no rate: it grows
		running.Go(func() {
			h.result, errs[i] = loadgen.Run(ctx, loadgen.Options{
				Addr: b.gateway.addr, Requests: b.data.requests(b.gateway.addr, s.function, s.fields...), Connections: s.clients,
				Rate: s.rate, Seed: s.seed, Duration: s.duration,
				OnMeasure: func() { h.begin = time.Since(began) },
				OnEnd:     func() { h.end = time.Since(began) },
				OnAnswer: func(a loadgen.Answered) {
					h.trace = append(h.trace, reply{a.Due.Sub(began), a.Done.Sub(began), judge(a, objective)})
				},
			})
		})
	}
	running.Wait()
	after, err := readUsage(b.gateway.PID())
	if err := errors.Join(append(errs, err)...); err != nil {
		return nil, fmt.Errorf("%w%s", err, b.gateway.LastWords())
	}
	p.cpu = after.since(before)
	return p, nil
}

// Load is one stream's numbers. What came at first, while the load was new, is not in the rates and latencies, but in the counts.
type Load struct {
	Function   string  `json:"function"`
	OfferedRPS float64 `json:"offered_rps,omitempty"` // 0: a closed loop
	// GoodputRPS are right outputs within the objective, by the second.
	GoodputRPS float64 `json:"goodput_rps"`

	InTime  int `json:"in_time"`
	Late    int `json:"late"`
	Expired int `json:"expired"` // 504: admitted, and not answered until the deadline
	Refused int `json:"refused"`
	// SteadyLost are those of them that had no prediction in time, and came after the load was new; SteadyAll had whatever answer.
	SteadyLost int `json:"steady_lost"`
	SteadyAll  int `json:"steady_all"`
	Defaults   int `json:"defaults"`

	// Others should be none: other statuses, wrong outputs, requests without an answer, requests never sent; and why.
	Others    int    `json:"others"`
	OthersWhy string `json:"others_why,omitempty"`

	Accepted Latency `json:"accepted"` // of predictions, in time or not
	Refusals Latency `json:"refusals"`
	// SendDelayP99 is how late the generator itself was, in milliseconds: it is part of the latencies.
	SendDelayP99 float64 `json:"send_delay_p99_ms,omitempty"`
}

// Latency is in milliseconds, from when a request was due; all 0 where there was none.
type Latency struct {
	P50 float64 `json:"p50_ms"`
	P99 float64 `json:"p99_ms"`
	Max float64 `json:"max_ms"`
}

func latencyOf(rising []float64) Latency {
	if len(rising) == 0 {
		return Latency{}
	}
	return Latency{results.Quantile(rising, 0.5), results.Quantile(rising, 0.99), results.Quantile(rising, 1)}
}

// ramp is what is not looked at when a load begins: at most a fifth.
func ramp(d time.Duration) time.Duration { return min(500*time.Millisecond, d/5) }

func (h *heard) load() Load {
	from := h.begin + ramp(h.duration)
	steady := h.trace.between(from, h.end)
	l := Load{
		Function: h.function, OfferedRPS: h.rate,
		GoodputRPS: float64(steady.count(inTime)) / (h.end - from).Seconds(),
		InTime:     h.trace.count(inTime), Late: h.trace.count(late), Expired: h.trace.count(expired), Refused: h.trace.count(refused), Defaults: h.trace.count(defaulted),
		Accepted: latencyOf(steady.millis(inTime, late)), Refusals: latencyOf(steady.millis(refused)),
	}
	l.SteadyAll = len(steady)
	l.SteadyLost = l.SteadyAll - steady.count(inTime)
	l.Others, l.OthersWhy = others(h.trace, h.result)
	if h.result.SendDelay != nil {
		l.SendDelayP99 = h.result.SendDelay.P99 / 1e3
	}
	return l
}

// others is what should not happen.
func others(t trace, r *loadgen.Result) (n int, why string) {
	var all []string
	add := func(count int, what string) {
		if count > 0 {
			n += count
			all = append(all, fmt.Sprintf("%d %s", count, what))
		}
	}
	for status, count := range r.Status {
		if status != 200 && status != 503 && status != 504 {
			add(int(count), fmt.Sprintf("of status %d", status))
		}
	}
	add(int(r.Wrong), "wrong outputs ("+r.FirstWrong+")")
	for what, count := range r.Errors {
		add(int(count), what)
	}
	add(int(r.Unanswered), "without an answer")
	add(int(r.Dropped), "never sent")
	slices.Sort(all)
	return n, strings.Join(all, ", ")
}
