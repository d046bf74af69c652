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

// stream is the load on one function.
type stream struct {
	function string
	rate     float64 // requests a second of an open loop, Poisson; 0: a closed loop
	clients  int     // connections
	duration time.Duration
	seed     uint64
	// fields are extra header fields of the requests.
	fields []string
}

// played is the result of streams that ran side by side. Times count from before the first stream began.
type played struct {
	streams []heard
	cpu     CPU
}

// heard is the result of one stream.
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
		h.trace = make(trace, 0, int(s.rate*s.duration.Seconds()*1.2)) // a closed loop has no rate, so its trace grows
		running.Go(func() {
			h.result, errs[i] = loadgen.Run(ctx, loadgen.Options{
				Addr: b.gateway.Addr, Requests: b.data.requests(b.gateway.Addr, s.function, s.fields...), Connections: s.clients,
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

// Load holds one stream's numbers. The first moments of a load are in the counts but not in the rates and latencies.
type Load struct {
	Function   string  `json:"function"`
	OfferedRPS float64 `json:"offered_rps,omitempty"` // 0: a closed loop
	// GoodputRPS is the number of right outputs within the objective per second.
	GoodputRPS float64 `json:"goodput_rps"`

	InTime  int `json:"in_time"`
	Late    int `json:"late"`
	Expired int `json:"expired"` // 504: admitted, but not answered until the deadline
	Refused int `json:"refused"`
	// SteadyAll counts all answers after the first moments, SteadyLost those of them without a prediction in time.
	SteadyLost int `json:"steady_lost"`
	SteadyAll  int `json:"steady_all"`
	Defaults   int `json:"defaults"`

	// Others should be 0: other statuses, wrong outputs, requests without an answer, requests never sent. OthersWhy lists them.
	Others    int    `json:"others"`
	OthersWhy string `json:"others_why,omitempty"`

	Accepted Latency `json:"accepted"` // of predictions, in time or late
	Refusals Latency `json:"refusals"`
	// SendDelayP99 is the generator's own lateness in milliseconds. It is part of the latencies.
	SendDelayP99 float64 `json:"send_delay_p99_ms,omitempty"`
}

// Latency is in milliseconds, from when a request was due. It is all 0 if there were no answers.
type Latency struct {
	P50 float64 `json:"p50_ms"`
	P99 float64 `json:"p99_ms"`
	Max float64 `json:"max_ms"`
}

func latencyOf(millis []float64) Latency {
	if len(millis) == 0 {
		return Latency{}
	}
	q := results.Quantiles(millis)
	return Latency{q(0.5), q(0.99), q(1)}
}

// ramp is the first part of a load that does not count in rates and latencies: at most a fifth.
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

// others counts and lists the outcomes that should not happen.
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
