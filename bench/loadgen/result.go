package loadgen

import (
	"fmt"
	"math"
	"sort"
	"strings"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Result is the result of a run. Command loadgen prints its JSON form.
type Result struct {
	Mode        string  `json:"mode"` // "closed", "open poisson" or "open constant"
	Connections int     `json:"connections"`
	RateTarget  float64 `json:"rate_target_rps,omitempty"`
	Seconds     float64 `json:"seconds"` // length of the measured part

	// Completed is the number of answers of any status that arrived in the measured part, RPS the same per second.
	Completed uint64  `json:"completed"`
	RPS       float64 `json:"rps"`

	// Latency covers the answered requests that were due (open loop) or sent (closed loop) in the measured part, from that moment to the last
	// byte of the answer.
	Latency Distribution `json:"latency"`
	// SendDelay is the open loop's own lateness, from due to sent. It is part of Latency and should be small beside it.
	SendDelay *Distribution `json:"send_delay,omitempty"`

	Status   map[int]uint64 `json:"status"`
	Defaults uint64         `json:"defaults"` // answers of status 200 with a function's default output
	Wrong    uint64         `json:"wrong"`    // answers of status 200 with an unexpected body
	// FirstWrong is the beginning of the first wrong body.
	FirstWrong string `json:"first_wrong,omitempty"`
	// Errors counts requests without an answer by reason: failed connections, malformed answers.
	Errors map[string]uint64 `json:"errors,omitempty"`
	// Unanswered requests were still outstanding at the end of the grace period. Dropped requests were due but never sent, because the backlog
	// was full. If either is not 0, the latencies are too low.
	Unanswered uint64 `json:"unanswered,omitempty"`
	Dropped    uint64 `json:"dropped,omitempty"`
}

// Distribution is in microseconds.
type Distribution struct {
	P50  float64 `json:"p50_us"`
	P90  float64 `json:"p90_us"`
	P99  float64 `json:"p99_us"`
	P999 float64 `json:"p999_us"`
	Max  float64 `json:"max_us"`
	Mean float64 `json:"mean_us"`
}

// Clean returns nil if every request got a right answer of status 200 that was not a default output. Otherwise the error lists what happened.
func (r *Result) Clean() error {
	var bad []string
	for _, status := range sortedStatus(r.Status) {
		if status != 200 {
			bad = append(bad, fmt.Sprintf("%d answers of status %d", r.Status[status], status))
		}
	}
	if r.Defaults > 0 {
		bad = append(bad, fmt.Sprintf("%d default outputs", r.Defaults))
	}
	if r.Wrong > 0 {
		bad = append(bad, fmt.Sprintf("%d wrong answers, the first: %s", r.Wrong, r.FirstWrong))
	}
	for why, n := range r.Errors {
		bad = append(bad, fmt.Sprintf("%d × %s", n, why))
	}
	if r.Unanswered > 0 {
		bad = append(bad, fmt.Sprintf("%d requests unanswered", r.Unanswered))
	}
	if r.Dropped > 0 {
		bad = append(bad, fmt.Sprintf("%d requests never sent", r.Dropped))
	}
	if len(r.Status) == 0 {
		bad = append(bad, "no answers")
	}
	if len(bad) == 0 {
		return nil
	}
	return fmt.Errorf("the run is not clean: %s", strings.Join(bad, "; "))
}

// Failed returns the number of requests without a right answer.
func (r *Result) Failed() uint64 {
	n := r.Defaults + r.Wrong + r.Unanswered + r.Dropped
	for status, count := range r.Status {
		if status != 200 {
			n += count
		}
	}
	for _, count := range r.Errors {
		n += count
	}
	return n
}

func sortedStatus(m map[int]uint64) []int {
	var keys []int
	for k := range m {
		keys = append(keys, k)
	}
	sort.Ints(keys)
	return keys
}

const (
	// maxLatency is recorded for anything that takes longer.
	maxLatency = 2 * time.Minute
	// With three significant digits 1 ms and 1.001 ms are distinct.
	latencyDigits = 3
)

func newHistogram() *hdrhistogram.Histogram {
	return hdrhistogram.New(100, int64(maxLatency), latencyDigits)
}

func record(h *hdrhistogram.Histogram, nanos int64) {
	// The value is clamped, so there is no error.
	_ = h.RecordValue(min(max(nanos, 0), int64(maxLatency)))
}

func distribution(h *hdrhistogram.Histogram) Distribution {
	micros := func(nanos float64) float64 { return math.Round(nanos/10) / 100 }
	q := func(p float64) float64 { return micros(float64(h.ValueAtQuantile(p))) }
	return Distribution{q(50), q(90), q(99), q(99.9), micros(float64(h.Max())), micros(h.Mean())}
}
